"""PVs whose handlers run on the threads of a work queue."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from queue import Full
from typing import Any

from .. import util
from ..util import WorkQueue, _defaultWorkQueue
from . import raw
from .raw import Handler, ServerOperation

__all__ = ["Handler", "SharedPV", "WorkQueue", "_defaultWorkQueue"]


class SharedPV(raw.SharedPV):
    """A PV that holds its value. `queue`: where its handlers run; by default one of the queues that all PVs share."""

    def __init__(self, queue: WorkQueue | None = None, **kws: Any) -> None:
        self._queue: Any = queue or util._defaultWorkQueue()
        self._connections = threading.Condition()
        """Guards the fields below, and reports when `_n_handled` changes."""
        self._is_connected = False
        self._is_connection_reported = False
        """What the handlers know."""
        self._is_scheduled = False
        """Whether `_handle_connections` is in the queue or running."""
        self._n_disconnects = 0
        self._n_handled = 0
        """Of the disconnections of all clients."""
        super().__init__(**kws)

    def _run(self, op: ServerOperation | None, function: Callable[..., Any], *args: Any) -> None:
        if not self._is_accepted(op):
            return
        try:
            self._queue.push(functools.partial(self._call, op, function, *args))
        except Full:
            self._handled(op)
            if op is not None:
                self._refuse_busy(op)

    def _call(self, op: ServerOperation | None, function: Callable[..., Any], *args: Any) -> None:
        try:
            raw.call_handler(op, function, *args)
        finally:
            self._handled(op)

    def _clients_changed(self, is_connected: bool) -> None:
        with self._connections:
            self._is_connected = is_connected
            self._n_disconnects += not is_connected
            if self._is_scheduled:
                return
            self._is_scheduled = True
        self._schedule()

    def _schedule(self) -> None:
        # Neither the thread of the server nor one of the queue waits for a place.
        push = getattr(self._queue, "_push_or_keep", self._queue.push)
        try:
            push(self._handle_connections)
        except BaseException:
            with self._connections:
                self._is_scheduled = False
            raise

    def _handle_connections(self) -> None:
        """Reports the current state to its handler. Clients that disconnected and connected again meanwhile are not reported."""
        with self._connections:
            is_connected, n_disconnects = self._is_connected, self._n_disconnects
            is_changed = is_connected != self._is_connection_reported
            self._is_connection_reported = is_connected
        try:
            function = self._connection_handler(is_connected)
            if is_changed and function is not None:
                raw.call_handler(None, function, self)
        finally:
            with self._connections:
                self._n_handled = n_disconnects
                self._is_scheduled = is_again = (self._is_connected, self._n_disconnects) != (is_connected, n_disconnects)
                self._connections.notify_all()
            if is_again:
                self._schedule()

    def close(self, destroy: bool = False, sync: bool = False, timeout: float | None = None) -> None:
        """Disconnects all clients. `sync`: also waits until `onLastDisconnect` has run, for at most `timeout` seconds."""
        with self._connections:
            n_before = self._n_disconnects
        super().close(destroy)
        if not sync:
            return
        self._queue.sync()
        with self._connections:
            self._connections.wait_for(lambda: self._n_handled > n_before or self._is_idle(), timeout)

    def _is_idle(self) -> bool:
        """Whether there is no client, and its handler has returned."""
        return not self._is_connected and not self._is_scheduled
