"""The client for programs with threads: its calls block."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from queue import Empty, Queue
from types import TracebackType
from typing import Any

from .... import _native
from ...._errors import Error
from ...._monitors import Counts
from .. import _core, wrapper
from .._errors import Cancelled, Disconnected, Finished, RemoteError
from ..util import WorkQueue, _defaultWorkQueue
from ..wrapper import Type, Value
from . import raw

__all__ = [
    "Cancelled",
    "Context",
    "Disconnected",
    "Finished",
    "RemoteError",
    "Subscription",
    "TimeoutError",
    "Type",
    "Value",
]

_log = logging.getLogger("fodo.compat.p4p")

TimeoutError = TimeoutError

_TURN = 100
"""Updates that a subscription delivers before other calls of its work queue have their turn."""


class Subscription:
    """A subscription to a PV, whose updates are passed to a callback."""

    def __init__(
        self, context: Context, name: str, cb: Callable[[Any], Any], notify_disconnect: bool, queue: Any, request: str
    ) -> None:
        self.name = name
        self._callback = cb
        self._has_exceptions = notify_disconnect
        self._queue = queue or context._queue or _defaultWorkQueue()
        self._is_scheduled = False
        self._is_first = notify_disconnect
        self._lock = threading.Lock()
        self._source: raw.Subscription | None = raw.Subscription(context._core, name, self._event, request)
        self._counts_at_end: Counts | None = None
        if notify_disconnect:
            self._event()
        self._source._begin()

    @property
    def counts(self) -> Counts:
        """How many updates were received, squashed here and by the server, and delivered."""
        source = self._source
        counts = self._counts_at_end if source is None else source.counts
        assert counts is not None
        return counts

    def close(self) -> None:
        """Ends the subscription; updates that wait are dropped. The callback may be running in another thread."""
        with self._lock:
            source, self._source = self._source, None
            if source is not None:
                self._counts_at_end = source.counts
        if source is not None:
            source.close()

    def __enter__(self) -> Subscription:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _event(self) -> None:
        with self._lock:
            if self._is_scheduled or self._source is None:
                return
            self._is_scheduled = True
        # No update is lost while a queue with a limit is full. Neither the thread of the context nor one of the queue waits.
        # A queue of a class of the program may wait.
        push = getattr(self._queue, "_push_or_keep", None) or self._queue.push_wait
        push(self._handle)

    def _handle(self) -> None:
        with self._lock:
            self._is_scheduled = False
        if self._is_first:
            self._is_first = False
            self._call(Disconnected())
        for _ in range(_TURN):
            source = self._source
            item = None if source is None else source.pop()
            if item is None:
                return
            if isinstance(item, Exception) and not self._has_exceptions:
                _log.info('"%s": %s', self.name, item)
            else:
                self._call(item)
        self._event()

    def _call(self, item: Any) -> None:
        try:
            self._callback(item)
        except BaseException:  # noqa: BLE001
            # The updates that follow are delivered, also after a request to end the program.
            source = self._source
            if source is not None:
                source._feed.n_callback_errors += 1
            _log.exception('"%s": the callback of the subscription failed', self.name)


class Context(raw.Context):
    """Context(provider="pva", conf=None, useenv=True, nt=None, unwrap=None, maxsize=0, queue=None): a client of pvAccess whose
    calls block.

    `conf`: variables such as `EPICS_PVA_ADDR_LIST`, before those of the environment, which are not used with `useenv=False`.
    `nt`: normative types to unwrap in addition to `nt.defaultNT()`, or `False` for none. `queue`: the `WorkQueue` in whose
    threads callbacks are called; without one, one of four threads that all contexts share. `maxsize` is not used.
    """

    Value = Value

    def __init__(
        self,
        provider: str = "pva",
        conf: dict[str, str] | None = None,
        useenv: bool = True,
        nt: Any = None,
        unwrap: Any = None,
        maxsize: int = 0,
        queue: WorkQueue | None = None,
    ) -> None:
        del maxsize
        super().__init__(provider, conf=conf, useenv=useenv, nt=nt, unwrap=unwrap)
        self._queue = queue

    def get(  # type: ignore[override]
        self,
        name: str | Sequence[str],
        request: Any = None,
        timeout: float | None = 5.0,
        throw: bool = True,
    ) -> Any:
        """Reads a PV, or a list of PVs, with one timeout in seconds. `throw=False`: an exception is returned in place of a
        value. A list of names has a list of requests."""
        if isinstance(name, str):
            return self._one(name, lambda channel: channel.get(_core.request_text(request)), timeout, throw)
        names = list(name)
        requests = _requests(names, request)
        return self._many(names, lambda channel, index: channel.get(requests[index]), timeout, throw)

    def put(  # type: ignore[override]
        self,
        name: str | Sequence[str],
        values: Any,
        request: Any = None,
        timeout: float | None = 5.0,
        throw: bool = True,
        process: str | None = None,
        wait: bool | None = None,
        get: bool = True,
    ) -> Any:
        """Writes a PV, or a list of PVs with as many values, with one timeout in seconds.

        A value is a plain one, a dict with the values of fields, a text with JSON of such a dict, a `Value`, or a function
        that changes one. `process`: `true`, `false` or `passive`; `wait`: whether the server replies after the processing.
        `get`: whether the current value is read before. `throw=False`: an exception is returned.
        """
        is_single = isinstance(name, str)
        names = [name] if isinstance(name, str) else list(name)
        given = [values] if is_single else list(values)
        if len(given) != len(names):
            raise ValueError(f"there are {len(names)} names but {len(given)} values")
        if process or wait is not None:
            request = _processing(request, process, wait)
            requests = [request] * len(names)
        else:
            requests = [_core.request_text(request)] if is_single else _requests(names, request)
        given = [_parsed(value) for value in given]

        def steps(channel: _core.PvChannel, index: int) -> _core.Steps[None]:
            return channel.put(channel.builder(given[index]), requests[index], get)

        if is_single:
            return self._one(names[0], lambda channel: steps(channel, 0), timeout, throw)
        return self._many(names, steps, timeout, throw)

    def rpc(  # type: ignore[override]
        self, name: str, value: wrapper.Value | None, request: Any = None, timeout: float | None = 5.0, throw: bool = True
    ) -> Any:
        """Calls a procedure with a structure, such as one of `NTURI.wrap`."""
        del request
        argument = raw.argument_of(value)
        return self._one(name, lambda channel: channel.call(argument), timeout, throw)

    def monitor(  # type: ignore[override]
        self,
        name: str,
        cb: Callable[[Any], Any],
        request: Any = None,
        notify_disconnect: bool = False,
        queue: WorkQueue | None = None,
    ) -> Subscription:
        """Subscribes to a PV: `cb` receives its value and every change. `notify_disconnect`: it also receives `Disconnected`,
        first before the PV is connected, and `RemoteError`. `queue`: the `WorkQueue` in whose threads it is called."""
        return Subscription(self, name, cb, notify_disconnect, queue, _core.request_text(request))

    def _one(
        self, name: str, start: Callable[[_core.PvChannel], _core.Steps[Any]], timeout: float | None, throw: bool
    ) -> Any:
        """Executes steps in this thread."""
        try:
            return self._finished(start(self._core.channel(name)), timeout)
        except Error as error:
            failure = self._core.failed(name, error)
            if throw:
                raise failure from None
            return failure
        except Exception as error:
            if throw:
                raise
            return error

    def _finished(self, steps: _core.Steps[Any], timeout: float | None) -> Any:
        end = None if timeout is None else time.monotonic() + timeout
        result: Any = None
        while True:
            try:
                operation = steps.send(result)
            except StopIteration as ended:
                return ended.value
            (result,) = _native.wait([operation], None if end is None else max(0.0, end - time.monotonic()))
            if isinstance(result, Error):
                steps.close()
                raise result

    def _many(
        self,
        names: list[str],
        start: Callable[[_core.PvChannel, int], _core.Steps[Any]],
        timeout: float | None,
        throw: bool,
    ) -> list[Any]:
        """Executes the steps of each name at the same time."""
        done: Queue[tuple[int, Any]] = Queue()
        results: list[Any] = [_MISSING] * len(names)
        running: list[raw.Operation] = []
        end = None if timeout is None else time.monotonic() + timeout
        try:
            for index, name in enumerate(names):
                steps = start(self._core.channel(name), index)
                running.append(raw.Operation(self._core, name, steps, partial(_put_result, done, index)))
            for _ in names:
                try:
                    index, result = done.get(timeout=None if end is None else max(0.0, end - time.monotonic()))
                except Empty:
                    break
                if throw and isinstance(result, Exception):
                    raise result
                results[index] = result
        finally:
            for operation in running:
                operation.close()
        for index, name in enumerate(names):
            if results[index] is _MISSING:
                results[index] = TimeoutError(f'"{name}": no reply within {timeout} s')
                if throw:
                    raise results[index]
        return results


_MISSING: Any = object()


def _put_result(done: Queue[tuple[int, Any]], index: int, result: Any) -> None:
    if not isinstance(result, Cancelled):
        done.put_nowait((index, result))


def _requests(names: list[str], request: Any) -> list[str]:
    """A pvRequest for each name."""
    if request is None:
        return [""] * len(names)
    if isinstance(request, (str, Value)) or len(request) != len(names):
        raise ValueError(f"a list of {len(names)} names has a list of as many requests")
    return [_core.request_text(one) for one in request]


def _processing(request: Any, process: str | None, wait: bool | None) -> str:
    """The pvRequest for a put that processes a record."""
    if request:
        raise ValueError("request= excludes process= and wait=")
    return f"field()record[block={'true' if wait else 'false'},process={process or 'passive'}]"


def _parsed(value: Any) -> Any:
    if not isinstance(value, (bytes, str)) or value[:1] not in ("{", b"{"):
        return value
    try:
        return json.loads(value)
    except ValueError:
        raise ValueError(f"{value!r} is not valid JSON") from None
