"""Texts of PVs."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .pv import PV

LIMITS = tuple(f"{end}_{kind}_limit" for kind in ("disp", "alarm", "warning", "ctrl") for end in ("upper", "lower"))
"""The names of the limits."""

_SHOWN = (
    "char_value",
    "count",
    "nelm",
    "type",
    "units",
    "precision",
    "host",
    "access",
    "status",
    "char_status",
    "severity",
    "char_severity",
    "timestamp",
    "posixseconds",
    "nanoseconds",
    *LIMITS,
)


def number_text(value: float, precision: int | None) -> str:
    """The number with this number of digits after the decimal point."""
    if precision is None or not math.isfinite(value):
        return str(value)
    is_large = abs(int(math.log10(abs(value + 1e-9) or 1e-9))) > 4
    return f"{value:.{max(0, precision)}{'g' if is_large else 'f'}}"


def described(pv: PV) -> str:
    """All attributes of a PV."""
    pv.get_ctrlvars()
    pv.get_timevars()
    value = pv.value
    form, _, kind = pv.typefull.rpartition("_")
    lines = [f"== {pv.pvname}  ({form or 'native'}_{kind}) =="]
    if pv.nelm == 1:
        lines.append(f"   {'value':15s} = {value:g}" if isinstance(value, float) else f"   {'value':15s} = {value}")
    else:
        shown = ",".join(f"{each:g}" if isinstance(each, float) else str(each) for each in list(value)[:5])
        lines.append(f"   {'value':15s} =  array  [{shown}{',...' if len(value) > 5 else ''}]")
    for name in _SHOWN:
        found = getattr(pv, name)
        if found is None:
            continue
        if name == "timestamp":
            found = f"{found:.3f} ({fmt_time(found)})"
        elif name == "char_value":
            found = f"'{found}'"
        lines.append(f"   {name:20s} = {found}" if len(name) > 14 else f"   {name:15s} = {found}")
    if kind == "enum":
        lines.append("   enum strings: ")
        lines += [f"       {index} = {text}" for index, text in enumerate(pv._args["enum_strs"] or ())]
    if pv.auto_monitor_mask is None:
        lines.append("   PV is NOT internally monitored")
    else:
        lines.append(f"   PV is internally monitored, with {len(pv.callbacks)} user-defined callbacks")
    lines.append("=" * 29)
    return "\n".join(lines)


def fmt_time(tstamp: float | None = None) -> str:
    """A time in seconds since 1970, or now, as local time with five digits of the second."""
    seconds, fraction = divmod(round((time.time() if tstamp is None else tstamp) * 1e5), 100_000)
    return f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(seconds))}.{fraction:05d}"
