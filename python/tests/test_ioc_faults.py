"""Functions of an IOC and callbacks of clients that block, fail, re-enter, and end together with the program."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

import pytest

import fodo
from fodo import sync
from fodo.ioc import Ioc, OutputRequest, RunningIoc
from processes import PATIENCE, isolated, printed_by
from test_ioc import served, until


def test_a_function_that_blocks_delays_only_other_functions(protocol: str) -> None:
    ioc = Ioc("X:")
    entered, release = threading.Event(), threading.Event()

    def block(value: float) -> None:
        entered.set()
        assert release.wait(PATIENCE)

    ioc.ao("blocked", on_put=block)
    ioc.ao("behind", on_put=lambda value: None)
    free, measured = ioc.ao("free", initial=0.0), ioc.ai("measured", initial=0.0)
    ioc.record("calc", "count", CALC="VAL+1", SCAN=".1 second")
    with served(ioc) as (_, client):
        monitor = client.monitor(f"{protocol}://X:count")
        first = monitor.next(10)
        writers = [
            threading.Thread(target=client.put, args=(f"{protocol}://X:{name}", 1.0)) for name in ("blocked", "behind")
        ]
        writers[0].start()
        assert entered.wait(PATIENCE)
        writers[1].start()

        client.put(f"{protocol}://X:free", 2.0)
        measured.set(3.0)
        assert client.get([f"{protocol}://X:free", f"{protocol}://X:measured"]) == [2.0, 3.0]
        assert monitor.next(10) > first and free.get() == 2.0
        assert all(writer.is_alive() for writer in writers)

        release.set()
        for writer in writers:
            writer.join(PATIENCE)
            assert not writer.is_alive()


def test_a_function_that_never_returns_does_not_block_the_stop(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("fodo._running.STOP", 0.1)
    ioc = Ioc("X:")
    entered, release = threading.Event(), threading.Event()

    def block(value: float) -> None:
        entered.set()
        release.wait(PATIENCE)

    ioc.ao("gap", on_put=block)
    running = ioc.start(isolated=True)
    running.record("X:gap").put(1.0)
    assert entered.wait(PATIENCE)

    with caplog.at_level(logging.ERROR, "fodo"):
        ioc.stop()

    assert not running.is_running and 'a function of "X:gap" has not returned within 0.1 s' in caplog.text
    release.set()


def test_a_function_that_fails_or_ends_the_program_is_called_again() -> None:
    def fail(name: str, error: Exception) -> None:
        raise RuntimeError("the handler fails, too")

    ioc = Ioc("X:", on_error=fail)
    errors: list[BaseException] = [ValueError("first"), SystemExit(1), KeyboardInterrupt()]
    written = []

    def move(value: float) -> None:
        if errors:
            raise errors.pop()
        written.append(value)

    gap = ioc.ao("gap", on_put=move)
    with served(ioc) as (running, client):
        for value, message in ((1.0, "KeyboardInterrupt"), (2.0, "1"), (3.0, "first")):
            client.put("X:gap", value)
            assert gap.get().alarm.message == message
        client.put("X:gap", 4.0)

        assert written == [4.0] and gap.get().severity == fodo.Severity.NO_ALARM
        assert running.counts.n_function_errors == 3


def test_a_function_that_would_wait_for_itself_gets_an_error() -> None:
    ioc = Ioc("X:")
    failures: list[Exception] = []

    def move(value: float) -> None:
        try:
            other.put(value, wait=True)
        except fodo.Misuse as error:
            failures.append(error)

    gap, other = ioc.ao("gap", on_put=move), ioc.ao("other", on_put=lambda value: None)
    with served(ioc):
        gap.put(1.0, wait=True)

        assert "a callback of the IOC cannot wait for a put" in str(failures[0])
        other.put(2.0, wait=True)


def test_a_function_may_stop_its_ioc() -> None:
    ioc = Ioc("X:")
    ioc.ao("stop", on_put=lambda value: ioc.stop())
    running = ioc.start(isolated=True)

    running.record("X:stop").put(1.0)

    assert running.wait(PATIENCE) and ioc.running is None
    with served(ioc) as (_, client):
        assert client.get("X:stop") == 0.0


def test_a_function_may_be_a_client_of_its_own_ioc(protocol: str) -> None:
    ioc = Ioc("X:")
    contexts: list[sync.Context] = []
    ioc.ao("gap", on_put=lambda value: contexts[0].put(f"{protocol}://X:other", value + 1))
    other = ioc.ao("other", initial=0.0)
    with served(ioc) as (_, client):
        contexts.append(client)
        client.put(f"{protocol}://X:gap", 1.0)

        assert other.get() == 2.0


def test_a_callback_of_a_client_that_blocks_delays_no_call(protocol: str) -> None:
    ioc = Ioc("X:")
    count = ioc.longin("count", initial=0)
    entered, release = threading.Event(), threading.Event()
    with served(ioc) as (running, client):

        def block(value: Any) -> None:
            seen.append(value)
            entered.set()
            release.wait(PATIENCE)

        seen: list[Any] = []
        client.monitor(f"{protocol}://X:count", block)
        assert entered.wait(PATIENCE)
        for n in range(1, 200):
            count.set(n)
        assert client.get(f"{protocol}://X:count") == 199
        release.set()
        until(lambda: bool(seen[-1] == 199))


def test_a_callback_closes_its_own_subscription_and_may_call(protocol: str) -> None:
    ioc = Ioc("X:")
    count = ioc.longin("count", initial=0)
    seen: list[Any] = []
    with served(ioc) as (_, client):
        ready = threading.Event()

        def close(value: Any) -> None:
            assert ready.wait(PATIENCE)
            seen.append(client.get(f"{protocol}://X:count"))
            monitor.close()

        monitor = client.monitor(f"{protocol}://X:count", close)
        ready.set()
        until(lambda: monitor.is_closed)
        for n in range(1, 50):
            count.set(n)
        assert client.get(f"{protocol}://X:count") == 49 and len(seen) == 1


def test_a_callback_that_fails_is_called_again(protocol: str) -> None:
    ioc = Ioc("X:")
    count = ioc.longin("count", initial=0)
    errors: list[Exception] = []

    def note(name: str, error: Exception) -> None:
        errors.append(error)

    with ioc.serve(isolated=True) as running, sync.Context(settings=running.settings, on_error=note) as client:
        monitor = client.monitor(f"{protocol}://X:count", lambda value: 1 / 0)
        for n in range(5):
            until(lambda n=n: len(errors) > n)  # type: ignore[misc]
            count.set(n + 1)
        assert monitor.counts.n_callback_errors >= 5 and client.get(f"{protocol}://X:count") == 5


def test_an_ioc_outlives_the_event_loop_of_its_coroutines() -> None:
    ioc = Ioc("X:", on_error=lambda name, error: None)
    started = []

    async def move(value: float) -> None:
        started.append(value)
        await asyncio.sleep(PATIENCE)

    gap = ioc.ao("gap", on_put=move)

    async def main() -> RunningIoc:
        running = ioc.start(isolated=True)
        gap.put(1.0)
        while not started:
            await asyncio.sleep(0.01)
        return running

    with asyncio.Runner() as runner:
        running = runner.run(main())
    with running:
        # The end of the loop has cancelled it.
        until(lambda: gap.get().alarm.message == "cancelled")
        gap.put(2.0, wait=True)
        # AMSG has 39 bytes.
        assert "the event loop of the IOC".startswith(gap.get().alarm.message.split('": ')[1][:20])
        assert gap.get().severity == fodo.Severity.INVALID and started == [1.0]


def test_stopping_an_ioc_cancels_its_coroutines() -> None:
    async def main() -> None:
        started, cancelled = asyncio.Event(), asyncio.Event()

        async def move(value: float) -> None:
            started.set()
            try:
                await asyncio.sleep(PATIENCE)
            except asyncio.CancelledError:
                cancelled.set()
                raise

        ioc = Ioc("X:")
        gap = ioc.ao("gap", on_put=move)
        with ioc.serve(isolated=True):
            gap.put(1.0)
            await started.wait()
        await asyncio.wait_for(cancelled.wait(), 10)

    asyncio.run(main())


def test_the_child_of_a_fork_gets_an_error_and_runs_its_own_ioc() -> None:
    source = """
import os, sys
import fodo
from fodo import sync
from fodo.ioc import Ioc
ioc = Ioc("X:")
gap = ioc.ao("gap", initial=1.0, on_put=lambda value: None)
running = ioc.start(isolated=True)
child = os.fork()
if child == 0:
    for call in (gap.get, lambda: gap.set(2.0), lambda: gap.put(2.0, wait=True), lambda: running.record("X:gap"),
                 lambda: running.set_many([gap], [1.0])):
        try:
            call()
            sys.exit("the child uses the IOC of its parent")
        except fodo.Forked:
            pass
    ioc.stop()
    del ioc, running, gap
    own = Ioc("Y:")
    gap = own.ao("gap", initial=3.0, on_put=lambda value: None)
    with own.serve(isolated=True) as running, sync.Context(settings=running.settings) as client:
        client.put("Y:gap", 4.0)
        assert client.get("pva://Y:gap") == 4.0 == gap.get()
    print("child", flush=True)
    sys.exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
with sync.Context(settings=running.settings) as client:
    client.put("X:gap", 5.0)
    assert client.get("X:gap") == 5.0
print("parent")
"""
    assert printed_by(source, {}) == "child\nparent\n"


@pytest.mark.parametrize(
    "ending",
    ["", "raise SystemExit(0)", "del ioc, running", "threading.Thread(target=lambda: time.sleep(0.2)).start()"],
)
def test_a_program_ends_while_its_ioc_runs(ending: str) -> None:
    source = f"""
import sys, threading, time
from fodo import sync
from fodo.ioc import Ioc
ioc = Ioc("X:")
ioc.routine("add", lambda a, *others: a + 1)
ioc.record("sub", "fast", SNAM="add", INPA="X:fast NPP", SCAN=".1 second")
measured = ioc.ai("measured", initial=0.0)
ioc.ao("gap", on_put=lambda value: measured.set(value))
running = ioc.start(isolated=True)
context = sync.Context(settings=running.settings)
values = []
context.monitor("pva://X:fast", values.append)
while len(values) < 3:
    context.put("X:gap", float(len(values)))
print("ends", flush=True)
{ending}
"""
    assert printed_by(source, {}) == "ends\n"


@pytest.mark.parametrize(
    "call",
    [
        "gap.put(1.0, wait=True, timeout=60)",
        "running.wait()",
        'context.put("X:gap", 1.0, timeout=60)',
        'context.get("X:absent", timeout=60)',
        'next(context.monitor("X:absent"))',
    ],
)
def test_ctrl_c_ends_a_call(call: str) -> None:
    source = f"""
import os, signal, threading, time
from fodo import sync
from fodo.ioc import Ioc
ioc = Ioc("X:")
requests = []
gap = ioc.ao("gap", on_request=requests.append)
with ioc.serve(isolated=True) as running, sync.Context(settings=running.settings) as context:
    context.get("X:gap")
    def interrupt():
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGINT)
    threading.Thread(target=interrupt).start()
    began = time.monotonic()
    try:
        {call}
    except KeyboardInterrupt:
        assert time.monotonic() - began < 10
        print("interrupted")
    assert context.get("X:gap") in (0.0, 1.0)
    requests.clear()
    gap.put(2.0)
"""
    assert printed_by(source, {}) == "interrupted\n"


def test_circles_of_links_leave_records_usable(protocol: str) -> None:
    ioc = Ioc("X:")
    ioc.record("calc", "one", CALC="VAL+1", FLNK="X:two")
    ioc.record("calc", "two", CALC="VAL+1", FLNK="X:one")
    ioc.record("calc", "itself", CALC="VAL+1", FLNK="X:itself")
    ioc.record("calc", "chase", CALC="A+1", INPA="X:hunt CP")
    ioc.record("calc", "hunt", CALC="A+1", INPA="X:chase CP")
    measured = ioc.ai("measured", initial=0.0, FLNK="X:one")
    with served(ioc) as (_, client):
        names = [f"{protocol}://X:{name}" for name in ("one", "two", "itself")]
        before = client.get(names)
        client.put([f"{name}.PROC" for name in names[::2]], [1, 1])
        after = client.get(names)
        assert [value - first for value, first in zip(after, before, strict=True)] == [1, 1, 1]

        # A circle of CP links runs for ever, and disturbs nothing else.
        client.put(f"{protocol}://X:chase.PROC", 1)
        chase = client.get(f"{protocol}://X:chase")
        until(lambda: bool(client.get(f"{protocol}://X:chase") > chase))
        for n in range(20):
            measured.set(n)
            assert client.get(f"{protocol}://X:measured") == n
        assert client.get(names[0]) == after[0] + 20


def test_division_by_zero_is_an_alarm_that_clears_with_its_cause(protocol: str) -> None:
    ioc = Ioc("X:")
    divisor = ioc.ai("divisor", initial=0.0, FLNK="X:ratio")
    ioc.record("calc", "ratio", CALC="1%A", INPA="X:divisor")
    with served(ioc) as (running, client):
        ratio = running.record("X:ratio")
        divisor.set(4.0)
        assert ratio.get() == 1
        divisor.set(0.0)
        assert ratio.get().alarm[:2] == (fodo.Severity.INVALID, "UDF")
        divisor.set(2.0)
        assert ratio.get() == 1 and ratio.get().severity == fodo.Severity.NO_ALARM


def test_a_routine_that_fails_raises_an_alarm_and_is_called_again(
    protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    ioc = Ioc("X:")

    def uses_records(a: float, *others: float) -> float:
        measured.set(a)
        return a

    measured = ioc.ai("measured", initial=0.0)
    ioc.routine("inverse", lambda a, *others: 1 / a)
    ioc.routine("text", lambda *inputs: "much")  # type: ignore[arg-type]
    ioc.routine("uses_records", uses_records)
    ioc.array_routine("letter", lambda inputs: {"Z": [1.0]})
    ioc.array_routine("convert", lambda inputs: {"A": ["much"]})
    for name in ("inverse", "text", "uses_records"):
        ioc.record("sub", name, SNAM=name, BRSV="MAJOR")
    for name in ("letter", "convert"):
        ioc.record("aSub", name, SNAM=name, BRSV="MAJOR")
    with served(ioc) as (running, client), caplog.at_level(logging.ERROR, "fodo"):
        for n, name in enumerate(("inverse", "text", "uses_records", "letter", "convert"), 1):
            client.put(f"{protocol}://X:{name}.PROC", 1)
            record = running.record(f"X:{name}")
            assert record.get().severity >= fodo.Severity.MAJOR, name
            assert running.counts.n_routine_errors == n
        until(lambda: caplog.text.count("the routine") == 5)
        assert 'the routine "inverse" failed: ZeroDivisionError' in caplog.text
        assert 'the routine "uses_records" failed: Misuse' in caplog.text

        client.put([f"{protocol}://X:inverse.A", f"{protocol}://X:inverse.PROC"], [4.0, 1])
        inverse = running.record("X:inverse").get()
        assert (inverse, inverse.severity) == (0.25, fodo.Severity.NO_ALARM)
        measured.set(1.0)


def test_a_routine_that_ends_a_put_is_refused_and_the_put_ends_later(caplog: pytest.LogCaptureFixture) -> None:
    requests: list[OutputRequest] = []

    def end_put(a: float, *others: float) -> float:
        requests[0].complete()
        return a

    ioc = Ioc("X:")
    ioc.routine("end_put", end_put)
    ioc.record("sub", "sub", SNAM="end_put", BRSV="MAJOR")
    gap = ioc.ao("gap", initial=1.0, on_request=requests.append)
    with served(ioc) as (running, client), caplog.at_level(logging.ERROR, "fodo"):
        gap.put(2.0)
        until(lambda: bool(requests))
        client.put("X:sub.PROC", 1)
        until(lambda: "cannot use records" in caplog.text)
        assert running.counts.n_routine_errors == 1
        assert requests[0].complete()
        until(lambda: bool(gap.get() == 2.0))


def test_threads_that_compute_set_and_call_routines_do_not_wait_for_each_other(protocol: str) -> None:
    ioc = Ioc("X:")
    ioc.routine("add", lambda a, *others: a + 1)
    ioc.record("sub", "sum", SNAM="add", INPA="X:count CP")
    count = ioc.longin("count", initial=0)
    gap = ioc.ao("gap", on_put=lambda value: count.set(int(value)))
    ended = threading.Event()

    def compute() -> None:
        while not ended.is_set():
            sum(range(1000))

    def set_values() -> None:
        for n in range(300):
            count.set(n)
            gap.put(float(n))
            count.get()

    with served(ioc) as (_, client):
        computing = threading.Thread(target=compute)
        setting = [threading.Thread(target=set_values) for _ in range(3)]
        for thread in (computing, *setting):
            thread.start()
        for n in range(20):
            client.put(f"{protocol}://X:gap", float(n))
        for thread in setting:
            thread.join(PATIENCE)
            assert not thread.is_alive()
        ended.set()
        computing.join()
        # Its function runs after those of the puts before.
        gap.put(1000.0, wait=True)
        until(lambda: bool(client.get(f"{protocol}://X:sum") == 1001))


def test_a_client_with_the_settings_of_an_ioc_finds_no_other() -> None:
    ioc, other = Ioc("X:"), Ioc("Y:")
    ioc.ai("t", initial=1.0)
    other.ai("t", initial=2.0)
    with served(ioc) as (_, client), served(other), pytest.raises(fodo.NotFound):
        client.get("Y:t", timeout=0.5)


def test_an_ioc_uses_the_variables_of_its_settings() -> None:
    settings = isolated()
    ioc = Ioc("X:")
    gap = ioc.ao("gap", initial=1.0)
    with ioc.serve(settings=settings), sync.Context(settings=settings, timeout=10) as client:
        client.put("ca://X:gap", 2.0)
        assert client.get("pva://X:gap") == 2.0 == gap.get()
    with pytest.raises(fodo.Misuse, match="EPICS_CAS_SERVER_PORT"):
        ioc.start(settings=settings | {"EPICS_CAS_SERVER_PORT": "many"})


def test_neither_a_text_nor_an_error_handler_ends_the_thread_of_an_ioc() -> None:
    class WithoutText(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    def leave(name: str, error: Exception) -> None:
        raise SystemExit

    errors = [WithoutText(), ValueError("caf\udce9")]

    def move(value: float) -> None:
        if errors:
            raise errors.pop()

    ioc = Ioc("X:", on_error=leave)
    gap = ioc.ao("gap", on_put=move)
    with served(ioc) as (running, client):
        for value, message in ((1.0, "caf?"), (2.0, "WithoutText"), (3.0, "")):
            client.put("X:gap", value)
            assert gap.get().alarm.message == message
        assert running.counts.n_function_errors == 2
