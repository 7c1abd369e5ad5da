"""Tables, several channels in one structure, and arguments of procedures."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any

from .._type import Type
from ..wrapper import Value
from .common import Fields, NTBase, alarm, timeStamp


class NTMultiChannel(NTBase):
    """NTMultiChannel(valtype, extra=[]): an array with a value of each channel, whose other fields are arrays as well."""

    @staticmethod
    def buildType(valtype: str, extra: Fields | tuple[()] = ()) -> Type:
        """The type of a structure. `valtype`: the code of an array."""
        if valtype[:1] != "a":
            raise ValueError(f'the values of channels are an array: the code is "a{valtype}", not "{valtype}"')
        fields: Fields = [("value", valtype), ("channelName", "as"), ("descriptor", "s")]
        fields += [("alarm", alarm), ("timeStamp", timeStamp)]
        fields += [("severity", "ai"), ("status", "ai"), ("message", "as")]
        fields += [("secondsPastEpoch", "al"), ("nanoseconds", "ai"), ("userTag", "ai"), ("isConnected", "a?")]
        return Type([*fields, *extra], id="epics:nt/NTMultiChannel:1.0")

    def wrap(self, pyval: Any, **kws: Any) -> Value:
        """The structure for the values of its fields in a dict, or for an array."""
        if not isinstance(pyval, Value):
            pyval = Value(self.type, pyval if isinstance(pyval, dict) else {"value": pyval})
        return self._annotate(pyval, **kws)

    def unwrap(self, V: Value) -> Value:
        """The structure itself."""
        return V


class NTTable(NTBase):
    """NTTable(columns=[], extra=[]): a table. `columns`: their names with the codes of their elements."""

    def __init__(self, columns: Iterable[tuple[str, str]] = (), extra: Fields | tuple[()] = ()) -> None:
        arrays: Fields = []
        for name, code in columns:
            if code[0] == "a":
                raise ValueError(f'column "{name}" is given by the code of its elements: "{code[1:]}", not "{code}"')
            arrays.append((name, "a" + code))
        self.labels = [name for name, _ in arrays]
        super().__init__(arrays, extra)

    @staticmethod
    def buildType(columns: Iterable[tuple[str, str]] = (), extra: Fields | tuple[()] = ()) -> Type:
        """The type of a structure. `columns`: their names with the codes of their arrays."""
        fields: Fields = [("labels", "as"), ("value", ("S", None, list(columns))), ("descriptor", "s")]
        return Type([*fields, ("alarm", alarm), ("timeStamp", timeStamp), *extra], id="epics:nt/NTTable:1.0")

    def wrap(  # type: ignore[override]  # with the names of p4p
        self, values: Iterable[Mapping[str, Any]] | Value, **kws: Any
    ) -> Value:
        """The structure for rows, each a dict. A column that no row has stays empty."""
        if not isinstance(values, Value):
            rows = list(values)
            columns = {label: [row[label] for row in rows if label in row] for label in self.labels}
            filled = {label: column for label, column in columns.items() if column}
            values = Value(self.type, {"labels": self.labels, "value": filled})
        return self._annotate(values, **kws)

    @staticmethod
    def unwrap(value: Value) -> list[OrderedDict[str, Any]]:
        """The rows."""
        columns = value["value"].items()
        names = [name for name, _ in columns]
        return [OrderedDict(zip(names, row, strict=True)) for row in zip(*(column for _, column in columns))]


class NTURI:
    """NTURI(args): the argument of a procedure. `args`: the names of its arguments with their types."""

    def __init__(self, args: Iterable[tuple[str, Any]]) -> None:
        self._args = list(args)
        self.type = self.buildType(self._args)

    @staticmethod
    def buildType(args: Iterable[tuple[str, Any]]) -> Type:
        """The type of a structure with these arguments."""
        names: Fields = [(name, "s") for name in ("scheme", "authority", "path")]
        try:
            return Type([*names, ("query", ("S", None, list(args)))], id="epics:nt/NTURI:1.0")
        except (TypeError, RuntimeError) as error:
            raise ValueError(f"the arguments {args} have no type: {error}") from error

    def wrap(
        self,
        path: str,
        args: Iterable[Any] = (),
        kws: Mapping[str, Any] | None = None,
        scheme: str = "",
        authority: str = "",
    ) -> Value:
        """The structure for a call of the procedure `path`, with the arguments that have a value."""
        given = {name: value for name, value in (kws or {}).items() if value is not None}
        given.update(zip((name for name, _ in self._args), args))
        kind = self.buildType([(name, spec) for name, spec in self._args if name in given])
        fields = {"scheme": scheme, "authority": authority, "path": path, "query": given}
        try:
            return Value(kind, fields)
        except (KeyError, TypeError, ValueError, RuntimeError, OverflowError) as error:
            raise ValueError(f"the arguments {given} do not match {self._args}: {error}") from error
