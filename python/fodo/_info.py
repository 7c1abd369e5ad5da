"""What a server reports about a PV."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Protocol = Literal["ca", "pva"]


@dataclass(frozen=True, slots=True)
class Info:
    """What a server has reported about a PV."""

    name: str
    """The name as the caller wrote it."""

    protocol: Protocol

    server: str
    """The address of the server."""

    kind: str
    """The kind of an element, such as `f64`, `enum` or `text`."""

    count_max: int
    """The maximum number of elements: 1 for a scalar. Over pvAccess 0 for an array of any length, and for a structure."""

    may_read: bool
    """Servers of pvAccess do not report it: always true."""

    may_write: bool
    """Servers of pvAccess do not report it: always true."""

    type: str | None = None
    """The type with all fields; only over pvAccess, and only from `info`."""
