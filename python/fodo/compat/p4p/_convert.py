"""Conversion of Python objects to the types of fields."""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

# The width of each code of an integer, and whether it is signed.
_INTEGERS = {
    "b": (8, True),
    "h": (16, True),
    "i": (32, True),
    "l": (64, True),
    "B": (8, False),
    "H": (16, False),
    "I": (32, False),
    "L": (64, False),
}
_DTYPES = {
    "?": "?",
    "b": "i1",
    "h": "i2",
    "i": "i4",
    "l": "i8",
    "B": "u1",
    "H": "u2",
    "I": "u4",
    "L": "u8",
    "f": "f4",
    "d": "f8",
}
_CODES = {dtype: code for code, dtype in _DTYPES.items()}
_NAMES = {
    "?": "bool",
    "s": "string",
    "f": "float",
    "d": "double",
    **{code: f"{'' if is_signed else 'u'}int{width}_t" for code, (width, is_signed) in _INTEGERS.items()},
}
_INITIAL: dict[str, Any] = {"?": False, "s": "", "f": 0.0, "d": 0.0} | dict.fromkeys(_INTEGERS, 0)


def shown_name(code: str) -> str:
    """The name of the kind of an element, for people."""
    return _NAMES[code]


def initial(code: str) -> Any:
    """The value of a new field that is a number, a text, or an array of these."""
    if code[0] != "a":
        return _INITIAL[code]
    return [] if code == "as" else array(code, ())


def wrong_type(code: str, value: object) -> TypeError:
    """The object cannot be converted."""
    shape = f"{_NAMES[code[1:]]} (array)" if code[0] == "a" else f"{_NAMES[code]} (scalar)"
    return TypeError(f"a field of type {shape} cannot be assigned from {type(value).__name__}")


def scalar(code: str, value: Any) -> Any:
    """The value of a field that is a number or a text."""
    if isinstance(value, bytes):
        value = value.decode()
    if code == "s":
        return _text(value)
    if code == "?":
        return _flag(value)
    if code in ("f", "d"):
        return _real(code, value)
    return _integer(code, value)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, numbers.Integral):
        return str(int(value))
    if isinstance(value, numbers.Real):
        return repr(float(value))
    raise wrong_type("s", value)


def _flag(value: Any) -> bool:
    if isinstance(value, str):
        if value.lower() in ("true", "false"):
            return value.lower() == "true"
        raise ValueError(f'"{value}" is not a bool: expected true or false')
    if isinstance(value, bool) or hasattr(value, "__index__") or type(value).__name__ in ("bool_", "bool"):
        return bool(value)
    if isinstance(value, numbers.Real):
        raise ValueError(f"{value} is not a bool")
    raise wrong_type("?", value)


def _real(code: str, value: Any) -> float:
    if isinstance(value, (str, numbers.Real)) or hasattr(value, "__float__") or hasattr(value, "__index__"):
        try:
            number = float(value)
        except ValueError:
            raise ValueError(f'"{value}" is not a number') from None
        except TypeError:
            raise wrong_type(code, value) from None
        return number if code == "d" else _of_32_bits(number)
    raise wrong_type(code, value)


def _of_32_bits(number: float) -> float:
    import struct

    try:
        (rounded,) = struct.unpack("f", struct.pack("f", number))
    except OverflowError:
        return float("inf") if number > 0 else float("-inf")
    return float(rounded)


def _integer(code: str, value: Any) -> int:
    if isinstance(value, str):
        try:
            number = int(value, 0)
        except ValueError:
            try:
                number = int(value)
            except ValueError:
                raise ValueError(f'"{value}" is not an integer') from None
    elif hasattr(value, "__index__"):
        number = value.__index__()
    elif isinstance(value, numbers.Real) or type(value).__name__ == "bool_":
        number = int(value)
    else:
        raise wrong_type(code, value)
    return wrapped(code, number)


def wrapped(code: str, number: int) -> int:
    """The lowest bits of a number of at most 64 bits."""
    width, is_signed = _INTEGERS[code]
    if not -0x8000_0000_0000_0000 <= number <= 0xFFFF_FFFF_FFFF_FFFF:
        raise OverflowError(f"{number} is out of the range of 64 bits")
    low = number & ((1 << width) - 1)
    return low - (1 << width) if is_signed and low >> (width - 1) else low


def array(code: str, value: Any) -> Any:
    """The value of a field that is an array of numbers or texts: a read-only array of numpy, or a list."""
    if code == "as":
        return _texts(value)
    import numpy

    if isinstance(value, (str, bytes)) or value is None:
        raise wrong_type(code, value)
    if not isinstance(value, numpy.ndarray) and not isinstance(value, Sequence) and hasattr(value, "__iter__"):
        value = list(value) if not hasattr(value, "__array__") else value
    dtype = numpy.dtype(_DTYPES[code[1:]])
    with numpy.errstate(invalid="ignore", over="ignore"):
        try:
            converted = numpy.asarray(value, dtype=dtype)
        except OverflowError:
            converted = numpy.asarray(value).astype(dtype)
    if converted.ndim != 1:
        raise RuntimeError(f"an array field is assigned from one dimension, not {converted.ndim}: use ravel()")
    if isinstance(value, numpy.ndarray) and numpy.shares_memory(converted, value) and value.flags.writeable:
        # The caller may change its own array later.
        converted = converted.copy()
    view = converted.view(numpy.ndarray)
    view.flags.writeable = False
    return view


def _texts(value: Any) -> list[str]:
    try:
        elements = list(value)
    except TypeError:
        raise TypeError(f"an array of strings is assigned from a sequence, not {type(value).__name__}") from None
    found = []
    for element in elements:
        if not isinstance(element, (str, bytes)):
            raise TypeError(f"an array of strings is assigned from texts, not {type(element).__name__}")
        found.append(element.decode() if isinstance(element, bytes) else str(element))
    return found


def received_array(value: Any) -> Any:
    """An array that a server has sent."""
    if value.element_kind == "text":
        return value.tolist()
    import numpy

    return numpy.asarray(memoryview(value))


def inferred(value: Any) -> str:
    """The code of the type that holds a Python object."""
    if isinstance(value, bool):
        return "?"
    if isinstance(value, numbers.Integral):
        return "l"
    if isinstance(value, numbers.Real):
        return "d"
    if isinstance(value, (str, bytes)):
        return "s"
    code = array_code(value)
    if code is not None:
        return code
    if isinstance(value, Sequence):
        if all(isinstance(element, (str, bytes)) for element in value):
            return "as"
        import numpy

        code = array_code(numpy.asarray(value))
        if code is not None:
            return code
    raise TypeError(f"there is no type for an object of type {type(value).__name__}: assign (code, value)")


def array_code(value: Any) -> str | None:
    """The code of the type of an array of numpy."""
    dtype: np.dtype[Any] | None = getattr(value, "dtype", None)
    if dtype is None or getattr(value, "ndim", 0) != 1:
        return None
    if dtype.kind in "US":
        return "as"
    name = "?" if dtype.kind == "b" else f"{dtype.kind}{dtype.itemsize}"
    return "a" + _CODES[name] if name in _CODES else None


def choice_index(choices: Sequence[str], value: str) -> int:
    """The index of a choice of an enum; a text that is not a choice may be an index."""
    if value in choices:
        return list(choices).index(value)
    try:
        index = int(value, 0)
    except ValueError:
        raise ValueError(f'"{value}" is not a choice: expected one of {list(choices)}') from None
    if not choices:
        warnings.warn("the enum has no choices; the text is used as an index", UserWarning, stacklevel=4)
    return index
