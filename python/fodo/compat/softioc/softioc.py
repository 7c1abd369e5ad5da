"""Starts the IOC, and runs it until it is ended."""

from __future__ import annotations

import atexit
import os
import re
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from . import _commands
from ._commands import *  # noqa: F403
from ._state import STATE
from .asyncio_dispatcher import AsyncioDispatcher

__all__ = [
    "dbLoadDatabase",
    "devIocStats",
    "epicsExit",
    "interactive_ioc",
    "iocInit",
    "non_interactive_ioc",
    "safeEpicsExit",
    "stop_ioc",
]
__all__ += _commands.__all__

# The name of a record in a file, which may contain macros.
_RECORD = r'^\s*g?record\s*\(\s*\w+\s*,\s*"?((?:[^"\s()]|\([^)]*\))+)"?\s*\)'

command_names = list(_commands.__all__)
"""The names that an interactive program has besides its own."""


def dbLoadDatabase(database: str, path: str | None = None, substitutions: str | None = None) -> None:  # noqa: N802
    """Loads a `.db` file. `path`: folders to search, separated by colons. `substitutions`: macros, such as `"P=X:"`."""
    file = Path(database)
    for folder in (path or "").split(os.pathsep):
        if folder and not file.is_absolute() and (Path(folder) / database).is_file():
            file = Path(folder) / database
            break
    STATE.ioc.load(file, substitutions or "")
    macros = dict(pair.split("=", 1) for pair in (substitutions or "").replace(" ", "").split(",") if "=" in pair)
    for name in re.findall(_RECORD, file.read_text(), re.MULTILINE):
        STATE.file_names.append(re.sub(r"\$[({](\w+)[)}]", lambda match: macros.get(match[1], match[0]), name))


def devIocStats(ioc_name: str) -> None:  # noqa: N802
    """Publishes statistics of the IOC, whose names begin with `ioc_name` and a colon. Call it before `iocInit`. They are PVs without
    records, and the last call counts."""
    STATE.ioc.statistics(ioc_name)


def iocInit(dispatcher: Callable[..., Any] | None = None, enable_pva: bool = True) -> None:  # noqa: N802
    """Starts the IOC. `dispatcher`: what runs the functions of records; without it, an `AsyncioDispatcher` of its own.

    `enable_pva=False` has no effect: the IOC always serves pvAccess too.
    """
    if STATE.running is not None:
        raise RuntimeError("the IOC is running: call stop_ioc() before another one is started")
    STATE.is_loaded = True
    if dispatcher is None:
        own = AsyncioDispatcher()
        STATE.stops.append(own.close)
        dispatcher = own
    STATE.dispatcher = dispatcher
    STATE.running = STATE.ioc.start()
    atexit.register(stop_ioc)
    for start in STATE.starts:
        start()


def stop_ioc() -> None:
    """Stops the IOC and forgets its records, so that others can be created. pythonSoftIOC has no such function."""
    atexit.unregister(stop_ioc)
    running, stops = STATE.running, STATE.stops
    for stop in stops:
        stop()
    if running is not None:
        running.stop()
    STATE.reset()


def epicsExit(code: int = 0) -> None:  # noqa: N802
    """Stops the IOC and ends the program."""
    stop_ioc()
    if threading.current_thread() is threading.main_thread():
        sys.exit(code)
    # An exception would end only this thread, such as that of a dispatcher.
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(code)


safeEpicsExit = epicsExit  # noqa: N816


def interactive_ioc(context: Mapping[str, Any] | None = None, call_exit: bool = True) -> None:
    """A Python prompt, with the names of `context` and the commands of this module.

    `call_exit`: ends the program afterwards.
    """
    import code

    names = {name: getattr(_commands, name) for name in command_names}
    status: Any = 0
    try:
        code.interact(local={**names, **(context or {})}, exitmsg="")
    except SystemExit as end:
        if not call_exit:
            raise
        status = end.code
    if call_exit:
        epicsExit(status)


def non_interactive_ioc() -> None:
    """Runs the IOC until the program receives SIGINT or SIGTERM, and ends the program."""
    wait = getattr(STATE.dispatcher, "wait_for_quit", None)
    if wait is None:
        raise RuntimeError("the dispatcher has no method wait_for_quit")
    wait()
    epicsExit(0)
