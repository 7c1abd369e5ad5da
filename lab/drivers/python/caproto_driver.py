"""caproto's threading client; batches use ``get_pvs`` and ``Batch``."""

import pathlib
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from caproto.threading.client import PV, Batch, Context
from protocol import (
    OPERATION_S_MAX,
    Channels,
    Timed,
    commands,
    hello,
    keeper,
    now_ns,
    require_count,
    require_one_channel,
    serve,
    unable,
)

SHARED = "one channel, which caproto shares per name"


class Caproto:
    """A fresh context for each question about connecting, because a context caches search results; one for all other
    questions, because closing a context takes half a second."""

    def __init__(self) -> None:
        self.context: Context | None = None
        self.pv: PV | None = None
        self.kept = ""

    def fresh(self) -> Context:
        """A context without search results, but with the circuit to the server of the last ``open``."""
        self.close_all()
        self.context = Context(timeout=OPERATION_S_MAX)
        if self.kept:
            self.context.get_pvs(self.kept)[0].wait_for_connection()
        return self.context

    async def open(self, pv: str, n_channels: int) -> tuple[int, int]:
        require_one_channel(n_channels, "caproto")
        self.kept = keeper(pv)
        (self.pv,) = self.connect([pv])
        return n_channels, self.pv.channel.native_data_count

    async def get_scalar(self, _index: int) -> tuple[float, int]:
        response = self.pv.read(data_type="time", timeout=OPERATION_S_MAX)
        return response.data[0], response.metadata.stamp.secondsSinceEpoch

    async def put_array(self, elements: np.ndarray) -> None:
        self.pv.write(elements, wait=True, timeout=OPERATION_S_MAX)

    async def get_array(self, _n_elements: int) -> np.ndarray:
        # The server sets the count: by default caproto requests the maximum count of the waveform.
        return self.pv.read(data_count=0, timeout=OPERATION_S_MAX).data

    async def create_contexts(self, n: int, pv: str) -> Timed:
        self.close_all()
        start = now_ns()
        contexts = [Context() for _index in range(n)]
        ns = now_ns() - start
        n_distinct = len(set(map(id, contexts)))
        for context in contexts[:1] + contexts[-1:]:
            context.get_pvs(pv)[0].wait_for_connection(timeout=OPERATION_S_MAX)
        start = now_ns()
        # In parallel, because caproto takes a second to close a context that has found nothing.
        with ThreadPoolExecutor(max_workers=max(n, 1)) as pool:
            list(pool.map(close, contexts))
        return Timed(ns, n_distinct, close_ns=now_ns() - start)

    async def context_close(self, pv: str, how: str) -> bool:
        self.close_all()
        if how == "explicit":
            context = Context()
            (channel,) = context.get_pvs(pv)
            channel.wait_for_connection(timeout=OPERATION_S_MAX)
            context.disconnect()
        else:
            with Context() as context:
                (channel,) = context.get_pvs(pv)
                channel.wait_for_connection(timeout=OPERATION_S_MAX)
        return not channel.connected

    async def create_channels(self, channels: Channels) -> Timed:
        names = channels.distinct_only("caproto")
        context = self.fresh()
        start = now_ns()
        pvs = context.get_pvs(*names)
        ns = now_ns() - start
        return Timed(ns, len(set(map(id, pvs))), close_ns=self.close_all())

    async def connect_one_by_one(self, channels: Channels) -> Timed:
        names = channels.distinct_only("caproto")
        context = self.fresh()
        pvs = []
        start = now_ns()
        for name in names:
            (pv,) = context.get_pvs(name)
            pv.wait_for_connection()
            pvs.append(pv)
        ns = now_ns() - start
        return Timed(ns, sum(pv.connected for pv in pvs), close_ns=self.close_all())

    async def connect_at_once(self, channels: Channels) -> Timed:
        names = channels.distinct_only("caproto")
        context = self.fresh()
        start = now_ns()
        pvs = context.get_pvs(*names)
        created = now_ns()
        for pv in pvs:
            pv.wait_for_connection()
        ns = now_ns() - start
        n = sum(pv.connected for pv in pvs)
        return Timed(ns, n, created_ns=created - start, close_ns=self.close_all())

    async def get_at_once(self, channels: Channels) -> Timed:
        pvs = self.connect(channels.names())
        readings = Readings(channels.n)
        start = now_ns()
        for indices in batches(channels.n):
            with Batch(timeout=OPERATION_S_MAX) as batch:
                for index in indices:
                    batch.read(pvs[index], readings.taker(index), data_type="time")
        readings.wait("get")
        ns = now_ns() - start
        channels.check([response.data[0] for response in readings.in_order()])
        return Timed(ns, len(readings.values), note=shared(channels))

    async def put_at_once(self, channels: Channels) -> Timed:
        pvs = self.connect(channels.names())
        numbers = [float(number) for number in channels.numbers()]
        done = Readings(channels.n)
        start = now_ns()
        for indices in batches(channels.n):
            with Batch(timeout=OPERATION_S_MAX) as batch:
                for index in indices:
                    batch.write(pvs[index], [numbers[index] + 0.5], done.taker(index))
        done.wait("put")
        ns = now_ns() - start
        values = [pv.read().data[0] for pv in pvs]
        for number, pv in zip(numbers, pvs):
            pv.write([number], wait=True)
        channels.check([value - 0.5 for value in values])
        return Timed(ns, len(done.values), note=shared(channels))

    async def monitor_at_once(self, channels: Channels) -> Timed:
        pvs = self.connect(channels.names())
        readings = Readings(channels.n)
        # Kept here, because caproto keeps only weak references to callbacks.
        updaters = [readings.updater(index) for index in range(channels.n)]
        subscriptions = []
        start = now_ns()
        for index, pv in enumerate(pvs):
            # caproto merges equal subscriptions of a PV; a number that is not sent keeps them separate.
            subscription = pv.subscribe(to=float(index)) if channels.is_shared() else pv.subscribe()
            subscription.add_callback(updaters[index])
            subscriptions.append(subscription)
        created = now_ns()
        readings.wait("the first updates")
        ns = now_ns() - start
        n_distinct = len(set(map(id, subscriptions)))
        for subscription in subscriptions:
            subscription.clear()
        require_count(n_distinct, channels.n)
        channels.check([response.data[0] for response in readings.in_order()])
        n = len(readings.values)
        return Timed(ns, n, created_ns=created - start, note=shared(channels))

    async def commands(self, channels: Channels) -> Timed:
        command = pathlib.Path(sys.executable).with_name("caproto-get")
        return commands(channels, [str(command), "--terse", "--no-repeater", "--timeout", "10"])

    def connect(self, names: list[str]) -> list[PV]:
        context = self.context or self.fresh()
        pvs = context.get_pvs(*names)
        for pv in pvs:
            pv.wait_for_connection()
        return pvs

    def close_all(self) -> int:
        start = now_ns()
        if self.context is not None:
            close(self.context)
        self.context = None
        return now_ns() - start


class Readings:
    """Collects one response per index, from callbacks on several threads, and waits until all have arrived."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.values: dict[int, Any] = {}
        self.are_all_there = threading.Event()

    def take(self, index: int, response: Any) -> None:
        self.values.setdefault(index, response)
        if len(self.values) == self.n:
            self.are_all_there.set()

    def taker(self, index: int) -> Any:
        return lambda response: self.take(index, response)

    def updater(self, index: int) -> Any:
        return lambda _subscription, response: self.take(index, response)

    def in_order(self) -> list[Any]:
        return [self.values[index] for index in range(self.n)]

    def wait(self, what: str) -> None:
        if self.n > 0 and not self.are_all_there.wait(OPERATION_S_MAX):
            raise unable(what, f"{self.n - len(self.values)} of {self.n} are missing")


def batches(n: int) -> list[range]:
    """Batches of a thousand: replies arrive while the next one is built. One of 20 000 took over 1.5 times as long."""
    return [range(first, min(first + 1000, n)) for first in range(0, n, 1000)]


def shared(channels: Channels) -> str | None:
    return SHARED if channels.is_shared() else None


def close(context: Context) -> None:
    # Without waiting for its threads, which check only twice a second whether to end. Its broadcaster is not shared and
    # ends with it.
    context.disconnect(wait=False)


serve(Caproto, hello("caproto"))
