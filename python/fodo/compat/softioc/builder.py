"""Creates the records of a program, before the IOC starts."""

from __future__ import annotations

from typing import Any

from . import autosave as _autosave  # noqa: F401
from ._database import (
    CA,
    CP,
    CPP,
    MS,
    MSI,
    MSS,
    NMS,
    NP,
    PP,
    CountRecords,
    Disclaimer,
    GetRecordNames,
    ImportRecord,
    LookupRecord,
    Parameter,
    PopPrefix,
    PushPrefix,
    RecordName,
    ResetRecords,
    SetPrefix,
    SetRecordNames,
    SetSeparator,
    SetSimpleRecordNames,
    SetTemplateRecordNames,
    SimpleRecordNames,
    TemplateRecordNames,
    WriteRecords,
    create_dfanout,
    create_fanout,
    records,
)
from ._kinds import CHOICE, FLOAT, INT32, INT64, TEXT, ArrayKind, Kind, LongTextKind, array_of, to_epics_str_array
from ._state import STATE
from .device import ProcessDeviceSupportCore, ProcessDeviceSupportIn, ProcessDeviceSupportOut, SetBlocking

__all__ = [
    "Action",
    "CA",
    "CP",
    "CPP",
    "ClearRecords",
    "CountRecords",
    "Disclaimer",
    "GetRecordNames",
    "ImportRecord",
    "LoadDatabase",
    "LookupRecord",
    "MS",
    "MSI",
    "MSS",
    "NMS",
    "NP",
    "PP",
    "Parameter",
    "PopPrefix",
    "PushPrefix",
    "RecordName",
    "ResetRecords",
    "SetBlocking",
    "SetDeviceName",
    "SetPrefix",
    "SetRecordNames",
    "SetSeparator",
    "SetSimpleRecordNames",
    "SetTemplateRecordNames",
    "SimpleRecordNames",
    "TemplateRecordNames",
    "UnsetDevice",
    "Waveform",
    "WaveformIn",
    "WaveformOut",
    "WriteRecords",
    "aIn",
    "aOut",
    "boolIn",
    "boolOut",
    "create_dfanout",
    "create_fanout",
    "int64In",
    "int64Out",
    "longIn",
    "longOut",
    "longStringIn",
    "longStringOut",
    "mbbIn",
    "mbbOut",
    "records",
    "stringIn",
    "stringOut",
    "to_epics_str_array",
]

_OUT_OPTIONS = ("on_update", "on_update_name", "validate", "always_update", "blocking")

_PREFIXES = ("ZR", "ON", "TW", "TH", "FR", "FV", "SX", "SV", "EI", "NI", "TE", "EL", "TV", "TT", "FT", "FF")

_SEVERITIES = ("NO_ALARM", "MINOR", "MAJOR", "INVALID")

_STATUSES = (
    *("NO_ALARM", "READ", "WRITE", "HIHI", "HIGH", "LOLO", "LOW", "STATE", "COS", "COMM", "TIMEOUT", "HWLIMIT", "CALC"),
    *("SCAN", "LINK", "SOFT", "BAD_SUB", "UDF", "DISABLE", "SIMM", "READ_ACCESS", "WRITE_ACCESS"),
)

_ELEMENTS = {
    "CHAR": "int8",
    "UCHAR": "uint8",
    "SHORT": "int16",
    "USHORT": "uint16",
    "LONG": "int32",
    "ULONG": "uint32",
    "INT64": "int64",
    "UINT64": "uint64",
    "FLOAT": "float32",
    "DOUBLE": "float64",
    "STRING": "S40",
}


# Records that the program sets


def _in(kind: str, name: str, values: Kind, default: Any, fields: dict[str, Any]) -> Any:
    for option, field, texts in (("status", "STAT", _STATUSES), ("severity", "SEVR", _SEVERITIES)):
        if option in fields:
            assert field not in fields, f"Can't specify both {option} and {field}"
            fields[field] = texts[fields.pop(option)]
    initial = values.convert(fields.pop("initial_value", default))
    saved = fields.pop("autosave", None)
    fields = {"SCAN": "I/O Intr", "PINI": "YES", "DISP": 1} | fields
    record = ProcessDeviceSupportIn(
        kind, "Program", name, values, autosave_fields=saved, initial=initial, fields=fields
    )
    if "STAT" in fields or "SEVR" in fields:
        severity, status = fields.get("SEVR", "NO_ALARM"), fields.get("STAT", "NO_ALARM")
        record._alarm = (_SEVERITIES.index(severity), _STATUSES.index(status))
    return record


def aIn(  # noqa: N802
    name: str,
    LOPR: Any = None,  # noqa: N803
    HOPR: Any = None,  # noqa: N803
    EGU: Any = None,  # noqa: N803
    PREC: Any = None,  # noqa: N803
    **fields: Any,
) -> Any:
    """A number (`ai`)."""
    return _in("ai", name, FLOAT, 0.0, {"LOPR": LOPR, "HOPR": HOPR, "EGU": EGU, "PREC": PREC, **fields})


def boolIn(name: str, ZNAM: Any = None, ONAM: Any = None, **fields: Any) -> Any:  # noqa: N802, N803
    """One of two states (`bi`)."""
    return _in("bi", name, CHOICE, 0, {"ZNAM": ZNAM, "ONAM": ONAM, **fields})


def longIn(name: str, LOPR: Any = None, HOPR: Any = None, EGU: Any = None, **fields: Any) -> Any:  # noqa: N802, N803
    """An integer of 32 bits (`longin`). Every set is an update for clients, unless MDEL says otherwise."""
    return _in("longin", name, INT32, 0, {"LOPR": LOPR, "HOPR": HOPR, "EGU": EGU, "MDEL": -1, **fields})


def int64In(name: str, LOPR: Any = None, HOPR: Any = None, EGU: Any = None, **fields: Any) -> Any:  # noqa: N802, N803
    """An integer of 64 bits (`int64in`). Every set is an update for clients, unless MDEL says otherwise."""
    return _in("int64in", name, INT64, 0, {"LOPR": LOPR, "HOPR": HOPR, "EGU": EGU, "MDEL": -1, **fields})


def mbbIn(name: str, *options: Any, **fields: Any) -> Any:  # noqa: N802
    """One of up to 16 states (`mbbi`). Each option is a label, or a label and a severity."""
    return _in("mbbi", name, CHOICE, 0, _states(options) | fields)


def stringIn(name: str, **fields: Any) -> Any:  # noqa: N802
    """A text of up to 39 bytes (`stringin`)."""
    return _in("stringin", name, TEXT, "", fields)


def WaveformIn(name: str, *value: Any, **fields: Any) -> Any:  # noqa: N802
    """An array (`waveform`)."""
    values, initial, _ = _array(value, fields)
    return _in("waveform", name, values, initial, fields)


Waveform = WaveformIn


def longStringIn(name: str, **fields: Any) -> Any:  # noqa: N802
    """A long text in a `waveform`."""
    record = _in("waveform", name, _long_text(fields), "", fields)
    record.add_info("Q:form", "String")
    return record


# Records whose values the program takes


def _out(kind: str, name: str, values: Kind, default: Any, fields: dict[str, Any], dtyp: str = "Program") -> Any:
    is_initial = "initial_value" in fields
    initial = values.convert(fields.pop("initial_value", default))
    options = {option: fields.pop(option) for option in _OUT_OPTIONS if option in fields}
    saved = fields.pop("autosave", None)
    return ProcessDeviceSupportOut(
        kind,
        dtyp,
        name,
        values,
        autosave_fields=saved,
        initial=initial,
        is_initial=is_initial,
        fields=fields,
        **options,
    )


def _limited(DRVL: Any, DRVH: Any, EGU: Any, fields: dict[str, Any]) -> dict[str, Any]:  # noqa: N803
    """The limits of control are those of display too."""
    return {"OMSL": "supervisory", "DRVL": DRVL, "DRVH": DRVH, "LOPR": DRVL, "HOPR": DRVH, "EGU": EGU, **fields}


def aOut(  # noqa: N802
    name: str,
    DRVL: Any = None,  # noqa: N803
    DRVH: Any = None,  # noqa: N803
    EGU: Any = None,  # noqa: N803
    PREC: Any = None,  # noqa: N803
    **fields: Any,
) -> Any:
    """A number (`ao`)."""
    return _out("ao", name, FLOAT, 0.0, _limited(DRVL, DRVH, EGU, {"PREC": PREC, **fields}))


def boolOut(name: str, ZNAM: Any = None, ONAM: Any = None, **fields: Any) -> Any:  # noqa: N802, N803
    """One of two states (`bo`)."""
    return _out("bo", name, CHOICE, 0, {"OMSL": "supervisory", "ZNAM": ZNAM, "ONAM": ONAM, **fields})


def longOut(name: str, DRVL: Any = None, DRVH: Any = None, EGU: Any = None, **fields: Any) -> Any:  # noqa: N802, N803
    """An integer of 32 bits (`longout`)."""
    return _out("longout", name, INT32, 0, _limited(DRVL, DRVH, EGU, fields))


def int64Out(name: str, DRVL: Any = None, DRVH: Any = None, EGU: Any = None, **fields: Any) -> Any:  # noqa: N802, N803
    """An integer of 64 bits (`int64out`)."""
    return _out("int64out", name, INT64, 0, _limited(DRVL, DRVH, EGU, fields))


def mbbOut(name: str, *options: Any, **fields: Any) -> Any:  # noqa: N802
    """One of up to 16 states (`mbbo`). Each option is a label, or a label and a severity."""
    return _out("mbbo", name, CHOICE, 0, {"OMSL": "supervisory", **_states(options), **fields})


def stringOut(name: str, **fields: Any) -> Any:  # noqa: N802
    """A text of up to 39 bytes (`stringout`)."""
    return _out("stringout", name, TEXT, "", {"OMSL": "supervisory", **fields})


def WaveformOut(name: str, *value: Any, **fields: Any) -> Any:  # noqa: N802
    """An array (`waveform`)."""
    values, initial, is_given = _array(value, fields)
    if is_given:
        fields["initial_value"] = initial
    return _out("waveform", name, values, initial, fields, "Program Output")


def longStringOut(name: str, **fields: Any) -> Any:  # noqa: N802
    """A long text in a `waveform`."""
    record = _out("waveform", name, _long_text(fields), "", fields, "Program Output")
    record.add_info("Q:form", "String")
    return record


def Action(name: str, **fields: Any) -> Any:  # noqa: N802
    """One of two states (`bo`) whose function is called for every put."""
    return boolOut(name, always_update=True, **fields)


# Values and fields


def _states(options: tuple[Any, ...]) -> dict[str, Any]:
    assert len(options) <= len(_PREFIXES), "May not specify more than 16 enum values"
    fields: dict[str, Any] = {}
    for number, (prefix, option) in enumerate(zip(_PREFIXES, options, strict=False)):
        label, *severities = option if isinstance(option, tuple) else (option,)
        fields[prefix + "ST"] = label
        fields[prefix + "VL"] = number
        for severity in severities:
            if severity:
                fields[prefix + "SV"] = _SEVERITIES[severity] if isinstance(severity, int) else severity
    return fields


def _length(fields: dict[str, Any], default: int | None) -> int:
    if "length" in fields:
        assert "NELM" not in fields, "Cannot specify NELM and length together"
        length = fields.pop("length")
    else:
        length = fields.pop("NELM", default)
    assert length is not None, "Must specify waveform length"
    assert length > 0, "Array cannot be of zero length"
    return int(length)


def _array(value: tuple[Any, ...], fields: dict[str, Any]) -> tuple[Kind, Any, bool]:
    """The values of an array record, its value at first, and whether that was given."""
    import numpy

    if "initial_value" in fields:
        assert not value, "Can't specify initial value twice!"
        value = (fields.pop("initial_value"),)
    dtype: Any = None
    if "datatype" in fields:
        assert "FTVL" not in fields, "Can't specify FTVL and datatype together"
        dtype = fields.pop("datatype")
        dtype = numpy.dtype("int32") if dtype in (int, "int") else numpy.dtype(dtype)
    elif "FTVL" in fields:
        dtype = numpy.dtype(_ELEMENTS[fields["FTVL"]])
    if value:
        (given,) = value
        initial = array_of(given, dtype)
        if dtype is None:
            if initial.dtype.char in "SU":
                initial = to_epics_str_array(initial)
            elif initial.dtype.name in ("int64", "uint64"):
                initial = initial.astype(initial.dtype.name.replace("64", "32"))
    else:
        initial = numpy.array([], dtype=dtype)
    length = _length(fields, len(initial) if value else None)
    names = {numpy.dtype(name): element for element, name in _ELEMENTS.items()}
    if initial.dtype not in names:
        raise ValueError(f"elements cannot be of type {initial.dtype}: expected one of {', '.join(_ELEMENTS.values())}")
    fields["NELM"] = length
    fields["FTVL"] = names[initial.dtype]
    return ArrayKind(length, initial.dtype), initial, bool(value)


def _long_text(fields: dict[str, Any]) -> Kind:
    default = len(fields["initial_value"].encode(errors="replace")) + 1 if "initial_value" in fields else 256
    length = _length(fields, default)
    fields["NELM"] = length
    fields["FTVL"] = "CHAR"
    return LongTextKind(length)


# The IOC


def LoadDatabase() -> None:  # noqa: N802
    """Ends the definition of records. Call it once, before `iocInit`."""
    assert not STATE.is_loaded, "Record database has already been loaded"
    for name, definition in STATE.definitions.items():
        device = STATE.devices.get(name)
        if isinstance(device, ProcessDeviceSupportCore):
            device._load()
            STATE.starts.append(device._start)
        else:
            definition.load()
    if STATE.lines:
        STATE.ioc.load_text("\n".join(STATE.lines))
    STATE.is_loaded = True


def ClearRecords() -> None:  # noqa: N802
    """Removes all records, so that others can be created."""
    assert not STATE.is_loaded, "Record database has already been loaded"
    STATE.devices.clear()
    ResetRecords()


def SetDeviceName(name: str) -> None:  # noqa: N802
    """The prefix of the names of the records that follow."""
    SetPrefix(name)


def UnsetDevice() -> None:  # noqa: N802
    """The names of the records that follow have no prefix."""
    SetPrefix(None)
