"""The watching end of a load for clients in Python; ``lab/src/load/worker.rs`` lists the requests.

A watcher is a class with a coroutine ``watch`` that subscribes to PVs, and a method ``merged`` that returns how
many updates the client itself has merged so far. This module counts each update, on the thread on which the
client calls back.

The second argument, before the protocol, says what is recorded of an update. ``every``: its number and latency are counted at once.
``raw`` and ``time``: its value is stored, which costs a fraction of that, and counted later; one subscription of a
hundred also counts latencies. With ``raw`` only that one requests time stamps from the server.
"""

import asyncio
import json
import os
import sys
import time
from array import array
from collections.abc import Callable
from typing import Any, Protocol

READY = "load worker ready"
FIRST_UPDATES_S_MAX = 30.0
LATENCY_NS_MAX = 60_000_000_000
#: Seconds from the POSIX epoch to the EPICS epoch.
EPICS_EPOCH_S = 631_152_000

#: Of so many subscriptions one measures latency, if values are stored.
PROBE_EVERY = 100

Decoder = Callable[[int, float], int | None]


class Tallier(Protocol):
    """Where a watcher reports the updates of one subscription."""

    #: If not ``None``, it takes values and no time stamps are needed: the cheapest callback.
    append: Callable[[float], None] | None
    #: Whether the subscription requests values without time stamps.
    is_raw: bool

    def __call__(self, value: float, stamp_unix_ns: int, /) -> None:
        """Takes an update on arrival, with its time stamp."""

    def has_begun(self) -> bool:
        """Whether an update was received."""


def checked(pv: int, value: float) -> int | None:
    """The number that a value encodes with eight check bits; ``None`` for a value that its PV never had."""
    number = plain(pv, value)
    if number is None:
        return None
    number, check = divmod(number, 256)
    mixed = (((pv << 32) ^ number) * 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
    return number if mixed >> 56 == check else None


def plain(_pv: int, value: float) -> int | None:
    """The number of a value that is the number itself."""
    return int(value) if 0.0 <= value < 9e15 and value == int(value) else None


class Tally:
    """The tally of one subscription, like ``lab/src/load/tally.rs``."""

    __slots__ = ("decode", "duplicates", "gap_ns_max", "last", "last_ns", "latencies", "missing", "out_of_order")
    __slots__ += ("pv", "received", "wrong")
    append = None
    is_raw = False

    def __init__(self, pv: int, decode: Decoder, latencies: dict[int, int]) -> None:
        self.pv = pv
        self.decode = decode
        self.latencies = latencies
        self.last: int | None = None
        self.restart()

    def restart(self) -> None:
        self.received = self.missing = self.duplicates = self.out_of_order = self.wrong = self.gap_ns_max = 0
        self.last_ns: int | None = None

    def has_begun(self) -> bool:
        return self.last is not None

    def count(self) -> None:
        """Does nothing: each update was counted on arrival."""

    def add(self, value: float, stamp_unix_ns: int) -> None:
        latency_ns = min(max(time.time_ns() - stamp_unix_ns, 1), LATENCY_NS_MAX)
        now_ns = time.perf_counter_ns()
        if self.last_ns is not None and now_ns - self.last_ns > self.gap_ns_max:
            self.gap_ns_max = now_ns - self.last_ns
        self.last_ns = now_ns
        number = self.decode(self.pv, value)
        last = self.last
        if last is None:
            # The first update is the value before the load; it only sets where counting starts.
            self.wrong += number is None
            self.last = number
            return
        self.received += 1
        # Upper bounds of buckets: 128 per power of two.
        shift = max(latency_ns.bit_length() - 8, 0)
        bound = (((latency_ns >> shift) + 1) << shift) - 1
        self.latencies[bound] = self.latencies.get(bound, 0) + 1
        if number is None:
            self.wrong += 1
        elif number == last:
            self.duplicates += 1
        elif number < last:
            self.out_of_order += 1
        else:
            self.missing += number - last - 1
            self.last = number

    __call__ = add


class Record:
    """The values of one subscription, stored on arrival and counted later as by ``Tally``."""

    __slots__ = ("append", "duplicates", "is_raw", "last", "missing", "out_of_order", "received", "values", "wrong")
    gap_ns_max = 0

    def __init__(self, is_raw: bool) -> None:
        self.is_raw = is_raw
        self.values = array("d")
        self.append = self.values.append
        self.last = -1
        self.restart()

    def restart(self) -> None:
        if self.values:
            self.count()
        self.received = self.missing = self.duplicates = self.out_of_order = self.wrong = 0

    def has_begun(self) -> bool:
        return self.last >= 0 or len(self.values) > 0

    def __call__(self, value: float, _stamp_unix_ns: int) -> None:
        self.append(value)

    def count(self) -> None:
        """Counts the stored values and removes them; more may be appended meanwhile."""
        values = self.values[:]
        del self.values[: len(values)]
        last = self.last
        for value in values:
            number = plain(0, value)
            if last < 0:
                # The first update is the value before the load; it only sets where counting starts.
                self.wrong += number is None
                last = -1 if number is None else number
                continue
            self.received += 1
            if number is None:
                self.wrong += 1
            elif number == last + 1:
                last = number
            elif number == last:
                self.duplicates += 1
            elif number < last:
                self.out_of_order += 1
            else:
                self.missing += number - last - 1
                last = number
        self.last = last


def recorded() -> str:
    return sys.argv[2] if len(sys.argv) > 2 else "every"


def is_counted_at_once() -> bool:
    """Whether each update is counted on arrival; otherwise the load is of study 002."""
    return recorded() == "every"


class Watcher(Protocol):
    """A client that subscribes."""

    async def watch(self, names: list[str], talliers: list[list[Tallier]]) -> None:
        """Subscribes to each name once for each of its talliers, which receive values with time stamps."""

    def merged(self) -> int:
        """Updates that the client has replaced by later ones; 0 for a client that does not report them."""


class Load:
    """Answers the requests of one load."""

    def __init__(self, watcher: Watcher, decode: Decoder) -> None:
        self.watcher = watcher
        self.decode = decode
        self.recorded = recorded()
        self.latencies: dict[int, int] = {}
        self.tallies: list[Tally | Record] = []
        self.merged_before = 0

    async def answer(self, line: str) -> dict[str, Any]:
        ((verb, request),) = json.loads(line).items()
        if verb == "watch":
            return await self.watch(**request)
        if verb == "restart":
            self.restart()
            return {"restarted": {}}
        if verb == "count":
            return {"tallied": self.tallied()}
        return {"failed": {"why": f"this watcher does not support {verb}"}}

    async def watch(self, n_pvs: int, n_subscriptions: int) -> dict[str, Any]:
        self.tallies = [self.tally(index, n_subscriptions) for index in range(n_pvs * n_subscriptions)]
        by_pv = [self.tallies[first : first + n_subscriptions] for first in range(0, len(self.tallies), max(n_subscriptions, 1))]
        await self.watcher.watch([f"load:{pv:06}" for pv in range(n_pvs)], by_pv)
        deadline = time.monotonic() + FIRST_UPDATES_S_MAX
        for tally in self.tallies:
            while not tally.has_begun():
                if time.monotonic() > deadline:
                    n_begun = sum(tally.has_begun() for tally in self.tallies)
                    return {"failed": {"why": f"{n_begun} of {len(self.tallies)} first updates were received"}}
                await asyncio.sleep(0.01)
        return {"watching": {"n_subscriptions": len(self.tallies)}}

    def tally(self, index: int, n_subscriptions: int) -> Tally | Record:
        if self.recorded == "every" or index % PROBE_EVERY == 0:
            return Tally(index // n_subscriptions, self.decode, self.latencies)
        return Record(self.recorded == "raw")

    def restart(self) -> None:
        self.latencies.clear()
        for tally in self.tallies:
            tally.restart()
        self.merged_before = self.watcher.merged()

    def tallied(self) -> dict[str, Any]:
        for tally in self.tallies:
            tally.count()
        names = ("received", "missing", "duplicates", "out_of_order", "wrong")
        sums: dict[str, float] = {name: sum(getattr(tally, name) for tally in self.tallies) for name in names}
        sums["longest_gap_ms"] = max((tally.gap_ns_max for tally in self.tallies), default=0) / 1e6
        merged = self.watcher.merged() - self.merged_before
        latencies = sorted(self.latencies.copy().items())
        return {"sums": sums, "merged": merged, "received": sums["received"] + merged, "latencies": latencies}


async def converse(watcher_class: type, load_class: type[Load], decode: Decoder) -> None:
    output = sys.stdout
    # Prints of a library are not answers.
    sys.stdout = sys.stderr
    load = load_class(watcher_class(), decode)
    print(READY, file=output, flush=True)
    loop = asyncio.get_running_loop()
    # Updates arrive meanwhile, some of them in this loop.
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        try:
            content = await load.answer(line)
        except Exception as error:  # Any error is the answer.
            content = {"failed": {"why": f"{type(error).__name__}: {error}"}}
        print(json.dumps(content), file=output, flush=True)


def serve(watcher_class: type, load_class: type[Load] = Load) -> None:
    """Answers requests until the end of the input, then exits without waiting for threads."""
    decode = {"checked": checked, "plain": plain}[sys.argv[1]]
    asyncio.run(converse(watcher_class, load_class, decode))
    os._exit(0)
