"""Runs the functions of a program on an event loop."""

from __future__ import annotations

import asyncio
import atexit
import inspect
import logging
import signal
import threading
from collections.abc import Callable, Sequence
from types import FrameType, TracebackType
from typing import Any

__all__ = ["AsyncioDispatcher"]


class AsyncioDispatcher:
    """Runs functions, also coroutine functions, on `loop`, which has to be running; without it, on a loop in a thread.

    As a context manager, it ends its thread; a loop of the program goes on. `debug`: as of `asyncio.run`.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None, debug: bool = False) -> None:
        self._thread: threading.Thread | None = None
        if loop is not None:
            if not loop.is_running():
                raise ValueError("Provided asyncio event loop is not running")
            self.loop = loop
            return
        self.loop = asyncio.new_event_loop()
        self.loop.set_debug(debug)
        self._thread = threading.Thread(target=self._run, name="softioc-dispatcher", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
            tasks = asyncio.all_tasks(self.loop)
            for task in tasks:
                task.cancel()
            self.loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        finally:
            self.loop.close()

    def close(self) -> None:
        """Ends the thread; what runs on its loop is cancelled."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        atexit.unregister(self.close)
        self.loop.call_soon_threadsafe(self.loop.stop)
        if thread is not threading.current_thread():
            thread.join()

    def wait_for_quit(self) -> None:
        """Waits for the signal SIGINT or SIGTERM. It has to be called from the main thread."""
        ended = threading.Event()

        def end(_number: int, _frame: FrameType | None) -> None:
            ended.set()

        signal.signal(signal.SIGINT, end)
        signal.signal(signal.SIGTERM, end)
        ended.wait()

    def __call__(
        self,
        func: Callable[..., Any],
        func_args: Sequence[Any] = (),
        completion: Callable[..., Any] | None = None,
        completion_args: Sequence[Any] = (),
    ) -> None:
        """Starts `func(*func_args)` on the loop; afterwards `completion(*completion_args)`, also after an exception."""

        async def run() -> None:
            try:
                result = func(*func_args)
                if inspect.isawaitable(result):
                    await result
            except Exception:
                logging.getLogger("fodo").exception("a function that was dispatched has failed")
            finally:
                if completion is not None:
                    completion(*completion_args)

        asyncio.run_coroutine_threadsafe(run(), self.loop)

    def __enter__(self) -> AsyncioDispatcher:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
