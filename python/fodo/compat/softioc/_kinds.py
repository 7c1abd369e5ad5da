"""Values of records: what a program sets, what it gets, and what the IOC has."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, Protocol

TEXT_SIZE = 40
"""Bytes of a text, with the NUL at the end."""


class Kind(Protocol):
    """The values of a kind of records."""

    def convert(self, value: Any) -> Any:
        """The value that the program gets, from one that it has set. Raises if it does not fit."""

    def read(self, value: Any) -> Any:
        """The value that the program gets, from one of the IOC."""

    def write(self, value: Any) -> Any:
        """The value for the IOC, from one that the program gets."""


class NumberKind:
    """A number of a C type."""

    def __init__(self, c_type: type[ctypes.c_double | ctypes.c_int32 | ctypes.c_int64 | ctypes.c_uint16]) -> None:
        self._type: Callable[..., Any] = c_type
        self._is_float = c_type is ctypes.c_double

    def convert(self, value: Any) -> Any:
        return self._type(value).value

    def read(self, value: Any) -> Any:
        return float(value) if self._is_float else int(value)

    def write(self, value: Any) -> Any:
        return value


class TextKind:
    """A text of up to 39 bytes."""

    def convert(self, value: Any) -> str:
        return text_of(short_text(value))

    def read(self, value: Any) -> str:
        return str(value)

    def write(self, value: str) -> str:
        return value


class ArrayKind:
    """An array of numpy, or a list of texts."""

    def __init__(self, length: int, dtype: Any) -> None:
        self._length = length
        self._dtype = dtype
        self._is_text = dtype.char == "S"

    def convert(self, value: Any) -> Any:
        array = array_of(value, self._dtype)
        assert len(array) <= self._length, "Value too long for waveform"
        return self._taken(array.copy())

    def read(self, value: Any) -> Any:
        import numpy

        if self._is_text:
            return [str(text) for text in value]
        return self._taken(numpy.array(value, dtype=self._dtype))

    def write(self, value: Any) -> Any:
        return value

    def _taken(self, array: Any) -> Any:
        if self._is_text:
            return [text_of(bytes(text)) for text in array]
        array.flags.writeable = False
        return array


class LongTextKind:
    """A long text in an array of characters."""

    def __init__(self, length: int) -> None:
        self._length = length

    def convert(self, value: Any) -> str:
        data = value.encode(errors="replace")
        assert len(data) < self._length, "Value too long for waveform"
        return text_of(data)

    def read(self, value: Any) -> str:
        if isinstance(value, str):
            return str(value)
        import numpy

        return text_of(numpy.array(value, dtype=numpy.int8).tobytes())

    def write(self, value: str) -> Any:
        import numpy

        return numpy.frombuffer(value.encode(errors="replace") + b"\0", dtype=numpy.int8)


FLOAT = NumberKind(ctypes.c_double)
INT32 = NumberKind(ctypes.c_int32)
INT64 = NumberKind(ctypes.c_int64)
CHOICE = NumberKind(ctypes.c_uint16)
TEXT = TextKind()


def short_text(value: str) -> bytes:
    """The bytes of a text; raises `ValueError` if there are more than 39."""
    data = value.encode()
    if len(data) >= TEXT_SIZE:
        raise ValueError(f"byte string too long: {value!r} has {len(data)} bytes, expected at most {TEXT_SIZE - 1}")
    return data


def text_of(data: bytes) -> str:
    """The text before the first NUL."""
    return data.split(b"\0", 1)[0].decode(errors="replace")


def array_of(value: Any, dtype: Any) -> Any:
    """An array of one dimension; a single value is an array of one element."""
    import numpy

    if dtype is not None and dtype.char == "S":
        return to_epics_str_array(value)
    if isinstance(value, bytes):
        value = numpy.frombuffer(value, dtype=numpy.uint8)
    array = numpy.atleast_1d(numpy.require(value, dtype=dtype))
    assert array.ndim == 1, "Can't write multidimensional arrays"
    return array


def to_epics_str_array(value: Any) -> Any:
    """An array of texts of 40 bytes."""
    import numpy

    return numpy.array([short_text(text) if isinstance(text, str) else text for text in value], dtype="S40")


def is_same(first: Any, second: Any) -> bool:
    """Whether two values of a kind are the same."""
    if hasattr(first, "dtype"):
        import numpy

        return bool(numpy.array_equal(first, second))
    return bool(first == second)
