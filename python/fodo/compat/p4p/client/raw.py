"""The client with callbacks, which `client.thread` uses."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

from ...._errors import Error
from ...._monitors import Counts
from .. import _core
from .._errors import Cancelled, Disconnected, Finished, RemoteError
from .._p4p import logger_level_set as set_debug
from ..nt import buildNT
from ..wrapper import Type, Value

__all__ = ["Cancelled", "Context", "Disconnected", "Finished", "RemoteError", "Subscription", "set_debug"]

_log = logging.getLogger("fodo.compat.p4p")

Handler = Callable[[Any], Any]
Request = str | Value | None


class Operation:
    """A get, put or call in progress. It is given up when it is closed, or when nothing refers to it."""

    def __init__(self, core: _core.Core, name: str, steps: _core.Steps[Any], handler: Handler) -> None:
        self.name = name
        self._dispatcher = core.dispatcher()

        def finish(result: Any) -> None:
            handler(core.failed(name, result) if isinstance(result, Error) else result)

        self._running = _core.Running(steps, finish)
        operation = self._running.advance(None)
        if operation is not None:
            self._dispatcher.start(self._running, operation)

    def close(self) -> None:
        """Gives up the operation: its handler receives `Cancelled`, unless it has received something else."""
        running = getattr(self, "_running", None)
        if running is not None and not running.is_finished:
            if running.number is not None:
                self._dispatcher.cancel(running.number)
            running.finish(Cancelled())

    cancel = close

    def __del__(self) -> None:
        self.close()


class Subscription:
    """The updates of a PV. Its handler is called without arguments when updates wait; `pop` takes them.

    It ends when it is closed, or when nothing refers to it.
    """

    def __init__(self, core: _core.Core, name: str, handler: Callable[[], Any], request: str) -> None:
        self.name = name
        self._dispatcher = core.dispatcher()
        self._feed = _core.Feed(core.channel(name), request, self._dispatcher.queue)
        self._handler = handler
        number = self._feed.native.number
        assert number is not None
        self._number = number
        found = weakref.ref(self)

        def ready() -> Callable[[], None] | None:
            subscription = found()
            return None if subscription is None else subscription._ready

        self._dispatcher.watch(number, ready)

    def _begin(self) -> None:
        """From now on, the handler is called."""
        self._feed.begin()

    def _ready(self) -> None:
        try:
            if self._feed.has_events():
                self._handler()
        except BaseException:  # noqa: BLE001
            # Not even a request to end the program may end the thread.
            _log.exception('"%s": the handler of the subscription failed', self.name)

    def pop(self) -> Any:
        """The next update, `Disconnected` or `RemoteError`; `None` if none waits: then the handler is called before the next
        one."""
        return self._feed.pop()

    @property
    def done(self) -> bool:
        """Whether no update follows."""
        return self._feed.is_done

    def complete(self) -> bool:
        """Whether no update follows."""
        return self._feed.is_done

    @property
    def counts(self) -> Counts:
        """How many updates were received, squashed here and by the server, and delivered."""
        return self._feed.counts

    def close(self) -> None:
        """Ends the subscription; updates that wait are dropped."""
        self._feed.is_done = True
        self._dispatcher.forget(self._number)
        self._feed.native.close()

    def __enter__(self) -> Subscription:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_number"):
            self.close()


class Context:
    """Context(provider="pva", conf=None, useenv=True, unwrap=None, nt=None): a client of pvAccess.

    `conf`: variables such as `EPICS_PVA_ADDR_LIST`, before those of the environment, which are not used with `useenv=False`.
    `nt`: normative types to unwrap in addition to `nt.defaultNT()`, or `False` for none. `unwrap`: functions that unwrap, by
    the ids of types.
    """

    def __init__(
        self,
        provider: str = "pva",
        conf: Mapping[str, str] | None = None,
        useenv: bool | None = True,
        unwrap: Any = None,
        nt: Any = None,
    ) -> None:
        self.name = provider
        self._nt = buildNT(nt, unwrap)
        self._core = _core.Core(_core.settings_of(conf, useenv is not False), self._nt)
        # Also without `close`, its thread ends.
        self._finalizer = weakref.finalize(self, self._core.close)

    def __enter__(self) -> Any:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes all connections and gives up all operations. May be called more than once."""
        self._finalizer()

    def conf(self) -> dict[str, str]:
        """The variables that the client uses; none after `close`."""
        return {} if self._core.is_closed else self._core.conf()

    def hurryUp(self) -> None:
        """Does nothing: the client searches again as soon as a server announces itself."""

    def disconnect(self, name: str | None = None) -> None:
        """Closes the connection to a PV, or to all, unless subscriptions use it."""
        self._core.disconnect(name)

    makeRequest = staticmethod(_core.make_request)

    @staticmethod
    def providers() -> list[str]:
        """The names of the protocols."""
        return ["pva"]

    @staticmethod
    def set_debug(lvl: int) -> None:
        """Sets the level of the log."""
        set_debug("*", lvl)

    def get(self, name: str, handler: Handler, request: Request = None) -> Operation:
        """Reads a PV. `handler` receives the value, `RemoteError` or `Cancelled`."""
        channel = self._core.channel(name)
        return Operation(self._core, name, channel.get(_core.request_text(request)), handler)

    def put(
        self, name: str, handler: Handler, builder: Any = None, request: Request = None, get: bool = True
    ) -> Operation:
        """Writes a PV. `builder`: a value, or a function that changes the `Value` to be written. `get`: whether that is the
        current one. `handler` receives `None`, `RemoteError` or `Cancelled`, or an exception of `builder`."""
        channel = self._core.channel(name)
        steps = channel.put(channel.builder(builder), _core.request_text(request), get)
        return Operation(self._core, name, steps, handler)

    def rpc(self, name: str, handler: Handler, value: Value | None, request: Request = None) -> Operation:
        """Calls a procedure with a structure. `handler` receives the result, `RemoteError` or `Cancelled`."""
        del request
        channel = self._core.channel(name)
        return Operation(self._core, name, channel.call(argument_of(value)), handler)

    def monitor(self, name: str, handler: Callable[[], Any], request: Request = None) -> Subscription:
        """Subscribes to a PV. `handler` is called without arguments when updates wait."""
        subscription = Subscription(self._core, name, handler, _core.request_text(request))
        subscription._begin()
        return subscription


def argument_of(value: Value | None) -> Value:
    """The argument of a procedure; an empty structure without one."""
    if value is None:
        return Value(Type([]))
    if not isinstance(value, Value):
        raise TypeError(f"the argument of a procedure is a Value, not {type(value).__name__}: use NTURI")
    return value
