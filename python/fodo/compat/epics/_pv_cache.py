"""The PVs that all callers of `get_pv` share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from . import _channels, ca
from ._channels import holder

if TYPE_CHECKING:
    from .pv import PV


def get_pv(
    pvname: Any,
    form: str = "time",
    connect: bool = False,
    context: Any = None,
    timeout: float = 5.0,
    connection_callback: Callable[..., Any] | None = None,
    access_callback: Callable[..., Any] | None = None,
    callback: Callable[..., Any] | None = None,
    verbose: bool = False,
    count: int | None = None,
    auto_monitor: bool | int | None = None,
    monitor_delta: float | None = None,
) -> PV:
    """The PV with this name and form: the same one for all callers, created by the first. Callbacks are added to it.

    `connect`: waits for the connection, for `timeout` seconds.
    """
    from . import pv as pvs

    if isinstance(pvname, pvs.PV):
        pvname = pvname.pvname
    if form not in _channels.DETAILS:
        form = "time"
    client = holder.get()
    with client.lock:
        key = (pvname, form, id(client))
        pv = client.pvs.get(key)
        is_new = pv is None
        if pv is None:
            pv = client.pvs[key] = pvs.default_pv_class(
                pvname,
                form=form,
                callback=callback,
                connection_callback=connection_callback,
                access_callback=access_callback,
                connection_timeout=timeout,
                count=count,
                verbose=verbose,
                auto_monitor=auto_monitor,
                monitor_delta=monitor_delta,
            )
    if not is_new:
        _add_callbacks(pv, connection_callback, access_callback, callback)
        if auto_monitor and not pv.auto_monitor:
            pv.auto_monitor = auto_monitor
    if connect and not pv.wait_for_connection(timeout=timeout):
        ca.write(f"cannot connect to {pvname}")
    return pv


def _add_callbacks(
    pv: PV,
    connection_callback: Callable[..., Any] | None,
    access_callback: Callable[..., Any] | None,
    callback: Callable[..., Any] | None,
) -> None:
    if connection_callback is not None:
        if pv.connected:
            connection_callback(pvname=pv.pvname, conn=True, pv=pv)
        pv.connection_callbacks.append(connection_callback)
    if access_callback is not None:
        if pv.connected:
            access_callback(pv._args["read_access"], pv._args["write_access"], pv=pv)
        pv.access_callbacks.append(access_callback)
    if callback is not None:
        index = pv.add_callback(callback)
        if pv.connected:
            pv.get()
            pv.run_callback(index)


def clear_pvcache() -> None:
    """Disconnects the PVs of `get_pv`."""
    client = holder.existing
    if client is not None:
        pvs, client.pvs, client.monitored = list(client.pvs.values()), {}, {}
        for pv in pvs:
            pv.disconnect()
