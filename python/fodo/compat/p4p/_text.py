"""Values as text for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._convert import shown_name

if TYPE_CHECKING:
    from ._body import Body

_INDENT = "    "


def text_of(body: Body, bit: int) -> str:
    """A structure, or a single value, as text."""
    is_structure = body.type._nodes[bit].code == "S"
    return (_structure(body, bit, "", "") if is_structure else _single(body, "")) + "\n"


def _structure(body: Body, bit: int, name: str, indent: str) -> str:
    node = body.type._nodes[bit]
    id = f'"{node.spec[1]}" ' if node.spec[1] else ""
    end = f"}} {name}" if name else "}"
    if not node.member_bits:
        return f"struct {id}{{{end}"
    lines = [f"struct {id}{{"]
    for member, number in node.member_bits.items():
        lines.append(f"{indent}{_INDENT}{_field(body, number, member, indent + _INDENT)}")
    return "\n".join([*lines, indent + end])


def _field(body: Body, bit: int, name: str, indent: str) -> str:
    code, spec = body.type._nodes[bit].code, body.type._nodes[bit].spec
    if code == "S":
        return _structure(body, bit, name, indent)
    leaf = body.leaf(bit)
    if code == "v":
        return f"any {name} {'null' if leaf is None else _single(leaf, indent)}"
    if code == "U":
        return f"union {_quoted_id(spec)}{name}{_selected(spec, leaf, indent)}"
    if code == "aS":
        return _elements(f"struct[] {name}", [None if one is None else _single(one, indent + _INDENT) for one in leaf], indent)
    if code == "av":
        return _elements(f"any[] {name}", [None if one is None else _single(one, indent + _INDENT) for one in leaf], indent)
    if code == "aU":
        members = [
            None if pair is None else f"union {_quoted_id(spec).rstrip()}{_selected(spec, pair, indent + _INDENT)}"
            for pair in leaf
        ]
        return _elements(f"union[] {name}", members, indent)
    return _plain(code, f" {name}", leaf)


def _quoted_id(spec: Any) -> str:
    return f'"{spec[1]}" ' if spec[1] else ""


def _selected(spec: Any, pair: Any, indent: str) -> str:
    if pair is None:
        return " null"
    return f".{spec[2][pair[0]][0]} {_single(pair[1], indent)}"


def _single(body: Body, indent: str) -> str:
    """A value without a name."""
    code = body.type._nodes[0].code
    if code == "S":
        return _structure(body, 0, "", indent)
    if code in ("v", "U", "aS", "av", "aU"):
        return _field(body, 0, "", indent)
    return _plain(code, "", body.leaf(0))


def _elements(title: str, shown: list[str | None], indent: str) -> str:
    lines = [f"{indent}{_INDENT}{'null' if one is None else one}" for one in shown]
    return "\n".join([f"{title} = {{{len(shown)}}}[", *lines, f"{indent}]"]) if lines else f"{title} = {{0}}[]"


def _plain(code: str, name: str, leaf: Any) -> str:
    if code[0] != "a":
        return f"{shown_name(code)}{name} = {_element(leaf)}"
    shown = ", ".join(_element(one) for one in (leaf if code == "as" else leaf.tolist()))
    return f"{shown_name(code[1:])}[]{name} = {{{len(leaf)}}}[{shown}]"


def _element(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        return f'"{escaped}"'
    return str(value)
