"""What all normative types share."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any

from .._type import Type
from ..wrapper import Value

alarm = Type([("severity", "i"), ("status", "i"), ("message", "s")], id="alarm_t")
timeStamp = Type([("secondsPastEpoch", "l"), ("nanoseconds", "i"), ("userTag", "i")], id="time_t")

Timestamp = datetime | float | tuple[int, int]
Fields = list[tuple[str, Any]]


class NTBase:
    """A normative type, which makes values of Python objects and the reverse."""

    type: Type

    def __init__(self, *args: Any, **kws: Any) -> None:
        self.type = self.buildType(*args, **kws)

    @staticmethod
    def buildType(*args: Any, **kws: Any) -> Type:
        """The type of a structure with these options."""
        raise NotImplementedError("a normative type defines buildType()")

    def wrap(self, pyval: Any, **kws: Any) -> Value:
        """The structure for a Python object."""
        raise NotImplementedError("a normative type defines wrap()")

    def unwrap(self, V: Value) -> Any:
        """The Python object for a structure."""
        raise NotImplementedError("a normative type defines unwrap()")

    def assign(self, V: Value, pyval: Any) -> None:
        """Writes a Python object to a structure."""
        V[None] = self.wrap(pyval)

    @staticmethod
    def _annotate(
        value: Value, timestamp: Timestamp | None = None, severity: int | None = None, message: str | None = None
    ) -> Value:
        """Writes the alarm and the time stamp: a `datetime`, seconds since 1970, or seconds and nanoseconds."""
        if severity is not None:
            value["alarm.severity"] = severity
        if message is not None:
            value["alarm.message"] = message
        if timestamp is not None:
            if isinstance(timestamp, datetime):
                timestamp = timestamp.timestamp()
            if isinstance(timestamp, tuple):
                seconds, ns = timestamp
            else:
                whole, part = divmod(timestamp, 1.0)
                seconds, ns = int(whole), int(part * 1e9)
            value["timeStamp.secondsPastEpoch"] = seconds
            value["timeStamp.nanoseconds"] = ns
        return value


class ntwrappercommon:
    """The attributes that a value has in addition to being a number, a text or an array.

    `raw`: the structure. `severity`, `status`, `timestamp` in seconds since 1970, and `raw_stamp` in seconds and nanoseconds
    are those of the structure when they are first read.
    """

    raw: Value | None = None
    severity: int
    status: int
    timestamp: float | None
    raw_stamp: tuple[int, int]

    def _store(self, value: Value) -> Any:
        if not isinstance(value, Value):
            raise TypeError(f"the structure of a value is a Value, not {type(value).__name__}")
        self.raw = value
        return self

    def __getattr__(self, name: str) -> Any:
        found: Any
        raw = self.raw
        if name == "timestamp" and raw is None:
            found = None
        elif raw is None:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        elif name in ("severity", "status"):
            found = raw.get("alarm." + name, 0)
        elif name == "raw_stamp":
            found = raw.get("timeStamp.secondsPastEpoch", 0), raw.get("timeStamp.nanoseconds", 0)
        elif name == "timestamp":
            seconds, ns = self.raw_stamp
            found = seconds + ns * 1e-9
        else:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        setattr(self, name, found)
        return found

    def __str__(self) -> str:
        return f"{time.ctime(self.timestamp)} {self!r}"

    tostr = __str__
