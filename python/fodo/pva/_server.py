"""Servers."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any

from .. import _native
from .._client import present_loop, seconds_of, settings_of
from .._errors import Misuse, reason_of
from .._log import logger
from ._shared import Operation, SharedPV

if TYPE_CHECKING:
    import asyncio
    from concurrent.futures import Future

_LOG = "fodo.pva"

_COROUTINES = 1000
"""Coroutines of handlers that run at once; more requests wait in the queue of the server, which is bounded too."""

_FOUND_NAMES = 1000
"""PVs that searches have found and to which no client has connected yet; the oldest one is removed."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Counters of a server. Those of the network begin again when it starts again."""

    puts: int
    """Puts that were queued for handlers."""

    calls: int
    """Calls that were queued for handlers."""

    failed: int
    """Handlers that raised an exception."""

    waiting: int
    """Requests that wait for handlers now."""

    handlers_busy: int
    """Puts and calls refused because too many waited, or because the server was stopping."""

    cancelled: int
    """Puts dropped because their clients disconnected while they waited."""

    posted: int = 0
    """Updates, once for each subscription."""

    sent: int = 0
    """Updates passed to the connections."""

    merged: int = 0
    """Updates that later ones replaced before they were sent, because their clients are slow."""

    dropped: int = 0
    """Updates that waited when their subscriptions ended."""

    searches: int = 0
    """Names searched for."""

    refused: int = 0
    """Requests refused because a client or its host exceeded a limit."""


class Server:
    """A server of PVs over pvAccess and Channel Access. It serves from `start` to `stop`; as a context manager, in the block.

    `settings`: variables such as `EPICS_PVAS_INTF_ADDR_LIST`, before those of the environment. `isolated`: only on loopback, on
    ports that are free; `settings` of the started server are for its clients.

    Handlers run on one thread, one after another, so that one that is busy delays the others. Those that are coroutine
    functions run on `loop`, by default the loop that runs when the server is created.

    `on_search` is called with a name that a client of pvAccess searches for and no PV has. The PV that it returns has the name
    until its last client disconnects.
    """

    def __init__(
        self,
        pvs: Mapping[str, SharedPV] | None = None,
        *,
        settings: Mapping[str, str] | None = None,
        isolated: bool = False,
        loop: asyncio.AbstractEventLoop | None = None,
        on_search: Callable[[str], SharedPV | None] | None = None,
    ) -> None:
        if isolated and settings is not None:
            raise Misuse("", "an isolated server has no settings: pass one of both")
        self._native = _native.Server(None if isolated else settings_of(settings), on_search is not None)
        self._on_search = on_search
        self._found: dict[str, None] = {}
        self._found_connected: set[str] = set()
        self._connected: set[tuple[SharedPV, str]] = set()
        self._loop = loop or present_loop()
        self._pvs: dict[str, SharedPV] = {}
        self._lock = threading.Lock()
        self._n_failed = 0
        self._coroutines = threading.BoundedSemaphore(_COROUTINES)
        self._futures: set[Future[None]] = set()
        self._is_stopping = threading.Event()
        self._is_abandoned = threading.Event()
        self._thread: threading.Thread | None = None
        self._busy = ""
        for name, pv in (pvs or {}).items():
            self.add(name, pv)

    def add(self, name: str, pv: SharedPV) -> None:
        """Serves a PV under this name. A PV can have several names, and be on several servers."""
        if not self._native.insert(name, pv._native, pv):
            raise Misuse(name, "the server has a PV with this name already: remove it first")
        with self._lock:
            self._pvs[name] = pv
            pv._servers.setdefault(self, set()).add(name)

    def remove(self, name: str) -> SharedPV:
        """Serves the name no longer, and disconnects its clients. Returns the PV."""
        if not self._native.remove(name):
            raise Misuse(name, "the server has no PV with this name")
        with self._lock:
            pv = self._pvs.pop(name)
            names = pv._servers.get(self, set())
            names.discard(name)
            if not names:
                pv._servers.pop(self, None)
        return pv

    @property
    def names(self) -> list[str]:
        """The names of the PVs, in the order in which they were added."""
        with self._lock:
            return list(self._pvs)

    @property
    def is_running(self) -> bool:
        """Whether it serves."""
        return self._native.is_running

    @property
    def settings(self) -> dict[str, str]:
        """The variables of a client on this host that searches only this server, which must run."""
        return self._native.settings()

    @property
    def counts(self) -> Counts:
        """Counters since the server was created."""
        return Counts(failed=self._n_failed, **self._native.counts())

    def start(self) -> None:
        """Starts to serve; does nothing if it serves already."""
        if self._thread is not None:
            return
        self._is_stopping.clear()
        self._is_abandoned = threading.Event()
        self._native.start()
        self._thread = threading.Thread(target=self._run, args=(self._is_abandoned,), name="fodo-handlers", daemon=True)
        self._thread.start()

    def stop(self, timeout: float = 5.0) -> None:
        """Disconnects all clients, and waits until no handler runs. The server can be started again.

        `timeout`: seconds that handlers have to return. If one is still busy then, an error is logged with the name of its PV;
        its thread ends when it returns, and what waited for handlers is refused.
        """
        limit = seconds_of(timeout)
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._is_stopping.set()
        self._native.stop()
        for future in list(self._futures):
            future.cancel()
        if thread is threading.current_thread():
            return
        thread.join(min(limit, threading.TIMEOUT_MAX))
        if thread.is_alive():
            self._is_abandoned.set()
            logger(_LOG).error("the server has stopped, but %s has not returned within %s s", self._busy, timeout)
            while self._native.next() is not None:
                # A request that is deleted is refused.
                continue
            self._all_disconnected()

    def __enter__(self) -> Server:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Server:
        if self._loop is None:
            self._loop = present_loop()
        self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        import asyncio

        # A handler that runs may wait for this loop.
        await asyncio.to_thread(self.stop)

    def _run(self, is_abandoned: threading.Event) -> None:
        """Calls handlers until the server stops."""
        while self._call_next():
            if is_abandoned.is_set():
                return
        self._all_disconnected()

    def _all_disconnected(self) -> None:
        """No event follows for the clients that the end of the server has disconnected."""
        connected, self._connected = self._connected, set()
        for pv, _ in connected:
            pv._connection_changed(False)

    def _call_next(self) -> bool:
        """Calls the next handler; false if the server has stopped. It keeps no reference to an operation afterwards."""
        task = self._native.next()
        if task is None:
            return False
        pv, name, request = task
        if request is None:
            self._search(name)
        elif isinstance(request, bool):
            self._connection_changed(pv, name, request)
        else:
            self._call(Operation(pv, request))
        return True

    def _search(self, name: str) -> None:
        """A client searches for a name that no PV has."""
        self._busy = f'the handler of a search for "{name}"'
        try:
            pv = None if self._on_search is None else self._on_search(name)
            if pv is None or name in self.names:
                return
            if not isinstance(pv, SharedPV):
                raise TypeError(f"on_search returned {type(pv).__name__}: expected a SharedPV or None")
            self.add(name, pv)
        except BaseException as error:  # noqa: BLE001
            with self._lock:
                self._n_failed += 1
            logger(_LOG).error('the handler of a search for "%s" failed', name, exc_info=error)
            return
        self._found[name] = None
        if len(self._found) > _FOUND_NAMES:
            oldest = next(iter(self._found))
            del self._found[oldest]
            self._remove_found(oldest)

    def _connection_changed(self, pv: SharedPV, name: str, is_connected: bool) -> None:
        if name in self._found or name in self._found_connected:
            # Clients search again for a name that was found for them.
            self._found.pop(name, None)
            if is_connected:
                self._found_connected.add(name)
            else:
                self._found_connected.discard(name)
                self._remove_found(name)
        if is_connected == ((pv, name) in self._connected):
            # A client that has connected and disconnected before this thread was free is one change, to what it was before.
            return
        if is_connected:
            self._connected.add((pv, name))
        else:
            self._connected.discard((pv, name))
        handler = pv._connection_changed(is_connected)
        if handler is not None:
            self._call_connection(pv, handler)

    def _remove_found(self, name: str) -> None:
        if name in self.names:
            self.remove(name)

    def _call(self, operation: Operation) -> None:
        handler = operation.pv.on_rpc if operation.is_call else operation.pv.on_put
        if handler is None:
            operation.error("the PV has no handler for it")
            return
        self._busy = f'the handler of a {_what(operation)} "{operation.name}"'
        try:
            result = handler(operation)
            if inspect.iscoroutine(result):
                self._schedule(self._finished(operation, result), result)
            else:
                operation._returned(result)
        except BaseException as error:  # noqa: BLE001
            # Not even a request to end the program may end the thread.
            self._failed(operation, error)

    async def _finished(self, operation: Operation, coroutine: Coroutine[Any, Any, Any]) -> None:
        import asyncio

        try:
            operation._returned(await coroutine)
        except asyncio.CancelledError:
            operation.error("the server is stopping")
            raise
        except Exception as error:
            self._failed(operation, error)

    def _failed(self, operation: Operation, error: BaseException) -> None:
        with self._lock:
            self._n_failed += 1
        logger(_LOG).error('the handler of a %s "%s" failed', _what(operation), operation.name, exc_info=error)
        operation.error(reason_of(error))

    def _call_connection(self, pv: SharedPV, handler: Any) -> None:
        self._busy = f'the handler of a connection to "{pv._name}"'
        try:
            result = handler(pv)
            if inspect.iscoroutine(result):
                self._schedule(self._connection_finished(pv, result), result)
        except BaseException as error:  # noqa: BLE001
            self._connection_failed(pv, error)

    async def _connection_finished(self, pv: SharedPV, coroutine: Coroutine[Any, Any, Any]) -> None:
        try:
            await coroutine
        except Exception as error:
            self._connection_failed(pv, error)

    def _connection_failed(self, pv: SharedPV, error: BaseException) -> None:
        with self._lock:
            self._n_failed += 1
        logger(_LOG).error('the handler of a connection to "%s" failed', pv._name, exc_info=error)

    def _schedule(self, outer: Coroutine[Any, Any, None], inner: Coroutine[Any, Any, Any]) -> None:
        """Runs the coroutine of a handler on the loop."""
        while not self._coroutines.acquire(timeout=0.1):
            if self._is_stopping.is_set():
                break
        else:
            if self._loop is not None and not self._loop.is_closed():
                import asyncio

                future = asyncio.run_coroutine_threadsafe(outer, self._loop)
                self._futures.add(future)
                future.add_done_callback(self._ended)
                return
            self._coroutines.release()
        outer.close()
        inner.close()
        if self._is_stopping.is_set():
            raise RuntimeError("the server is stopping")
        raise RuntimeError("the handler is a coroutine function, but the server has no loop: pass loop=")

    def _ended(self, future: Future[None]) -> None:
        self._futures.discard(future)
        self._coroutines.release()


def _what(operation: Operation) -> str:
    return "call of" if operation.is_call else "put to"
