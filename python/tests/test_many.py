"""Gets of many names: one operation, with a result or an error for each."""

from __future__ import annotations

import asyncio
import time

import pytest

import fodo
from conftest import AioFace, Face, Place, SyncFace
from fodo import aio, sync


def test_many_names_have_one_deadline_and_a_result_or_an_error_each(face: Face, place: Place, protocol: str) -> None:
    face.call("put", place.name(protocol, "number"), 7)
    pvs = ["number", "absent", "spectrum", "number", "text", "missing"]
    names = [place.name(protocol, pv) for pv in pvs]

    begin = time.monotonic()
    values = face.call("get", names, timeout=1)

    assert time.monotonic() - begin < 10
    assert [type(value) for value in values] == [
        fodo.IntValue,
        fodo.NotFound,
        fodo.ArrayValue,
        fodo.IntValue,
        fodo.TextValue,
        fodo.NotFound,
    ]
    assert [value.name for value in values if isinstance(value, fodo.Value)] == [names[n] for n in (0, 2, 3, 4)]
    assert [value.pv for value in values if isinstance(value, fodo.Error)] == [names[1], names[5]]
    assert values[0] == values[3] == 7 and values[0].timestamp is not None
    # The same over the channels that are now connected.
    assert face.call("get", [names[0], names[2]])[0] == 7


def test_values_of_both_protocols_are_read_together(face: Face, place: Place) -> None:
    names = [place.name(protocol, pv) for pv in ("gap", "shutter") for protocol in ("ca", "pva")]

    values = face.call("get", names, detail="full")

    assert [value.name for value in values] == names
    assert [value.units for value in values[:2]] == ["mm", "mm"] and [value.labels for value in values[2:]] == [["Closed", "Open"]] * 2


def test_invalid_names_and_options_are_an_error_for_each(face: Face, place: Place) -> None:
    name = place.name("ca", "number")

    good, bad = face.call("get", [name, "ca://"])
    assert isinstance(good, fodo.IntValue) and isinstance(bad, fodo.Misuse)
    for value in face.call("get", [name, name], kind="word"):
        assert isinstance(value, fodo.Misuse) and value.pv == name and "word" in str(value)
    assert face.call("get", []) == []
    assert face.call("get", [name]) == face.call("get", [name, name])[:1]


def test_structures_are_read_among_values(p4p_face: Face) -> None:
    names = ["pva://S:table", "pva://S:sum", "pva://S:anything"]
    for _ in range(2):
        table, number, anything = p4p_face.call("get", names)
        assert isinstance(table, fodo.StructureValue) and list(table["labels"]) == ["time", "name"]
        assert isinstance(number, fodo.FloatValue) and number == 0.0
        assert isinstance(anything, fodo.StructureValue) and "number" in anything


@pytest.mark.parametrize("face_class", [SyncFace, AioFace], ids=["sync", "aio"])
@pytest.mark.parametrize("timeout", [2.0, 0.5])
def test_structures_are_read_beside_absent_pvs(p4p_settings: dict[str, str], face_class: type[Face], timeout: float) -> None:
    names = ["pva://S:absent", "pva://S:table", "pva://S:sum", "pva://S:missing", "pva://S:anything"]
    face = face_class(p4p_settings)
    try:
        absent, table, number, missing, anything = face.call("get", names, timeout=timeout)

        assert isinstance(table, fodo.StructureValue) and isinstance(anything, fodo.StructureValue), (table, anything)
        assert isinstance(number, fodo.FloatValue)
        assert isinstance(absent, fodo.NotFound) and isinstance(missing, fodo.NotFound)
    finally:
        face.close()


def test_many_gets_end_with_the_context(place: Place) -> None:
    async def run() -> None:
        async with aio.Context(settings=place.settings) as context:
            gets = asyncio.ensure_future(context.get([place.name("ca", "absent")] * 2, timeout=20))
            await asyncio.sleep(0.1)
            context.close()
            assert [type(end) for end in await asyncio.wait_for(gets, 10)] == [fodo.Closed] * 2

    asyncio.run(run())


def test_cancelled_gets_of_many_leave_the_context_usable(place: Place) -> None:
    async def run() -> None:
        async with aio.Context(settings=place.settings, timeout=10) as context:
            names = [place.name("ca", "number"), place.name("ca", "absent")]
            gets = asyncio.ensure_future(context.get(names, timeout=20))
            await asyncio.sleep(0.1)
            gets.cancel()
            with pytest.raises(asyncio.CancelledError):
                await gets
            assert isinstance((await context.get(names[:1] * 50))[49], fodo.IntValue)

    asyncio.run(run())


def test_a_value_made_for_a_get_has_no_attributes_of_its_own(face: Face, place: Place) -> None:
    value = face.call("get", place.name("ca", "gap"))

    assert type(value) is fodo.FloatValue and not hasattr(value, "__dict__")


def test_a_long_list_has_its_values_in_order_also_when_it_is_read_again(face: Face, place: Place, protocol: str) -> None:
    for pv, value in (("number", 7), ("gap", 2.5), ("text", "a")):
        face.call("put", place.name(protocol, pv), value)
    pvs = ["number", "gap", "text", "spectrum"] * 700
    names = [place.name(protocol, pv) for pv in pvs]

    for _ in range(3):
        values = face.call("get", names)
        assert [value.name for value in values] == names
        assert values[:3] == values[-4:-1] == [7, 2.5, "a"] and isinstance(values[-1], fodo.ArrayValue)
        # Also after its connections are closed.
        face.context.disconnect()


def test_a_list_that_is_read_again_keeps_no_connection_that_was_closed(place: Place) -> None:
    names = [place.name("ca", "number"), place.name("ca", "absent")]
    with sync.Context(settings=place.settings) as context:
        for _ in range(2):
            value, absent = context.get(names, timeout=1)
            assert isinstance(value, fodo.IntValue) and isinstance(absent, fodo.NotFound)
            # The search for it has ended.
            assert names[1] not in context._channels and not context._lists


def test_names_that_are_no_texts_are_refused(face: Face, place: Place) -> None:
    name = place.name("ca", "number")

    for names in ([name, 5], [name, [name]], 5):
        with pytest.raises(fodo.Misuse, match="text"):
            face.call("get", names)


def test_calls_that_wait_together_end_after_their_own_timeouts(place: Place) -> None:
    async def run() -> list[float]:
        ended: list[float] = []

        async def get(timeout: float) -> None:
            with pytest.raises(fodo.NotFound):
                await context.get(place.name("ca", f"absent{timeout}"), timeout=timeout)
            ended.append(timeout)

        async with aio.Context(settings=place.settings) as context:
            await asyncio.gather(*map(get, (2.0, 0.2, 1.0, 0.6)))
        return ended

    assert asyncio.run(run()) == [0.2, 0.6, 1.0, 2.0]
