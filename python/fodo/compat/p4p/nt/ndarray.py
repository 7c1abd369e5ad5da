"""Arrays of numpy with more attributes."""

from __future__ import annotations

from typing import Any

import numpy

from .._type import Type
from ..wrapper import Value
from .common import Fields, NTBase, alarm, ntwrappercommon, timeStamp


class ntnumericarray(ntwrappercommon, numpy.ndarray[Any, numpy.dtype[Any]]):
    """An array of numpy with the attributes of `ntwrappercommon`."""

    @classmethod
    def build(cls, val: Any) -> ntnumericarray:
        """A view of an array of one dimension."""
        if val.ndim != 1:
            raise ValueError(f"the array has {val.ndim} dimensions: expected one")
        view: ntnumericarray = val.view(cls)
        return view


class ntndarray(ntwrappercommon, numpy.ndarray[Any, numpy.dtype[Any]]):
    """An image with the attributes of `ntwrappercommon`, and those of its source in the dict `attrib`."""

    attrib: dict[str, Any]

    def __array_finalize__(self, source: Any) -> None:
        self.attrib = dict(getattr(source, "attrib", None) or {})

    def _store(self, value: Value) -> Any:
        super()._store(value)
        elements = value.get("attribute", [])
        self.attrib = {element["name"]: element["value"] for element in elements if element is not None}
        # The first dimension of an image of areaDetector is the one that changes fastest.
        shape = [dimension["size"] for dimension in reversed(value["dimension"])]
        shaped: ntndarray = self.reshape(shape or [self.size])  # type: ignore[assignment]
        shaped.raw = value
        return shaped


# The member of the union `value` for each code of numpy.
_MEMBERS = {
    "?": "booleanValue",
    "i1": "byteValue",
    "i2": "shortValue",
    "i4": "intValue",
    "i8": "longValue",
    "u1": "ubyteValue",
    "u2": "ushortValue",
    "u4": "uintValue",
    "u8": "ulongValue",
    "f4": "floatValue",
    "f8": "doubleValue",
}
_CODES = dict(zip(_MEMBERS, ("a?", "ab", "ah", "ai", "al", "aB", "aH", "aI", "aL", "af", "ad"), strict=True))
_RGB1 = 2
"""The color mode of pixels whose colors are next to each other; RGB2 and RGB3 follow."""


def _member_of(dtype: numpy.dtype[Any]) -> str:
    name = "?" if dtype.kind == "b" else f"{dtype.kind}{dtype.itemsize}"
    if name not in _MEMBERS:
        raise ValueError(f"an image cannot have elements of type {dtype}")
    return _MEMBERS[name]


class NTNDArray(NTBase):
    """NTNDArray(extra=[]): an image of one to three dimensions."""

    ntndarray = ntndarray

    @staticmethod
    def buildType(extra: Fields | tuple[()] = ()) -> Type:
        """The type of a structure with more fields."""
        integers = ("size", "offset", "fullSize", "binning")
        fields: Fields = [
            ("value", ("U", None, [(member, _CODES[name]) for name, member in _MEMBERS.items()])),
            ("codec", ("S", "codec_t", [("name", "s"), ("parameters", "v")])),
            ("compressedSize", "l"),
            ("uncompressedSize", "l"),
            ("uniqueId", "i"),
            ("dataTimeStamp", timeStamp),
            ("alarm", alarm),
            ("timeStamp", timeStamp),
            ("dimension", ("aS", "dimension_t", [*((name, "i") for name in integers), ("reverse", "?")])),
        ]
        attribute: Fields = [("name", "s"), ("value", "v"), ("tags", "as"), ("descriptor", "s"), ("alarm", alarm)]
        attribute += [("timeStamp", timeStamp), ("sourceType", "i"), ("source", "s")]
        fields.append(("attribute", ("aS", "epics:nt/NTAttribute:1.0", attribute)))
        return Type([*fields, *extra], id="epics:nt/NTNDArray:1.0")

    def assign(self, V: Value, py: Any) -> None:
        """Writes an array of numpy to a structure."""
        super().assign(V, py)

    def wrap(self, value: Any, attrib: dict[str, Any] | None = None, **kws: Any) -> Value:  # type: ignore[override]
        """The structure for an array. `attrib`, or the attribute of that name, are the attributes of the image; `ColorMode` is
        derived from the shape if it is missing."""
        if isinstance(value, Value):
            return self._annotate(value, **kws)
        attributes = dict(getattr(value, "attrib", None) or attrib or {})
        pixels = numpy.asarray(value).view(numpy.ndarray)
        sizes = tuple(reversed(pixels.shape))
        if "ColorMode" not in attributes and pixels.ndim == 2:
            attributes["ColorMode"] = 0
        elif "ColorMode" not in attributes and pixels.ndim == 3:
            if 3 not in sizes:
                raise ValueError(f"none of the dimensions {pixels.shape} is that of 3 colors: pass attrib with ColorMode")
            attributes["ColorMode"] = _RGB1 + sizes.index(3)
        dimensions = [{"size": n, "offset": 0, "fullSize": n, "binning": 1, "reverse": False} for n in sizes]
        fields = {
            "value": (_member_of(pixels.dtype), pixels.flatten()),
            "compressedSize": pixels.nbytes,
            "uncompressedSize": pixels.nbytes,
            "uniqueId": 0,
            "attribute": [translateNDAttribute(name, found) for name, found in attributes.items()],
            "dimension": dimensions,
        }
        return self._annotate(Value(self.type, fields), **kws)

    @classmethod
    def unwrap(cls, value: Value) -> Any:
        """An array of numpy with the shape of the image."""
        pixels = value["value"]
        if pixels is None:
            pixels = numpy.zeros(0, dtype=numpy.uint8)
        return pixels.view(cls.ntndarray)._store(value)


def translateNDAttribute(name: str, value: Any) -> dict[str, Any]:  # noqa: N802
    """An element of `attribute`; of a structure with a value, that value with its alarm and its time stamp."""
    if isinstance(value, Value) and "value" in value:
        shared = [key for key in ("value", "alarm", "timeStamp") if key in value]
        return {"name": name, **{key: value[key] for key in shared}}
    return {"name": name, "value": value}
