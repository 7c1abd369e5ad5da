"""pyepics through ``epics.ca``, its lower level, which is faster according to its documentation."""

import os
import sys
import threading
from typing import Any

import epicscorelibs.path
import epicscorelibs.version
import numpy as np

# The same libca as all other clients; the one bundled with pyepics is older.
os.environ["PYEPICS_LIBCA"] = epicscorelibs.path.get_lib("ca")

from epics import ca, dbr  # noqa: E402
from protocol import (  # noqa: E402
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

SHARED = "one channel, which pyepics shares per name"


class Pyepics:
    """Uses the context that pyepics creates for the thread that loads it."""

    def __init__(self) -> None:
        ca.initialize_libca()
        self.chids: dict[str, Any] = {}
        self.chid: Any = None
        self.kept: list[Any] = []

    async def open(self, pv: str, n_channels: int) -> tuple[int, int]:
        require_one_channel(n_channels, "pyepics")
        self.close_all()
        for chid in self.kept:
            ca.clear_channel(chid)
        self.kept = self.connect([keeper(pv)])
        self.chids.clear()
        (self.chid,) = self.connect([pv])
        return n_channels, ca.element_count(self.chid)

    async def get_scalar(self, _index: int) -> tuple[float, float]:
        reading = ca.get_with_metadata(self.chid, ftype=dbr.TIME_DOUBLE, timeout=OPERATION_S_MAX)
        return reading["value"], reading["timestamp"]

    async def put_array(self, elements: np.ndarray) -> None:
        done = ca.put(self.chid, elements, wait=True, timeout=OPERATION_S_MAX)
        if done != 1:
            raise unable("put", f"ca.put returned {done}")

    async def get_array(self, n_elements: int) -> np.ndarray:
        return ca.get(self.chid, count=n_elements, timeout=OPERATION_S_MAX)

    async def create_contexts(self, n: int, pv: str) -> Timed:
        home = ca.current_context()
        ca.detach_context()
        contexts = []
        start = now_ns()
        for _index in range(n):
            ca.create_context()
            contexts.append(ca.current_context())
            ca.detach_context()
        ns = now_ns() - start
        for context in contexts[:1] + contexts[-1:]:
            ca.attach_context(context)
            require_connected(pv)
            ca.detach_context()
        start = now_ns()
        for context in contexts:
            ca.attach_context(context)
            ca.destroy_context()
        close_ns = now_ns() - start
        ca.attach_context(home)
        return Timed(ns, len({context for context in contexts if context}), close_ns=close_ns)

    async def context_close(self, pv: str, how: str) -> bool:
        if how != "explicit":
            raise unable("closing a context by its scope", "pyepics has no context object with a scope")
        home = ca.current_context()
        ca.detach_context()
        ca.create_context()
        try:
            require_connected(pv)
            entry = ca.get_cache(pv)
        finally:
            # The context's channels end with it, so libca must not be asked about them any more; pyepics' own cache is.
            ca.destroy_context()
            ca.attach_context(home)
        return not entry.conn

    async def create_channels(self, channels: Channels) -> Timed:
        names = channels.distinct_only("pyepics")
        self.close_all()
        start = now_ns()
        chids = [ca.create_channel(name) for name in names]
        ca.flush_io()
        ns = now_ns() - start
        n = len({chid.value for chid in chids})
        self.keep(names, chids)
        return Timed(ns, n, close_ns=self.close_all())

    async def connect_one_by_one(self, channels: Channels) -> Timed:
        names = channels.distinct_only("pyepics")
        self.close_all()
        chids = []
        start = now_ns()
        for name in names:
            countdown = Countdown(1)
            chids.append(ca.create_channel(name, callback=countdown.connected))
            ca.flush_io()
            countdown.wait("connecting")
        ns = now_ns() - start
        n = sum(map(ca.isConnected, chids))
        self.keep(names, chids)
        return Timed(ns, n, close_ns=self.close_all())

    async def connect_at_once(self, channels: Channels) -> Timed:
        names = channels.distinct_only("pyepics")
        self.close_all()
        countdown = Countdown(channels.n)
        start = now_ns()
        chids = [ca.create_channel(name, callback=countdown.connected) for name in names]
        ca.flush_io()
        created = now_ns()
        countdown.wait("connecting")
        ns = now_ns() - start
        n = sum(map(ca.isConnected, chids))
        self.keep(names, chids)
        return Timed(ns, n, created_ns=created - start, close_ns=self.close_all())

    async def get_at_once(self, channels: Channels) -> Timed:
        if channels.is_shared():
            raise unable("concurrent gets of one PV", "pyepics merges a get with the one in flight on its channel")
        self.close_all()
        chids = self.connect(channels.names())
        start = now_ns()
        for chid in chids:
            ca.get_with_metadata(chid, ftype=dbr.TIME_DOUBLE, wait=False)
        ca.flush_io()
        readings = [
            ca.get_complete_with_metadata(chid, ftype=dbr.TIME_DOUBLE, timeout=OPERATION_S_MAX) for chid in chids
        ]
        ns = now_ns() - start
        channels.check([reading["value"] for reading in readings])
        return Timed(ns, len(readings), close_ns=self.close_all())

    async def put_at_once(self, channels: Channels) -> Timed:
        if channels.is_shared():
            raise unable("concurrent puts to one PV", "pyepics completes puts by channel, and has one channel per name")
        self.close_all()
        chids = self.connect(channels.names())
        countdown = Countdown(channels.n)
        start = now_ns()
        for index, chid in enumerate(chids):
            ca.put(chid, index + 0.5, callback=countdown.done)
        ca.flush_io()
        countdown.wait("put")
        ns = now_ns() - start
        values = [ca.get(chid, timeout=OPERATION_S_MAX) for chid in chids]
        for index, chid in enumerate(chids):
            ca.put(chid, float(index), wait=True, timeout=OPERATION_S_MAX)
        channels.check([value - 0.5 for value in values])
        return Timed(ns, len(values), close_ns=self.close_all())

    async def monitor_at_once(self, channels: Channels) -> Timed:
        self.close_all()
        chids = self.connect(channels.names())
        values: dict[int, float] = {}
        countdown = Countdown(channels.n)

        def updater(index: int) -> Any:
            def update(value: Any = None, **_about: Any) -> None:
                if index not in values:
                    values[index] = value
                    countdown.one()

            return update

        updaters = [updater(index) for index in range(channels.n)]
        start = now_ns()
        subscriptions = [ca.create_subscription(chid, callback=update) for chid, update in zip(chids, updaters)]
        ca.flush_io()
        created = now_ns()
        countdown.wait("the first updates")
        ns = now_ns() - start
        n_distinct = len({subscription[2].value for subscription in subscriptions})
        for subscription in subscriptions:
            ca.clear_subscription(subscription[2])
        close_ns = self.close_all()
        require_count(n_distinct, channels.n)
        channels.check([values[index] for index in range(channels.n)])
        note = SHARED if channels.is_shared() else None
        return Timed(ns, len(values), created_ns=created - start, close_ns=close_ns, note=note)

    def connect(self, names: list[str]) -> list[Any]:
        distinct = list(dict.fromkeys(names))
        countdown = Countdown(len(distinct))
        chids = {name: ca.create_channel(name, callback=countdown.connected) for name in distinct}
        ca.flush_io()
        countdown.wait("connecting")
        self.chids.update(chids)
        return [chids[name] for name in names]

    def keep(self, names: list[str], chids: list[Any]) -> None:
        self.chids.update(zip(names, chids))

    async def commands(self, channels: Channels) -> Timed:
        # pyepics has no command.
        line = "import sys, epics; print(epics.caget(sys.argv[1]))"
        return commands(channels, [sys.executable, "-s", "-c", line])

    def close_all(self) -> int:
        start = now_ns()
        for chid in self.chids.values():
            ca.clear_channel(chid)
        ca.flush_io()
        self.chids.clear()
        return now_ns() - start


def require_connected(pv: str) -> None:
    if not ca.connect_channel(ca.create_channel(pv), timeout=OPERATION_S_MAX):
        raise unable("connecting", f"{pv} did not connect")


class Countdown:
    """Waits for ``n`` callbacks of libca's single thread; one wake-up is cheaper than ``ca.poll``."""

    def __init__(self, n: int) -> None:
        self.n_left = n
        self.are_all_there = threading.Event()
        if n == 0:
            self.are_all_there.set()

    def one(self) -> None:
        self.n_left -= 1
        if self.n_left == 0:
            self.are_all_there.set()

    def connected(self, conn: bool = False, **_about: Any) -> None:
        if conn:
            self.one()

    def done(self, **_about: Any) -> None:
        self.one()

    def wait(self, what: str) -> None:
        if not self.are_all_there.wait(OPERATION_S_MAX):
            raise unable(what, f"{self.n_left} are missing")


serve(Pyepics, hello("pyepics", f"libca {epicscorelibs.version.version}"))
