"""Commands of the interactive prompt."""

from __future__ import annotations

import fnmatch
import logging
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from ..._errors import Error
from ...ioc import RunningIoc
from ._state import STATE
from .device import field_text

__all__ = [
    "casr",
    "dbLockShowLocked",
    "dba",
    "dbcar",
    "dbel",
    "dbgf",
    "dbgrep",
    "dbhcr",
    "dbior",
    "dbl",
    "dblsr",
    "dbnr",
    "dbpf",
    "dbpr",
    "dbtgf",
    "dbtpf",
    "dbtpn",
    "dbtr",
    "eltc",
    "exit",
    "generalTimeReport",
    "gft",
    "pft",
    "scanpel",
    "scanpiol",
    "scanppl",
    "tpn",
]

# The fields of all records that dbpr prints.
_FIELDS = ("DESC", "DTYP", "SCAN", "PINI", "PACT", "SEVR", "STAT", "AMSG", "DISA", "DISP", "FLNK", "TPRO", "UDF")


def _running() -> RunningIoc:
    if STATE.running is None:
        raise RuntimeError("the IOC is not running: call iocInit() before")
    return STATE.running


def _names() -> list[str]:
    return [*STATE.definitions, *STATE.file_names]


def _value(name: str) -> str:
    return field_text(_running(), name)


def dbl(pattern: str = "", fields: str = "") -> None:
    """Prints the names of records, and the values of these fields, separated by spaces."""
    for name in fnmatch.filter(_names(), pattern or "*"):
        values = [_value(f"{name}.{field}") for field in fields.split()]
        print(", ".join([name, *values]))


def dbnr(all: int = 0) -> None:
    """Prints the number of records of each type."""
    counts: dict[str, int] = {}
    for name in _names():
        kind = _value(f"{name}.RTYP")
        counts[kind] = counts.get(kind, 0) + 1
    for kind, count in sorted(counts.items()):
        print(f"{count:5} {kind}")
    print(f"Total {sum(counts.values())} records")


def dbgrep(pattern: str) -> None:
    """Prints the names of records that match."""
    dbl(pattern)


def dbgf(field: str) -> None:
    """Prints the value of a record or of its field."""
    print(f"{field}: {_value(field)}")


def dbpf(field: str, value: Any) -> None:
    """Writes to a record or to its field, and prints the value."""
    _running().record(field).put(value, wait=True)
    dbgf(field)


def dbpr(record: str, interest: int = 0) -> None:
    """Prints the common fields of a record, and its value."""
    for field in (*_FIELDS, "VAL"):
        try:
            value = _value(f"{record}.{field}")
        except Error:
            # Records without a value, such as fanout.
            continue
        print(f"{field}: {value}")


def dbtr(record: str) -> None:
    """Processes a record, and prints it."""
    _running().record(f"{record}.PROC").put(1, wait=True)
    dbpr(record)


def dba(field: str) -> None:
    """Prints the type of the record of a field, and the value of the field."""
    record = field.removesuffix("$").rsplit(".", 1)[0]
    print(f"{field}: record type {_value(f'{record}.RTYP')}, value {_value(field)}")


def dbtpn(field: str, value: Any = None) -> None:
    """Writes a value, waits until all processing has ended, and prints the value. Without a value, it only reads."""
    if value is None:
        dbgf(field)
    else:
        dbpf(field, value)


def scanppl(rate: float = 0.0) -> None:
    """Prints the records that are scanned with a period in seconds, or all that have a period."""
    _print_scanned(lambda scan: scan.endswith(" second") and (not rate or float(scan.split()[0]) == rate))


def scanpel(event: Any = 0) -> None:
    """Prints the records that an event processes, or those of all events."""
    names = [name for name in _names() if _value(f"{name}.SCAN") == "Event"]
    for name in names:
        if not event or _value(f"{name}.EVNT") == str(event):
            print(f"{name}: event {_value(f'{name}.EVNT')}")


def scanpiol() -> None:
    """Prints the records that the program processes."""
    _print_scanned(lambda scan: scan == "I/O Intr")


def _print_scanned(is_wanted: Callable[[str], bool]) -> None:
    for name in _names():
        scan = _value(f"{name}.SCAN")
        if is_wanted(scan):
            print(f"{name}: {scan}")


def casr(level: int = 0) -> None:
    """Prints the settings of the server, and how many updates were posted, sent and lost."""
    running = _running()
    counts = running.counts
    print(f"updates: {counts.n_updates_posted} posted, {counts.n_updates_sent} sent", end=", ")
    print(f"{counts.n_updates_merged} merged, {counts.n_updates_dropped} dropped")
    if level > 0:
        for name, text in sorted(running.settings.items()):
            print(f"{name}={text}")


def eltc(noYes: int = 1) -> None:  # noqa: N803
    """Turns the logging of errors on or off."""
    # The loggers below `fodo` have its level; a logger that is disabled still passes on their records.
    logging.getLogger("fodo").setLevel(logging.NOTSET if noYes else logging.CRITICAL + 1)


def _missing(name: str, reason: str) -> Callable[..., None]:
    def command(*_arguments: Any) -> None:
        print(f"{name}: {reason}")

    command.__name__ = command.__qualname__ = name
    command.__doc__ = f"Prints why there is no report: {reason}."
    return command


dbtgf = gft = dbgf
dbtpf = pft = dbpf
tpn = dbtpn

dbior = _missing("dbior", "the IOC has no drivers in C")
dbhcr = _missing("dbhcr", "the IOC has no hardware")
dblsr = _missing("dblsr", "the records are not divided into lock sets")
dbLockShowLocked = _missing("dbLockShowLocked", "the records are not divided into lock sets")
dbel = _missing("dbel", "the subscriptions of one record are not reported; casr counts the updates of all")
dbcar = _missing("dbcar", "links to other IOCs are not reported; `fodo ioc` has this command")
generalTimeReport = _missing("generalTimeReport", "the time is that of the operating system")


class _Exit:
    """Ends the prompt, also without parentheses."""

    def __repr__(self) -> str:
        sys.exit(0)

    def __call__(self, code: int = 0) -> NoReturn:
        sys.exit(code)


exit = _Exit()
