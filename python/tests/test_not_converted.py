"""What cannot be made an object of Python is an error of its PV, and delays or loses nothing else."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import fodo
from conftest import Face, Place
from fodo import _info, aio, sync


@pytest.fixture
def unshown(monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a PV of which the connection cannot be shown."""
    name = "ca://T:number"
    known = _info.Info

    def info(pv: str, *facts: Any) -> Any:
        if pv == name:
            raise OverflowError("no such number")
        return known(pv, *facts)

    monkeypatch.setattr(_info, "Info", info)
    return name


def test_a_result_that_cannot_be_converted_is_the_error_of_its_pv(face: Face, place: Place, unshown: str) -> None:
    names = [unshown, place.name("ca", "gap"), place.name("pva", "gap")]

    failed, *shown = face.call("connect", names)

    assert isinstance(failed, fodo.Error) and failed.pv == unshown
    assert "cannot be converted: OverflowError: no such number" in failed.reason
    assert isinstance(failed.__cause__, OverflowError)
    assert [info.name for info in shown] == names[1:]


def test_the_other_results_of_a_turn_are_delivered(place: Place, unshown: str) -> None:
    async def main() -> None:
        async with aio.Context(settings=place.settings, timeout=10) as context:
            calls = [context.connect(unshown), context.get(place.name("ca", "gap")), context.get(place.name("pva", "gap"))]
            failed, *values = await asyncio.gather(*calls, return_exceptions=True)

            assert isinstance(failed, fodo.Error) and failed.pv == unshown
            assert all(isinstance(value, float) for value in values)

    asyncio.run(main())


def test_an_event_of_a_monitor_that_cannot_be_converted_is_reported_and_counted(
    face: Face, place: Place, unshown: str
) -> None:
    monitor = face.monitor(unshown, events=True)

    failed, value = face.next(monitor), face.next(monitor)

    assert failed.kind == "not_converted" and failed.detail.pv == unshown
    assert isinstance(value, int) and monitor.counts.n_not_converted == 1


def test_an_update_that_cannot_be_converted_is_passed_to_the_error_handler(place: Place, unshown: str) -> None:
    errors: list[tuple[str, Exception]] = []
    received = threading.Event()
    with sync.Context(settings=place.settings, on_error=lambda name, error: errors.append((name, error))) as context:
        monitor = context.monitor(unshown, lambda value: received.set())

        assert received.wait(20)

    assert [name for name, _ in errors] == [unshown] and monitor.counts.n_not_converted == 1


def test_the_rows_of_a_batch_are_delivered_with_an_event_that_cannot_be_converted(
    face: Face, place: Place, unshown: str
) -> None:
    names = [unshown, place.name("ca", "gap")]
    batches = face.batches(names, events=True)
    indexes: set[int] = set()
    events: list[Any] = []

    while indexes != {0, 1}:
        batch = face.next(batches)
        indexes |= {row.index for row in batch}
        events += batch.events

    kinds = {event.index: event.kind for event in events}
    assert kinds == {0: "not_converted", 1: "connected"} and batches.counts.n_not_converted == 1
