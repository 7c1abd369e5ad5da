"""repics over either protocol: ``repics_driver.py ca|pva``. Its blocking calls take less time than its coroutines."""

import asyncio
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import repics
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
from repics import CaChannel, CaContext
from repics.pva import Context
from repics.pva.asyncio import Context as AsyncContext

#: What is added to the number of a type of Channel Access to request its time stamp.
TIME = 14
READING = "field(value,alarm,timeStamp)"
#: The longest time for a context to close.
CLOSE_NS_MAX = 30_000_000_000
SHARED = "one channel, which repics shares per name"
#: The laboratory's waveform has this many elements; pvAccess does not report it.
ELEMENTS_MAX = 10_000_000


class ChannelAccess:
    """A fresh context for each question about connecting, one for all others. A channel closes with its object."""

    def __init__(self) -> None:
        self.context = CaContext()
        self.channels: list[CaChannel] = []
        self.kept: list[CaChannel] = []
        self.pv = ""

    async def open(self, pv: str, n_channels: int) -> tuple[int, int]:
        self.channels.clear()
        self.channels = connected(self.context, [pv] * n_channels)
        self.pv = pv
        return n_connected(self.channels), self.channels[0].info().element_count

    async def get_scalar(self, index: int) -> tuple[float, int]:
        value = self.channels[index % len(self.channels)].get(form=TIME, timeout=OPERATION_S_MAX)
        return value.value, value.raw_stamp[0]

    async def put_array(self, elements: np.ndarray) -> None:
        self.channels[0].put(elements, wait=True, timeout=OPERATION_S_MAX)

    async def get_array(self, _n_elements: int) -> np.ndarray:
        return self.channels[0].get(timeout=OPERATION_S_MAX).value

    async def create_contexts(self, n: int, pv: str) -> Timed:
        start = now_ns()
        contexts = [CaContext() for _index in range(n)]
        ns = now_ns() - start
        for context in contexts[:1] + contexts[-1:]:
            context.channel(pv).get(timeout=OPERATION_S_MAX)
        start = now_ns()
        for context in contexts:
            context.close()
        return Timed(ns, len(set(map(id, contexts))), close_ns=now_ns() - start)

    async def context_close(self, pv: str, how: str) -> bool:
        if how != "explicit":
            raise unable("closing a context by scope", "a context of Channel Access in repics has none")
        context = CaContext()
        channel = context.channel(pv)
        channel.get(timeout=OPERATION_S_MAX)
        context.close()
        return ends(lambda: channel.get(timeout=1.0), repics.CaError)

    async def create_channels(self, channels: Channels) -> Timed:
        context = self.fresh()
        start = now_ns()
        created = [context.channel(name) for name in channels.names()]
        ns = now_ns() - start
        return closed(context, Timed(ns, len(set(map(id, created)))))

    async def connect_one_by_one(self, channels: Channels) -> Timed:
        context = self.fresh()
        created = []
        start = now_ns()
        for name in channels.names():
            channel = context.channel(name)
            channel.wait_connected(OPERATION_S_MAX)
            created.append(channel)
        ns = now_ns() - start
        return closed(context, Timed(ns, n_connected(created)))

    async def connect_at_once(self, channels: Channels) -> Timed:
        context = self.fresh()
        start = now_ns()
        created = [context.channel(name) for name in channels.names()]
        created_ns = now_ns() - start
        context.wait_connected_many(created, OPERATION_S_MAX)
        ns = now_ns() - start
        return closed(context, Timed(ns, n_connected(created), created_ns=created_ns))

    async def get_at_once(self, channels: Channels) -> Timed:
        created = connected(self.context, channels.names())
        start = now_ns()
        values = self.context.get_many(created, form=TIME, timeout=OPERATION_S_MAX)
        ns = now_ns() - start
        channels.check([value.value for value in succeeded(values)])
        return Timed(ns, len(values), close_ns=released(created))

    async def put_at_once(self, channels: Channels) -> Timed:
        created = connected(self.context, channels.names())
        numbers = [float(number) for number in channels.numbers()]
        start = now_ns()
        done = self.context.put_many(created, [number + 0.5 for number in numbers], timeout=OPERATION_S_MAX)
        ns = now_ns() - start
        succeeded(done)
        values = succeeded(self.context.get_many(created, timeout=OPERATION_S_MAX))
        succeeded(self.context.put_many(created, numbers, timeout=OPERATION_S_MAX))
        channels.check([value.value - 0.5 for value in values])
        return Timed(ns, len(done), close_ns=released(created))

    async def monitor_at_once(self, channels: Channels) -> Timed:
        created = connected(self.context, channels.names())
        start = now_ns()
        subscriptions = [channel.subscribe() for channel in created]
        created_ns = now_ns() - start
        # In their order: while one is awaited, the updates of all others arrive.
        values = [subscription.recv(OPERATION_S_MAX) for subscription in subscriptions]
        ns = now_ns() - start
        n_distinct = len(set(map(id, subscriptions)))
        for subscription in subscriptions:
            subscription.close()
        require_count(n_distinct, channels.n)
        received = [value.value for value in values if value is not None]
        channels.check(received)
        return Timed(ns, len(received), created_ns=created_ns, close_ns=released(created))

    async def commands(self, channels: Channels) -> Timed:
        # repics has no command.
        line = "import sys; from repics.ca import caget; print(caget(sys.argv[1]))"
        return commands(channels, [sys.executable, "-s", "-c", line])

    def fresh(self) -> CaContext:
        """A context with one channel, which keeps a circuit to the server of the last ``open``."""
        context = CaContext()
        self.kept = connected(context, [keeper(self.pv)])
        return context


class PvAccess:
    """A fresh context for each question about connecting, because a context keeps its channels; one for all others."""

    def __init__(self) -> None:
        self.context = Context(nt=False)
        self.pv = ""

    async def open(self, pv: str, n_channels: int) -> tuple[int, int]:
        require_one_channel(n_channels, "repics")
        self.context.connect(pv, OPERATION_S_MAX)
        self.pv = pv
        return n_channels, ELEMENTS_MAX

    async def get_scalar(self, _index: int) -> tuple[float, int]:
        value = self.context.get(self.pv, READING, OPERATION_S_MAX)
        return value["value"], value["timeStamp.secondsPastEpoch"]

    async def put_array(self, elements: np.ndarray) -> None:
        self.context.put(self.pv, elements, wait=True, get=False, timeout=OPERATION_S_MAX)

    async def get_array(self, _n_elements: int) -> np.ndarray:
        return self.context.get(self.pv, READING, OPERATION_S_MAX)["value"]

    async def create_contexts(self, n: int, pv: str) -> Timed:
        start = now_ns()
        contexts = [Context() for _index in range(n)]
        ns = now_ns() - start
        for context in contexts[:1] + contexts[-1:]:
            context.get(pv, timeout=OPERATION_S_MAX)
        start = now_ns()
        for context in contexts:
            context.close()
        return Timed(ns, len(set(map(id, contexts))), close_ns=now_ns() - start)

    async def context_close(self, pv: str, how: str) -> bool:
        if how == "explicit":
            context = Context()
            context.get(pv, timeout=OPERATION_S_MAX)
            context.close()
        else:
            with Context() as context:
                context.get(pv, timeout=OPERATION_S_MAX)
        return ends(lambda: context.get(pv, timeout=1.0), repics.PvaError)

    async def create_channels(self, _channels: Channels) -> Timed:
        raise unable("creating channels", "over pvAccess repics creates a channel with its first operation")

    async def connect_one_by_one(self, channels: Channels) -> Timed:
        names = channels.distinct_only("repics")
        context = Context()
        context.connect(keeper(self.pv), OPERATION_S_MAX)
        start = now_ns()
        servers = [context.connect(name, OPERATION_S_MAX) for name in names]
        ns = now_ns() - start
        return closed(context, Timed(ns, sum(map(bool, servers))))

    async def connect_at_once(self, channels: Channels) -> Timed:
        names = channels.distinct_only("repics")
        # The blocking calls connect one PV at a time.
        context = AsyncContext()
        await context.connect(keeper(self.pv), OPERATION_S_MAX)
        start = now_ns()
        servers = await asyncio.gather(*(context.connect(name, OPERATION_S_MAX) for name in names))
        ns = now_ns() - start
        return closed(context, Timed(ns, sum(map(bool, servers))))

    async def get_at_once(self, channels: Channels) -> Timed:
        return self.time_gets(channels, READING)

    async def get_whole_at_once(self, channels: Channels) -> Timed:
        return self.time_gets(channels, None)

    async def put_at_once(self, channels: Channels) -> Timed:
        names = channels.names()
        numbers = [float(number) for number in channels.numbers()]
        self.put(names, numbers)
        start = now_ns()
        done = self.put(names, [number + 0.5 for number in numbers])
        ns = now_ns() - start
        values = self.context.get(names, timeout=OPERATION_S_MAX)
        self.put(names, numbers)
        channels.check([value["value"] - 0.5 for value in values])
        return Timed(ns, len(done), note=shared(channels))

    async def monitor_at_once(self, channels: Channels) -> Timed:
        names = channels.names()
        self.context.get(names, timeout=OPERATION_S_MAX)
        values: dict[int, float] = {}
        are_all_there = threading.Event()

        def updater(index: int) -> Any:
            def update(value: repics.pva.Value) -> None:
                values.setdefault(index, value["value"])
                if len(values) == channels.n:
                    are_all_there.set()

            return update

        updaters = [updater(index) for index in range(channels.n)]
        start = now_ns()
        subscriptions = [self.context.monitor(name, update, READING) for name, update in zip(names, updaters)]
        created_ns = now_ns() - start
        if not are_all_there.wait(OPERATION_S_MAX):
            raise unable("the first updates", f"{channels.n - len(values)} are missing")
        ns = now_ns() - start
        n_distinct = len({subscription.id for subscription in subscriptions})
        for subscription in subscriptions:
            subscription.close()
        require_count(n_distinct, channels.n)
        channels.check([values[index] for index in range(channels.n)])
        return Timed(ns, len(values), created_ns=created_ns, note=shared(channels))

    async def commands(self, channels: Channels) -> Timed:
        # repics has no command.
        line = "import sys; from repics.pva import Context; print(Context().get(sys.argv[1]))"
        return commands(channels, [sys.executable, "-s", "-c", line])

    def time_gets(self, channels: Channels, request: str | None) -> Timed:
        names = channels.names()
        self.context.get(names, request, OPERATION_S_MAX)
        start = now_ns()
        values = self.context.get(names, request, OPERATION_S_MAX)
        ns = now_ns() - start
        channels.check([value["value"] for value in values])
        return Timed(ns, len(values), note=shared(channels))

    def put(self, names: list[str], values: list[float]) -> list[None]:
        return self.context.put(names, values, wait=True, get=False, timeout=OPERATION_S_MAX)


def connected(context: CaContext, names: Sequence[str]) -> list[CaChannel]:
    """A channel of its own for each name, also for equal ones."""
    channels = [context.channel(name) for name in names]
    succeeded(context.wait_connected_many(channels, OPERATION_S_MAX))
    return channels


def succeeded(results: list[Any]) -> list[Any]:
    """The results of many operations, of which none failed."""
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


def n_connected(channels: list[CaChannel]) -> int:
    return sum(channel.connected for channel in channels)


def released(channels: list[CaChannel]) -> int:
    """Closes channels, which have no other owner; returns how long that takes."""
    start = now_ns()
    channels.clear()
    return now_ns() - start


def ends(get: Callable[[], object], error: type[Exception]) -> bool:
    """Whether a get from a closed context fails in the end: repics closes it in the background, so the next one may succeed."""
    limit = now_ns() + CLOSE_NS_MAX
    while now_ns() < limit:
        try:
            get()
        except error:
            return True
    return False


def closed(context: CaContext | Context | AsyncContext, timed: Timed) -> Timed:
    """The same with the time that closing the context takes."""
    start = now_ns()
    context.close()
    return Timed(timed.ns, timed.n, timed.created_ns, now_ns() - start)


def shared(channels: Channels) -> str | None:
    return SHARED if channels.is_shared() else None


serve(PvAccess if sys.argv[1:] == ["pva"] else ChannelAccess, hello("repics"))
