"""Arrays act as sequences, and as arrays of numpy in arithmetic; scalars act as numbers."""

from __future__ import annotations

import json
import math
import operator
from typing import Any

import numpy
import pytest

from conftest import Face, Place
from fodo import sync

REALS: list[Any] = [operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow]
INTEGERS: list[Any] = [*REALS[:3], operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift]
ORDERS: list[Any] = [operator.lt, operator.le, operator.gt, operator.ge]


@pytest.fixture
def spectrum(face: Face, place: Place, protocol: str) -> Any:
    name = place.name(protocol, "spectrum")
    face.call("put", name, [0.5, 1.5, 2.5])
    return face.call("get", name)


@pytest.fixture
def integers(face: Face, place: Place, protocol: str) -> Any:
    name = place.name(protocol, "integers")
    face.call("put", name, [1, 2, 3])
    return face.call("get", name)


def test_operators_of_arrays_and_their_reflections_are_those_of_numpy(spectrum: Any, integers: Any) -> None:
    for array, operators in ((spectrum, REALS + ORDERS), (integers, INTEGERS + ORDERS)):
        same = numpy.array(array.tolist())
        for act in (*operators, divmod):
            for other in (2, [3, 2, 1], numpy.array([1, 2, 3]), array):
                plain = same if other is array else other
                for got, expected in ((act(array, other), act(same, plain)), (act(other, array), act(plain, same))):
                    assert numpy.array_equal(got, expected), (act, other)
    assert spectrum @ [1, 1, 1] == 4.5 and numpy.array([1, 1, 1]) @ spectrum == 4.5 and [2, 0, 0] @ spectrum == 1.0
    assert (-spectrum).tolist() == [-0.5, -1.5, -2.5] and (+spectrum).tolist() == [0.5, 1.5, 2.5]
    assert abs(-spectrum).tolist() == [0.5, 1.5, 2.5] and (~integers).tolist() == [-2, -3, -4]
    assert numpy.sum(spectrum) == 4.5 and numpy.sqrt(spectrum * spectrum).tolist() == [0.5, 1.5, 2.5]


def test_arrays_are_sequences(spectrum: Any, integers: Any) -> None:
    assert len(spectrum) == 3 and list(spectrum) == [0.5, 1.5, 2.5] and bool(spectrum)
    assert 1.5 in spectrum and 4 not in integers and spectrum.index(2.5) == 2 and integers.count(2) == 1
    assert sum(integers) == 6 and max(spectrum) == 2.5 and sorted(integers, reverse=True) == [3, 2, 1]
    assert list(reversed(integers)) == [3, 2, 1] and [*integers][1] == 2 and integers[-1] == 3
    assert integers[1:] == [2, 3] and integers[::-1] == [3, 2, 1] and integers[numpy.int64(0)] == 1
    assert integers == [1, 2, 3] and integers == (1, 2, 3) and integers != [1, 2] and integers != 1
    with pytest.raises(IndexError):
        integers[3]


def test_arrays_are_indexed_as_those_of_numpy(spectrum: Any) -> None:
    assert spectrum[spectrum > 1].tolist() == [1.5, 2.5]
    assert spectrum[[0, 2]].tolist() == [0.5, 2.5]
    with pytest.raises(IndexError):
        spectrum["value"]


def test_numbers_of_pvs_act_as_numbers(context: sync.Context, place: Place) -> None:
    gap, number, shutter = (place.name("ca", name) for name in ("gap", "number", "shutter"))
    context.put([gap, number, shutter], [2.5, 7, 1])

    real, integer, state = context.get([gap, number, shutter])

    for value, plain in ((real, 2.5), (integer, 7), (state, 1)):
        assert value == plain and hash(value) == hash(plain) and value > 0 and 3 - value == 3 - plain
        assert 2**value == 2**plain and divmod(value, 2) == divmod(plain, 2) and -value == -plain
        assert round(value) == round(plain) and math.floor(value) == math.floor(plain) and float(value) == plain
        assert json.dumps([value]) == json.dumps([plain]) and f"{value:.1f}" == f"{plain:.1f}"
        assert numpy.float64(2) * value == 2 * plain and (numpy.arange(3) * value).tolist() == [0, plain, 2 * plain]
        assert value in [plain] and {plain: "x"}[value] == "x"
    assert [10, 20][state] == 20 and list(range(integer)) == list(range(7)) and integer & 3 == 3
