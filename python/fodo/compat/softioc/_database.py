"""Definitions of records, their names, and links between them: the interface of epicsdbbuilder."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from os import PathLike
from typing import Any

from ...ioc import Record
from ._state import STATE

# The records whose address is the field OUT; that of others is INP.
_OUTPUTS = {"ao", "bo", "mbbo", "mbboDirect", "longout", "int64out", "stringout", "lso", "aao"}


class Link:
    """A link to a record or to its field, with modifiers such as `CP`."""

    def __init__(self, record: Any, field: str | None, *modifiers: str) -> None:
        self.record = record
        self.field = field
        self.specifiers = modifiers

    def __str__(self) -> str:
        name = self.record.name + (f".{self.field}" if self.field else "")
        return " ".join([name, *self.specifiers])

    def __call__(self, *modifiers: str) -> Link:
        return Link(self.record, self.field, *self.specifiers, *modifiers)

    def Value(self) -> Any:  # noqa: N802
        """What the field of the record is defined as; raises `KeyError` if it is not."""
        return self.record._field_value(self.field)


class ImportRecord:
    """A record that is defined elsewhere, for links."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __str__(self) -> str:
        return self.name

    def __call__(self, *modifiers: str) -> Link:
        return Link(self, None, *modifiers)

    def __getattr__(self, field: str) -> Link:
        return Link(self, _checked(field))

    def add_alias(self, name: str) -> None:
        """Another name of the record."""
        STATE.lines.append(f'alias("{self.name}", "{name}")')


class Definition:
    """A record until it is loaded. Attributes in capitals are its fields; assigning None removes one."""

    _own = frozenset({"name", "kind", "fields", "infos", "aliases", "comments", "options"})

    def __init__(self, kind: str, name: str, fields: dict[str, Any]) -> None:
        self.kind = kind
        self.name = RecordName(name)
        self.fields: dict[str, Any] = {}
        self.infos: list[tuple[str, Any]] = []
        self.aliases: list[str] = []
        self.comments: list[str] = []
        self.options: dict[str, Any] = {}
        """Options of `Ioc.record`."""
        assert not STATE.is_loaded, "It's too late to create records"
        for field, value in fields.items():
            setattr(self, field, value)
        assert self.name not in STATE.definitions, f"Record {self.name} already defined"
        STATE.definitions[self.name] = self

    def __setattr__(self, field: str, value: Any) -> None:
        if field in Definition._own:
            super().__setattr__(field, value)
            return
        field = self._field(field)
        if STATE.is_loaded:
            raise AttributeError(f"{self.name}.{field}: fields can be assigned only before LoadDatabase")
        if callable(value):
            value = value()
        if value is None:
            self.fields.pop(field, None)
        else:
            self.fields[field] = value

    def __getattr__(self, field: str) -> Link:
        return Link(self, self._field(field))

    def __delattr__(self, field: str) -> None:
        del self.fields[self._field(field)]

    def __call__(self, *modifiers: str) -> Link:
        return Link(self, None, *modifiers)

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f'<record {self.kind} "{self.name}">'

    def _field(self, field: str) -> str:
        if field == "address":
            return "OUT" if self.kind in _OUTPUTS else "INP"
        return _checked(field)

    def _field_value(self, field: str) -> Any:
        return self.fields[field]

    def add_alias(self, alias: str) -> None:
        """Another name, as it is."""
        self.aliases.append(alias)

    def add_comment(self, comment: str) -> None:
        """A comment in the file that `WriteRecords` writes."""
        self.comments.append("# " + comment)

    def add_metadata(self, metadata: str) -> None:
        """A comment that begins with `#%`."""
        self.comments.append("#% " + metadata)

    def add_info(self, name: str, info: Any) -> None:
        """An info item."""
        self.infos.append((name, info))

    def lines(self, alphabetical: bool) -> Iterator[str]:
        """The text of the record in a `.db` file."""
        yield ""
        yield from self.comments
        yield f'record({self.kind}, "{self.name}")'
        yield "{"
        names = sorted(self.fields) if alphabetical else self.fields
        for name in names:
            yield f"    field({name + ',':<5} {_written(self.fields[name])})"
        for alias in sorted(self.aliases) if alphabetical else self.aliases:
            yield f'    alias("{alias}")'
        for name, info in self.infos:
            yield f"    info({name}, {_written(info)})"
        yield "}"

    def load(self) -> Record:
        """Adds the record to the IOC."""
        fields: dict[str, Any] = {name: _text(value) for name, value in self.fields.items()}
        infos = {name: _text(value) for name, value in self.infos}
        return STATE.ioc.record(self.kind, self.name, info=infos, aliases=self.aliases, **self.options, **fields)


def _checked(field: str) -> str:
    if field.startswith("_") or not field.isupper() or not field.isalnum():
        raise AttributeError(f"Invalid field name {field}")
    return field


def _text(value: Any) -> str:
    return json.dumps(value) if isinstance(value, dict) else str(value)


def _written(value: Any) -> str:
    if isinstance(value, dict):
        return "\n    ".join(json.dumps(value, indent=4).splitlines())
    text = str(value).replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(char if char >= " " else f"\\x{ord(char):02x}" for char in text) + '"'


class Records:
    """A function for every record type: `records.calc("X", CALC="A+1")`."""

    def __getattr__(self, kind: str) -> Callable[..., Definition]:
        if kind.startswith("_"):
            raise AttributeError(kind)
        return lambda record, **fields: Definition(kind, record, fields)


records = Records()


def _modifier(name: str) -> Callable[[Any], Link]:
    def add(record: Any) -> Link:
        link: Link = record(name)
        return link

    add.__doc__ = f"A link to the record with the modifier {name}."
    return add


PP, CA, CP, CPP = _modifier("PP"), _modifier("CA"), _modifier("CP"), _modifier("CPP")
MS, MSS, MSI, NMS, NP = _modifier("MS"), _modifier("MSS"), _modifier("MSI"), _modifier("NMS"), _modifier("NPP")


class Parameter:
    """A macro in a file that `WriteRecords` writes."""

    def __init__(self, name: str, description: str = "", default: Any = None) -> None:
        self._name, self._default = name, default
        first, *others = description.split("\n")
        STATE.headers.append(f"#% macro, {name}, {first}")
        STATE.headers.extend(f"#  {line}" for line in others)

    def __str__(self) -> str:
        return f"$({self._name})" if self._default is None else f"$({self._name}={self._default})"


# Names


class SimpleRecordNames:
    """Names with prefixes, joined by a separator."""

    maxLength = 61  # noqa: N815

    def __init__(self, prefix: Any = "", separator: str = ":", check: bool = True) -> None:
        self.prefix = [prefix] if prefix else []
        self.separator = separator
        self.check = check

    def __call__(self, name: str) -> str:
        full_name = self.separator.join(map(str, [*self.prefix, name]))
        if self.check:
            assert 0 < len(full_name) <= self.maxLength, f'Record name "{full_name}" too long'
        return full_name


class TemplateRecordNames(SimpleRecordNames):
    """Names with a macro as their prefix."""

    def __init__(self, prefix: Any = None, separator: str = ":") -> None:
        super().__init__(Parameter("DEVICE", "Device name") if prefix is None else prefix, separator, False)


_names: Any = SimpleRecordNames(None, ":")


def SetRecordNames(names: Any) -> Any:  # noqa: N802
    """Sets the function that makes names of records; returns the last one."""
    global _names
    last, _names = _names, names
    return last


def GetRecordNames() -> Any:  # noqa: N802
    """The function that makes names of records."""
    return _names


def RecordName(name: str) -> str:  # noqa: N802
    """The full name of a record."""
    return str(_names(name))


def SetSimpleRecordNames(prefix: str | None = "", separator: str = "") -> None:  # noqa: N802
    """Names with a prefix and a separator."""
    SetRecordNames(SimpleRecordNames(prefix, separator))


def SetTemplateRecordNames(prefix: Any = None, separator: str = ":") -> None:  # noqa: N802
    """Names with a macro as their prefix."""
    SetRecordNames(TemplateRecordNames(prefix, separator))


def PushPrefix(prefix: Any) -> None:  # noqa: N802
    """Adds a prefix."""
    _names.prefix.append(prefix)


def PopPrefix() -> Any:  # noqa: N802
    """Removes the last prefix."""
    return _names.prefix.pop()


def SetPrefix(prefix: Any) -> None:  # noqa: N802
    """Replaces the last prefix; None removes it."""
    if _names.prefix:
        PopPrefix()
    if prefix:
        PushPrefix(prefix)


def SetSeparator(separator: str) -> None:  # noqa: N802
    """Sets the text between prefixes and names."""
    _names.separator = separator


# The set of records


def LookupRecord(full_name: str) -> Definition:  # noqa: N802
    """The definition with this full name."""
    return STATE.definitions[full_name]


def CountRecords() -> int:  # noqa: N802
    """The number of definitions."""
    return len(STATE.definitions)


def ResetRecords() -> None:  # noqa: N802
    """Removes all definitions."""
    STATE.definitions.clear()
    STATE.headers.clear()
    STATE.lines.clear()


def Disclaimer(source: str | None = None) -> str:  # noqa: N802
    """The first lines of a file of `WriteRecords`."""
    origin = "" if source is None else f" from\nsource: {source}"
    date = time.strftime("%a %d %b %Y %H:%M:%S %Z")
    return f"Written by a program on {date}{origin}\n\nChanges of this file are lost: change the program.\n\n"


def WriteRecords(  # noqa: N802
    filename: str | PathLike[str], header: str | None = None, alphabetical: bool = True
) -> None:
    """Writes the definitions to a `.db` file."""
    first = (Disclaimer() if header is None else header).split("\n")
    assert first[-1] == "", "Terminate header with empty line"
    definitions = STATE.definitions
    with open(filename, "w") as file:
        for line in [*(f"# {line}" for line in first[:-1]), *STATE.headers]:
            print(line, file=file)
        if STATE.lines:
            print("", *STATE.lines, sep="\n", file=file)
        for name in sorted(definitions) if alphabetical else definitions:
            print(*definitions[name].lines(alphabetical), sep="\n", file=file)


def create_fanout(name: str, *record_list: Any, **fields: Any) -> Definition:
    """A chain of fanout records that processes all records of the list; returns the first."""
    return _chain("fanout", name, record_list, 6, lambda i: f"LNK{i + 1}", {**fields, "SELM": "All"}, {}, lambda to: to)


def create_dfanout(name: str, *record_list: Any, **fields: Any) -> Definition:
    """A chain of dfanout records that writes to all records of the list; returns the first."""
    supervisory = {"OMSL": "supervisory"}
    return _chain("dfanout", name, record_list, 8, lambda i: f"OUT{chr(ord('A') + i)}", fields, supervisory, PP)


def _chain(
    kind: str,
    name: str,
    links: tuple[Any, ...],
    size: int,
    field: Callable[[int], str],
    fields: dict[str, Any],
    next_fields: dict[str, Any],
    link_to: Callable[[Any], Any],
) -> Definition:
    others = {key: value for key, value in fields.items() if key not in ("PINI", "DOL")}
    first = last = Definition(kind, name, fields)
    number = 0
    while len(links) > size:
        for i, link in enumerate(links[: size - 1]):
            setattr(last, field(i), link)
        number += 1
        following = Definition(kind, f"{name}{number}", {**others, "SCAN": "Passive", **next_fields})
        setattr(last, field(size - 1), link_to(following))
        last, links = following, links[size - 1 :]
    for i, link in enumerate(links):
        setattr(last, field(i), link)
    return first
