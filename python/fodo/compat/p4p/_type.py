"""Types of structures."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from ... import _native

if TYPE_CHECKING:
    from .wrapper import Value

Spec = Any
"""A code such as `d` or `as`, a `Type`, or a tuple of `S`, `U`, `aS` or `aU`, an id and a list of names with their specs."""

ELEMENT_CODES = "?sbBhHiIlLfd"
_CODES = {*ELEMENT_CODES, *("a" + code for code in ELEMENT_CODES), "v", "av"}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_NO_ID = "structure"
"""How a type without an id is shown."""


def Struct(spec: Iterable[tuple[str, Spec]] | None = None, id: str | None = None) -> Spec:
    """The type of a field that is a structure."""
    return ("S", id, spec)


def Union(spec: Iterable[tuple[str, Spec]] | None = None, id: str | None = None) -> Spec:
    """The type of a field that is a union."""
    return ("U", id, spec)


def StructArray(spec: Iterable[tuple[str, Spec]] | None = None, id: str | None = None) -> Spec:
    """The type of a field that is an array of structures."""
    return ("aS", id, spec)


def UnionArray(spec: Iterable[tuple[str, Spec]] | None = None, id: str | None = None) -> Spec:
    """The type of a field that is an array of unions."""
    return ("aU", id, spec)


class Node(NamedTuple):
    """A field, with the fields below it."""

    path: str
    code: str
    spec: Spec
    end: int
    """The number after the last field below it."""

    parents: tuple[int, ...]
    """The structures that contain it, the innermost last."""

    member_bits: dict[str, int]
    """The fields of a structure by their names."""


class Type:
    """Type(spec, id=None, base=None): the type of a structure; `Value.type` also gives the types of single fields.

    `spec`: a list of names with their types. A type is a code, another `Type`, or a tuple `("S", id, [...])` of a structure,
    `("U", id, [...])` of a union, `("aS", ...)` and `("aU", ...)` of arrays of these. `id`: the name of the type. `base`: a
    type whose fields come first.

    Codes: `?` bool, `s` text, `b` `h` `i` `l` integers of 8 to 64 bits, `B` `H` `I` `L` unsigned ones, `f` `d` floating-point
    numbers of 32 and 64 bits, `v` a value of any type; `a` and a code for an array.
    """

    __slots__ = ("_native_type", "_nodes", "_parts", "_spec", "__weakref__")

    _spec: Spec
    _nodes: list[Node]
    _native_type: _native.Type | None
    _parts: dict[int | tuple[int, int], Type]

    def __init__(
        self, spec: Iterable[tuple[str, Spec]], id: str | None = None, base: Type | None = None
    ) -> None:
        if base is not None and id is not None:
            raise ValueError("id= and base= exclude each other: the id is that of base")
        if isinstance(spec, (str, dict)):
            raise TypeError(f'a type is a list such as [("value", "d")], not {type(spec).__name__}')
        fields = [] if base is None else list(base._spec[2])
        shape, own_id, merged = _checked(("S", id if base is None else base._spec[1], [*fields, *spec]), "")
        self._set((shape, own_id, merged), None)

    @classmethod
    def _of(cls, spec: Spec, native: _native.Type | None = None) -> Type:
        """The type of a checked spec; also of a single field."""
        made = cls.__new__(cls)
        made._set(spec, native)
        return made

    @classmethod
    def _received(cls, native: _native.Type) -> Type:
        """The type of what a server has sent."""
        return cls._of(native.spec(), native)

    def _set(self, spec: Spec, native: _native.Type | None) -> None:
        self._spec = spec
        self._native_type = native
        self._parts = {}
        self._nodes = []
        _flatten(self._nodes, "", spec, ())

    @property
    def _native(self) -> _native.Type:
        if self._native_type is None:
            self._native_type = _native.Type(self._spec)
        return self._native_type

    def _find(self, start: int, path: str) -> int | None:
        """The number of a field below another one."""
        for name in path.split("."):
            found = self._nodes[start].member_bits.get(name)
            if found is None:
                return None
            start = found
        return start

    def _bit(self, path: str | None) -> int:
        if not path:
            return 0
        bit = self._find(0, path)
        if bit is None:
            raise KeyError(f"no such member field '{path}'")
        return bit

    def _subtype(self, bit: int) -> Type:
        """The type of a field."""
        if bit == 0:
            return self
        part = self._parts.get(bit)
        if part is None:
            part = self._parts[bit] = Type._of(self._nodes[bit].spec)
        return part

    def _part(self, bit: int, selector: int) -> Type:
        """The type of an element of an array of structures, or of a member of a union."""
        part = self._parts.get((bit, selector))
        if part is None:
            shape, id, members = self._nodes[bit].spec
            spec = ("S", id, members) if shape == "aS" else members[selector][1]
            native = None if self._native_type is None else self._native_type.part(bit, selector)
            part = self._parts[bit, selector] = Type._of(spec, native)
        return part

    def _shown(self, bit: int) -> Any:
        return self._subtype(bit) if self._nodes[bit].code == "S" else _shown(self._nodes[bit].spec)

    def getID(self) -> str:
        """The name of the type; `structure` if it has none."""
        return id_of(self._spec)

    def aspy(self, name: str | None = None) -> Any:
        """The type, or that of a field, as a tuple or a code."""
        return _shown(self._nodes[self._bit(name)].spec)

    def has(self, name: str) -> bool:
        """Whether there is such a field."""
        return self._find(0, name) is not None

    __contains__ = has

    def keys(self) -> list[str]:
        """The names of the fields."""
        return [name for name, _ in _members(self._spec)]

    def items(self) -> list[tuple[str, Any]]:
        """The names of the fields with their types."""
        if self._nodes[0].code != "S":
            return [(name, _shown(kind)) for name, kind in _members(self._spec)]
        return [(name, self._shown(bit)) for name, bit in self._nodes[0].member_bits.items()]

    def values(self) -> list[Any]:
        """The types of the fields."""
        return [kind for _, kind in self.items()]

    def __getitem__(self, key: str | None) -> Any:
        return self._shown(self._bit(key))

    def __len__(self) -> int:
        return len(_members(self._spec))

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __call__(self, initial: Any = None) -> Value:
        """A value of this type."""
        from .wrapper import Value

        return Value(self, initial)

    def __reduce__(self) -> tuple[Any, ...]:
        return Type._of, (self._spec,)

    def __repr__(self) -> str:
        if isinstance(self._spec, str):
            return f"<Type {self._spec}>"
        _, id, fields = self.aspy()
        return f'Type({fields}, id="{id}")'

    __str__ = __repr__

    def tostr(self, limit: int = 0) -> str:
        """The type as text, with at most `limit` characters unless that is 0."""
        text = repr(self)
        return text if not limit or len(text) <= limit else text[:limit] + "..."


def _checked(spec: Spec, name: str) -> Spec:
    """The spec with lists and without objects of other classes."""
    if isinstance(spec, str):
        if spec not in _CODES:
            raise RuntimeError(f'unknown type code "{spec}" of field "{name}"')
        return spec
    if isinstance(spec, Type):
        return spec._spec
    try:
        shape, id, members = spec
        pairs = [(member, kind) for member, kind in members or ()]
    except (TypeError, ValueError):
        raise TypeError(f'the type of field "{name}" is a code, a Type or a tuple (code, id, fields), not {spec!r}') from None
    if shape not in ("S", "U", "aS", "aU"):
        raise RuntimeError(f'unknown type code "{shape}" of field "{name}"')
    # A field that is given twice has the later type, unless both are structures: then it has the fields of both.
    merged: dict[str, Spec] = {}
    for member, kind in pairs:
        if not isinstance(member, str) or not _NAME.match(member):
            raise RuntimeError(f"invalid field name {member!r}")
        checked, before = _checked(kind, member), merged.get(member)
        if isinstance(before, tuple) and isinstance(checked, tuple) and before[0] == checked[0] == "S":
            checked = _checked(("S", checked[1] or before[1], [*before[2], *checked[2]]), member)
        merged[member] = checked
    return shape, "" if id in (None, _NO_ID) else id, list(merged.items())


def id_of(spec: Spec) -> str:
    """The name of a type, as it is shown."""
    return _NO_ID if isinstance(spec, str) else spec[1] or _NO_ID


def _members(spec: Spec) -> list[tuple[str, Spec]]:
    """The fields of a structure, of a union or of the elements of an array of these."""
    return [] if isinstance(spec, str) else spec[2]


def _shown(spec: Spec) -> Spec:
    if isinstance(spec, str):
        return spec
    shape, id, members = spec
    return shape, id or _NO_ID, [(name, _shown(kind)) for name, kind in members]


def _flatten(nodes: list[Node], path: str, spec: Spec, parents: tuple[int, ...]) -> None:
    """Adds a field and those below it; their numbers are those of the protocol."""
    bit = len(nodes)
    code = spec if isinstance(spec, str) else spec[0]
    member_bits: dict[str, int] = {}
    nodes.append(Node(path, code, spec, bit + 1, parents, member_bits))
    if code == "S":
        for name, kind in spec[2]:
            member_bits[name] = len(nodes)
            _flatten(nodes, f"{path}.{name}" if path else name, kind, (*parents, bit))
        nodes[bit] = nodes[bit]._replace(end=len(nodes))
