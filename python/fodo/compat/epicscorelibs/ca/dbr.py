"""The request codes and value classes of `epicscorelibs.ca.dbr`, and their conversion from and to values of Fodo."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime as _datetime
from typing import TYPE_CHECKING, Any, Final

import numpy

from .... import _native
from ...._client import Detail
from ...._info import Info

__all__ = [
    "DBR_CHAR",
    "DBR_CHAR_BYTES",
    "DBR_CHAR_STR",
    "DBR_CHAR_UNICODE",
    "DBR_CLASS_NAME",
    "DBR_DOUBLE",
    "DBR_ENUM",
    "DBR_ENUM_STR",
    "DBR_FLOAT",
    "DBR_LONG",
    "DBR_PUT_ACKS",
    "DBR_PUT_ACKT",
    "DBR_SHORT",
    "DBR_STRING",
    "DBR_STSACK_STRING",
    "FORMAT_CTRL",
    "FORMAT_RAW",
    "FORMAT_TIME",
    "ca_extra_fields",
]

DBR_STRING: Final = 0
DBR_SHORT: Final = 1
DBR_FLOAT: Final = 2
DBR_ENUM: Final = 3
DBR_CHAR: Final = 4
DBR_LONG: Final = 5
DBR_DOUBLE: Final = 6
DBR_PUT_ACKT: Final = 35
DBR_PUT_ACKS: Final = 36
DBR_STSACK_STRING: Final = 37
DBR_CLASS_NAME: Final = 38
DBR_ENUM_STR: Final = 996
DBR_CHAR_BYTES: Final = 997
DBR_CHAR_UNICODE: Final = 998
DBR_CHAR_STR: Final = 999

FORMAT_RAW: Final = 0
FORMAT_TIME: Final = 1
FORMAT_CTRL: Final = 2

EPICS_epoch = 631152000
"""Seconds from 1970 to 1990."""

MAX_STRING_SIZE = 40

ca_extra_fields = [
    "name",
    "ok",
    "datatype",
    "element_count",
    "severity",
    "status",
    "raw_stamp",
    "timestamp",
    "datetime",
    "units",
    "upper_disp_limit",
    "lower_disp_limit",
    "upper_alarm_limit",
    "lower_alarm_limit",
    "upper_warning_limit",
    "lower_warning_limit",
    "upper_ctrl_limit",
    "lower_ctrl_limit",
    "precision",
    "enums",
]

KINDS = ("text", "i16", "f32", "enum", "u8", "i32", "f64")
"""The kinds of Fodo, in the order of the request codes from `DBR_STRING`."""

_DTYPES = ("S40", "int16", "float32", "uint16", "uint8", "int32", "float64")

_CODES_OF_NUMPY = {
    **dict.fromkeys("SU", DBR_STRING),
    **dict.fromkeys("?bB", DBR_CHAR),
    **dict.fromkeys("hH", DBR_SHORT),
    **dict.fromkeys("iIlL", DBR_LONG),
    "f": DBR_FLOAT,
    "d": DBR_DOUBLE,
}

_CODES_OF_WIDER_KINDS = {
    "bool": DBR_CHAR,
    "i8": DBR_CHAR,
    "u16": DBR_LONG,
    "u32": DBR_DOUBLE,
    "i64": DBR_DOUBLE,
    "u64": DBR_DOUBLE,
}
"""The codes of the kinds that only pvAccess has."""

STATUS_NAMES = (
    "NO_ALARM READ WRITE HIHI HIGH LOLO LOW STATE COS COMM TIMEOUT HWLIMIT CALC SCAN LINK SOFT BAD_SUB UDF DISABLE SIMM "
    "READ_ACCESS WRITE_ACCESS"
).split()
"""The names of the alarm statuses, in the order of their codes."""

SEVERITY_NAMES = ["NO_ALARM", "MINOR", "MAJOR", "INVALID"]
"""The names of the severities, in the order of their codes."""

_STATUS_CODES = {name: code for code, name in enumerate(STATUS_NAMES)}


class InvalidDatatype(Exception):
    """The requested type cannot be converted to one of Channel Access."""


class _Augmented:
    """The attributes of a value."""

    __slots__ = ()

    if TYPE_CHECKING:
        name: str
        ok: bool
        datatype: int
        element_count: int
        severity: int
        status: int
        timestamp: float
        raw_stamp: tuple[int, int]
        units: str
        upper_disp_limit: float
        lower_disp_limit: float
        upper_alarm_limit: float
        lower_alarm_limit: float
        upper_warning_limit: float
        lower_warning_limit: float
        upper_ctrl_limit: float
        lower_ctrl_limit: float
        precision: int
        enums: list[str]
        ackt: int
        acks: int

    @property
    def datetime(self) -> _datetime:
        """The time stamp in local time."""
        return _datetime.fromtimestamp(self.timestamp)


class ca_array(_Augmented, numpy.ndarray[Any, Any]):
    """An array of numpy with the attributes of a value."""

    __hash__ = None

    def __pos__(self) -> Any:
        return numpy.array(self)


class ca_str(_Augmented, str):
    """A `str` with the attributes of a value."""

    def __pos__(self) -> str:
        return str(self)


class ca_bytes(_Augmented, bytes):
    """A `bytes` with the attributes of a value."""

    def __pos__(self) -> bytes:
        return bytes(self)


class ca_int(_Augmented, int):
    """An `int` with the attributes of a value."""


class ca_float(_Augmented, float):
    """A `float` with the attributes of a value."""


ca_unicode = ca_str


@dataclass(frozen=True)
class ReadRequest:
    """What is requested from the server for a datatype and a format, and how a value is converted."""

    code: int
    """The request code without the format."""

    kind: str
    detail: Detail
    convert: Callable[[Any], Any]
    """Makes an augmented value of a value of Fodo."""


def native_code(info: Info) -> int:
    """The code of a channel's own type."""
    return KINDS.index(info.kind) if info.kind in KINDS else _CODES_OF_WIDER_KINDS.get(info.kind, DBR_STRING)


def _code_of(datatype: Any) -> int:
    if isinstance(datatype, int) and not isinstance(datatype, bool) and DBR_STRING <= datatype <= DBR_DOUBLE:
        return int(datatype)
    try:
        return _CODES_OF_NUMPY[numpy.dtype(datatype).char]
    except (TypeError, KeyError) as error:
        raise InvalidDatatype(f'Datatype "{datatype}" not supported for channel access') from error


_DETAILS: dict[int, Detail] = {FORMAT_RAW: "value", FORMAT_TIME: "time", FORMAT_CTRL: "control"}

_LONG_TEXTS: dict[int, Callable[[bytes], Any]] = {
    DBR_CHAR_STR: lambda text: ca_str(text.decode(errors="replace")),
    DBR_CHAR_UNICODE: lambda text: ca_str(text.decode()),
    DBR_CHAR_BYTES: ca_bytes,
}


def read_request(name: str, info: Info, datatype: Any, format: int) -> ReadRequest:  # noqa: A002
    """What to request from this channel."""
    if format not in _DETAILS:
        raise InvalidDatatype("Format not recognised")
    native = native_code(info)
    if datatype is None:
        datatype = DBR_CHAR_STR if native == DBR_CHAR and name.endswith("$") else native
    elif isinstance(datatype, int) and datatype == DBR_ENUM_STR:
        datatype = DBR_STRING if native == DBR_ENUM else native
    long_text = _LONG_TEXTS.get(datatype) if isinstance(datatype, int) else None
    code = DBR_CHAR if long_text is not None else _code_of(datatype)
    # Texts have neither units nor limits.
    detail = "time" if code == DBR_STRING and format == FORMAT_CTRL else _DETAILS[format]
    is_bytes = isinstance(datatype, type) and issubclass(datatype, bytes)
    # Whether a value is an array depends on the channel, not on the number of elements received.
    is_array = info.count_max != 1

    def convert(value: Any) -> Any:
        if long_text is not None:
            result = long_text(_until_nul(value))
        elif is_array:
            result = _array(value, code, is_bytes)
        else:
            result = _scalar(value, code, is_bytes)
        result.name = name
        result.ok = True
        result.element_count = info.count_max
        result.datatype = code
        if detail == "time":
            _add_time(result, value)
        elif detail == "control":
            _add_control(result, value, code)
        return result

    return ReadRequest(code, KINDS[code], detail, convert)


def _elements(value: Any) -> Any:
    return value.tolist() if isinstance(value, _native.Array) else [value]


def _until_nul(value: Any) -> bytes:
    elements = memoryview(value).tobytes() if isinstance(value, _native.Array) else bytes([int(value)])
    return elements.split(b"\0", 1)[0]


def _scalar(value: Any, code: int, is_bytes: bool) -> Any:
    if isinstance(value, _native.Array):
        elements = value.tolist()
        value = elements[0] if elements else ("" if code == DBR_STRING else 0)
    if code == DBR_STRING:
        text = str.__str__(value) if isinstance(value, str) else str(value)
        return ca_bytes(text.encode()) if is_bytes else ca_str(text)
    return ca_float(value) if code in (DBR_FLOAT, DBR_DOUBLE) else ca_int(value)


def _array(value: Any, code: int, is_bytes: bool) -> Any:
    if code == DBR_STRING:
        texts = [text.encode() if is_bytes else text for text in _elements(value)]
        length = max([1, *map(len, texts)])
        return numpy.array(texts, dtype=f"{'S' if is_bytes else 'U'}{length}").view(ca_array)
    # The copy can be written to, as users of aioca expect.
    source = memoryview(value) if isinstance(value, _native.Array) else [value]
    return numpy.array(source, dtype=_DTYPES[code]).view(ca_array)


def _add_alarm(result: Any, reading: _native.Reading) -> None:
    result.severity = reading.severity
    result.status = _STATUS_CODES.get(reading.status, len(STATUS_NAMES))


def _add_time(result: Any, value: Any) -> None:
    reading = value._reading
    _add_alarm(result, reading)
    # A record that was never processed has the start of the epoch of EPICS.
    ns = reading.time_ns
    secs, nsec = (EPICS_epoch, 0) if ns is None else divmod(ns, 1_000_000_000)
    result.raw_stamp = (secs, nsec)
    result.timestamp = round(secs + nsec * 1e-9, 6)


_LIMITS = (
    ("disp", "display_limits"),
    ("alarm", "alarm_limits"),
    ("warning", "warning_limits"),
    ("ctrl", "control_limits"),
)


def _add_control(result: Any, value: Any, code: int) -> None:
    reading = value._reading
    _add_alarm(result, reading)
    if code == DBR_ENUM:
        result.enums = reading.labels or []
        return
    is_float = code in (DBR_FLOAT, DBR_DOUBLE)
    result.units = reading.units or ""
    for short, attribute in _LIMITS:
        low, high = getattr(reading, attribute) or (0.0, 0.0)
        setattr(result, f"lower_{short}_limit", low if is_float else _integer(low))
        setattr(result, f"upper_{short}_limit", high if is_float else _integer(high))
    if is_float:
        result.precision = reading.precision or 0


def _integer(limit: float) -> int:
    return int(limit) if math.isfinite(limit) else 0


def padded(value: Any, count: int) -> Any:
    """The value with zeros up to `count` elements, if it is an array with fewer: servers send only those that were written."""
    if not isinstance(value, ca_array) or len(value) >= count:
        return value
    longer = numpy.zeros(count, dtype=value.dtype).view(ca_array)
    longer[: len(value)] = value
    longer.__dict__.update(value.__dict__)
    return longer


def of_record(name: str, value: Any, code: int) -> Any:
    """A text about a record, with the alarm of the value that was read."""
    result = ca_str(value)
    result.name = name
    result.ok = True
    result.element_count = 1
    result.datatype = code
    if code == DBR_STSACK_STRING:
        _add_alarm(result, value._reading)
    return result


def value_to_put(name: str, info: Info, datatype: Any, value: Any) -> Any:
    """The value to send for a value of the user: converted to the requested type, or to that of the channel."""
    if datatype is None:
        if isinstance(value, (str, bytes)):
            # The server converts it.
            datatype = DBR_STRING
        else:
            datatype = native_code(info)
            if datatype == DBR_CHAR and name.endswith("$"):
                datatype = DBR_CHAR_STR
    if isinstance(datatype, int) and datatype == DBR_CHAR_STR:
        return numpy.frombuffer(value.encode(), dtype="uint8")
    code = _code_of(datatype)
    if code == DBR_STRING:
        return _texts(value)
    converted = numpy.require(value, requirements="C", dtype=_DTYPES[code])
    if converted.ndim > 1:
        raise ValueError(f'"{name}": the array has {converted.ndim} dimensions: expected one; use ravel()')
    return converted.item() if converted.ndim == 0 else converted


def _texts(value: Any) -> Any:
    """A text, or a list of texts."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, str):
        return str(value)
    elements = numpy.asarray(value)
    if elements.ndim == 0:
        return _texts(elements.item()) if isinstance(elements.item(), (str, bytes)) else str(elements.item())
    return [_texts(element) if isinstance(element, (str, bytes)) else str(element) for element in elements.tolist()]
