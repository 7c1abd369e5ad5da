"""The fields of a value and what has changed of them."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ... import _native
from . import _convert
from ._type import Type

if TYPE_CHECKING:
    from .wrapper import Value

_MISSING: Any = object()
_STEP = re.compile(r"(?P<name>[^.\[\]>-]+)|\[(?P<index>\d+)\]|->(?P<member>[^.\[\]>-]+)|\.")


class Body:
    """The fields of one structure, which all `Value`s that refer to it share; or a single value without a name.

    What was received is converted when it is first read.
    """

    __slots__ = ("__weakref__", "leaves", "marked", "source", "type", "written")

    def __init__(self, type: Type, source: _native.Structure | None = None) -> None:
        self.type = type
        self.source = source
        self.leaves: dict[int, Any] = {}
        self.written: set[int] = set()
        self.marked: set[int] = set() if source is None else self._received_marks(source)

    def _received_marks(self, source: _native.Structure) -> set[int]:
        """What the server has marked; in place of a structure the fields in it."""
        nodes = self.type._nodes
        found = set(source._bits())
        for whole in [bit for bit in found if nodes[bit].code == "S"]:
            found.discard(whole)
            found.update(bit for bit in range(whole, nodes[whole].end) if nodes[bit].code != "S")
        return found

    @staticmethod
    def single(code: str, value: Any) -> Body:
        """A value that is not a structure."""
        body = Body(Type._of(code))
        body.assign(0, value)
        return body

    # What is read.

    def leaf(self, bit: int) -> Any:
        """The value of a node without members: a number, a text, an array; bodies for structures, and pairs of the index of a
        member and its body for unions."""
        leaf = self.leaves.get(bit, _MISSING)
        if leaf is _MISSING:
            leaf = self.leaves[bit] = self._initial(bit) if self.source is None else self._received(bit, self.source)
        return leaf

    def _initial(self, bit: int) -> Any:
        code = self.type._nodes[bit].code
        if code in ("U", "v"):
            return None
        return [] if code in ("aS", "aU", "av") else _convert.initial(code)

    def _received(self, bit: int, source: _native.Structure) -> Any:
        code, leaf = self.type._nodes[bit].code, source._leaf(bit)
        if code in ("aS", "av"):
            return [None if element is None else self._part(bit, code, 0, element) for element in leaf]
        if code == "aU":
            return [None if element is None else self._selected(bit, element) for element in leaf]
        if code in ("U", "v") and leaf is not None:
            return self._selected(bit, leaf) if code == "U" else self._part(bit, code, 0, leaf)
        return _convert.received_array(leaf) if code[0] == "a" else leaf

    def _selected(self, bit: int, pair: tuple[int, _native.Structure]) -> tuple[int, Body]:
        return pair[0], self._part(bit, "U", *pair)

    def _part(self, bit: int, code: str, selector: int, part: _native.Structure) -> Body:
        kind = Type._received(part._kind) if code in ("v", "av") else self.type._part(bit, selector)
        body = Body(kind, part)
        # It was received as a whole.
        body.marked = {0}
        return body

    def read(self, bit: int) -> Any:
        """The value of a node, as users see it."""
        code = self.type._nodes[bit].code
        if code == "S":
            return _value(self, bit)
        leaf = self.leaf(bit)
        if code in ("aS", "av"):
            return [None if body is None else body.read(0) for body in leaf]
        if code == "aU":
            return [None if pair is None else pair[1].read(0) for pair in leaf]
        if leaf is None:
            return None
        if code == "v":
            return leaf.read(0)
        if code == "U":
            return leaf[1].read(0)
        return list(leaf) if code == "as" else leaf

    def plain(self, bit: int, wrap: Callable[[Iterable[tuple[str, Any]]], Any]) -> Any:
        """The value of a node with `wrap` applied to the names and values of each structure."""
        node = self.type._nodes[bit]
        if node.code == "S":
            return wrap([(name, self.plain(member, wrap)) for name, member in node.member_bits.items()])
        leaf = self.leaf(bit)
        if node.code in ("aS", "av"):
            return [None if body is None else body.plain(0, wrap) for body in leaf]
        if node.code == "aU":
            return [None if pair is None else pair[1].plain(0, wrap) for pair in leaf]
        if leaf is None:
            return None
        if node.code in ("U", "v"):
            return (leaf if node.code == "v" else leaf[1]).plain(0, wrap)
        return list(leaf) if node.code == "as" else leaf

    def resolve(self, start: int, path: str, may_select: bool = False) -> tuple[Body, int]:
        """The body and the node of a path, such as `alarm.severity`, `dimension[0].size` or `value->intValue`."""
        bit = self.type._find(start, path)
        if bit is not None:
            return self, bit
        if "[" not in path and "->" not in path:
            raise KeyError(f"no such member field '{path}'")
        body, bit, end = self, start, 0
        while end < len(path):
            step = _STEP.match(path, end)
            if step is None:
                raise KeyError(f"the path '{path}' is invalid")
            end = step.end()
            found = body._step(bit, step, may_select)
            if found is None:
                raise KeyError(f"no such member field '{path}'")
            body, bit = found
        return body, bit

    def _step(self, bit: int, step: re.Match[str], may_select: bool) -> tuple[Body, int] | None:
        node = self.type._nodes[bit]
        if step["name"] is not None:
            member = node.member_bits.get(step["name"])
            if member is None and node.code == "v":
                contents = self.leaf(bit)
                return None if contents is None else contents._step(0, step, may_select)
            return None if member is None else (self, member)
        if step["index"] is not None:
            elements = self.leaf(bit) if node.code in ("aS", "aU", "av") else []
            index = int(step["index"])
            element = elements[index] if index < len(elements) else None
            if element is None:
                return None
            return (element[1] if node.code == "aU" else element), 0
        if step["member"] is not None:
            return self._member(bit, step["member"], may_select)
        return self, bit

    def _member(self, bit: int, name: str, may_select: bool) -> tuple[Body, int] | None:
        """A member of a union by its name."""
        node = self.type._nodes[bit]
        if node.code != "U":
            return None
        selector = self._selector(bit, name)
        current = self.leaf(bit)
        if current is None or current[0] != selector:
            if not may_select:
                raise KeyError(f"member '{name}' of the union '{node.path}' is not selected")
            self.select(bit, name)
            current = self.leaf(bit)
        return current[1], 0

    def _selector(self, bit: int, name: str) -> int:
        names = [member for member, _ in self.type._nodes[bit].spec[2]]
        if name not in names:
            raise KeyError(f"the union '{self.type._nodes[bit].path}' has no member '{name}': it has {', '.join(names)}")
        return names.index(name)

    def select(self, bit: int, name: str | None) -> None:
        """Selects a member of a union."""
        current = self.leaf(bit)
        if name is None:
            self.write(bit, None)
            return
        selector = self._selector(bit, name)
        if current is None or current[0] != selector:
            self.write(bit, (selector, Body(self.type._part(bit, selector))))

    # What is written.

    def write(self, bit: int, leaf: Any) -> None:
        """Replaces the value of a node, and marks it as changed."""
        self.leaves[bit] = leaf
        self.written.add(bit)
        self.marked.add(bit)

    def assign(self, bit: int, value: Any) -> None:
        """Converts an object to the type of a node and writes it."""
        node = self.type._nodes[bit]
        code = node.code
        if code == "S":
            self._assign_structure(bit, value)
        elif code in ("aS", "aU", "av"):
            if isinstance(value, (str, bytes)) or not hasattr(value, "__iter__"):
                raise TypeError(f"'{node.path}' is assigned from a sequence, not {type(value).__name__}")
            converters: dict[str, Callable[[int, Any], Any]] = {"aS": self._element, "aU": self._choose, "av": self._any}
            convert = converters[code]
            self.write(bit, [None if element is None else convert(bit, element) for element in value])
        elif code == "v":
            self.write(bit, None if value is None else self._any(bit, value))
        elif code == "U":
            self.write(bit, None if value is None else self._choose(bit, value, self.leaf(bit)))
        elif code[0] == "a":
            self.write(bit, _convert.array(code, value))
        else:
            self.write(bit, _convert.scalar(code, value))

    def _assign_structure(self, bit: int, value: Any) -> None:
        from .wrapper import Value

        node = self.type._nodes[bit]
        if isinstance(value, Value):
            self.copy_changed(bit, *Value._inside(value))
            return
        if isinstance(value, Mapping):
            pairs: Iterable[Any] = value.items()
        elif node.spec[1] == "enum_t" and "index" in node.member_bits and not isinstance(value, (list, tuple)):
            self._assign_choice(node.member_bits, value)
            return
        else:
            pairs = value
        for path, member in pairs:
            body, found = self.resolve(bit, path, may_select=True)
            body.assign(found, member)
            if body is not self:
                self._mark_owner(bit, path)

    def _mark_owner(self, start: int, path: str) -> None:
        """Marks the field that contains an element or a member that was written."""
        owner = self.type._find(start, re.split(r"\[|->", path, maxsplit=1)[0])
        if owner is not None:
            self.written.add(owner)
            self.marked.add(owner)

    def assign_path(self, start: int, path: str, value: Any) -> None:
        """Writes the field at a path."""
        body, bit = self.resolve(start, path, may_select=True)
        body.assign(bit, value)
        if body is not self:
            self._mark_owner(start, path)

    def _assign_choice(self, member_bits: dict[str, int], value: Any) -> None:
        """An enum is also assigned from a choice or an index."""
        if isinstance(value, bytes):
            value = value.decode()
        if isinstance(value, str):
            choices = self.leaf(member_bits["choices"]) if "choices" in member_bits else []
            value = _convert.choice_index(choices, value)
        self.assign(member_bits["index"], value)

    def copy_changed(self, bit: int, other: Body, start: int) -> None:
        """Writes what has changed of another structure to the fields with the same names."""
        theirs, below = other.type._nodes, len(other.type._nodes[start].path)
        for number in range(start, theirs[start].end):
            node = theirs[number]
            if node.code == "S" or not other.is_changed(number):
                continue
            path = node.path[below + 1 :] if below else node.path
            target = self.type._find(bit, path)
            if target is None:
                raise KeyError(f"no such member field '{path}'")
            if self is other and target == number:
                continue
            if self.type._nodes[target].spec == node.spec:
                self.write(target, other.leaf(number))
            else:
                self.assign(target, other._assignable(number))

    def _assignable(self, bit: int) -> Any:
        """The value of a node, which `assign` converts to another type."""
        return self.read(bit)

    def _element(self, bit: int, value: Any) -> Body:
        """An element of an array of structures."""
        from .wrapper import Value

        kind = self.type._part(bit, 0)
        if isinstance(value, Value):
            body, start = Value._inside(value)
            if start == 0 and (body.type is kind or body.type._spec == kind._spec):
                return body
        element = Body(kind)
        element._assign_structure(0, value)
        return element

    def _any(self, bit: int, value: Any) -> Body:
        """The contents of a variant union."""
        from .wrapper import Value

        if isinstance(value, Value):
            body, start = Value._inside(value)
            return body if start == 0 else body.part(start)
        if isinstance(value, tuple):
            if len(value) != 2 or not isinstance(value[0], str):
                raise TypeError("a variant union is assigned from a value or a tuple (code, value)")
            return Body.single(Type([("any", value[0])])._nodes[1].code, value[1])
        return Body.single(_convert.inferred(value), value)

    def _choose(self, bit: int, value: Any, current: tuple[int, Body] | None = None) -> tuple[int, Body]:
        """A member of a union with its value: the named one, the one that is selected, or the first that accepts it."""
        members = self.type._nodes[bit].spec[2]
        if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str):
            named = [index for index, (name, _) in enumerate(members) if name == value[0]]
            if named:
                return named[0], self._member_of(bit, named[0], value[1])
            if not any(spec == "as" for _, spec in members):
                raise KeyError(f"the union '{self.type._nodes[bit].path}' has no member '{value[0]}'")
        if current is not None:
            return current[0], self._member_of(bit, current[0], value)
        try:
            wanted = _convert.inferred(value)
        except TypeError:
            wanted = ""
        exact = [index for index, (_, spec) in enumerate(members) if spec == wanted]
        for selector in [*exact, *range(len(members))]:
            try:
                return selector, self._member_of(bit, selector, value)
            except (TypeError, ValueError, KeyError, RuntimeError, OverflowError):
                continue
        raise TypeError(f"no member of the union '{self.type._nodes[bit].path}' accepts {type(value).__name__}")

    def _member_of(self, bit: int, selector: int, value: Any) -> Body:
        kind = self.type._part(bit, selector)
        if kind._nodes[0].code == "S":
            from .wrapper import Value

            if isinstance(value, Value):
                body, start = Value._inside(value)
                if start == 0 and body.type._spec == kind._spec:
                    return body
        member = Body(kind)
        member.assign(0, value)
        return member

    def part(self, bit: int) -> Body:
        """A copy of a structure inside this one."""
        part = Body(self.type._subtype(bit))
        for number in range(bit, self.type._nodes[bit].end):
            if self.type._nodes[number].code != "S":
                part.leaves[number - bit] = self.leaf(number)
                part.written.add(number - bit)
        part.marked = {number - bit for number in self.marked if bit <= number < self.type._nodes[bit].end}
        return part

    # What has changed.

    def is_changed(self, bit: int) -> bool:
        """Whether a node, one below it or a structure around it is marked."""
        node, marked = self.type._nodes[bit], self.marked
        if bit in marked or any(parent in marked for parent in node.parents):
            return True
        return any(bit < number < node.end for number in marked)

    def changed_bits(self, start: int, with_parents: bool) -> set[int]:
        """The marked nodes below a structure, those below marked ones, and on request the structures around them."""
        nodes = self.type._nodes
        first, end = start, nodes[start].end
        if start in self.marked or any(parent in self.marked for parent in nodes[start].parents):
            return set(range(first + 1, end))
        found: set[int] = set()
        for number in self.marked:
            if first < number < end:
                found.update(range(number, nodes[number].end))
        if with_parents:
            for number in tuple(found):
                found.update(parent for parent in nodes[number].parents if parent > start)
        return found

    def unmark(self, start: int) -> None:
        """Nothing below a structure counts as changed; what is marked around it stays marked."""
        end = self.type._nodes[start].end
        self.marked = {number for number in self.marked if not start <= number < end}

    # What is sent.

    def native(self) -> _native.Structure:
        """The fields as they are sent."""
        leaves = {bit: self._sent(bit) for bit in self.leaves if bit in self.written or self._is_container(bit)}
        if self.source is None:
            return self.type._native.structure(leaves, sorted(self.marked))
        if not leaves and self.marked == self._received_marks(self.source):
            return self.source
        return self.source._with(leaves, sorted(self.marked))

    def _is_container(self, bit: int) -> bool:
        """Whether the node refers to values that may have been written on their own."""
        return self.type._nodes[bit].code in ("aS", "aU", "av", "U", "v")

    def _sent(self, bit: int) -> Any:
        code, leaf = self.type._nodes[bit].code, self.leaf(bit)
        if code in ("aS", "av"):
            return [None if body is None else body.native() for body in leaf]
        if code == "aU":
            return [None if pair is None else (pair[0], pair[1].native()) for pair in leaf]
        if leaf is None or code not in ("U", "v"):
            return leaf
        return leaf.native() if code == "v" else (leaf[0], leaf[1].native())


def _value(body: Body, bit: int) -> Value:
    from .wrapper import Value

    return Value._view(body, bit)


def n_alive() -> int:
    """How many bodies exist."""
    return sum(1 for found in gc.get_objects() if type(found) is Body)
