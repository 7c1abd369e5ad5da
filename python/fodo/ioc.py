"""An IOC in a program: records whose values the program sets and takes, served over Channel Access and pvAccess.

    from fodo.ioc import Ioc

    ioc = Ioc("X:")
    temperature = ioc.ai("temperature", initial=21.5, EGU="C", PREC=1)
    gap = ioc.ao("gap", on_put=lambda value: print("move to", value), DRVH=100)
    with ioc.serve():
        temperature.set(22.0)

Any number of IOCs run in a process; each can be stopped and started again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from . import _native
from ._errors import Error, Misuse
from ._program import Output, OutputRequest, PutFunction, RequestFunction, ValidateFunction
from ._running import IocCounts, NotSet, Record, RunningIoc

if TYPE_CHECKING:
    import asyncio

    from ._monitors import ErrorHandler

__all__ = ["Ioc", "IocCounts", "NotSet", "OutputRequest", "Record", "RunningIoc"]

Autosave = bool | str | Sequence[str]
"""Which fields to save: `True` for VAL, or the names of fields."""

# The names of elements of arrays, from numpy and Python to FTVL.
_ELEMENTS = {
    "bool": "UCHAR",
    "int8": "CHAR",
    "uint8": "UCHAR",
    "int16": "SHORT",
    "uint16": "USHORT",
    "int32": "LONG",
    "uint32": "ULONG",
    "int64": "INT64",
    "uint64": "UINT64",
    "float32": "FLOAT",
    "float64": "DOUBLE",
    "int": "INT64",
    "float": "DOUBLE",
    "str": "STRING",
    "i1": "CHAR",
    "u1": "UCHAR",
    "i2": "SHORT",
    "u2": "USHORT",
    "i4": "LONG",
    "u4": "ULONG",
    "i8": "INT64",
    "u8": "UINT64",
    "f4": "FLOAT",
    "f8": "DOUBLE",
}

# The fields of the labels of mbbi and mbbo.
_LABELS = (
    *("ZRST", "ONST", "TWST", "THST", "FRST", "FVST", "SXST", "SVST"),
    *("EIST", "NIST", "TEST", "ELST", "TVST", "TTST", "FTST", "FFST"),
)


class Ioc:
    """The records of an IOC. They are created before it starts.

    `prefix` is prepended to the names of the records that the methods create, and is the macro `P` of files. `on_error`
    receives the name of a record and the exception of a function that failed there; without it, the exception is logged.

    A method named after a record type creates a record of it, whose device is the program (DTYP is Program). Fields have
    their names in capitals: `EGU="mm"`. `initial` is the value before the program sets one, `autosave` names fields that are
    saved (see `Ioc.autosave`), `info` are info items, and `aliases` are further names, without the prefix.

    Outputs call functions of the program when they have a value to write, on one thread of the IOC, without a lock:

    - `on_put(value)`: writes the value. The put is complete when it returns. Its exception refuses the put, with the text in
      the field AMSG. A coroutine function runs on the event loop of `start`, so that other records go on meanwhile.
    - `validate(value)`: called before. `False` restores the last value; an exception refuses the put.
    - `on_request(request)`: instead of `on_put`; the program ends the request later. See `OutputRequest`.

    An output without these functions keeps every value that is written to it.
    """

    def __init__(self, prefix: str = "", *, on_error: ErrorHandler | None = None) -> None:
        self._prefix = prefix
        self._on_error = on_error
        self._steps: list[Callable[[_native.IocBuilder], None]] = []
        self._builder: _native.IocBuilder | None = None
        self._records: list[Record] = []
        self._outputs: dict[str, Output] = {}
        self._running: RunningIoc | None = None

    @property
    def prefix(self) -> str:
        """What is prepended to names."""
        return self._prefix

    @property
    def running(self) -> RunningIoc | None:
        """The IOC while it runs."""
        return self._running if self._running is not None and self._running.is_running else None

    # Inputs

    def ai(self, name: str, **options: Any) -> Record:
        """A number that the program measures. Options: `initial`, `autosave`, `info`, `aliases`, and fields."""
        return self._input("ai", name, options)

    def bi(self, name: str, *, labels: Sequence[str] = (), **options: Any) -> Record:
        """One of two states. `labels`: their names, that of 0 first."""
        return self._input("bi", name, options | _two_labels(name, labels))

    def mbbi(self, name: str, *, labels: Sequence[str] = (), **options: Any) -> Record:
        """One of up to 16 states. `labels`: their names, that of 0 first."""
        return self._input("mbbi", name, options | _many_labels(name, labels))

    def mbbiDirect(self, name: str, **options: Any) -> Record:
        """An integer of 32 bits, which are also the fields B0 to B1F."""
        return self._input("mbbiDirect", name, options)

    def longin(self, name: str, **options: Any) -> Record:
        """An integer of 32 bits."""
        return self._input("longin", name, options)

    def int64in(self, name: str, **options: Any) -> Record:
        """An integer of 64 bits."""
        return self._input("int64in", name, options)

    def stringin(self, name: str, **options: Any) -> Record:
        """A text of up to 39 bytes."""
        return self._input("stringin", name, options)

    def lsi(self, name: str, *, length: int | None = None, **options: Any) -> Record:
        """A long text. `length`: its maximum in bytes."""
        return self._input("lsi", name, options | _text_length(length))

    def event(self, name: str, **options: Any) -> Record:
        """The name of an event, which is posted whenever the program sets it: records with this `EVNT` are processed."""
        return self._input("event", name, options)

    def waveform(
        self, name: str, *, length: int | None = None, dtype: Any = None, **options: Any
    ) -> Record:
        """An array that the program measures; with a function for puts, one that it takes.

        `length`: the maximum number of elements; by default that of `initial`. `dtype`: a type of numpy or Python, or a name
        such as `"DOUBLE"`; by default that of `initial`.
        """
        options |= _array_fields(name, length, dtype, options)
        if any(options.get(key) is not None for key in ("on_put", "on_request", "validate")):
            return self._output("waveform", name, {"DTYP": "Program Output"} | options)
        return self._input("waveform", name, options)

    def aai(self, name: str, *, length: int | None = None, dtype: Any = None, **options: Any) -> Record:
        """An array that the program measures. Options as for `waveform`."""
        return self._input("aai", name, options | _array_fields(name, length, dtype, options))

    def subArray(self, name: str, *, length: int | None = None, dtype: Any = None, **options: Any) -> Record:
        """A part of an array that the program measures: at most NELM elements from the index INDX on, by default all.

        `length`: the maximum number of elements of the whole array. Other options as for `waveform`.
        """
        fields = _array_fields(name, length, dtype, {key: value for key, value in options.items() if key != "NELM"})
        return self._input("subArray", name, {"MALM": fields["NELM"]} | fields | options)

    # Outputs

    def ao(self, name: str, **options: Any) -> Record:
        """A number that the program takes. Options: `on_put`, `on_request`, `validate`, and those of `ai`."""
        return self._output("ao", name, options)

    def bo(self, name: str, *, labels: Sequence[str] = (), **options: Any) -> Record:
        """One of two states. `labels`: their names, that of 0 first."""
        return self._output("bo", name, options | _two_labels(name, labels))

    def mbbo(self, name: str, *, labels: Sequence[str] = (), **options: Any) -> Record:
        """One of up to 16 states. `labels`: their names, that of 0 first."""
        return self._output("mbbo", name, options | _many_labels(name, labels))

    def mbboDirect(self, name: str, **options: Any) -> Record:
        """An integer of 32 bits, which are also the fields B0 to B1F."""
        return self._output("mbboDirect", name, options)

    def longout(self, name: str, **options: Any) -> Record:
        """An integer of 32 bits."""
        return self._output("longout", name, options)

    def int64out(self, name: str, **options: Any) -> Record:
        """An integer of 64 bits."""
        return self._output("int64out", name, options)

    def stringout(self, name: str, **options: Any) -> Record:
        """A text of up to 39 bytes."""
        return self._output("stringout", name, options)

    def lso(self, name: str, *, length: int | None = None, **options: Any) -> Record:
        """A long text. `length`: its maximum in bytes."""
        return self._output("lso", name, options | _text_length(length))

    def aao(self, name: str, *, length: int | None = None, dtype: Any = None, **options: Any) -> Record:
        """An array that the program takes. Other options as for `waveform`."""
        return self._output("aao", name, options | _array_fields(name, length, dtype, options))

    # Any record

    def record(
        self,
        record_type: str,
        name: str,
        *,
        initial: Any = None,
        autosave: Autosave = False,
        info: Mapping[str, object] | None = None,
        aliases: Iterable[str] = (),
        on_put: PutFunction | None = None,
        on_request: RequestFunction | None = None,
        validate: ValidateFunction | None = None,
        **fields: object,
    ) -> Record:
        """A record of any type, such as calc or fanout, with exactly these fields.

        The functions are for outputs whose DTYP is Program.
        """
        full_name = self._prefix + name
        for field in fields:
            if not field.isupper():
                raise Misuse(full_name, f'there is no option "{field}"; the names of fields are in capitals')
        output = Output(full_name, on_put, on_request, validate)
        texts = [(field, _field_text(value)) for field, value in fields.items()]
        infos = [(key, str(value)) for key, value in (info or {}).items()]
        if autosave:
            names = "VAL" if autosave is True else autosave if isinstance(autosave, str) else " ".join(autosave)
            infos.append(("autosaveFields", names))
        other_names = [self._prefix + alias for alias in aliases]
        self._add(lambda builder: builder.define(record_type, full_name, texts, infos, other_names, initial))
        record = Record(full_name)
        self._records.append(record)
        if output.is_needed:
            self._outputs[full_name] = output
        return record

    def load(self, path: str | os.PathLike[str], macros: Mapping[str, object] | str = "") -> None:
        """Loads a `.db` or `.substitutions` file. `macros`: a dict, or a text such as `"P=X:,R=1"`."""
        text = self._macros(macros)
        self._add(lambda builder: builder.load(path, text))

    def load_text(self, text: str, macros: Mapping[str, object] | str = "") -> None:
        """Loads the text of a `.db` file."""
        expanded = self._macros(macros)
        self._add(lambda builder: builder.load_text(text, expanded))

    # Functions and files

    def routine(self, name: str, function: Callable[..., float]) -> None:
        """Registers a function that `sub` records name in SNAM. It receives the inputs A to U as numbers and returns VAL.

        A routine is part of the processing of its record: it should return soon, and cannot use records. Its exception puts
        the record into alarm, and is logged and counted.
        """
        self._add(lambda builder: builder.routine(name, function))

    def array_routine(self, name: str, function: Callable[[dict[str, Any]], Mapping[str, Any]]) -> None:
        """Registers a function that `aSub` records name in SNAM.

        It receives a dict with the arrays `"A"` to `"U"`, and returns one with new values of VALA to VALU, by the same
        letters. The rest is as for `routine`.
        """
        self._add(lambda builder: builder.array_routine(name, lambda inputs: dict(function(inputs))))

    def autosave(self, folder: str | os.PathLike[str], *, period: float = 5.0) -> None:
        """Saves the fields of records that the option `autosave` names, and restores them at the start.

        `period`: seconds between two checks for changes. They are also saved at the end. The names may also be in the info
        items `autosaveFields` of files.
        """
        self._add(lambda builder: builder.autosave(folder, period))

    def access(self, path: str | os.PathLike[str], macros: Mapping[str, object] | str = "") -> None:
        """Applies an access file (`.acf`), which says which clients may read and write."""
        text = self._macros(macros)
        self._add(lambda builder: builder.access(path, text))

    def statistics(self, prefix: str) -> None:
        """Publishes statistics of the IOC, such as its load and the number of its clients, under the names of iocStats: `prefix`,
        a colon and the name (`"X:HEARTBEAT"`). Clients can only read them. The last call counts."""
        self._add(lambda builder: builder.statistics(prefix))

    # Running

    def start(
        self,
        *,
        settings: Mapping[str, str] | None = None,
        isolated: bool = False,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> RunningIoc:
        """Starts the IOC. It is the same as `serve`, and ends with `stop`, or with the program.

        `settings`: variables such as `EPICS_CAS_INTF_ADDR_LIST`, before those of the environment. `isolated`: for tests, on
        loopback and on free ports; clients find it with `RunningIoc.settings`. `loop`: the event loop of coroutine functions;
        by default the one that runs this code.
        """
        if self.running is not None:
            raise Misuse(self._prefix, "the IOC is running")
        builder = self._usable_builder()
        self._builder = None
        outputs = list(self._outputs.values())
        self._running = RunningIoc(
            builder, outputs, self._records, self._on_error, settings=settings, isolated=isolated, loop=loop
        )
        return self._running

    def serve(
        self,
        *,
        settings: Mapping[str, str] | None = None,
        isolated: bool = False,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> RunningIoc:
        """Starts the IOC, for a `with` statement that stops it. The options are those of `start`."""
        return self.start(settings=settings, isolated=isolated, loop=loop)

    def stop(self) -> None:
        """Stops the IOC; does nothing if it is not running."""
        if self._running is not None:
            self._running.stop()

    def _input(self, record_type: str, name: str, options: dict[str, Any]) -> Record:
        for option in ("on_put", "on_request", "validate"):
            if options.get(option) is not None:
                output = {"ai": "ao", "bi": "bo", "mbbi": "mbbo", "stringin": "stringout", "lsi": "lso", "aai": "aao"}
                other = output.get(record_type, record_type.removesuffix("in") + "out")
                raise Misuse(self._prefix + name, f"{record_type} has no {option}, since only the program sets it: use {other}")
        return self.record(record_type, name, **({"DTYP": "Program", "SCAN": "I/O Intr"} | options))

    def _output(self, record_type: str, name: str, options: dict[str, Any]) -> Record:
        return self.record(record_type, name, **({"DTYP": "Program"} | options))

    def _macros(self, macros: Mapping[str, object] | str) -> str:
        if isinstance(macros, str):
            return ",".join(part for part in (f'P="{self._prefix}"', macros) if part)
        return ",".join(f'{name}="{value}"' for name, value in ({"P": self._prefix} | dict(macros)).items())

    def _add(self, step: Callable[[_native.IocBuilder], None]) -> None:
        """Applies a step now, so that its errors are raised here; every start repeats it."""
        if self.running is not None:
            raise Misuse(self._prefix, "the IOC is running: records are created before it starts")
        builder = self._usable_builder()
        try:
            step(builder)
        except Error:
            # A part of a file may have been loaded.
            self._builder = None
            raise
        self._steps.append(step)

    def _usable_builder(self) -> _native.IocBuilder:
        if self._builder is None:
            self._builder = _native.IocBuilder()
            for step in self._steps:
                step(self._builder)
        return self._builder


def _field_text(value: object) -> str:
    if isinstance(value, bool):
        return "YES" if value else "NO"
    # The repr of a float of numpy contains its type.
    return float.__repr__(value) if isinstance(value, float) else str(value)


def _two_labels(name: str, labels: Sequence[str]) -> dict[str, str]:
    if len(labels) not in (0, 2):
        raise Misuse(name, f"there are {len(labels)} labels: expected two")
    return dict(zip(("ZNAM", "ONAM"), labels, strict=False))


def _many_labels(name: str, labels: Sequence[str]) -> dict[str, str]:
    if len(labels) > len(_LABELS):
        raise Misuse(name, f"there are {len(labels)} labels: expected at most {len(_LABELS)}")
    return dict(zip(_LABELS, labels, strict=False))


def _text_length(length: int | None) -> dict[str, int]:
    # The record counts the NUL at the end.
    return {} if length is None else {"SIZV": length + 1}


def _array_fields(name: str, length: int | None, dtype: Any, options: Mapping[str, Any]) -> dict[str, object]:
    """NELM and FTVL, unless they are among the options."""
    initial = options.get("initial")
    fields: dict[str, object] = {}
    if "NELM" not in options:
        if initial is not None and not hasattr(initial, "__len__"):
            raise Misuse(name, f"initial must be a sequence or an array of numpy, not {type(initial).__name__}")
        n = length if length is not None else len(initial) if initial is not None else None
        if n is None:
            raise Misuse(name, "the array has no length: give length or initial")
        fields["NELM"] = max(n, 1)
    if "FTVL" not in options:
        fields["FTVL"] = _element_type(name, dtype, initial)
    return fields


def _element_type(name: str, dtype: Any, initial: Any) -> str:
    if dtype is None:
        dtype = getattr(initial, "dtype", None)
    if dtype is None and initial is not None and len(initial) > 0:
        dtype = "float" if any(isinstance(element, float) for element in initial) else type(initial[0])
    text = "float" if dtype is None else getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or str(dtype)
    if text.startswith("str"):
        text = "str"
    if text in _ELEMENTS:
        return _ELEMENTS[text]
    if text.isupper():
        return text
    raise Misuse(name, f'elements cannot be of type "{text}": expected one of {", ".join(_ELEMENTS)}, or a choice of FTVL')
