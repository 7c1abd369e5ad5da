"""The client for asyncio: calls are awaited, and monitors are asynchronous iterators.

    from fodo import aio

    async def main() -> None:
        print(await aio.get("x:gap") + 1)
        await aio.put("x:gap", 12.5)
        async for value in aio.monitor("x:gap"):
            print(value, value.severity)

The functions of this module use one context, which is created with the first call from the variables of the environment. A
`Context` has the same functions, and settings of its own. It may be used by several event loops, each in its own thread.
"""

from __future__ import annotations

import asyncio
import functools
import os
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, TypeVar, overload

from . import _native
from ._batches import BaseBatches, Batch, BatchCounts, BatchEvent
from ._client import (
    Arguments,
    BaseContext,
    DefaultContext,
    Detail,
    WhenFull,
    arguments_of,
    listed,
    operations,
    raised,
    seconds_of,
    several,
    start_info,
    started_all,
    values_of,
    with_types,
    without_self,
)
from ._errors import Closed, Error
from ._info import Info
from ._loop_queue import LoopQueue, finish_queues
from ._monitors import BaseMonitor, ErrorHandler

__all__ = [
    "Batch",
    "BatchCounts",
    "BatchEvent",
    "Batches",
    "Context",
    "Monitor",
    "batches",
    "connect",
    "default_context",
    "get",
    "info",
    "monitor",
    "put",
    "rpc",
]


_RESUME = 0.1
"""Seconds after which a monitor continues whose callback was cancelled."""


class Monitor(BaseMonitor):
    """A subscription to a PV: an asynchronous iterator of its values, unless it has a callback. It ends when it is closed.

    Without a callback it also ends when no variable refers to it any more. It belongs to the event loop in which it was
    created.
    """

    _context: Context
    _queue: LoopQueue
    _number: int
    _task: asyncio.Task[None] | None = None

    def _begin(self, context: Context, queue: LoopQueue) -> None:
        self._context = context
        self._queue = queue
        self._has_ready = asyncio.Event()
        number = self._native.number
        if number is not None:
            self._number = number
            if self._callback is None:
                queue.watch(number, weakref.ref(self))
            else:
                queue.call(number, self, self._callback)
            self._native.wake()

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        while not self._is_ended:
            item = self._native.take()
            if item is None:
                self._has_ready.clear()
                await self._has_ready.wait()
                continue
            selected = self._selected(item)
            if selected is not None:
                return selected
        raise StopAsyncIteration

    async def next(self, timeout: float) -> Any:
        """The next value, or event if those were requested. Raises `TimeoutError` if there is none within `timeout` seconds,
        and `Closed` after the end."""
        limit = seconds_of(timeout)
        try:
            return await asyncio.wait_for(self.__anext__(), limit)
        except StopAsyncIteration:
            raise Closed(self.name, "the monitor is closed") from None
        except TimeoutError as error:
            if isinstance(error, Error):
                raise
            raise TimeoutError(f'"{self.name}": no update within {timeout} s') from None

    def close(self) -> None:
        """Ends the subscription; values that are queued are dropped. May be called at any time, in the thread of the loop."""
        self._is_ended = True
        number = None if not self._context.is_usable else self._native.number
        if number is not None:
            self._queue.forget(number)
        self._native.close()
        self._has_ready.set()

    async def __aenter__(self) -> Monitor:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _ready(self) -> None:
        """There are events."""
        self._has_ready.set()

    def _returned(self, result: Any) -> bool:
        if not isinstance(result, Awaitable):
            return False
        # Until this call has ended, values wait in the queue of the subscription, whose policy decides about a full one.
        if not self._is_ended:
            self._queue.watch(self._number, self)
        self._task = asyncio.ensure_future(self._after(result))
        return True

    def _deliver(self) -> None:
        """The callback receives what is queued, and what follows."""
        if self._callback is not None and not self._is_ended:
            self._queue.call(self._number, self, self._callback)
            self._queue.deliver([self._number])

    async def _after(self, call: Awaitable[Any]) -> None:
        try:
            await call
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001
            if _is_cancelled():
                # Without this, no update would be delivered any more. At the end of `asyncio.run`, the loop is closed before.
                asyncio.get_running_loop().call_later(_RESUME, self._deliver)
                raise
            # A CancelledError of the callback itself, such as that of a task for which it waited, is an error like others.
            self._callback_failed(error)
        finally:
            self._task = None
        self._deliver()


def _is_cancelled() -> bool:
    """Whether the running task was cancelled, for instance at the end of `asyncio.run`."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class Batches(BaseBatches):
    """Subscriptions to many PVs: an asynchronous iterator of batches of their updates. It ends when it or its context is
    closed. It belongs to the event loop in which it was created."""

    _context: Context
    _queue: LoopQueue

    def _begin(self, context: Context, queue: LoopQueue) -> None:
        self._context = context
        self._queue = queue
        self._has_ready = asyncio.Event()
        number = self._native.number
        if number is not None:
            queue.watch(number, weakref.ref(self))
            self._native.wake()

    def __aiter__(self) -> AsyncIterator[Batch]:
        return self

    async def __anext__(self) -> Batch:
        while not self._is_ended:
            self._raise_error()
            taken = self._native.take()
            if taken is not None:
                batch = self._selected(taken)
                if batch is not None:
                    return batch
                continue
            if self._native.is_closed:
                break
            self._has_ready.clear()
            await self._has_ready.wait()
        raise StopAsyncIteration

    async def next(self, timeout: float) -> Batch:
        """The next batch. Raises `TimeoutError` if there is none within `timeout` seconds, and `Closed` after the end."""
        limit = seconds_of(timeout)
        try:
            return await asyncio.wait_for(self.__anext__(), limit)
        except StopAsyncIteration:
            raise Closed("", "the batches are closed") from None
        except TimeoutError as error:
            if isinstance(error, Error):
                raise
            raise TimeoutError(f"no update of {len(self.names)} PVs within {timeout} s") from None

    def close(self) -> None:
        """Ends the subscriptions; rows that wait are dropped, and counted. May be called at any time, in the thread of the
        loop."""
        self._is_ended = True
        number = None if not self._context.is_usable else self._native.number
        if number is not None:
            self._queue.forget(number)
        self._native.close()
        self._has_ready.set()

    async def __aenter__(self) -> Batches:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _ready(self) -> None:
        """There are rows or events."""
        self._has_ready.set()


class Context(BaseContext):
    """A client with its own connections.

    `settings`: variables such as `EPICS_CA_ADDR_LIST`, before those of the environment. `timeout`: seconds after which a call
    without a timeout of its own ends. `on_error`: receives the name of a PV and an exception of a callback or an error of a
    subscription with a callback; without it, they are logged.
    """

    def __init__(
        self,
        *,
        settings: Mapping[str, str] | None = None,
        timeout: float = 5.0,
        on_error: ErrorHandler | None = None,
    ) -> None:
        super().__init__(settings, timeout)
        self._on_error = on_error
        self._queues: dict[asyncio.AbstractEventLoop, LoopQueue] = {}
        # A loop keeps what it watches; at the end of the interpreter no loop runs any more.
        weakref.finalize(self, finish_queues, self._queues, os.getpid()).atexit = False

    async def __aenter__(self) -> Context:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes all connections. Calls in progress end with `Closed`, and monitors end. May be called from any thread and
        more than once; event loops may be closed before or after it."""
        self._close()
        if self.is_usable:
            with self._lock:
                queues = list(self._queues.values())
                self._queues.clear()
            for queue in queues:
                queue.finish()

    @overload
    async def connect(self, names: str, *, timeout: float | None = None) -> Info: ...  # type: ignore[overload-overlap]
    @overload
    async def connect(self, names: Iterable[str], *, timeout: float | None = None) -> list[Info | Error]: ...
    async def connect(self, names: str | Iterable[str], *, timeout: float | None = None) -> Info | list[Info | Error]:
        """Waits until a PV is connected, and returns what its server reports. For several names: a list with a result or an
        error for each; all have one deadline."""
        found: Info | list[Info | Error] = await self._run(names, lambda channel, _: channel.connect(), timeout)
        return found

    @overload
    async def info(self, names: str, *, timeout: float | None = None) -> Info: ...  # type: ignore[overload-overlap]
    @overload
    async def info(self, names: Iterable[str], *, timeout: float | None = None) -> list[Info | Error]: ...
    async def info(self, names: str | Iterable[str], *, timeout: float | None = None) -> Info | list[Info | Error]:
        """Like `connect`, with the type of a PV of pvAccess."""
        every = listed(names)
        ends = with_types(await self._run([*every, *every], start_info(len(every)), timeout))
        return raised(ends[0]) if isinstance(names, str) else ends

    @overload
    async def get(
        self,
        names: str,
        *,
        detail: Detail = "time",
        kind: str | None = None,
        count: int = 0,
        request: str | None = None,
        timeout: float | None = None,
    ) -> Any: ...
    @overload
    async def get(
        self,
        names: Iterable[str],
        *,
        detail: Detail = "time",
        kind: str | None = None,
        count: int = 0,
        request: str | None = None,
        timeout: float | None = None,
    ) -> list[Any]: ...
    async def get(
        self,
        names: str | Iterable[str],
        *,
        detail: Detail = "time",
        kind: str | None = None,
        count: int = 0,
        request: str | None = None,
        timeout: float | None = None,
    ) -> Any:
        """Reads a PV. For several names: a list with a value or an error for each; all have one deadline.

        `kind`: the kind to convert to, such as `text`; by default that of the PV. `count`: the maximum number of elements; 0:
        all. `request`: a pvRequest of pvAccess, such as `field(value,alarm)`; the result is then a structure.
        """
        if request is None:
            if isinstance(names, str):
                queue, limit = self._queue(), self._limit(timeout)
                number = queue.queue.get(self._channel(names), detail, kind, count)
                (end,) = await queue.results(number, limit)
                return end if not isinstance(end, Error) else raised(self._ended_one(names, end))
            every = several(names)
            if len(every) > 1:
                return await self._wait(every, self._gets(every, detail, kind, count), timeout)
            names = listed(every)
        return await self._run(names, lambda channel, _: channel.get(detail, kind, count, request), timeout)

    @overload
    async def put(
        self,
        names: str,
        values: Any,
        *,
        wait: bool = True,
        request: str | None = None,
        timeout: float | None = None,
    ) -> None: ...
    @overload
    async def put(
        self,
        names: Iterable[str],
        values: Any,
        *,
        wait: bool = True,
        request: str | None = None,
        timeout: float | None = None,
    ) -> list[Error | None]: ...
    async def put(
        self,
        names: str | Iterable[str],
        values: Any,
        *,
        wait: bool = True,
        request: str | None = None,
        timeout: float | None = None,
    ) -> list[Error | None] | None:
        """Writes a PV, and waits until the server has completed processing. For several names: as many values; the result is a
        list with `None` or an error for each. A put that times out, or whose task is cancelled, may have been carried out.

        `wait=False`: returns when the request is queued; `next_notice` reports a refusal. A dict writes fields of a structure
        of pvAccess, with the pvRequest `request`.
        """
        if not isinstance(names, str):
            names = listed(names)
        given = values_of(names, values)
        ends: list[Error | None] | None = await self._run(
            names, lambda channel, index: channel.put(given[index], wait, request), timeout
        )
        return ends

    @overload
    async def rpc(
        self, names: str, arguments: Mapping[str, Any] | None = None, *, timeout: float | None = None
    ) -> Any: ...
    @overload
    async def rpc(
        self, names: Iterable[str], arguments: Arguments = None, *, timeout: float | None = None
    ) -> list[Any]: ...
    async def rpc(
        self, names: str | Iterable[str], arguments: Arguments = None, *, timeout: float | None = None
    ) -> Any:
        """Calls a procedure of pvAccess with named arguments, and returns its result: a structure. For several names: a list with
        a result or an error for each; all have one deadline. `arguments` is then a dict for all of them, or a list of dicts."""
        every = names if isinstance(names, str) else listed(names)
        given = arguments_of(every, arguments)
        return await self._run(every, lambda channel, index: channel.call(given[index]), timeout)

    @overload
    def monitor(  # type: ignore[overload-overlap]
        self,
        names: str,
        callback: Callable[[Any], Any] | None = None,
        *,
        detail: Detail = "time",
        kind: str | None = None,
        count: int = 0,
        request: str | None = None,
        mask: str = "value,alarm",
        queue_max: int = 1024,
        when_full: WhenFull = "replace_last",
        window: int | None = None,
        events: bool = False,
    ) -> Monitor: ...
    @overload
    def monitor(
        self,
        names: Iterable[str],
        callback: Callable[[Any], Any] | None = None,
        *,
        detail: Detail = "time",
        kind: str | None = None,
        count: int = 0,
        request: str | None = None,
        mask: str = "value,alarm",
        queue_max: int = 1024,
        when_full: WhenFull = "replace_last",
        window: int | None = None,
        events: bool = False,
    ) -> list[Monitor]: ...
    def monitor(
        self,
        names: str | Iterable[str],
        callback: Callable[[Any], Any] | None = None,
        *,
        detail: Detail = "time",
        kind: str | None = None,
        count: int = 0,
        request: str | None = None,
        mask: str = "value,alarm",
        queue_max: int = 1024,
        when_full: WhenFull = "replace_last",
        window: int | None = None,
        events: bool = False,
    ) -> Monitor | list[Monitor]:
        """Subscribes to a PV, or to several, in the running event loop. Is not awaited; the subscription survives
        disconnections.

        With a `callback`, a function or a coroutine function, values are passed to it in the loop until the monitor or the
        context is closed; a call is awaited before the next one. Otherwise the monitor is an asynchronous iterator. `events`:
        whether it also receives each `Event`, such as a disconnection; without them an iterator raises the error of a refused
        subscription, and continues after it.

        `detail`, `kind`, `count` and `request` as in `get`. `mask`: the kinds of change. `queue_max` and `when_full`: how many
        updates wait, and what happens to more; `counts` shows it. `window`: the flow control of pvAccess.
        """
        queue = self._queue()

        def start(name: str) -> Monitor:
            native = self._channel(name).monitor(
                detail, kind, count, request, mask, queue_max, when_full, window, queue.queue
            )
            monitor = Monitor(name, native, callback, events, self._on_error)
            monitor._begin(self, queue)
            return monitor

        monitors = started_all(listed(names), start)
        return monitors[0] if isinstance(names, str) else monitors

    def batches(
        self,
        names: str | Iterable[str],
        *,
        mask: str = "value,alarm",
        rows_max: int = 1_048_576,
        window: int | None = None,
        events: bool = False,
    ) -> Batches:
        """Subscribes to many PVs, whose updates are received together in batches: an asynchronous iterator of `Batch`, whose columns are arrays
        of numpy. Is not awaited; the subscriptions survive disconnections.

        The PVs are numbers: scalars and enums, of either protocol. `rows_max`: with this many rows waiting, an update replaces
        the last row of its PV, which counts it in `merged`; 0 keeps only the newest update of each PV. `mask` and `window` as
        in `monitor`. `events`: also yields batches without rows, with each event in `Batch.events`; without them the iterator
        raises the error of a subscription that was refused, and continues after it.

        A live plot of the last minute:

            names = ["x:current", "x:lifetime"]
            figure, axes = pyplot.subplots()
            lines = [axes.plot([], [], label=name)[0] for name in names]
            async with aio.batches(names, rows_max=0) as batches:
                async for batch in batches:
                    for index, line in enumerate(lines):
                        rows = batch.of(index)
                        times = numpy.append(line.get_xdata(), rows.timestamp)
                        is_recent = times > time.time() - 60
                        line.set_data(times[is_recent], numpy.append(line.get_ydata(), rows.value)[is_recent])
                    axes.relim()
                    axes.autoscale_view()
                    pyplot.pause(0.05)
        """
        queue = self._queue()
        every = listed(names)
        batches = Batches(every, self._group(every, mask, rows_max, window, queue.queue), events)
        batches._begin(self, queue)
        return batches

    def _queue(self) -> LoopQueue:
        """The queue of the running loop."""
        loop = asyncio.get_running_loop()
        queue = self._queues.get(loop)
        if queue is not None:
            return queue
        with self._locked():
            queue = self._queues.get(loop)
            if queue is None:
                self._check_open()
                for closed in [known for known in self._queues if known.is_closed()]:
                    del self._queues[closed]
                queue = self._queues[loop] = LoopQueue(loop)
        return queue

    async def _run(
        self,
        names: str | Iterable[str],
        start: Callable[[_native.Channel, int], _native.Operation],
        timeout: float | None,
    ) -> Any:
        if not isinstance(names, str):
            names = listed(names)
            return await self._wait(names, self._start(names, start), timeout)
        (end,) = await self._queue().wait([start(self._channel(names), 0)], self._limit(timeout))
        return raised(self._ended_one(names, end))

    async def _wait(
        self, names: Sequence[str], started: list[_native.Operation | Error], timeout: float | None
    ) -> list[Any]:
        going = operations(started)
        results = await self._queue().wait(going, self._limit(timeout)) if going else []
        return self._ended(names, started, results)


_default = DefaultContext(Context)


def default_context() -> Context:
    """The context of the functions of this module; created when first used, and again after it was closed and in the child of
    a fork."""
    return _default.context()


P = ParamSpec("P")
R = TypeVar("R")


def _of_default(method: Callable[Concatenate[Context, P], R]) -> Callable[P, R]:
    @functools.wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        return method(default_context(), *args, **kwargs)

    return without_self(call)


connect = _of_default(Context.connect)
info = _of_default(Context.info)
get = _of_default(Context.get)
put = _of_default(Context.put)
rpc = _of_default(Context.rpc)
monitor = _of_default(Context.monitor)
batches = _of_default(Context.batches)
