"""What a PV knows: its attributes, which are read from the server when they are missing, and its counts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from . import dbr
from ._channels import Channel
from ._texts import LIMITS

_TIME_FIELDS = ("status", "severity", "timestamp", "posixseconds", "nanoseconds")
FIELDS = (
    "pvname",
    "value",
    "char_value",
    "ftype",
    "chid",
    "host",
    "access",
    "write_access",
    "read_access",
    *_TIME_FIELDS,
    "precision",
    "units",
    "enum_strs",
    *LIMITS,
)
"""The names of the attributes."""


def _shown_attribute(name: str, document: str = "A limit in the units of the value.") -> Any:
    """An attribute that is read from the server when it is not known."""
    return property(lambda pv: pv._getarg(name), doc=document)


@dataclass(frozen=True, slots=True)
class PVCounts:
    """What has happened to a PV so far, also what its other methods do not report."""

    received: int
    """Updates that were received."""

    merged: int
    """Updates that others replaced because callbacks did not keep up."""

    delivered: int
    """Updates of which the value became that of the PV."""

    n_disconnected: int
    """How often the connection was lost."""

    n_callback_errors: int
    """Exceptions of callbacks; each is logged, and the other callbacks are called."""

    n_gets_failed: int
    """Gets that returned `None`."""

    n_puts_failed: int
    """Puts that returned -1, or that a callback or `put_complete` has reported as completed although they failed."""

    last_put_error: Exception | None
    """Why the last of these puts failed."""


class PVAttributes:
    """The attributes of a PV."""

    _args: dict[str, Any]
    _channel: Channel
    _monitor_delta: float | None
    get: Callable[..., Any]
    put: Callable[..., Any]
    get_ctrlvars: Callable[..., Any]
    get_timevars: Callable[..., Any]
    wait_for_connection: Callable[..., bool]
    _text: Callable[..., str]

    def _getarg(self, name: str) -> Any:
        if self._args["value"] is None:
            self.get()
        if self._args.get(name) is None:
            if name in _TIME_FIELDS:
                self.get_timevars(timeout=1)
            else:
                self.get_ctrlvars(timeout=1)
        return self._args.get(name)

    @property
    def value(self) -> Any:
        """The value, as `get` and `put`."""
        return self._getarg("value")

    @value.setter
    def value(self, value: Any) -> None:
        self.put(value)

    @property
    def char_value(self) -> str:
        """The value as text."""
        value = self._getarg("value")
        if value is None:
            return "None"
        text = self._text(value, is_complete=True)
        self._args["char_value"] = text
        return text

    @property
    def type(self) -> str:
        """The name of the type, such as `time_double`."""
        return str(self._args["type"])

    @property
    def typefull(self) -> str:
        """The name of the type, such as `time_double`."""
        return str(self._args["typefull"])

    @property
    def ftype(self) -> int | None:
        """The number of the type; `None` before the PV was connected."""
        ftype: int | None = self._args["ftype"]
        return ftype

    @property
    def count(self) -> int:
        """The number of elements of the value."""
        count = self._args["count"]
        return int(count if count is not None else self._getarg("count") or 0)

    @property
    def nelm(self) -> int:
        """The maximum number of elements."""
        return self._channel.nelm

    host = _shown_attribute("host", "The address of the server.")
    access = _shown_attribute("access", "The access rights as a text.")
    read_access = _shown_attribute("read_access", "Whether the PV may be read.")
    write_access = _shown_attribute("write_access", "Whether the PV may be written.")
    status = _shown_attribute("status", "The reason of the alarm.")
    severity = _shown_attribute("severity", "How bad the alarm is.")
    timestamp = _shown_attribute("timestamp", "The time stamp in seconds since 1970.")
    posixseconds = _shown_attribute("posixseconds", "The whole seconds of the time stamp.")
    nanoseconds = _shown_attribute("nanoseconds", "The nanoseconds of the time stamp.")
    precision = _shown_attribute("precision", "Digits after the decimal point.")
    units = _shown_attribute("units", "Engineering units.")
    enum_strs = _shown_attribute("enum_strs", "The texts of the states of an enum.")
    upper_disp_limit = _shown_attribute("upper_disp_limit")
    lower_disp_limit = _shown_attribute("lower_disp_limit")
    upper_alarm_limit = _shown_attribute("upper_alarm_limit")
    lower_alarm_limit = _shown_attribute("lower_alarm_limit")
    upper_warning_limit = _shown_attribute("upper_warning_limit")
    lower_warning_limit = _shown_attribute("lower_warning_limit")
    upper_ctrl_limit = _shown_attribute("upper_ctrl_limit")
    lower_ctrl_limit = _shown_attribute("lower_ctrl_limit")

    @property
    def char_status(self) -> str:
        """The name of the reason of the alarm."""
        return dbr.AlarmStatus(self.status or 0).name

    @property
    def char_severity(self) -> str:
        """The name of the severity."""
        return dbr.AlarmSeverity(self.severity or 0).name

    @property
    def monitor_delta(self) -> float | None:
        """The deadband that was requested."""
        return self._monitor_delta
