"""PVs that hold their value, and what clients request of them."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, Unpack

from .. import _native
from .._errors import Error, Misuse
from .._values import Structure
from . import nt
from ._properties import Properties
from ._type import Type

if TYPE_CHECKING:
    from ._server import Server

Handler = Callable[["Operation"], Any]
ConnectionHandler = Callable[["SharedPV"], Any]


class Described(Protocol):
    """A type with its conversions: `Type`, or a class of `nt`."""

    @property
    def type(self) -> Type: ...

    def wrap(self, value: Any = None, **properties: Unpack[Properties]) -> Structure: ...

    def change(self, value: Any = None, **properties: Unpack[Properties]) -> Structure: ...

    def unwrap(self, structure: Structure) -> Any: ...


@dataclass(frozen=True, slots=True)
class Peer:
    """The client of a request. It sends user and host itself; only the address is reliable."""

    user: str
    host: str
    address: str
    """The address and the port."""

    @property
    def roles(self) -> frozenset[str]:
        """The groups of the user on this host."""
        import grp
        import pwd

        try:
            groups = os.getgrouplist(self.user, pwd.getpwnam(self.user).pw_gid)
        except KeyError:
            return frozenset()
        found = set()
        for group in groups:
            try:
                found.add(grp.getgrgid(group).gr_name)
            except KeyError:
                continue
        return frozenset(found)


class Operation:
    """A put or a call of a client. One of `accept`, `done` and `error` ends it; others after that do nothing."""

    __slots__ = ("_is_deferred", "_native", "pv", "structure")

    def __init__(self, pv: SharedPV, native: _native.ServerOperation) -> None:
        self._native = native
        self._is_deferred = False
        self.pv = pv
        self.structure: Structure = native.value()
        """What was put, with the fields of the put as `changed`; or the argument of a call."""

    @property
    def name(self) -> str:
        """The name of the PV."""
        return self._native.name

    @property
    def is_call(self) -> bool:
        """Whether it calls a procedure."""
        return self._native.is_call

    @property
    def value(self) -> Any:
        """What was put, as the type of the PV unwraps it; or the named arguments of a call."""
        if not self.is_call:
            return self.pv.type.unwrap(self.structure)
        arguments = self.structure["query"] if "query" in self.structure else self.structure
        return dict(arguments)

    @property
    def changed(self) -> list[str]:
        """The paths of the fields of the put."""
        return self.structure.changed

    @property
    def request(self) -> Structure | None:
        """The pvRequest of a put over pvAccess, with all options of the client; `None` of other puts, and of a call."""
        request: Structure | None = self._native.request()
        return request

    @property
    def peer(self) -> Peer:
        """The client."""
        return Peer(self._native.user, self._native.host, self._native.address)

    @property
    def is_open(self) -> bool:
        """Whether it has not ended."""
        return self._native.is_open

    def accept(self) -> None:
        """Posts what was put, and confirms the put."""
        if self._native.is_open:
            self.pv.post(self.structure)
            self._native.complete()

    def done(self, value: Any = None, **properties: Unpack[Properties]) -> None:
        """Confirms the put, and posts a value before if one is given; or ends the call with its result.

        A result that is not a structure gets the normative type that follows from it.
        """
        if not self._native.is_open:
            return
        if self.is_call:
            self._native.complete(None if value is None else nt.of(value).wrap(value, **properties))
            return
        if value is not None or properties:
            self.pv.post(value, **properties)
        self._native.complete()

    def error(self, reason: str) -> None:
        """Refuses it. The client of pvAccess receives the text."""
        self._native.refuse(reason)

    def defer(self) -> Operation:
        """Lets the operation go on after its handler has returned: it ends later, on any thread."""
        self._is_deferred = True
        return self

    def _returned(self, result: Any) -> None:
        if not self._is_deferred:
            self.done(result)


def _accept(operation: Operation) -> None:
    operation.accept()


class SharedPV:
    """A PV that holds its value. Servers publish it under names; clients see it while it is open.

    `initial`: the first value; without one, the PV waits for `open`. `type`: a `Type` or an object of `nt`, such as
    `nt.Scalar("d", units="mm")`; without one it follows from `initial`.

    `on_put` is called with an `Operation` for each put; `True` accepts every put, `None` none. `on_rpc` is the same for calls.
    A handler that returns confirms the operation; what it returns is posted, or is the result of the call. An exception refuses it
    with its text. `on_first_connect` and `on_last_disconnect` are called with the PV.

    A scalar, an array or an enum of `nt` is served over Channel Access too, unless it is also a procedure. `max_length`: the
    largest number of elements of such an array; by default that of the first value.
    """

    def __init__(
        self,
        initial: Any = None,
        *,
        type: Type | nt.Normative | Described | None = None,
        on_put: Handler | Literal[True] | None = None,
        on_rpc: Handler | None = None,
        on_first_connect: ConnectionHandler | None = None,
        on_last_disconnect: ConnectionHandler | None = None,
        max_length: int | None = None,
    ) -> None:
        self._native = _native.SharedPv()
        self._type = type
        self.on_put: Handler | None = _accept if on_put is True else on_put
        self.on_rpc = on_rpc
        self.on_first_connect = on_first_connect
        self.on_last_disconnect = on_last_disconnect
        self._max_length = max_length
        self._lock = threading.Lock()
        self._servers: weakref.WeakKeyDictionary[Server, set[str]] = weakref.WeakKeyDictionary()
        self._n_connected = 0
        if initial is not None:
            self.open(initial)
        elif on_rpc is not None and type is None:
            self.open(Type({}).wrap())

    @property
    def type(self) -> Any:
        """The type with its conversions."""
        if self._type is None:
            raise Misuse(self._name, "the PV has no type yet: open it with a value")
        return self._type

    @property
    def _name(self) -> str:
        """One of the names, for messages."""
        return next((name for names in self._servers.values() for name in names), "")

    @property
    def is_open(self) -> bool:
        """Whether clients can see it."""
        return self._native.is_open

    def open(self, value: Any, **properties: Unpack[Properties]) -> None:
        """Sets the first value, and the type if it has none. Clients can connect from now on."""
        if self._type is None:
            self._type = nt.of(value)
        is_flat = self.on_rpc is None and getattr(self._type, "is_flat", False)
        puts, calls = self.on_put is not None, self.on_rpc is not None
        try:
            initial = self._type.wrap(value, **properties)
            max_length = (self._max_length or 0) if is_flat else None
            self._native.open(initial, puts=puts, calls=calls, max_length=max_length)
        except (KeyError, TypeError, ValueError) as error:
            raise self._invalid(error) from None

    def close(self) -> None:
        """Disconnects all clients; the PV can be opened again, also with another type."""
        if self._native.close():
            for server in list(self._servers):
                server._native.disconnect_closed()

    def _replace(self, initial: _native.Structure) -> None:
        """Opens the PV over pvAccess with a value of any type. Channels to what it was before stay open."""
        self._native.close()
        self._type = Type.of(initial)
        self._native.open(initial, puts=self.on_put is not None, calls=self.on_rpc is not None)

    def post(self, value: Any = None, **properties: Unpack[Properties]) -> None:
        """Sets the value with the current time, and sends it to all subscribers; never waits for a client.

        Without properties the value has no alarm. Without a value only the properties change. Of a `Structure`, the fields that
        it has as changed are posted.
        """
        try:
            self._native.post(self.type.change(value, **properties))
        except (KeyError, TypeError, ValueError) as error:
            raise self._invalid(error) from None

    def _invalid(self, error: Exception) -> Exception:
        """The error for a value that the PV does not accept."""
        return error if isinstance(error, Error) else Misuse(self._name, str(error.args[0] if error.args else error))

    @property
    def current(self) -> Structure:
        """The current value with alarm, time stamp and metadata."""
        current: Structure = self._native.current()
        return current

    @property
    def value(self) -> Any:
        """The current value, as the type unwraps it."""
        return self.type.unwrap(self.current)

    def _connection_changed(self, is_connected: bool) -> ConnectionHandler | None:
        """The handler to be called when the PV has got its first client on a server, or lost its last one."""
        with self._lock:
            before = self._n_connected
            self._n_connected += 1 if is_connected else -1
            now = self._n_connected
        if is_connected:
            return self.on_first_connect if before == 0 else None
        return self.on_last_disconnect if now == 0 else None
