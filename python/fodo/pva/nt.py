"""The normative types: Python values as structures, and back.

Each has a `type`, `wrap` and `unwrap`. `wrap` takes the value and its properties: alarm, time stamp, units, limits.
"""

from __future__ import annotations

import time as clock
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Unpack

from .. import _native
from .._values import Structure
from . import _properties
from ._properties import Properties
from ._type import Type, code_of

if TYPE_CHECKING:
    from numpy.typing import NDArray as NumpyArray

__all__ = ["Enum", "MultiChannel", "NDArray", "Normative", "Scalar", "ScalarArray", "Table", "URI", "of"]

_GENERAL = ("descriptor", "alarm", "timeStamp")
"""Optional fields of most types."""


class Normative:
    """What the normative types have in common.

    Properties that are given when it is created are those of the first value.
    """

    type: Type
    is_flat: ClassVar[bool] = False
    """Whether Channel Access can serve it too."""

    def __init__(self, type: Type, properties: Properties) -> None:
        self.type = type
        self.properties = properties

    def wrap(self, value: Any = None, **properties: Unpack[Properties]) -> Structure:
        """A whole structure with this value, at the current time by default."""
        if isinstance(value, _native.Structure):
            return self.type.wrap(value, **properties)
        given: Properties = {"time": clock.time(), **self.properties, **properties}
        return self.change(value, **given)

    def change(self, value: Any = None, **properties: Unpack[Properties]) -> Structure:
        """A structure in which only what is given is marked. A value without an alarm ends the alarm before."""
        if isinstance(value, _native.Structure):
            return self.type.wrap(value, **properties)
        fields: dict[str, Any] = {}
        if value is not None:
            fields = self._value(value)
            if "alarm" in self.type:
                fields["alarm"] = _properties.alarm({})
        return self.type.wrap({**fields, **_properties.fields(properties)})

    def unwrap(self, structure: Structure) -> Any:
        """The value in a structure."""
        return structure["value"]

    def _value(self, value: Any) -> dict[str, Any]:
        return {"value": value}


class Scalar(Normative):
    """NTScalar: a number, a text or a bool. `code`: as for `Type`."""

    is_flat = True

    def __init__(self, code: str = "d", **properties: Unpack[Properties]) -> None:
        super().__init__(Type._of_native(_native.Type.of_records(code)), properties)


class ScalarArray(Normative):
    """NTScalarArray: numbers, texts or bools. `code`: as for `Type`, such as `ad`."""

    is_flat = True

    def __init__(self, code: str = "ad", **properties: Unpack[Properties]) -> None:
        if not code.startswith("a"):
            raise ValueError(f'the code is "{code}": expected one of an array, "a{code}"')
        super().__init__(Type._of_native(_native.Type.of_records(code)), properties)


class Enum(Normative):
    """NTEnum: one of several states. Its value is the index, or the label."""

    is_flat = True

    def __init__(self, choices: Sequence[str] = (), **properties: Unpack[Properties]) -> None:
        properties.setdefault("labels", choices)
        super().__init__(Type._of_native(_native.Type.of_records("enum")), properties)

    def change(self, value: Any = None, **properties: Unpack[Properties]) -> Structure:
        if isinstance(value, _native.Structure):
            return self.type.wrap(value, **properties)
        labels = properties.pop("labels", None)
        fields = {} if value is None else {"value.index": self._index(value, labels), "alarm": _properties.alarm({})}
        if labels is not None:
            fields["value.choices"] = list(labels)
        return self.type.wrap({**fields, **_properties.fields(properties)})

    def _index(self, value: Any, labels: Sequence[str] | None) -> int:
        states = list(self.properties["labels"] if labels is None else labels)
        if isinstance(value, str) and value in states:
            return states.index(value)
        try:
            # A bool is a number; a text may be one.
            number = float(value)
            if number.is_integer() and 0 <= number < (len(states) or 1 << 16):
                return int(number)
        except (TypeError, ValueError):
            pass
        raise ValueError(f"there is no state {value!r}: expected one of {', '.join(states)}, or its index")

    def unwrap(self, structure: Structure) -> int:
        """The index."""
        return int(structure["value.index"])


class Table(Normative):
    """NTTable: columns of the same length. `columns`: the names with the codes of their elements. `labels` are their titles."""

    def __init__(self, columns: Mapping[str, str], **properties: Unpack[Properties]) -> None:
        self.columns = tuple(columns)
        self.labels = list(properties.pop("labels", columns))
        arrays = {name: "a" + code for name, code in columns.items()}
        super().__init__(Type._normative("NTTable", _GENERAL, value=arrays), properties)

    def _value(self, value: Mapping[str, Any] | Iterable[Mapping[str, Any]]) -> dict[str, Any]:
        columns = value
        if not isinstance(columns, Mapping):
            rows = list(columns)
            columns = {name: [row[name] for row in rows] for name in self.columns}
        if len({len(column) for column in columns.values()}) > 1:
            lengths = ", ".join(f"{name} {len(column)}" for name, column in columns.items())
            raise ValueError(f"the columns have different lengths: {lengths}")
        return {"labels": self.labels, "value": dict(columns)}

    def unwrap(self, structure: Structure) -> dict[str, Any]:
        """The columns by their names."""
        return dict(structure["value"])


class NDArray(Normative):
    """NTNDArray: an image or another array of numpy of any shape, with attributes.

    The first dimension of the structure is the last one of numpy.
    """

    def __init__(self, **properties: Unpack[Properties]) -> None:
        super().__init__(Type._normative("NTNDArray", (*_GENERAL, "display")), properties)
        _, _, members = self.type["value"]
        self._members = {code: name for name, code in members}

    def _value(self, value: Any) -> dict[str, Any]:
        import numpy

        image = numpy.asarray(value)
        flat = numpy.ascontiguousarray(image).ravel()
        code = code_of(flat)
        member = self._members.get(code)
        if member is None:
            raise ValueError(f"the elements are {image.dtype}: expected numbers or bools")
        dimensions = [
            {"size": size, "offset": 0, "fullSize": size, "binning": 1, "reverse": False} for size in image.shape[::-1]
        ]
        # 0 is monochrome; 2, 3 and 4 have the colours as the first, second and third dimension.
        colour = 0
        if image.ndim == 3:
            colour = {2: 2, 1: 3, 0: 4}.get(next((n for n in (2, 1, 0) if image.shape[n] == 3), -1), 0)
        attributes = [{"name": "ColorMode", "value": colour, "descriptor": "", "sourceType": 0, "source": ""}]
        return {
            "value": (member, flat),
            "compressedSize": flat.nbytes,
            "uncompressedSize": flat.nbytes,
            "dimension": dimensions,
            "attribute": attributes,
        }

    def change(self, value: Any = None, **properties: Unpack[Properties]) -> Structure:
        if value is None or isinstance(value, _native.Structure):
            return super().change(value, **properties)
        time = properties.setdefault("time", clock.time())
        fields = _properties.fields(properties)
        fields |= {f"dataTimeStamp.{name}": number for name, number in _properties.time_stamp(time).items()}
        return self.type.wrap({**self._value(value), "alarm": _properties.alarm({}), **fields})

    def unwrap(self, structure: Structure) -> NumpyArray[Any] | None:
        """The image, without a copy of its elements; `None` without one."""
        if structure["codec.name"]:
            raise ValueError(f"the image is compressed with {structure['codec.name']}")
        if structure["value"] is None:
            return None
        shape = [dimension["size"] for dimension in structure["dimension"]][::-1]
        image: NumpyArray[Any] = structure["value"].numpy()
        return image.reshape(shape) if shape else image


class MultiChannel(Normative):
    """NTMultiChannel: values of several PVs, as a dict by their names. `None` is a PV that is not connected."""

    def __init__(self, **properties: Unpack[Properties]) -> None:
        of_pvs = ("severity", "status", "message", "secondsPastEpoch", "nanoseconds", "isConnected")
        super().__init__(Type._normative("NTMultiChannel", (*_GENERAL, *of_pvs)), properties)

    def _value(self, value: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "value": list(value.values()),
            "channelName": list(value),
            "isConnected": [part is not None for part in value.values()],
        }

    def unwrap(self, structure: Structure) -> dict[str, Any]:
        """The values by the names of their PVs."""
        return dict(zip(structure["channelName"], structure["value"], strict=True))


class URI(Normative):
    """NTURI: the arguments of a procedure. `arguments`: the names with the codes of their types."""

    def __init__(self, arguments: Mapping[str, Any], *, path: str = "") -> None:
        super().__init__(Type._normative("NTURI", ["authority"], query=dict(arguments)), {})
        self.path = path

    def wrap(self, value: Any = None, **properties: Unpack[Properties]) -> Structure:
        """The structure with these arguments."""
        return self.change(value, **properties)

    def _value(self, value: Mapping[str, Any]) -> dict[str, Any]:
        return {"scheme": "pva", "path": self.path, "query": dict(value)}

    def unwrap(self, structure: Structure) -> dict[str, Any]:
        """The arguments."""
        return dict(structure["query"])


def of(value: Any) -> Normative | Type:
    """The type of a PV with this first value."""
    if isinstance(value, _native.Structure):
        return Type.of(value)
    if getattr(value, "ndim", 1) > 1:
        return NDArray()
    code = code_of(value)
    if code is None:
        raise TypeError(f"the type of a PV does not follow from {type(value).__name__}: pass type=")
    return ScalarArray(code) if code.startswith("a") else Scalar(code)
