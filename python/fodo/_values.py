"""Values of PVs: numbers, texts, arrays and structures with alarm, time stamp, units and limits."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple, SupportsIndex

from . import _native

if TYPE_CHECKING:
    from datetime import datetime

    from numpy.typing import NDArray


class Severity(IntEnum):
    """How bad an alarm is."""

    NO_ALARM = 0
    MINOR = 1
    MAJOR = 2
    INVALID = 3


class Alarm(NamedTuple):
    """An alarm."""

    severity: Severity
    status: str
    """The name of the reason, such as `HIHI`."""
    message: str
    """The text of the server; without one the status, or empty without an alarm."""


class Limits(NamedTuple):
    """The two ends of a range, in the units of the value."""

    low: float
    high: float


class Value:
    """The attributes of a value of a PV.

    Units, limits, labels, precision and description are `None` unless they were requested: `detail="full"`.
    """

    __slots__ = ()

    if TYPE_CHECKING:
        _reading: _native.Reading

    @property
    def name(self) -> str:
        """The name of the PV as the caller wrote it."""
        return self._reading.name

    @property
    def severity(self) -> Severity:
        """How bad the alarm is."""
        return Severity(self._reading.severity)

    @property
    def status(self) -> str:
        """The name of the reason of the alarm, such as `HIHI`."""
        return self._reading.status

    @property
    def alarm(self) -> Alarm:
        """The alarm."""
        return Alarm(self.severity, self.status, self._reading.message)

    @property
    def timestamp_ns(self) -> int | None:
        """The time stamp in nanoseconds since 1970; `None` if the server has sent none."""
        return self._reading.time_ns

    @property
    def timestamp(self) -> float | None:
        """The time stamp in seconds since 1970, as `time.time()`; `None` if the server has sent none."""
        ns = self._reading.time_ns
        return None if ns is None else ns / 1_000_000_000

    @property
    def time(self) -> datetime | None:
        """The time stamp in UTC, in microseconds; `None` if the server has sent none."""
        from datetime import datetime, timedelta, timezone

        ns = self._reading.time_ns
        return None if ns is None else datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(microseconds=ns // 1000)

    @property
    def user_tag(self) -> int:
        """The user tag of the time stamp; 0 unless the source sets one."""
        return self._reading.user_tag

    @property
    def units(self) -> str | None:
        """Engineering units."""
        return self._reading.units

    @property
    def precision(self) -> int | None:
        """Digits to show after the decimal point."""
        return self._reading.precision

    @property
    def description(self) -> str | None:
        """What the value is; only over pvAccess."""
        return self._reading.description

    @property
    def display_limits(self) -> Limits | None:
        """The range to display."""
        return _limits(self._reading.display_limits)

    @property
    def control_limits(self) -> Limits | None:
        """The range to which puts are limited."""
        return _limits(self._reading.control_limits)

    @property
    def warning_limits(self) -> Limits | None:
        """The limits beyond which the alarm is minor."""
        return _limits(self._reading.warning_limits)

    @property
    def alarm_limits(self) -> Limits | None:
        """The limits beyond which the alarm is major."""
        return _limits(self._reading.alarm_limits)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from html import escape

        from ._notebook import html_of_value

        return html_of_value(self, self._html_of_value() if isinstance(self, (Array, Structure)) else escape(self._shown()))

    def _shown(self) -> str:
        """The number or text itself, with the digits that the server requests."""
        precision = self._reading.precision
        return f"{self:.{precision}f}" if isinstance(self, float) and precision else str(self)


def _limits(pair: tuple[float, float] | None) -> Limits | None:
    return None if pair is None else Limits(*pair)


class FloatValue(Value, float):
    """A value that is a `float`."""

    __slots__ = ("_reading",)

    def __reduce__(self) -> tuple[type[float], tuple[float]]:
        # The attributes stay in this process.
        return float, (float(self),)


class IntValue(Value, int):
    """A value that is an `int`; also a bool of pvAccess."""

    def __reduce__(self) -> tuple[type[int], tuple[int]]:
        return int, (int(self),)


class EnumValue(IntValue):
    """The index of a state. Its text is the label of the state, where labels were requested (`detail="full"`)."""

    @property
    def labels(self) -> list[str] | None:
        """The labels of all states."""
        return self._reading.labels

    @property
    def label(self) -> str | None:
        """The label of the state; `None` if it has none, or labels were not requested.

        Channel Access transmits 16 labels. A get with `kind="text"` has the label of any state.
        """
        labels = self._reading.labels
        return labels[self] if labels is not None and self < len(labels) else None

    def __str__(self) -> str:
        label = self.label
        return int.__repr__(self) if label is None else label


class TextValue(Value, str):
    """A value that is a `str`."""

    __slots__ = ("_reading",)

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str(self),)


class Array(_native.Array):
    """A read-only array over the memory that was received.

    It is a sequence, and has the buffer protocol unless its elements are texts: `memoryview(array)` and `array.numpy()` copy
    nothing. Arithmetic, comparisons of order (`<`, `>=`) and indices such as `array[array > 3]` act as those of arrays of numpy,
    and give such arrays. As for lists, `array == other` is true if all elements are equal, and a slice is a list.
    """

    __slots__ = ()

    def __getitem__(self, index: SupportsIndex | slice | Any) -> Any:
        if isinstance(index, slice):
            return self.tolist()[index]
        try:
            position = operator.index(index)
        except TypeError:
            return self.numpy()[index]
        return self._item(position)

    def __iter__(self) -> Iterator[Any]:
        elements: list[Any] = self.tolist()
        return iter(elements)

    def __contains__(self, element: object) -> bool:
        return element in self.tolist()

    def __reversed__(self) -> Iterator[Any]:
        return iter(self.tolist()[::-1])

    def index(self, element: Any, start: int = 0, stop: int | None = None) -> int:
        """The index of the first such element."""
        elements = self.tolist()
        return elements.index(element, start, len(elements) if stop is None else stop)

    def count(self, element: Any) -> int:
        """The number of such elements."""
        return int(self.tolist().count(element))

    def numpy(self) -> NDArray[Any]:
        """The elements as an array of numpy: read-only and without a copy, but a copy for texts."""
        import numpy

        return numpy.asarray(self.tolist() if self.element_kind == "text" else memoryview(self))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        array = self.numpy()
        if dtype is not None and array.dtype != dtype:
            array = array.astype(dtype)
        return array.copy() if copy else array

    def __eq__(self, other: object) -> bool:
        if isinstance(other, _native.Array):
            return self._equals(other)
        if isinstance(other, Sequence) and not isinstance(other, (str, bytes)):
            return self.tolist() == list(other)
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def _html_of_value(self) -> str:
        from ._notebook import html_of_array

        return html_of_array(self)

    _repr_html_ = _html_of_value

    def __repr__(self) -> str:
        n = len(self)
        shown = ", ".join(repr(self._item(index)) for index in range(min(n, 6)))
        return f"<{type(self).__name__} of {n} {self.element_kind}: [{shown}{', ...' if n > 6 else ''}]>"

    def __reduce__(self) -> tuple[type[list[Any]], tuple[list[Any]]]:
        return list, (self.tolist(),)

    def __add__(self, other: Any) -> Any:
        return self.numpy() + other

    def __radd__(self, other: Any) -> Any:
        return other + self.numpy()

    def __sub__(self, other: Any) -> Any:
        return self.numpy() - other

    def __rsub__(self, other: Any) -> Any:
        return other - self.numpy()

    def __mul__(self, other: Any) -> Any:
        return self.numpy() * other

    def __rmul__(self, other: Any) -> Any:
        return other * self.numpy()

    def __truediv__(self, other: Any) -> Any:
        return self.numpy() / other

    def __rtruediv__(self, other: Any) -> Any:
        return other / self.numpy()

    def __floordiv__(self, other: Any) -> Any:
        return self.numpy() // other

    def __rfloordiv__(self, other: Any) -> Any:
        return other // self.numpy()

    def __mod__(self, other: Any) -> Any:
        return self.numpy() % other

    def __rmod__(self, other: Any) -> Any:
        return other % self.numpy()

    def __pow__(self, other: Any) -> Any:
        return self.numpy() ** other

    def __rpow__(self, other: Any) -> Any:
        return other ** self.numpy()

    def __matmul__(self, other: Any) -> Any:
        return self.numpy() @ other

    def __rmatmul__(self, other: Any) -> Any:
        return other @ self.numpy()

    def __lshift__(self, other: Any) -> Any:
        return self.numpy() << other

    def __rlshift__(self, other: Any) -> Any:
        return other << self.numpy()

    def __rshift__(self, other: Any) -> Any:
        return self.numpy() >> other

    def __rrshift__(self, other: Any) -> Any:
        return other >> self.numpy()

    def __and__(self, other: Any) -> Any:
        return self.numpy() & other

    def __rand__(self, other: Any) -> Any:
        return other & self.numpy()

    def __or__(self, other: Any) -> Any:
        return self.numpy() | other

    def __ror__(self, other: Any) -> Any:
        return other | self.numpy()

    def __xor__(self, other: Any) -> Any:
        return self.numpy() ^ other

    def __rxor__(self, other: Any) -> Any:
        return other ^ self.numpy()

    def __divmod__(self, other: Any) -> Any:
        return divmod(self.numpy(), other)

    def __rdivmod__(self, other: Any) -> Any:
        return divmod(other, self.numpy())

    def __lt__(self, other: Any) -> Any:
        return self.numpy() < other

    def __le__(self, other: Any) -> Any:
        return self.numpy() <= other

    def __gt__(self, other: Any) -> Any:
        return self.numpy() > other

    def __ge__(self, other: Any) -> Any:
        return self.numpy() >= other

    def __neg__(self) -> Any:
        return -self.numpy()

    def __pos__(self) -> Any:
        return +self.numpy()

    def __invert__(self) -> Any:
        return ~self.numpy()

    def __abs__(self) -> Any:
        return abs(self.numpy())


Sequence.register(Array)


class ArrayValue(Value, Array):
    """A value that is an array."""

    __slots__ = ()


class Structure(_native.Structure, Mapping[str, Any]):
    """A structure of pvAccess: a mapping of its fields. A key may also be a path, such as `alarm.severity`.

    A union is the value of its selected member, or `None`; `selected` has the name of the member.
    """

    __slots__ = ()

    def __getitem__(self, path: str) -> Any:
        return self._field(path)

    def __len__(self) -> int:
        return len(self._names())

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    def __contains__(self, path: object) -> bool:
        if not isinstance(path, str):
            return False
        try:
            self._field(path)
        except KeyError:
            return False
        return True

    def to_dict(self) -> dict[str, Any]:
        """A dict of plain values, with lists for arrays."""
        return {name: _plain(value) for name, value in self.items()}

    def __eq__(self, other: object) -> bool:
        if isinstance(other, _native.Structure):
            return self._equals(other)
        return Mapping.__eq__(self, other)

    __hash__ = None  # type: ignore[assignment]

    def _html_of_value(self) -> str:
        from ._notebook import html_of_structure

        return html_of_structure(self)

    _repr_html_ = _html_of_value

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}: {value!r}" for name, value in self.items())
        return f"<{type(self).__name__} {self.id + ' ' if self.id else ''}{{{fields}}}>"

    def __reduce__(self) -> tuple[type[dict[str, Any]], tuple[dict[str, Any]]]:
        return dict, (self.to_dict(),)


def _plain(value: Any) -> Any:
    if isinstance(value, Structure):
        return value.to_dict()
    if isinstance(value, Array):
        return value.tolist()
    if isinstance(value, list):
        return [_plain(element) for element in value]
    return value


class StructureValue(Value, Structure):
    """A value that is a structure, with the alarm and the time stamp that are among its fields."""

    __slots__ = ()
