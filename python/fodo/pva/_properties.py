"""Alarm, time stamp and metadata as the fields of structures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, TypedDict

from .._values import Severity

_CLASSES: tuple[tuple[str, ...], ...] = (
    ("NO_ALARM",),
    ("STATE", "READ", "WRITE", "HIHI", "HIGH", "LOLO", "LOW", "COS", "HW_LIMIT"),
    ("COMM", "TIMEOUT", "UDF"),
    ("SOFT", "CALC", "SCAN", "LINK", "BAD_SUB"),
    ("DISABLE", "SIMM", "READ_ACCESS", "WRITE_ACCESS"),
)
"""The reasons of alarms in the classes of the normative types, the index of which is sent."""

_UNDEFINED = 6


class Properties(TypedDict, total=False):
    """What a value can be posted with."""

    severity: Severity | int | str
    """How bad the alarm is; by default there is none."""

    status: str
    """The name of the reason of the alarm, such as `HIHI`."""

    message: str
    """The text of the alarm; by default the reason."""

    time: float | datetime
    """The time stamp: seconds since 1970, or a time with its zone. By default the current time."""

    units: str
    precision: int
    description: str
    display_limits: tuple[float, float]
    control_limits: tuple[float, float]
    warning_limits: tuple[float, float]
    alarm_limits: tuple[float, float]

    labels: Sequence[str]
    """The names of the states of an enum, or the titles of the columns of a table."""


_LIMITS = (
    ("display_limits", "display", "limitLow", "limitHigh"),
    ("control_limits", "control", "limitLow", "limitHigh"),
    ("warning_limits", "valueAlarm", "lowWarningLimit", "highWarningLimit"),
    ("alarm_limits", "valueAlarm", "lowAlarmLimit", "highAlarmLimit"),
)


def alarm(properties: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of an alarm; without an alarm if none is given."""
    severity = properties.get("severity", Severity.NO_ALARM)
    if isinstance(severity, str) and severity not in Severity.__members__:
        raise ValueError(f'the severity cannot be "{severity}": expected one of {", ".join(Severity.__members__)}')
    severity = Severity[severity] if isinstance(severity, str) else Severity(severity)
    status = str(properties.get("status", ""))
    found = (number for number, names in enumerate(_CLASSES) if status in names)
    number = 0 if severity is Severity.NO_ALARM and not status else next(found, _UNDEFINED)
    return {"severity": int(severity), "status": number, "message": properties.get("message", status)}


def time_stamp(time: float | datetime) -> dict[str, int]:
    """The fields of a time stamp."""
    if isinstance(time, datetime):
        if time.tzinfo is None:
            raise ValueError("the time has no zone: expected datetime with tzinfo, or seconds since 1970")
        seconds, nanoseconds = int(time.replace(microsecond=0).timestamp()), time.microsecond * 1000
    else:
        seconds = int(time // 1)
        nanoseconds = min(round((time - seconds) * 1_000_000_000), 999_999_999)
    return {"secondsPastEpoch": seconds, "nanoseconds": nanoseconds}


def fields(properties: Properties) -> dict[str, Any]:
    """The fields of properties, each with its path; the labels excepted."""
    given: dict[str, Any] = dict(properties)
    unknown = given.keys() - Properties.__annotations__.keys()
    if unknown:
        raise TypeError(f"unknown property {min(unknown)!r}: expected one of {', '.join(Properties.__annotations__)}")
    found: dict[str, Any] = {}
    if not given.keys().isdisjoint(("severity", "status", "message")):
        found["alarm"] = alarm(given)
    if "time" in given:
        found |= {f"timeStamp.{name}": number for name, number in time_stamp(given["time"]).items()}
    for name in ("units", "precision", "description"):
        if name in given:
            found[f"display.{name}"] = given[name]
    for name, structure, low, high in _LIMITS:
        if name in given:
            found[f"{structure}.{low}"], found[f"{structure}.{high}"] = given[name]
    return found
