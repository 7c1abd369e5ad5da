"""Structures and procedures of pvAccess, from a server of p4p, and parts of records."""

from __future__ import annotations

from typing import Any

import numpy
import pytest

import fodo
from conftest import Face, Place
from fodo import sync
from fodo.pva import Type, nt


def test_a_table_is_a_mapping_of_columns(p4p_face: Face) -> None:
    table = p4p_face.call("get", "pva://S:table")

    assert isinstance(table, fodo.StructureValue) and table.id.startswith("epics:nt/NTTable")
    assert table.name == "pva://S:table" and table.severity is fodo.Severity.NO_ALARM
    assert set(table) >= {"labels", "value"} and "value.time" in table and "value.none" not in table
    assert list(table["labels"]) == ["time", "name"]
    assert table["value.time"].numpy().tolist() == [0.5, 1.5] and list(table["value"]["name"]) == ["a", "b"]
    assert table.to_dict()["value"] == {"time": [0.5, 1.5], "name": ["a", "b"]}
    assert table == p4p_face.call("get", "pva://S:table") and dict(table["value"]) != {}
    with pytest.raises(KeyError, match=r"value\.none"):
        table["value.none"]


def test_an_image_is_the_selected_member_of_a_union(p4p_face: Face) -> None:
    image = p4p_face.call("get", "pva://S:image")

    assert image.selected("value") == "ushortValue"
    sizes = [dimension["size"] for dimension in image["dimension"]]
    pixels = image["value"].numpy().reshape(sizes[::-1])
    assert pixels.dtype == numpy.uint16 and pixels.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert image.timestamp is not None


def test_unions_and_variants_are_their_contents(p4p_face: Face) -> None:
    anything = p4p_face.call("get", "pva://S:anything")

    assert (anything["number"], anything["any"], anything["choice"]) == (1.5, 3, "two")
    assert anything.selected("choice") == "text" and "choice" in anything.type
    with pytest.raises(KeyError, match="not a union"):
        anything.selected("number")


def test_fields_of_a_structure_are_written_and_monitored(p4p_face: Face) -> None:
    name = "pva://S:anything"
    monitor = p4p_face.monitor(name)
    p4p_face.next(monitor)

    p4p_face.call("put", name, {"number": 2.5})
    update = p4p_face.next(monitor)
    p4p_face.call("put", name, {"number": 1.5})
    p4p_face.next(monitor)

    assert update["number"] == 2.5 and "number" in update.changed
    assert monitor.counts.received >= 3
    with pytest.raises(fodo.Misuse, match="no field") as caught:
        p4p_face.call("put", name, {"numbers": 1})
    assert caught.value.pv == name


def nested(face: Face, fields: dict[str, Any]) -> Any:
    """What the server has after these fields were written."""
    name = "pva://S:nested"
    face.call("put", name, fields)
    return face.call("get", name).to_dict()


def test_arrays_of_structures_are_written_as_lists_of_dicts(p4p_face: Face) -> None:
    rows = [{"name": "a", "size": 3, "limits": {"low": -1, "high": 2.5}}, None, {"size": 7.0, "limits.low": 5}]

    written = nested(p4p_face, {"rows": rows})["rows"]

    assert written[0] == {"name": "a", "size": 3, "limits": {"low": -1.0, "high": 2.5}}
    assert written[1] is None and written[2] == {"name": "", "size": 7, "limits": {"low": 5.0, "high": 0.0}}
    assert nested(p4p_face, {"rows": p4p_face.call("get", "pva://S:nested")["rows"]})["rows"] == written
    assert nested(p4p_face, {"rows": []})["rows"] == []


@pytest.mark.parametrize(
    ("value", "member", "found"),
    [("two", "text", "two"), (3, "count", 3), (numpy.array([0.5, 1.5]), "samples", [0.5, 1.5]), ([1, 2], "samples", [1, 2])],
)
def test_a_value_selects_the_member_of_a_union_that_has_its_kind(
    p4p_face: Face, value: Any, member: str, found: Any
) -> None:
    assert nested(p4p_face, {"choice": value})["choice"] == found

    assert p4p_face.call("get", "pva://S:nested").selected("choice") == member


def test_a_path_selects_the_member_of_a_union(p4p_face: Face) -> None:
    assert nested(p4p_face, {"choice": {"text": 5}})["choice"] == "5"
    assert nested(p4p_face, {"choice.count": 6})["choice"] == 6
    assert p4p_face.call("get", "pva://S:nested").selected("choice") == "count"


def test_arrays_of_unions_and_variants_are_written_as_lists(p4p_face: Face) -> None:
    written = nested(p4p_face, {"choices": ["a", 2, None, {"text": "3"}], "anys": [1, "b", None], "any": [0.5]})

    assert written["choices"] == ["a", 2, None, "3"] and written["anys"] == [1, "b", None] and written["any"] == [0.5]
    assert nested(p4p_face, {"choices": [4, 5], "anys": [6, 7]})["choices"] == [4, 5]


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"rows": [{"size": 1}, {"sizes": 2}]}, r'no field "rows\[1\]\.sizes": expected one of row_t'),
        ({"rows": [{"size": "many"}]}, r'the field "rows\[0\]\.size" is I32'),
        ({"rows": [{"limits": 5}]}, r'"rows\[0\]\.limits" is .*F64 low.*: expected a value for each field'),
        ({"rows": 5}, 'the field "rows" is row_t .*: expected a structure for each element'),
        ({"rows": [5, "a"]}, r'the element "rows\[0\]" is I32: expected row_t'),
        ({"choice.word": 5}, 'the union "choice" has no member "word": expected one of text, count, samples'),
        ({"choice": ["a", "b"]}, 'no member of the union "choice" accepts Text'),
        ({"choices": [{"text": "a", "count": 1}]}, r'"choices\[0\]" .*: expected one field, of text, count'),
        ({"rows": [{"size": object()}]}, 'the field "rows": element 0: the field "size": an object of type object'),
    ],
)
def test_an_invalid_field_is_named_with_what_was_expected(p4p_face: Face, fields: dict[str, Any], text: str) -> None:
    with pytest.raises(fodo.Misuse, match=text) as caught:
        p4p_face.call("put", "pva://S:nested", fields)
    assert caught.value.pv == "pva://S:nested"


def test_a_procedure_is_called_with_named_arguments(p4p_face: Face) -> None:
    result = p4p_face.call("rpc", "pva://S:sum", {"lhs": 1.5, "rhs": 2})

    assert result["value"] == 3.5
    with pytest.raises(fodo.Refused, match="not today"):
        p4p_face.call("rpc", "pva://S:failure")
    with pytest.raises(fodo.Misuse, match="lhs"):
        p4p_face.call("rpc", "pva://S:sum", {"lhs": object()})


def test_procedures_are_called_together_with_arguments_for_all_or_for_each(p4p_face: Face) -> None:
    names = ["pva://S:sum", "pva://S:failure", "pva://S:sum"]

    first, failure, second = p4p_face.call("rpc", names, {"lhs": 1.5, "rhs": 2})
    assert first["value"] == second["value"] == 3.5
    assert isinstance(failure, fodo.Refused) and "not today" in str(failure)
    results = p4p_face.call("rpc", names[:1] * 2, [{"lhs": 1, "rhs": 2}, {"lhs": object()}])
    assert results[0]["value"] == 3 and isinstance(results[1], fodo.Misuse) and results[1].pv == names[0]
    assert p4p_face.call("rpc", [], {}) == []
    for arguments in ([{"lhs": 1}], [1, 2, 3], 5, "lhs"):
        with pytest.raises(fodo.Misuse, match="there are 3 names|must be a"):
            p4p_face.call("rpc", names, arguments)
    with pytest.raises(fodo.Misuse, match="the arguments of a procedure must be a dict, not list"):
        p4p_face.call("rpc", names[0], [{"lhs": 1}])


def test_a_request_selects_fields_of_a_record(face: Face, place: Place) -> None:
    name = place.name("pva", "gap")
    face.call("put", name, 2.5)

    structure = face.call("get", name, request="field(value,display.units)")

    assert structure["value"] == 2.5 and structure["display"]["units"] == "mm"
    assert "value" in structure.changed and "control.limitHigh" not in structure.changed
    monitor = face.monitor(name, request="field(value)")
    assert face.next(monitor)["value"] == 2.5
    face.call("put", name, {"value": 3.5})
    update = face.next(monitor)
    assert (update["value"], update.changed) == (3.5, ["value"])


def test_normative_types_are_those_of_records_and_of_the_specification(context: sync.Context, place: Place) -> None:
    of_pvs = {"gap": nt.Scalar("d"), "shutter": nt.Enum(), "integers": nt.ScalarArray("ai"), "text": nt.Scalar("s")}
    for pv, normative in of_pvs.items():
        structure = context.get(place.name("pva", pv), request="field()")
        assert Type.of(structure) == normative.type

    _, id, members = nt.NDArray().type["attribute"]
    names = ["name", "value", "tags", "descriptor", "alarm", "timeStamp", "sourceType", "source"]
    assert id == "epics:nt/NTAttribute:1.0" and [name for name, _ in members] == names
    with pytest.raises(ValueError, match='no record has a value of the type "v"'):
        nt.Scalar("v")
