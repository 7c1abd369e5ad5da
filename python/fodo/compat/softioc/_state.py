"""What the functions of this package share: the records that are being defined, and the IOC that runs."""

from __future__ import annotations

import inspect
import threading
from typing import TYPE_CHECKING, Any

from ...ioc import Ioc
from ...sync import Context

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...ioc import RunningIoc
    from ._database import Definition
    from .device import ProcessDeviceSupportCore


class Calls:
    """The calls of functions that wait for the dispatcher or run."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.n_waiting = 0

    def counted(
        self, function: Callable[..., Any], ended: Callable[[], None] | None
    ) -> tuple[Callable[..., Any], Callable[[], None]]:
        """Counts a call of the first result, which calls the function, until it has ended; then calls `ended`. The second
        result ends a call that cannot begin. A coroutine function remains one: dispatchers may ask."""
        has_ended = False
        with self._lock:
            self.n_waiting += 1

        def end() -> None:
            nonlocal has_ended
            with self._lock:
                if has_ended:
                    return
                has_ended = True
                self.n_waiting -= 1
            if ended is not None:
                ended()

        async def run_coroutine(*arguments: Any) -> None:
            try:
                await function(*arguments)
            finally:
                end()

        def run(*arguments: Any) -> Any:
            try:
                return function(*arguments)
            finally:
                end()

        return (run_coroutine if inspect.iscoroutinefunction(function) else run), end


class State:
    """From the first record to the end of the IOC."""

    def __init__(self) -> None:
        self.is_blocking = False
        self.is_logging = False
        self._lock = threading.Lock()
        self.dispatcher: Callable[..., Any] | None = None
        self.reset()

    def reset(self) -> None:
        """Begins anew, without records."""
        self.ioc = Ioc()
        self.running: RunningIoc | None = None
        self.is_loaded = False
        self.definitions: dict[str, Definition] = {}
        self.headers: list[str] = []
        self.lines: list[str] = []
        self.devices: dict[str, ProcessDeviceSupportCore] = {}
        self.starts: list[Callable[[], None]] = []
        self.stops: list[Callable[[], None]] = []
        self.file_names: list[str] = []
        # What a dispatcher that was closed has dropped does not count for the next IOC.
        self.calls = Calls()
        self.old_values: dict[str, Any] = {}
        """Values that pythonSoftIOC has saved, by the names of records and fields."""
        self._client: Context | None = None

    def client(self) -> Context:
        """A client of the IOC that runs, for what only clients receive."""
        assert self.running is not None
        with self._lock:
            if self._client is None:
                self._client = Context(settings=self.running.settings)
                self.stops.append(self._client.close)
            return self._client


STATE = State()
