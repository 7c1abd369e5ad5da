"""Arguments that are invalid are errors that name the argument."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import fodo
from conftest import Face, Place
from fodo import aio, sync
from fodo.ioc import Ioc
from fodo.pva import Server
from processes import printed_by


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"count": -1}, "count cannot be -1: expected 0 or more"),
        ({"count": 2**40}, "count cannot be 1099511627776"),
        ({"timeout": "5"}, "timeout must be a number of seconds, not str"),
        ({"timeout": -1}, "timeout cannot be -1: it must not be negative or NaN"),
        ({"timeout": float("nan")}, "timeout cannot be nan"),
        ({"timeout": [1]}, "timeout must be a number of seconds, not list"),
        ({"detail": "everything"}, "detail cannot be"),
        ({"kind": "double"}, 'kind "double"'),
    ],
    ids=str,
)
def test_an_invalid_option_of_a_get_is_named(face: Face, place: Place, options: dict[str, Any], reason: str) -> None:
    name = place.name("ca", "gap")
    with pytest.raises(fodo.Misuse, match=reason):
        face.call("get", name, **options)
    if "timeout" in options:
        with pytest.raises(fodo.Misuse, match=reason):
            face.call("get", [name, name], **options)
    else:
        ends = face.call("get", [name, name], **options)
        assert [type(end) for end in ends] == [fodo.Misuse, fodo.Misuse]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"queue_max": 0}, "queue_max cannot be 0: expected 1 or more"),
        ({"queue_max": -5}, "queue_max cannot be -5"),
        ({"window": 0}, "window cannot be 0: expected 1 or more"),
        ({"window": -1}, "window cannot be -1"),
        ({"count": -1}, "count cannot be -1"),
        ({"mask": "values"}, "mask cannot be"),
        ({"when_full": "wait"}, "when_full cannot be"),
    ],
    ids=str,
)
def test_an_invalid_option_of_a_monitor_is_named(
    face: Face, place: Place, options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(fodo.Misuse, match=reason):
        face.monitor(place.name("pva", "gap"), **options)


def test_an_invalid_option_of_batches_is_named(face: Face, place: Place) -> None:
    for option, value in (("rows_max", -1), ("window", 0)):
        with pytest.raises(fodo.Misuse, match=f"{option} cannot be {value}"):
            face.batches([place.name("ca", "gap")], **{option: value})


def test_the_timeout_of_a_wait_for_an_update_is_checked(face: Face, place: Place) -> None:
    monitor = face.monitor(place.name("ca", "gap"))
    invalid: list[Any] = ["5", -1, float("nan"), None]
    for timeout in invalid:
        with pytest.raises(fodo.Misuse, match="timeout"):
            face.next(monitor, timeout)
    assert face.next(monitor) is not None


@pytest.mark.parametrize("module", [sync, aio])
@pytest.mark.parametrize("timeout", ["5", -1, float("nan"), None], ids=str)
def test_the_timeout_of_a_context_is_checked(module: Any, timeout: Any) -> None:
    with pytest.raises(fodo.Misuse, match="timeout"):
        module.Context(timeout=timeout)


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (None, "names must be a text or a list of texts, not NoneType"),
        ("", "name"),
        ("x gap", '"x gap": the name of a PV has no blanks'),
        (" x:gap", "the name of a PV has no blanks"),
        ("x:gap\n", "the name of a PV has no blanks"),
        ("x:gap x:number", "pass several names as a list"),
    ],
)
def test_invalid_names_are_errors(face: Face, names: Any, reason: str) -> None:
    for call, arguments in (("get", [names]), ("put", [names, 1])):
        with pytest.raises(fodo.Misuse, match=reason):
            face.call(call, *arguments)
    with pytest.raises(fodo.Misuse, match=reason):
        face.monitor(names)


def test_a_filter_in_a_name_may_have_blanks(face: Face, place: Place) -> None:
    assert face.call("get", place.name("ca", 'spectrum.{"arr": {"s": 1, "e": 3}}')) is not None


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("addres_list", 'there is no setting "addres_list"; did you mean "EPICS_[A-Z]*_ADDR_LIST"'),
        ("EPICS_CA_ADDRLIST", 'did you mean "EPICS_CA_ADDR_LIST"'),
        ("EPICS_PVAS_SERVERPORT", 'did you mean "EPICS_PVAS_SERVER_PORT"'),
        ("timeout", 'there is no setting "timeout"'),
    ],
)
def test_a_misspelt_setting_is_an_error_with_the_nearest_name(name: str, reason: str) -> None:
    ioc = Ioc("X:")
    for create in (
        lambda: sync.Context(settings={name: "1"}),
        lambda: aio.Context(settings={name: "1"}),
        lambda: Server(settings={name: "1"}),
        lambda: ioc.start(settings={name: "1"}),
    ):
        with pytest.raises(fodo.Misuse, match=reason):
            create()


def test_settings_that_only_other_programs_read_are_accepted() -> None:
    sync.Context(settings={"EPICS_PVA_DEBUG": "1", "EPICS_CA_ADDR_LIST": "127.0.0.1"}).close()


def test_the_functions_of_the_modules_work_again_after_their_context_was_closed(place: Place) -> None:
    source = """
import asyncio, sys
from fodo import aio, sync
name = sys.argv[1]
first = sync.default_context()
for _ in range(2):
    assert isinstance(sync.get(name), float)
    sync.default_context().close()
assert sync.default_context() is not first
async def read():
    for _ in range(2):
        assert isinstance(await aio.get(name), float)
        aio.default_context().close()
asyncio.run(read())
print("done")
"""
    assert printed_by(source, place.settings, place.name("ca", "gap")) == "done\n"


def test_a_context_that_was_closed_stays_closed(place: Place) -> None:
    context = sync.Context(settings=place.settings)
    context.close()
    with pytest.raises(fodo.Closed, match="create a new one"):
        context.put(place.name("ca", "gap"), 1.0)

    async def use() -> None:
        context = aio.Context(settings=place.settings)
        context.close()
        await context.get(place.name("ca", "gap"))

    with pytest.raises(fodo.Closed, match="create a new one"):
        asyncio.run(use())
