"""Names of p4p's own extension module that programs use: counts of objects, levels of its log, exceptions."""

from __future__ import annotations

import logging

from ._errors import Cancelled, Disconnected, Finished, RemoteError
from ._refs import listRefs
from ._type import Type
from .wrapper import Value

__all__ = [
    "Cancelled",
    "Disconnected",
    "Finished",
    "RemoteError",
    "Type",
    "Value",
    "listRefs",
    "logLevelAll",
    "logLevelDebug",
    "logLevelError",
    "logLevelFatal",
    "logLevelInfo",
    "logLevelOff",
    "logLevelTrace",
    "logLevelWarn",
    "logger_level_set",
]

logLevelAll, logLevelTrace, logLevelDebug, logLevelInfo, logLevelWarn, logLevelError, logLevelFatal, logLevelOff = range(8)

_LEVELS = {
    logLevelAll: 1,
    logLevelTrace: 5,
    logLevelDebug: logging.DEBUG,
    logLevelInfo: logging.INFO,
    logLevelWarn: logging.WARNING,
    logLevelError: logging.ERROR,
    logLevelFatal: logging.FATAL,
    logLevelOff: logging.FATAL + 1,
}


def logger_level_set(name: str, lvl: int) -> None:
    """Sets the level of the log of the face. `name`: ignored, since there is one logger."""
    del name
    logging.getLogger("fodo.compat.p4p").setLevel(_LEVELS.get(lvl, lvl))


def _forceLazy() -> None:
    """Creates what is otherwise created when first used: nothing here."""
