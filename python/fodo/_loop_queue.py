"""What the operations and monitors of a context deliver to an event loop."""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from . import _native

if TYPE_CHECKING:
    from ._monitors import Callbacks
    from .aio import Batches, Monitor

LONGEST = 1e9
"""Seconds from which a timeout counts as none: thirty years."""

NEVER = float("inf")

LATENESS = 0.01
"""Seconds by which a wait may end too late, so that thousands of them with different deadlines need few looks."""


class LoopQueue:
    """What the operations and monitors of one context deliver to one event loop.

    One descriptor is readable when there is something to take. While calls follow one another the loop reads the connections
    itself, within `_drain`. A thread that reads them instead only signals the descriptor, and only if the loop has not been
    woken already. The loop takes everything that has arrived by then.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.queue = _native.CompletionQueue()
        # Each with its deadline in the time of the loop, and its timeout.
        self._waits: dict[int, tuple[asyncio.Future[list[Any]], float, float]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._expires_at = NEVER
        self._monitors: dict[int, weakref.ref[Monitor | Batches] | Monitor | Batches] = {}
        self._callbacks: Callbacks = {}
        loop.add_reader(self.queue.fileno(), self._drain)

    async def wait(self, started: list[_native.Operation], timeout: float) -> list[Any]:
        """The results of operations, with one timeout in seconds."""
        return await self.results(self.queue.add(started), timeout)

    async def results(self, number: int, timeout: float) -> list[Any]:
        """The results of the operations with this number in the queue."""
        loop = self._loop
        future: asyncio.Future[list[Any]] = loop.create_future()
        deadline = loop.time() + timeout if timeout < LONGEST else NEVER
        self._waits[number] = (future, deadline, timeout)
        if deadline < self._expires_at:
            self._expire_at(deadline)
        try:
            return await future
        finally:
            if self._waits.pop(number, None) is not None:
                self.queue.cancel(number)

    def _expire_at(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._expires_at = self._loop.call_at(deadline, self._expire), deadline

    def _expire(self) -> None:
        """Ends the waits that are too long. One timer serves all of them: most operations end long before."""
        self._timer, self._expires_at = None, NEVER
        now = self._loop.time()
        for number, (_, deadline, timeout) in list(self._waits.items()):
            if deadline <= now:
                ends = self.queue.expire(number, timeout)
                if ends is not None:
                    self._end(number, ends)
        earliest = min((deadline for future, deadline, _ in self._waits.values() if not future.done()), default=NEVER)
        if earliest < NEVER:
            self._expire_at(max(earliest, now + LATENESS))

    def watch(self, number: int, monitor: weakref.ref[Monitor | Batches] | Monitor | Batches) -> None:
        """From now on, `_ready` of this monitor is called when it has events."""
        self._callbacks.pop(number, None)
        self._monitors[number] = monitor

    def call(self, number: int, monitor: Monitor, callback: Callable[[Any], Any]) -> None:
        """From now on, the callback receives the values of this monitor."""
        self._monitors.pop(number, None)
        self._callbacks[number] = (monitor, monitor._native, callback)

    def deliver(self, numbers: list[int]) -> None:
        """These monitors have events."""
        _native.deliver(numbers, self._callbacks, self._ready)

    def forget(self, number: int) -> None:
        """The monitor is closed."""
        self._monitors.pop(number, None)
        self._callbacks.pop(number, None)

    def finish(self) -> None:
        """The context is closed: delivers what is left, and ends. May be called from any thread."""
        if self._loop.is_closed():
            return
        try:
            self._loop.call_soon_threadsafe(self._finish)
        except RuntimeError:
            # The loop was closed at this moment.
            return

    def _finish(self) -> None:
        while self._drain():
            pass
        if self._timer is not None:
            self._timer.cancel()
        self._loop.remove_reader(self.queue.fileno())

    def _drain(self) -> bool:
        """Delivers what has arrived, up to a limit; returns whether there was anything."""
        results, numbers = self.queue.drain()
        for number, ends in results:
            self._end(number, ends)
        if numbers:
            self.deliver(numbers)
        return bool(results or numbers)

    def _ready(self, number: int) -> None:
        """A monitor without a callback has events."""
        monitor = self._monitors.get(number)
        if isinstance(monitor, weakref.ref):
            monitor = monitor()
        if monitor is None:
            self._monitors.pop(number, None)
        else:
            monitor._ready()

    def _end(self, number: int, ends: list[Any]) -> None:
        wait = self._waits.pop(number, None)
        if wait is not None and not wait[0].done():
            wait[0].set_result(ends)


def finish_queues(queues: dict[asyncio.AbstractEventLoop, LoopQueue], process: int) -> None:
    """Ends the queues of a context that is no longer used. In the child of a fork, the loops are those of the parent."""
    if os.getpid() == process:
        for queue in queues.values():
            queue.finish()
