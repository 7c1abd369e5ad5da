"""aioca through its three functions, called in the fastest way we found."""

import asyncio
import sys

import aioca
import epicscorelibs.version
import numpy as np
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

SHARED = "one channel, which aioca shares per name"


class Aioca:
    """aioca creates one context per process at its first call and ends it with the process."""

    def __init__(self) -> None:
        self.pv = ""

    async def open(self, pv: str, n_channels: int) -> tuple[int, int]:
        require_one_channel(n_channels, "aioca")
        aioca.purge_channel_caches()
        about = await aioca.cainfo(pv, timeout=OPERATION_S_MAX)
        self.pv = pv
        await aioca.connect(keeper(pv), timeout=OPERATION_S_MAX)
        return n_channels, about.count

    async def get_scalar(self, _index: int) -> tuple[float, int]:
        # Without aioca's own timeout: with one, aioca creates a task and a timer for every get.
        value = await aioca.caget(self.pv, format=aioca.FORMAT_TIME, timeout=None)
        return value, value.raw_stamp[0]

    async def put_array(self, elements: np.ndarray) -> None:
        await aioca.caput(self.pv, elements, wait=True, timeout=OPERATION_S_MAX)

    async def get_array(self, _n_elements: int) -> np.ndarray:
        return await aioca.caget(self.pv, timeout=None)

    async def create_contexts(self, _n: int, _pv: str) -> Timed:
        raise unable("making a context", "aioca creates its single context per process itself")

    async def context_close(self, _pv: str, _how: str) -> bool:
        raise unable("closing a context", "aioca has no function for it; its context ends with the process")

    async def create_channels(self, channels: Channels) -> Timed:
        names = channels.distinct_only("aioca")
        start = now_ns()
        # One after another: the list form creates a task per name, which has nothing to wait for here.
        for name in names:
            await aioca.connect(name, wait=False, timeout=None)
        ns = now_ns() - start
        return Timed(ns, n_channels(names), close_ns=await self.close())

    async def connect_one_by_one(self, channels: Channels) -> Timed:
        names = channels.distinct_only("aioca")
        start = now_ns()
        for name in names:
            await aioca.connect(name, timeout=None)
        ns = now_ns() - start
        return Timed(ns, n_connected(names), close_ns=await self.close())

    async def connect_at_once(self, channels: Channels) -> Timed:
        names = channels.distinct_only("aioca")
        start = now_ns()
        for name in names:
            await aioca.connect(name, wait=False, timeout=None)
        created = now_ns()
        # In the order of the names: while one is awaited all others connect, and no task is needed.
        for name in names:
            await aioca.connect(name, timeout=None)
        ns = now_ns() - start
        return Timed(ns, n_connected(names), created_ns=created - start, close_ns=await self.close())

    async def get_at_once(self, channels: Channels) -> Timed:
        names = await self.connected(channels)
        start = now_ns()
        values = await aioca.caget(names, format=aioca.FORMAT_TIME, timeout=OPERATION_S_MAX)
        ns = now_ns() - start
        channels.check(values)
        return Timed(ns, len(values), close_ns=await self.close(), note=shared(channels))

    async def put_at_once(self, channels: Channels) -> Timed:
        names = await self.connected(channels)
        numbers = [float(number) for number in channels.numbers()]
        start = now_ns()
        done = await aioca.caput(names, [number + 0.5 for number in numbers], wait=True, timeout=OPERATION_S_MAX)
        ns = now_ns() - start
        values = await aioca.caget(names, timeout=OPERATION_S_MAX)
        await aioca.caput(names, numbers, wait=True, timeout=OPERATION_S_MAX)
        channels.check([value - 0.5 for value in values])
        return Timed(ns, sum(map(bool, done)), close_ns=await self.close(), note=shared(channels))

    async def monitor_at_once(self, channels: Channels) -> Timed:
        names = await self.connected(channels)
        values: dict[int, float] = {}
        are_all_there = asyncio.Event()

        def update(value: float, index: int) -> None:
            if index not in values:
                values[index] = value
                if len(values) == channels.n:
                    are_all_there.set()

        start = now_ns()
        subscriptions = aioca.camonitor(names, update)
        created = now_ns()
        async with asyncio.timeout(OPERATION_S_MAX):
            await are_all_there.wait()
        ns = now_ns() - start
        n_distinct = len(set(map(id, subscriptions)))
        for subscription in subscriptions:
            subscription.close()
        require_count(n_distinct, channels.n)
        channels.check([values[index] for index in range(channels.n)])
        return Timed(ns, len(values), created_ns=created - start, close_ns=await self.close(), note=shared(channels))

    async def commands(self, channels: Channels) -> Timed:
        # aioca has no command.
        line = "import asyncio, sys, aioca; print(asyncio.run(aioca.caget(sys.argv[1])))"
        return commands(channels, [sys.executable, "-s", "-c", line])

    async def connected(self, channels: Channels) -> list[str]:
        names = channels.names()
        await aioca.connect(names, timeout=OPERATION_S_MAX)
        return names

    async def close(self) -> int:
        """aioca can only close all channels, so one is created again to keep a circuit for the next batch."""
        start = now_ns()
        aioca.purge_channel_caches()
        ns = now_ns() - start
        if self.pv:
            await aioca.connect(keeper(self.pv), timeout=OPERATION_S_MAX)
        return ns


def shared(channels: Channels) -> str | None:
    return SHARED if channels.is_shared() else None


def n_channels(names: list[str]) -> int:
    wanted = set(names)
    return sum(about.name in wanted for about in aioca.get_channel_infos())


def n_connected(names: list[str]) -> int:
    wanted = set(names)
    return sum(about.connected for about in aioca.get_channel_infos() if about.name in wanted)


serve(Aioca, hello("aioca", f"libca {epicscorelibs.version.version}"))
