"""How values appear in a notebook: as small tables of HTML."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._values import Array, Structure, Value

ROWS_MAX = 10
"""Rows of a table and elements of an array that are shown; their number is shown as well."""

_COLOURS = {"MINOR": "#b58900", "MAJOR": "#dc322f", "INVALID": "#a020a0"}
"""Colours of severities that are legible on a light and on a dark background."""


def html_of_value(value: Value, shown: str) -> str:
    """A value with its units, alarm, time stamp and limits, as far as they are known."""
    rows = [(value.name, f"<b>{shown}</b> {escape(value.units or '')}")]
    if value.description:
        rows.append(("description", escape(value.description)))
    severity = value.severity.name
    if severity in _COLOURS:
        alarm = f"{severity} {value.status}"
        message = value.alarm.message
        alarm = alarm if message in ("", value.status) else f"{alarm}: {message}"
        rows.append(("alarm", f'<span style="color:{_COLOURS[severity]}">{escape(alarm)}</span>'))
    time = value.time
    if time is not None:
        rows.append(("time", f"{time.astimezone():%Y-%m-%d %H:%M:%S.%f}"))
    for name, limits in (("display", value.display_limits), ("control", value.control_limits)):
        if limits is not None and limits.low < limits.high:
            rows.append((name, f"{limits.low:g} to {limits.high:g}"))
    return _table(rows)


def html_of_array(array: Array) -> str:
    """The first elements of an array, and their number."""
    elements = [escape(repr(array[index])) for index in range(min(len(array), ROWS_MAX))]
    more = ", …" if len(array) > ROWS_MAX else ""
    return f"[{', '.join(elements)}{more}] <i>{len(array)} {escape(array.element_kind)}</i>"


def html_of_structure(structure: Structure) -> str:
    """A table of pvAccess as columns, any other structure as its fields."""
    columns = _columns(structure)
    return _table((name, _html_of(field)) for name, field in structure.items()) if columns is None else columns


def _columns(structure: Structure) -> str | None:
    """The columns of an NTTable under their labels; `None` for another structure."""
    if not structure.id.startswith("epics:nt/NTTable:"):
        return None
    labels, columns = list(structure["labels"]), [list(column) for column in structure["value"].values()]
    n_rows = max((len(column) for column in columns), default=0)
    head = "".join(f"<th>{escape(str(label))}</th>" for label in labels)
    body = ""
    for row in range(min(n_rows, ROWS_MAX)):
        cells = (escape(str(column[row])) if row < len(column) else "" for column in columns)
        body += "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"
    more = f"<i>{n_rows} rows</i>" if n_rows > ROWS_MAX else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _html_of(field: Any) -> str:
    if hasattr(field, "element_kind"):
        return html_of_array(field)
    if isinstance(field, Mapping):
        return _table((name, _html_of(inner)) for name, inner in field.items())
    return escape(str(field))


def _table(rows: Iterable[tuple[str, str]]) -> str:
    body = "".join(f'<tr><th style="text-align:left">{escape(name)}</th><td>{cell}</td></tr>' for name, cell in rows)
    return f"<table>{body}</table>"
