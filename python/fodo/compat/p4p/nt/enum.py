"""Choices from lists of texts."""

from __future__ import annotations

from typing import Any

from .._type import Type
from ..wrapper import Value
from .common import Fields, NTBase, alarm, ntwrappercommon, timeStamp
from .scalar import meta_fields


class ntenum(ntwrappercommon, int):
    """The index of a choice, with the attributes of `ntwrappercommon`. `choice`: its text, or `None`."""

    choice: str | None = None

    def __str__(self) -> str:
        return self.choice or int.__repr__(self)

    def __repr__(self) -> str:
        return f"ntenum({int(self)}, {self.choice})"


class NTEnum(NTBase):
    """NTEnum(display=False, control=False, valueAlarm=False, extra=[]): an index with the texts of all choices."""

    def __init__(self, **kws: Any) -> None:
        super().__init__(**kws)
        # A server sends the choices only when they change.
        self._choices: list[str] = []

    @staticmethod
    def buildType(
        extra: Fields | tuple[()] = (), display: bool = False, control: bool = False, valueAlarm: bool = False
    ) -> Type:
        """The type of a structure with these options."""
        choice = ("value", ("S", "enum_t", [("index", "i"), ("choices", "as")]))
        meta = meta_fields("i", display, control, valueAlarm)
        return Type([choice, ("alarm", alarm), ("timeStamp", timeStamp), *meta, *extra], id="epics:nt/NTEnum:1.0")

    def wrap(self, value: Any, choices: list[str] | None = None, **kws: Any) -> Value:  # type: ignore[override]
        """The structure for an index or the text of a choice; a dict has `index` and `choices`, or the values of fields."""
        if isinstance(value, ntwrappercommon) and value.raw is not None:
            kws.setdefault("timestamp", value.timestamp)
            value = value.raw
        elif isinstance(value, dict):
            is_choice = not {"index", "choices"}.isdisjoint(value)
            value = Value(self.type, {"value": value} if is_choice else value)
        elif not isinstance(value, Value):
            made = Value(self.type)
            if choices is not None:
                made["value.choices"] = choices
            self.assign(made, value)
            value = made
        self._choices = value["value.choices"] or self._choices
        return self._annotate(value, **kws)

    def unwrap(self, value: Value) -> ntenum:
        """The index, with the text of the choice."""
        if value.changed("value.choices"):
            self._choices = value["value.choices"]
        index = value["value.index"]
        found: ntenum = ntenum(index)._store(value)
        if 0 <= index < len(self._choices):
            found.choice = self._choices[index]
        return found

    def assign(self, V: Value, py: Any) -> None:
        """Writes an index, or the text of a choice, to the field `value.index`."""
        if isinstance(py, bytes):
            py = py.decode()
        if isinstance(py, str):
            choices = V["value.choices"] or self._choices
            if py in choices:
                V["value.index"] = choices.index(py)
                return
            try:
                py = int(py, 0)
            except ValueError:
                raise ValueError(f'"{py}" is not a choice: expected one of {choices}') from None
        V["value.index"] = int(py)
