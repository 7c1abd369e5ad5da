"""The package ``fodo`` with its blocking calls, over either protocol: ``fodo_driver.py [ca|pva]``."""

import importlib.metadata
import platform
import sys

import fodo
import numpy as np
from fodo import sync
from protocol import (
    OPERATION_S_MAX,
    Channels,
    Hello,
    Timed,
    commands,
    keeper,
    now_ns,
    require_count,
    require_one_channel,
    serve,
)

PREFIX = f"{sys.argv[1]}://" if len(sys.argv) > 1 else "ca://"
SHARED = "one channel, which fodo shares per name"


class Fodo:
    """A fresh context for each question about connecting, because a context keeps its channels; one for all others."""

    def __init__(self) -> None:
        self.context = sync.Context(timeout=OPERATION_S_MAX)
        self.pv = ""

    async def open(self, pv: str, n_channels: int) -> tuple[int, int]:
        require_one_channel(n_channels, "fodo")
        self.pv = PREFIX + pv
        about = self.context.connect(self.pv)
        return n_channels, about.count_max or 10_000_000

    async def get_scalar(self, _index: int) -> tuple[float, int]:
        value = self.context.get(self.pv)
        return value, value.timestamp_ns // 1_000_000_000

    async def put_array(self, elements: np.ndarray) -> None:
        self.context.put(self.pv, elements)

    async def get_array(self, _n_elements: int) -> np.ndarray:
        return self.context.get(self.pv).numpy()

    async def create_contexts(self, n: int, pv: str) -> Timed:
        start = now_ns()
        contexts = [sync.Context(timeout=OPERATION_S_MAX) for _index in range(n)]
        ns = now_ns() - start
        for context in contexts[:1] + contexts[-1:]:
            context.get(PREFIX + pv)
        start = now_ns()
        for context in contexts:
            context.close()
        return Timed(ns, len(set(map(id, contexts))), close_ns=now_ns() - start)

    async def context_close(self, pv: str, how: str) -> bool:
        if how == "explicit":
            context = sync.Context(timeout=OPERATION_S_MAX)
            context.get(PREFIX + pv)
            context.close()
        else:
            with sync.Context(timeout=OPERATION_S_MAX) as context:
                context.get(PREFIX + pv)
        try:
            context.get(PREFIX + pv, timeout=1.0)
        except fodo.Closed:
            return True
        return False

    async def create_channels(self, channels: Channels) -> Timed:
        names = self.names(channels.distinct_only("fodo"))
        context = self.fresh()
        start = now_ns()
        # No other call creates a channel without waiting for it.
        monitors = context.monitor(names)
        ns = now_ns() - start
        return self.closed(context, Timed(ns, len(set(map(id, monitors))), note="each with a monitor"))

    async def connect_one_by_one(self, channels: Channels) -> Timed:
        names = self.names(channels.distinct_only("fodo"))
        context = self.fresh()
        start = now_ns()
        found = [context.connect(name) for name in names]
        return self.closed(context, Timed(now_ns() - start, len(found)))

    async def connect_at_once(self, channels: Channels) -> Timed:
        names = self.names(channels.distinct_only("fodo"))
        context = self.fresh()
        start = now_ns()
        found = context.connect(names)
        ns = now_ns() - start
        return self.closed(context, Timed(ns, sum(isinstance(about, fodo.Info) for about in found)))

    async def get_at_once(self, channels: Channels) -> Timed:
        names = self.connected(channels)
        start = now_ns()
        values = self.context.get(names)
        ns = now_ns() - start
        channels.check(values)
        return Timed(ns, len(values), note=shared(channels))

    async def get_whole_at_once(self, channels: Channels) -> Timed:
        names = self.connected(channels)
        start = now_ns()
        values = self.context.get(names, detail="full")
        ns = now_ns() - start
        channels.check(values)
        return Timed(ns, len(values), note=shared(channels))

    async def put_at_once(self, channels: Channels) -> Timed:
        names = self.connected(channels)
        numbers = [float(number) for number in channels.numbers()]
        start = now_ns()
        ends = self.context.put(names, [number + 0.5 for number in numbers])
        ns = now_ns() - start
        values = self.context.get(names)
        self.context.put(names, numbers)
        channels.check([value - 0.5 for value in values])
        return Timed(ns, sum(end is None for end in ends), note=shared(channels))

    async def monitor_at_once(self, channels: Channels) -> Timed:
        names = self.connected(channels)
        start = now_ns()
        batches = self.context.batches(names)
        created = now_ns()
        values: dict[int, float] = {}
        while len(values) < channels.n:
            batch = batches.next(OPERATION_S_MAX)
            values.update(zip(batch.index.tolist(), batch.value.tolist()))
        ns = now_ns() - start
        batches.close()
        require_count(len(batches.names), channels.n)
        channels.check([values[index] for index in range(channels.n)])
        return Timed(ns, len(values), created_ns=created - start, note=shared(channels))

    async def commands(self, channels: Channels) -> Timed:
        line = f"import sys; from fodo import sync; print(float(sync.get({PREFIX!r} + sys.argv[1])))"
        return commands(channels, [sys.executable, "-s", "-c", line])

    def names(self, names: list[str]) -> list[str]:
        return [PREFIX + name for name in names]

    def connected(self, channels: Channels) -> list[str]:
        names = self.names(channels.names())
        self.context.connect(names)
        return names

    def fresh(self) -> sync.Context:
        """A context without channels, but with the circuit to the server of the last ``open``."""
        context = sync.Context(timeout=OPERATION_S_MAX)
        context.get(keeper(self.pv))
        return context

    def closed(self, context: sync.Context, timed: Timed) -> Timed:
        start = now_ns()
        context.close()
        return Timed(timed.ns, timed.n, close_ns=now_ns() - start, note=timed.note)


def shared(channels: Channels) -> str | None:
    return SHARED if channels.is_shared() else None


def version() -> str:
    try:
        return importlib.metadata.version("fodo")
    except importlib.metadata.PackageNotFoundError:
        return "of the workspace"


serve(Fodo, Hello("fodo-python", version(), f"Python {platform.python_version()}"))
