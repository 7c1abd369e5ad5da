"""An IOC in a program, seen by clients of both protocols."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy
import pytest

import fodo
from fodo import aio, sync
from fodo.ioc import Ioc, NotSet, OutputRequest, Record, RunningIoc
from processes import PATIENCE


@contextmanager
def served(ioc: Ioc) -> Iterator[tuple[RunningIoc, sync.Context]]:
    """A running IOC and its client."""
    with ioc.serve(isolated=True) as running, sync.Context(settings=running.settings, timeout=10) as client:
        yield running, client


def until(is_true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_every_input_has_its_initial_value_and_the_one_that_is_set(protocol: str) -> None:
    ioc = Ioc("X:")
    cases: list[tuple[Record, Any, Any]] = [
        (ioc.ai("ai", initial=1.5, EGU="mm", PREC=2), 1.5, 2.5),
        (ioc.bi("bi", initial=1, labels=["Closed", "Open"]), 1, 0),
        (ioc.mbbi("mbbi", initial=2, labels=["a", "b", "c"]), 2, 1),
        (ioc.mbbiDirect("mbbiDirect", initial=5), 5, 6),
        (ioc.longin("longin", initial=-7), -7, 2**31 - 1),
        (ioc.int64in("int64in", initial=2**40), 2**40, -(2**62)),
        (ioc.stringin("stringin", initial="one"), "one", "two"),
        (ioc.event("event", initial="one"), "one", "two"),
        (ioc.waveform("waveform", initial=[1.0, 2.0], length=4), [1.0, 2.0], numpy.arange(4.0)),
        (ioc.aai("aai", initial=numpy.array([1, 2], dtype="int16")), [1, 2], numpy.array([3, 4], dtype="int16")),
        (ioc.waveform("texts", initial=["a", "b"]), ["a", "b"], ["c"]),
        (ioc.subArray("subArray", initial=[1.0, 2.0], length=4), [1.0, 2.0], [3.0, 4.0, 5.0]),
    ]
    with served(ioc) as (_, client):
        for record, initial, value in cases:
            assert client.get(f"{protocol}://{record.name}") == initial
            record.set(value)
            read = client.get(f"{protocol}://{record.name}")
            assert numpy.array_equal(read, value) if isinstance(value, numpy.ndarray) else read == value
            assert record.get() == (list(value) if isinstance(value, numpy.ndarray) else value)
        assert client.get(f"{protocol}://X:ai", detail="full").units == "mm"
        assert client.get(f"{protocol}://X:mbbi", detail="full").label == "b"


def test_a_number_that_a_record_would_store_as_another_one_is_refused() -> None:
    ioc = Ioc("X:")
    count, state, gap = ioc.longin("count", initial=1), ioc.bi("state", labels=["Off", "On"], initial=0), ioc.ai("gap")
    shorts = ioc.waveform("shorts", length=3, dtype="int16", initial=[1])
    output = ioc.longout("output", initial=1)
    cases: list[tuple[Record, Any, str]] = [
        (count, 2.5, "expected an integer between -2147483648 and 2147483647, not 2.5"),
        (count, 2**31, "not 2147483648"),
        (count, float("nan"), "expected an integer"),
        (count, "12 mm", 'not the text "12 mm"'),
        (state, -1, "expected an integer between 0 and 65535, not -1"),
        (gap, "wide", '"wide" is not a number'),
        (shorts, [1, 2.5], "element 1: expected an integer between -32768 and 32767, not 2.5"),
        (shorts, numpy.array([40_000]), "element 0: .* not 40000"),
        (output, 1e10, "not 10000000000"),
    ]
    with ioc.serve(isolated=True) as running:
        for record, value, reason in cases:
            before = record.get()
            with pytest.raises(fodo.Misuse, match=f'"{record.name}": .*{reason}'):
                record.set(value)
            assert record.get() == before
        with pytest.raises(NotSet) as refused:
            running.set_many([gap, count, output], numpy.array([0.5, 2.5, 7.0]))
        assert list(refused.value.errors) == [1] and refused.value.pv == count.name
        assert (gap.get(), count.get(), output.get()) == (0.5, 1, 7)
        assert running.counts.n_set_refused == len(cases) + 1

        for record, value, expected in [(count, "12", 12), (count, 3.0, 3), (state, "On", 1), (gap, " 1.5 ", 1.5)]:
            record.set(value)
            assert record.get() == expected
        # As the put of a client.
        output.put(2.5)
        assert output.get() == 2


def test_long_texts_go_both_ways() -> None:
    ioc = Ioc("X:")
    written: list[Any] = []
    state = ioc.lsi("state", initial="ready", length=500)
    ioc.lso("command", length=500, on_put=written.append)
    with served(ioc) as (_, client):
        state.set("s" * 400)
        client.put("pva://X:command", "c" * 300)

        assert client.get("pva://X:state") == "s" * 400 == state.get()
        assert written == ["c" * 300]
        with pytest.raises(fodo.Misuse, match='"X:state": the length of the value is 501; the record can store 500'):
            state.set("s" * 501)


def test_a_value_has_the_alarm_and_the_time_that_the_program_sets(protocol: str) -> None:
    ioc = Ioc("X:")
    temperature = ioc.ai("temperature", initial=1.0)
    with served(ioc) as (_, client):
        name = f"{protocol}://X:temperature"
        temperature.set(99.0, severity=fodo.Severity.MAJOR, status="HWLIMIT", message="no sensor", time=1e9 + 0.25)
        value = client.get(name)
        assert (value, value.severity, value.timestamp) == (99.0, fodo.Severity.MAJOR, 1e9 + 0.25)
        assert temperature.get().alarm[:2] == (fodo.Severity.MAJOR, "HWLIMIT")

        temperature.set_alarm(fodo.Severity.MINOR, "COMM", time=datetime(2030, 1, 2, tzinfo=timezone.utc))
        value = client.get(name)
        assert (value, value.severity) == (99.0, fodo.Severity.MINOR)
        assert value.time == datetime(2030, 1, 2, tzinfo=timezone.utc)

        temperature.set(20.0)
        assert client.get(name).severity == fodo.Severity.NO_ALARM
        with pytest.raises(fodo.Misuse, match='"X:temperature": there is no alarm status "HOT"'):
            temperature.set(1.0, status="HOT")
        with pytest.raises(fodo.Misuse, match="the time stamp cannot be soon"):
            temperature.set(1.0, time="soon")  # type: ignore[arg-type]


def test_every_value_that_a_sequence_writes_is_an_update(protocol: str) -> None:
    ioc = Ioc("X:")
    ioc.longout("out")
    fields: dict[str, Any] = {f"DO{n}": n for n in range(1, 9)} | {f"LNK{n}": "X:out PP" for n in range(1, 9)}
    ioc.record("seq", "steps", **fields)
    with served(ioc) as (_, client):
        monitor = client.monitor(f"{protocol}://X:out")
        assert monitor.next(10) == 0
        for _ in range(3):
            client.put(f"{protocol}://X:steps.PROC", 1)
            assert [monitor.next(10) for _ in range(8)] == [1, 2, 3, 4, 5, 6, 7, 8]


def test_the_statistics_of_an_ioc_are_pvs() -> None:
    ioc = Ioc("X:")
    ioc.ai("temperature")
    ioc.statistics("X:stats")
    with served(ioc) as (_, client):
        assert client.get("ca://X:stats:PROCESS_ID") == os.getpid() and client.get("pva://X:stats:RECORD_CNT") == 1
        with pytest.raises(fodo.Refused):
            client.put("ca://X:stats:RECORD_CNT", 2)


def test_a_severity_is_a_name_a_member_or_a_number() -> None:
    ioc = Ioc("X:")
    temperature = ioc.ai("temperature", initial=1.0)
    with ioc.serve(isolated=True):
        for given in ("MAJOR", fodo.Severity.MAJOR, 2):
            temperature.set(2.0, severity=given)
            assert temperature.get().severity is fodo.Severity.MAJOR
            temperature.set_alarm("NO_ALARM")
            assert temperature.get().severity is fodo.Severity.NO_ALARM
        for wrong in ("major", "HIHI", 4, -1, 1.5, None):
            with pytest.raises(fodo.Misuse, match='"X:temperature": the severity cannot be .*: expected one of NO_ALARM'):
                temperature.set_alarm(wrong)  # type: ignore[arg-type]
        assert temperature.get() == 2.0


def test_subscribers_receive_every_value(protocol: str) -> None:
    ioc = Ioc("X:")
    count = ioc.longin("count", initial=0)
    with served(ioc) as (running, client):
        monitor = client.monitor(f"{protocol}://X:count", queue_max=1000)
        assert monitor.next(10) == 0
        for n in range(1, 101):
            count.set(n)
            assert monitor.next(10) == n
        assert running.counts.n_set == 100


def test_a_put_is_complete_when_the_function_returns(protocol: str) -> None:
    ioc, values = Ioc("X:"), []

    def move(value: Any) -> None:
        time.sleep(0.05)
        values.append(value)

    ioc.ao("gap", on_put=move, DRVH=100)
    ioc.mbbo("mode", on_put=values.append, labels=["off", "on"])
    ioc.aao("table", on_put=values.append, length=3)
    ioc.waveform("samples", on_put=values.append, length=3, dtype=numpy.int32)
    with served(ioc) as (running, client):
        client.put(f"{protocol}://X:gap", 120.0)
        client.put(f"{protocol}://X:mode", "on")
        client.put(f"{protocol}://X:table", [1.0, 2.0])
        client.put(f"{protocol}://X:samples", numpy.array([4, 5]))

        assert values == [100.0, 1, [1.0, 2.0], [4, 5]]
        assert isinstance(values[3], fodo.Array) and values[3].numpy().dtype == numpy.int32
        with pytest.raises(ValueError, match="read-only"):
            values[3].numpy()[0] = 1
        assert running.counts.n_completed == 4


def test_an_exception_refuses_the_put_and_is_reported(protocol: str) -> None:
    reports: list[tuple[str, Exception]] = []

    def move(value: float) -> None:
        raise RuntimeError("the motor is off")

    ioc = Ioc("X:", on_error=lambda name, error: reports.append((name, error)))
    gap = ioc.ao("gap", on_put=move, initial=1.0)
    with served(ioc) as (running, client):
        client.put(f"{protocol}://X:gap", 2.0)

        assert gap.get().alarm == (fodo.Severity.INVALID, "WRITE", "the motor is off")
        assert (running.counts.n_refused, running.counts.n_function_errors) == (1, 1)
        until(lambda: len(reports) == 1)
        assert reports[0][0] == "X:gap" and str(reports[0][1]) == "the motor is off"


def test_validate_restores_or_refuses_before_the_put() -> None:
    ioc = Ioc("X:")
    written: list[float] = []

    def check(value: float) -> bool:
        if value > 50:
            raise ValueError("at most 50")
        return value >= 0

    gap = ioc.ao("gap", on_put=written.append, validate=check, initial=1.0, DRVL=-100, DRVH=100)
    with served(ioc) as (running, client):
        client.put("X:gap", -1.0)
        assert gap.get() == 1.0 and gap.get().severity == fodo.Severity.NO_ALARM
        client.put("X:gap", 60.0)
        assert gap.get() == 60.0 and gap.get().alarm.message == "at most 50"
        client.put("X:gap", 20.0)

        assert written == [20.0] and gap.get().severity == fodo.Severity.NO_ALARM
        counts = running.counts
        assert (counts.n_restored, counts.n_refused, counts.n_completed, counts.n_function_errors) == (1, 1, 1, 0)


def test_a_request_ends_when_the_program_ends_it(protocol: str) -> None:
    ioc = Ioc("X:")
    requests: list[OutputRequest] = []
    ended: list[Any] = []
    gap = ioc.ao("gap", on_request=requests.append, initial=1.0)
    with served(ioc) as (running, client):

        def put(value: float) -> OutputRequest:
            def put_and_wait() -> None:
                client.put(f"{protocol}://X:gap", value)
                ended.append(None)

            thread = threading.Thread(target=put_and_wait)
            thread.start()
            until(lambda: bool(requests))
            request = requests.pop()
            assert not ended and not request.is_ended
            yield_to.append(thread)
            return request

        yield_to: list[threading.Thread] = []
        for end, value in (("complete", 2.0), ("restore", 2.0), ("refuse", 4.0)):
            request = put(3.0 if end == "restore" else value)
            assert request.name == "X:gap"
            arguments = ["blocked"] if end == "refuse" else []
            assert getattr(request, end)(*arguments) and request.is_ended and not request.complete()
            yield_to.pop().join(PATIENCE)
            assert ended.pop() is None and gap.get() == value
        assert gap.get().alarm.message == "blocked"

        request = put(5.0)
        assert request.previous == 2.0
        del request
        yield_to.pop().join(PATIENCE)
        assert gap.get().alarm.message == "the program dropped the output"
        assert (running.counts.n_completed, running.counts.n_restored, running.counts.n_refused) == (1, 1, 2)


def test_coroutine_functions_run_on_the_event_loop_side_by_side(protocol: str) -> None:
    async def main() -> None:
        both, values = asyncio.Barrier(2), []

        async def move(value: Any) -> None:
            await both.wait()
            if value < 0:
                raise ValueError("negative")
            values.append((float(value), threading.current_thread() is threading.main_thread()))

        ioc = Ioc("X:", on_error=lambda name, error: None)
        gap, phase = (ioc.ao(name, on_put=move) for name in ("gap", "phase"))
        with ioc.serve(isolated=True) as running:
            async with aio.Context(settings=running.settings, timeout=10) as client:
                names = [f"{protocol}://X:{name}" for name in ("gap", "phase")]
                await asyncio.gather(client.put(names[0], 1.0), client.put(names[1], 2.0))
                await asyncio.gather(client.put(names[0], 3.0), client.put(names[1], -4.0))
                assert sorted(values) == [(1.0, True), (2.0, True), (3.0, True)]
                assert phase.get().alarm.message == "negative" and gap.get().severity == fodo.Severity.NO_ALARM

    asyncio.run(asyncio.wait_for(main(), PATIENCE))


def test_a_function_may_use_records() -> None:
    ioc = Ioc("X:")
    readback = ioc.ai("readback", initial=0.0)
    other = ioc.ao("other", initial=0.0)

    def move(value: float) -> None:
        readback.set(value)
        other.put(value + 1)
        gap.set(value / 2)

    gap = ioc.ao("gap", on_put=move)
    with served(ioc) as (_, client):
        client.put("X:gap", 8.0)

        assert (readback.get(), other.get(), client.get("X:gap")) == (8.0, 9.0, 4.0)


def test_put_processes_and_waits() -> None:
    ioc, values = Ioc("X:"), []

    def move(value: float) -> None:
        time.sleep(0.05)
        values.append(value)

    gap = ioc.ao("gap", on_put=move)
    ioc.record("calc", "double", CALC="A*2", INPA="X:gap CP")
    with served(ioc) as (running, _):
        gap.put(3.0, wait=True)
        assert values == [3.0]
        double = running.record("X:double")
        until(lambda: bool(double.get() == 6.0))
        running.record("X:double.CALC").put("A*3")
        running.record("X:double.PROC").put(1, wait=True)
        assert double.get() == 9.0
        with pytest.raises(fodo.Misuse, match='"X:dubble": there is no record "X:dubble"; did you mean "X:double"'):
            running.record("X:dubble")


def test_set_many_sets_all_valid_values_of_an_array_or_a_sequence() -> None:
    ioc = Ioc("X:")
    records = [ioc.ai(f"t{n}", initial=0.0) for n in range(100)]
    name = ioc.stringin("name", initial="")
    with served(ioc) as (running, client):
        for values in (numpy.arange(100.0), list(range(100)), numpy.arange(100, dtype="int32"), tuple(range(100))):
            running.set_many(records, numpy.zeros(100))
            running.set_many(records, values)
            assert client.get(["X:t7", "X:t99"]) == [7.0, 99.0]
        with pytest.raises(NotSet, match='"X:t1": "much" is not a number; 1 more values are not set') as raised:
            running.set_many([*records[:3], name], ["1", "much", "more", "named"])
        assert sorted(raised.value.errors) == [1, 2] and name.get() == "named"
        with pytest.raises(fodo.Misuse, match="there are 100 records and 2 values"):
            running.set_many(records, [1, 2])
        for surplus in ([5, 6, 7], (5, 6, 7), iter([5, 6, 7]), numpy.array([5, 6, 7])):
            with pytest.raises(fodo.Misuse, match="there are 1 records and 3 values"):
                running.set_many(records[:1], surplus)
            assert records[0].get() != 5
        assert (running.counts.n_set, running.counts.n_set_refused) == (802, 2)
        with served(Ioc()) as (other, _), pytest.raises(NotSet, match="is not for the VAL of a record of this IOC"):
            other.set_many(records[:1], [1.0])


def test_a_function_that_the_start_calls_uses_all_records() -> None:
    ended: list[BaseException | None] = []
    ioc = Ioc("X:")

    def move(value: float) -> None:
        try:
            position.set(value)
        except fodo.Error as error:
            ended.append(error)
        else:
            ended.append(None)

    ioc.ao("gap", initial=2.5, PINI="YES", on_put=move)
    # These take a while until they can be used.
    for number in range(1000):
        ioc.ai(f"t{number}")
    position = ioc.ai("position")
    with ioc.serve(isolated=True):
        until(lambda: bool(ended))
        assert ended == [None] and position.get() == 2.5


def test_every_update_is_received_or_counted_as_merged_by_the_ioc(protocol: str) -> None:
    ioc = Ioc("X:")
    records = [ioc.ai(f"t{n}", initial=-1.0) for n in range(10)]
    with served(ioc) as (running, client), client.batches([f"{protocol}://X:t{n}" for n in range(10)]) as batches:
        until(lambda: bool(batches.next(10)) and batches.counts.received == 10)
        for number in range(1, 2001):
            running.set_many(records, [number] * 10)
        values = [-1.0] * 10
        while min(values) < 2000:
            for row in batches.next(10):
                values[row.index] = row.value

        def n_accounted() -> int:
            return running.counts.n_updates_sent + running.counts.n_updates_merged

        until(lambda: n_accounted() == 20_000)
        received = batches.counts
    counts = running.counts
    # The values at the start of the subscriptions are replies.
    assert (counts.n_updates_posted, counts.n_updates_sent) == (20_000, received.received - 10)
    assert (received.delivered, received.merged, counts.n_updates_dropped) == (received.received, 0, 0)


def test_files_texts_info_items_aliases_and_other_record_types(tmp_path: Path, protocol: str) -> None:
    path = tmp_path / "gap.db"
    path.write_text('record(ao, "$(P)gap") { field(VAL, "12.5") field(EGU, "$(UNIT=mm)") }')
    ioc = Ioc("X:")
    ioc.load(path, {"UNIT": "um"})
    ioc.load_text('record(longout, "$(P)number") { field(VAL, "$(N)") }', "N=5")
    ioc.ai("t", initial=1.0, aliases=["temperature"], info={"archive": "monitor"})
    ioc.record("fanout", "both", LNK1="X:a.PROC", LNK2="X:b.PROC")
    for name in "ab":
        ioc.record("calc", name, CALC="VAL+1")
    with served(ioc) as (running, client):
        assert client.get(f"{protocol}://X:gap", detail="full").units == "um"
        assert client.get([f"{protocol}://X:gap", f"{protocol}://X:number", f"{protocol}://X:temperature"]) == [12.5, 5, 1.0]
        client.put(f"{protocol}://X:both.PROC", 1)
        assert client.get([f"{protocol}://X:a", f"{protocol}://X:b"]) == [1.0, 1.0]
        assert running.record("X:number").get() == 5


def test_routines_of_sub_and_asub_records(protocol: str) -> None:
    ioc = Ioc("X:")
    ioc.routine("ratio", lambda a, b, *others: a / b)
    ioc.array_routine("sums", lambda inputs: {"A": numpy.cumsum(inputs["A"].numpy()), "B": [len(inputs["A"])]})
    ioc.record("sub", "ratio", SNAM="ratio", INPA=6, INPB=4)
    ioc.record("aSub", "sums", SNAM="sums", FTA="DOUBLE", NOA=3, FTVA="FLOAT", NOVA=3, FTVB="LONG")
    with served(ioc) as (_, client):
        client.put(f"{protocol}://X:ratio.PROC", 1)
        client.put(f"{protocol}://X:sums.A", [1.0, 2.0, 4.0])
        client.put(f"{protocol}://X:sums.PROC", 1)

        assert client.get(f"{protocol}://X:ratio") == 1.5
        assert client.get(f"{protocol}://X:sums.VALA") == [1.0, 3.0, 7.0]
        assert client.get(f"{protocol}://X:sums.VALB") == 3


def test_autosave_restores_the_chosen_fields(tmp_path: Path) -> None:
    def define() -> tuple[Ioc, Record, Record]:
        ioc = Ioc("X:")
        ioc.autosave(tmp_path, period=0.1)
        return ioc, ioc.ao("gap", initial=1.0, autosave=["VAL", "DRVH"], DRVH=10), ioc.ao("phase", initial=2.0)

    ioc, gap, phase = define()
    with served(ioc) as (_, client):
        client.put("X:gap.DRVH", 20.0)
        client.put("X:gap", 15.0)
        client.put("X:phase", 7.0)
    ioc, gap, phase = define()
    with served(ioc) as (running, _):
        assert (gap.get(), running.record("X:gap.DRVH").get(), phase.get()) == (15.0, 20.0, 2.0)


def test_an_access_file_applies_and_is_read_again(tmp_path: Path, protocol: str) -> None:
    rules = tmp_path / "rules.acf"
    rules.write_text("ASG(DEFAULT) { RULE(1, READ) }")
    ioc = Ioc("X:")
    ioc.access(rules)
    ioc.ao("gap", initial=1.0)
    with served(ioc) as (running, client):
        with pytest.raises(fodo.Refused):
            client.put(f"{protocol}://X:gap", 2.0)
        rules.write_text("ASG(DEFAULT) { RULE(1, WRITE) }")
        assert running.reload_access() == []

        def can_write() -> bool:
            # The client learns of it later.
            try:
                client.put(f"{protocol}://X:gap", 2.0)
            except fodo.Refused:
                return False
            return True

        until(can_write)
        rules.write_text("ASG(")
        with pytest.raises(fodo.Misuse):
            running.reload_access()


def test_an_ioc_is_stopped_and_started_again_beside_others() -> None:
    ioc, other = Ioc("X:"), Ioc("Y:")
    gap, same = ioc.ao("gap", initial=1.0), other.ao("gap", initial=5.0)
    with served(other):
        for _ in range(3):
            running = ioc.start(isolated=True)
            assert ioc.running is running and gap.get() == 1.0
            gap.set(2.0)
            with pytest.raises(fodo.Misuse, match="the IOC is running"):
                ioc.start(isolated=True)
            with pytest.raises(fodo.Misuse, match="records are created before it starts"):
                ioc.ai("late")
            ioc.stop()
            running.stop()
            assert ioc.running is None and not running.is_running and running.wait(0)
            with pytest.raises(fodo.Closed, match='"X:gap": the IOC has stopped'):
                gap.set(3.0)
            with pytest.raises(fodo.Closed):
                running.record("X:gap")
            assert gap.get() == 2.0
        ioc.ai("new", initial=4.0)
        with served(ioc) as (_, client):
            assert client.get(["X:gap", "X:new"]) == [1.0, 4.0]
        assert same.get() == 5.0


def test_an_ioc_without_variables_stops() -> None:
    ioc = Ioc("X:")
    ioc.ao("gap", on_put=lambda value: None)
    settings = ioc.start(isolated=True).settings
    with sync.Context(settings=settings) as client:
        assert client.get("X:gap") == 0.0
        del ioc
        with pytest.raises(fodo.Error):
            client.get("X:gap", timeout=0.5)
    assert "fodo-ioc" not in [thread.name for thread in threading.enumerate()]


@pytest.mark.parametrize(
    ("define", "text"),
    [
        (lambda ioc: ioc.ai("t", EUG="K"), 'no field "EUG" in record type ai; did you mean "EGU"'),
        (lambda ioc: ioc.ai("t", units="K"), '"X:t": there is no option "units"'),
        (lambda ioc: ioc.record("calcc", "t"), 'no record type "calcc"; did you mean "calc"'),
        (lambda ioc: (ioc.ai("t"), ioc.ao("t")), "already exists"),
        (lambda ioc: ioc.ai("t", initial=object()), '"X:t": an object of type object cannot be sent'),
        (lambda ioc: ioc.waveform("t"), "the array has no length"),
        (lambda ioc: ioc.waveform("t", length=3, dtype="complex128"), 'elements cannot be of type "complex128"'),
        (lambda ioc: ioc.bi("t", labels=["a"]), "there are 1 labels: expected two"),
        (lambda ioc: ioc.load("absent.db"), "absent.db"),
        (lambda ioc: ioc.load_text("record("), "text"),
        (lambda ioc: ioc.ao("t", on_put=print, on_request=print), "on_put or on_request, not both"),
        (lambda ioc: ioc.ao("t", validate=asyncio.sleep), "validate cannot be a coroutine function"),
        (lambda ioc: ioc.autosave("x", period=0), "the period of autosave cannot be 0"),
    ],
)
def test_errors_of_definitions_name_what_is_wrong_and_leave_the_rest(define: Callable[[Ioc], Any], text: str) -> None:
    ioc = Ioc("X:")
    gap = ioc.ao("gap", initial=3.0)

    with pytest.raises(fodo.Misuse) as raised:
        define(ioc)

    assert text in str(raised.value)
    with served(ioc):
        assert gap.get() == 3.0


def test_a_record_needs_a_running_ioc() -> None:
    ioc = Ioc("X:")
    gap = ioc.ao("gap")
    with pytest.raises(fodo.Misuse, match='"X:gap": the IOC of this record was not started'):
        gap.set(1.0)

    async def move(value: float) -> None: ...

    ioc.ao("phase", on_put=move)
    with pytest.raises(fodo.Misuse, match='"X:phase": on_put is a coroutine function, and there is no event loop'):
        ioc.start(isolated=True)
    assert ioc.running is None


def test_numbers_of_numpy_are_values_of_fields() -> None:
    ioc = Ioc("X:")
    ioc.ao("gap", HIGH=numpy.float64(2.5), PREC=numpy.int32(3), DRVH=numpy.float32(7.5))
    with served(ioc) as (_, client):
        assert client.get(["X:gap.HIGH", "X:gap.PREC", "X:gap.DRVH"]) == [2.5, 3, 7.5]


def test_inputs_have_no_functions_for_puts() -> None:
    ioc = Ioc("X:")

    for record_type, other in (("ai", "ao"), ("longin", "longout"), ("int64in", "int64out"), ("lsi", "lso")):
        with pytest.raises(fodo.Misuse, match=f'"X:in": {record_type} has no on_put, .*: use {other}$'):
            getattr(ioc, record_type)("in", on_put=print)
    with pytest.raises(fodo.Misuse, match="aai has no validate, .*: use aao"):
        ioc.aai("in", length=3, validate=print)
    with pytest.raises(fodo.Misuse, match="initial must be a sequence or an array of numpy, not int"):
        ioc.waveform("array", initial=5)
