"""Runs the functions of a program in cothreads."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

__all__ = ["CothreadDispatcher"]


def _cothread() -> Any:
    try:
        return import_module("cothread")
    except ImportError:
        raise ImportError(
            "CothreadDispatcher needs the package cothread: install it, or use asyncio_dispatcher.AsyncioDispatcher"
        ) from None


class CothreadDispatcher:
    """Runs functions in the thread of cothread, which has to be installed.

    `dispatcher`: a function that runs another one there, such as `cothread.Spawn`; by default `cothread.Callback`.
    """

    def __init__(self, dispatcher: Callable[[Callable[[], None]], Any] | None = None) -> None:
        cothread = _cothread()
        self._dispatch = dispatcher or cothread.Callback
        self._wait = cothread.WaitForQuit

    def wait_for_quit(self) -> None:
        """Waits until cothread ends, for example by Ctrl-C. Call it in the thread of cothread."""
        self._wait()

    def __call__(
        self,
        func: Callable[..., Any],
        func_args: Sequence[Any] = (),
        completion: Callable[..., Any] | None = None,
        completion_args: Sequence[Any] = (),
    ) -> None:
        """Starts `func(*func_args)`, which may not be a coroutine function; afterwards `completion(*completion_args)`, also
        after an exception."""
        if inspect.iscoroutinefunction(func):
            raise TypeError(f"{func!r} is a coroutine function: use asyncio_dispatcher.AsyncioDispatcher")

        def run() -> None:
            try:
                func(*func_args)
            except Exception:
                logging.getLogger("fodo").exception("a function that was dispatched has failed")
            finally:
                if completion is not None:
                    completion(*completion_args)

        self._dispatch(run)
