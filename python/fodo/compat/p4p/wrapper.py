"""Values of structures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ... import _native
from ._body import Body
from ._text import text_of
from ._type import Struct, StructArray, Type, Union, UnionArray, id_of

__all__ = ["Struct", "StructArray", "Type", "Union", "UnionArray", "Value"]

_set = object.__setattr__


class Value:
    """Value(type, initial=None): a structure of a type, with marks at the fields that have changed.

    Fields are attributes and items: `value.alarm.severity`, `value["alarm.severity"]`. A field whose name is that of a
    method is an item only. `initial`: a mapping of names to values, or another `Value`.
    """

    __slots__ = ("_Value__body", "_Value__bit")

    __body: Body
    __bit: int

    def __init__(self, type: Type, initial: Any = None) -> None:
        if not isinstance(type, Type):
            raise TypeError(f"the type of a value is a Type, not {type.__class__.__name__}")
        _set(self, "_Value__body", Body(type))
        _set(self, "_Value__bit", 0)
        if initial is not None:
            self.__body.assign(0, initial)

    @staticmethod
    def _view(body: Body, bit: int) -> Value:
        """The structure at this node."""
        value = object.__new__(Value)
        _set(value, "_Value__body", body)
        _set(value, "_Value__bit", bit)
        return value

    @staticmethod
    def _inside(value: Value) -> tuple[Body, int]:
        return value.__body, value.__bit

    @staticmethod
    def _of(received: _native.Structure, last: Type | None = None) -> Value:
        """What a server has sent. `last`: the type of the structure that was received before it, which it may share."""
        if last is None or last._native_type is None or not received._is_of(last._native_type):
            last = Type._received(received._kind)
        return Value._view(Body(last, received), 0)

    @staticmethod
    def _sent(value: Value) -> _native.Structure:
        """The value as it is sent."""
        body = value.__body if value.__bit == 0 else value.__body.part(value.__bit)
        return body.native()

    def _find(self, key: str | None) -> tuple[Body, int]:
        if key is None or key == "":
            return self.__body, self.__bit
        if not isinstance(key, str):
            raise TypeError(f"the name of a field is a text, not {type(key).__name__}")
        return self.__body.resolve(self.__bit, key)

    def __getattr__(self, name: str) -> Any:
        bit = self.__body.type._nodes[self.__bit].member_bits.get(name)
        if bit is None:
            raise AttributeError(name)
        return self.__body.read(bit)

    def __setattr__(self, name: str, value: Any) -> None:
        bit = self.__body.type._nodes[self.__bit].member_bits.get(name)
        if bit is None:
            raise AttributeError(name)
        self.__body.assign(bit, value)

    def __getitem__(self, key: str | None) -> Any:
        body, bit = self._find(key)
        return body.read(bit)

    def __setitem__(self, key: str | None, value: Any) -> None:
        if not key:
            self.__body.assign(self.__bit, value)
            return
        self._check_name(key)
        self.__body.assign_path(self.__bit, key, value)

    @staticmethod
    def _check_name(key: Any) -> None:
        if not isinstance(key, str):
            raise TypeError(f"the name of a field is a text, not {type(key).__name__}")

    def get(self, key: str | None, default: Any = None) -> Any:
        """A field, or `default` if there is none."""
        try:
            body, bit = self._find(key)
        except KeyError:
            return default
        return body.read(bit)

    def has(self, name: str) -> bool:
        """Whether there is such a field."""
        try:
            self._find(name)
        except KeyError:
            return False
        return True

    __contains__ = has

    def keys(self) -> list[str]:
        """The names of the fields."""
        return list(self.__body.type._nodes[self.__bit].member_bits)

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def items(self, key: str | None = None) -> Any:
        """The names and values of the fields; those of a field that is a structure."""
        body, bit = self._find(key)
        node = body.type._nodes[bit]
        if node.code != "S":
            found = body.read(bit)
            return found.items() if isinstance(found, Value) else found
        return [(name, body.read(member)) for name, member in node.member_bits.items()]

    def tolist(self, name: str | None = None) -> Any:
        """The structure, or a field, as a list of names and values, also inside it."""
        return self.__plain(name, list)

    def todict(
        self, name: str | None = None, wrapper: Callable[[Iterable[tuple[str, Any]]], Any] | None = None
    ) -> Any:
        """The structure, or a field, as a dict. `wrapper`: makes another mapping of names and values."""
        return self.__plain(name, wrapper or dict)

    def __plain(self, key: str | None, wrapper: Callable[[Iterable[tuple[str, Any]]], Any]) -> Any:
        try:
            body, bit = self._find(key)
        except KeyError as error:
            raise AttributeError(key) from error
        return body.plain(bit, wrapper)

    def getID(self) -> str:
        """The name of the type; `structure` if it has none."""
        return id_of(self.__body.type._nodes[self.__bit].spec)

    def type(self, fld: str | None = None) -> Type:
        """The type of the structure, or of a field."""
        body, bit = self._find(fld)
        return body.type._subtype(bit)

    def select(self, name: str, selector: str | None = None) -> None:
        """Selects a member of a union; `None` clears it."""
        body, bit = self._find(name)
        if body.type._nodes[bit].code != "U":
            raise TypeError(f"'{name}' is not a union")
        body.select(bit, selector)

    def changed(self, *fields: str | None) -> bool:
        """Whether any of these fields, a field below it or a structure around it is marked as changed; without fields whether
        any field is."""
        return any(body.is_changed(bit) for body, bit in map(self._find, fields or (None,)))

    def changedSet(self, expand: bool = False, parents: bool = False) -> set[str]:
        """The names of the fields that are marked as changed, with all fields of a structure that is marked as a whole.

        `parents`: whether the structures around them are also in the set. `expand` changes nothing, as in p4p 4.
        """
        del expand
        nodes = self.__body.type._nodes
        skipped = len(nodes[self.__bit].path) + 1 if self.__bit else 0
        return {nodes[bit].path[skipped:] for bit in self.__body.changed_bits(self.__bit, parents)}

    asSet = changedSet

    def mark(self, field: str | None = None, val: bool = True) -> None:
        """Marks a field as changed, or with `val=False` as not changed."""
        body, bit = self._find(field)
        if val:
            body.marked.add(bit)
        else:
            body.marked.discard(bit)

    def unmark(self) -> None:
        """Marks no field as changed."""
        self.__body.unmark(self.__bit)

    def clear(self) -> None:
        """Marks no field as changed."""
        self.unmark()

    def tostr(self, limit: int = 0) -> str:
        """The value as text, with at most `limit` characters unless that is 0."""
        text = text_of(self.__body, self.__bit)
        return text if not limit or len(text) <= limit else text[:limit] + "..."

    def __str__(self) -> str:
        return self.tostr()

    def __repr__(self) -> str:
        parts = []
        if self.getID() != "structure":
            parts.append("id:" + self.getID())
        members = self.__body.type._nodes[self.__bit].member_bits
        if members:
            first = members.get("value", next(iter(members.values())))
            parts.append(repr(self.__body.read(first)))
        return f"Value({', '.join(parts)})"

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("a Value cannot be copied or pickled: use Value(value.type(), value) or todict()")
