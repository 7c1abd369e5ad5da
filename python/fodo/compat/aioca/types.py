"""Types for annotations of programs that use aioca."""

from __future__ import annotations

from collections.abc import Sized
from datetime import datetime as _datetime
from typing import Any, Literal, Protocol

Timeout = None | tuple[float] | float
"""`None`: no timeout. A number: seconds. A tuple: the time at which it ends, as `time.time()`."""

Dbe = None | int
"""The kinds of change: the sum of `DBE_` codes. By default depends on the format."""

Dbr = Literal[0, 1, 2, 3, 4, 5, 6, 35, 36, 37, 38, 996, 997, 998, 999]
"""A request code."""

Datatype = None | Dbr | type[Any]
"""A request code, a type of Python or numpy; by default the type of the channel."""

Format = Literal[0, 1, 2]
"""Which attributes are requested with a value."""

Count = int
"""The maximum number of elements. 0: as many as the array has now; -1: the length of the array."""


class AugmentedValue(Protocol, Sized):
    """A value, as `caget` returns it and callbacks of `camonitor` receive it.

    A value that is not `ok` has an `errorcode` instead of the other attributes.
    """

    name: str
    """The name of the PV."""
    ok: bool
    errorcode: int
    datatype: int
    """The request code."""
    element_count: int
    """The maximum number of elements of the channel: 1 for a scalar."""
    severity: int
    """With `FORMAT_TIME` and `FORMAT_CTRL`, as `status`."""
    status: int
    raw_stamp: tuple[int, int]
    """Seconds since 1970 and nanoseconds; with `FORMAT_TIME`, as `timestamp` and `datetime`."""
    timestamp: float
    """Seconds since 1970, in microseconds."""
    datetime: _datetime
    units: str
    """With `FORMAT_CTRL`, as the following."""
    upper_disp_limit: float
    lower_disp_limit: float
    upper_alarm_limit: float
    lower_alarm_limit: float
    upper_warning_limit: float
    lower_warning_limit: float
    upper_ctrl_limit: float
    lower_ctrl_limit: float
    precision: int
    """Of floating point values."""
    enums: list[str]
    """Of an enum."""
    ackt: int
    """With `DBR_STSACK_STRING`, as `acks`."""
    acks: int
