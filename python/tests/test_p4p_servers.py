"""Servers and procedures with the interface of p4p."""

from __future__ import annotations

import asyncio
import gc
import queue
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from fodo import Event, Refused
from fodo.compat.p4p import Value, _core
from fodo.compat.p4p.client import asyncio as loop_client
from fodo.compat.p4p.client import raw
from fodo.compat.p4p.client.thread import Context, Disconnected, Finished, RemoteError
from fodo.compat.p4p.nt import ClientUnwrapper, NTScalar
from fodo.compat.p4p.rpc import NTURIDispatcher, rpc, rpccall, rpcproxy
from fodo.compat.p4p.server import DynamicProvider, Server, StaticProvider, installProvider, removeProvider
from fodo.compat.p4p.server import asyncio as loop_pvs
from fodo.compat.p4p.server import raw as server_raw
from fodo.compat.p4p.server.thread import SharedPV
from fodo.compat.p4p.util import ThreadedWorkQueue
from processes import isolated, printed_by

PATIENCE = 20.0


def client(server: Server) -> Context:
    return Context("pva", conf=server.conf(), useenv=False)


def test_a_handler_by_decorators_receives_puts_and_the_client() -> None:
    pv = SharedPV(nt=NTScalar("d"), initial=1.5)
    seen: list[Any] = []

    @pv.put  # type: ignore[untyped-decorator]
    def put(pv: SharedPV, op: Any) -> None:
        option = op.pvRequest().get("record._options.answer")
        seen.append((op.name(), op.peer(), op.account(), op.value().raw.changedSet(), option))
        if op.value() < 0:
            op.done(error="must be positive")
            return
        pv.post(op.value() * 2)
        op.done()

    with Server(providers=[{"x": pv}], isolate=True) as server, client(server) as context:
        context.put("x", 4)
        assert context.get("x") == 8.0
        with pytest.raises(RemoteError, match="must be positive"):
            context.put("x", -1, request="field(value)record[answer=42]")

    assert seen[0][0] == "x" and seen[0][1].startswith("127.0.0.1:") and seen[0][2] and seen[0][3] == {"value"}
    assert [put[4] for put in seen] == [None, "42"]
    assert len(seen) == 2


def test_a_monitor_follows_close_and_open() -> None:
    pv = SharedPV(nt=NTScalar("d"), initial=1.0)
    events: queue.Queue[Any] = queue.Queue()
    with Server(providers=[{"x": pv}], isolate=True) as server, client(server) as context:
        subscription = context.monitor("x", events.put, notify_disconnect=True)
        received = [events.get(timeout=PATIENCE)]
        while isinstance(received[-1], Disconnected):
            received.append(events.get(timeout=PATIENCE))
        pv.close(sync=True, timeout=PATIENCE)
        gone = events.get(timeout=PATIENCE)
        pv.open(3.0)
        back = events.get(timeout=PATIENCE)
        subscription.close()

    assert (received[-1], back) == (1.0, 3.0) and isinstance(gone, Disconnected)


def test_a_static_provider_changes_while_it_is_served() -> None:
    provider = StaticProvider("names")
    installProvider("names", provider)
    with Server(providers=["names"], isolate=True) as server, client(server) as context:
        pv = SharedPV(nt=NTScalar("i"), initial=5)
        provider.add("late", pv)
        assert context.get("late") == 5
        assert provider.remove("late") is pv
        # The client may still have the channel, or may try the server that had it.
        with pytest.raises((TimeoutError, Disconnected, RemoteError)):
            context.get("late", timeout=0.3)
    removeProvider("names")

    with pytest.raises(ValueError, match="installProvider"):
        Server(providers=["names"], isolate=True)


def test_a_dynamic_provider_creates_pvs() -> None:
    class Numbers:
        def testChannel(self, name: str) -> bool:
            return name.startswith("n:")

        def makeChannel(self, name: str, peer: str) -> SharedPV:
            return SharedPV(nt=NTScalar("d"), initial=float(name[2:]))

    with Server(providers=[DynamicProvider("numbers", Numbers())], isolate=True) as server, client(server) as context:
        assert context.get(["n:1", "n:2.5"]) == [1.0, 2.5]


def test_a_dispatcher_and_a_proxy_call_methods() -> None:
    class Methods:
        @rpc(NTScalar("d"))
        def add(self, a: float, b: float) -> float:
            return a + b

        @rpc([("text", "s")])
        def fail(self) -> Any:
            raise RemoteError("not today")

    class Proxy:
        @rpccall("%sadd")
        def add(a="d", b="d"):  # type: ignore[no-untyped-def]
            """Adds."""

        @rpccall("%sfail")
        def fail():  # type: ignore[no-untyped-def]
            """Fails."""

    with ThreadedWorkQueue(maxsize=5) as work:
        dispatcher = NTURIDispatcher(work, target=Methods(), prefix="m:", name="methods")
        with Server(providers=[dispatcher], isolate=True) as server, client(server) as context:
            proxy: Any = rpcproxy(Proxy)(context=context, format="m:")
            assert proxy.add(1, b=2.5) == 3.5
            with pytest.raises(RemoteError, match="not today"):
                proxy.fail()


def test_a_closed_pv_can_be_called() -> None:
    pv = SharedPV()

    @pv.rpc  # type: ignore[untyped-decorator]
    def call(pv: SharedPV, op: Any) -> None:
        op.done(NTScalar("i").wrap(42))

    with Server(providers=[{"x": pv}], isolate=True) as server, client(server) as context:
        assert context.rpc("x", None) == 42
        assert not pv.isOpen()


def test_handlers_of_asyncio_run_on_the_loop() -> None:
    async def scenario() -> None:
        pv = loop_pvs.SharedPV(nt=NTScalar("d"), initial=1.0)
        loop = asyncio.get_running_loop()
        loops: list[Any] = []

        @pv.put  # type: ignore[untyped-decorator]
        async def put(pv: loop_pvs.SharedPV, op: Any) -> None:
            loops.append(asyncio.get_running_loop())
            await asyncio.sleep(0.01)
            if op.value() < 0:
                raise ValueError("must be positive")
            pv.post(op.value())
            op.done()

        with Server(providers=[{"x": pv}], isolate=True) as server, client(server) as context:
            await asyncio.to_thread(context.put, "x", 5)
            assert await asyncio.to_thread(context.get, "x") == 5.0
            with pytest.raises(RemoteError, match="must be positive"):
                await asyncio.to_thread(context.put, "x", -1)
            waiting = pv.close(sync=True)
            assert waiting is not None
            await asyncio.wait_for(waiting, PATIENCE)
        assert loops == [loop, loop]

    asyncio.run(scenario())


def test_nothing_refers_to_a_server_that_was_stopped() -> None:
    pv = SharedPV(nt=NTScalar("d"), initial=1.0)
    server = Server(providers=[{"x": pv}], isolate=True)
    with client(server) as context:
        assert context.get("x") == 1.0
    server.stop()
    references: list[weakref.ref[Any]] = [weakref.ref(server), weakref.ref(pv)]

    del server, pv
    # The queue of the PV may still have the call for its last client.
    deadline = time.monotonic() + PATIENCE
    while any(reference() is not None for reference in references):
        assert time.monotonic() < deadline
        gc.collect()
        time.sleep(0.01)


def test_values_are_posted_by_their_changed_fields() -> None:
    kind = NTScalar("d", display=True).type
    pv = SharedPV(initial=Value(kind, {"value": 1.5, "display.units": "mm"}))
    pv.post(Value(kind, {"value": 2.5}))

    current = pv.current()

    assert (current.value, current.display.units) == (2.5, "mm")


ENDINGS = (SystemExit(1), KeyboardInterrupt(), asyncio.CancelledError(), ValueError())


def test_no_exception_of_a_callback_ends_subscriptions_or_threads() -> None:
    pv = SharedPV(nt=NTScalar("d"), initial=0.0)
    received: queue.Queue[float] = queue.Queue()
    finished: queue.Queue[Any] = queue.Queue()
    raised = iter(ENDINGS)

    def fail(value: Any) -> None:
        received.put(float(value))
        raise next(raised, ValueError())

    def leave(value: Any) -> None:
        raise SystemExit

    with Server(providers=[{"x": pv}], isolate=True) as server, client(server) as context:
        subscription = context.monitor("x", fail)
        assert received.get(timeout=PATIENCE) == 0.0
        for number in range(1, 6):
            pv.post(number)
            assert received.get(timeout=PATIENCE) == number
        assert subscription.counts.n_callback_errors >= 5

        operations = [raw.Context.get(context, "x", leave)]
        with pytest.raises(RuntimeError, match="raised SystemExit"):
            context.put(["x"], [leave])
        operations.append(raw.Context.get(context, "x", finished.put))
        assert finished.get(timeout=PATIENCE) == 5.0


def test_a_coroutine_that_waits_for_a_cancelled_task_does_not_end_its_subscription() -> None:
    pv = SharedPV(nt=NTScalar("d"), initial=0.0)

    async def main(server: Server) -> None:
        received: asyncio.Queue[float] = asyncio.Queue()

        async def fail(value: Any) -> None:
            received.put_nowait(float(value))
            task = asyncio.ensure_future(asyncio.sleep(60))
            task.cancel()
            await task

        with loop_client.Context("pva", conf=server.conf(), useenv=False) as context:
            subscription = context.monitor("x", fail)
            for number in range(3):
                pv.post(number)
                while await asyncio.wait_for(received.get(), PATIENCE) != number:
                    pass
            subscription.close()
            await asyncio.wait_for(subscription.wait_closed(), PATIENCE)
            assert subscription.counts.n_callback_errors >= 2

    with Server(providers=[{"x": pv}], isolate=True) as server:
        asyncio.run(main(server))


class EndedSubscription:
    """What the client has received of a subscription that its server has ended without an error."""

    def __init__(self) -> None:
        self.events = [Event("x", "ended", Refused("x", "the server refused further updates"))]

    def monitor(self, *_: Any) -> EndedSubscription:
        return self

    def take(self) -> Event | None:
        return self.events.pop() if self.events else None


def test_a_subscription_that_the_server_ends_receives_finished() -> None:
    native: Any = EndedSubscription()
    queue: Any = None
    feed = _core.Feed(_core.PvChannel("x", native, ClientUnwrapper({})), "", queue)

    assert feed.has_events()
    assert isinstance(feed.pop(), Finished) and feed.is_done
    assert feed.pop() is None


def test_a_subscription_goes_on_while_its_queue_with_one_place_is_full() -> None:
    pv = SharedPV(nt=NTScalar("d"), initial=0.0)
    last: queue.Queue[float] = queue.Queue()
    entered, may_return = threading.Event(), threading.Event()

    def follow(value: Any) -> None:
        entered.set()
        may_return.wait(PATIENCE)
        last.put(float(value))

    with (
        ThreadedWorkQueue(maxsize=1, daemon=True) as work,
        Server(providers=[{"x": pv, "y": SharedPV(nt=NTScalar("d"), initial=7.0)}], isolate=True) as server,
        client(server) as context,
    ):
        subscription = context.monitor("x", follow, request="field(value)record[queueSize=1000]", queue=work)
        assert entered.wait(PATIENCE)
        # More updates than one turn, and no place in the queue after it.
        for number in range(1, 250):
            pv.post(number)
        work.push(lambda: None)
        others: queue.Queue[Any] = queue.Queue()
        other = context.monitor("y", others.put, notify_disconnect=True, queue=work)
        # The thread of the context is free.
        assert context.get(["x", "y"]) == [249.0, 7.0]
        may_return.set()

        while last.get(timeout=PATIENCE) != 249.0:
            pass
        assert isinstance(others.get(timeout=PATIENCE), Disconnected) and others.get(timeout=PATIENCE) == 7.0
        subscription.close()
        other.close()


def test_an_update_that_cannot_be_unwrapped_is_an_error_and_the_next_one_is_delivered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    pv = SharedPV(nt=NTScalar("d"), initial=-1.0)
    received: queue.Queue[Any] = queue.Queue()

    def unwrap(value: Value) -> float:
        if value.value < 0:
            raise ValueError("is negative")
        return float(value.value)

    async def follow(server: Server) -> list[Any]:
        seen: asyncio.Queue[Any] = asyncio.Queue()
        unwrappers = {"epics:nt/NTScalar:1.0": unwrap}
        with loop_client.Context("pva", conf=server.conf(), useenv=False, unwrap=unwrappers) as context:
            subscription = context.monitor("x", seen.put, notify_disconnect=True)
            events = []
            for number in (-1.0, 2.0):
                pv.post(number)
                while True:
                    events.append(await asyncio.wait_for(seen.get(), PATIENCE))
                    if isinstance(events[-1], RemoteError if number < 0 else float):
                        break
            subscription.close()
            await subscription.wait_closed()
        return events

    with Server(providers=[{"x": pv}], isolate=True) as server:
        unwrappers = {"epics:nt/NTScalar:1.0": unwrap}
        with Context("pva", conf=server.conf(), useenv=False, unwrap=unwrappers) as context:
            subscription = context.monitor("x", received.put, notify_disconnect=True)
            assert isinstance(received.get(timeout=PATIENCE), Disconnected)
            with pytest.raises(RemoteError, match='"x": an update cannot be unwrapped: is negative'):
                raise received.get(timeout=PATIENCE)
            pv.post(2.0)
            assert received.get(timeout=PATIENCE) == 2.0
            assert subscription.counts.n_callback_errors == 1
        assert asyncio.run(follow(server))[-1] == 2.0
    assert '"x": an update cannot be unwrapped' in caplog.text


def until(is_true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_handlers_of_connections_receive_the_present_state_after_a_blocked_queue() -> None:
    pv = SharedPV(nt=NTScalar("d"), initial=1.0)
    reported: queue.Queue[str] = queue.Queue()
    blocked, may_return = threading.Event(), threading.Event()

    @pv.onFirstConnect  # type: ignore[untyped-decorator]
    def connected(_: SharedPV) -> None:
        reported.put("connected")

    @pv.onLastDisconnect  # type: ignore[untyped-decorator]
    def disconnected(_: SharedPV) -> None:
        reported.put("disconnected")

    def block() -> None:
        blocked.set()
        may_return.wait(PATIENCE)

    with ThreadedWorkQueue(maxsize=1, daemon=True) as work:
        pv._queue = work
        with Server(providers=[{"x": pv}], isolate=True) as server:
            with client(server) as context:
                assert context.get("x") == 1.0
                assert reported.get(timeout=PATIENCE) == "connected"
                work.push(block)
                assert blocked.wait(PATIENCE)
            until(lambda: not pv._is_connected)
            for _ in range(5):
                with client(server) as context:
                    until(lambda: context.get("x") == 1.0 and pv._is_connected)
                until(lambda: not pv._is_connected)
            with client(server) as context:
                until(lambda: context.get("x") == 1.0 and pv._is_connected)
                assert len(work._kept) <= 1
                may_return.set()
                work.sync()
                # The clients meanwhile are not reported: there is one again.
                assert reported.empty()

                pv.close(sync=True, timeout=PATIENCE)
                assert reported.get_nowait() == "disconnected" and reported.empty()


def test_puts_that_wait_for_a_handler_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_raw, "WAITING_MAX", 2)
    pv = SharedPV(nt=NTScalar("d"), initial=0.0)
    may_return = threading.Event()

    @pv.put  # type: ignore[untyped-decorator]
    def put(pv: SharedPV, op: Any) -> None:
        may_return.wait(PATIENCE)
        op.done()

    with Server(providers=[{"x": pv}], isolate=True) as server:
        clients = [client(server) for _ in range(3)]
        results: queue.Queue[Any] = queue.Queue()
        operations = [raw.Context.put(context, "x", results.put, 1.0) for context in clients]
        with pytest.raises(RemoteError, match="too many requests wait"):
            raise results.get(timeout=PATIENCE)
        may_return.set()
        assert [results.get(timeout=PATIENCE) for _ in range(2)] == [None, None]
        clients[0].put("x", 2.0)
        for context in clients:
            context.close()
        del operations
    assert pv.n_busy == 1


def test_coroutines_that_wait_for_their_loop_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_raw, "WAITING_MAX", 2)

    async def main() -> None:
        may_return = asyncio.Event()
        pv = loop_pvs.SharedPV(nt=NTScalar("d"), initial=0.0)

        @pv.put  # type: ignore[untyped-decorator]
        async def put(pv: Any, op: Any) -> None:
            await may_return.wait()
            op.done()

        with Server(providers=[{"x": pv}], isolate=True) as server:
            contexts = [loop_client.Context("pva", conf=server.conf(), useenv=False) for _ in range(3)]
            puts = [asyncio.create_task(context.put("x", 1.0)) for context in contexts]
            ended, waiting = await asyncio.wait(puts, timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED)
            with pytest.raises(RemoteError, match="too many requests wait"):
                await ended.pop()
            may_return.set()
            await asyncio.gather(*waiting)
            await contexts[0].put("x", 2.0)
            for context in contexts:
                context.close()
        assert pv.n_busy == 1

    asyncio.run(main())


FORK = """
import os, warnings
warnings.simplefilter("ignore")
from fodo.compat.p4p.client.thread import Context
from fodo.compat.p4p.nt import NTScalar
from fodo.compat.p4p.server import Server
from fodo.compat.p4p.server.thread import SharedPV
from queue import Queue

def check():
    pv = SharedPV(nt=NTScalar("d"), initial=1.0)

    @pv.put
    def put(pv, op):
        pv.post(op.value())
        op.done()

    updates = Queue()
    with Server(providers=[{"x": pv}], isolate=True) as server, Context("pva", conf=server.conf(), useenv=False) as context:
        subscription = context.monitor("x", updates.put)
        first = updates.get(timeout=20)
        context.put("x", 2.0, timeout=20)
        second = updates.get(timeout=20)
        subscription.close()
        context.put("x", 1.0, timeout=20)
        return first, second

# The two checks use all four shared queues, so that the child inherits each of them.
print(check(), check(), flush=True)
child = os.fork()
if child == 0:
    print(check(), flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""


def test_the_shared_work_queues_are_usable_in_the_child_of_a_fork() -> None:
    printed = printed_by(FORK, isolated())

    assert printed.splitlines() == ["(1.0, 2.0) (1.0, 2.0)", "(1.0, 2.0)"]


LOCKED_FORK = """
import os, warnings
warnings.simplefilter("ignore")
from fodo.compat.p4p.client.thread import Cancelled, Context

context = Context("pva")
# As another thread of the parent may hold it.
with context._core._lock:
    child = os.fork()
    if child == 0:
        try:
            context.get("x")
        except Cancelled as error:
            print(error, flush=True)
        context.disconnect()
        context.close()
        print("closed", flush=True)
        os._exit(0)
    os.waitpid(child, 0)
context.close()
"""


def test_a_context_of_the_parent_does_not_block_the_child_of_a_fork() -> None:
    cancelled, closed = printed_by(LOCKED_FORK, isolated()).splitlines()

    assert "fork" in cancelled and closed == "closed"
