"""Calls: one name or many, timeouts and errors."""

from __future__ import annotations

import pickle
import signal
import threading
import time
from typing import Any

import pytest

import fodo
from conftest import Face, Place
from fodo import sync


def test_many_names_return_a_result_or_an_error_for_each(face: Face, place: Place, protocol: str) -> None:
    gap, number, absent = (place.name(protocol, name) for name in ("gap", "number", "absent"))
    face.call("connect", [gap, number])

    results = face.call("get", [gap, absent, number], timeout=0.5)

    assert isinstance(results[0], float) and isinstance(results[2], int)
    assert isinstance(results[1], fodo.NotFound) and results[1].pv == absent
    ends = face.call("put", [gap, absent, number], [1.5, 2, 3], timeout=0.5)
    assert (ends[0], ends[2]) == (None, None) and isinstance(ends[1], fodo.NotFound)
    assert face.call("get", [gap, number]) == [1.5, 3]
    assert face.call("get", []) == []


def test_many_invalid_calls_fail_one_by_one(face: Face, place: Place) -> None:
    name = place.name("ca", "gap")

    ends = face.call("put", [name, name, ""], [2.5, object(), 1])

    assert ends[0] is None and [type(end) for end in ends[1:]] == [fodo.Misuse, fodo.Misuse]
    with pytest.raises(fodo.Misuse, match="2 names but 1 values"):
        face.call("put", [name, name], [1])
    with pytest.raises(fodo.Misuse, match="not int"):
        face.call("get", [1])


def test_an_absent_name_is_not_found_in_time(face: Face, place: Place, protocol: str) -> None:
    name = place.name(protocol, "absent")

    for call in ("get", "connect", "info"):
        with pytest.raises(fodo.NotFound, match="no server claimed the name") as caught:
            face.call(call, name, timeout=0.2)
        assert caught.value.pv == name and isinstance(caught.value, TimeoutError)
        advice = caught.value.advice
        assert advice is not None and f"EPICS_{protocol.upper()}_ADDR_LIST" in advice and advice in str(caught.value)


def test_a_put_that_takes_too_long_has_no_reply(face: Face, place: Place, protocol: str) -> None:
    name = place.name(protocol, "slow.A")
    face.call("connect", name)

    with pytest.raises(fodo.NoReply, match="did not reply within 0.3 s; its IOC may be busy") as caught:
        face.call("put", name, time.time(), timeout=0.3)

    assert caught.value.pv == name and caught.value.server is not None


def test_a_refused_put_says_why(face: Face, place: Place, protocol: str) -> None:
    name = place.name(protocol, "locked")

    with pytest.raises(fodo.Refused) as caught:
        face.call("put", name, 1)

    assert caught.value.pv == name and isinstance(caught.value, PermissionError)


def test_invalid_names_and_options_are_misuse(face: Face, place: Place) -> None:
    name = place.name("ca", "gap")
    cases: list[tuple[str, list[Any], dict[str, Any]]] = [
        ("get", [""], {}),
        ("get", ["x" * 2000], {}),
        ("get", [name], {"detail": "everything"}),
        ("get", [name], {"kind": "complex"}),
        ("get", [place.name("pva", "gap")], {"request": "field("}),
        ("rpc", [name], {}),
        ("put", [name, {"value": 1}], {}),
    ]
    for call, arguments, options in cases:
        with pytest.raises(fodo.Misuse):
            face.call(call, *arguments, **options)
    with pytest.raises(ValueError, match="negative"):
        face.call("get", name, timeout=-1)


def test_info_reports_the_server_the_kind_and_the_type(face: Face, place: Place, protocol: str) -> None:
    gap, absent = place.name(protocol, "gap"), place.name(protocol, "absent")

    info = face.call("info", gap)
    connected = face.call("connect", gap)
    several = face.call("info", [gap, absent], timeout=0.5)

    assert (info.name, info.protocol, info.kind, info.count_max) == (gap, protocol, "f64", 1)
    assert info.may_read and info.may_write and info.server.startswith("127.0.0.1:")
    assert (info.type is not None and "NTScalar" in info.type) if protocol == "pva" else info.type is None
    assert connected.type is None and connected.server == info.server
    assert several[0] == info and isinstance(several[1], fodo.NotFound)


def test_a_put_without_waiting_is_carried_out(face: Face, place: Place, protocol: str) -> None:
    name = place.name(protocol, "gap")

    face.call("put", name, 3.5, wait=False)

    deadline = time.monotonic() + 10
    while face.call("get", name) != 3.5:
        assert time.monotonic() < deadline


def test_a_refused_put_without_waiting_is_a_notice(context: sync.Context, place: Place) -> None:
    context.put(place.name("ca", "locked"), 1, wait=False)

    notice = context.next_notice(10)

    assert notice is not None and "locked" in notice
    assert context.next_notice(0) is None


def test_a_closed_context_says_so(face: Face, place: Place, protocol: str) -> None:
    name = place.name(protocol, "gap")
    face.call("get", name)

    face.context.close()
    face.context.close()

    with pytest.raises(fodo.Closed):
        face.call("get", name)
    with pytest.raises(fodo.Closed):
        face.monitor(name, print)


def test_closing_a_context_ends_a_call_in_progress(place: Place) -> None:
    context = sync.Context(settings=place.settings)
    threading.Timer(0.1, context.close).start()

    with pytest.raises(fodo.Closed):
        context.get(place.name("ca", "absent"), timeout=20)


def test_a_disconnected_name_connects_again(context: sync.Context, place: Place, protocol: str) -> None:
    name = place.name(protocol, "gap")
    context.get(name)

    context.disconnect(name)
    context.disconnect()

    assert isinstance(context.get(name), float)


def test_ctrl_c_ends_a_blocking_call(context: sync.Context, place: Place) -> None:
    for call in (
        lambda: context.get(place.name("ca", "absent"), timeout=20),
        lambda: next(context.monitor(place.name("ca", "absent"))),
        lambda: context.next_notice(20),
    ):
        threading.Timer(0.1, signal.raise_signal, [signal.SIGINT]).start()
        with pytest.raises(KeyboardInterrupt):
            call()


def test_threads_share_a_context(context: sync.Context, place: Place, protocol: str) -> None:
    name = place.name(protocol, "gap")
    results: list[float] = []

    def read() -> None:
        results.extend(context.get(name) for _ in range(50))

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(results) == 200


def test_settings_of_a_context_are_checked() -> None:
    with pytest.raises(fodo.Misuse, match="EPICS_CA_CONN_TMO"):
        sync.Context(settings={"EPICS_CA_CONN_TMO": "soon"})


def test_errors_are_pickled_with_their_pv() -> None:
    error = pickle.loads(pickle.dumps(fodo.NotFound("x:gap", "no server", "10.0.0.1:5064", "start one")))

    assert (type(error), error.pv, error.reason, error.server) == (fodo.NotFound, "x:gap", "no server", "10.0.0.1:5064")
    assert (str(error), error.advice) == ('"x:gap": no server; start one', "start one")
    assert (str(fodo.Misuse("", "no name")), fodo.Misuse("", "no name").advice) == ("no name", None)


def test_both_faces_have_the_same_names() -> None:
    from fodo import aio

    def public(face: object) -> set[str]:
        return {name for name in dir(face) if not name.startswith("_")}

    assert sync.__all__ == aio.__all__
    assert public(sync.Context) == public(aio.Context)

    assert public(sync.Monitor) == public(aio.Monitor)


def test_a_list_of_names_needs_a_list_of_values(face: Face, place: Place) -> None:
    names = [place.name("ca", "gap"), place.name("ca", "number")]

    # Not the characters of the text, nor the keys of the dict.
    for values in ("12", b"12", dict.fromkeys(names, 1), 5):
        with pytest.raises(fodo.Misuse, match="list of as many values"):
            face.call("put", names, values)
    with pytest.raises(fodo.Misuse, match="not int"):
        face.call("get", 5)


def test_a_setting_that_is_not_a_text_is_named() -> None:
    settings: Any = {"EPICS_CA_SERVER_PORT": 5064}
    starts = (
        lambda: sync.Context(settings=settings),
        lambda: fodo.pva.Server(settings=settings),
        lambda: fodo.ioc.Ioc("X:").start(settings=settings),
    )

    for start in starts:
        with pytest.raises(fodo.Misuse, match="EPICS_CA_SERVER_PORT must be a text"):
            start()
