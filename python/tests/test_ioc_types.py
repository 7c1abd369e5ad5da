"""Record types and info items of an IOC in a program that serve more than one value."""

from __future__ import annotations

import numpy

from fodo.ioc import Ioc
from test_ioc import served, until


def test_a_sub_array_has_a_part_of_what_the_program_sets(protocol: str) -> None:
    ioc = Ioc("X:")
    part = ioc.subArray("part", length=10, dtype="int32", NELM=3, INDX=2)
    with served(ioc) as (_, client):
        part.set(numpy.arange(10, dtype="int32"))
        assert client.get(f"{protocol}://X:part") == [2, 3, 4]


def test_a_set_event_processes_its_records_and_bits_of_an_output_are_fields(protocol: str) -> None:
    written: list[int] = []
    ioc = Ioc("X:")
    event = ioc.event("event")
    ioc.record("calc", "counter", CALC="VAL+1", SCAN="Event", EVNT="beam")
    ioc.mbboDirect("bits", initial=0, on_put=lambda value: written.append(int(value)))
    with served(ioc) as (running, client):
        event.set("beam")
        counter = running.record("X:counter")
        until(lambda: counter.get() == 1)
        client.put(f"{protocol}://X:bits.B3", 1)
        assert written == [8] and client.get(f"{protocol}://X:bits") == 8


def test_a_group_of_an_info_item_is_one_structure() -> None:
    ioc = Ioc("X:")
    ioc.ai("x", initial=1.5, info={"Q:group": '{"X:position": {"x": {"+channel": "VAL", "+type": "plain"}}}'})
    ioc.ao("y", initial=2.5, info={"Q:group": '{"X:position": {"y": {"+channel": "VAL", "+type": "plain", "+putorder": 0}}}'})
    with served(ioc) as (_, client):
        position = client.get("pva://X:position")
        assert (position["x"], position["y"]) == (1.5, 2.5)
        client.put("pva://X:position", {"y": 3.5})
        assert client.get("ca://X:y") == 3.5
