"""PVs whose handlers run on an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from . import raw
from .._errors import RemoteError
from .raw import Handler, ServerOperation

__all__ = ["Handler", "SharedPV"]


class SharedPV(raw.SharedPV):
    """A PV that holds its value. Its handlers, functions or coroutine functions, run on the loop that creates it."""

    def __init__(self, handler: Any = None, **kws: Any) -> None:
        self.loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._has_no_client = asyncio.Event()
        self._has_no_client.set()
        super().__init__(handler, **kws)

    def _run(self, op: ServerOperation | None, function: Callable[..., Any], *args: Any) -> None:
        if not self._is_accepted(op):
            return
        try:
            self.loop.call_soon_threadsafe(self._start, op, function, *args)
        except BaseException:
            self._handled(op)
            raise

    def _start(self, op: ServerOperation | None, function: Callable[..., Any], *args: Any) -> None:
        try:
            result = raw.call_handler(op, function, *args)
        except BaseException:
            self._handled(op)
            raise
        if not asyncio.iscoroutine(result):
            self._handled(op)
        else:
            task = self.loop.create_task(self._awaited(op, result))
            self._tasks.add(task)
            task.add_done_callback(lambda task: self._ended(op, task))

    def _ended(self, op: ServerOperation | None, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._handled(op)

    async def _awaited(self, op: ServerOperation | None, coroutine: Awaitable[Any]) -> None:
        try:
            await coroutine
        except RemoteError as error:
            raw.failed(op, error, is_logged=False)
        except Exception as error:
            raw.failed(op, error)

    def _connected(self) -> None:
        self._has_no_client.clear()

    def _disconnected_all(self) -> None:
        self._has_no_client.set()

    def close(self, destroy: bool = False, sync: bool = False) -> Awaitable[None] | None:
        """Disconnects all clients. `sync`: returns what to await until all handlers and `onLastDisconnect` have run."""
        super().close(destroy)
        return self._closed() if sync else None

    async def _closed(self) -> None:
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._has_no_client.wait()
