"""Values, over both protocols and with both faces."""

from __future__ import annotations

import array
import copy
import pickle
import time
from datetime import datetime, timedelta, timezone

import numpy
import numpy.typing
import pytest

import fodo
from conftest import Face, Place
from fodo import sync

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def test_a_float_is_a_number_with_alarm_time_units_and_limits(face: Face, place: Place, protocol: str) -> None:
    name = place.name(protocol, "gap")
    face.call("put", name, 16.0)

    value = face.call("get", name, detail="full")

    assert isinstance(value, float) and isinstance(value, fodo.FloatValue)
    assert value + 1 == 17.0 and f"{value:.2f}" == "16.00"
    assert value.name == name
    assert value.severity is fodo.Severity.MINOR and value.status == "HIGH"
    assert value.alarm.severity == 1 and value.alarm.message
    assert value.timestamp is not None and abs(value.timestamp - time.time()) < 60
    assert value.time is not None and value.time.tzinfo == timezone.utc
    assert value.timestamp_ns is not None
    assert value.timestamp_ns // 1000 == (value.time - EPOCH) // timedelta(microseconds=1)
    assert (value.units, value.precision) == ("mm", 2)
    assert (value.display_limits, value.control_limits) == ((-5, 25), (0, 20))
    assert value.warning_limits is not None and value.warning_limits.high == 15
    assert value.alarm_limits is not None and value.alarm_limits.high == 18


def test_attributes_that_were_not_requested_are_none(context: sync.Context, place: Place) -> None:
    value = context.get(place.name("ca", "gap"), detail="value")

    assert (value.units, value.display_limits, value.timestamp, value.time, value.timestamp_ns) == (None,) * 5
    assert value.severity is fodo.Severity.NO_ALARM and value.alarm.message == ""


def test_an_int_an_enum_and_a_text_act_as_such(face: Face, place: Place, protocol: str) -> None:
    number = face.call("get", place.name(protocol, "number"))
    assert isinstance(number, int) and number == 7 and number * 2 == 14

    shutter = place.name(protocol, "shutter")
    face.call("put", shutter, "Open")
    state = face.call("get", shutter, detail="full")
    assert isinstance(state, fodo.EnumValue) and state == 1
    assert (str(state), f"{state}", state.label, state.labels) == ("Open", "Open", "Open", ["Closed", "Open"])
    face.call("put", shutter, 0)
    assert face.call("get", shutter, kind="text") == "Closed"

    name = place.name(protocol, "text")
    face.call("put", name, "gr\u00fc\u00df")
    text = face.call("get", name)
    assert isinstance(text, str) and text == "gr\u00fc\u00df" and text.upper() == "GR\u00dcSS"


def test_an_array_is_a_read_only_view_of_what_was_received(face: Face, place: Place, protocol: str) -> None:
    name = place.name(protocol, "spectrum")
    face.call("put", name, [0.5, 1.5, 2.5])

    value = face.call("get", name)

    assert isinstance(value, fodo.ArrayValue) and len(value) == 3 and value.element_kind == "f64"
    assert value == [0.5, 1.5, 2.5] and value[-1] == 2.5 and value[1:] == [1.5, 2.5] and 1.5 in value
    assert value.name == name and value.timestamp is not None
    view = memoryview(value)
    assert (view.format, view.readonly, view.shape, view.strides) == ("d", True, (3,), (8,))
    elements = value.numpy()
    assert elements.dtype == numpy.float64 and not elements.flags.writeable
    assert numpy.shares_memory(elements, numpy.asarray(value))
    assert (value * 2 + elements).tolist() == [1.5, 4.5, 7.5]
    with pytest.raises(ValueError, match="read-only"):
        elements[0] = 1
    with pytest.raises(IndexError):
        value[3]


def test_an_array_outlives_its_value_and_its_context(place: Place) -> None:
    with sync.Context(settings=place.settings) as context:
        name = place.name("ca", "integers")
        context.put(name, range_of_numpy(5))
        elements = context.get(name).numpy()

    assert elements.dtype == numpy.int32 and elements.tolist() == [0, 1, 2, 3, 4]


def range_of_numpy(n: int) -> numpy.typing.NDArray[numpy.int32]:
    return numpy.arange(n, dtype=numpy.int32)


def test_arrays_of_texts_are_sequences(face: Face, place: Place, protocol: str) -> None:
    name = place.name(protocol, "names")
    face.call("put", name, ["one", "two"])

    value = face.call("get", name)

    assert list(value) == ["one", "two"] and value.element_kind == "text"
    assert value.numpy().tolist() == ["one", "two"]
    with pytest.raises(BufferError):
        memoryview(value)


def test_empty_arrays_and_long_texts_are_transferred(face: Face, place: Place, protocol: str) -> None:
    name = place.name(protocol, "spectrum")
    face.call("put", name, [])
    assert face.call("get", name).numpy().tolist() == []

    text = "x" * 100
    face.call("put", place.name(protocol, "path"), text.encode() + b"\0")
    characters = face.call("get", place.name(protocol, "path"))
    assert bytes(characters).rstrip(b"\0") == text.encode()


@pytest.mark.parametrize(
    "sent",
    [
        (1, 2, 3),
        [1, 2.0, 3],
        numpy.array([1, 2, 3], dtype=">i2"),
        numpy.array([1.0, 2.0, 3.0], dtype=numpy.float32),
        numpy.arange(6)[1:4],
        numpy.arange(1, 7)[::2] // 2 + 1,
        array.array("L", [1, 2, 3]),
    ],
    ids=["tuple", "mixed list", "other byte order", "f32", "slice", "computed", "module array"],
)
def test_sequences_of_numbers_are_sent(context: sync.Context, place: Place, protocol: str, sent: object) -> None:
    name = place.name(protocol, "spectrum")
    context.put(name, sent)

    assert context.get(name) == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("sent", [numpy.float64(2.5), numpy.float32(2.5), 2.5, "2.5"])
def test_numbers_of_several_kinds_are_sent(context: sync.Context, place: Place, protocol: str, sent: object) -> None:
    name = place.name(protocol, "gap")
    context.put(name, sent)

    assert context.get(name) == 2.5


@pytest.mark.parametrize("sent", [numpy.int16(9), numpy.array(9), True + 8, fodo.Severity.INVALID + 6])
def test_integers_of_several_kinds_are_sent(context: sync.Context, place: Place, protocol: str, sent: object) -> None:
    name = place.name(protocol, "number")
    context.put(name, sent)

    assert context.get(name) == 9


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (None, "NoneType"),
        (object(), "expected a number"),
        (2**70, "64 bits"),
        ("a\0b", "NUL"),
        ([1, "x"], "both texts and numbers"),
        ([1, None], "element 1"),
        (numpy.zeros((2, 2)), "2 dimensions"),
        (1 + 2j, "complex"),
    ],
)
def test_a_value_that_cannot_be_sent_names_the_pv_and_what_was_expected(
    face: Face, place: Place, protocol: str, sent: object, expected: str
) -> None:
    name = place.name(protocol, "gap")

    with pytest.raises(fodo.Misuse, match=expected) as caught:
        face.call("put", name, sent)

    assert caught.value.pv == name and name in str(caught.value)


def test_a_value_is_pickled_and_copied_as_a_plain_one(context: sync.Context, place: Place) -> None:
    context.put(place.name("ca", "spectrum"), [1.0, 2.0])
    names = [place.name("ca", name) for name in ("gap", "number", "text", "spectrum")]

    for value in context.get(names):
        plain = pickle.loads(pickle.dumps(value))
        assert plain == value and type(plain) in (float, int, str, list)
        assert copy.copy(value) == value
