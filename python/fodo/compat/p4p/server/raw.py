"""PVs whose handlers run on the thread of their server."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from .... import pva
from .._errors import RemoteError
from ..wrapper import Type, Value

__all__ = ["Handler", "ServerOperation", "SharedPV"]

_log = logging.getLogger("fodo.compat.p4p")

WAITING_MAX = 1000
"""Puts and calls of one PV that wait for its handlers; more are refused."""


class ServerOperation:
    """A put or a call of a client. `done` ends it."""

    def __init__(self, operation: pva.Operation, pv: SharedPV) -> None:
        self._operation = operation
        self._pv = pv

    def name(self) -> str:
        """The name of the PV."""
        return self._operation.name

    def peer(self) -> str:
        """The address of the client."""
        return self._operation.peer.address

    def account(self) -> str:
        """The name of the user, as the client sent it."""
        return self._operation.peer.user

    def roles(self) -> set[str]:
        """The groups of the user on this host."""
        return set(self._operation.peer.roles)

    def pvRequest(self) -> Value:
        """The pvRequest of a put, with all options of the client; of a call an empty structure."""
        request = self._operation.request
        return Value(Type([])) if request is None else Value._of(request)

    def value(self) -> Any:
        """What was put, unwrapped, with only its fields as changed; or the argument of a call."""
        value = Value._of(self._operation.structure)
        if self._operation.is_call:
            return value
        try:
            return self._pv._unwrap(value)
        except Exception as error:
            raise ValueError(f"{value!r} cannot be unwrapped with {self._pv._unwrap!r}") from error

    def info(self, msg: str) -> None:
        """Writes a text to the log: the client does not receive it."""
        _log.info('"%s": %s', self.name(), msg)

    def warn(self, msg: str) -> None:
        """Writes a warning to the log: the client does not receive it."""
        _log.warning('"%s": %s', self.name(), msg)

    def done(self, value: Any = None, error: str | None = None) -> None:
        """Confirms a put, or ends a call with its result; or refuses it with the text `error`. Only the first call counts."""
        native = self._operation._native
        if error is not None:
            native.refuse(str(error))
        elif value is None or not self._operation.is_call:
            native.complete()
        elif isinstance(value, Value):
            native.complete(Value._sent(value))
        else:
            raise ValueError(f"the result of a call is a Value, not {type(value).__name__}")


class Handler:
    """What a handler of a PV may have. It need not be a base class."""

    def put(self, pv: SharedPV, op: ServerOperation) -> Any:
        """A client puts."""
        op.done(error="Not supported")

    def rpc(self, pv: SharedPV, op: ServerOperation) -> Any:
        """A client calls."""
        op.done(error="Not supported")

    def onFirstConnect(self, pv: SharedPV) -> Any:
        """The first client has connected."""

    def onLastDisconnect(self, pv: SharedPV) -> Any:
        """The last client has disconnected."""


class _Decorated:
    """The handler of a PV whose functions are decorated."""


class SharedPV:
    """A PV that holds its value.

    `handler` has any of the methods of `Handler`. Without `initial` it is closed, and clients wait until it is opened; a PV with
    `rpc` can be called before. `nt`, or `wrap` and `unwrap`, convert between values of Python and `Value`. `options` have no effect.
    """

    def __init__(
        self,
        handler: Any = None,
        initial: Any = None,
        nt: Any = None,
        wrap: Callable[..., Value] | None = None,
        unwrap: Callable[[Value], Any] | None = None,
        options: dict[str, Any] | None = None,
        **kws: Any,
    ) -> None:
        del options
        self.nt = nt
        self._handler = _Decorated() if handler is None else handler
        self._whandler = _Calls(self)
        self._wrap: Callable[..., Value] = wrap or (nt.wrap if nt else _same)
        self._unwrap: Callable[[Value], Any] = unwrap or (nt.unwrap if nt else _same)
        self._is_open = False
        self._lock = threading.Lock()
        self._n_waiting = 0
        self.n_busy = 0
        """Puts and calls that were refused because too many waited for the handlers of this PV."""
        self._pv = pva.SharedPV(
            on_put=self._whandler.put,
            on_first_connect=self._whandler.first_connect,
            on_last_disconnect=self._whandler.last_disconnect,
        )
        self._pv.on_rpc = self._whandler.rpc
        if initial is not None:
            self.open(initial, **kws)

    def _served(self) -> pva.SharedPV:
        """The PV, ready for calls also while it is closed."""
        if not self._is_open and not self._pv.is_open and hasattr(self._handler, "rpc"):
            self._pv._replace(Value._sent(Value(Type([]))))
        return self._pv

    def open(
        self,
        value: Any,
        nt: Any = None,
        wrap: Callable[..., Value] | None = None,
        unwrap: Callable[[Value], Any] | None = None,
        **kws: Any,
    ) -> None:
        """Gives the PV its first value. The arguments are those of the constructor; others are passed to `wrap`."""
        if self._is_open:
            raise RuntimeError("the PV is open already: close it first")
        self.nt = nt or self.nt
        self._wrap = wrap or (nt.wrap if nt else self._wrap)
        self._unwrap = unwrap or (nt.unwrap if nt else self._unwrap)
        self._pv._replace(Value._sent(self._wrapped(value, kws)))
        self._is_open = True

    def post(self, value: Any, **kws: Any) -> None:
        """Changes the fields of the value that are marked as changed, and sends them. Others are passed to `wrap`."""
        if not self._is_open:
            raise RuntimeError("the PV is closed: open it first")
        self._pv._native.post(Value._sent(self._wrapped(value, kws)))

    def _wrapped(self, value: Any, kws: dict[str, Any]) -> Value:
        try:
            return self._wrap(value, **kws)
        except Exception as error:
            raise ValueError(f"{value!r} cannot be wrapped with {self._wrap!r} and {kws!r}") from error

    def current(self) -> Any:
        """The current value, unwrapped."""
        if not self._is_open:
            raise RuntimeError("the PV is closed: open it first")
        value = Value._of(self._pv.current)
        try:
            return self._unwrap(value)
        except Exception as error:
            raise ValueError(f"{value!r} cannot be unwrapped with {self._unwrap!r}") from error

    def isOpen(self) -> bool:
        """Whether the PV has a value."""
        return self._is_open

    def close(self, destroy: bool = False) -> Any:
        """Disconnects all clients. `destroy`: has no effect, since clients search again in any case."""
        del destroy
        self._is_open = False
        self._pv.close()
        self._served()

    def _run(self, op: ServerOperation | None, function: Callable[..., Any], *args: Any) -> None:
        """Calls a handler; classes of other modules call it elsewhere."""
        call_handler(op, function, *args)

    def _is_accepted(self, op: ServerOperation | None) -> bool:
        """Counts an operation that waits for its handler; if too many wait, refuses it."""
        if op is None:
            return True
        with self._lock:
            is_accepted = self._n_waiting < WAITING_MAX
            self._n_waiting += is_accepted
        if not is_accepted:
            self._refuse_busy(op)
        return is_accepted

    def _refuse_busy(self, op: ServerOperation) -> None:
        with self._lock:
            self.n_busy += 1
        op.done(error="too many requests wait for the handler of the PV")

    def _handled(self, op: ServerOperation | None) -> None:
        """The handler of an operation that was accepted has returned."""
        if op is not None:
            with self._lock:
                self._n_waiting -= 1

    def _clients_changed(self, is_connected: bool) -> None:
        """The first client has connected, or the last one has disconnected."""
        function = self._connection_handler(is_connected)
        if is_connected:
            self._run(None, self._connected)
        if function is not None:
            self._run(None, function, self)
        if not is_connected:
            self._run(None, self._disconnected_all)

    def _connection_handler(self, is_connected: bool) -> Callable[..., Any] | None:
        function: Callable[..., Any] | None
        function = getattr(self._handler, "onFirstConnect" if is_connected else "onLastDisconnect", None)
        return function

    def _connected(self) -> None:
        """Called before `onFirstConnect`."""

    def _disconnected_all(self) -> None:
        """Called after `onLastDisconnect`."""

    def _decorator(self, name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
            setattr(self._handler, name, function)
            if name == "rpc" and self._pv._servers:
                self._served()
            return function

        return decorate

    @property
    def put(self) -> Any:
        """Decorates the function that receives puts."""
        return self._decorator("put")

    @property
    def rpc(self) -> Any:
        """Decorates the function that receives calls."""
        return self._decorator("rpc")

    @property
    def onFirstConnect(self) -> Any:
        """Decorates the function that is called when the first client has connected."""
        return self._decorator("onFirstConnect")

    @property
    def onLastDisconnect(self) -> Any:
        """Decorates the function that is called when the last client has disconnected."""
        return self._decorator("onLastDisconnect")

    def __repr__(self) -> str:
        value = f"value={self.current()!r}" if self._is_open else "<closed>"
        return f"{type(self).__name__}({value})"


class _Calls:
    """Passes what clients request to the handler of a PV."""

    def __init__(self, pv: SharedPV) -> None:
        self._pv = pv

    def put(self, operation: pva.Operation) -> None:
        self._pass("put", operation, "Put not supported")

    def rpc(self, operation: pva.Operation) -> None:
        self._pass("rpc", operation, "RPC not supported")

    def _pass(self, name: str, operation: pva.Operation, otherwise: str) -> None:
        operation.defer()
        function = getattr(self._pv._handler, name, None)
        if function is None:
            operation.error(otherwise)
        else:
            op = ServerOperation(operation, self._pv)
            self._pv._run(op, function, self._pv, op)

    def first_connect(self, _: pva.SharedPV) -> None:
        self._pv._clients_changed(is_connected=True)

    def last_disconnect(self, _: pva.SharedPV) -> None:
        self._pv._clients_changed(is_connected=False)


def call_handler(op: ServerOperation | None, function: Callable[..., Any], *args: Any) -> Any:
    """Calls a handler. An exception refuses the operation with its text, and is logged unless it is `RemoteError`."""
    try:
        return function(*args)
    except RemoteError as error:
        failed(op, error, is_logged=False)
    except Exception as error:
        failed(op, error)
    return None


def failed(op: ServerOperation | None, error: Exception, *, is_logged: bool = True) -> None:
    """A handler has raised this exception."""
    if is_logged:
        _log.error("the handler of a PV failed", exc_info=error)
    if op is not None:
        op.done(error=str(error) or type(error).__name__)


def _same(value: Any) -> Any:
    return value
