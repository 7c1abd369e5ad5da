"""The exceptions of the package. Each names the PV, and its class says which step failed."""

from __future__ import annotations


class Error(Exception):
    """Why an operation on a PV failed. Other classes say what failed; this one itself is an error of this host."""

    pv: str
    """The name of the PV as the caller wrote it; empty if the error concerns no PV."""

    reason: str
    """What happened, without the name and without advice."""

    server: str | None
    """The address of the server that the error concerns."""

    advice: str | None
    """What to do about it, or what to check; `None` where the reason says it, or only the server can."""

    def __init__(self, pv: str, reason: str, server: str | None = None, advice: str | None = None) -> None:
        text = f"{reason}; {advice}" if advice else reason
        super().__init__(f'"{pv}": {text}' if pv else text)
        self.pv = pv
        self.reason = reason
        self.server = server
        self.advice = advice

    def __reduce__(self) -> tuple[type[Error], tuple[str, str, str | None, str | None]]:
        return type(self), (self.pv, self.reason, self.server, self.advice)


class NotFound(Error, TimeoutError):
    """No server claimed the name in time."""


class NoReply(Error, TimeoutError):
    """A server claimed the name but did not reply in time, or its connection ended before it confirmed the channel.

    A put may have been carried out.
    """


class Refused(Error, PermissionError):
    """The server refused: access rights, or its own reason."""


class WrongReply(Error):
    """The server sent something other than what was requested."""


class Disconnected(Error, ConnectionError):
    """The connection was lost during the operation. A put may have been carried out."""


class Misuse(Error, ValueError):
    """The call is invalid: a name, a value that cannot be sent, an option."""


class Closed(Error):
    """The context is closed; create a new one."""


class Forked(Closed):
    """The context belongs to the parent of this process, which was forked; create a new one."""


def reason_of(error: BaseException) -> str:
    """The text of an exception of the program, as a client can receive it."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001
        text = ""
    # A text may have parts that are not valid UTF-8, such as names of files.
    return (text or type(error).__name__).encode(errors="replace").decode()
