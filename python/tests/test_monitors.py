"""Monitors: iterators and callbacks of both faces."""

from __future__ import annotations

import asyncio
import gc
import logging
import queue
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

import fodo
from conftest import AioFace, Face, Place, SyncFace
from fodo import aio, sync
from fodo.ioc import Ioc
from processes import isolated, serving


def until(is_true: Any) -> None:
    deadline = time.monotonic() + 10
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_monitor_receives_the_current_value_and_every_change(face: Face, place: Place, protocol: str) -> None:
    name = place.name(protocol, "number")
    face.call("put", name, 0)
    monitor = face.monitor(name)
    assert face.next(monitor) == 0

    for number in (1, 2, 3):
        face.call("put", name, number)

    assert [face.next(monitor) for _ in range(3)] == [1, 2, 3]
    counts = monitor.counts
    assert (counts.received, counts.delivered, counts.merged, counts.n_callback_errors) == (4, 4, 0, 0)
    assert 0 < counts.longest_gap < 60
    assert monitor.name == name and not monitor.is_closed and monitor.why_inactive() is None
    monitor.close()
    monitor.close()
    assert monitor.is_closed
    with pytest.raises(fodo.Closed):
        face.next(monitor)


def test_updates_that_are_not_taken_are_merged_and_counted(face: Face, place: Place, protocol: str) -> None:
    name = place.name(protocol, "number")
    face.call("put", name, 0)
    monitors = [
        face.monitor(name, queue_max=2, when_full=policy, events=True) for policy in ("replace_last", "drop_oldest")
    ]
    for monitor in monitors:
        assert face.next(monitor).kind == "connected"
        assert face.next(monitor) == 0

    for number in range(1, 10):
        face.call("put", name, number)
    until(lambda: all(monitor.counts.received == 10 for monitor in monitors))

    first, last = ([face.next(monitor) for _ in range(3)] for monitor in monitors)
    assert (first[0], first[1].kind, first[1].detail, first[2]) == (1, "merged", 7, 9)
    assert (last[0].kind, last[0].detail, last[1:]) == ("merged", 7, [8, 9])
    assert [monitor.counts.merged for monitor in monitors] == [7, 7]


def test_several_names_are_monitored_with_one_call(face: Face, place: Place, protocol: str) -> None:
    names = [place.name(protocol, name) for name in ("gap", "number")]

    monitors = face.monitor(names)

    assert [face.next(monitor).name for monitor in monitors] == names


def test_no_update_in_time_is_a_timeout_that_loses_nothing(face: Face, place: Place, protocol: str) -> None:
    name = place.name(protocol, "number")
    face.call("put", name, 0)
    monitor = face.monitor(name)
    face.next(monitor)

    with pytest.raises(TimeoutError, match=name):
        face.next(monitor, 0.05)

    face.call("put", name, 1)
    assert face.next(monitor) == 1


def test_a_monitor_of_an_absent_name_says_why_it_is_inactive(face: Face, place: Place, protocol: str) -> None:
    monitor = face.monitor(place.name(protocol, "absent"))

    assert isinstance(monitor.why_inactive(), fodo.NotFound)


def test_an_iterator_ends_with_its_context(context: sync.Context, place: Place, protocol: str) -> None:
    values = []
    for value in context.monitor(place.name(protocol, "count")):
        values.append(value)
        if len(values) == 3:
            context.close()

    assert len(values) >= 3 and values[1] == values[0] + 1


def test_closing_a_monitor_ends_its_iterator_in_another_thread(context: sync.Context, place: Place) -> None:
    monitor = context.monitor(place.name("ca", "absent"))
    threading.Timer(0.1, monitor.close).start()

    assert list(monitor) == []


def test_a_callback_receives_values_on_a_thread_of_the_context(
    context: sync.Context, place: Place, protocol: str
) -> None:
    name, received = place.name(protocol, "number"), queue.Queue[Any]()
    context.put(name, 0)
    monitor = context.monitor(name, lambda value: received.put((value, threading.current_thread().name)))
    assert received.get(timeout=10) == (0, "fodo")

    context.put(name, 1)

    assert received.get(timeout=10) == (1, "fodo")
    monitor.close()
    context.put(name, 2)
    context.get(name)
    assert received.empty()


def test_a_callback_keeps_its_monitor(context: sync.Context, place: Place) -> None:
    received = queue.Queue[Any]()
    context.monitor(place.name("ca", "count"), received.put)
    gc.collect()

    values = [received.get(timeout=10) for _ in range(3)]

    assert values[2] == values[0] + 2


def test_a_callback_may_use_its_context_and_close_it(place: Place, protocol: str) -> None:
    # A value that is already queued is delivered after the end.
    context = sync.Context(settings=place.settings, on_error=lambda pv, error: None)
    name, results, ended = place.name(protocol, "number"), [], threading.Event()

    def on_value(value: Any) -> None:
        results.append((context.get(name), context.put(name, value + 1)))
        context.close()
        ended.set()

    context.monitor(name, on_value)

    assert ended.wait(10) and len(results) == 1


def test_an_exception_of_a_callback_is_reported_and_counted_and_ends_nothing(
    face: Face, place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    name, received = place.name("ca", "count"), []

    def on_value(value: Any) -> None:
        received.append(value)
        raise RuntimeError("the user's mistake")

    monitor = face.monitor(name, on_value)
    face.run_until(lambda: len(received) >= 3)

    assert monitor.counts.n_callback_errors >= 2
    messages = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert messages and all(name in message for message in messages)
    assert "the user's mistake" in caplog.text


def test_an_error_handler_replaces_the_log(place: Place) -> None:
    reported = queue.Queue[Any]()
    name = place.name("ca", "count")
    handler = lambda pv, error: reported.put((pv, type(error)))  # noqa: E731
    with sync.Context(settings=place.settings, on_error=handler) as context:
        context.monitor(name, lambda value: 1 / 0)

        assert reported.get(timeout=10) == (name, ZeroDivisionError)


def test_a_callback_that_exits_ends_nothing(place: Place) -> None:
    reported, received = queue.Queue[Any](), queue.Queue[Any]()
    with sync.Context(settings=place.settings, on_error=lambda pv, error: reported.put(str(error))) as context:
        context.monitor(place.name("ca", "count"), sys.exit)
        context.monitor(place.name("pva", "count"), received.put)

        assert all("sys.exit" in reported.get(timeout=10) for _ in range(2))
        assert received.get(timeout=10) + 1 == received.get(timeout=10)


def test_a_coroutine_function_as_callback_of_sync_is_reported(place: Place) -> None:
    async def on_value(value: Any) -> None:
        raise AssertionError("never awaited")

    reported = queue.Queue[Any]()
    with sync.Context(settings=place.settings, on_error=lambda pv, error: reported.put(str(error))) as context:
        context.monitor(place.name("ca", "gap"), on_value)

        assert "fodo.aio" in reported.get(timeout=10)


def test_a_subscription_that_needs_pvaccess_is_refused(face: Face, place: Place) -> None:
    monitor = face.monitor(place.name("ca", "gap"), request="field(value)")

    with pytest.raises(fodo.Refused, match="pvAccess"):
        face.next(monitor)


def test_a_lost_server_is_an_event_and_updates_continue_when_it_is_back(protocol: str) -> None:
    settings = isolated()
    with sync.Context(settings=settings, timeout=20) as context:
        with serving(settings, "R:"):
            monitor = context.monitor(f"{protocol}://R:number", events=True)
            kinds = [one.kind if isinstance(one, fodo.Event) else one for one in (monitor.next(10), monitor.next(10))]
            assert kinds == ["connected", 7]
        assert monitor.next(20) == fodo.Event(f"{protocol}://R:number", "disconnected")
        assert monitor.counts.n_disconnected == 1
        with serving(settings, "R:"):
            assert (monitor.next(60).kind, monitor.next(10)) == ("connected", 7)


def test_an_operation_that_loses_its_server_is_disconnected(protocol: str) -> None:
    settings = isolated()
    with serving(settings, "R:") as server, sync.Context(settings=settings, timeout=20) as context:
        name = f"{protocol}://R:slow.A"
        context.connect(name)
        threading.Timer(0.2, subprocess.Popen.kill, [server]).start()

        with pytest.raises(fodo.Disconnected) as caught:
            context.put(name, 5)

        assert caught.value.pv == name and isinstance(caught.value, ConnectionError)


def test_asynchronous_callbacks_are_awaited_one_after_another(place: Place, protocol: str) -> None:
    received: list[float] = []
    n_running = 0

    async def main() -> None:
        is_enough = asyncio.Event()

        async def on_value(value: float) -> None:
            nonlocal n_running
            n_running += 1
            assert n_running == 1
            await asyncio.sleep(0.01)
            n_running -= 1
            received.append(value)
            if len(received) == 2:
                raise RuntimeError("ends nothing")
            if len(received) == 4:
                is_enough.set()

        async with aio.Context(settings=place.settings, on_error=lambda pv, error: None) as context:
            monitor = context.monitor(place.name(protocol, "count"), on_value)
            await asyncio.wait_for(is_enough.wait(), 10)
            assert monitor.counts.n_callback_errors == 1

    asyncio.run(main())

    assert received == [received[0] + n for n in range(len(received))]


def test_what_a_function_returns_to_be_awaited_is_awaited_before_the_next_value(place: Place, protocol: str) -> None:
    received: list[float] = []

    async def main() -> None:
        is_enough = asyncio.Event()
        n_running = 0

        async def later(value: float) -> None:
            nonlocal n_running
            n_running += 1
            assert n_running == 1
            await asyncio.sleep(0.01)
            n_running -= 1
            received.append(value)

        def on_value(value: float) -> Any:
            if value % 2:
                return later(value)
            assert n_running == 0
            received.append(value)
            if len(received) >= 5:
                is_enough.set()
            return None

        async with aio.Context(settings=place.settings) as context:
            monitor = context.monitor(place.name(protocol, "count"), on_value)
            await asyncio.wait_for(is_enough.wait(), 10)
            assert monitor.counts.n_callback_errors == 0

    asyncio.run(main())

    assert received == [received[0] + n for n in range(len(received))]


@pytest.mark.parametrize("kind", [SyncFace, AioFace], ids=["sync", "aio"])
def test_updates_that_follow_each_other_closely_are_delivered_in_order_and_the_last_one_always(
    kind: type[Face], protocol: str
) -> None:
    ioc = Ioc("D:")
    records = [ioc.ai(str(n), initial=0.0) for n in range(20)]
    received: list[list[float]] = [[] for _ in records]
    with ioc.serve(isolated=True) as running:
        face = kind(running.settings)
        for n, values in enumerate(received):
            face.monitor(f"{protocol}://D:{n}", values.append)
        face.run_until(lambda: all(values == [0.0] for values in received))
        # Bursts, and single updates after them.
        for number in range(1, 301):
            running.set_many(records, [number] * len(records))
            if number % 100 == 0:
                face.run_until(lambda: all(values[-1] == number for values in received))  # noqa: B023
        face.close()

    assert all(values == sorted(set(values)) for values in received)


@pytest.mark.parametrize("is_async", [False, True])
def test_what_a_callback_leaves_when_it_closes_its_monitor_is_not_counted_as_delivered(
    face: Face, place: Place, protocol: str, is_async: bool
) -> None:
    if is_async and isinstance(face, SyncFace):
        pytest.skip("fodo.sync has no coroutines")
    name = place.name(protocol, "number")
    seen: list[float] = []
    monitors: list[Any] = []
    may_continue = threading.Event()

    def update(value: float) -> None:
        # The others wait meanwhile.
        may_continue.wait(1 if isinstance(face, AioFace) else 20)
        seen.append(value)
        if value == 3:
            monitors[0].close()

    async def update_later(value: float) -> None:
        while not may_continue.is_set():
            await asyncio.sleep(0.01)
        update(value)

    face.call("put", name, 0)
    with sync.Context(settings=place.settings, timeout=10) as other:
        monitors.append(face.monitor(name, update_later if is_async else update))
        for number in range(1, 7):
            until(lambda: monitors[0].counts.received == number)  # noqa: B023
            # Another connection, to which the server may send later.
            other.put(name, number)
        until(lambda: monitors[0].counts.received == 7)
    may_continue.set()
    face.run_until(lambda: monitors[0].is_closed)

    assert seen == [0, 1, 2, 3]
    counts = monitors[0].counts
    assert (counts.received, counts.delivered, counts.merged, counts.n_callback_errors) == (7, 4, 0, 0)


ENDINGS = (SystemExit(1), KeyboardInterrupt(), asyncio.CancelledError(), GeneratorExit())
"""Exceptions that are not an `Exception`."""


def test_no_exception_of_a_callback_or_an_error_handler_ends_the_thread_of_the_callbacks(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    raised: list[BaseException] = []
    received: queue.Queue[Any] = queue.Queue()

    def fail(value: Any) -> None:
        raise raised[-1]

    def fail_too(name: str, error: Exception) -> None:
        assert isinstance(error, Exception)
        raise raised[-1]

    with sync.Context(settings=place.settings, timeout=10, on_error=fail_too) as context:
        context.put("T:number", 0)
        raised.append(ENDINGS[0])
        failing = context.monitor("T:number", fail)
        until(lambda: failing.counts.n_callback_errors == 1)
        context.monitor("T:number", received.put)
        assert received.get(timeout=10) == 0
        for number, ending in enumerate(ENDINGS, 1):
            raised.append(ending)
            context.put("T:number", number)
            assert received.get(timeout=10) == number
        assert failing.counts.n_callback_errors == 1 + len(ENDINGS)
    assert caplog.text.count("the error handler") == 1 + len(ENDINGS)


def test_a_callback_that_raises_cancelled_error_delays_no_other_monitor(place: Place) -> None:
    async def main() -> None:
        errors: list[Exception] = []
        received: list[int] = []

        def fail(value: Any) -> None:
            raise asyncio.CancelledError

        async with aio.Context(
            settings=place.settings, timeout=10, on_error=lambda name, error: errors.append(error)
        ) as context:
            await context.put("T:number", 0)
            failing = context.monitor("T:number", fail)
            others = [context.monitor("T:number", received.append) for _ in range(4)]
            for number in (1, 2, 3):
                await context.put("T:number", number)
            await asyncio.wait_for(_until(lambda: received.count(3) == len(others)), 10)
            assert failing.counts.n_callback_errors == len(errors) > 0
            assert isinstance(errors[0].__cause__, asyncio.CancelledError)

    asyncio.run(main())


def test_a_coroutine_that_waits_for_a_cancelled_task_is_called_again(place: Place) -> None:
    async def main() -> None:
        received: list[int] = []
        errors: list[Exception] = []

        async def fail(value: Any) -> None:
            received.append(int(value))
            task = asyncio.ensure_future(asyncio.sleep(60))
            task.cancel()
            await task

        async with aio.Context(
            settings=place.settings, timeout=10, on_error=lambda name, error: errors.append(error)
        ) as context:
            await context.put("T:number", 0)
            monitor = context.monitor("T:number", fail)
            for number in (1, 2, 3):
                await context.put("T:number", number)
            await asyncio.wait_for(_until(lambda: 3 in received), 10)
            await asyncio.wait_for(_until(lambda: len(errors) == len(received)), 10)
            assert monitor.counts.n_callback_errors == len(received)

    asyncio.run(main())


def test_a_monitor_continues_after_its_callback_was_cancelled(place: Place) -> None:
    async def main() -> None:
        received: list[int] = []

        async def wait(value: Any) -> None:
            received.append(int(value))
            if len(received) == 1:
                await asyncio.sleep(60)

        async with aio.Context(settings=place.settings, timeout=10) as context:
            await context.put("T:number", 0)
            context.monitor("T:number", wait)
            await asyncio.wait_for(_until(lambda: received == [0]), 10)
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()
            await context.put("T:number", 1)
            await asyncio.wait_for(_until(lambda: received == [0, 1]), 10)

    asyncio.run(main())


async def _until(is_true: Any) -> None:
    while not is_true():
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("kind", [sync.Context, aio.Context])
def test_a_list_of_monitors_with_an_invalid_name_subscribes_to_nothing(kind: Any, place: Place) -> None:
    closed: list[str] = []

    async def main() -> None:
        context = kind(settings=place.settings, timeout=10)
        with pytest.raises(fodo.Misuse, match="the name of the channel is empty"):
            context.monitor(["T:number", ""], print)
        await asyncio.sleep(0.2)
        context.close()

    monitors = sys.modules[kind.__module__].Monitor
    close = monitors.close

    def noted_close(monitor: Any) -> None:
        closed.append(monitor.name)
        close(monitor)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(monitors, "close", noted_close)
        asyncio.run(main())
    assert closed == ["T:number"]
