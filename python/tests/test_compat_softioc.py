"""Programs for pythonSoftIOC on Fodo."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import pytest

import fodo
from fodo.compat.softioc import alarm, autosave, builder, device, softioc
from fodo.compat.softioc._state import STATE
from fodo.compat.softioc.asyncio_dispatcher import AsyncioDispatcher
from fodo.compat.softioc.cothread_dispatcher import CothreadDispatcher
from fodo.compat.softioc.device_core import LookupRecord, LookupRecordList
from fodo.compat.softioc.imports import callbackSetQueueSize
from fodo.sync import Context
from processes import isolated, printed_by

PATIENCE = 20.0


@pytest.fixture(autouse=True)
def settings(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """Own ports, and no records at the start and at the end."""
    variables = isolated()
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    builder.SetSimpleRecordNames(None, ":")
    builder.SetDeviceName("T")
    yield variables
    softioc.stop_ioc()


def start(dispatcher: Any = None) -> None:
    builder.LoadDatabase()
    softioc.iocInit(dispatcher)


def client(settings: dict[str, str]) -> Context:
    return Context(settings=settings)


def until(is_true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_values_reach_clients_and_puts_reach_functions(settings: dict[str, str]) -> None:
    temperature = builder.aIn("TEMPERATURE", initial_value=5.5, EGU="C", PREC=2)
    updates: queue.Queue[Any] = queue.Queue()
    gap = builder.aOut("GAP", initial_value=1, on_update=updates.put)
    named = builder.mbbOut("MODE", "Off", ("On", alarm.MINOR_ALARM), on_update_name=lambda *both: updates.put(both))
    start()

    with client(settings) as context:
        assert (context.get("T:TEMPERATURE"), context.get("T:TEMPERATURE.EGU")) == (5.5, "C")
        context.put("T:GAP", 2.5, wait=True)
        assert updates.get(timeout=PATIENCE) == 2.5 and gap.get() == 2.5
        context.put("T:MODE", "On", wait=True)
        assert updates.get(timeout=PATIENCE) == (1, "T:MODE") and named.get() == 1
        temperature.set(7, severity=alarm.MAJOR_ALARM, alarm=alarm.HIHI_ALARM, timestamp=1_700_000_000.0)
        read = context.get("ca://T:TEMPERATURE")
        assert (read, read.severity, read.alarm.status) == (7, fodo.Severity.MAJOR, "HIHI")


def test_every_set_is_an_update_for_the_function() -> None:
    taken: list[int] = []
    number = builder.longOut("NUMBER", initial_value=0, on_update=taken.append)
    start()

    def set_many(first: int) -> None:
        for i in range(first, first + 400, 2):
            number.set(i)

    threads = [threading.Thread(target=set_many, args=(first,)) for first in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    until(lambda: len(taken) == 400)

    assert sorted(taken) == list(range(1, 401))


def test_values_that_are_set_between_the_database_and_the_start_reach_clients(settings: dict[str, str]) -> None:
    level = builder.aIn("LEVEL", initial_value=1)
    gap = builder.aOut("GAP", initial_value=1)
    first = builder.longOut("FIRST")
    builder.LoadDatabase()

    level.set(2, timestamp=1_700_000_000.0)
    gap.set(3)
    first.set(4)
    softioc.iocInit()

    with client(settings) as context:
        assert [context.get(f"T:{name}") for name in ("LEVEL", "GAP", "FIRST")] == [2, 3, 4]
        assert context.get("T:LEVEL").time.timestamp() == 1_700_000_000.0
        assert context.get("ca://T:FIRST").severity == fodo.Severity.NO_ALARM


def test_a_value_that_is_set_while_the_ioc_starts_reaches_clients(settings: dict[str, str]) -> None:
    level = builder.aIn("LEVEL", initial_value=1)
    builder.LoadDatabase()
    STATE.starts.insert(0, lambda: level.set(2))

    softioc.iocInit()

    with client(settings) as context:
        assert context.get("T:LEVEL") == 2


@pytest.mark.parametrize("blocking", [False, True])
def test_values_that_are_set_while_another_function_is_busy_follow(
    blocking: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device, "HANDLED", 0.1)
    taken: list[int] = []
    entered, may_return = threading.Event(), threading.Event()

    def wait(record: Any, value: int) -> bool:
        entered.set()
        return may_return.wait(PATIENCE)

    busy = builder.longOut("BUSY", validate=wait)
    number = builder.longOut("NUMBER", initial_value=0, on_update=taken.append, blocking=blocking)
    start()
    thread = threading.Thread(target=busy.set, args=(1,))
    thread.start()
    assert entered.wait(PATIENCE)

    for value in range(1, 6):
        number.set(value)
    may_return.set()
    thread.join()

    until(lambda: len(taken) == 5)
    assert taken == [1, 2, 3, 4, 5]


def test_a_value_that_is_not_valid_is_restored(settings: dict[str, str]) -> None:
    limited = builder.longOut("LIMITED", initial_value=3, validate=lambda record, value: value < 10)
    names = builder.WaveformOut("NAMES", ["a", "b"], validate=lambda record, value: len(value) == 2)
    start()

    with client(settings) as context:
        context.put("T:LIMITED", 12, wait=True)
        context.put("T:NAMES", ["c"], wait=True)
        limited.set(13)
        assert context.get("T:LIMITED") == 3 == limited.get()
        assert list(context.get("T:NAMES")) == ["a", "b"] == names.get()
        context.put("T:LIMITED", 9, wait=True)
    assert limited.get() == 9


def test_without_always_update_an_equal_value_is_no_update(settings: dict[str, str]) -> None:
    taken: list[Any] = []
    builder.longOut("CHANGE", on_update=lambda value: taken.append(("change", value)))
    builder.Action("ACTION", on_update=lambda value: taken.append(("action", value)))
    start()

    with client(settings) as context:
        for name in ("CHANGE", "CHANGE", "ACTION", "ACTION"):
            context.put(f"T:{name}", 1, wait=True)
    until(lambda: len(taken) == 3)

    assert taken == [("change", 1), ("action", 1), ("action", 1)]


def test_a_put_to_a_blocking_record_ends_with_the_coroutine(settings: dict[str, str]) -> None:
    may_return = threading.Event()
    done: list[float] = []

    async def move(value: float) -> None:
        while not may_return.is_set():
            await asyncio.sleep(0.01)
        position.set(value)
        done.append(value)

    position = builder.aIn("POSITION")
    motor = builder.aOut("MOTOR", on_update=move, blocking=True)
    with AsyncioDispatcher() as dispatcher:
        start(dispatcher)
        with client(settings) as context:
            context.put("T:MOTOR", 4, wait=False)
            until(lambda: bool(motor.get() == 4))
            assert done == []
            may_return.set()
            context.put("T:MOTOR", 5, wait=True, timeout=PATIENCE)
            assert done[-1] == 5 == position.get()


def test_values_that_are_set_while_a_function_is_running_follow(settings: dict[str, str]) -> None:
    may_return = threading.Event()
    done: list[int] = []

    async def move(value: int) -> None:
        while not may_return.is_set():
            await asyncio.sleep(0.01)
        done.append(value)

    motor = builder.longOut("MOTOR", initial_value=0, on_update=move, blocking=True)
    with AsyncioDispatcher() as dispatcher:
        start(dispatcher)
        for value in [*range(1, 21), 20, 21]:
            motor.set(value)
        assert done == []
        may_return.set()
        until(lambda: len(done) == 21)

    assert done == list(range(1, 22)) and motor.get() == 21


def test_a_function_may_set_its_own_record(settings: dict[str, str]) -> None:
    async def reset(value: int) -> None:
        button.set(0, process=False)
        level.set(level.get() + 1)

    button = builder.Action("BUTTON", on_update=reset, blocking=True)
    level = builder.longOut("LEVEL", initial_value=0)
    with AsyncioDispatcher() as dispatcher:
        start(dispatcher)
        with client(settings) as context:
            for _ in range(3):
                context.put("T:BUTTON", 1, wait=True, timeout=PATIENCE)
            assert context.get("T:BUTTON") == 0 and context.get("T:LEVEL") == 3


def test_alarms_are_set_before_and_after_the_start(settings: dict[str, str]) -> None:
    records = [builder.aIn("A", initial_value=1), builder.boolOut("B", initial_value=1), builder.longStringOut("C")]
    builder.longIn("D", severity=alarm.MINOR_ALARM, status=alarm.LOLO_ALARM)
    records[0].set_alarm(alarm.INVALID_ALARM, alarm.DISABLE_ALARM)
    start()
    for record in records[1:]:
        record.set_alarm(alarm.INVALID_ALARM, alarm.DISABLE_ALARM)

    with client(settings) as context:
        for name in "ABC":
            read = context.get(f"ca://T:{name}")
            assert (read.severity, read.alarm.status) == (fodo.Severity.INVALID, "DISABLE"), name
        assert context.get("ca://T:D").alarm.status == "LOLO"
        records[1].set(0)
        assert context.get("ca://T:B").severity == fodo.Severity.NO_ALARM


def test_long_texts_and_arrays(settings: dict[str, str]) -> None:
    text = "a text of more than 39 bytes: " + "\N{EURO SIGN}" * 20
    builder.longStringIn("LONG", initial_value=text)
    taken = builder.longStringOut("TAKEN", length=200)
    wave = builder.WaveformIn("WAVE", numpy.arange(4.0), length=8)
    start()

    with client(settings) as context:
        assert bytes(context.get("T:LONG")).rstrip(b"\0").decode() == text
        assert context.get("pva://T:LONG") == text
        context.put("pva://T:TAKEN", text, wait=True)
        assert taken.get() == text
        wave.set([1.5, 2.5])
        assert list(context.get("T:WAVE")) == [1.5, 2.5]
    with pytest.raises(AssertionError, match="too long"):
        wave.set(range(9))
    with pytest.raises(ValueError):
        wave.get()[0] = 1


def test_fields_before_and_after_the_database(settings: dict[str, str]) -> None:
    gap = builder.aOut("GAP", 0, 100, EGU="mm")
    gap.DESC = "The gap"
    gap.HIHI, gap.HHSV = 90, "MAJOR"
    sum_of = builder.records.calc("SUM", CALC="A+1", INPA=builder.CP(builder.MS(gap)))
    sum_of.FLNK = builder.PP(builder.records.longout("COUNT"))
    gap.add_info("archive", "monitor")
    assert (gap.HOPR.Value(), str(sum_of.INPA.Value())) == (100, "T:GAP MS CP")
    with pytest.raises(AssertionError, match="get_field may only be called after iocInit"):
        gap.get_field("EGU")
    start()

    gap.set_field("EGU", "um")
    gap.set(95)

    assert (gap.get_field("EGU"), gap.get_field("DESC"), gap.get_field("SEVR")) == ("um", "The gap", "MAJOR")
    with client(settings) as context:
        until(lambda: context.get("T:SUM") == 96)
    with pytest.raises(ValueError, match="byte string too long"):
        gap.set_field("DESC", "x" * 40)
    with pytest.raises(AttributeError, match="LoadDatabase"):
        gap.DESC = "too late"
    with pytest.raises(AttributeError, match="LoadDatabase"):
        sum_of.CALC = "A+2"


def test_an_info_item_adds_a_record_to_a_group(settings: dict[str, str]) -> None:
    for number, name in enumerate(("first", "second"), 1):
        record = builder.aOut(name.upper(), initial_value=number)
        record.add_info("Q:group", {"T:GROUP": {name: {"+channel": "VAL", "+type": "plain", "+putorder": number}}})
    start()

    with client(settings) as context:
        group = context.get("pva://T:GROUP")
        assert (group["first"], group["second"]) == (1.0, 2.0)
        context.put("pva://T:GROUP", {"first": 3.0})
        assert context.get("T:FIRST") == 3.0


def test_the_set_of_records(tmp_path: Path) -> None:
    first = builder.boolIn("FIRST")
    builder.create_fanout("ALL", *(builder.records.calc(f"C{i}") for i in range(9)))
    path = tmp_path / "records.db"
    builder.WriteRecords(path)
    assert (str(first), LookupRecord("T:FIRST"), dict(LookupRecordList())) == ("T:FIRST", first, {"T:FIRST": first})
    assert path.read_text().count("record(") == 12 and 'field(LNK6, "T:ALL1")' in path.read_text()

    with pytest.raises(AssertionError, match="already defined"):
        builder.boolIn("FIRST")
    builder.ClearRecords()
    softioc.dbLoadDatabase(path.name, str(tmp_path))
    start()

    with pytest.raises(AssertionError, match="already been loaded"):
        builder.ClearRecords()
    with pytest.raises(AssertionError, match="too late"):
        builder.boolIn("SECOND")
    with pytest.raises(RuntimeError, match="is running"):
        softioc.iocInit()


def test_the_ioc_starts_again_with_other_records(settings: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(3):
        builder.longIn(f"N{number}", initial_value=number)
        start()
        softioc.dbl("*", "VAL")
        softioc.dbgf(f"T:N{number}")
        with client(settings) as context:
            assert context.get(f"T:N{number}") == number
        softioc.stop_ioc()

    printed = capsys.readouterr().out.splitlines()
    assert printed == [line for n in range(3) for line in (f"T:N{n}, {n}", f"T:N{n}: {n}")]


def test_saved_values_are_there_at_the_next_start(tmp_path: Path) -> None:
    for number in range(2):
        autosave.configure(tmp_path, "T", save_period=0.1)
        with autosave.Autosave(["VAL", "EGU"]):
            gap = builder.aOut("GAP", initial_value=1.5, EGU="mm")
        other = builder.longOut("OTHER", initial_value=4)
        start()
        if number == 0:
            gap.set(7.5)
            other.set(5)
            gap.set_field("EGU", "um")
            softioc.stop_ioc()

    assert (gap.get(), gap.get_field("EGU"), other.get()) == (7.5, "um", 4)


def test_values_that_pythonsoftioc_has_saved_are_used_until_there_are_newer_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # JSON is YAML too; the package is not needed for this test.
    monkeypatch.setitem(sys.modules, "yaml", SimpleNamespace(safe_load=json.load))
    (tmp_path / "T.softsav").write_text('{"T:GAP": 7.5, "T:GAP.EGU": "um", "T:NAMES": ["a", "b"], "T:BAD": "x", "T:OTHER": 9}')
    seen = []
    for number in range(2):
        autosave.configure(tmp_path, "T", save_period=0.1)
        with autosave.Autosave(["VAL", "EGU"]):
            gap = builder.aOut("GAP", initial_value=1.5, EGU="mm")
        names = builder.WaveformOut("NAMES", ["c"], length=4, autosave=True)
        bad = builder.longOut("BAD", initial_value=3, autosave=True)
        other = builder.longOut("OTHER", initial_value=4)
        start()
        seen.append((gap.get(), gap.get_field("EGU"), names.get(), bad.get(), other.get()))
        if number == 0:
            gap.set(8.5)
            softioc.stop_ioc()

    assert seen == [(7.5, "um", ["a", "b"], 3, 4), (8.5, "um", ["a", "b"], 3, 4)]


def test_a_dispatcher_with_many_calls_makes_records_wait(settings: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "CALLS_MAX", 2)
    may_return = threading.Event()
    taken: list[int] = []

    async def take(value: int) -> None:
        while not may_return.is_set():
            await asyncio.sleep(0.01)
        taken.append(value)

    number = builder.longOut("NUMBER", initial_value=0, on_update=take)
    start()
    with client(settings) as context:
        for value in (1, 2):
            context.put("T:NUMBER", value, wait=True)
        with pytest.raises(fodo.NoReply):
            context.put("T:NUMBER", 3, wait=True, timeout=0.2)
        for value in range(4, 8):
            number.set(value)
        may_return.set()
        until(lambda: len(taken) == 7)
        context.put("T:NUMBER", 8, wait=True)

    assert sorted(taken)[:7] == [1, 2, 3, 4, 5, 6, 7]


def test_a_function_sets_other_records_at_once_while_the_dispatcher_has_many_calls(
    settings: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device, "CALLS_MAX", 1)
    monkeypatch.setattr(device, "HANDLED", PATIENCE)
    durations: queue.Queue[float] = queue.Queue()
    taken: queue.Queue[int] = queue.Queue()

    async def follow(value: int) -> None:
        start = time.monotonic()
        follower.set(value)
        durations.put(time.monotonic() - start)

    async def take(value: int) -> None:
        taken.put(value)

    leader = builder.longOut("LEADER", initial_value=0, on_update=follow)
    follower = builder.longOut("FOLLOWER", initial_value=0, on_update=take)
    start()
    leader.set(1)

    assert durations.get(timeout=2 * PATIENCE) < PATIENCE / 2
    assert taken.get(timeout=PATIENCE) == 1


def test_the_labels_of_fields_are_read_by_one_client() -> None:
    gap = builder.aOut("GAP", initial_value=1, SCAN="Passive")
    mode = builder.mbbIn("MODE", "Off", "On", initial_value=1)
    start()
    first = STATE.client()

    for _ in range(3):
        assert (gap.get_field("SCAN"), mode.get_field("VAL")) == ("Passive", "On")

    assert STATE.client() is first
    softioc.stop_ioc()
    with pytest.raises(fodo.Closed):
        first.get("T:GAP", timeout=1)


def test_the_commands_of_the_prompt(capsys: pytest.CaptureFixture[str]) -> None:
    builder.longOut("N", initial_value=4)
    builder.longIn("M", initial_value=5)
    builder.records.calc("SLOW", SCAN="2 second", CALC="A")
    builder.records.calc("NAMED", SCAN="Event", EVNT="go", CALC="A")
    start()

    for call in ("dba('T:N')", "dbtpn('T:N', 6)", "tpn('T:N')", "dbtpf('T:N', 7)", "scanppl(2.0)", "scanpel('go')"):
        eval(f"softioc.{call}")
    softioc.scanpiol()
    for name in softioc.command_names:
        if name not in ("exit", "dbpf", "dbpr", "dbgrep", "dbtr", "dbgf", "dba", "dbtpn", "dbtpf", "pft", "tpn", "dbtgf", "gft"):
            getattr(softioc, name)()

    printed = capsys.readouterr().out
    for line in (
        "T:N: record type longout, value 4",
        "T:N: 6",
        "T:N: 7",
        "T:SLOW: 2 second",
        "T:NAMED: event go",
        "T:M: I/O Intr",
        "dbior: the IOC has no drivers in C",
    ):
        assert line in printed.splitlines(), line


def test_the_command_eltc_acts_on_every_logger_of_the_package(caplog: pytest.LogCaptureFixture) -> None:
    for is_on in (0, 1):
        softioc.eltc(is_on)
        for name in ("fodo", "fodo.puts"):
            logging.getLogger(name).error("%s %d", name, is_on)

    assert caplog.messages == ["fodo 1", "fodo.puts 1"]


def test_the_dispatcher_of_cothread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cothread", None)
    with pytest.raises(ImportError, match="needs the package cothread: install it, or use asyncio_dispatcher"):
        CothreadDispatcher()
    calls: list[Callable[[], None]] = []
    quits: list[bool] = []
    cothread = SimpleNamespace(Callback=calls.append, WaitForQuit=lambda: quits.append(True))
    monkeypatch.setitem(sys.modules, "cothread", cothread)
    done: list[Any] = []

    dispatcher = CothreadDispatcher()
    dispatcher(done.append, (1,), done.append, (2,))
    dispatcher(lambda: 1 // 0, completion=done.append, completion_args=(3,))
    dispatcher.wait_for_quit()
    for call in calls:
        call()

    assert (done, quits) == ([1, 2, 3], [True])
    with pytest.raises(TypeError, match="is a coroutine function"):
        dispatcher(asyncio.sleep, (1,))


def test_the_statistics_and_what_has_no_effect(settings: dict[str, str]) -> None:
    assert callbackSetQueueSize(10_000) == 0
    softioc.devIocStats("T")
    start()

    with client(settings) as context:
        # The statistics are measured after the start.
        until(lambda: context.get("T:CPU_CNT") == os.cpu_count())
        until(lambda: context.get("T:PROCESS_ID") == os.getpid())
        until(lambda: context.get("T:APP_DIR1") == os.getcwd()[:39])
        first = context.get("T:HEARTBEAT")
        until(lambda: context.get("T:HEARTBEAT") > first)
        with pytest.raises(fodo.Refused):
            context.put("T:HEARTBEAT", 0)


def test_a_record_that_clients_may_not_write_can_be_set(settings: dict[str, str]) -> None:
    taken: list[float] = []
    shown = builder.aOut("SHOWN", DISP=1, on_update=taken.append, validate=lambda record, value: value > 0)
    start()

    shown.set(2.5)
    shown.set(-1)

    until(lambda: taken == [2.5])
    with client(settings) as context:
        assert context.get("T:SHOWN") == 2.5 == shown.get()
        with pytest.raises(fodo.Refused):
            context.put("T:SHOWN", 4)


PROGRAM = """
import os, signal, threading
from fodo.compat.softioc import builder, softioc
from fodo.sync import Context

def put(name):
    with Context() as context:
        context.put(name, 1, wait=False)

builder.boolOut("END", on_update=lambda value: softioc.epicsExit(0))
builder.longIn("N", initial_value=4)
builder.LoadDatabase()
softioc.iocInit()
"""


@pytest.mark.parametrize(
    "end",
    [
        "softioc.interactive_ioc(globals())",
        "threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGTERM)).start(); softioc.non_interactive_ioc()",
        "threading.Timer(0.5, put, ('END',)).start(); threading.Event().wait(60)",
    ],
)
def test_a_program_ends_as_before(end: str, settings: dict[str, str]) -> None:
    printed = printed_by(f"{PROGRAM}softioc.dbgf('N')\n{end}\nprint('not ended')", settings)

    # The prompt may follow.
    assert printed.splitlines()[0] == "N: 4" and "not ended" not in printed


def test_a_dispatcher_needs_a_loop_that_runs() -> None:
    loop = asyncio.new_event_loop()
    with pytest.raises(ValueError, match="not running"):
        AsyncioDispatcher(loop)
    loop.close()
