"""Outputs of an IOC: the functions of the program that write their values, and the thread that calls them."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from . import _native
from ._errors import Misuse, reason_of
from ._log import logger

if TYPE_CHECKING:
    import asyncio
    from concurrent.futures import Future

    from ._monitors import ErrorHandler

PutFunction = Callable[[Any], None] | Callable[[Any], Awaitable[None]]
ValidateFunction = Callable[[Any], Any]
RequestFunction = Callable[["OutputRequest"], None]

_LEVELS = ("error", "warning", "info", "debug")


class OutputRequest:
    """A value that an output has to write. The record waits, and so does the client if it has requested completion, until
    one of `complete`, `refuse` and `restore` is called, from any thread. Only the first call has an effect; it returns true.

    A request that is deleted without such a call is refused.
    """

    __slots__ = ("_native", "name", "previous", "value")

    def __init__(self, name: str, native: _native.OutputRequest) -> None:
        self._native = native
        self.name = name
        """The name of the record."""
        self.value = native.value
        """The value to write."""
        self.previous = native.previous
        """The value that was accepted or set before; `None` if there is none."""

    @property
    def is_ended(self) -> bool:
        """Whether one of the methods was called."""
        return self._native.is_ended

    def complete(self) -> bool:
        """The value is written."""
        return self._native.complete()

    def refuse(self, reason: str) -> bool:
        """The value is not written. The record keeps it, with the alarm WRITE, severity INVALID, and the reason in AMSG."""
        return self._native.refuse(reason)

    def restore(self) -> bool:
        """The value is not written. The record has the previous value again, without an alarm."""
        return self._native.restore()


class Output:
    """The functions of an output."""

    def __init__(
        self,
        name: str,
        on_put: PutFunction | None,
        on_request: RequestFunction | None,
        validate: ValidateFunction | None,
    ) -> None:
        if on_put is not None and on_request is not None:
            raise Misuse(name, "an output has on_put or on_request, not both")
        for what, function in (("on_request", on_request), ("validate", validate)):
            if inspect.iscoroutinefunction(function):
                raise Misuse(name, f"{what} cannot be a coroutine function: use on_put")
        self.name = name
        self.on_put = on_put
        self.on_request = on_request
        self.validate = validate

    @property
    def is_needed(self) -> bool:
        """Whether there is a function."""
        return any(function is not None for function in (self.on_put, self.on_request, self.validate))

    @property
    def is_async(self) -> bool:
        """Whether the values are written on an event loop."""
        return inspect.iscoroutinefunction(self.on_put)


class OutputThread:
    """The thread of an IOC that calls the functions of the program. It refers to nothing that refers to the IOC, so that an
    IOC that is no longer used stops."""

    def __init__(
        self,
        native: _native.RunningIoc,
        outputs: Sequence[Output],
        on_error: ErrorHandler | None,
        loop: asyncio.AbstractEventLoop | None,
    ) -> None:
        self._outputs = outputs
        self._on_error = on_error
        self._loop = loop
        self._lock = threading.Lock()
        self._coroutines: set[Future[None]] = set()
        self.n_errors = 0
        self.busy = ""
        """The record whose functions were called last."""
        self._take = native.inbox().take
        self._thread = threading.Thread(target=self._run, name="fodo-ioc", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout: float) -> bool:
        """Ends the coroutines and the thread; returns false if a function has not returned in time."""
        with self._lock:
            coroutines = list(self._coroutines)
        for coroutine in coroutines:
            if self._loop is not None and not self._loop.is_closed():
                coroutine.cancel()
        if self._thread is not threading.current_thread():
            self._thread.join(timeout)
            return not self._thread.is_alive()
        return True

    def _run(self) -> None:
        while (item := self._take()) is not None:
            key, content = item
            if isinstance(content, str):
                log = getattr(logger(), key if key in _LEVELS else "warning")
                log("%s", content)
            else:
                self._write(self._outputs[int(key)], content)
            del item, content

    def _write(self, output: Output, native: _native.OutputRequest) -> None:
        self.busy = output.name
        try:
            request = OutputRequest(output.name, native)
            if not self._is_valid(output, request):
                return
            if output.on_request is not None:
                output.on_request(request)
                return
            ended: Any = None if output.on_put is None else output.on_put(request.value)
            if inspect.iscoroutine(ended):
                self._start(output, request, ended)
            else:
                request.complete()
        except BaseException as error:  # noqa: BLE001
            # Not even a request to end the program may end the thread.
            self._failed(output.name, native, error)

    def _is_valid(self, output: Output, request: OutputRequest) -> bool:
        if output.validate is None:
            return True
        try:
            is_valid = output.validate(request.value)
        except Exception as error:  # noqa: BLE001
            # That is how it refuses.
            request.refuse(reason_of(error))
            return False
        if is_valid is False:
            request.restore()
            return False
        return True

    def _start(self, output: Output, request: OutputRequest, coroutine: Any) -> None:
        import asyncio

        if self._loop is None or self._loop.is_closed():
            coroutine.close()
            reason = "the IOC has no event loop" if self._loop is None else "the event loop of the IOC is closed"
            raise Misuse(output.name, reason)
        future: Future[None] = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        with self._lock:
            self._coroutines.add(future)
        future.add_done_callback(lambda done: self._ended(output, request, done))

    def _ended(self, output: Output, request: OutputRequest, future: Future[None]) -> None:
        from concurrent.futures import CancelledError

        with self._lock:
            self._coroutines.discard(future)
        try:
            future.result()
        except CancelledError:
            request.refuse("cancelled")
        except BaseException as error:  # noqa: BLE001
            self._failed(output.name, request, error)
        else:
            request.complete()

    def _failed(self, name: str, request: OutputRequest | _native.OutputRequest, error: BaseException) -> None:
        """Refuses a put, counts the exception first, and reports it."""
        with self._lock:
            self.n_errors += 1
        request.refuse(reason_of(error))
        if self._on_error is None or not isinstance(error, Exception):
            logger().error('"%s": the function for its puts failed', name, exc_info=error)
            return
        try:
            self._on_error(name, error)
        except BaseException:  # noqa: BLE001
            # As for a function of an output: it would end the thread.
            logger().exception('"%s": the error handler failed', name)
