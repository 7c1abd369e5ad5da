"""Types, values and normative types of the interface of p4p."""

from __future__ import annotations

import pickle
import threading
from importlib import import_module
from typing import Any

import numpy
import pytest

from fodo.compat.p4p import Type, Value, listRefs, version
from fodo.compat.p4p.nt import NTURI, NTEnum, NTMultiChannel, NTNDArray, NTScalar, NTTable, defaultNT, ntenum, ntfloat
from fodo.compat.p4p.util import ThreadedWorkQueue
from fodo.compat.p4p.wrapper import Struct, StructArray, Union, UnionArray

MOTOR = Type(
    [
        ("position", "d"),
        ("steps", "b"),
        ("limits", Struct([("low", "i"), ("high", "i")], id="limits_t")),
        ("axes", StructArray([("name", "s"), ("gain", "f")])),
        ("any", "v"),
        ("anys", "av"),
        ("choice", Union([("number", "i"), ("text", "s"), ("limits", Struct([("low", "i")]))])),
        ("choices", UnionArray([("number", "i"), ("text", "s")])),
        ("names", "as"),
        ("flags", "a?"),
    ],
    id="motor_t",
)


def round_trip(value: Value) -> Value:
    """The value as a peer would receive it."""
    return Value._of(Value._sent(value))


def test_a_type_reports_its_fields() -> None:
    assert MOTOR.getID() == "motor_t" and len(MOTOR) == 10 and list(MOTOR)[:2] == ["position", "steps"]
    assert MOTOR["limits"].aspy() == ("S", "limits_t", [("low", "i"), ("high", "i")])
    assert MOTOR.aspy("axes") == ("aS", "structure", [("name", "s"), ("gain", "f")])
    assert MOTOR["limits.low"] == "i" and "limits.high" in MOTOR and "limits.nope" not in MOTOR
    assert "axes" in dict(MOTOR.items()) and repr(MOTOR).endswith('id="motor_t")')


def test_each_field_of_a_value_reports_its_type() -> None:
    value = MOTOR({"axes": [{"name": "x"}], "choice": ("number", 5)})

    for name in MOTOR:
        assert value.type(name).aspy() == MOTOR.aspy(name)
        copy = pickle.loads(pickle.dumps(value.type(name)))
        assert isinstance(copy, Type) and copy.aspy() == MOTOR.aspy(name)
    assert value.type("limits.low").aspy() == "i" and value.type("names").keys() == []
    assert value.type("axes[0]").keys() == ["name", "gain"] and value.type("choice->number").aspy() == "i"
    assert value.type("choice").keys() == ["number", "text", "limits"] and value.type("axes").getID() == "structure"
    number = value.type("position")(2.5)
    assert number[None] == 2.5 and str(number) == "double = 2.5\n" and number.getID() == "structure"
    with pytest.raises(KeyError, match="nope"):
        value.type("nope")


@pytest.mark.parametrize("spec", [[("a", "z")], [("a b", "i")], [("a", ("X", None, []))], [("a", 5)]])
def test_an_invalid_type_is_rejected(spec: Any) -> None:
    with pytest.raises((RuntimeError, TypeError), match="a"):
        Type(spec)


def test_a_base_type_gives_its_fields_and_its_id() -> None:
    base = Type([("a", "i"), ("s", Struct([("x", "i")]))], id="base_t")

    extended = Type([("b", "d"), ("s", Struct([("y", "i")]))], base=base)

    fields = [("a", "i"), ("s", ("S", "structure", [("x", "i"), ("y", "i")])), ("b", "d")]
    assert extended.aspy() == ("S", "base_t", fields)
    with pytest.raises(ValueError, match="base"):
        Type([], id="other", base=base)


def test_integers_wrap_to_their_width_and_reals_are_truncated() -> None:
    value = Value(MOTOR)

    value.steps = 300
    assert value.steps == 44
    value.steps = -3.7
    assert value.steps == -3
    value.steps = "0x10"
    assert value.steps == 16
    with pytest.raises(OverflowError):
        value.steps = 2**64
    with pytest.raises(ValueError, match="seven"):
        value.steps = "seven"
    with pytest.raises(TypeError):
        value.steps = [1]
    assert value.steps == 16


def test_paths_reach_into_arrays_and_unions() -> None:
    value = Value(MOTOR, {"axes": [{"name": "x"}, None], "limits.low": -1})

    value["axes[0].gain"] = 0.5
    value["choice->limits.low"] = 7

    assert value["axes[0].gain"] == 0.5 and value.choice.low == 7 and value["limits.low"] == -1
    assert value.get("axes[5].gain", "none") == "none" and value.get("choice->number") is None
    assert value.changedSet() == {"axes", "limits.low", "choice"}
    with pytest.raises(KeyError, match="axes"):
        value["axes[1].gain"] = 1


def test_unions_select_by_name_and_then_keep_the_member() -> None:
    value = Value(MOTOR)

    value.choice = ("text", "a")
    value.choice = 5
    assert value.choice == "5"
    value.select("choice", "number")
    assert value.choice == 0
    value.choices = [1, "b", ("text", 3), None]
    assert value.choices == [1, "b", "3", None]
    value.choice = None
    assert value.choice is None
    with pytest.raises(KeyError, match="nope"):
        value.select("choice", "nope")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (True, True),
        (5, 5),
        (2.5, 2.5),
        ("a", "a"),
        (("f", 0.1), 0.10000000149011612),
        (["a", "b"], ["a", "b"]),
        ([1, 2], [1, 2]),
        (None, None),
    ],
)
def test_a_variant_union_holds_any_value(given: Any, expected: Any) -> None:
    sent = round_trip(Value(MOTOR, {"any": given}))

    found = sent.any
    assert (found.tolist() if hasattr(found, "tolist") else found) == expected


def test_a_value_survives_being_sent() -> None:
    fields = {
        "position": 1.25,
        "steps": -7,
        "limits": {"low": 1, "high": 2},
        "axes": [{"name": "x", "gain": 0.5}, None],
        "any": Value(Type([("a", "i")]), {"a": 3}),
        "anys": [1, "b", 2.5],
        "choice": ("limits", {"low": 9}),
        "choices": [1, "b"],
        "names": ["p", "q"],
        "flags": [True, False],
    }

    received = round_trip(Value(MOTOR, fields))

    found = received.todict()
    assert found.pop("flags").tolist() == [True, False]
    del fields["flags"]
    assert found == {**fields, "any": {"a": 3}, "choice": {"low": 9}}
    assert received.type().aspy() == MOTOR.aspy() and "axes" in received.changedSet()
    assert round_trip(received).todict().keys() == received.todict().keys()


def test_a_received_value_can_be_changed_and_sent_again() -> None:
    received = round_trip(Value(MOTOR, {"axes": [{"name": "x"}], "names": ["a"], "position": 2}))
    received.unmark()

    received["axes[0].name"] = "changed"
    received.position = 5
    again = round_trip(received)

    assert again["axes[0].name"] == "changed" and again.names == ["a"] and again.position == 5.0
    assert again.changedSet() == {"axes", "position"}


def test_only_changed_fields_are_copied() -> None:
    source = Value(Type([("position", "i"), ("other", "i")]), {"position": 3})
    target = Value(MOTOR)

    target[None] = source

    assert target.position == 3.0 and target.changedSet() == {"position"}
    source.mark("other")
    with pytest.raises(KeyError, match="other"):
        target[None] = source


def test_a_structure_that_was_received_as_a_whole_has_marks_at_its_fields() -> None:
    value = MOTOR({"position": 1.5})
    value.mark()
    received = round_trip(value)

    assert received.changedSet() == set(MOTOR.keys()) - {"limits"} | {"limits.low", "limits.high"}
    assert "limits" in received.changedSet(parents=True) and received.changed("limits") and received.limits.changed()
    assert round_trip(received).changedSet() == received.changedSet()
    received.mark("limits.low", False)
    assert "limits.low" not in received.changedSet() and round_trip(received).changedSet() == received.changedSet()


def test_structures_and_their_parts_share_fields_and_marks() -> None:
    value = Value(MOTOR)
    limits = value.limits

    limits.low = 4

    assert value["limits.low"] == 4 and value.changed("limits") and not value.changed("limits.high")
    assert value.changedSet(parents=True) == {"limits", "limits.low"} and limits.changedSet() == {"low"}
    limits.unmark()
    assert not value.changed()
    value.mark("limits")
    assert value.changedSet() == {"limits", "limits.low", "limits.high"}


def test_an_array_is_not_changed_by_its_source() -> None:
    source = numpy.array([1.0, 2.0])
    value = NTScalar("ad").wrap(source)

    source[0] = 9

    assert value.value.tolist() == [1, 2] and not value.value.flags.writeable
    with pytest.raises(RuntimeError, match="dimension"):
        value.value = numpy.zeros((2, 2))


def test_a_value_has_a_text_and_no_unknown_fields() -> None:
    value = NTScalar("d").wrap(4.5, severity=2, message="hot")

    assert 'string message = "hot"' in str(value) and repr(value) == "Value(id:epics:nt/NTScalar:1.0, 4.5)"
    assert value.tostr(8) == "struct ..." or value.tostr(8).endswith("...")
    for action in (lambda: value.nope, lambda: setattr(value, "nope", 1)):
        with pytest.raises(AttributeError, match="nope"):
            action()
    with pytest.raises(KeyError, match="alarm.nope"):
        value["alarm.nope"]


def test_a_scalar_is_wrapped_with_alarm_and_time_and_unwrapped_with_attributes() -> None:
    normative = NTScalar("d", display=True, control=True, valueAlarm=True)

    number = normative.unwrap(normative.wrap(2.5, timestamp=(100, 5), severity=1))

    assert isinstance(number, ntfloat) and number == 2.5 and number.severity == 1 and number.status == 0
    assert number.raw_stamp == (100, 5) and number.timestamp == pytest.approx(100.000000005)
    assert number.raw is not None
    assert number.raw.valueAlarm.hysteresis == 0.0 and "units" in number.raw.display


@pytest.mark.parametrize(
    ("code", "given"), [("?", True), ("s", "a"), ("L", 2**63), ("as", ["a"]), ("aB", [1, 2]), ("ad", [])]
)
def test_each_kind_of_scalar_keeps_its_value(code: str, given: Any) -> None:
    found = NTScalar(code).unwrap(NTScalar(code).wrap(given))

    assert list(found) == given if code[0] == "a" else found == given
    assert found.severity == 0


def test_an_enum_has_its_choice() -> None:
    normative = NTEnum()

    found = normative.unwrap(normative.wrap("On", choices=["Off", "On"]))
    later = normative.unwrap(normative.wrap(0))

    assert isinstance(found, ntenum) and found == 1 and str(found) == "On" and later.choice == "Off"
    with pytest.raises(ValueError, match="Onn"):
        normative.wrap("Onn")


def test_an_image_keeps_shape_type_and_attributes() -> None:
    pixels = numpy.arange(24, dtype="u2").reshape(2, 4, 3)
    normative = NTNDArray()

    image = normative.unwrap(round_trip(normative.wrap(pixels, timestamp=5)))

    assert image.shape == (2, 4, 3) and image.dtype == "u2" and (image == pixels).all()
    assert image.attrib == {"ColorMode": 2} and image.timestamp == 5
    with pytest.raises(ValueError, match="colors"):
        normative.wrap(numpy.zeros((2, 4, 5)))


def test_tables_channels_and_arguments_have_their_types() -> None:
    table = NTTable([("a", "i"), ("b", "s")])
    rows = [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]
    assert [dict(row) for row in NTTable.unwrap(table.wrap(rows))] == rows
    with pytest.raises(ValueError, match="a"):
        NTTable([("a", "ai")])

    assert NTMultiChannel.buildType("ad").getID() == "epics:nt/NTMultiChannel:1.0"

    uri = NTURI([("lhs", "d"), ("rhs", "d")]).wrap("add", (1,), {"rhs": None})
    assert uri.query.todict() == {"lhs": 1.0} and uri.path == "add"
    assert set(defaultNT()) >= {"epics:nt/NTEnum:1.0", "epics:nt/NTNDArray:1.0"}


def test_references_are_counted() -> None:
    before = listRefs()["StructTop"]

    value = Value(MOTOR)
    parts = [value.limits, value.limits]

    assert listRefs()["StructTop"] == before + 1
    del value, parts
    assert listRefs()["StructTop"] == before


def test_the_version_compares_with_tuples_and_texts() -> None:
    assert version >= (4, 3) and version == "4.3.0" and version < "5.0.0a1" and version.is_release


def test_a_work_queue_executes_in_order_and_survives_exceptions() -> None:
    done: list[int] = []

    with ThreadedWorkQueue(name="test", maxsize=0) as queue:
        queue.push(lambda: done.append(1))
        queue.push(lambda: done.append(1 // 0))
        queue.push(lambda: done.append(2))
        queue.sync(10)

        assert done == [1, 2]


def test_no_exception_of_a_call_ends_the_thread_of_a_work_queue(caplog: pytest.LogCaptureFixture) -> None:
    done = threading.Event()

    def leave() -> None:
        raise SystemExit

    with ThreadedWorkQueue(name="test") as queue:
        queue.push(leave)
        queue.push(done.set)
        assert done.wait(10)
    assert "a call in a work queue failed" in caplog.text


def test_normative_types_are_in_the_modules_of_p4p() -> None:
    names = {
        "common": ("NTBase", "alarm", "timeStamp"),
        "enum": ("NTEnum", "ntenum"),
        "ndarray": ("NTNDArray", "ntndarray"),
        "scalar": ("NTScalar", "ntbool", "ntfloat", "ntint", "ntnumericarray", "ntstr", "ntstringarray", "ntwrappercommon"),
    }
    for module, found in names.items():
        for name in found:
            assert hasattr(import_module(f"fodo.compat.p4p.nt.{module}"), name), name
