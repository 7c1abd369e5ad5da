"""The exceptions of the module `ca`, and its status codes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from . import dbr

F = TypeVar("F", bound=Callable[..., Any])


class ChannelAccessException(Exception):
    """A call failed."""


class ChannelAccessGetFailure(Exception):  # noqa: N818
    """The server refused a get."""

    def __init__(self, message: str, chid: int, status: int) -> None:
        super().__init__(message)
        self.chid = chid
        self.status = status


class CASeverityException(Exception):  # noqa: N818
    """A request was refused or is invalid."""

    def __init__(self, fcn: str, msg: str) -> None:
        super().__init__(f"{fcn} returned {msg!r}")
        self.fcn = fcn
        self.msg = msg


def message(status: int) -> str:
    """The text of a status."""
    texts = {dbr.ECA_NORMAL: "Normal successful completion", dbr.ECA_TIMEOUT: "User specified timeout expired"}
    return texts.get(status, f"status {status}")


def PySEVCHK(func_name: str, status: int, expected: int = dbr.ECA_NORMAL) -> int:  # noqa: N802
    """Returns the status if it is the expected one, and raises `CASeverityException` otherwise."""
    if status == expected:
        return status
    raise CASeverityException(func_name, message(status))


def withSEVCHK(fcn: F) -> F:  # noqa: N802
    """Checks the status that a function returns."""

    @functools.wraps(fcn)
    def checked(*arguments: Any, **options: Any) -> int:
        return PySEVCHK(fcn.__name__, fcn(*arguments, **options))

    return checked  # type: ignore[return-value]
