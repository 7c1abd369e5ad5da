"""A running IOC, and its records."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any

from . import _native
from ._client import present_loop, settings_of
from ._errors import Error, Misuse
from ._log import logger
from ._program import Output, OutputThread

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from ._monitors import ErrorHandler

STOP = 5.0
"""Seconds that a function of the program has to return when its IOC stops."""


class Record(_native.Record):
    """A record of an IOC, or one of its fields. Its methods need the IOC to be running, unless they say otherwise.

    They return within microseconds, may be called from any thread, and do not block an event loop.

    - `set(value, *, severity=None, status=None, message=None, time=None)`: sets the value of a record whose device is the
      program. An input is processed; of an output the functions are not called. `severity`: such as `"MAJOR"` or
      `fodo.Severity.MAJOR`; `status`: a name such as `"HIHI"`; `message`: the text for AMSG; `time`: seconds since 1970, or a
      `datetime`.
    - `set_alarm(severity, status=None, message=None, time=None)`: sets the alarm, with the last value.
    - `get()`: the present value with its alarm and time stamp; also after the IOC has stopped.
    - `name`: the name; also before the IOC starts.
    """

    __slots__ = ()

    def put(self, value: Any, *, wait: bool = False, timeout: float = 5.0) -> None:
        """Writes the value as a client does: the record is processed, and the functions of an output are called.

        `wait`: waits until all processing has ended, for at most `timeout` seconds. A function that the IOC calls cannot wait.
        """
        self._put(value, timeout if wait else None)

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.{type(self).__name__} {self.name!r}>"


@dataclass(frozen=True, slots=True)
class IocCounts:
    """The counts of an IOC since its start."""

    n_set: int
    """Values that the program has set."""

    n_set_refused: int
    """Values that could not be set; the call has raised an exception."""

    n_completed: int
    """Puts to outputs that functions of the program have carried out."""

    n_refused: int
    """Puts to outputs that were refused, also by exceptions."""

    n_restored: int
    """Puts to outputs after which the record has the previous value again."""

    n_function_errors: int
    """Exceptions of functions for puts."""

    n_routine_errors: int
    """Exceptions of routines."""

    n_lines_dropped: int
    """Lines of the log that were left out, because too many waited."""

    n_updates_posted: int
    """Updates of values, once for each subscription of a client. Each is sent, merged or dropped, or waits."""

    n_updates_sent: int
    """Updates passed to the connections of the clients."""

    n_updates_merged: int
    """Updates that later ones replaced before they were sent: a record changes faster than the client reads."""

    n_updates_dropped: int
    """Updates that waited when their subscriptions ended."""


class NotSet(Misuse):
    """Some values of `RunningIoc.set_many` are not set. All others are."""

    errors: dict[int, Error]
    """The exceptions by the positions of the values."""

    def __init__(self, errors: dict[int, Error]) -> None:
        first = next(iter(errors.values()))
        more = f"; {len(errors) - 1} more values are not set" if len(errors) > 1 else ""
        super().__init__(first.pv, first.reason + more, advice=first.advice)
        self.errors = errors

    def __reduce__(self) -> tuple[type[NotSet], tuple[dict[int, Error]]]:  # type: ignore[override]
        return type(self), (self.errors,)


class RunningIoc:
    """An IOC that runs, until `stop` or the end of a `with` statement.

    It also stops when no variable refers to it any more, and when the program ends.
    """

    def __init__(
        self,
        builder: _native.IocBuilder,
        outputs: Sequence[Output],
        records: Sequence[Record],
        on_error: ErrorHandler | None,
        *,
        settings: Mapping[str, str] | None,
        isolated: bool,
        loop: AbstractEventLoop | None,
    ) -> None:
        loop = loop or present_loop()
        for output in outputs:
            if output.is_async and loop is None:
                reason = "on_put is a coroutine function, and there is no event loop: start the IOC from one, or give loop"
                raise Misuse(output.name, reason)
        self._native = builder.start(settings_of(settings), isolated, [output.name for output in outputs])
        # Before the functions of the program are called, which may use any of them.
        for record in records:
            self._native.bind(record)
        self._thread = OutputThread(self._native, outputs, on_error, loop)
        self._thread.start()
        self._ended = threading.Event()
        self._finalizer = weakref.finalize(self, _stop, self._native, self._thread, self._ended, os.getpid())
        self._settings = self._native.settings()

    @property
    def is_running(self) -> bool:
        """Whether it was not stopped."""
        return self._finalizer.alive

    @property
    def settings(self) -> dict[str, str]:
        """The variables with which clients on this host find this IOC: `sync.Context(settings=running.settings)`."""
        return dict(self._settings)

    @property
    def counts(self) -> IocCounts:
        """The counts so far."""
        n_set, n_set_refused, n_completed, n_refused, n_restored, n_routine_errors, n_dropped = self._native.counts()
        return IocCounts(
            n_set,
            n_set_refused,
            n_completed,
            n_refused,
            n_restored,
            self._thread.n_errors,
            n_routine_errors,
            n_dropped,
            *self._native.update_counts(),
        )

    def record(self, name: str) -> Record:
        """A record of the IOC, or a field (`"X:gap.DRVH"`), by its full name; also from a file."""
        record = Record(name)
        self._native.bind(record)
        return record

    def set_many(self, records: Sequence[Record], values: Any) -> None:
        """Sets the values of many records with one call. `values`: an array of numpy, or another sequence, as long as
        `records`. Raises `NotSet` if some values cannot be set; all others are set."""
        errors = self._native.set_many(records if isinstance(records, list) else list(records), values)
        if errors:
            raise NotSet(dict(errors))

    def reload_access(self) -> list[str]:
        """Reads the access file again; returns warnings about parts that have no effect."""
        return self._native.reload_access()

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until the IOC is stopped, for at most `timeout` seconds; returns whether it was. Ctrl-C ends the wait."""
        return self._ended.wait(timeout)

    def stop(self) -> None:
        """Stops the IOC. A function that it has called has 5 s to return; its coroutines are cancelled."""
        self._finalizer()

    def __enter__(self) -> RunningIoc:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _stop(native: _native.RunningIoc, thread: OutputThread, ended: threading.Event, process: int) -> None:
    if os.getpid() != process:
        # The child of a fork has neither the threads nor the IOC, and a lock may be held for ever.
        return
    n_unsaved = native.stop()
    if n_unsaved:
        logger().error("%d files of autosave could not be written", n_unsaved)
    if not thread.stop(STOP):
        reason = 'the IOC has stopped, but a function of "%s" has not returned within %s s'
        logger().error(reason, thread.busy, STOP)
    ended.set()
