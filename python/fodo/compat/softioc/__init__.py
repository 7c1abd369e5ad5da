"""The interface of pythonSoftIOC 4.7 on Fodo: programs change the import.

    from fodo.compat.softioc import asyncio_dispatcher, builder, softioc

The page "Move from pythonSoftIOC" lists what differs.
"""

__version__ = "4.7.2"
"""The version of pythonSoftIOC whose interface this is."""

__all__ = ["__version__"]
