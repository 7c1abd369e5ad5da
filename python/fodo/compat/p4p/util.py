"""Queues of calls, and threads that execute them."""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable
from queue import Full, Queue
from types import TracebackType
from typing import Any, Self

from ..._fork_safe_lock import ForkSafeLock

__all__ = ["ThreadedWorkQueue", "WorkQueue"]

_log = logging.getLogger("fodo.compat.p4p")


class WorkQueue:
    """A queue of calls that threads execute with `handle`. `maxsize`: how many may wait; 0: any number."""

    def __init__(self, maxsize: int = 5) -> None:
        self._queue: Queue[Callable[[], Any] | None] = Queue(maxsize)
        self._kept: deque[Callable[[], Any]] = deque()

    def push(self, callable: Callable[[], Any]) -> None:
        """Adds a call; raises `queue.Full` if there is no place."""
        self._queue.put_nowait(callable)

    def push_wait(self, callable: Callable[[], Any]) -> None:
        """Adds a call, and waits for a place."""
        self._queue.put(callable)

    def _push_or_keep(self, callable: Callable[[], Any]) -> None:
        """Adds a call, and never waits: while there is no place, a thread executes it after its present call. The caller
        must limit the number of these calls."""
        try:
            self.push(callable)
            return
        except Full:
            self._kept.append(callable)
        try:
            # If the threads have done everything meanwhile, one of them has to look again.
            self.push(_nothing)
        except Full:
            return

    def _execute_kept(self) -> None:
        # Those that are added meanwhile follow after the next call of the queue.
        for _ in range(len(self._kept)):
            try:
                call = self._kept.popleft()
            except IndexError:
                return
            _execute(call)
            # It is not kept while this thread waits.
            del call

    def interrupt(self) -> None:
        """Ends one `handle` when the calls before are done."""
        self._queue.put(None)

    def handle(self) -> None:
        """Executes calls until `interrupt`. An exception is logged and ends nothing."""
        while True:
            call = self._queue.get()
            try:
                if call is not None:
                    _execute(call)
                self._execute_kept()
                if call is None:
                    return
            finally:
                # Neither the call nor what it refers to is kept while this thread waits.
                call = None
                self._queue.task_done()


def _execute(call: Callable[[], Any]) -> None:
    try:
        call()
    except BaseException:  # noqa: BLE001
        # As in p4p, not even a request to end the program ends the thread.
        _log.exception("a call in a work queue failed")


def _nothing() -> None:
    """A call that only lets a thread look for others."""


class ThreadedWorkQueue(WorkQueue):
    """A work queue with threads of its own, from `start` to `stop`."""

    def __init__(self, name: str | None = None, workers: int = 1, daemon: bool = False, maxsize: int = 5) -> None:
        if workers < 1:
            raise ValueError("a work queue needs a thread")
        super().__init__(maxsize)
        self.name = name
        self._n_workers = workers
        self._is_daemon = daemon
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> ThreadedWorkQueue:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> Self:
        """Starts the threads; in the child of a fork, new ones."""
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        while len(self._threads) < self._n_workers:
            name = f"{self.name or 'fodo work'}[{len(self._threads)}]"
            thread = threading.Thread(target=self.handle, name=name, daemon=self._is_daemon)
            self._threads.append(thread)
            thread.start()
        return self

    def stop(self) -> ThreadedWorkQueue:
        """Ends the threads when the calls that wait are done."""
        threads, self._threads = self._threads, []
        for _ in threads:
            self.interrupt()
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join()
        return self

    def sync(self, timeout: float | None = None) -> ThreadedWorkQueue:
        """Waits until each call that was added before is done, for at most `timeout` seconds."""
        here = threading.current_thread()
        waiting = [thread for thread in self._threads if thread is not here]
        barrier = threading.Barrier(len(waiting) + 1)

        def reach() -> None:
            try:
                barrier.wait(timeout)
            except threading.BrokenBarrierError:
                return

        for _ in waiting:
            self.push_wait(reach)
        reach()
        return self


class _SharedWorkQueue(ThreadedWorkQueue):
    """One of the queues that contexts and PVs share. In the child of a fork it is empty, and its thread starts at the next call."""

    def __init__(self, name: str) -> None:
        super().__init__(name, daemon=True, maxsize=0)
        self._start_lock = threading.Lock()
        self._is_forked = False

    def after_fork(self) -> None:
        """The threads of the parent do not exist in the child, and a lock may be held for ever."""
        self._start_lock = threading.Lock()
        self._queue, self._kept, self._threads, self._is_forked = Queue(), deque(), [], True

    def start(self) -> Self:
        with self._start_lock:
            self._is_forked = False
            return super().start()

    def push(self, callable: Callable[[], Any]) -> None:
        self._start_again()
        super().push(callable)

    def push_wait(self, callable: Callable[[], Any]) -> None:
        self._start_again()
        super().push_wait(callable)

    def _start_again(self) -> None:
        if self._is_forked:
            self.start()


class _DefaultWorkQueue:
    """The queues of all contexts and PVs that have none of their own: each of these uses one of four, so that its calls stay
    in order."""

    def __init__(self, workers: int = 4) -> None:
        self._queues: list[_SharedWorkQueue | None] = [None] * workers
        self._next = 0
        self._lock = ForkSafeLock()
        os.register_at_fork(after_in_child=self._after_fork)

    def _after_fork(self) -> None:
        for queue in self._queues:
            if queue is not None:
                queue.after_fork()

    def __call__(self) -> ThreadedWorkQueue:
        with self._lock:
            index = self._next
            self._next = (index + 1) % len(self._queues)
            queue = self._queues[index]
            if queue is None:
                queue = self._queues[index] = _SharedWorkQueue(f"fodo work {index}")
            return queue.start()

    def sync(self) -> None:
        """Waits until each call that was added before is done."""
        for queue in self._queues:
            if queue is not None:
                queue.sync()

    def stop(self) -> None:
        """Ends the threads; those that are needed again are started again."""
        with self._lock:
            queues, self._queues = self._queues, [None] * len(self._queues)
        for queue in queues:
            if queue is not None:
                queue.stop()


_defaultWorkQueue = _DefaultWorkQueue()
