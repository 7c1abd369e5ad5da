"""How values appear in a notebook."""

from __future__ import annotations

from fodo import sync

from conftest import Place


def test_a_number_shows_its_name_units_alarm_time_and_limits(context: sync.Context, place: Place) -> None:
    name = place.name("ca", "gap")
    context.put(name, 16.0)

    shown = context.get(name, detail="full")._repr_html_()

    assert f">{name}</th>" in shown and "<b>16.00</b> mm" in shown
    assert ">MINOR HIGH" in shown and "0 to 20" in shown and ">time</th>" in shown


def test_what_a_server_sends_cannot_become_html(context: sync.Context, place: Place) -> None:
    name = place.name("ca", "text")
    context.put(name, "<script>")

    assert "<script>" not in context.get(name)._repr_html_()


def test_a_long_array_shows_its_first_elements_and_their_number(context: sync.Context, place: Place) -> None:
    name = place.name("pva", "spectrum")
    context.put(name, [float(index) for index in range(12)])

    shown = context.get(name)._repr_html_()

    assert "[0.0, 1.0, 2.0" in shown and "9.0, …]" in shown and "<i>12 f64</i>" in shown


def test_a_structure_shows_its_fields(context: sync.Context, place: Place) -> None:
    shown = context.get(place.name("pva", "gap"), request="field(value,alarm)")._repr_html_()

    assert ">alarm</th>" in shown and ">severity</th>" in shown
