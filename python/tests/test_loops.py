"""Event loops: several of them, cancellation, and closing in any order."""

from __future__ import annotations

import asyncio
import selectors
import threading
import time
from typing import Any

import pytest

import fodo
from conftest import Place
from fodo import aio


def test_a_context_serves_several_loops_at_once(place: Place, protocol: str) -> None:
    context = aio.Context(settings=place.settings)
    name, results = place.name(protocol, "gap"), []

    async def main() -> None:
        results.extend(await asyncio.gather(*(context.get(name) for _ in range(20))))
        async for value in context.monitor(place.name(protocol, "count")):
            results.append(value)
            break

    threads = [threading.Thread(target=asyncio.run, args=(main(),)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    context.close()

    assert len(results) == 63


def test_loops_follow_each_other(place: Place, protocol: str) -> None:
    context = aio.Context(settings=place.settings)

    values = [asyncio.run(context.get(place.name(protocol, "gap"))) for _ in range(3)]

    assert all(isinstance(value, float) for value in values)
    context.close()


def test_a_cancelled_call_leaves_the_others(place: Place, protocol: str) -> None:
    async def main() -> None:
        async with aio.Context(settings=place.settings) as context:
            waiting = asyncio.create_task(context.get(place.name(protocol, "absent"), timeout=60))
            await asyncio.sleep(0.05)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert isinstance(await context.get(place.name(protocol, "gap")), float)

    asyncio.run(main())


def test_a_timeout_of_asyncio_ends_a_call_and_an_iteration(place: Place, protocol: str) -> None:
    async def main() -> None:
        async with aio.Context(settings=place.settings) as context:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await context.get(place.name(protocol, "absent"), timeout=float("inf"))
            monitor = context.monitor(place.name(protocol, "absent"))
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await anext(monitor)

    asyncio.run(main())


def test_closing_a_context_ends_calls_and_iterators(place: Place, protocol: str) -> None:
    async def main() -> None:
        context = aio.Context(settings=place.settings)
        call = asyncio.create_task(context.get(place.name(protocol, "absent"), timeout=60))
        monitor = context.monitor(place.name(protocol, "absent"))

        async def iterate() -> list[Any]:
            return [value async for value in monitor]

        iteration = asyncio.create_task(iterate())
        await asyncio.sleep(0.05)
        context.close()
        async with asyncio.timeout(10):
            with pytest.raises(fodo.Closed):
                await call
            assert await iteration == []

    asyncio.run(main())


def test_closing_a_monitor_ends_its_iterator(place: Place) -> None:
    async def main() -> None:
        async with aio.Context(settings=place.settings) as context, context.monitor("ca://T:absent") as monitor:
            asyncio.get_running_loop().call_later(0.05, monitor.close)
            async with asyncio.timeout(10):
                assert [value async for value in monitor] == []

    asyncio.run(main())


def test_a_loop_may_be_closed_before_its_context(place: Place, protocol: str) -> None:
    context = aio.Context(settings=place.settings)
    monitors = []

    async def main() -> None:
        monitors.append(context.monitor(place.name(protocol, "count")))
        monitors.append(context.monitor(place.name(protocol, "count"), lambda value: None))
        await anext(monitors[0])

    asyncio.run(main())
    for monitor in monitors:
        monitor.close()
    context.close()

    assert all(monitor.is_closed for monitor in monitors)


def test_a_context_may_be_closed_by_another_thread(place: Place, protocol: str) -> None:
    context = aio.Context(settings=place.settings)

    async def main() -> None:
        threading.Timer(0.1, context.close).start()
        async for _ in context.monitor(place.name(protocol, "count")):
            pass

    asyncio.run(asyncio.wait_for(main(), 10))


def test_a_busy_loop_loses_no_update(place: Place, protocol: str) -> None:
    async def main() -> None:
        async with aio.Context(settings=place.settings) as context:
            monitor = context.monitor(place.name(protocol, "count"))
            first = await anext(monitor)
            threading.Event().wait(0.5)
            values = [await monitor.next(10) for _ in range(6)]
            assert values == [first + n for n in range(1, 7)] and monitor.counts.merged == 0

    asyncio.run(main())


def test_the_functions_of_the_module_have_a_context_of_their_own(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in place.settings.items():
        monkeypatch.setenv(name, text)

    async def main() -> list[Any]:
        await aio.put("ca://T:gap", 4.5)
        return [await aio.get("ca://T:gap"), await anext(aio.monitor("pva://T:gap"))]

    assert asyncio.run(main()) == [4.5, 4.5]


@pytest.mark.parametrize("is_computing", [True, False], ids=["computing", "blocked"])
def test_a_busy_loop_delays_no_other_user_of_its_circuit(place: Place, protocol: str, is_computing: bool) -> None:
    context = aio.Context(settings=place.settings, timeout=20)
    gap, count = place.name(protocol, "gap"), place.name(protocol, "count")
    is_busy, is_done = threading.Event(), threading.Event()
    results: list[Any] = []

    async def busy() -> None:
        """Has just read the circuit, and waits for another reply there that it does not read."""
        await context.connect([gap, count])
        results.append(await context.get(gap))
        waiting = asyncio.create_task(context.get(gap))
        await asyncio.sleep(0)
        is_busy.set()
        if is_computing:
            deadline = time.monotonic() + 20
            while not is_done.is_set() and time.monotonic() < deadline:
                sum(range(100))
        else:
            is_done.wait(20)
        assert is_done.is_set()
        results.append(await waiting)

    async def other() -> None:
        start = time.monotonic()
        monitor = context.monitor(count)
        n_updates = 0
        while n_updates < 5 or time.monotonic() < start + 2:
            await context.get(gap)
            await monitor.next(20)
            n_updates += 1
        results.append(n_updates)

    thread = threading.Thread(target=asyncio.run, args=(busy(),))
    thread.start()
    assert is_busy.wait(20)
    asyncio.run(other())
    is_done.set()
    thread.join()
    context.close()

    assert len(results) == 3 and all(isinstance(result, float | int) for result in results)


@pytest.mark.parametrize("selector", [selectors.SelectSelector, selectors.PollSelector, selectors.EpollSelector])
def test_any_loop_with_add_reader_reads_the_connections(
    place: Place, protocol: str, selector: type[selectors.BaseSelector]
) -> None:
    async def main() -> None:
        async with aio.Context(settings=place.settings, timeout=10) as context:
            name = place.name(protocol, "gap")
            for number in range(20):
                await context.put(name, number)
                assert await context.get(name) == number
            assert len(await asyncio.gather(*(context.get(name) for _ in range(500)))) == 500

    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector())) as runner:
        runner.run(main())


def test_a_cancelled_call_leaves_the_reading_to_the_others(place: Place, protocol: str) -> None:
    async def main() -> None:
        async with aio.Context(settings=place.settings, timeout=10) as context:
            name = place.name(protocol, "gap")
            await context.get(name)
            for _ in range(100):
                cancelled = asyncio.create_task(context.get(name))
                other = asyncio.create_task(context.get(name))
                await asyncio.sleep(0)
                cancelled.cancel()
                assert isinstance(await other, float)
                with pytest.raises(asyncio.CancelledError):
                    await cancelled

    asyncio.run(main())


def test_a_loop_that_is_closed_while_it_reads_leaves_the_reading_to_others(place: Place, protocol: str) -> None:
    context = aio.Context(settings=place.settings, timeout=10)
    name = place.name(protocol, "gap")

    async def begin() -> None:
        await context.get(name)
        asyncio.get_running_loop().create_task(context.get(name))
        await asyncio.sleep(0)

    for _ in range(5):
        loop = asyncio.new_event_loop()
        loop.run_until_complete(begin())
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
        # The circuit is still lent to the loop that has just been closed.
        assert isinstance(asyncio.run(context.get(name)), float)
    context.close()


def test_large_values_are_read_and_written_in_the_loop(place: Place, protocol: str) -> None:
    async def main() -> None:
        async with aio.Context(settings=place.settings, timeout=20) as context:
            name = place.name(protocol, "large")
            for first in (1.0, 2.0):
                await context.put(name, [first] * 500_000)
                read = await context.get(name)
                assert len(read) == 500_000 and read[0] == read[-1] == first

    asyncio.run(main())
