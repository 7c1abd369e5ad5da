"""The client of this process, and its channels."""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ... import _native, sync
from ..._client import Detail
from ..._fork_safe_lock import ForkSafeLock
from ..._info import Info
from ..._monitors import Event
from ..._values import Array, EnumValue, FloatValue, IntValue, Limits, Structure, TextValue
from . import dbr

if TYPE_CHECKING:
    from .pv import PV

DETAILS: dict[str, Detail] = {"native": "value", "time": "time", "ctrl": "control"}
"""What is requested for each form of a PV."""

# Native types of the kinds of elements; those that only pvAccess has become the next larger one.
_TYPES = {
    "text": dbr.STRING,
    "bool": dbr.SHORT,
    "i8": dbr.SHORT,
    "i16": dbr.SHORT,
    "f32": dbr.FLOAT,
    "enum": dbr.ENUM,
    "u8": dbr.CHAR,
    "u16": dbr.LONG,
    "i32": dbr.LONG,
    "u32": dbr.DOUBLE,
    "i64": dbr.DOUBLE,
    "u64": dbr.DOUBLE,
    "f64": dbr.DOUBLE,
}
_KINDS = ("text", "i16", "f32", "enum", "u8", "i32", "f64")
_MASKS = ((dbr.DBE_VALUE, "value"), (dbr.DBE_LOG, "log"), (dbr.DBE_ALARM, "alarm"), (dbr.DBE_PROPERTY, "property"))

# Seconds for which a call waits for callbacks of a connection, or for updates received before a put was completed. They
# may wait for a callback that the caller blocks.
_CALLBACKS_S = 0.25


def has_numpy() -> bool:
    """Whether numpy is installed."""
    return find_spec("numpy") is not None


def report(name: str, error: BaseException) -> None:
    """Logs an exception of a callback."""
    logging.getLogger("fodo").error('"%s": the callback failed', name, exc_info=error)


def mask_text(mask: int) -> str:
    """The mask as text."""
    return ",".join(name for bit, name in _MASKS if mask & bit) or "none"


class Channel:
    """The connection to a PV, which all its users in this process share."""

    def __init__(self, client: Client, name: str, number: int) -> None:
        self.client = client
        self.name = name
        self.number = dbr.chid_t(number)
        self.info: Info | None = None
        """What the server reports; `None` unless connected."""
        self.last_info: Info | None = None
        self.n_callback_errors = 0
        self.access_callbacks: list[Callable[[bool, bool], Any]] = []
        self.enum_strs: tuple[str, ...] | None = None
        self._listeners: list[Callable[[bool], Any]] = []
        self._is_announced = False
        self._has_announced = threading.Event()
        self._started: dict[tuple[int, int], _native.Operation] = {}
        self._lock = threading.Lock()
        self.native = client.context._channel(name)
        self._watch = client.context.monitor(name, self._happened, mask="none", events=True)

    def _happened(self, event: Event) -> None:
        """On the thread of the callbacks."""
        if event.kind == "connected" and isinstance(event.detail, Info):
            self.learn(event.detail)
            with self._lock:
                self._is_announced = True
                listeners = tuple(self._listeners)
            self._tell(listeners, True)
            self._has_announced.set()
            self._tell(tuple(self.access_callbacks), event.detail.may_read, event.detail.may_write)
        elif event.kind == "rights" and isinstance(event.detail, Info):
            before = self.info
            self.learn(event.detail)
            rights = (event.detail.may_read, event.detail.may_write)
            if before is None or rights != (before.may_read, before.may_write):
                self._tell(tuple(self.access_callbacks), *rights)
        elif event.kind in ("disconnected", "closed") and self._is_announced:
            self.info = None
            self._has_announced.clear()
            with self._lock:
                self._is_announced = False
                listeners = tuple(self._listeners)
            self._tell(listeners, False)
            self._tell(tuple(self.access_callbacks), False, False)

    def _tell(self, callbacks: Sequence[Callable[..., Any]], *arguments: Any) -> None:
        for callback in callbacks:
            try:
                callback(*arguments)
            except Exception as error:  # noqa: BLE001
                self.n_callback_errors += 1
                report(self.name, error)

    def learn(self, info: Info) -> None:
        """Keeps what the server reports."""
        if self.last_info is None or self.last_info.server != info.server:
            self.enum_strs = None
        self.info = self.last_info = info

    def add_listener(self, listener: Callable[[bool], Any]) -> None:
        """The listener receives whether the channel is connected, at once if it is, and whenever that changes."""
        with self._lock:
            self._listeners.append(listener)
            is_connected = self._is_announced
        if is_connected:
            listener(True)

    def remove_listener(self, listener: Callable[[bool], Any]) -> None:
        with self._lock:
            if listener in self._listeners:
                self._listeners.remove(listener)

    def wait(self, timeout: float) -> bool:
        """Whether the channel is connected within this time in seconds. Its callbacks have then run, unless one blocks."""
        if self.info is None:
            (end,) = _native.wait([self.native.connect()], max(0.0, timeout))
            if not isinstance(end, Info):
                return False
            if self.info is None and self.native.is_active:
                self.learn(end)
        if not self.client.context._is_calling_back:
            self._has_announced.wait(_CALLBACKS_S)
        return True

    @property
    def ftype(self) -> int:
        """The native type; -1 until the channel was connected."""
        return -1 if self.last_info is None else _TYPES.get(self.last_info.kind, dbr.STRING)

    @property
    def nelm(self) -> int:
        """The maximum number of elements."""
        return 0 if self.last_info is None else self.last_info.count_max

    @property
    def is_array(self) -> bool:
        return self.nelm != 1

    def start_get(self, ftype: int, count: int) -> _native.Operation:
        """Starts to read the PV as this type."""
        native = dbr.native_type(ftype)
        kind = None if native == self.ftype or native < 0 else _KINDS[native]
        form = "ctrl" if ftype >= dbr.CTRL_STRING else "time" if ftype >= dbr.TIME_STRING else "native"
        return self.native.get(DETAILS[form], kind, count, None)

    def keep(self, key: tuple[int, int], started: _native.Operation) -> None:
        """Keeps a get that has started, for the call that waits for it."""
        with self._lock:
            self._started[key] = started

    def kept(self, key: tuple[int, int]) -> _native.Operation | None:
        with self._lock:
            return self._started.pop(key, None)

    def close(self) -> None:
        self._watch.close()
        self.info = None
        self.client.context.disconnect(self.name)


class Client:
    """The client of one process: all threads share it."""

    def __init__(self) -> None:
        self.context = sync.Context(settings={"FODO_PROTOCOL": "ca"})
        self.context._checks_names = False
        self.pvs: dict[tuple[str, str, int], PV] = {}
        self.monitored: dict[str, PV] = {}
        self._channels: dict[str, Channel] = {}
        self._numbers: dict[int, Channel] = {}
        self._last_number = 0
        self.lock = threading.RLock()

    def channel(self, name: str) -> Channel:
        """The channel of this name; created if there is none."""
        with self.lock:
            channel = self._channels.get(name)
            if channel is None:
                self._last_number += 1
                channel = self._channels[name] = Channel(self, name, self._last_number)
                self._numbers[self._last_number] = channel
        return channel

    def numbered(self, number: int) -> Channel | None:
        return self._numbers.get(number)

    def channels(self) -> list[Channel]:
        return list(self._channels.values())

    def clear_channel(self, channel: Channel) -> None:
        with self.lock:
            self._numbers.pop(channel.number, None)
            if self._channels.get(channel.name) is channel:
                del self._channels[channel.name]
        channel.close()

    def clear(self) -> None:
        """Disconnects all PVs and channels."""
        pvs, self.pvs, self.monitored = list(self.pvs.values()), {}, {}
        for pv in pvs:
            pv.disconnect()
        for channel in self.channels():
            self.clear_channel(channel)


class _Holder:
    """The client of this process; created when first used, and again in the child of a fork."""

    def __init__(self) -> None:
        self._lock = ForkSafeLock()
        self._client: Client | None = None
        self.clear_callbacks: list[Callable[[], object]] = []
        """What `ca.clear_cache` calls before it disconnects the PVs."""
        os.register_at_fork(after_in_child=self.forget)

    def forget(self) -> None:
        self._client = None

    @property
    def existing(self) -> Client | None:
        return self._client

    def get(self) -> Client:
        client = self._client
        if client is None:
            with self._lock:
                client = self._client
                if client is None:
                    client = self._client = Client()
        return client

    def close(self) -> None:
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.clear()
            client.context.close()


holder = _Holder()


def plain(value: Any, is_array: bool, as_numpy: bool = True) -> Any:
    """The value without the attributes of Fodo: numbers and texts, arrays of numpy or lists. Arrays of texts are lists."""
    if isinstance(value, Array):
        if value.element_kind == "text" or not as_numpy:
            elements = value.tolist()
            return elements if is_array or len(elements) != 1 else elements[0]
        if not is_array and len(value) == 1:
            return value[0]
        return value.numpy().copy()
    if isinstance(value, Structure):
        return value.to_dict()
    for kind, builtin in ((FloatValue, float), (IntValue, int), (TextValue, str)):
        if isinstance(value, kind):
            value = builtin(value) if builtin is not str else str.__str__(value)
            break
    if not is_array:
        return value
    if not as_numpy or isinstance(value, str):
        return [value]
    import numpy

    return numpy.array([value])


def element_count(value: Any) -> int:
    """The number of elements of a value."""
    return len(value) if isinstance(value, Array) else 1


def metadata(value: Any, ftype: int) -> dict[str, Any]:
    """The attributes of a value that was read as this type."""
    if ftype < dbr.TIME_STRING or not hasattr(value, "severity"):
        return {}
    found: dict[str, Any] = {"status": dbr.status_code(value.status), "severity": int(value.severity)}
    if ftype < dbr.CTRL_STRING:
        ns = value.timestamp_ns or 0
        found |= {"timestamp": ns / 1e9, "posixseconds": ns // 1_000_000_000, "nanoseconds": ns % 1_000_000_000}
        return found
    native = dbr.native_type(ftype)
    if native == dbr.STRING:
        return found
    if native == dbr.ENUM:
        labels = value._reading.labels
        return found | ({"enum_strs": tuple(labels)} if labels else {})
    if native in (dbr.FLOAT, dbr.DOUBLE):
        found["precision"] = value.precision
    found["units"] = value.units
    for name, limits in (
        ("disp", value.display_limits),
        ("alarm", value.alarm_limits),
        ("warning", value.warning_limits),
        ("ctrl", value.control_limits),
    ):
        low, high = _numbers(limits, native)
        found[f"upper_{name}_limit"], found[f"lower_{name}_limit"] = high, low
    return found


def _numbers(limits: Limits | None, native: int) -> tuple[Any, Any]:
    if limits is None:
        return None, None
    if native in (dbr.FLOAT, dbr.DOUBLE) or not all(map(math.isfinite, limits)):
        return limits.low, limits.high
    return int(limits.low), int(limits.high)


def sendable(channel: Channel, value: Any) -> Any:
    """The value as it is sent to this channel: texts are bytes for an array of characters, and its elements are texts for an
    array of texts."""
    ftype, nelm = channel.ftype, channel.nelm
    if isinstance(value, bytes) and not (ftype == dbr.CHAR and channel.is_array):
        value = value.decode(errors="replace")
    if not channel.is_array:
        if ftype == dbr.STRING and not isinstance(value, str):
            return str(value)
        if isinstance(value, str) and ftype in (dbr.SHORT, dbr.LONG, dbr.CHAR):
            # Also hexadecimal.
            return int(value, base=0)
        if isinstance(value, str) and ftype in (dbr.FLOAT, dbr.DOUBLE):
            return float(value)
        if isinstance(value, float) and ftype in (dbr.SHORT, dbr.LONG, dbr.CHAR, dbr.ENUM):
            return int(value)
        return value
    if ftype == dbr.CHAR and isinstance(value, (str, bytes)):
        octets = value.encode() if isinstance(value, str) else value
        return (octets + b"\0")[: nelm or None]
    if ftype == dbr.STRING:
        texts = [value] if isinstance(value, str) else [str(element) for element in value]
        return (texts or [""])[: nelm or None]
    if isinstance(value, range):
        value = list(value)
    return value[:nelm] if hasattr(value, "__len__") and nelm and len(value) > nelm else value


def wait_for_updates(counts: Callable[[], tuple[int, int, int, int, int]]) -> None:
    """Waits until the updates that were received so far are delivered, unless a callback blocks."""
    received = counts()[0]
    deadline = time.monotonic() + _CALLBACKS_S
    while time.monotonic() < deadline:
        _, merged, _, delivered, _ = counts()
        if merged + delivered >= received:
            return
        time.sleep(0.0005)


def as_enum_text(channel: Channel, index: Any, timeout: float) -> str:
    """The text of a state."""
    if channel.enum_strs is None:
        (value,) = _native.wait([channel.start_get(dbr.CTRL_ENUM, 0)], timeout)
        if isinstance(value, EnumValue):
            channel.enum_strs = tuple(value.labels or ())
    strs = channel.enum_strs or ()
    return strs[index] if isinstance(index, int) and index < len(strs) else str(index)


def text_of_characters(elements: Any) -> str:
    """The text in an array of characters, up to the first NUL."""
    numbers = list(elements) if hasattr(elements, "__len__") else [elements]
    if 0 in numbers:
        numbers = numbers[: numbers.index(0)]
    return bytes(number & 0xFF for number in numbers).decode("latin-1").rstrip()

