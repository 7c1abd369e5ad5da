"""What both kinds of monitors share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from . import _native
from ._errors import Error
from ._info import Info
from ._log import logger

EventKind = Literal[
    "connected",
    "rights",
    "merged",
    "unresponsive",
    "responsive",
    "disconnected",
    "refused",
    "wrong_reply",
    "not_converted",
    "ended",
    "closed",
    "other",
]

ErrorHandler = Callable[[str, Exception], None]
"""Receives the name of a PV, and an exception of a callback or an error of a subscription."""


@dataclass(frozen=True, slots=True)
class Event:
    """What happened to a subscription, other than an update."""

    name: str
    """The name of the PV as the caller wrote it."""

    kind: EventKind
    """`connected`: an update follows. `rights`: the access rights have changed. `merged`: the following update replaces
    others, which were not taken in time. `unresponsive`: the server is silent; the last value may be stale. `responsive`: it
    replies again. `disconnected`: the connection was lost; the client searches again. `refused`, `wrong_reply`: the server
    did not send an update. `not_converted`: an update was received that cannot be an object of Python; the next ones are
    delivered. `ended`: the server has ended the subscription without an error; updates follow only if it is connected again.
    `closed`: the context was closed; no event follows."""

    detail: Info | int | Error | None = None
    """What the server reports about the PV, the number of merged updates, or the error."""


@dataclass(frozen=True, slots=True)
class Counts:
    """The counts of a monitor so far."""

    received: int
    """Updates that were received."""

    merged: int
    """Updates that others replaced because the queue was full."""

    overrun: int
    """Updates of which the server reports that they contain several changes; only over pvAccess."""

    delivered: int
    """Updates that were passed to the program."""

    n_disconnected: int
    """How often the connection was lost."""

    n_callback_errors: int
    """Exceptions of the callback."""

    n_not_converted: int = 0
    """Updates, among those that were delivered, in place of which an error was delivered: they cannot be objects of Python."""

    longest_gap: float = 0.0
    """The longest time between two consecutive updates of one connection, in seconds."""


Callbacks = dict[int, tuple["BaseMonitor", _native.Monitor, Callable[[Any], Any]]]
"""What receives the values of monitors, by their numbers in a queue; see `_native.deliver`."""


class BaseMonitor:
    """A subscription to a PV."""

    def __init__(
        self,
        name: str,
        native: _native.Monitor,
        callback: Callable[[Any], Any] | None,
        has_events: bool,
        on_error: ErrorHandler | None,
    ) -> None:
        self._name = name
        self._native = native
        self._callback = callback
        self._has_events = has_events
        self._on_error = on_error
        self._n_callback_errors = 0
        self._is_ended = False

    @property
    def name(self) -> str:
        """The name of the PV as the caller wrote it."""
        return self._name

    @property
    def is_closed(self) -> bool:
        """Whether the monitor or its context was closed. A queued value may still be delivered after the latter."""
        return self._is_ended or self._native.is_closed

    @property
    def counts(self) -> Counts:
        """The counts so far."""
        received, merged, overrun, delivered, n_disconnected = self._native.counts()
        return Counts(
            received,
            merged,
            overrun,
            delivered,
            n_disconnected,
            n_callback_errors=self._n_callback_errors,
            n_not_converted=self._native.n_not_converted,
            longest_gap=self._native.longest_gap,
        )

    def why_inactive(self) -> Error | None:
        """The error that a call would now end with because the PV is not connected; `None` if it is connected."""
        return self._native.why_inactive(0.0)

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.{type(self).__name__} of {self._name!r}>"

    def _selected(self, item: Any) -> Any:
        """What an iterator returns for an event or a value: the item, or `None` for the next one.

        Raises the error of the subscription, unless the caller has requested events.
        """
        if not isinstance(item, Event):
            return item
        if item.kind == "closed":
            self._is_ended = True
        if self._has_events:
            return item
        if isinstance(item.detail, Error):
            raise item.detail
        return None

    def _pass_event(self, event: Event) -> bool:
        """Passes an event that is not an update to the callback, if it receives events. Returns the same as `_returned`."""
        try:
            item = self._selected(event)
        except Error as error:
            self._report("the subscription failed", error)
            return False
        if item is None or self._callback is None:
            return False
        try:
            result = self._callback(item)
        except BaseException as error:  # noqa: BLE001
            return self._raised(error)
        return result is not None and self._returned(result)

    def _returned(self, result: Any) -> bool:
        """The callback has returned something. Returns whether the next value is passed only after that has ended."""
        return False

    def _raised(self, error: BaseException) -> bool:
        """The callback has raised an exception: it is reported and counted, and ends nothing, unless it is a request to end the
        program."""
        try:
            raise error
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException:  # noqa: BLE001
            # Also a CancelledError: other monitors wait for their turn.
            self._callback_failed(error)
        return False

    def _callback_failed(self, error: BaseException) -> None:
        self._n_callback_errors += 1
        if not isinstance(error, Exception):
            failure = RuntimeError(f"the callback raised {type(error).__name__}")
            failure.__cause__ = error
            error = failure
        self._report("the callback failed", error)

    def _report(self, what: str, error: Exception) -> None:
        if self._on_error is None:
            logger().error('"%s": %s', self._name, what, exc_info=error)
            return
        try:
            self._on_error(self._name, error)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException:  # noqa: BLE001
            logger().exception('"%s": the error handler failed', self._name)
