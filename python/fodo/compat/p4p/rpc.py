"""Procedures: methods that clients call, and classes whose methods call them."""

from __future__ import annotations

import functools
import inspect
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from queue import Full
from typing import Any, ClassVar

from ._errors import RemoteError
from .nt import NTURI
from .server import DynamicProvider, Server
from .server.raw import ServerOperation, SharedPV
from .util import ThreadedWorkQueue, WorkQueue
from .wrapper import Type, Value

__all__ = [
    "MASARDispatcher",
    "NTURIDispatcher",
    "RPCDispatcherBase",
    "RPCProxyBase",
    "RemoteError",
    "WorkQueue",
    "quickRPCServer",
    "rpc",
    "rpccall",
    "rpcproxy",
]

_log = logging.getLogger("fodo.compat.p4p")

Function = Callable[..., Any]


def rpc(rtype: Any = None) -> Callable[[Function], Function]:
    """Marks a method that clients may call. `rtype`: the type of its result as a `Type`, a list of fields or an object of `nt`;
    without one, the method returns a `Value`."""
    wrap: Function | None = None
    if isinstance(rtype, (list, tuple)):
        rtype = Type(rtype)
    elif rtype is not None and not isinstance(rtype, Type):
        if not hasattr(rtype, "type"):
            raise TypeError(f"the type of a result cannot be {rtype!r}: expected a Type, a list, or an object of nt")
        wrap, rtype = rtype.wrap, rtype.type

    def mark(function: Function) -> Function:
        @functools.wraps(function)
        def call(*args: Any, **kws: Any) -> Any:
            result = function(*args, **kws)
            return result if wrap is None else wrap(result)

        setattr(call, "_reply_Type", rtype)
        return call

    return mark


def rpccall(pvname: str, request: Any = None, rtype: Any = None) -> Callable[[Function], Function]:
    """Marks a method of a proxy: it calls the PV `pvname`, formatted with `format` of the proxy. The defaults of its arguments are
    the codes of their types."""

    def mark(function: Function) -> Function:
        for name, value in (("_call_PV", pvname), ("_call_Request", request), ("_reply_Type", rtype)):
            setattr(function, name, value)
        return function

    return mark


class RPCDispatcherBase(DynamicProvider):
    """A provider of PVs whose calls are passed to the methods of `target`, on the threads of `queue`."""

    def __init__(
        self, queue: WorkQueue, target: Any = None, channels: Iterable[str] = (), name: str | None = None
    ) -> None:
        super().__init__(name, self)
        self.queue = queue
        self.target = target
        self.channels = set(channels)
        self._pv = SharedPV(handler=self, initial=Value(Type([])))
        members = inspect.getmembers(target, lambda member: hasattr(member, "_reply_Type"))
        self.methods: dict[str, Function] = dict(members)

    def getMethodNameArgs(self, request: Value) -> tuple[str, Mapping[str, Any]]:
        """The name of the method that a request calls, and its arguments."""
        raise NotImplementedError("a dispatcher defines getMethodNameArgs")

    def testChannel(self, name: str) -> bool:
        """Whether the PV exists."""
        return name in self.channels

    def makeChannel(self, name: str, src: str) -> SharedPV | None:
        """The PV."""
        return self._pv if self.testChannel(name) else None

    def rpc(self, pv: SharedPV, op: ServerOperation) -> None:
        """A client calls."""
        try:
            self.queue.push(functools.partial(self._handle, op))
        except Full:
            op.done(error="Too many concurrent RPC calls")

    def _handle(self, op: ServerOperation) -> None:
        try:
            name, arguments = self.getMethodNameArgs(op.value())
            function = self.methods[name]
            result = function(**arguments)
        except RemoteError as error:
            op.done(error=str(error))
            return
        except Exception:
            _log.exception('"%s": the call failed', op.name())
            op.done(error="Error handling RPC")
            return
        try:
            op.done(result if isinstance(result, Value) else Value(getattr(function, "_reply_Type"), result))
        except Exception:
            _log.exception('"%s": the result of %s does not have its type', op.name(), name)
            op.done(error="Error encoding reply")


class NTURIDispatcher(RPCDispatcherBase):
    """Passes calls with an NTURI to methods: the name of a PV is `prefix` with the name of the method."""

    def __init__(self, queue: WorkQueue, prefix: str = "", **kws: Any) -> None:
        super().__init__(queue, **kws)
        self.prefix = prefix
        self.methods = {prefix + name: function for name, function in self.methods.items()}
        self.channels = set(self.methods)

    def getMethodNameArgs(self, request: Value) -> tuple[str, Mapping[str, Any]]:
        return request.path, dict(request.query.items())


class MASARDispatcher(RPCDispatcherBase):
    """Passes calls with the fields `function`, `name` and `value` to methods."""

    def getMethodNameArgs(self, request: Value) -> tuple[str, Mapping[str, Any]]:
        return request.function, dict(zip(request.get("name", []), request.get("value", []), strict=False))


def quickRPCServer(
    provider: str,
    prefix: str,
    target: Any,
    maxsize: int = 20,
    workers: int = 1,
    useenv: bool = True,
    conf: Mapping[str, str] | None = None,
    isolate: bool = False,
) -> None:
    """Serves the methods of `target` until the program ends. `maxsize` calls may wait for `workers` threads."""
    queue = ThreadedWorkQueue(maxsize=maxsize, workers=workers)
    dispatcher = NTURIDispatcher(queue, target=target, prefix=prefix, name=provider)
    with queue, Server(providers=[dispatcher], isolate=isolate, conf=conf, useenv=useenv):
        while True:
            time.sleep(3600)


class RPCProxyBase:
    """What proxies have."""

    context: Any = None
    """The context of a client."""

    format: Any = None
    """What the names of PVs are formatted with."""

    timeout: float = 3.0
    """Seconds until a call fails."""

    authority: str = ""
    """The authority of the NTURI."""

    throw: bool = True
    """Whether a call that fails raises its exception, or returns it."""

    scheme: ClassVar[str | None] = None
    """The scheme of the NTURI; by default the name of the context."""


def _method(name: str, marked: Function) -> Function:
    """The method of a proxy that calls what a marked one describes."""
    signature = inspect.getfullargspec(marked)
    defaults = signature.defaults or ()
    if signature.varargs is not None or signature.varkw is not None:
        raise TypeError(f"{name} has variable arguments: the method of a proxy names each")
    if len(signature.args) != len(defaults):
        raise TypeError(f"{name} has an argument without a type: its default is a code")
    try:
        uri = NTURI(list(zip(signature.args, defaults, strict=True)))
    except Exception as error:
        raise TypeError(f"{name}: {error}") from error
    pv, request = getattr(marked, "_call_PV"), getattr(marked, "_call_Request")

    @functools.wraps(marked)
    def call(self: RPCProxyBase, *args: Any, **kws: Any) -> Any:
        channel = pv % self.format
        try:
            scheme = self.scheme or self.context.name
            argument = uri.wrap(channel, args, kws, scheme=scheme, authority=self.authority)
        except Exception as error:
            raise ValueError(f"{name} cannot be called with {args!r} and {kws!r}: {error}") from error
        return self.context.rpc(channel, argument, request=request, timeout=self.timeout, throw=self.throw)

    return call


def rpcproxy(spec: type[Any]) -> type[Any]:
    """Makes a proxy of a class with methods of `rpccall`. Its constructor has the arguments `context` and `format` too."""

    def initialize(self: Any, context: Any = None, format: Any = (), **kws: Any) -> None:
        if context is None:
            raise TypeError("a proxy requires context=")
        self.context = context
        self.format = format
        spec.__init__(self, **kws)

    members: dict[str, Any] = {"__init__": initialize}
    for name, marked in inspect.getmembers(spec, lambda member: hasattr(member, "_call_PV")):
        members[name] = _method(name, marked)
    return type(spec.__name__, (RPCProxyBase, spec), members)
