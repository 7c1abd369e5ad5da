"""What both kinds of batches share."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _native
from ._errors import Error
from ._monitors import Event

if TYPE_CHECKING:
    from numpy.typing import NDArray

ROW = struct.Struct("=dqIIIHH")
"""A row in `Batch.rows`: value, seconds, nanoseconds, index, merged, severity, status."""

_FIELDS = (
    ("value", "=f8"),
    ("seconds", "=i8"),
    ("nanoseconds", "=u4"),
    ("index", "=u4"),
    ("merged", "=u4"),
    ("severity", "=u2"),
    ("status", "=u2"),
)


class Row(NamedTuple):
    """An update of one PV."""

    value: float
    """The value; of an enum the index of its state. Integers of 64 bits are exact up to 2^53."""
    seconds: int
    """The seconds of the time stamp since 1970, in UTC."""
    nanoseconds: int
    """The nanoseconds within that second."""
    index: int  # type: ignore[assignment]  # instead of the method of a tuple
    """The position of the PV among the names."""
    merged: int
    """How many earlier updates of the PV this one has replaced, because they were not taken in time."""
    severity: int
    """The severity of the alarm, 0 to 3."""
    status: int
    """The number of the status of the alarm."""


@dataclass(frozen=True, slots=True)
class BatchEvent(Event):
    """What happened to the subscription of one PV of a batch. Each PV keeps its newest event until it is taken."""

    index: int = 0
    """The position of the PV among the names."""

    at_row: int = 0
    """The event follows this many rows of its batch."""

    merged: int = 0
    """How many earlier events of the PV this one has replaced."""


@dataclass(frozen=True, slots=True)
class BatchCounts:
    """The counts of all subscriptions so far: `received` is the sum of `merged`, `delivered`, `waiting` and `dropped`."""

    received: int
    """Updates that were received."""

    merged: int
    """Updates that later ones of the same PV replaced because too many rows waited."""

    delivered: int
    """Rows that were passed to the program."""

    waiting: int
    """Rows that wait to be taken."""

    dropped: int
    """Rows that waited when the batches were closed."""

    overrun: int
    """Updates of which the server reports that they contain several changes; only over pvAccess."""

    n_disconnected: int
    """How often the connection of a PV was lost."""

    n_not_converted: int = 0
    """Events in place of which an error was delivered, since they cannot be objects of Python."""


class Batch:
    """Updates of many PVs that were received together, as rows.

    Each column is an array of numpy over the memory in which Rust has received the rows, without a copy; numpy is imported
    when the first column is used. Without numpy, a batch is a sequence of `Row`, and `rows` has the bytes, of which
    `ROW.iter_unpack(batch.rows)` makes tuples. The rows of one PV are in the order in which its server has sent them.
    """

    __slots__ = ("_array", "events", "names", "rows")

    names: tuple[str, ...]
    """The names of the PVs; `index` of a row is a position here."""

    events: list[BatchEvent]
    """What happened to the subscriptions: connections, disconnections, refusals."""

    rows: memoryview
    """The rows as read-only bytes, `ROW.size` for each."""

    def __init__(self, names: tuple[str, ...], rows: memoryview, events: list[BatchEvent]) -> None:
        self.names = names
        self.rows = rows
        self.events = events
        self._array: NDArray[Any] | None = None

    def __len__(self) -> int:
        return self.rows.nbytes // ROW.size

    def __iter__(self) -> Iterator[Row]:
        return map(Row._make, ROW.iter_unpack(self.rows))

    def __repr__(self) -> str:
        return f"<fodo.Batch of {len(self)} rows and {len(self.events)} events>"

    @property
    def array(self) -> NDArray[Any]:
        """The rows as a structured array with the fields of `Row`, without a copy."""
        if self._array is None:
            import numpy

            self._array = numpy.frombuffer(self.rows, dtype=numpy.dtype(list(_FIELDS)))
        return self._array

    @property
    def value(self) -> NDArray[Any]:
        """The values, as `float64`."""
        return self.array["value"]

    @property
    def seconds(self) -> NDArray[Any]:
        """The seconds of the time stamps since 1970."""
        return self.array["seconds"]

    @property
    def nanoseconds(self) -> NDArray[Any]:
        """The nanoseconds of the time stamps."""
        return self.array["nanoseconds"]

    @property
    def index(self) -> NDArray[Any]:
        """The positions of the PVs in `names`."""
        return self.array["index"]

    @property
    def merged(self) -> NDArray[Any]:
        """How many earlier updates each row has replaced."""
        return self.array["merged"]

    @property
    def severity(self) -> NDArray[Any]:
        """The severities of the alarms, 0 to 3."""
        return self.array["severity"]

    @property
    def status(self) -> NDArray[Any]:
        """The numbers of the statuses of the alarms."""
        return self.array["status"]

    @property
    def timestamp(self) -> NDArray[Any]:
        """The time stamps in seconds since 1970, computed as `float64`."""
        return self.seconds + self.nanoseconds * 1e-9

    def of(self, pv: int | str) -> Batch:
        """The rows and events of one PV, by its position in `names` or its name; a copy."""
        index = self.names.index(pv) if isinstance(pv, str) else pv
        rows = memoryview(self.array[self.index == index].tobytes())
        return Batch(self.names, rows, [event for event in self.events if event.index == index])


class BaseBatches:
    """Subscriptions to many PVs, whose updates are taken in batches."""

    def __init__(self, names: list[str], native: _native.Group, has_events: bool) -> None:
        self._names = tuple(names)
        self._native = native
        self._has_events = has_events
        self._errors: list[Error] = []
        self._is_ended = False

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the PVs as the caller wrote them."""
        return self._names

    @property
    def is_closed(self) -> bool:
        """Whether the batches or their context were closed. What waits may still be taken after the latter."""
        return self._is_ended or self._native.is_closed

    @property
    def counts(self) -> BatchCounts:
        """The counts so far."""
        received, merged, delivered, waiting, overrun, n_disconnected = self._native.counts()
        left, dropped = (0, waiting) if self._native.is_closed else (waiting, 0)
        n_not_converted = self._native.n_not_converted
        return BatchCounts(received, merged, delivered, left, dropped, overrun, n_disconnected, n_not_converted)

    def why_inactive(self, pv: int | str) -> Error | None:
        """The error that a call would now end with because this PV is not connected; `None` if it is connected."""
        return self._native.why_inactive(self._names.index(pv) if isinstance(pv, str) else pv)

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.{type(self).__name__} of {len(self._names)} PVs>"

    def _raise_error(self) -> None:
        """Raises the next error of a subscription, if there is one."""
        if self._errors:
            raise self._errors.pop(0)

    def _selected(self, taken: tuple[_native.Rows, list[Any]]) -> Batch | None:
        """What an iterator returns: a batch, or `None` for the next one. Notes the errors of subscriptions, unless the caller
        has requested events."""
        rows, events = taken
        if not self._has_events:
            self._errors += [event.detail for event in events if isinstance(event.detail, Error)]
            if not len(rows):
                return None
        return Batch(self._names, memoryview(rows), events)
