"""The client for programs with threads: every call blocks until its result is there.

    from fodo import sync

    print(sync.get("x:gap") + 1)
    sync.put("x:gap", 12.5)
    for value in sync.monitor("x:gap"):
        print(value, value.severity)

The functions of this module use one context, which is created with the first call from the variables of the environment. A
`Context` has the same functions, and settings of its own. Calls may be made from any thread. Ctrl-C ends a call.
"""

from __future__ import annotations

import functools
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from ._log import logger
from ._monitors import BaseMonitor, Callbacks, ErrorHandler

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


class Monitor(BaseMonitor):
    """A subscription to a PV: an iterator of its values, unless it has a callback. It ends when it is closed.

    Without a callback it also ends when no variable refers to it any more.
    """

    _context: Context

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        while not self._is_ended:
            item = self._native.next()
            if item is None:
                break
            selected = self._selected(item)
            if selected is not None:
                return selected
        raise StopIteration

    def next(self, timeout: float) -> Any:
        """The next value, or event if those were requested. Raises `TimeoutError` if there is none within `timeout` seconds,
        and `Closed` after the end."""
        deadline = time.monotonic() + seconds_of(timeout)
        while not self.is_closed:
            item = self._native.next(max(0.0, deadline - time.monotonic()))
            if item is None:
                if self.is_closed:
                    break
                raise TimeoutError(f'"{self.name}": no update within {timeout} s')
            selected = self._selected(item)
            if selected is not None:
                return selected
        raise Closed(self.name, "the monitor is closed")

    def close(self) -> None:
        """Ends the subscription; values that are queued are dropped. May be called at any time and from any thread."""
        self._is_ended = True
        number = None if not self._context.is_usable else self._native.number
        if number is not None:
            self._context._forget(number)
        self._native.close()

    def __enter__(self) -> Monitor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _returned(self, result: Any) -> bool:
        if hasattr(result, "send") and hasattr(result, "close"):
            result.close()
            self._callback_failed(TypeError("the callback is a coroutine function: use fodo.aio"))
        return False

    def _raised(self, error: BaseException) -> bool:
        if isinstance(error, (SystemExit, KeyboardInterrupt)):
            # It would end the thread, and with it all other callbacks.
            error = RuntimeError("the callback called sys.exit: a callback cannot end the program")
        return super()._raised(error)

    def _report(self, what: str, error: Exception) -> None:
        try:
            super()._report(what, error)
        except (SystemExit, KeyboardInterrupt):
            # As for a callback: it would end the thread.
            logger().exception('"%s": the error handler cannot end the program', self.name)


class Batches(BaseBatches):
    """Subscriptions to many PVs: an iterator of batches of their updates. It ends when it or its context is closed."""

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        batch = self._next(None)
        if batch is None:
            raise StopIteration
        return batch

    def next(self, timeout: float) -> Batch:
        """The next batch. Raises `TimeoutError` if there is none within `timeout` seconds, and `Closed` after the end."""
        batch = self._next(time.monotonic() + seconds_of(timeout))
        if batch is not None:
            return batch
        if self.is_closed:
            raise Closed("", "the batches are closed")
        raise TimeoutError(f"no update of {len(self.names)} PVs within {timeout} s")

    def _next(self, deadline: float | None) -> Batch | None:
        while not self._is_ended:
            self._raise_error()
            taken = self._native.next(None if deadline is None else max(0.0, deadline - time.monotonic()))
            if taken is None:
                return None
            batch = self._selected(taken)
            if batch is not None:
                return batch
        return None

    def close(self) -> None:
        """Ends the subscriptions; rows that wait are dropped, and counted. May be called at any time and from any thread."""
        self._is_ended = True
        self._native.close()

    def __enter__(self) -> Batches:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Dispatcher:
    """A thread that calls the callbacks of a context. It lives until the context is closed or the interpreter ends."""

    def __init__(self) -> None:
        self.queue = _native.CompletionQueue()
        self.callbacks: Callbacks = {}
        self.completions = _Completions()
        # A daemon, so that the interpreter does not wait for it; `stop` ends it before that.
        arguments = (self.queue, self.callbacks, self.completions)
        self.thread = threading.Thread(target=_dispatch, args=arguments, name="fodo", daemon=True)
        self.thread.start()

    def stop(self) -> None:
        self.queue.close()
        if self.thread is not threading.current_thread():
            # A callback may block for longer.
            self.thread.join(timeout=1.0)


class _Completions:
    """The functions that receive the results of operations."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.functions: dict[int, Callable[[list[Any]], None]] = {}

    def take(self, number: int) -> Callable[[list[Any]], None] | None:
        with self.lock:
            return self.functions.pop(number, None)


def _dispatch(queue: _native.CompletionQueue, callbacks: Callbacks, completions: _Completions) -> None:
    while queue.wait():
        groups, numbers = queue.drain()
        # First the updates: those that were received before a put was completed precede its result.
        if numbers:
            _native.deliver(numbers, callbacks, None)
        for number, results in groups:
            function = completions.take(number)
            if function is not None:
                _complete(function, results)
    callbacks.clear()


def _complete(function: Callable[[list[Any]], None], results: list[Any]) -> None:
    """Passes results to a function. An exception is logged: it would end the thread, and with it all other callbacks."""
    try:
        function(results)
    except BaseException:  # noqa: BLE001
        logger().exception("a function that receives results failed")


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
        self._dispatcher: _Dispatcher | None = None

    def __enter__(self) -> Context:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes all connections. Calls in progress end with `Closed`, and monitors end. May be called from any thread, also
        from a callback, and more than once."""
        self._close()
        dispatcher = self._dispatcher
        if dispatcher is not None and self.is_usable:
            dispatcher.stop()

    @overload
    def connect(self, names: str, *, timeout: float | None = None) -> Info: ...  # type: ignore[overload-overlap]
    @overload
    def connect(self, names: Iterable[str], *, timeout: float | None = None) -> list[Info | Error]: ...
    def connect(self, names: str | Iterable[str], *, timeout: float | None = None) -> Info | list[Info | Error]:
        """Waits until a PV is connected, and returns what its server reports. For several names: a list with a result or an
        error for each; all have one deadline."""
        found: Info | list[Info | Error] = self._run(names, lambda channel, _: channel.connect(), timeout)
        return found

    @overload
    def info(self, names: str, *, timeout: float | None = None) -> Info: ...  # type: ignore[overload-overlap]
    @overload
    def info(self, names: Iterable[str], *, timeout: float | None = None) -> list[Info | Error]: ...
    def info(self, names: str | Iterable[str], *, timeout: float | None = None) -> Info | list[Info | Error]:
        """Like `connect`, with the type of a PV of pvAccess."""
        every = listed(names)
        ends = with_types(self._run([*every, *every], start_info(len(every)), timeout))
        return raised(ends[0]) if isinstance(names, str) else ends

    @overload
    def get(
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
    def get(
        self,
        names: Iterable[str],
        *,
        detail: Detail = "time",
        kind: str | None = None,
        count: int = 0,
        request: str | None = None,
        timeout: float | None = None,
    ) -> list[Any]: ...
    def get(
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
                end = self._channel(names).read(detail, kind, count, self._limit(timeout))
                return end if not isinstance(end, Error) else raised(self._ended_one(names, end))
            every = several(names)
            if len(every) > 1:
                return self._wait(every, self._gets(every, detail, kind, count), timeout)
            names = listed(every)
        return self._run(names, lambda channel, _: channel.get(detail, kind, count, request), timeout)

    @overload
    def put(
        self,
        names: str,
        values: Any,
        *,
        wait: bool = True,
        request: str | None = None,
        timeout: float | None = None,
    ) -> None: ...
    @overload
    def put(
        self,
        names: Iterable[str],
        values: Any,
        *,
        wait: bool = True,
        request: str | None = None,
        timeout: float | None = None,
    ) -> list[Error | None]: ...
    def put(
        self,
        names: str | Iterable[str],
        values: Any,
        *,
        wait: bool = True,
        request: str | None = None,
        timeout: float | None = None,
    ) -> list[Error | None] | None:
        """Writes a PV, and waits until the server has completed processing. For several names: as many values; the result is a
        list with `None` or an error for each. A put that times out may have been carried out.

        `wait=False`: returns when the request is queued; `next_notice` reports a refusal. A dict writes fields of a structure
        of pvAccess, with the pvRequest `request`.
        """
        if not isinstance(names, str):
            names = listed(names)
        given = values_of(names, values)
        ends: list[Error | None] | None = self._run(
            names, lambda channel, index: channel.put(given[index], wait, request), timeout
        )
        return ends

    @overload
    def rpc(
        self, names: str, arguments: Mapping[str, Any] | None = None, *, timeout: float | None = None
    ) -> Any: ...
    @overload
    def rpc(
        self, names: Iterable[str], arguments: Arguments = None, *, timeout: float | None = None
    ) -> list[Any]: ...
    def rpc(
        self, names: str | Iterable[str], arguments: Arguments = None, *, timeout: float | None = None
    ) -> Any:
        """Calls a procedure of pvAccess with named arguments, and returns its result: a structure. For several names: a list with
        a result or an error for each; all have one deadline. `arguments` is then a dict for all of them, or a list of dicts."""
        every = names if isinstance(names, str) else listed(names)
        given = arguments_of(every, arguments)
        return self._run(every, lambda channel, index: channel.call(given[index]), timeout)

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
        """Subscribes to a PV, or to several. Does not block; the subscription survives disconnections.

        With a `callback`, values are passed to it on one thread of the context until the monitor or the context is closed.
        Otherwise the monitor is an iterator. `events`: whether it also receives each `Event`, such as a disconnection; without
        them an iterator raises the error of a refused subscription, and continues after it.

        `detail`, `kind`, `count` and `request` as in `get`. `mask`: the kinds of change; `none` follows the connection only, with
        `events`. `queue_max` and `when_full`: how many updates wait, and what happens to more; `counts` shows it. `window`: the
        flow control of pvAccess.
        """
        dispatcher = None if callback is None else self._dispatcher_of_callbacks()
        queue = None if dispatcher is None else dispatcher.queue

        def start(name: str) -> Monitor:
            native = self._channel(name).monitor(
                detail, kind, count, request, mask, queue_max, when_full, window, queue
            )
            monitor = Monitor(name, native, callback, events, self._on_error)
            monitor._context = self
            if dispatcher is not None and callback is not None and native.number is not None:
                dispatcher.callbacks[native.number] = (monitor, native, callback)
                # From now on the thread finds it.
                native.wake()
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
        """Subscribes to many PVs, whose updates are received together in batches: an iterator of `Batch`, whose columns are arrays
        of numpy. Does not block; the subscriptions survive disconnections.

        The PVs are numbers: scalars and enums, of either protocol. `rows_max`: with this many rows waiting, an update replaces
        the last row of its PV, which counts it in `merged`; 0 keeps only the newest update of each PV. `mask` and `window` as
        in `monitor`. `events`: also yields batches without rows, with each event in `Batch.events`; without them the iterator
        raises the error of a subscription that was refused, and continues after it.

        A live plot of the last minute:

            names = ["x:current", "x:lifetime"]
            figure, axes = pyplot.subplots()
            lines = [axes.plot([], [], label=name)[0] for name in names]
            with sync.batches(names, rows_max=0) as batches:
                for batch in batches:
                    for index, line in enumerate(lines):
                        rows = batch.of(index)
                        times = numpy.append(line.get_xdata(), rows.timestamp)
                        is_recent = times > time.time() - 60
                        line.set_data(times[is_recent], numpy.append(line.get_ydata(), rows.value)[is_recent])
                    axes.relim()
                    axes.autoscale_view()
                    pyplot.pause(0.05)
        """
        every = listed(names)
        return Batches(every, self._group(every, mask, rows_max, window, None), events)

    def _run(
        self,
        names: str | Iterable[str],
        start: Callable[[_native.Channel, int], _native.Operation],
        timeout: float | None,
    ) -> Any:
        if not isinstance(names, str):
            names = listed(names)
            return self._wait(names, self._start(names, start), timeout)
        (end,) = _native.wait([start(self._channel(names), 0)], self._limit(timeout))
        return raised(self._ended_one(names, end))

    def _wait(self, names: Sequence[str], started: list[_native.Operation | Error], timeout: float | None) -> list[Any]:
        return self._ended(names, started, _native.wait(operations(started), self._limit(timeout)))

    def _dispatcher_of_callbacks(self) -> _Dispatcher:
        with self._locked():
            self._check_open()
            if self._dispatcher is None:
                self._dispatcher = _Dispatcher()
                # Also when the interpreter ends: then no thread may wait any more.
                weakref.finalize(self, _finish, self._native, self._dispatcher)
            return self._dispatcher

    def _when_done(self, started: list[_native.Operation], function: Callable[[list[Any]], None]) -> None:
        """Passes the results of operations to a function on the thread of the callbacks."""
        dispatcher = self._dispatcher_of_callbacks()
        with dispatcher.completions.lock:
            dispatcher.completions.functions[dispatcher.queue.add(started)] = function

    @property
    def _is_calling_back(self) -> bool:
        """Whether the caller is a callback."""
        return self._dispatcher is not None and self._dispatcher.thread is threading.current_thread()

    def _forget(self, number: int) -> None:
        if self._dispatcher is not None:
            self._dispatcher.callbacks.pop(number, None)


def _finish(native: _native.Context, dispatcher: _Dispatcher) -> None:
    """Ends a context that was not closed. First its updates, for which its thread would be called again and again."""
    native.close()
    dispatcher.stop()


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
