"""p4p's threading client; many PVs by its calls for lists. It opens an operation for each get and put."""

import sys
import threading
from typing import Any

import numpy as np
from p4p.client.thread import Context, Subscription
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

READING = "field(value,alarm,timeStamp)"
SHARED = "one channel, which p4p shares per name"
#: The laboratory's waveform has this many elements; pvAccess does not report it.
ELEMENTS_MAX = 10_000_000


class P4p:
    """A fresh context for each question about connecting, because a context keeps its channels; one for all others."""

    def __init__(self) -> None:
        self.context = Context("pva", nt=False)
        self.pv = ""

    async def open(self, pv: str, n_channels: int) -> tuple[int, int]:
        require_one_channel(n_channels, "p4p")
        self.context.get(pv, request="field(alarm)", timeout=OPERATION_S_MAX)
        self.pv = pv
        return n_channels, ELEMENTS_MAX

    async def get_scalar(self, _index: int) -> tuple[float, int]:
        value = self.context.get(self.pv, request=READING, timeout=OPERATION_S_MAX)
        return value.value, value.timeStamp.secondsPastEpoch

    async def put_array(self, elements: np.ndarray) -> None:
        self.context.put(self.pv, elements, wait=True, get=False, timeout=OPERATION_S_MAX)

    async def get_array(self, _n_elements: int) -> np.ndarray:
        return self.context.get(self.pv, request=READING, timeout=OPERATION_S_MAX).value

    async def create_contexts(self, n: int, pv: str) -> Timed:
        start = now_ns()
        contexts = [Context("pva") for _index in range(n)]
        ns = now_ns() - start
        for context in contexts[:1] + contexts[-1:]:
            context.get(pv, timeout=OPERATION_S_MAX)
        start = now_ns()
        for context in contexts:
            context.close()
        return Timed(ns, len(set(map(id, contexts))), close_ns=now_ns() - start)

    async def context_close(self, pv: str, how: str) -> bool:
        if how == "explicit":
            context = Context("pva")
            context.get(pv, timeout=OPERATION_S_MAX)
            context.close()
        else:
            with Context("pva") as context:
                context.get(pv, timeout=OPERATION_S_MAX)
        try:
            context.get(pv, timeout=1.0)
        except Exception:  # Any error shows that it is closed.
            return True
        return False

    async def create_channels(self, _channels: Channels) -> Timed:
        raise unable("creating channels", "p4p creates a channel with its first operation")

    async def connect_one_by_one(self, channels: Channels) -> Timed:
        names = channels.distinct_only("p4p")
        context = self.fresh()
        start = now_ns()
        for name in names:
            context.get(name, request="field(value)", timeout=OPERATION_S_MAX)
        return self.connected(context, now_ns() - start, len(names))

    async def connect_at_once(self, channels: Channels) -> Timed:
        names = channels.distinct_only("p4p")
        context = self.fresh()
        start = now_ns()
        values = context.get(names, request=["field(value)"] * len(names), timeout=OPERATION_S_MAX)
        return self.connected(context, now_ns() - start, len(values))

    async def get_at_once(self, channels: Channels) -> Timed:
        return self.time_gets(channels, [READING] * channels.n)

    async def get_whole_at_once(self, channels: Channels) -> Timed:
        return self.time_gets(channels, None)

    async def put_at_once(self, channels: Channels) -> Timed:
        names = channels.names()
        numbers = [float(number) for number in channels.numbers()]
        self.put(names, numbers)
        start = now_ns()
        self.put(names, [number + 0.5 for number in numbers])
        ns = now_ns() - start
        values = self.context.get(names, timeout=OPERATION_S_MAX)
        self.put(names, numbers)
        channels.check([value.value - 0.5 for value in values])
        return Timed(ns, len(values), note=shared(channels))

    async def monitor_at_once(self, channels: Channels) -> Timed:
        names = channels.names()
        self.context.get(names, timeout=OPERATION_S_MAX)
        values: dict[int, float] = {}
        are_all_there = threading.Event()

        def updater(index: int) -> Any:
            def update(value: Any) -> None:
                values.setdefault(index, value.value)
                if len(values) == channels.n:
                    are_all_there.set()

            return update

        updaters = [updater(index) for index in range(channels.n)]
        start = now_ns()
        subscriptions: list[Subscription] = [
            self.context.monitor(name, update, request=READING) for name, update in zip(names, updaters)
        ]
        created = now_ns()
        if not are_all_there.wait(OPERATION_S_MAX):
            raise unable("the first updates", f"{channels.n - len(values)} are missing")
        ns = now_ns() - start
        n_distinct = len(set(map(id, subscriptions)))
        for subscription in subscriptions:
            subscription.close()
        require_count(n_distinct, channels.n)
        channels.check([values[index] for index in range(channels.n)])
        return Timed(ns, len(values), created_ns=created - start, note=shared(channels))

    async def commands(self, channels: Channels) -> Timed:
        # The command of p4p prints the time stamp before the value.
        line = "import sys; from p4p.client.thread import Context; print(float(Context('pva').get(sys.argv[1])))"
        return commands(channels, [sys.executable, "-s", "-c", line])

    def fresh(self) -> Context:
        """A context without channels, but with the circuit to the server of the last ``open``."""
        context = Context("pva", nt=False)
        context.get(keeper(self.pv), timeout=OPERATION_S_MAX)
        return context

    def connected(self, context: Context, ns: int, n: int) -> Timed:
        start = now_ns()
        context.close()
        return Timed(ns, n, close_ns=now_ns() - start, note="p4p connects a channel with its first get")

    def time_gets(self, channels: Channels, requests: list[str] | None) -> Timed:
        names = channels.names()
        self.context.get(names, request=requests, timeout=OPERATION_S_MAX)
        start = now_ns()
        values = self.context.get(names, request=requests, timeout=OPERATION_S_MAX)
        ns = now_ns() - start
        channels.check([value.value for value in values])
        return Timed(ns, len(values), note=shared(channels))

    def put(self, names: list[str], values: list[float]) -> None:
        self.context.put(names, values, wait=True, get=False, timeout=OPERATION_S_MAX)


def shared(channels: Channels) -> str | None:
    return SHARED if channels.is_shared() else None


serve(P4p, hello("p4p"))
