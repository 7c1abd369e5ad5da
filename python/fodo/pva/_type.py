"""Types of structures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Unpack

from .. import _native
from .._values import Array, Structure
from . import _properties
from ._properties import Properties

Spec = Any
"""A type as the native module takes it: a code, or a tuple of a shape, an id, and the members with their types."""

Fields = Mapping[str, Any] | Iterable[tuple[str, Any]]
"""The fields of a structure with their types."""

_ELEMENT_CODES = {
    "bool": "?",
    "i8": "b",
    "u8": "B",
    "i16": "h",
    "u16": "H",
    "i32": "i",
    "u32": "I",
    "i64": "l",
    "u64": "L",
    "f32": "f",
    "f64": "d",
    "enum": "H",
    "text": "s",
}
"""The codes of the kinds of elements of arrays."""

_DTYPE_CODES = {
    "b1": "?",
    "i1": "b",
    "u1": "B",
    "i2": "h",
    "u2": "H",
    "i4": "i",
    "u4": "I",
    "i8": "l",
    "u8": "L",
    "f4": "f",
    "f8": "d",
}
"""The codes of the types of numpy."""


class Union:
    """A field that holds one of several members, or none."""

    __slots__ = ("spec",)

    def __init__(self, members: Fields, *, id: str = "") -> None:
        self.spec: Spec = ("U", id, _members(members))


class Type:
    """The type of a structure.

    `fields`: the names with their types. A type is a code; another `Type` or a mapping, for a structure; a `Union`; or a list
    with one of these, for an array of them. The codes: `?` bool, `b h i l` signed and `B H I L` unsigned integers of 8, 16, 32
    and 64 bits, `f d` floating point numbers, `s` text, `v` any; with `a` before it, an array: `ad`. A text or an
    array may have a largest size, `s(40)` and `ad(8)`, and an array a fixed one, `ad[3]`.
    """

    __slots__ = ("_native", "spec")

    def __init__(self, fields: Fields, *, id: str = "") -> None:
        self.spec: Spec = ("S", id, _members(fields))
        self._native = _native.Type(self.spec)

    @classmethod
    def of(cls, structure: _native.Structure) -> Type:
        """The type of a structure."""
        return cls._of_native(structure._kind)

    @classmethod
    def _of_native(cls, native: _native.Type) -> Type:
        kind = cls.__new__(cls)
        kind._native, kind.spec = native, native.spec()
        return kind

    @classmethod
    def _normative(cls, name: str, optional: Iterable[str], **given: Any) -> Type:
        """A normative type with these optional fields. `given`: the types that its specification leaves open."""
        return cls._of_native(_native.Type.normative(name, list(optional), _members(given)))

    @property
    def id(self) -> str:
        """The name of the type; may be empty."""
        return str(self.spec[1] or "")

    def __getitem__(self, path: str) -> Any:
        """The type of a field as a code, or as a tuple of its shape, its id and its members."""
        spec = self.spec
        for name in path.split("."):
            found = dict(spec[2]).get(name) if spec[0] == "S" else None
            if found is None:
                raise KeyError(path)
            spec = found
        return spec

    def __contains__(self, path: str) -> bool:
        try:
            self[path]
        except KeyError:
            return False
        return True

    def __eq__(self, other: object) -> bool:
        return self._native == other._native if isinstance(other, Type) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<Type {self._native}>"

    def wrap(
        self, value: Mapping[str, Any] | _native.Structure | None = None, **properties: Unpack[Properties]
    ) -> Structure:
        """A structure with these fields, by name or by path; they are marked as changed. All others are 0, empty or missing.

        A union is `None`, or a pair of the name of a member and its value; `any` is `None`, a structure, or a plain value, of
        which the type follows.
        """
        if isinstance(value, _native.Structure):
            if properties:
                raise TypeError("properties are part of the structure: set its fields instead")
            return value if isinstance(value, Structure) else Structure(value)
        given = dict(value or {}) | _properties.fields(properties)
        leaves: dict[int, Any] = {}
        _add_structure(self.spec, _nested(given), 0, "", leaves)
        return Structure(self._native.structure(leaves, list(leaves), True))

    change = wrap

    def unwrap(self, structure: Structure) -> Structure:
        """The structure itself."""
        return structure


def _members(fields: Fields) -> list[tuple[str, Any]]:
    pairs = fields.items() if isinstance(fields, Mapping) else fields
    return [(name, _spec(name, kind)) for name, kind in pairs]


def _spec(name: str, kind: Any) -> Spec:
    if isinstance(kind, str):
        return kind
    if isinstance(kind, (Type, Union)):
        return kind.spec
    if isinstance(kind, Mapping):
        return ("S", "", _members(kind))
    if isinstance(kind, list) and len(kind) == 1:
        element = _spec(name, kind[0])
        if isinstance(element, str):
            return "a" + element
        if element[0] in ("S", "U"):
            return ("a" + element[0], element[1], element[2])
    if isinstance(kind, tuple) and len(kind) == 3:
        return (kind[0], kind[1], _members(kind[2]))
    raise TypeError(f"the type of {name} cannot be {kind!r}: expected a code, a Type, a Union, a mapping, or a list of one")


def _nested(value: Mapping[str, Any]) -> dict[str, Any]:
    """The fields with those that are given by paths within their structures."""
    found: dict[str, Any] = {}
    for path, part in value.items():
        name, dot, rest = path.partition(".")
        if dot:
            inner = found.get(name, {})
            found[name] = {**inner, **{rest: part}} if isinstance(inner, Mapping) else {rest: part}
        elif isinstance(part, Mapping) and isinstance(found.get(name), Mapping):
            found[name] = {**found[name], **part}
        else:
            found[name] = part
    return found


def _n_nodes(spec: Spec) -> int:
    return 1 + sum(_n_nodes(member) for _, member in spec[2]) if spec[0] == "S" else 1


def _add_structure(spec: Spec, value: Mapping[str, Any], bit: int, path: str, leaves: dict[int, Any]) -> None:
    """Adds the leaves of the given members of a structure, the node of which is `bit`."""
    left = dict(value)
    for name, member in spec[2]:
        own, bit = bit + 1, bit + _n_nodes(member)
        if name not in left:
            continue
        part, where = left.pop(name), f"{path}{name}"
        if member[0] == "S" and not isinstance(member, str):
            if not isinstance(part, Mapping):
                raise TypeError(f"{where} is a structure: expected a mapping, not {type(part).__name__}")
            _add_structure(member, _nested(part), own, f"{where}.", leaves)
        else:
            leaves[own] = _leaf(member, part, where)
    if left:
        names = ", ".join(name for name, _ in spec[2]) or "none"
        raise KeyError(f"there is no field {path}{min(left)}: expected one of {names}")


def _leaf(spec: Spec, value: Any, path: str) -> Any:
    """The value of a node as the native module takes it."""
    if spec == "v":
        return _any(value, path)
    if spec == "av":
        return [_any(element, path) for element in value]
    if isinstance(spec, str):
        return value
    shape, id, members = spec
    if shape == "aS":
        element = ("S", id, members)
        return [None if part is None else _whole(element, part, f"{path}[{n}]") for n, part in enumerate(value)]
    if shape == "aU":
        return [_selected(members, part, f"{path}[{n}]") for n, part in enumerate(value)]
    return _selected(members, value, path)


def _whole(spec: Spec, value: Any, path: str) -> _native.Structure:
    """A value of a type of its own."""
    kind = _native.Type(spec)
    if isinstance(value, _native.Structure) and value._kind == kind:
        return value
    leaves: dict[int, Any] = {}
    if spec[0] == "S" and not isinstance(spec, str):
        if not isinstance(value, Mapping):
            raise TypeError(f"{path} is a structure: expected a mapping, not {type(value).__name__}")
        _add_structure(spec, _nested(value), 0, f"{path}.", leaves)
    else:
        leaves[0] = _leaf(spec, value, path)
    return kind.structure(leaves, list(leaves), True)


def _selected(members: list[tuple[str, Any]], value: Any, path: str) -> tuple[int, _native.Structure] | None:
    """The member of a union with its value."""
    if value is None:
        return None
    names = [name for name, _ in members]
    if not isinstance(value, tuple) or len(value) != 2 or value[0] not in names:
        expected = ", ".join(repr(name) for name in names)
        raise TypeError(f"{path} is a union: expected None, or a pair of a member, one of {expected}, and its value")
    index = names.index(value[0])
    return index, _whole(members[index][1], value[1], f"{path}.{value[0]}")


def _any(value: Any, path: str) -> _native.Structure | None:
    if value is None or isinstance(value, _native.Structure):
        return value
    code = code_of(value)
    if code is None:
        raise TypeError(f"the type of {path} is unknown: expected a number, a text, an array, or a structure")
    return _whole(code, value, path)


def code_of(value: Any) -> str | None:
    """The code of the type of a plain value or of an array of them; `None` for others."""
    if isinstance(value, bool):
        return "?"
    if isinstance(value, int):
        return "l"
    if isinstance(value, float):
        return "d"
    if isinstance(value, str):
        return "s"
    if isinstance(value, (bytes, bytearray)):
        return "aB"
    if isinstance(value, Array):
        return "a" + _ELEMENT_CODES[value.element_kind]
    dtype = getattr(value, "dtype", None)
    if dtype is not None:
        code = "s" if dtype.kind in "US" else _DTYPE_CODES.get(f"{dtype.kind}{dtype.itemsize}")
        return code if code is None or value.ndim == 0 else "a" + code
    if isinstance(value, (list, tuple)):
        codes = {code_of(element) for element in value} or {"d"}
        if codes <= {"?", "l", "d", "s"} and ("s" not in codes or len(codes) == 1):
            return "a" + ("s" if "s" in codes else "d" if "d" in codes else "l" if "l" in codes else "?")
    return None
