"""The connections of a context, and its operations and subscriptions before anything waits for them."""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections.abc import Callable, Generator, Mapping
from typing import Any, TypeVar

from ... import _native
from ..._errors import Error
from ..._monitors import Counts, Event
from . import _refs
from ._errors import Disconnected, Finished, RemoteError, of_fodo
from .nt import ClientUnwrapper
from .wrapper import Type, Value

_log = logging.getLogger("fodo.compat.p4p")

QUEUE_MAX = 64
"""Updates of a subscription that wait, unless its request has the option `queueSize`. p4p keeps 4."""

_DEFAULTS = {
    "EPICS_PVA_ADDR_LIST": "",
    "EPICS_PVA_AUTO_ADDR_LIST": "YES",
    "EPICS_PVA_BROADCAST_PORT": "5076",
    "EPICS_PVA_SERVER_PORT": "5075",
    "EPICS_PVA_NAME_SERVERS": "",
    "EPICS_PVA_INTF_ADDR_LIST": "",
    "EPICS_PVA_CONN_TMO": "30",
}

T = TypeVar("T")
Steps = Generator[_native.Operation, Any, T]
"""An operation that may consist of several: it gives each of them, and receives its result."""

Builder = Callable[[Value], Any]


def settings_of(conf: Mapping[str, str] | None, use_environment: bool) -> dict[str, str]:
    """The variables of a client or a server. One that is empty has its default. One that does not exist has no effect, as in
    p4p, but is logged."""
    known = {name for name in _native.known_settings() if name.startswith("EPICS_")}
    settings = {} if use_environment else {name: "" for name in os.environ if name in known}
    for name, text in (conf or {}).items():
        if not isinstance(text, str):
            raise TypeError(f"the value of {name} is a text, not {type(text).__name__}")
        if name in known:
            settings[name] = text
        else:
            _log.warning('there is no setting "%s": it has no effect', name)
    return settings


def make_request(desc: str) -> Value:
    """A pvRequest, such as `field(value,alarm)record[queueSize=10]`, as a structure."""
    try:
        return Value._of(_native.request_structure(desc))
    except ValueError as error:
        raise RuntimeError(str(error)) from None


def request_text(request: str | Value | None) -> str:
    """A pvRequest as text. An invalid one is a `RuntimeError`, as in p4p."""
    if not request:
        return ""
    return _native.request_text(Value._sent(request if isinstance(request, Value) else make_request(request)))


def _without_options(request: str) -> str:
    """The selected fields of a pvRequest: reading a PV before it is written must not process a record."""
    if "record" not in request:
        return request
    structure = make_request(request)
    fields = Type([(name, spec) for name, spec in structure.type().aspy()[2] if name != "record"])
    return request_text(Value(fields))


def _queue_size(request: str) -> int:
    if "queueSize" not in request:
        return QUEUE_MAX
    size = make_request(request).get("record._options.queueSize", "")
    return max(1, int(size)) if size.isdigit() else QUEUE_MAX


class PvChannel:
    """A connection to a PV, and what its values have in common."""

    def __init__(self, name: str, native: _native.Channel, unwrapper: ClientUnwrapper) -> None:
        self.name = name
        self.native = native
        self.unwrapper = unwrapper
        self.type: Type | None = None

    def value(self, received: _native.Structure) -> Value:
        """What the server has sent."""
        value = Value._of(received, self.type)
        self.type = value.type()
        return value

    def get(self, request: str) -> Steps[Any]:
        """Reads the PV."""
        received = yield self.native.get("time", None, 0, request)
        return self.unwrapper.unwrap(self.value(received))

    def put(self, build: Builder, request: str, is_initial: bool) -> Steps[None]:
        """Writes what `build` changes of a value. `is_initial`: whether that is the current one."""
        if is_initial or self.type is None:
            received = yield self.native.get("time", None, 0, _without_options(request))
            value = self.value(received)
            value.unmark()
        if not is_initial and self.type is not None:
            value = Value(self.type)
        build(value)
        yield self.native.put(Value._sent(value), True, request)

    def call(self, argument: Value) -> Steps[Any]:
        """Calls a procedure; `None` if it has no result."""
        received = yield self.native.call(Value._sent(argument))
        result = Value._of(received)
        return self.unwrapper.fresh().unwrap(result) if result.keys() else None

    def builder(self, value: Any) -> Builder:
        """What writes this object to a value."""
        if callable(value):
            return value  # type: ignore[no-any-return]

        def build(target: Value) -> None:
            if isinstance(value, (Value, dict)):
                target[None] = value
            else:
                self.unwrapper.assign(target, value)

        return build


class Feed:
    """The updates of a subscription."""

    def __init__(self, channel: PvChannel, request: str, queue: _native.CompletionQueue) -> None:
        self.channel = channel
        self.native = channel.native.monitor(
            "time", None, 0, request, "value,alarm,property", _queue_size(request), "replace_last", None, queue
        )
        self.n_callback_errors = 0
        self.is_done = False
        self._is_connected = False
        # The types of what a request selects may differ from those of other requests.
        self._type: Type | None = None
        self._unwrapper = channel.unwrapper.fresh()
        self._lock = threading.Lock()
        self._next: Any = None

    def begin(self) -> None:
        """From now on, the queue reports the subscription when updates wait."""
        if self.has_events():
            self.native.wake()

    def has_events(self) -> bool:
        """Whether an event waits; without one the queue reports the next one."""
        with self._lock:
            if self._next is None:
                self._next = self.native.take()
            return self._next is not None

    def _take(self) -> Any:
        with self._lock:
            item, self._next = self._next, None
            return self.native.take() if item is None else item

    @property
    def counts(self) -> Counts:
        """The counts so far: `merged` updates were squashed here, `overrun` ones by the server."""
        return Counts(*self.native.counts(), self.n_callback_errors)

    def pop(self) -> Any:
        """The next update, `Disconnected` or `RemoteError`; `None` if none waits. When the context was closed, the last one is
        `Disconnected` if the PV was connected."""
        while not self.is_done:
            item = self._take()
            if item is None:
                break
            if not isinstance(item, Event):
                self._is_connected = True
                return self._unwrapped(item)
            if item.kind == "ended":
                self.is_done = True
                return Finished()
            if item.kind in ("closed", "disconnected"):
                was_connected, self._is_connected = self._is_connected, False
                self.is_done = item.kind == "closed"
                if was_connected or not self.is_done:
                    return Disconnected()
            if isinstance(item.detail, Error):
                return RemoteError(f'"{self.channel.name}": {item.detail.reason}')
        return None

    def _unwrapped(self, received: _native.Structure) -> Any:
        """The update, or `RemoteError` if it cannot be unwrapped: the next ones are delivered."""
        try:
            value = Value._of(received, self._type)
            self._type = value.type()
            return self._unwrapper.unwrap(value)
        except Exception as error:
            self.n_callback_errors += 1
            name = self.channel.name
            _log.exception('"%s": an update cannot be unwrapped', name)
            return RemoteError(f'"{name}": an update cannot be unwrapped: {error}')


class Core:
    """The connections of a context, and the thread that delivers what it does not wait for itself."""

    def __init__(self, settings: dict[str, str], unwrapper: ClientUnwrapper) -> None:
        self.settings = settings
        self.native = _native.Context(settings)
        self.is_closed = False
        self._unwrapper = unwrapper
        self._channels: dict[str, PvChannel] = {}
        self._lock = threading.Lock()
        self._dispatcher: _Dispatcher | None = None
        _refs.contexts.add(self)

    def conf(self) -> dict[str, str]:
        """The variables that the client uses."""
        found = {}
        for name, default in _DEFAULTS.items():
            text = self.settings.get(name, os.environ.get(name, ""))
            found[name] = text or default
        return found

    def channel(self, name: str) -> PvChannel:
        """The connection to a PV."""
        if not isinstance(name, str):
            raise TypeError(f"the name of a PV is a text, not {type(name).__name__}")
        if self.is_closed:
            raise RuntimeError("the context is closed")
        with self._locked():
            channel = self._channels.get(name)
            if channel is None:
                native = self.native.channel("pva://" + name, 0, False)
                channel = self._channels[name] = PvChannel(name, native, self._unwrapper.fresh())
        return channel

    def disconnect(self, name: str | None = None) -> None:
        """Forgets a connection, or all; those that nothing uses are closed."""
        if not self.native.is_usable:
            return
        with self._lock:
            if name is None:
                self._channels.clear()
            else:
                self._channels.pop(name, None)

    def failed(self, name: str, error: Error) -> Exception:
        """The exception for an error. The search for a PV that was not found ends."""
        if isinstance(error, TimeoutError) and self.native.is_usable:
            with self._lock:
                channel = self._channels.get(name)
                if channel is not None and not channel.native.is_active:
                    del self._channels[name]
        return of_fodo(name, error)

    def dispatcher(self) -> _Dispatcher:
        """The thread that delivers results and events."""
        with self._locked():
            if self.is_closed:
                raise RuntimeError("the context is closed")
            if self._dispatcher is None:
                self._dispatcher = _Dispatcher()
            return self._dispatcher

    def close(self) -> None:
        """Closes all connections, and ends the thread. In the child of a fork there is neither."""
        _refs.contexts.discard(self)
        self.is_closed = True
        if not self.native.is_usable:
            return
        with self._lock:
            self._channels.clear()
            dispatcher, self._dispatcher = self._dispatcher, None
        self.native.close()
        if dispatcher is not None:
            dispatcher.stop()

    def _locked(self) -> threading.Lock:
        """The lock of this context. Raises `Forked` in the child of a fork: there, a thread of the parent may hold it for ever."""
        self.native.check_process()
        return self._lock


class Running:
    """Steps whose results a dispatcher passes on. `finish` receives the result or an exception, once."""

    def __init__(self, steps: Steps[Any], finish: Callable[[Any], None]) -> None:
        self._steps = steps
        self._finish = finish
        self.is_finished = False
        self.number: int | None = None
        """The number of the current operation in the queue."""

    def advance(self, result: Any) -> _native.Operation | None:
        """The next operation; `None` after the last one."""
        if self.is_finished:
            return None
        try:
            if isinstance(result, Error):
                self._steps.close()
                raise result
            return self._steps.send(result)
        except StopIteration as end:
            self.finish(end.value)
        except Exception as error:  # noqa: BLE001
            self.finish(error)
        except BaseException as error:  # noqa: BLE001
            # Not even a request to end the program may end the thread.
            failure = RuntimeError(f"the function of a put raised {type(error).__name__}")
            failure.__cause__ = error
            self.finish(failure)
        return None

    def finish(self, result: Any) -> None:
        """Passes on the result, unless there was one."""
        if self.is_finished:
            return
        self.is_finished = True
        try:
            self._finish(result)
        except BaseException:  # noqa: BLE001
            _log.exception("the handler of an operation failed")


class _Dispatcher:
    """A thread that delivers results and events. It keeps neither operations nor subscriptions alive."""

    def __init__(self) -> None:
        self.queue = _native.CompletionQueue()
        self._lock = threading.Lock()
        self._operations: dict[int, weakref.ref[Running]] = {}
        self._monitors: dict[int, Callable[[], Callable[[], None] | None]] = {}
        # A daemon, so that the interpreter does not wait for it.
        self._thread = threading.Thread(target=self._run, name="fodo p4p", daemon=True)
        self._thread.start()

    def start(self, running: Running, operation: _native.Operation) -> None:
        """Waits for an operation."""
        with self._lock:
            number = running.number = self.queue.add([operation])
            self._operations[number] = weakref.ref(running)

    def watch(self, number: int, ready: Callable[[], Callable[[], None] | None]) -> None:
        """From now on, what `ready` returns is called when a subscription has events."""
        with self._lock:
            self._monitors[number] = ready

    def forget(self, number: int) -> None:
        """The subscription is closed."""
        with self._lock:
            self._monitors.pop(number, None)

    def cancel(self, number: int) -> None:
        """Gives up an operation."""
        with self._lock:
            self._operations.pop(number, None)
        self.queue.cancel(number)

    def stop(self) -> None:
        """Delivers what is left, and ends the thread."""
        self.queue.close()
        if self._thread is not threading.current_thread():
            # A handler may block for longer.
            self._thread.join(timeout=1.0)

    def _run(self) -> None:
        while self.queue.wait():
            results, monitors = self.queue.drain()
            for number, (result,) in results:
                self._ended(number, result)
            for number in monitors:
                with self._lock:
                    ready = self._monitors.get(number)
                call = None if ready is None else ready()
                if call is not None:
                    call()
                # It may refer to a subscription, which this thread does not keep.
                call = None

    def _ended(self, number: int, result: Any) -> None:
        with self._lock:
            found = self._operations.pop(number, None)
        running = None if found is None else found()
        operation = None if running is None else running.advance(result)
        if running is not None and operation is not None:
            self.start(running, operation)
