"""`batches()`: updates of many PVs as columns."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from typing import Any

import numpy
import pytest

import fodo
from conftest import AioFace, Face, Place, SyncFace
from fodo import aio, sync
from fodo._batches import ROW
from fodo.ioc import Ioc
from processes import isolated, printed_by, serving


class Taken:
    """What was taken so far."""

    def __init__(self, face: Face, batches: Any) -> None:
        self.face = face
        self.batches = batches
        self.rows: list[fodo.Row] = []
        self.events: list[fodo.BatchEvent] = []

    def until(self, is_complete: Any) -> Taken:
        deadline = time.monotonic() + 20
        while not is_complete(self):
            assert time.monotonic() < deadline, (self.rows, self.events)
            batch = self.face.next(self.batches)
            self.rows += list(batch)
            self.events += batch.events
        return self

    def values(self, index: int) -> list[float]:
        return [row.value for row in self.rows if row.index == index]


def test_a_batch_has_the_updates_of_all_pvs_as_columns(face: Face, place: Place, protocol: str) -> None:
    names = [place.name(protocol, pv) for pv in ("gap", "number", "shutter")]
    for name, value in zip(names, (16.5, 7, "Open"), strict=True):
        face.call("put", name, value)
    batches = face.batches(names)

    found: dict[int, tuple[float, int]] = {}
    while len(found) < 3:
        batch = face.next(batches)
        assert batch.names == tuple(names) == batches.names and len(batch) == len(batch.value) > 0
        for index, value, severity in zip(batch.index, batch.value, batch.severity, strict=True):
            found[int(index)] = (float(value), int(severity))
        assert (abs(batch.timestamp - time.time()) < 3600).all() and (batch.nanoseconds < 1_000_000_000).all()
        assert (batch.seconds == batch.timestamp.astype(int)).all() and not batch.merged.any()

    assert found == {0: (16.5, 1), 1: (7.0, 0), 2: (1.0, 0)}
    counts = batches.counts
    assert (counts.received, counts.delivered, counts.waiting, counts.merged) == (3, 3, 0, 0)
    assert batches.why_inactive(0) is None and batches.why_inactive(names[1]) is None


def test_columns_are_read_only_views_of_the_received_rows(face: Face, place: Place, protocol: str) -> None:
    name = place.name(protocol, "gap")
    batch = face.next(face.batches([name, name]))

    assert not batch.array.flags.owndata and not batch.value.flags.owndata and not batch.value.flags.writeable
    assert numpy.shares_memory(batch.value, batch.rows) and numpy.shares_memory(batch.index, batch.array)
    value, rows = batch.value, list(batch)
    del batch
    gc.collect()
    assert value.tolist() == [row.value for row in rows]


def test_a_batch_of_one_pv_has_its_rows_and_events(face: Face, place: Place, protocol: str) -> None:
    names = [place.name(protocol, "gap"), place.name(protocol, "number")]
    batches = face.batches(names, events=True)
    batch = face.next(batches)
    while not len(batch.of(1)):
        batch = face.next(batches)

    one = batch.of(names[1])
    assert list(one) == [row for row in batch if row.index == 1] and set(one.index.tolist()) == {1}
    assert [event.index for event in one.events] in ([], [1])


def test_rows_need_no_numpy(place: Place) -> None:
    program = (
        "import struct, sys; from fodo import sync; from fodo._batches import ROW\n"
        "with sync.batches(sys.argv[1:]) as batches:\n"
        "    batch = batches.next(20)\n"
        "    [row] = batch\n"
        "    print(len(batch), row.value, row.index, ROW.unpack(batch.rows) == row, batch.rows.readonly, 'numpy' in sys.modules)\n"
    )
    sync_face = sync.Context(settings=place.settings, timeout=20)
    sync_face.put(place.name("ca", "number"), 7)
    assert printed_by(program, place.settings, place.name("ca", "number")) == "1 7.0 0 True True False\n"
    sync_face.close()
    assert ROW.size == 32


def test_every_update_is_delivered_in_order_or_counted_as_merged(face: Face, place: Place, protocol: str) -> None:
    name = place.name(protocol, "number")
    face.call("put", name, 0)
    every, newest = face.batches([name]), face.batches([name], rows_max=0)
    assert list(face.next(every).value) == [0] and list(face.next(newest).value) == [0]

    for number in range(1, 101):
        face.call("put", name, number)
    taken = Taken(face, every).until(lambda taken: taken.rows and taken.rows[-1].value == 100)
    face.run_until(lambda: newest.counts.received == 101)

    assert taken.values(0) == list(range(1, 101)) and sum(row.merged for row in taken.rows) == 0
    (last,) = face.next(newest)
    assert (last.value, last.merged) == (100, 99)
    counts = newest.counts
    assert (counts.received, counts.merged, counts.delivered, counts.waiting) == (101, 99, 2, 0)


@pytest.mark.parametrize("face_class", [SyncFace, AioFace], ids=["sync", "aio"])
def test_connections_and_disconnections_are_events(face_class: type[Face]) -> None:
    settings = isolated()
    face = face_class(settings)
    with serving(settings, "E:"):
        names = ["ca://E:number", "pva://E:number", "ca://E:absent"]
        batches = face.batches(names, events=True)
        taken = Taken(face, batches).until(lambda taken: {row.index for row in taken.rows} == {0, 1})
        assert {event.index: event.kind for event in taken.events} == {0: "connected", 1: "connected"}
        assert all(event.name == names[event.index] and event.at_row <= len(taken.rows) for event in taken.events)
        assert all(isinstance(event.detail, fodo.Info) for event in taken.events)
        assert isinstance(batches.why_inactive(2), fodo.NotFound)
    taken.events.clear()
    taken.until(lambda taken: {event.index for event in taken.events if event.kind == "disconnected"} == {0, 1})
    assert batches.counts.n_disconnected == 2
    with serving(settings, "E:"):
        taken.rows.clear()
        taken.until(lambda taken: {row.index for row in taken.rows} == {0, 1})
    face.close()


def test_a_pv_that_is_not_a_number_is_an_error_and_the_others_continue(face: Face, place: Place, protocol: str) -> None:
    names = [place.name(protocol, "spectrum"), place.name(protocol, "number")]
    face.call("put", names[1], 0)
    batches, with_events = face.batches(names), face.batches(names, events=True)

    with pytest.raises(fodo.WrongReply, match="spectrum"):
        while True:
            face.next(batches)
    face.call("put", names[1], 55)
    Taken(face, batches).until(lambda taken: 55 in taken.values(1))
    taken = Taken(face, with_events).until(lambda taken: any(event.kind == "wrong_reply" for event in taken.events))
    assert [event.index for event in taken.events if isinstance(event.detail, fodo.WrongReply)] == [0]


def test_closing_batches_drops_and_counts_what_waits(face: Face, place: Place, protocol: str) -> None:
    batches = face.batches([place.name(protocol, "number")])
    face.run_until(lambda: batches.counts.waiting == 1)

    batches.close()
    batches.close()

    counts = batches.counts
    assert batches.is_closed and (counts.received, counts.delivered, counts.waiting, counts.dropped) == (1, 0, 0, 1)
    with pytest.raises(fodo.Closed):
        face.next(batches)


def test_rows_that_another_thread_takes_meanwhile_are_counted(protocol: str) -> None:
    ioc = Ioc("X:")
    record = ioc.ai("t", initial=0.0)
    has_ended = threading.Event()
    with ioc.serve(isolated=True) as running, sync.Context(settings=running.settings, timeout=10) as context:

        def change() -> None:
            while not has_ended.wait(0.001):
                record.set(time.monotonic())

        changes = threading.Thread(target=change)
        changes.start()
        try:
            for _ in range(20):
                batches = context.batches([f"{protocol}://X:t"])
                first = batches.next(10)
                n_taken = [len(first)]
                taker = threading.Thread(target=lambda: n_taken.extend(map(len, batches)))
                taker.start()
                time.sleep(0.02)
                batches.close()
                taker.join()

                counts = batches.counts
                assert counts.delivered == sum(n_taken)
                assert counts.received == counts.merged + counts.delivered + counts.dropped and counts.waiting == 0
        finally:
            has_ended.set()
            changes.join()


def test_without_an_update_next_times_out(face: Face, place: Place, protocol: str) -> None:
    batches = face.batches([place.name(protocol, "absent")])

    with pytest.raises(TimeoutError, match="1 PVs within 0.05 s"):
        face.next(batches, 0.05)


@pytest.mark.parametrize("pvs", [[], ["number"]])
def test_closing_the_context_ends_an_iteration_in_another_thread(place: Place, pvs: list[str]) -> None:
    context = sync.Context(settings=place.settings)
    batches = context.batches([place.name("ca", pv) for pv in pvs])
    n_rows: list[int] = []
    thread = threading.Thread(target=lambda: n_rows.append(sum(len(batch) for batch in batches)))
    thread.start()
    deadline = time.monotonic() + 20
    while batches.counts.delivered < len(pvs):
        assert time.monotonic() < deadline
        time.sleep(0.01)

    context.close()

    thread.join(20)
    assert not thread.is_alive() and n_rows[0] >= len(pvs) and batches.is_closed
    with pytest.raises(fodo.Closed):
        context.batches([])


@pytest.mark.parametrize("pvs", [[], ["number"]])
def test_closing_the_context_ends_an_iteration_in_a_loop(place: Place, pvs: list[str]) -> None:
    async def run() -> int:
        async with aio.Context(settings=place.settings) as context:
            batches = context.batches([place.name("pva", pv) for pv in pvs])

            async def total() -> int:
                return sum([len(batch) async for batch in batches])

            task = asyncio.create_task(total())
            while batches.counts.delivered < len(pvs):
                await asyncio.sleep(0.01)
            context.close()
            return await asyncio.wait_for(task, 20)

    assert asyncio.run(run()) >= len(pvs)


def test_a_cancelled_iteration_loses_nothing(place: Place) -> None:
    async def run() -> None:
        async with aio.Context(settings=place.settings, timeout=20) as context:
            name = place.name("ca", "number")
            await context.put(name, 0)
            async with context.batches([name]) as batches:
                assert list((await batches.next(20)).value) == [0]
                task = asyncio.ensure_future(batches.__anext__())
                await asyncio.sleep(0.05)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                await context.put(name, 1)
                assert list((await batches.next(20)).value) == [1]
            assert batches.is_closed

    asyncio.run(run())


def test_invalid_options_and_names_are_reported(face: Face) -> None:
    for names, mask, text in [
        (["x", ""], "value", "name"),
        (["x", 3], "value", "int"),
        (["x"], "values", 'mask cannot be "values": expected "none"'),
    ]:
        with pytest.raises(fodo.Misuse, match=text):
            face.batches(names, mask=mask)


def test_one_group_has_thousands_of_names(place: Place) -> None:
    # All subscriptions to one PV.
    names = [place.name("ca", "number")] * 3000
    with sync.Context(settings=place.settings) as context, context.batches(names) as batches:
        seen: set[int] = set()
        deadline = time.monotonic() + 20
        while len(seen) < len(names):
            assert time.monotonic() < deadline
            seen.update(batches.next(20).index.tolist())
        assert batches.counts.received == len(names)
