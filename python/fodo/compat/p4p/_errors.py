"""The exceptions of p4p, and those of Fodo as such."""

from __future__ import annotations

from ..._errors import Closed, Error
from ..._errors import Disconnected as ConnectionLost


class RemoteError(RuntimeError):
    """The server has refused, or has sent something else than was requested."""


class Disconnected(RuntimeError):
    """The channel is not connected."""

    def __init__(self, msg: str | None = None) -> None:
        super().__init__(msg or "Channel Disconnected")


class Finished(Disconnected):
    """The subscription has ended."""

    def __init__(self, msg: str | None = None) -> None:
        super().__init__(msg or "Subscription finished")


class Cancelled(RuntimeError):
    """The operation was given up."""

    def __init__(self, msg: str | None = None) -> None:
        super().__init__(msg or "Operation Cancelled")


def of_fodo(name: str, error: Error) -> Exception:
    """The exception of p4p for an error of an operation on this PV."""
    text = f'"{name}": {error.reason}'
    if isinstance(error, TimeoutError):
        return TimeoutError(text)
    if isinstance(error, ConnectionLost):
        return Disconnected(text)
    if isinstance(error, Closed):
        return Cancelled(text)
    if isinstance(error, ValueError):
        return ValueError(text)
    return RemoteError(text)
