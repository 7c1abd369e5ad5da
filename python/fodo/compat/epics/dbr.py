"""Types and constants of Channel Access."""

from __future__ import annotations

import ctypes
from enum import IntEnum

ECA_NORMAL = 1
ECA_TIMEOUT = 80
ECA_IODONE = 339
ECA_ISATTACHED = 424
ECA_BADCHID = 410

CS_NEVER_CONN = 0
CS_PREV_CONN = 1
CS_CONN = 2
CS_CLOSED = 3
CS_NEVER_SEARCH = 4
OP_CONN_UP = 6
OP_CONN_DOWN = 7

STRING = 0
INT = 1
SHORT = 1
FLOAT = 2
ENUM = 3
CHAR = 4
LONG = 5
DOUBLE = 6

TIME_STRING = 14
TIME_INT = 15
TIME_SHORT = 15
TIME_FLOAT = 16
TIME_ENUM = 17
TIME_CHAR = 18
TIME_LONG = 19
TIME_DOUBLE = 20

CTRL_STRING = 28
CTRL_INT = 29
CTRL_SHORT = 29
CTRL_FLOAT = 30
CTRL_ENUM = 31
CTRL_CHAR = 32
CTRL_LONG = 33
CTRL_DOUBLE = 34

PUT_ACKT = 35
PUT_ACKS = 36
STSACK_STRING = 37
CLASS_NAME = 38

MAX_STRING_SIZE = 40
MAX_UNITS_SIZE = 8
MAX_ENUM_STRING_SIZE = 26
MAX_ENUMS = 16

EPICS2UNIX_EPOCH = 631152000.0

DBE_VALUE = 1
DBE_LOG = 2
DBE_ALARM = 4
DBE_PROPERTY = 8

_NATIVE = ("STRING", "INT", "FLOAT", "ENUM", "CHAR", "LONG", "DOUBLE")
_PREFIXES = ((STRING, ""), (TIME_STRING, "TIME_"), (CTRL_STRING, "CTRL_"))
_NAMES: dict[int, str] = {
    **{first + index: prefix + name for first, prefix in _PREFIXES for index, name in enumerate(_NATIVE)},
    PUT_ACKT: "PUT_ACKT",
    PUT_ACKS: "PUT_ACKS",
    STSACK_STRING: "STSACK_STRING",
    CLASS_NAME: "CLASS_NAME",
}
_NUMBERS = {name: number for number, name in _NAMES.items()} | {"SHORT": 1, "TIME_SHORT": 15, "CTRL_SHORT": 29}

# The types of the elements of an array that is read without numpy.
_ELEMENTS: tuple[type, ...] = (
    ctypes.c_char * MAX_STRING_SIZE,
    ctypes.c_int16,
    ctypes.c_float,
    ctypes.c_uint16,
    ctypes.c_uint8,
    ctypes.c_int32,
    ctypes.c_double,
)
Map: dict[int, type] = dict(enumerate(_ELEMENTS))

ctrl_limits = (
    "upper_disp_limit",
    "lower_disp_limit",
    "upper_alarm_limit",
    "upper_warning_limit",
    "lower_warning_limit",
    "lower_alarm_limit",
    "upper_ctrl_limit",
    "lower_ctrl_limit",
)


class chid_t(int):  # noqa: N801
    """The number of a channel."""

    @property
    def value(self) -> int:
        """The number."""
        return int(self)


def native_type(ftype: int) -> int:
    """The type without attributes of a type with them; -1 for a type that is not one of these."""
    for first in (CTRL_STRING, TIME_STRING, STRING):
        if first <= ftype <= first + DOUBLE:
            return ftype - first
    return -1


def promoted(ftype: int, use_time: bool = False, use_ctrl: bool = False) -> int:
    """The type with the attributes of a time stamp or with control limits."""
    native = native_type(ftype)
    if native < 0:
        return ftype
    return native + (CTRL_STRING if use_ctrl else TIME_STRING if use_time else 0)


def Name(ftype: int | str, reverse: bool = False) -> str | int:  # noqa: N802
    """The name of a type; with `reverse`, the number of a type with this name."""
    if reverse:
        name = str(ftype).upper()
        return _NUMBERS.get(name, ftype) if isinstance(ftype, str) else ftype
    return _NAMES.get(int(ftype), "unknown")


class _Code(IntEnum):
    def __repr__(self) -> str:
        return self.name

    @classmethod
    def _missing_(cls, value: object) -> _Code | None:
        if not isinstance(value, int):
            return None
        unknown = int.__new__(cls, value)
        unknown._name_ = "UNKNOWN"
        unknown._value_ = value
        return unknown


class AlarmStatus(_Code):
    """The reason of an alarm."""

    NO_ALARM = 0
    READ = 1
    WRITE = 2
    HIHI = 3
    HIGH = 4
    LOLO = 5
    LOW = 6
    STATE = 7
    COS = 8
    COMM = 9
    TIMEOUT = 10
    HW_LIMIT = 11
    CALC = 12
    SCAN = 13
    LINK = 14
    SOFT = 15
    BAD_SUB = 16
    UDF = 17
    DISABLE = 18
    SIMM = 19
    READ_ACCESS = 20
    WRITE_ACCESS = 21


class AlarmSeverity(_Code):
    """How bad an alarm is."""

    NO_ALARM = 0
    MINOR = 1
    MAJOR = 2
    INVALID = 3


_STATUS_CODES = {status.name.replace("_", ""): int(status) for status in AlarmStatus}


def status_code(name: str) -> int:
    """The number of the reason of an alarm."""
    code = _STATUS_CODES.get(name.replace("_", ""))
    return code if code is not None else int(name) if name.isdigit() else 0
