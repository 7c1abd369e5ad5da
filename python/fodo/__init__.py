"""EPICS process variables over Channel Access and pvAccess.

`fodo.sync` has the client for programs with threads, `fodo.aio` the one for asyncio. Both have the same names. `fodo.ioc` runs
an IOC in a program, and `fodo.pva` serves PVs without records. `python -m fodo` is the program `fodo`.
"""

from __future__ import annotations

from importlib import import_module

# As in the module typing, which takes longer to import than all of this.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any

    from . import aio, ioc, pva, sync
    from ._batches import Batch, BatchCounts, BatchEvent, Row
    from ._errors import (
        Closed,
        Disconnected,
        Error,
        Forked,
        Misuse,
        NoReply,
        NotFound,
        Refused,
        WrongReply,
    )
    from ._info import Info
    from ._monitors import Counts, Event
    from ._values import (
        Alarm,
        Array,
        ArrayValue,
        EnumValue,
        FloatValue,
        IntValue,
        Limits,
        Severity,
        Structure,
        StructureValue,
        TextValue,
        Value,
    )

__all__ = [
    "Alarm",
    "Array",
    "ArrayValue",
    "Batch",
    "BatchCounts",
    "BatchEvent",
    "Closed",
    "Counts",
    "Disconnected",
    "EnumValue",
    "Error",
    "Event",
    "FloatValue",
    "Forked",
    "Info",
    "IntValue",
    "Limits",
    "Misuse",
    "NoReply",
    "NotFound",
    "Refused",
    "Row",
    "Severity",
    "Structure",
    "StructureValue",
    "TextValue",
    "Value",
    "WrongReply",
    "aio",
    "ioc",
    "pva",
    "sync",
]

_PLACES = {
    "_batches": ("Batch", "BatchCounts", "BatchEvent", "Row"),
    "_errors": ("Closed", "Disconnected", "Error", "Forked", "Misuse", "NoReply", "NotFound", "Refused", "WrongReply"),
    "_info": ("Info",),
    "_monitors": ("Counts", "Event"),
}


def __getattr__(name: str) -> Any:
    """A module or a class of the package. It is imported when first used: programs use a part, and start faster."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in ("aio", "ioc", "pva", "sync"):
        return import_module(f"{__name__}.{name}")
    place = next((module for module, names in _PLACES.items() if name in names), "_values")
    found = globals()[name] = getattr(import_module(f"{__name__}.{place}"), name)
    return found


def __dir__() -> list[str]:
    return __all__
