"""A lock for objects that exist as long as the process."""

from __future__ import annotations

import os
import threading


class ForkSafeLock:
    """A lock that is free in the child of a fork, also if another thread of the parent held it. It exists until the process ends."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held = self._lock
        os.register_at_fork(after_in_child=self._replace)

    def _replace(self) -> None:
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        lock = self._lock
        lock.acquire()
        self._held = lock

    def __exit__(self, *_: object) -> None:
        # A thread that forks while it holds the lock releases the one that it holds.
        self._held.release()
