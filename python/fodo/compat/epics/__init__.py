"""The functions and classes of pyepics 3.5, on Fodo.

A program written for pyepics changes its import: `from fodo.compat import epics`. Callbacks run on one thread, and may get and
put. Names may begin with `pva://`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ... import _native
from ..._errors import Error
from . import _channels, alarm, autosave, ca, dbr, device, motor, multiproc, pv, utils
from ._channels import holder
from ._texts import fmt_time
from .alarm import Alarm
from .ca import CAThread, poll
from .device import Device
from .motor import Motor
from .multiproc import CAPool, CAProcess
from .pv import PV, get_pv

__all__ = [
    "INVALID_ALARM",
    "MAJOR_ALARM",
    "MINOR_ALARM",
    "NO_ALARM",
    "PV",
    "Alarm",
    "CAPool",
    "CAProcess",
    "CAThread",
    "Device",
    "Motor",
    "alarm",
    "autosave",
    "ca",
    "caget",
    "caget_many",
    "cainfo",
    "camonitor",
    "camonitor_clear",
    "caput",
    "caput_many",
    "dbr",
    "device",
    "get_pv",
    "motor",
    "multiproc",
    "poll",
    "pv",
    "utils",
]

__version__ = "3.5.10"
"""The version of pyepics whose functions these are."""

NO_ALARM = 0
MINOR_ALARM = 1
MAJOR_ALARM = 2
INVALID_ALARM = 3

_CAMONITOR = -999
"""The index of the callback of `camonitor`."""


def caput(
    pvname: str, value: Any, wait: bool = False, timeout: float = 60.0, connection_timeout: float = 5.0
) -> int | None:
    """Writes a PV. `wait`: until the server has completed processing. Returns 1; -1 if it was not completed in time; `None` if
    the PV is not connected in time."""
    deadline = time.monotonic() + timeout
    found = get_pv(pvname, timeout=connection_timeout, connect=True)
    return found.put(value, wait=wait, timeout=deadline - time.monotonic()) if found.connected else None


def caget(
    pvname: str,
    as_string: bool = False,
    count: int | None = None,
    as_numpy: bool = True,
    use_monitor: bool = True,
    timeout: float = 5.0,
    connection_timeout: float = 5.0,
) -> Any:
    """Reads a PV: the latest value of its monitor, or with `use_monitor=False` that of the server. `None` if there is none in
    time."""
    deadline = time.monotonic() + timeout
    found = get_pv(pvname, timeout=connection_timeout, connect=True)
    if not found.connected:
        return None
    if as_string:
        found.get_ctrlvars()
    left = deadline - time.monotonic()
    return found.get(count=count, as_string=as_string, as_numpy=as_numpy, use_monitor=use_monitor, timeout=left)


def cainfo(
    pvname: str, print_out: bool = True, timeout: float = 5.0, connection_timeout: float = 5.0
) -> str | None:
    """Prints the attributes of a PV, or returns them as a text."""
    found = get_pv(pvname, timeout=connection_timeout, connect=True)
    if not found.connected:
        return None
    found.get(timeout=timeout)
    text = found.info
    if not print_out:
        return text
    ca.write(text or "")
    return None


def camonitor(
    pvname: str,
    writer: Callable[[str], Any] | None = None,
    callback: Callable[..., Any] | None = None,
    connection_timeout: float = 5.0,
    monitor_delta: float | None = None,
) -> None:
    """Prints each change of a PV, or passes it to `writer` as a text or to `callback`. A second call for the same PV replaces
    the first; `PV.add_callback` adds more."""
    write = ca.write if writer is None else writer

    def show(pvname: str = "", value: Any = None, char_value: str | None = None, **_: Any) -> None:
        write(f"{pvname:.32s} {fmt_time()} {repr(value) if char_value is None else char_value}")

    found = get_pv(pvname, timeout=connection_timeout, connect=True, monitor_delta=monitor_delta)
    if found.connected:
        found.get()
        found.add_callback(show if callback is None else callback, index=_CAMONITOR, with_ctrlvars=True)
        holder.get().monitored[pvname] = found


def camonitor_clear(pvname: str) -> None:
    """Ends a `camonitor`."""
    found = holder.get().monitored.pop(pvname, None)
    if found is not None:
        found.remove_callback(index=_CAMONITOR)


def caget_many(
    pvlist: Iterable[str],
    as_string: bool = False,
    as_numpy: bool = True,
    count: int | None = None,
    timeout: float = 1.0,
    connection_timeout: float = 5.0,
    conn_timeout: float | None = None,
) -> list[Any]:
    """Reads many PVs at once. The value of a PV that is not connected or does not reply in time is `None`.

    `connection_timeout` and `timeout` are for all PVs together.
    """
    client = holder.get()
    channels = [client.channel(name) for name in pvlist]
    limit = connection_timeout if conn_timeout is None else conn_timeout
    _connect(channels, limit)
    connected = [channel for channel in channels if channel.info is not None]
    for channel in connected:
        n = min(count or 0, channel.nelm)
        channel.keep((channel.ftype, n), channel.start_get(channel.ftype, n))
    deadline = time.monotonic() + timeout
    values: list[Any] = []
    for channel in channels:
        left = max(0.0, deadline - time.monotonic())
        if channel in connected:
            values.append(ca.get_complete(channel.number, None, count, left, as_string, as_numpy))
        else:
            values.append(None)
    return values


def _connect(channels: Sequence[_channels.Channel], timeout: float) -> None:
    waiting = [channel for channel in channels if channel.info is None]
    ends = _native.wait([channel.native.connect() for channel in waiting], max(0.0, timeout))
    for channel, end in zip(waiting, ends, strict=True):
        if not isinstance(end, Error) and channel.info is None:
            channel.learn(end)


def caput_many(
    pvlist: Iterable[str],
    values: Iterable[Any],
    wait: bool | str | None = False,
    connection_timeout: float = 5.0,
    put_timeout: float = 60,
) -> list[int]:
    """Writes many PVs. `wait="each"` waits after each put, `wait="all"` after the last. Returns 1 or -1 for each.

    `connection_timeout` is for all PVs together.
    """
    names, given = list(pvlist), list(values)
    if len(names) != len(given):
        raise ValueError(f"there are {len(names)} names but {len(given)} values")
    pvs = [get_pv(name, auto_monitor=False, timeout=connection_timeout) for name in names]
    _connect([each._channel for each in pvs], connection_timeout)
    is_all = wait == "all"
    results = [
        each.put(value, wait=wait == "each", timeout=put_timeout, use_complete=is_all) if each.connected else None
        for each, value in zip(pvs, given, strict=True)
    ]
    if is_all:
        deadline = time.monotonic() + put_timeout
        while time.monotonic() < deadline and any(each.connected and not each.put_complete for each in pvs):
            poll(evt=1e-3)
        return [1 if each.connected and each.put_complete else -1 for each in pvs]
    return [1 if result == 1 else -1 for result in results]
