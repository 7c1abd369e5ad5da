"""The logger of the package."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from logging import Logger


def logger(name: str = "fodo") -> Logger:
    """The logger with this name. The module logging is imported here: it takes as long as the rest of the package, and
    programs usually log nothing."""
    import logging

    return logging.getLogger(name)
