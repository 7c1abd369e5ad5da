"""Values that a PV would make another value of are refused, with what was expected and what was given."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import numpy
import pytest

import fodo
from conftest import Face, Place
from fodo import aio, sync
from fodo.ioc import Ioc
from fodo.pva import Server, SharedPV, nt
from processes import PATIENCE

NAN, INFINITE = float("nan"), float("inf")

# A PV of the tests' IOC, a value, and what the error says.
REFUSED: list[tuple[str, Any, str]] = [
    ("number", NAN, "expected an integer between -2147483648 and 2147483647, not nan"),
    ("number", INFINITE, "expected an integer between -2147483648 and 2147483647, not inf"),
    ("number", 2**31, "not 2147483648"),
    ("number", -1e10, "not -10000000000"),
    ("number", numpy.float32("nan"), "not nan"),
    ("number", [1, 2], "expected one value, not an array with 2 elements"),
    ("number", [], "expected one value, not an array with 0 elements"),
    ("number", "many", 'not the text "many"'),
    ("gap", "wide", 'expected a number, not the text "wide"'),
    ("gap", (1.0, 2.0), "expected one value, not an array with 2 elements"),
    ("shutter", 0.5, "expected the label of a state, or its index, 0 to 65535, not 0.5"),
    ("shutter", NAN, "not nan"),
    ("shutter", -1, "not -1"),
    ("text", ["a", "b"], "expected one value, not an array with 2 elements"),
    ("integers", [1, 2.5, NAN], "element 2: expected an integer between -2147483648 and 2147483647, not nan"),
    ("integers", numpy.array([2**40]), "element 0: .* not 1099511627776"),
    ("integers", ["1", "x"], 'element 1: .* not the text "x"'),
]

# What has the same value for the PV, or is converted as caput does.
ACCEPTED: list[tuple[str, Any, Any]] = [
    ("number", "12", 12),
    ("number", " 0x10 ", 16),
    ("number", 3.0, 3),
    ("number", -2.75, -2),
    ("number", True, 1),
    ("number", [5], 5),
    ("number", numpy.int64(-7), -7),
    ("gap", "1.25", 1.25),
    ("gap", 3, 3.0),
    ("gap", True, 1.0),
    ("shutter", True, 1),
    ("shutter", 0.0, 0),
    ("shutter", "Open", 1),
    ("shutter", "0", 0),
    ("text", 1.5, "1.5"),
    ("text", 2, "2"),
    ("text", numpy.float32(0.5), "0.5"),
    ("names", [1.5, 2.0], ["1.5", "2.0"]),
    ("integers", [1.0, 2.0], [1, 2]),
    ("integers", ["3", "4"], [3, 4]),
    ("integers", 9, [9]),
]


@pytest.mark.parametrize(("pv", "value", "reason"), REFUSED, ids=lambda part: str(part)[:20])
def test_a_put_of_another_value_is_refused_with_the_name_of_the_pv(
    face: Face, place: Place, protocol: str, pv: str, value: Any, reason: str
) -> None:
    name = place.name(protocol, pv)

    # The first put waits for the connection, the second one does not.
    for wait in (True, False):
        with pytest.raises(fodo.Misuse, match=reason) as caught:
            face.call("put", name, value, wait=wait)
        assert caught.value.pv == name


@pytest.mark.parametrize(("pv", "value", "expected"), ACCEPTED, ids=lambda part: str(part)[:20])
def test_a_put_of_the_same_value_in_another_form_is_accepted(
    face: Face, place: Place, protocol: str, pv: str, value: Any, expected: Any
) -> None:
    name = place.name(protocol, pv)

    face.call("put", name, value)

    assert face.call("get", name) == expected


def test_a_field_of_a_put_refuses_what_the_pv_refuses(face: Face, place: Place) -> None:
    name = place.name("pva", "number")
    face.call("put", name, 7)

    for value, reason in [(NAN, "not nan"), (2**31, "not 2147483648"), ([1, 2], "not an array with 2 elements")]:
        with pytest.raises(fodo.Misuse, match=f'the field "value": expected .* {reason}'):
            face.call("put", name, {"value": value})

    assert face.call("get", name) == 7
    face.call("put", name, {"value": "8"})
    assert face.call("get", name) == 8


def test_a_refused_value_has_its_place_among_many_and_delays_none(face: Face, place: Place, protocol: str) -> None:
    names = [place.name(protocol, pv) for pv in ("number", "absent", "gap")]

    refused, absent, written = face.call("put", names, [NAN, 1, 2.5], timeout=2)

    assert isinstance(refused, fodo.Misuse) and isinstance(absent, fodo.NotFound) and written is None
    assert face.call("get", names[2]) == 2.5


def test_a_text_that_is_longer_than_an_array_of_characters_is_refused(face: Face, place: Place) -> None:
    name = place.name("ca", "path")

    with pytest.raises(fodo.Misuse, match="expected a text of at most 200 bytes, not 201"):
        face.call("put", name, "x" * 201)

    face.call("put", name, "x" * 199)
    with pytest.raises(fodo.Misuse, match="expected at most 10 elements, not 11"):
        face.call("put", place.name("ca", "integers"), [0] * 11)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    pvs = {
        "byte": SharedPV(1, type=nt.Scalar("b")),
        "unsigned": SharedPV(1, type=nt.Scalar("L")),
        "text": SharedPV("a"),
        "single": SharedPV(1.0, type=nt.Scalar("f")),
        "integers": SharedPV([1, 2], type=nt.ScalarArray("ai")),
        "state": SharedPV(0, type=nt.Enum(["Off", "On"])),
        "table": SharedPV({"n": [1]}, type=nt.Table({"n": "i"})),
    }
    with Server(pvs, isolated=True) as server:
        yield server


@pytest.mark.parametrize(
    ("pv", "value", "reason"),
    [
        ("byte", 200, "value: expected an integer between -128 and 127, not 200"),
        ("byte", NAN, "value: .*not nan"),
        ("byte", [1, 2], "value: expected one value, not an array with 2 elements"),
        ("byte", "x", 'value: .*not the text "x"'),
        ("unsigned", -1, "value: expected an integer between 0 and 18446744073709551615, not -1"),
        ("single", 1e300, "value: expected a number between"),
        ("integers", [1, 2**31], "value: element 1: .* not 2147483648"),
        ("integers", numpy.array([0.5, numpy.inf]), "value: element 1: .* not inf"),
        ("state", NAN, "there is no state nan: expected one of Off, On, or its index"),
        ("state", 2, "there is no state 2"),
        ("state", 0.5, "there is no state 0.5"),
        ("state", [1], r"there is no state \[1\]"),
        ("state", "Half", "there is no state 'Half'"),
        ("table", {"n": [1, NAN]}, "value.n: element 1: .* not nan"),
    ],
    ids=lambda part: str(part)[:20],
)
def test_a_post_of_another_value_is_refused_with_the_name_of_the_pv(
    server: Server, pv: str, value: Any, reason: str
) -> None:
    shared = server._pvs[pv]
    before = shared.value

    with pytest.raises(fodo.Misuse, match=reason) as caught:
        shared.post(value)

    assert caught.value.pv == pv and repr(shared.value) == repr(before)


def test_a_post_of_the_same_value_in_another_form_is_accepted(server: Server) -> None:
    accepted = [("byte", 3.0, 3), ("byte", "4", 4), ("state", True, 1), ("state", "0", 0), ("text", 1.5, "1.5")]
    for pv, value, expected in accepted:
        server._pvs[pv].post(value)
        assert server._pvs[pv].value == expected


def test_a_first_value_that_its_type_cannot_hold_is_refused() -> None:
    with pytest.raises(fodo.Misuse, match="value: expected an integer"):
        SharedPV(NAN, type=nt.Scalar("i"))


def test_many_puts_to_pvs_that_connect_meanwhile_wait_for_their_records_together(place: Place) -> None:
    # Each put to the record ends after 20 s: one after another, they would take a minute.
    names = [place.name("ca", "slow") + ".A", *(place.name("ca", pv) for pv in ("gap", "number"))]

    async def write() -> list[Any]:
        async with aio.Context(settings=place.settings) as context:
            return await context.put(names, [1, 2.5, 3], timeout=4)

    with sync.Context(settings=place.settings) as context:
        slow, *others = context.put(names, [1, 1.5, 2], timeout=4)
        assert isinstance(slow, fodo.NoReply) and others == [None, None]
    slow, *others = asyncio.run(write())
    assert isinstance(slow, fodo.NoReply) and others == [None, None]


def test_puts_to_a_pv_that_is_not_connected_yet_keep_their_order(protocol: str) -> None:
    ioc = Ioc("X:")
    written: list[Any] = []
    ioc.longout("number", on_put=written.append)
    name = f"{protocol}://X:number"

    async def write(settings: dict[str, str]) -> None:
        async with aio.Context(settings=settings) as context:
            first = asyncio.ensure_future(context.put(name, 1))
            await asyncio.sleep(0)
            deadline = time.monotonic() + PATIENCE
            # The loop is busy while the channel connects.
            while not context._channel(name).is_active:
                assert time.monotonic() < deadline
                time.sleep(0.001)
            await asyncio.gather(context.put(name, 2), first)

    with ioc.serve(isolated=True) as running:
        asyncio.run(write(running.settings))

    assert written == [1, 2]


def test_large_unsigned_integers_of_a_list_are_sent_as_they_are(protocol: str) -> None:
    ioc = Ioc("X:")
    ioc.waveform("large", length=4, dtype="uint64")
    ioc.waveform("doubles", length=4)
    with ioc.serve(isolated=True) as running, sync.Context(settings=running.settings, timeout=PATIENCE) as client:
        large = running.record("X:large")
        for values in ([1, 2**63 + 1], [2**64 - 1, True], [2**63, 2**40, 0]):
            large.set(values)
            assert large.get() == [int(value) for value in values]
            client.put("pva://X:large", values)
            assert client.get("pva://X:large") == [int(value) for value in values]
        for values in ([2**63, -1], [-(2**40), 2**64 - 1]):
            with pytest.raises(fodo.Misuse, match=f"element . is {min(values)}: a list with integers above"):
                client.put(f"{protocol}://X:large", values)
        client.put(f"{protocol}://X:doubles", [2**63, 0.5, -1])
        assert client.get(f"{protocol}://X:doubles") == [float(2**63), 0.5, -1.0]
