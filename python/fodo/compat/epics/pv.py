"""PVs as objects, which keep their latest value."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from ... import _native
from ..._errors import Error
from ..._info import Info
from . import _channels, ca, dbr
from ._attributes import FIELDS, PVAttributes
from ._attributes import PVCounts as PVCounts
from ._channels import holder
from ._pv_cache import clear_pvcache as clear_pvcache
from ._pv_cache import get_pv as get_pv
from ._texts import described
from ._texts import fmt_time as fmt_time
from ._texts import number_text

# Seconds for which a put of a deadband waits; it delays other callbacks.
_DEADBAND_S = 0.5


class PV(PVAttributes):
    """A PV. It connects by itself, and again after the connection was lost.

    Callbacks of all PVs run on one thread. They may call `get`, and `put` with `wait=True`.
    """

    def __init__(
        self,
        pvname: str,
        callback: Callable[..., Any] | Sequence[Callable[..., Any]] | None = None,
        form: str = "time",
        verbose: bool = False,
        auto_monitor: bool | int | None = None,
        count: int | None = None,
        connection_callback: Callable[..., Any] | None = None,
        connection_timeout: float | None = None,
        access_callback: Callable[..., Any] | None = None,
        monitor_delta: float | None = None,
    ) -> None:
        self.pvname = pvname.strip()
        self.form = form.lower()
        self.verbose = verbose
        self.connection_timeout = ca.DEFAULT_CONNECTION_TIMEOUT if connection_timeout is None else connection_timeout
        self.callbacks: dict[Any, tuple[Callable[..., Any], dict[str, Any]]] = {}
        self.connection_callbacks: list[Any] = [] if connection_callback is None else [connection_callback]
        self.access_callbacks: list[Any] = [] if access_callback is None else [access_callback]
        if isinstance(callback, (tuple, list)):
            self.callbacks = {index: (each, {}) for index, each in enumerate(callback) if callable(each)}
        elif callable(callback):
            self.callbacks[0] = (callback, {})
        self._auto_monitor = auto_monitor
        self._user_count = count
        self._monitor_delta = monitor_delta
        self._is_delta_local = False
        self._last_value: Any = None
        self._args: dict[str, Any] = {}
        self._put_complete: bool | None = None
        self._monitor: Any = None
        self._monitor_mask: int | None = None
        self._ended_counts = (0, 0, 0, 0, 0)
        self._n_callback_errors = 0
        self._n_gets_failed = 0
        self._n_puts_failed = 0
        self._last_put_error: Exception | None = None
        self._n_disconnected = 0
        self._lock = threading.RLock()
        self._is_open = True
        client = holder.get()
        self.context = id(client)
        self._channel = client.channel(self.pvname)
        self.chid: dbr.chid_t | None = self._channel.number
        self._clear_args()
        self._attach()

    def _clear_args(self) -> None:
        self._args = dict.fromkeys(FIELDS)
        self._args |= {
            "pvname": self.pvname,
            "chid": self._channel.number,
            "count": self._user_count,
            "nelm": -1,
            "type": "unknown",
            "typefull": "unknown",
            "access": "unknown",
            "monitor_delta": self._monitor_delta,
        }

    def _attach(self) -> None:
        if self._rights_changed not in self._channel.access_callbacks:
            self._channel.access_callbacks.append(self._rights_changed)
        self._channel.add_listener(self._connection_changed)

    # Connection.

    @property
    def connected(self) -> bool:
        """Whether the PV is connected."""
        return self._is_open and self._channel.info is not None

    def _learn(self) -> None:
        """Takes over what the server reports."""
        info = self._channel.last_info
        if info is None:
            return
        ftype = ca.promote_type(self._channel.number, use_time=self.form == "time", use_ctrl=self.form == "ctrl")
        kind = str(dbr.Name(ftype)).lower()
        count = min(info.count_max, self._user_count or info.count_max)
        with self._lock:
            is_known = self._args["nelm"] == info.count_max and self._args["host"] == info.server
            self._args |= {"nelm": info.count_max, "host": info.server, "type": kind, "typefull": kind, "ftype": ftype}
            if not is_known or self._args["count"] is None:
                self._args["count"] = count
        self._learn_rights(info)

    def _learn_rights(self, info: Info) -> None:
        self._args["read_access"], self._args["write_access"] = info.may_read, info.may_write
        self._args["access"] = ca.access_text(info.may_read, info.may_write)

    def _connection_changed(self, is_connected: bool) -> None:
        if not self._is_open:
            return
        if is_connected:
            self._learn()
        else:
            self._n_disconnected += 1
            if self.verbose:
                ca.write(f"PV '{self.pvname}' disconnected.")
        for callback in tuple(self.connection_callbacks):
            if callable(callback):
                self._call(callback, pvname=self.pvname, conn=is_connected, pv=self)
        if is_connected:
            if self.callbacks and self._args["units"] is None and not self._channel.is_array:
                self.get_ctrlvars(timeout=1.0, warn=False)
            self._check_auto_monitor()

    def _rights_changed(self, read_access: bool, write_access: bool) -> None:
        self._args["read_access"], self._args["write_access"] = read_access, write_access
        self._args["access"] = ca.access_text(read_access, write_access)
        for callback in tuple(self.access_callbacks):
            if callable(callback):
                self._call(callback, read_access, write_access, pv=self)

    def _call(self, callback: Callable[..., Any], *arguments: Any, **options: Any) -> None:
        """Calls a callback. An exception is logged and counted."""
        try:
            callback(*arguments, **options)
        except Exception as error:  # noqa: BLE001
            self._n_callback_errors += 1
            _channels.report(self.pvname, error)

    def wait_for_connection(self, timeout: float | None = None) -> bool:
        """Waits until the PV is connected, for `connection_timeout` seconds unless `timeout` says otherwise. Returns whether it
        is; `False` after `disconnect`."""
        if not self._is_open:
            return False
        if not self._channel.wait(self.connection_timeout if timeout is None else timeout):
            return False
        if self._args["ftype"] is None:
            self._learn()
        return self.connected

    def connect(self, timeout: float | None = None) -> bool:
        """As `wait_for_connection`, also after `disconnect`."""
        if not self._is_open:
            self._open()
        return self.wait_for_connection(timeout)

    def reconnect(self) -> bool:
        """Connects again after `disconnect`. Returns whether the PV is connected."""
        self._clear_monitor()
        if self._is_open:
            self._check_auto_monitor()
        else:
            self._open()
        return self.wait_for_connection()

    def force_connect(self, pvname: str | None = None, chid: Any = None, conn: bool = True, **kws: Any) -> None:
        """Connects again after `disconnect`; otherwise runs the callbacks of the connection."""
        if not self._is_open:
            self._open()
        elif self.connected:
            self._connection_changed(conn)

    def _open(self) -> None:
        client = holder.get()
        self.context = id(client)
        self._channel = client.channel(self.pvname)
        self.chid = self._channel.number
        self._clear_args()
        self._is_open = True
        self._attach()

    def disconnect(self, deepclean: bool = True) -> None:
        """Ends the monitor and removes all callbacks. The PV has no value until `reconnect`."""
        self._is_open = False
        self._clear_monitor()
        self._channel.remove_listener(self._connection_changed)
        if self._rights_changed in self._channel.access_callbacks:
            self._channel.access_callbacks.remove(self._rights_changed)
        client = holder.existing
        if client is not None and client.pvs.get((self.pvname, self.form, id(client))) is self:
            client.pvs.pop((self.pvname, self.form, id(client)), None)
        self.callbacks.clear()
        self.access_callbacks, self.connection_callbacks = [], []
        self._clear_args()

    def poll(self, evt: float = 1e-4, iot: float = 1.0) -> None:
        """Gives other threads time to run."""
        ca.poll(evt=evt, iot=iot)

    def force_read_access_rights(self) -> None:
        """Takes over the access rights that the server has reported last."""
        info = self._channel.info
        if info is not None:
            self._learn_rights(info)

    # Monitor.

    @property
    def auto_monitor(self) -> bool | int | None:
        """Whether the PV is monitored, or the mask of the monitor; `None` before the PV is connected: monitored unless it has
        too many elements."""
        return self._auto_monitor

    @auto_monitor.setter
    def auto_monitor(self, value: bool | int | None) -> None:
        self._auto_monitor = value
        self._check_auto_monitor()

    @property
    def auto_monitor_mask(self) -> int | None:
        """The mask of the monitor; `None` without one."""
        return self._monitor_mask

    def clear_auto_monitor(self) -> None:
        """Ends the monitor."""
        self.auto_monitor = False

    def _check_auto_monitor(self) -> None:
        with self._lock:
            count = self._args["count"]
            if not self.connected or count is None:
                return
            if self._auto_monitor is None:
                self._auto_monitor = count < ca.AUTOMONITOR_MAXLENGTH
            mask = ca.DEFAULT_SUBSCRIPTION_MASK if self._auto_monitor is True else int(self._auto_monitor)
            if self._monitor is not None and self._monitor_mask == mask:
                return
            self._clear_monitor()
            if not mask:
                return
            self._set_deadband()
            self._monitor_mask = mask
            self._monitor = self._channel.client.context.monitor(
                self.pvname,
                self._updated,
                detail=_channels.DETAILS.get(self.form, "time"),
                mask=_channels.mask_text(mask),
                count=self._user_count or 0,
            )

    def _clear_monitor(self) -> None:
        with self._lock:
            monitor, self._monitor, self._monitor_mask = self._monitor, None, None
            if monitor is not None:
                monitor.close()
                sums = zip(self._ended_counts, monitor._native.counts(), strict=True)
                self._ended_counts = tuple(one + other for one, other in sums)

    def _set_deadband(self) -> None:
        """Sets the deadband of the record; where that is impossible, small changes are skipped here."""
        native = dbr.native_type(self._args["ftype"])
        if self._monitor_delta is None or self._channel.is_array or native not in (dbr.FLOAT, dbr.DOUBLE):
            return
        record = self.pvname.split(".", maxsplit=1)[0]
        channel = self._channel.client.context._channel(f"{record}.MDEL")
        (end,) = _native.wait([channel.put(float(self._monitor_delta), True, None)], _DEADBAND_S)
        self._is_delta_local = isinstance(end, Error)

    def _updated(self, value: Any) -> None:
        """On the thread of the callbacks."""
        if not self._is_open:
            return
        number = _channels.plain(value, self._channel.is_array, ca.HAS_NUMPY)
        if self._is_delta_local and self._monitor_delta is not None:
            if self._last_value is not None and abs(number - self._last_value) < self._monitor_delta:
                return
            self._last_value = number
        self._take(value, number, self._args["ftype"])
        self._args["char_value"] = self._text(number)
        if self.verbose:
            ca.write(f"{self.pvname}: {self._args['char_value']} ({fmt_time(self._args['timestamp'])})")
        for index in sorted(self.callbacks):
            self._call(self.run_callback, index)

    def _take(self, value: Any, number: Any, ftype: int) -> dict[str, Any]:
        """Takes over a value that was received; returns its attributes."""
        found = _channels.metadata(value, ftype)
        times = {"timestamp": time.time(), "posixseconds": 0, "nanoseconds": 0}
        with self._lock:
            self._args |= found if "timestamp" in found else {**times, **found}
            self._args["value"] = number
            self._args["count"] = _channels.element_count(value)
        return {"value": number, **found}

    @property
    def counts(self) -> PVCounts:
        """The counts so far."""
        with self._lock:
            current = (0, 0, 0, 0, 0) if self._monitor is None else self._monitor._native.counts()
            received, merged, _, delivered, _ = (
                one + other for one, other in zip(self._ended_counts, current, strict=True)
            )
        return PVCounts(
            received,
            merged,
            delivered,
            self._n_disconnected,
            self._n_callback_errors,
            self._n_gets_failed,
            self._n_puts_failed,
            self._last_put_error,
        )

    # Callbacks.

    def add_callback(
        self,
        callback: Callable[..., Any] | None = None,
        index: Any = None,
        run_now: bool = False,
        with_ctrlvars: bool = True,
        **kw: Any,
    ) -> Any:
        """Adds a callback of values; returns its index. It receives keywords: `pvname`, `value`, `char_value` and all other
        attributes, `cb_info` with the index and the PV, and `kw`. `run_now` calls it with the current value at once."""
        if callable(callback):
            with self._lock:
                if index is None:
                    numbers = [number for number in self.callbacks if isinstance(number, int)]
                    index = 1 + max(numbers, default=0)
                self.callbacks[index] = (callback, kw)
        if with_ctrlvars and self.connected:
            self.get_ctrlvars()
        if run_now:
            self.get(as_string=True)
            if self.connected:
                self.run_callback(index)
        return index

    def remove_callback(self, index: Any = None) -> None:
        """Removes a callback; without an index the only one."""
        if index is None and len(self.callbacks) == 1:
            self.callbacks.clear()
        self.callbacks.pop(index, None)

    def clear_callbacks(self, with_access_callback: bool = False, with_connect_callback: bool = False) -> None:
        """Removes all callbacks of values, and others on request."""
        self.callbacks.clear()
        if with_access_callback:
            self.access_callbacks = []
        if with_connect_callback:
            self.connection_callbacks = []

    def run_callbacks(self) -> None:
        """Calls all callbacks with the current value."""
        for index in sorted(self.callbacks):
            self.run_callback(index)

    def run_callback(self, index: Any) -> None:
        """Calls one callback with the current value."""
        found = self.callbacks.get(index)
        if found is None:
            return
        callback, options = found
        with self._lock:
            arguments = self._args | options
        callback(**arguments, cb_info=(index, self))

    # Get.

    def get(
        self,
        count: int | None = None,
        as_string: bool = False,
        as_numpy: bool = True,
        timeout: float | None = None,
        with_ctrlvars: bool = False,
        use_monitor: bool = True,
    ) -> Any:
        """The value: the latest of the monitor, or with `use_monitor=False` that of the server. `None` if there is none in
        time; `counts` shows it, and the log says why."""
        found = self.get_with_metadata(count, as_string, as_numpy, timeout, with_ctrlvars, None, use_monitor)
        return None if found is None else found["value"]

    def get_with_metadata(
        self,
        count: int | None = None,
        as_string: bool = False,
        as_numpy: bool = True,
        timeout: float | None = None,
        with_ctrlvars: bool = False,
        form: str | None = None,
        use_monitor: bool = True,
        as_namespace: bool = False,
    ) -> Any:
        """As `get`, with the attributes that belong to `form`, or all that are known when the value is that of the monitor."""
        if not self.wait_for_connection(timeout=timeout):
            self._n_gets_failed += 1
            return None
        own = self._args["ftype"]
        wanted = own if form is None else dbr.promoted(own, form == "time", form == "ctrl")
        if with_ctrlvars and wanted < dbr.CTRL_STRING and self._args["units"] is None:
            self.get_ctrlvars()
        cached = self._args["value"]
        is_short = count is not None and self._channel.is_array and cached is not None and count > len(cached)
        if use_monitor and self._monitor is not None and wanted == own and cached is not None and not is_short:
            with self._lock:
                found = dict(self._args)
        else:
            n = min((self._user_count if count is None else count) or 0, self.nelm)
            limit = ca.default_timeout(n or self.nelm) if timeout is None else timeout
            (end,) = _native.wait([self._channel.start_get(wanted, n)], max(0.0, limit))
            value = self._received(end)
            if value is None:
                return None
            number = _channels.plain(value, self._channel.is_array, ca.HAS_NUMPY)
            if n in (0, self._user_count):
                found = self._take(value, number, wanted)
            else:
                # A part of the value is not the value of the PV.
                found = {"value": number, **_channels.metadata(value, wanted)}
            if with_ctrlvars:
                found = dict(self._args)
        found["value"] = self._shown(found["value"], count, as_string, as_numpy)
        return SimpleNamespace(**found) if as_namespace else found

    def _received(self, end: Any) -> Any:
        try:
            value = ca.received(self._channel, end)
        except ca.ChannelAccessGetFailure:
            self._n_gets_failed += 1
            raise
        if value is None:
            self._n_gets_failed += 1
        return value

    def _shown(self, value: Any, count: int | None, as_string: bool, as_numpy: bool) -> Any:
        """The value as the caller wants it."""
        if as_string:
            return self._text(value, is_complete=True)
        if not self._channel.is_array:
            return value
        if count is not None and count < len(value):
            value = value[:count]
        if as_numpy and ca.HAS_NUMPY:
            import numpy

            return numpy.asarray(value)
        return value.tolist() if hasattr(value, "tolist") else value

    def _text(self, value: Any, is_complete: bool = False) -> str:
        """The text of a value. `is_complete`: requests the precision and the texts of states if they are not known, and
        converts long texts."""
        native = dbr.native_type(self._args["ftype"])
        if value is None or native == dbr.STRING and not self._channel.is_array:
            return str(value)
        if native == dbr.CHAR and self._channel.is_array and (is_complete or self.count < ca.AUTOMONITOR_MAXLENGTH):
            return _channels.text_of_characters(value)
        if self._channel.is_array:
            return f"<array size={len(value)}, type={dbr.Name(self._args['ftype'])}>".lower()
        if native in (dbr.FLOAT, dbr.DOUBLE):
            if is_complete and self._args["precision"] is None:
                self.get_ctrlvars()
            return number_text(value, self._args["precision"])
        if native == dbr.ENUM:
            if is_complete and not self._args["enum_strs"]:
                self.get_ctrlvars()
            strs = self._args["enum_strs"] or ()
            return strs[value] if 0 <= value < len(strs) else str(value)
        return str(value)

    def get_ctrlvars(self, timeout: float = 5, warn: bool = True) -> dict[str, Any] | None:
        """Reads alarm, units, limits, precision and texts of states; `None` if they are not received in time."""
        return self._get_vars(ca.get_ctrlvars, timeout)

    def get_timevars(self, timeout: float = 5, warn: bool = True) -> dict[str, Any] | None:
        """Reads alarm and time stamp; `None` if they are not received in time."""
        return self._get_vars(ca.get_timevars, timeout)

    def _get_vars(self, read: Callable[..., dict[str, Any] | None], timeout: float) -> dict[str, Any] | None:
        if not self.wait_for_connection():
            return None
        found = read(self._channel.number, timeout=timeout)
        if found is None:
            self._n_gets_failed += 1
            return None
        with self._lock:
            self._args |= found
        return found

    # Put.

    def put(
        self,
        value: Any,
        wait: bool = False,
        timeout: float = 30.0,
        use_complete: bool = False,
        callback: Callable[..., Any] | None = None,
        callback_data: Any = None,
    ) -> int | None:
        """Writes the PV. Returns 1; -1 if it was not completed in time; `None` if the PV is not connected.

        `wait`: until the server has completed processing. `use_complete`: `put_complete` is then `True`. `callback(pvname=,
        data=callback_data)` is called then; a dict is passed as keywords. Raises `ca.CASeverityException` if the server
        refuses.
        """
        if not self.wait_for_connection():
            return None
        if isinstance(value, str) and dbr.native_type(self._args["ftype"]) == dbr.ENUM:
            if self._args["enum_strs"] is None:
                self.get_ctrlvars()
            strs = self._args["enum_strs"] or ()
            value = strs.index(value) if value in strs else value
        self._put_complete = False if use_complete else None

        def completed(error: Error | None) -> None:
            self._put_complete = True
            if error is not None:
                self._n_puts_failed += 1
                self._last_put_error = error
            if callback is not None:
                options = callback_data if isinstance(callback_data, dict) else {"data": callback_data}
                self._call(callback, pvname=self.pvname, **options)

        has_callback = use_complete or callback is not None
        status = ca.put_channel(self._channel, value, wait, timeout, completed if has_callback else None)
        if status < 0:
            self._n_puts_failed += 1
        monitor = self._monitor
        if wait and monitor is not None and not self._channel.client.context._is_calling_back:
            # The monitor has received what the put changed.
            _channels.wait_for_updates(monitor._native.counts)
        return status

    @property
    def put_complete(self) -> bool | None:
        """Whether the last put with `use_complete=True` has been completed; `None` after any other put."""
        return self._put_complete

    @property
    def info(self) -> str | None:
        """A text with all attributes; `None` if the PV is not connected."""
        return described(self) if self.wait_for_connection() else None

    def __repr__(self) -> str:
        if not self.connected:
            return f"<PV '{self.pvname}': not connected>"
        count = f"{self.count}/{self.nelm}" if self.nelm > 1 else "1"
        return f"<PV '{self.pvname}', count={count}, type={self.typefull}, access={self._args['access']}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PV) and self.chid == other.chid

    def __hash__(self) -> int:
        return hash(self.pvname)


default_pv_class = PV
"""The class of the PVs that `get_pv` returns."""


def __getattr__(name: str) -> Any:
    if name == "_PVcache_":
        # ophyd removes PVs from it.
        return holder.get().pvs
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
