"""Clients with the interface of p4p, with a server of p4p and with `fodo ioc`."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Queue
from typing import Any

import numpy
import pytest

from conftest import Place
from fodo.compat.p4p import Type, Value, listRefs
from fodo.compat.p4p.client import asyncio as face_aio
from fodo.compat.p4p.client import raw
from fodo.compat.p4p.client.thread import Cancelled, Context, Disconnected, RemoteError
from fodo.compat.p4p.nt import NTURI
from fodo.compat.p4p.util import ThreadedWorkQueue, WorkQueue
from processes import FOLDER, isolated, running

PATIENCE = 30.0


@pytest.fixture(scope="module")
def settings() -> Iterator[dict[str, str]]:
    """A server of p4p from the peers' environment."""
    peers = os.environ.get("FODO_PEERS")
    python = Path(peers or "", "bin", "python")
    if not peers or not python.exists():
        pytest.skip("FODO_PEERS names no environment with p4p")
    settings = isolated()
    with running([str(python), str(FOLDER / "p4p_faces.py")], settings, "ready"):
        yield settings


@pytest.fixture
def client(settings: dict[str, str]) -> Iterator[Context]:
    with Context("pva", conf=settings, useenv=False) as context:
        yield context


@pytest.fixture
def plain(settings: dict[str, str]) -> Iterator[Context]:
    """A client that unwraps nothing."""
    with Context("pva", conf=settings, useenv=False, nt=False) as context:
        yield context


def test_values_are_unwrapped_with_their_attributes(client: Context) -> None:
    number, text, array, choice = client.get(["F:number", "F:text", "F:array", "F:choice"], timeout=PATIENCE)

    assert number == 1.5 and number.severity == 0 and number.raw_stamp == (0, 0) and number.raw.display.units == ""
    assert text == "first" and array.tolist() == [1, 2, 3] and array.dtype == "i4"
    assert choice == 1 and str(choice) == "On" and choice.raw.changed("value")


def test_an_image_and_structures_are_received_with_their_types(client: Context) -> None:
    image = client.get("F:image", timeout=PATIENCE)
    table = client.get("F:table", timeout=PATIENCE)

    assert image.shape == (2, 3) and image.dtype == numpy.uint16 and image.attrib == {"ColorMode": 0}
    assert table.getID() == "epics:nt/NTTable:1.0" and table.value.name == ["a", "b"]
    assert table.type()["value"].aspy() == ("S", "structure", [("time", "ad"), ("name", "as")])


def test_puts_of_every_form_arrive(client: Context) -> None:
    client.put("F:number", 2.5, timeout=PATIENCE)
    assert client.get("F:number", timeout=PATIENCE) == 2.5
    client.put("F:number", {"value": 3.5}, timeout=PATIENCE)
    assert client.get("F:number", timeout=PATIENCE) == 3.5
    client.put("F:number", '{"value": 4.5}', timeout=PATIENCE)
    assert client.get("F:number", timeout=PATIENCE) == 4.5
    client.put("F:number", lambda value: value.__setitem__("value", value["value"] + 1), timeout=PATIENCE)
    assert client.get("F:number", timeout=PATIENCE) == 5.5

    assert client.put(["F:text", "F:array", "F:choice"], ["b", [4, 5], "Off"], timeout=PATIENCE) == [None] * 3
    text, array, choice = client.get(["F:text", "F:array", "F:choice"], timeout=PATIENCE)
    assert text == "b" and array.tolist() == [4, 5] and choice.choice == "Off"


def test_a_put_of_a_value_writes_what_has_changed(plain: Context) -> None:
    read = plain.get("F:anything", timeout=PATIENCE)
    change = Value(read.type())
    change.any = [1.5, 2.5]
    change.choice = ("count", 7)

    plain.put("F:anything", change, timeout=PATIENCE)

    found = plain.get("F:anything", timeout=PATIENCE)
    assert found.any.tolist() == [1.5, 2.5] and found.choice == 7 and found.number == read.number


def test_structure_arrays_are_written(plain: Context) -> None:
    rows = [{"name": "x", "size": 2**32 - 1}, {"name": "y", "size": 3}]

    plain.put("F:elements", {"rows": rows, "anys": [1, "b"]}, timeout=PATIENCE)

    found = plain.get("F:elements", timeout=PATIENCE)
    assert found.todict("rows") == rows and found.anys == [1, "b"] and found["rows[1].name"] == "y"


def test_without_get_the_value_is_new(client: Context) -> None:
    client.put("F:number", 8.0, timeout=PATIENCE)
    seen: list[float] = []

    def build(value: Value) -> None:
        seen.append(value["value"])
        value["value"] = 9.0

    client.put("F:number", build, timeout=PATIENCE, get=False)
    client.put("F:number", build, timeout=PATIENCE)

    assert seen == [0.0, 9.0]


def test_a_request_selects_fields(plain: Context) -> None:
    plain.put("F:number", {"value": 2.0}, timeout=PATIENCE)
    by_text = plain.get("F:number", request="field(value)", timeout=PATIENCE)
    by_value = plain.get("F:number", request=Context.makeRequest("field(alarm)"), timeout=PATIENCE)

    assert by_text.changedSet() == {"value"} and by_text.value != 0
    assert not by_value.changed("value") and by_value.value == 0


def test_procedures_are_called(client: Context) -> None:
    argument = NTURI([("lhs", "d"), ("rhs", "d")]).wrap("F:sum", kws={"lhs": 1.0, "rhs": 2.5})

    assert client.rpc("F:sum", argument, timeout=PATIENCE) == 3.5
    assert client.rpc("F:sum", None, timeout=PATIENCE) is None
    with pytest.raises(RemoteError, match="not today"):
        client.rpc("F:failure", argument, timeout=PATIENCE)


def test_errors_name_the_pv_and_are_raised_or_returned(client: Context) -> None:
    with pytest.raises(RemoteError, match="F:number.*must not be negative"):
        client.put("F:number", -1, timeout=PATIENCE)
    assert isinstance(client.put("F:read_only", 1, timeout=PATIENCE, throw=False), RemoteError)
    with pytest.raises(ValueError, match="many"):
        client.put("F:number", "many", timeout=PATIENCE)
    with pytest.raises(TimeoutError, match="F:nope"):
        client.get("F:nope", timeout=0.2)
    found, missing = client.get(["F:text", "F:nope"], timeout=2.0, throw=False)
    assert isinstance(found, str) and isinstance(missing, TimeoutError)
    with pytest.raises(ValueError, match="excludes"):
        client.put("F:number", 1, request="field(value)", wait=True)


def test_a_subscription_follows_a_pv_through_a_disconnection(client: Context) -> None:
    updates: Queue[Any] = Queue()
    client.put("F:number", 1.0, timeout=PATIENCE)

    with client.monitor("F:number", updates.put, notify_disconnect=True) as subscription:
        assert isinstance(updates.get(timeout=PATIENCE), Disconnected)
        assert updates.get(timeout=PATIENCE) == 1.0
        client.put("F:control", "close", timeout=PATIENCE)
        assert isinstance(updates.get(timeout=PATIENCE), Disconnected)
        client.put("F:control", "open 2.5", timeout=PATIENCE)
        assert updates.get(timeout=PATIENCE) == 2.5
        assert subscription.counts.n_disconnected == 1

    assert subscription.counts.delivered == 2


def test_the_end_of_a_context_is_a_disconnection_for_its_subscriptions(settings: dict[str, str]) -> None:
    updates, others = Queue[Any](), Queue[Any]()
    context = Context("pva", conf=settings, useenv=False)
    followed = context.monitor("F:text", updates.put, notify_disconnect=True)
    searching = context.monitor("F:nope", others.put, notify_disconnect=True)
    assert isinstance(updates.get(timeout=PATIENCE), Disconnected)
    assert isinstance(updates.get(timeout=PATIENCE), str)

    context.close()

    assert isinstance(updates.get(timeout=PATIENCE), Disconnected)
    assert isinstance(others.get(timeout=PATIENCE), Disconnected) and others.empty()
    followed.close()
    searching.close()
    assert updates.empty()


def test_a_subscription_may_be_closed_in_its_callback(client: Context) -> None:
    updates: Queue[Any] = Queue()
    closed = threading.Event()
    client.put("F:number", 1.0, timeout=PATIENCE)

    def follow(value: Any) -> None:
        updates.put(value)
        subscriptions.get(timeout=PATIENCE).close()
        closed.set()

    subscriptions: Queue[Any] = Queue()
    subscription = client.monitor("F:number", follow)
    subscriptions.put(subscription)
    assert closed.wait(PATIENCE)
    with client.monitor("F:number", lambda value: updates.put(-value)):
        client.put("F:number", 2.0, timeout=PATIENCE)
        received = [updates.get(timeout=PATIENCE)]
        while received[-1] != -2.0:
            received.append(updates.get(timeout=PATIENCE))

    assert received[0] == 1.0 and 2.0 not in received and subscription.counts.delivered == 1


@pytest.mark.parametrize("request_text", ["field(", "record[a=1", "field(value))"])
def test_an_invalid_request_is_rejected_by_every_call(client: Context, request_text: str) -> None:
    for call in (
        lambda: client.get("F:number", request=request_text),
        lambda: client.get(["F:number"], request=[request_text]),
        lambda: client.put("F:number", 1.0, request=request_text),
        lambda: client.monitor("F:number", print, request=request_text),
    ):
        with pytest.raises(RuntimeError, match="pvRequest"):
            call()


def test_squashed_updates_are_counted(client: Context) -> None:
    blocked, updates = threading.Event(), Queue[Any]()
    client.put("F:number", 0.0, timeout=PATIENCE)

    def follow(value: Any) -> None:
        updates.put(float(value))
        assert blocked.wait(PATIENCE)

    with client.monitor("F:number", follow, request="field()record[queueSize=2]") as subscription:
        updates.get(timeout=PATIENCE)
        client.put("F:control", "post 50", timeout=PATIENCE)
        # The server replies to a request that follows its updates.
        client.get("F:number", timeout=PATIENCE)
        blocked.set()
        while updates.get(timeout=PATIENCE) != 49.0:
            pass

        counts = subscription.counts
        assert counts.received == counts.delivered + counts.merged
        assert counts.merged + counts.overrun > 0


def test_an_exception_in_a_callback_is_counted_and_ends_nothing(client: Context) -> None:
    updates: Queue[Any] = Queue()

    def follow(value: Any) -> None:
        updates.put(value)
        raise RuntimeError("of the callback")

    client.put("F:text", "a", timeout=PATIENCE)
    with client.monitor("F:text", follow) as subscription:
        assert updates.get(timeout=PATIENCE) == "a"
        client.put("F:text", "b", timeout=PATIENCE)
        assert updates.get(timeout=PATIENCE) == "b"

        assert subscription.counts.n_callback_errors >= 1


def test_callbacks_are_called_in_the_given_queue(settings: dict[str, str]) -> None:
    threads: Queue[str] = Queue()

    with ThreadedWorkQueue(name="mine", maxsize=0) as queue, Context("pva", conf=settings, useenv=False, queue=queue) as own:
        subscription = own.monitor("F:text", lambda _: threads.put(threading.current_thread().name))

        assert threads.get(timeout=PATIENCE).startswith("mine")
        subscription.close()


def test_a_callback_may_put(client: Context) -> None:
    copied: Queue[Any] = Queue()
    client.put(["F:number", "F:text"], [4.0, "x"], timeout=PATIENCE)

    def copy(value: Any) -> None:
        client.put("F:text", f"saw {float(value)}", timeout=PATIENCE)
        copied.put(value)

    with client.monitor("F:number", copy):
        copied.get(timeout=PATIENCE)

    assert client.get("F:text", timeout=PATIENCE) == "saw 4.0"


def test_closing_a_context_with_a_queue_ends_it(settings: dict[str, str]) -> None:
    context = Context("pva", conf=settings, useenv=False, queue=WorkQueue())

    context.close()
    context.close()

    with pytest.raises(RuntimeError, match="closed"):
        context.get("F:number")
    assert context.conf() == {} and listRefs()["ClientContextImpl"] == 0


def test_a_context_that_is_not_closed_is_collected(settings: dict[str, str]) -> None:
    context = Context("pva", conf=settings, useenv=False)
    subscription = context.monitor("F:number", lambda _: None)
    alive = weakref.ref(context)

    del context, subscription
    gc.collect()

    assert alive() is None and listRefs()["ClientContextImpl"] == 0


def test_the_client_with_callbacks_delivers_once(settings: dict[str, str]) -> None:
    results: Queue[Any] = Queue()
    with raw.Context("pva", conf=settings, useenv=False) as context:
        operation = context.get("F:array", results.put)
        assert results.get(timeout=PATIENCE).size >= 2
        operation.close()

        waiting = context.get("F:nope", results.put)
        waiting.close()
        assert isinstance(results.get(timeout=PATIENCE), Cancelled)

        put = context.put("F:text", results.put, "raw")
        assert results.get(timeout=PATIENCE) is None
        failing = context.put("F:text", results.put, lambda value: 1 // 0)
        assert isinstance(results.get(timeout=PATIENCE), ZeroDivisionError)
        del put, failing
    assert results.empty()


def in_loop(test: Callable[[face_aio.Context], Any], settings: dict[str, str]) -> None:
    async def run() -> None:
        async with asyncio.timeout(PATIENCE):
            with face_aio.Context("pva", conf=settings, useenv=False) as context:
                await test(context)

    asyncio.run(run())


def test_calls_are_awaited(settings: dict[str, str]) -> None:
    async def test(context: face_aio.Context) -> None:
        await context.put(["F:number", "F:text"], [6.5, "async"])
        assert await context.get(["F:number", "F:text"]) == [6.5, "async"]
        await context.put("F:choice", "On", wait=True)
        assert str(await context.get("F:choice")) == "On"
        argument = NTURI([("lhs", "d"), ("rhs", "d")]).wrap("F:sum", (1, 2))
        assert await context.rpc("F:sum", argument) == 3.0
        with pytest.raises(RemoteError, match="not today"):
            await context.rpc("F:failure", argument)
        with pytest.raises(ValueError, match="word"):
            await context.put("F:number", "word")

    in_loop(test, settings)


def test_a_coroutine_function_follows_a_pv(settings: dict[str, str]) -> None:
    async def test(context: face_aio.Context) -> None:
        updates: asyncio.Queue[Any] = asyncio.Queue()
        await context.put("F:number", 1.0)
        subscription = context.monitor("F:number", updates.put, notify_disconnect=True)
        assert isinstance(await updates.get(), Disconnected)
        assert await updates.get() == 1.0
        await context.put("F:control", "close")
        assert isinstance(await updates.get(), Disconnected)
        await context.put("F:control", "open 7.5")
        assert await updates.get() == 7.5
        subscription.close()
        await subscription.wait_closed()
        assert subscription.counts.delivered == 2
        with pytest.raises(TypeError, match="coroutine"):
            context.monitor("F:number", print)  # type: ignore[arg-type]

    in_loop(test, settings)


def test_the_end_of_a_context_ends_its_coroutines(settings: dict[str, str]) -> None:
    async def test(context: face_aio.Context) -> None:
        updates: asyncio.Queue[Any] = asyncio.Queue()
        subscription = context.monitor("F:text", updates.put, notify_disconnect=True)
        assert isinstance(await updates.get(), Disconnected)
        assert isinstance(await updates.get(), str)
        with pytest.raises(RuntimeError, match="pvRequest"):
            await context.get("F:text", request="field(")
        search = asyncio.create_task(context.get("F:nope"))
        await asyncio.sleep(0)

        context.close()

        assert isinstance(await updates.get(), Disconnected)
        with pytest.raises(Cancelled):
            await search
        subscription.close()
        await subscription.wait_closed()

    in_loop(test, settings)


def test_a_timeout_ends_a_coroutine_and_keeps_its_result(settings: dict[str, str]) -> None:
    @face_aio.timesout(PATIENCE)
    async def read(context: face_aio.Context, name: str) -> Any:
        return await context.get(name)

    async def test(context: face_aio.Context) -> None:
        assert await read(context, "F:number") == await context.get("F:number")
        with pytest.raises(TimeoutError):
            await read(context, "F:nope", timeout=0.05)

    in_loop(test, settings)


def test_records_of_an_ioc_are_read_written_and_followed(place: Place) -> None:
    updates: Queue[Any] = Queue()
    with Context("pva", conf=place.settings, useenv=False) as context:
        context.put(place.prefix + "gap", 3.25, timeout=PATIENCE, wait=True)
        value = context.get(place.prefix + "gap", timeout=PATIENCE)
        assert value == 3.25 and value.raw.getID() == "epics:nt/NTScalar:1.0" and value.timestamp > 0

        with context.monitor(place.prefix + "gap", updates.put):
            assert updates.get(timeout=PATIENCE) == 3.25
            context.put(place.prefix + "gap", 4.5, timeout=PATIENCE, process="true", wait=True)
            assert updates.get(timeout=PATIENCE) == 4.5


def test_conf_reports_what_the_client_uses(settings: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EPICS_PVA_ADDR_LIST", "192.0.2.1")

    with Context("pva", conf={"EPICS_PVA_SERVER_PORT": "12345"}) as context:
        assert context.conf()["EPICS_PVA_ADDR_LIST"] == "192.0.2.1"
        assert context.conf()["EPICS_PVA_SERVER_PORT"] == "12345"
    with Context("pva", useenv=False) as context:
        assert context.conf()["EPICS_PVA_ADDR_LIST"] == ""
    assert Context.providers() == ["pva"] and Type([]).keys() == []


def test_a_setting_that_does_not_exist_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    conf = {"EPICS_PVA_ADDRLIST": "127.0.0.1", "EPICS_PVA_ADDR_LIST": "127.0.0.1"}

    with caplog.at_level("WARNING", "fodo"), Context("pva", conf=conf, useenv=False) as context:
        assert context.conf()["EPICS_PVA_ADDR_LIST"] == "127.0.0.1"

    assert 'there is no setting "EPICS_PVA_ADDRLIST"' in caplog.text
