"""Scalars and arrays of scalars."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._type import Type
from ..wrapper import Value
from .common import Fields, NTBase, alarm, ntwrappercommon, timeStamp

if TYPE_CHECKING:
    from .ndarray import ntnumericarray


def __getattr__(name: str) -> Any:
    # It needs numpy, which is imported only when it is used.
    if name == "ntnumericarray":
        from . import ndarray

        return ndarray.ntnumericarray
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class ntfloat(ntwrappercommon, float):
    """A `float` with the attributes of `ntwrappercommon`."""


class ntint(ntwrappercommon, int):
    """An `int` with the attributes of `ntwrappercommon`."""


class ntbool(ntwrappercommon, int):
    """A bool as an `int`, with the attributes of `ntwrappercommon`."""

    def __new__(cls, value: object) -> ntbool:
        return int.__new__(cls, bool(value))

    def __repr__(self) -> str:
        return "true" if self else "false"


class ntstr(ntwrappercommon, str):
    """A `str` with the attributes of `ntwrappercommon`."""



class ntstringarray(ntwrappercommon, list[str]):
    """A list of texts with the attributes of `ntwrappercommon`."""


def meta_fields(
    valtype: str, display: bool = False, control: bool = False, valueAlarm: bool = False, form: bool = False
) -> Fields:
    """The optional fields of a value with this code."""
    code = valtype[-1:]
    is_numeric = code not in "?su"
    fields: Fields = []
    if display and is_numeric:
        shown: Fields = [("limitLow", code), ("limitHigh", code), ("description", "s")]
        if form:
            shown += [("precision", "i"), ("form", ("S", "enum_t", [("index", "i"), ("choices", "as")]))]
        else:
            shown += [("format", "s")]
        fields.append(("display", ("S", None, [*shown, ("units", "s")])))
    elif display:
        fields.append(("display", ("S", None, [("description", "s"), ("units", "s")])))
    if control and is_numeric:
        fields.append(("control", ("S", None, [("limitLow", code), ("limitHigh", code), ("minStep", code)])))
    if valueAlarm and is_numeric:
        names = ("lowAlarm", "lowWarning", "highWarning", "highAlarm")
        limits: Fields = [(f"{name}Limit", code) for name in names]
        severities: Fields = [(f"{name}Severity", "i") for name in names]
        fields.append(("valueAlarm", ("S", None, [("active", "?"), *limits, *severities, ("hysteresis", "d")])))
    return fields


def _numeric_array(value: Any) -> ntnumericarray:
    from .ndarray import ntnumericarray

    return ntnumericarray.build(value)


class NTScalar(NTBase):
    """NTScalar(valtype="d", display=False, control=False, valueAlarm=False, form=False, extra=[]): a number, a text or an array
    of these, with its alarm and its time stamp.

    `valtype`: the code of the value. `display`, `control`, `valueAlarm`: whether there are fields for units and limits.
    `form`: whether `display` has `precision` and `form` in place of `format`. `extra`: more fields.
    """

    def __init__(self, valtype: str = "d", **kws: Any) -> None:
        super().__init__(valtype, **kws)

    @staticmethod
    def buildType(valtype: str, extra: Fields | tuple[()] = (), *args: Any, **kws: Any) -> Type:
        """The type of a structure with these options."""
        fields = [("value", valtype), ("alarm", alarm), ("timeStamp", timeStamp)]
        id = "epics:nt/NTScalarArray:1.0" if valtype[:1] == "a" else "epics:nt/NTScalar:1.0"
        return Type([*fields, *meta_fields(valtype, *args, **kws), *extra], id=id)

    def wrap(self, value: Any, **kws: Any) -> Value:  # type: ignore[override]
        """The structure for a value; a dict has the values of fields. `timestamp`, `severity` and `message` are written to it."""
        if isinstance(value, ntwrappercommon) and value.raw is not None:
            kws.setdefault("timestamp", value.timestamp)
            value = value.raw
        elif isinstance(value, dict):
            value = Value(self.type, value)
        elif not isinstance(value, Value):
            value = Value(self.type, {"value": value})
        return self._annotate(value, **kws)

    typeMap: dict[type, Any] = {bool: ntbool, int: ntint, float: ntfloat, str: ntstr, list: ntstringarray}

    @classmethod
    def unwrap(cls, value: Value) -> Any:
        """A number, a text or an array with the attributes of `ntwrappercommon`."""
        if not isinstance(value, Value):
            raise TypeError(f"a structure is unwrapped, not {type(value).__name__}")
        found = value["value"]
        make = cls.typeMap.get(type(found))
        if make is None:
            if not hasattr(found, "dtype"):
                raise ValueError(f"a value of type {type(found).__name__} cannot be unwrapped")
            make = _numeric_array
        return make(found)._store(value)

    def assign(self, V: Value, py: Any) -> None:
        """Writes a value to the field `value`."""
        V["value"] = py
