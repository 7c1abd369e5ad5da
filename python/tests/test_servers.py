"""Servers of PVs in Python, with the clients of this package."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from typing import Any

import numpy
import pytest

import fodo
from fodo import aio, sync
from fodo.pva import Operation, Server, SharedPV, Type, Union, nt

PATIENCE = 20.0


def until(is_true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class Lab:
    """An isolated server with a client."""

    def __init__(self) -> None:
        self.server = Server(isolated=True)
        self.server.start()
        self.context = sync.Context(settings=self.server.settings, timeout=PATIENCE)

    def add(self, name: str, pv: SharedPV) -> SharedPV:
        self.server.add(name, pv)
        return pv


@pytest.fixture
def lab() -> Iterator[Lab]:
    lab = Lab()
    yield lab
    lab.context.close()
    lab.server.stop()


@pytest.mark.parametrize("protocol", ["ca", "pva"])
@pytest.mark.parametrize(
    "initial", [1.5, 7, "text", [1.5, 2.5], [1, 2, 3], ["a", "b"], True], ids=lambda initial: repr(initial)
)
def test_a_pv_takes_its_type_from_its_first_value(lab: Lab, protocol: str, initial: Any) -> None:
    lab.add("x", SharedPV(initial))

    value = lab.context.get(f"{protocol}://x")

    assert value == initial
    assert abs(value.timestamp - time.time()) < PATIENCE


@pytest.mark.parametrize("protocol", ["ca", "pva"])
def test_a_value_is_posted_with_alarm_and_time(lab: Lab, protocol: str) -> None:
    pv = lab.add("x", SharedPV(1.5))
    moment = datetime(2026, 5, 4, 3, 2, 1, 500_000, timezone.utc)

    with lab.context.monitor(f"{protocol}://x") as monitor:
        assert monitor.next(PATIENCE) == 1.5
        pv.post(2.5, severity="MAJOR", status="HIHI", time=moment)
        alarmed = monitor.next(PATIENCE)
        pv.post(3.5)
        after = monitor.next(PATIENCE)

    assert (alarmed, alarmed.severity, alarmed.status, alarmed.time) == (2.5, fodo.Severity.MAJOR, "HIHI", moment)
    assert (after, after.severity) == (3.5, fodo.Severity.NO_ALARM)


@pytest.mark.parametrize("protocol", ["ca", "pva"])
def test_metadata_are_served_and_can_change(lab: Lab, protocol: str) -> None:
    type = nt.Scalar("d", units="mm", precision=3, control_limits=(0, 10), alarm_limits=(-5, 5))
    pv = lab.add("x", SharedPV(1.5, type=type))

    first = lab.context.get(f"{protocol}://x", detail="full")
    pv.post(units="cm")
    second = lab.context.get(f"{protocol}://x", detail="full")

    assert (first.units, first.precision, first.control_limits, first.alarm_limits) == ("mm", 3, (0, 10), (-5, 5))
    assert (second, second.units, second.precision) == (1.5, "cm", 3)


@pytest.mark.parametrize("protocol", ["ca", "pva"])
def test_an_enum_is_put_by_its_label(lab: Lab, protocol: str) -> None:
    puts: list[Operation] = []

    def handle(put: Operation) -> None:
        puts.append(put)
        put.accept()

    pv = lab.add("x", SharedPV("off", type=nt.Enum(["off", "on"]), on_put=handle))

    lab.context.put(f"{protocol}://x", "on" if protocol == "ca" else 1)
    value = lab.context.get(f"{protocol}://x", detail="full")

    assert ([put.value for put in puts], pv.value) == ([1], 1)
    assert (value, str(value), value.labels) == (1, "on", ["off", "on"])


@pytest.mark.parametrize("protocol", ["ca", "pva"])
def test_a_put_handler_gets_the_value_and_the_client(lab: Lab, protocol: str) -> None:
    puts: list[Operation] = []

    def handle(put: Operation) -> float:
        puts.append(put)
        return float(put.value) / 2

    pv = lab.add("x", SharedPV(1.5, on_put=handle))

    lab.context.put(f"{protocol}://x", 5)

    (put,) = puts
    assert (put.name, put.pv, put.value, put.changed) == ("x", pv, 5.0, ["value"])
    assert put.peer.address.startswith("127.0.0.1:") and put.peer.user and put.peer.host
    assert not put.is_open and pv.value == 2.5
    assert lab.server.counts.puts == 1


def test_a_handler_that_raises_refuses_with_its_text(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    def handle(put: Operation) -> None:
        raise ValueError(f"{put.value} is too high")

    pv = lab.add("x", SharedPV(1.5, on_put=handle))

    with caplog.at_level(logging.ERROR), pytest.raises(fodo.Refused, match="9.0 is too high"):
        lab.context.put("pva://x", 9)

    assert (pv.value, lab.server.counts.failed) == (1.5, 1)
    assert '"x"' in caplog.text and "9.0 is too high" in caplog.text


def test_a_pv_without_a_handler_is_read_only(lab: Lab) -> None:
    lab.add("x", SharedPV(1.5))

    for name in ("ca://x", "pva://x"):
        with pytest.raises(fodo.Refused):
            lab.context.put(name, 2)


def test_a_deferred_put_ends_on_another_thread(lab: Lab) -> None:
    def handle(put: Operation) -> None:
        put.defer()
        threading.Timer(0.05, lambda: put.done(put.value * 10)).start()

    pv = lab.add("x", SharedPV(1.5, on_put=handle))

    lab.context.put("pva://x", 2)

    assert pv.value == 20


def test_an_operation_that_is_dropped_is_refused(lab: Lab) -> None:
    def forget(put: Operation) -> None:
        put.defer()

    lab.add("x", SharedPV(1.5, on_put=forget))

    with pytest.raises(fodo.Refused):
        lab.context.put("pva://x", 2)


def test_a_procedure_gets_its_arguments_and_returns_a_result(lab: Lab) -> None:
    lab.add("sum", SharedPV(on_rpc=lambda call: call.value["a"] + call.value["b"]))

    def fail(call: Operation) -> None:
        raise RuntimeError("not today")

    lab.add("failure", SharedPV(on_rpc=fail))

    assert lab.context.rpc("pva://sum", {"a": 1, "b": 2})["value"] == 3
    with pytest.raises(fodo.Refused, match="not today"):
        lab.context.rpc("pva://failure")
    assert (lab.server.counts.calls, lab.server.counts.failed) == (2, 1)


def test_a_structure_has_every_kind_of_field(lab: Lab) -> None:
    point = Type({"x": "d", "y": "d"}, id="point_t")
    codes = {f"s_{code}": code for code in "?bBhHiIlLfds" if code != "?"} | {"s_bool": "?"}
    kind = Type(
        {
            **codes,
            "array": "ai",
            "inner": {"depth": {"leaf": "s"}},
            "points": [point],
            "choice": Union({"number": "d", "text": "s", "point": point}),
            "choices": [Union({"number": "d", "text": "s"})],
            "any": "v",
            "anys": "av",
        },
        id="all_t",
    )
    numbers: dict[str, Any] = {name: 3 for name in codes if name not in ("s_s", "s_bool")}
    initial = {
        **numbers,
        "s_s": "text",
        "s_bool": True,
        "array": [1, 2, 3],
        "inner.depth.leaf": "deep",
        "points": [{"x": 1, "y": 2}, None],
        "choice": ("point", {"x": 5, "y": 6}),
        "choices": [("text", "two"), None, ("number", 1.5)],
        "any": [0.5, 1.5],
        "anys": [1, "text", None],
    }
    lab.add("all", SharedPV(initial, type=kind))

    received = lab.context.get("pva://all")

    plain = received.to_dict()
    assert received.id == "all_t"
    assert plain == {
        **numbers,
        "s_s": "text",
        "s_bool": True,
        "array": [1, 2, 3],
        "inner": {"depth": {"leaf": "deep"}},
        "points": [{"x": 1, "y": 2}, None],
        "choice": {"x": 5, "y": 6},
        "choices": ["two", None, 1.5],
        "any": [0.5, 1.5],
        "anys": [1, "text", None],
    }
    assert received.selected("choice") == "point"


def test_texts_and_arrays_have_limits(lab: Lab) -> None:
    pv = lab.add("x", SharedPV({"pair": [1, 2]}, type=Type({"name": "s(4)", "few": "ad(2)", "pair": "ai[2]"})))

    for change in ({"name": "12345"}, {"few": [1, 2, 3]}, {"pair": [1]}):
        with pytest.raises(fodo.Misuse, match=f"limited to|{min(change)}"):
            pv.post(change)
    pv.post({"name": "1234", "few": [1.5], "pair": [3, 4]})

    assert lab.context.get("pva://x").to_dict() == {"name": "1234", "few": [1.5], "pair": [3, 4]}
    with pytest.raises(ValueError, match="has no size"):
        Type({"x": "d(3)"})


def test_only_the_changed_fields_of_a_structure_are_sent(lab: Lab) -> None:
    kind = Type({"position": "d", "speed": "d", "timeStamp": {"secondsPastEpoch": "l", "nanoseconds": "i"}})
    pv = lab.add("motor", SharedPV({"position": 1, "speed": 2}, type=kind, on_put=True))

    with lab.context.monitor("pva://motor", request="field()") as monitor:
        monitor.next(PATIENCE)
        pv.post({"speed": 3})
        changed = monitor.next(PATIENCE).changed
    lab.context.put("pva://motor", {"position": 7})

    assert changed == ["speed", "timeStamp.secondsPastEpoch", "timeStamp.nanoseconds"]
    assert (pv.current["position"], pv.current["speed"]) == (7, 3)


def test_a_table_and_an_image_round_trip(lab: Lab) -> None:
    table = nt.Table({"time": "d", "name": "s"})
    rows = [{"time": 0.5, "name": "a"}, {"time": 1.5, "name": "b"}]
    image = numpy.arange(6, dtype="u2").reshape(2, 3)
    lab.add("table", SharedPV(rows, type=table))
    pictured = lab.add("image", SharedPV(image))
    channels = nt.MultiChannel()
    lab.add("many", SharedPV({"a": 1.5, "b": "text", "c": None}, type=channels))

    received = lab.context.get("pva://table")
    assert received["labels"] == ["time", "name"]
    assert table.unwrap(received) == {"time": [0.5, 1.5], "name": ["a", "b"]}
    unwrapped = nt.NDArray().unwrap(lab.context.get("pva://image"))
    assert unwrapped is not None and unwrapped.dtype == image.dtype and (unwrapped == image).all()
    assert channels.unwrap(lab.context.get("pva://many")) == {"a": 1.5, "b": "text", "c": None}
    pictured.post(numpy.zeros((4, 5, 3), dtype="f4"))
    assert pictured.value.shape == (4, 5, 3)


def test_errors_name_the_pv_and_what_was_expected(lab: Lab) -> None:
    number = lab.add("x", SharedPV(1.5))
    array = lab.add("a", SharedPV([1.0, 2.0]))
    table = lab.add("t", SharedPV({"n": [1]}, type=nt.Table({"n": "i", "m": "i"})))

    with pytest.raises(fodo.Misuse, match='"x": the structures have different types'):
        number.post(Type({"speed": "d"}).wrap({"speed": 1}))
    with pytest.raises(fodo.Misuse, match='"t": there is no field value.k: expected one of n, m'):
        table.post({"k": [1]})
    with pytest.raises(fodo.Misuse, match='"a": the array has 3 elements: max_length is 2'):
        array.post([1.0, 2.0, 3.0])
    with pytest.raises(fodo.Misuse, match='"t": the columns have different lengths: n 1, m 2'):
        table.post({"n": [1], "m": [1, 2]})
    with pytest.raises(fodo.Misuse, match='"x": the server has a PV with this name already'):
        lab.server.add("x", number)
    with pytest.raises(fodo.Misuse, match='"y": the server has no PV'):
        lab.server.remove("y")


def test_a_closed_pv_is_opened_with_another_type(lab: Lab) -> None:
    pv = lab.add("x", SharedPV(1.5))
    first = lab.context.get("pva://x")

    pv.close()
    with pytest.raises(fodo.Error):
        lab.context.get("ca://x", timeout=0.2)
    with pytest.raises(fodo.Misuse, match="closed"):
        pv.post(2.5)
    pv.open(2.5)

    assert (first, lab.context.get("ca://x")) == (1.5, 2.5)


def test_handlers_of_connections_are_called_for_the_first_and_the_last_client(lab: Lab) -> None:
    events: list[str] = []
    pv = SharedPV(
        1.5, on_first_connect=lambda _: events.append("first"), on_last_disconnect=lambda _: events.append("last")
    )
    lab.add("x", pv)

    with sync.Context(settings=lab.server.settings, timeout=PATIENCE) as other:
        other.get("pva://x")
        lab.context.get("ca://x")
    until(lambda: events == ["first"])
    lab.context.close()

    until(lambda: events == ["first", "last"])


def test_a_server_starts_again_and_several_run_at_once() -> None:
    pv = SharedPV(1.5)
    servers = [Server({"x": pv}, isolated=True) for _ in range(3)]

    for _ in range(2):
        for server in servers:
            server.start()
        for number, server in enumerate(servers):
            with sync.Context(settings=server.settings, timeout=PATIENCE) as context:
                pv.post(float(number))
                assert context.get("pva://x") == number and context.get("ca://x") == number
        for server in servers:
            server.stop()
            assert not server.is_running


def test_a_slow_client_gets_merged_updates_which_are_counted(lab: Lab) -> None:
    pv = lab.add("x", SharedPV(numpy.zeros(200_000)))

    with lab.context.monitor("pva://x", request="field(value)") as monitor:
        monitor.next(PATIENCE)
        for number in range(200):
            pv.post(numpy.full(200_000, float(number)))
        last = monitor.next(PATIENCE)
        while last["value"][0] != 199:
            last = monitor.next(PATIENCE)

    until(lambda: (counts := lab.server.counts).sent + counts.merged + counts.dropped >= 200)
    assert lab.server.counts.merged > 0


def test_coroutines_of_handlers_run_on_the_loop() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        loops: list[Any] = []

        async def handle(put: Operation) -> float:
            loops.append(asyncio.get_running_loop())
            await asyncio.sleep(0.01)
            if put.value < 0:
                raise ValueError("negative")
            return float(put.value) * 2

        async with Server({"x": SharedPV(1.5, on_put=handle)}, isolated=True) as server:
            async with aio.Context(settings=server.settings, timeout=PATIENCE) as context:
                await context.put("pva://x", 4)
                assert await context.get("pva://x") == 8
                with pytest.raises(fodo.Refused, match="negative"):
                    await context.put("pva://x", -1)
        assert loops == [loop, loop]

    asyncio.run(scenario())


def test_a_coroutine_without_a_loop_is_refused(lab: Lab) -> None:
    async def handle(put: Operation) -> None:
        raise AssertionError

    lab.add("x", SharedPV(1.5, on_put=handle))

    with pytest.raises(fodo.Refused, match="no loop"):
        lab.context.put("pva://x", 2)


def test_a_server_that_stops_refuses_what_waits(lab: Lab) -> None:
    started, leave = threading.Event(), threading.Event()

    def handle(put: Operation) -> None:
        started.set()
        leave.wait(PATIENCE)

    lab.add("x", SharedPV(1.5, on_put=handle))
    errors: list[BaseException] = []

    def put() -> None:
        try:
            lab.context.put("pva://x", 2)
        except fodo.Error as error:
            errors.append(error)

    client = threading.Thread(target=put)
    client.start()
    assert started.wait(PATIENCE)
    stop = threading.Thread(target=lab.server.stop)
    stop.start()
    client.join(PATIENCE)
    leave.set()
    stop.join(PATIENCE)

    assert len(errors) == 1 and not client.is_alive() and not stop.is_alive()


def test_a_pv_is_created_when_a_client_searches_for_it() -> None:
    searched: list[str] = []

    def create(name: str) -> SharedPV | None:
        searched.append(name)
        return SharedPV(float(name.removeprefix("x"))) if name.startswith("x") else None

    with Server(isolated=True, on_search=create) as server:
        with sync.Context(settings=server.settings, timeout=PATIENCE) as context:
            assert context.get("pva://x1") == 1 and context.get("pva://x2") == 2
            with pytest.raises(fodo.NotFound):
                context.get("pva://y", timeout=0.3)
            assert server.names == ["x1", "x2"]
        until(lambda: server.names == [])

    assert {"x1", "x2", "y"} == set(searched)


def test_a_removed_pv_is_served_no_longer(lab: Lab) -> None:
    pv = lab.add("x", SharedPV(1.5))
    assert lab.server.names == ["x"]

    assert lab.server.remove("x") is pv

    with sync.Context(settings=lab.server.settings) as context, pytest.raises(fodo.NotFound):
        context.get("pva://x", timeout=0.5)
    assert lab.server.names == []


@pytest.mark.parametrize("protocol", ["ca", "pva"])
def test_clients_of_a_closed_or_removed_pv_are_disconnected(lab: Lab, protocol: str) -> None:
    closed, removed = lab.add("closed", SharedPV(1.5)), lab.add("removed", SharedPV(2.5))
    lab.add("other", SharedPV(3.5))

    names = [f"{protocol}://{name}" for name in ("closed", "removed", "other")]
    monitors = [lab.context.monitor(name) for name in names]
    for monitor in monitors:
        monitor.next(PATIENCE)
    closed.close()
    lab.server.remove("removed")
    until(lambda: [monitor.counts.n_disconnected for monitor in monitors] == [1, 1, 0])
    closed.open(4.5)
    lab.server.add("removed", removed)
    removed.post(5.5)

    assert [monitor.next(PATIENCE) for monitor in monitors[:2]] == [4.5, 5.5]
    for monitor in monitors:
        monitor.close()


def test_large_puts_that_wait_for_a_handler_are_refused_beyond_their_limit(lab: Lab) -> None:
    is_released = threading.Event()
    pv = lab.add("x", SharedPV(numpy.zeros(4_000_000), on_put=lambda operation: is_released.wait(60)))
    value = numpy.ones(4_000_000)
    try:
        # Channel Access, without completion: nothing else bounds these.
        for _ in range(14):
            lab.context.put("ca://x", value, wait=False)
        deadline = time.monotonic() + 60
        while lab.server.counts.handlers_busy == 0:
            assert time.monotonic() < deadline, lab.server.counts
            time.sleep(0.05)
        assert lab.server.counts.waiting <= 8
    finally:
        is_released.set()
    assert pv.is_open


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError(), ValueError("\udc80")])
def test_no_exception_of_a_handler_ends_the_thread_of_the_handlers(lab: Lab, error: BaseException) -> None:
    def fail(_: object) -> None:
        raise error

    pv = lab.add("s:fails", SharedPV(0.0, on_put=fail, on_first_connect=fail))
    lab.add("s:accepts", SharedPV(0.0, on_put=True))

    with pytest.raises(fodo.Refused):
        lab.context.put("pva://s:fails", 1.0)

    lab.context.put("pva://s:accepts", 2.0)
    assert lab.server.counts.failed == 2 and pv.value == 0.0


def test_a_search_handler_that_returns_something_else_is_an_error(caplog: pytest.LogCaptureFixture) -> None:
    def find(name: str) -> Any:
        if name == "s:exits":
            raise SystemExit
        return True if name == "s:wrong" else SharedPV(1.0, on_put=True)

    with Server(isolated=True, on_search=find) as server, sync.Context(settings=server.settings) as client:
        for name in ("s:wrong", "s:exits"):
            with pytest.raises(fodo.NotFound):
                client.get(f"pva://{name}", timeout=0.3)
        client.put("pva://s:right", 2.0, timeout=PATIENCE)
        assert server.counts.failed >= 2
    assert "on_search returned bool: expected a SharedPV or None" in caplog.text


def test_an_unknown_severity_is_refused_with_those_that_exist() -> None:
    with pytest.raises(fodo.Misuse, match='cannot be "major": expected one of NO_ALARM, MINOR, MAJOR, INVALID'):
        SharedPV(1.0).post(2.0, severity="major")


def test_a_handler_refuses_a_put_without_an_exception(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    pv = lab.add("s:refuses", SharedPV(0.0, on_put=lambda put: put.error("not now")))

    with pytest.raises(fodo.Refused, match="not now"):
        lab.context.put("pva://s:refuses", 1.0)

    assert (pv.value, lab.server.counts.failed, caplog.text) == (0.0, 0, "")


def test_no_handler_is_called_for_a_client_that_leaves_before_its_event_is_handled(lab: Lab) -> None:
    entered, release = threading.Event(), threading.Event()
    events: list[str] = []

    def block(_: object) -> None:
        entered.set()
        assert release.wait(PATIENCE)

    lab.add("s:blocks", SharedPV(0.0, on_put=block))
    lab.add(
        "s:pv",
        SharedPV(1.5, on_first_connect=lambda _: events.append("first"), on_last_disconnect=lambda _: events.append("last")),
    )
    writer = threading.Thread(target=lab.context.put, args=("pva://s:blocks", 1.0))
    writer.start()
    assert entered.wait(PATIENCE)
    with sync.Context(settings=lab.server.settings, timeout=PATIENCE) as short:
        assert short.get("pva://s:pv") == 1.5
    time.sleep(0.3)
    release.set()
    writer.join()

    for _ in range(2):
        assert events == []
        with sync.Context(settings=lab.server.settings, timeout=PATIENCE) as client:
            assert client.get("pva://s:pv") == 1.5
            until(lambda: events == ["first"])
        until(lambda: events == ["first", "last"])
        events.clear()


def test_connections_are_events_again_after_a_restart() -> None:
    events: list[str] = []
    pv = SharedPV(
        1.5, on_first_connect=lambda _: events.append("first"), on_last_disconnect=lambda _: events.append("last")
    )
    server = Server({"s:pv": pv}, isolated=True)
    for _ in range(2):
        with server, sync.Context(settings=server.settings, timeout=PATIENCE) as client:
            assert client.get("pva://s:pv") == 1.5
            until(lambda: events == ["first"])
            server.stop()
        events.clear()
