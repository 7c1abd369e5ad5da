"""The client for event loops: its calls are awaited."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import os
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from ...._errors import Error
from ...._loop_queue import LONGEST, LoopQueue, finish_queues
from ...._monitors import Counts
from ....aio import _is_cancelled
from .. import _core
from .._errors import Cancelled, Disconnected, Finished, RemoteError
from ..wrapper import Type, Value
from . import raw
from .thread import _processing, _requests

__all__ = [
    "Cancelled",
    "Context",
    "Disconnected",
    "Finished",
    "RemoteError",
    "Subscription",
    "Type",
    "Value",
    "timesout",
]

_log = logging.getLogger("fodo.compat.p4p")
_TURN = 100
"""Updates that a subscription delivers before other tasks have their turn."""

P = ParamSpec("P")
R = TypeVar("R")


def timesout(
    deftimeout: float | None = 5.0,
) -> Callable[[Callable[..., Awaitable[R]]], Callable[..., Coroutine[Any, Any, R]]]:
    """Gives a coroutine function the argument `timeout` in seconds, after which it is cancelled; `None` is none."""

    def decorate(function: Callable[..., Awaitable[R]]) -> Callable[..., Coroutine[Any, Any, R]]:
        if not inspect.iscoroutinefunction(function):
            raise TypeError("timesout decorates a coroutine function")

        @functools.wraps(function)
        async def call(*args: Any, timeout: float | None = deftimeout, **kws: Any) -> R:
            return await asyncio.wait_for(function(*args, **kws), timeout)

        return call

    return decorate


class Subscription:
    """A subscription to a PV, whose updates are passed to a coroutine function, one after the other."""

    def __init__(
        self,
        channel: _core.PvChannel,
        queue: LoopQueue,
        cb: Callable[[Any], Awaitable[Any]],
        notify_disconnect: bool,
        request: str,
    ) -> None:
        self.name = channel.name
        self._callback = cb
        self._has_exceptions = notify_disconnect
        self._loop_queue = queue
        self._feed = _core.Feed(channel, request, queue.queue)
        self._is_ready = asyncio.Event()
        self._is_closed = False
        number = self._feed.native.number
        assert number is not None
        self._number = number
        queue.watch(number, self)  # type: ignore[arg-type]
        self._feed.begin()
        self._task = asyncio.create_task(self._run())

    @property
    def counts(self) -> Counts:
        """How many updates were received, squashed here and by the server, and delivered."""
        return self._feed.counts

    def close(self) -> None:
        """Ends the subscription; updates that wait are dropped. A call of the callback that has begun continues."""
        self._is_closed = True
        self._loop_queue.forget(self._number)
        self._feed.native.close()
        self._is_ready.set()

    async def wait_closed(self) -> None:
        """Waits until the last call of the callback has ended."""
        if not self._is_closed:
            raise RuntimeError(f'"{self.name}": close() comes before wait_closed()')
        await self._task

    def __enter__(self) -> Subscription:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _ready(self) -> None:
        """Called by the loop when there are updates."""
        self._is_ready.set()

    async def _run(self) -> None:
        if self._has_exceptions:
            await self._call(Disconnected())
        n_delivered = 0
        while not self._is_closed and not self._feed.is_done:
            item = self._feed.pop()
            if item is None:
                if self._feed.is_done:
                    break
                self._is_ready.clear()
                await self._is_ready.wait()
                continue
            if isinstance(item, Exception) and not self._has_exceptions:
                _log.info('"%s": %s', self.name, item)
            else:
                await self._call(item)
            n_delivered += 1
            if n_delivered % _TURN == 0:
                await asyncio.sleep(0)

    async def _call(self, item: Any) -> None:
        try:
            await self._callback(item)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException:  # noqa: BLE001
            if _is_cancelled():
                raise
            self._feed.n_callback_errors += 1
            _log.exception('"%s": the callback of the subscription failed', self.name)


class Context(raw.Context):
    """Context(provider="pva", conf=None, useenv=True, nt=None, unwrap=None): a client of pvAccess whose calls are awaited.

    The options are those of `client.thread.Context`. Calls have no timeout: use `asyncio.timeout` or `timesout`.
    """

    def __init__(
        self,
        provider: str = "pva",
        conf: dict[str, str] | None = None,
        useenv: bool = True,
        nt: Any = None,
        unwrap: Any = None,
    ) -> None:
        super().__init__(provider, conf=conf, useenv=useenv, nt=nt, unwrap=unwrap)
        self._queues: dict[asyncio.AbstractEventLoop, LoopQueue] = {}
        weakref.finalize(self, finish_queues, self._queues, os.getpid()).atexit = False

    def close(self) -> None:
        """Closes all connections and gives up all operations. May be called more than once."""
        super().close()
        queues = list(self._queues.values())
        self._queues.clear()
        for queue in queues:
            queue.finish()

    async def get(  # type: ignore[override]
        self, name: str | Sequence[str], request: Any = None
    ) -> Any:
        """Reads a PV, or a list of PVs at the same time. A list of names has a list of requests."""
        if isinstance(name, str):
            return await self._finished(name, lambda channel: channel.get(_core.request_text(request)))
        names = list(name)
        requests = _requests(names, request)
        return await asyncio.gather(*map(self._get_one, names, requests))

    async def _get_one(self, name: str, request: str) -> Any:
        return await self._finished(name, lambda channel: channel.get(request))

    async def put(  # type: ignore[override]
        self,
        name: str | Sequence[str],
        values: Any,
        request: Any = None,
        process: str | None = None,
        wait: bool | None = None,
        get: bool = True,
    ) -> None:
        """Writes a PV, or a list of PVs with as many values at the same time. The arguments are those of
        `client.thread.Context.put`."""
        has_options = bool(process) or wait is not None
        if isinstance(name, str):
            text = _processing(request, process, wait) if has_options else _core.request_text(request)
            await self._put_one(name, values, text, get)
            return
        names, given = list(name), list(values)
        if len(given) != len(names):
            raise ValueError(f"there are {len(names)} names but {len(given)} values")
        if has_options:
            requests = [_processing(request, process, wait)] * len(names)
        else:
            requests = _requests(names, request)
        await asyncio.gather(*(self._put_one(*one, get) for one in zip(names, given, requests, strict=True)))

    async def _put_one(self, name: str, value: Any, request: str, get: bool) -> None:
        await self._finished(name, lambda channel: channel.put(channel.builder(value), request, get))

    async def rpc(  # type: ignore[override]
        self, name: str, value: Value | None, request: Any = None
    ) -> Any:
        """Calls a procedure with a structure, such as one of `NTURI.wrap`."""
        del request
        argument = raw.argument_of(value)
        return await self._finished(name, lambda channel: channel.call(argument))

    def monitor(  # type: ignore[override]
        self, name: str, cb: Callable[[Any], Awaitable[Any]], request: Any = None, notify_disconnect: bool = False
    ) -> Subscription:
        """Subscribes to a PV: the coroutine function `cb` receives its value and every change. `notify_disconnect`: it also
        receives `Disconnected`, first before the PV is connected, and `RemoteError`."""
        if not inspect.iscoroutinefunction(cb):
            raise TypeError(f"the callback of a subscription is a coroutine function, not {cb!r}")
        channel = self._core.channel(name)
        return Subscription(channel, self._loop_queue(), cb, notify_disconnect, _core.request_text(request))

    def _loop_queue(self) -> LoopQueue:
        loop = asyncio.get_running_loop()
        queue = self._queues.get(loop)
        if queue is None:
            for closed in [known for known in self._queues if known.is_closed()]:
                del self._queues[closed]
            queue = self._queues[loop] = LoopQueue(loop)
        return queue

    async def _finished(self, name: str, start: Callable[[_core.PvChannel], _core.Steps[Any]]) -> Any:
        queue = self._loop_queue()
        try:
            steps = start(self._core.channel(name))
            result: Any = None
            while True:
                try:
                    operation = steps.send(result)
                except StopIteration as ended:
                    return ended.value
                (result,) = await queue.wait([operation], LONGEST)
                if isinstance(result, Error):
                    steps.close()
                    raise result
        except Error as error:
            raise self._core.failed(name, error) from None
