"""The interface of p4p 4.3 over Fodo: programs written for p4p run after a change of their imports.

    from fodo.compat.p4p.client.thread import Context

    with Context("pva") as context:
        print(context.get("x:gap"))
"""

from __future__ import annotations

import logging

from ._p4p import (
    _LEVELS,
    listRefs,
    logger_level_set,
    logLevelAll,
    logLevelDebug,
    logLevelError,
    logLevelFatal,
    logLevelInfo,
    logLevelOff,
    logLevelTrace,
    logLevelWarn,
)
from .version import version
from .wrapper import Type, Value

__all__ = [
    "Type",
    "Value",
    "cleanup",
    "listRefs",
    "logLevelAll",
    "logLevelDebug",
    "logLevelError",
    "logLevelFatal",
    "logLevelInfo",
    "logLevelOff",
    "logLevelTrace",
    "logLevelWarn",
    "pvxsVersion",
    "set_debug",
    "version",
]


def pvdVersion() -> tuple[int, int, int, int]:
    """The version of the data model that p4p 4 reports."""
    return (8, 0, 0, 0)


def pvaVersion() -> tuple[int, int, int, int]:
    """The version of the protocol library that p4p 4 reports."""
    return (7, 0, 0, 0)


def pvxsVersion() -> int:
    """The version of pvxs that p4p 4.3 uses."""
    return 0x01050300


def set_debug(lvl: int) -> None:
    """Sets the level of the log of the face: one of `logging`, or one of the `logLevel...`."""
    if lvl in _LEVELS:
        logger_level_set("*", lvl)
        return
    if lvl not in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.FATAL):
        raise ValueError(f"{lvl} is not a level of a log")
    logging.getLogger("fodo.compat.p4p").setLevel(lvl)


def cleanup() -> None:
    """Closes all contexts and servers, and ends the threads of the default work queues. May be called more than once."""
    from ._refs import contexts, servers
    from .util import _defaultWorkQueue

    for context in contexts.all():
        context.close()
    for server in servers.all():
        server.stop()
    _defaultWorkQueue.stop()
