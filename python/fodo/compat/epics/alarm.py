"""Callbacks when a PV leaves a range."""

from __future__ import annotations

import operator
import time
from collections.abc import Callable
from typing import Any

from . import ca
from .pv import PV, get_pv

_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "eq": operator.eq,
    "==": operator.eq,
    "ne": operator.ne,
    "!=": operator.ne,
    "le": operator.le,
    "<=": operator.le,
    "lt": operator.lt,
    "<": operator.lt,
    "ge": operator.ge,
    ">=": operator.ge,
    "gt": operator.gt,
    ">": operator.gt,
}


class Alarm:
    """Calls `callback` when `comparison` of the value of a PV and `trip_point` becomes true, at most once in `alert_delay`
    seconds.

    `comparison`: one of `==`, `!=`, `<=`, `<`, `>=`, `>`, `eq`, `ne`, `le`, `lt`, `ge`, `gt`, or a function of both. Without
    a callback it prints a line.
    """

    ops = _OPERATORS

    def __init__(
        self,
        pvname: str | PV,
        comparison: str | Callable[[Any, Any], Any] | None = None,
        trip_point: Any = None,
        callback: Callable[..., Any] | None = None,
        alert_delay: float = 10,
    ) -> None:
        self.pv = pvname if isinstance(pvname, PV) else get_pv(pvname, connect=True)
        if comparison is None or trip_point is None:
            raise UserWarning("an alarm needs a comparison and a trip point")
        self.trip_point = trip_point
        self.last_alert = 0.0
        self.alert_delay = alert_delay
        self.user_callback = callback
        if callable(comparison):
            self.cmp, self.comp_name = comparison, getattr(comparison, "__name__", repr(comparison))
        else:
            found = self.ops.get(comparison.replace("_", ""))
            if found is None:
                raise UserWarning(f"there is no comparison {comparison!r}; expected one of {', '.join(self.ops)}")
            self.cmp, self.comp_name = found, comparison
        self.alarm_state = False
        self.pv.add_callback(self.check_alarm)

    def reset(self) -> None:
        """Forgets that the alarm was raised."""
        self.last_alert = 0.0
        self.alarm_state = False

    def check_alarm(self, pvname: str | None = None, value: Any = None, char_value: Any = None, **kw: Any) -> None:
        """The callback of the PV."""
        if pvname is None or value is None:
            return
        had_alarm, self.alarm_state = self.alarm_state, bool(self.cmp(value, self.trip_point))
        now = time.time()
        if not self.alarm_state or had_alarm or now - self.last_alert <= self.alert_delay:
            return
        self.last_alert = now
        text = value if char_value is None else char_value
        if not callable(self.user_callback):
            ca.write(f"Alarm: {pvname}={text} ({time.ctime()})")
            return
        self.user_callback(
            pvname=pvname, value=value, char_value=text, trip_point=self.trip_point, comparison=self.comp_name, **kw
        )

    def __repr__(self) -> str:
        return f"<Alarm pvname='{self.pv.pvname}', comparison='{self.comp_name}', trip_point={self.trip_point}>"
