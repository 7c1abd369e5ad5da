"""The records of the program, by name."""

from __future__ import annotations

from collections.abc import ItemsView
from typing import TYPE_CHECKING

from ._state import STATE

if TYPE_CHECKING:
    from .device import ProcessDeviceSupportCore

__all__ = ["LookupRecord", "LookupRecordList"]


def LookupRecord(name: str) -> ProcessDeviceSupportCore:  # noqa: N802
    """The record with this full name; raises `KeyError` if there is none."""
    return STATE.devices[name]


def LookupRecordList() -> ItemsView[str, ProcessDeviceSupportCore]:  # noqa: N802
    """Names and records."""
    return STATE.devices.items()
