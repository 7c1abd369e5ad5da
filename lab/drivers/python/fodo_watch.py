"""The package ``fodo`` under a load: ``fodo_watch.py NUMBERS RECORDED [callbacks|batches] [ca|pva]``.

``callbacks`` counts each update in a callback of a monitor, ``batches`` counts the rows of ``batches()`` with numpy.
"""

import asyncio
import math
import sys
import time
from typing import Any

import fodo
import numpy as np
import watch
from fodo import aio
from watch import LATENCY_NS_MAX, Load, Tallier, Tally, serve

#: The upper limit of ``bit_length() - 8`` of a latency, and the buckets for each.
SHIFT_MAX = LATENCY_NS_MAX.bit_length() - 8
BUCKETS = 256

PREFIX = f"{sys.argv[4]}://" if len(sys.argv) > 4 else "ca://"


def encoded(value: Any) -> float:
    """The value that encodes a number; an array encodes it by its ends, see ``lab/src/load/tally.rs``."""
    if not isinstance(value, fodo.Array):
        return value
    return float(value[0]) if len(value) > 0 and value[-1] == value[0] + len(value) else math.nan


class Callbacks:
    """Callbacks run in the event loop."""

    def __init__(self) -> None:
        self.context = aio.Context()
        self.monitors: list[aio.Monitor] = []

    async def watch(self, names: list[str], talliers: list[list[Tallier]]) -> None:
        for name, of_pv in zip(names, talliers):
            for tally in of_pv:
                self.monitors.append(self.context.monitor(PREFIX + name, tally.append or updater(tally)))

    def merged(self) -> int:
        return sum(monitor.counts.merged for monitor in self.monitors)


def updater(tally: Tallier):  # noqa: ANN201
    def update(value: Any) -> None:
        # A value that was never set has no time stamp.
        tally(encoded(value), value.timestamp_ns or 0)

    return update


class RowTally:
    """The tallies of all subscriptions, of which whole batches are counted at once."""

    def __init__(self, n: int, n_subscriptions: int, checks: bool) -> None:
        self.pvs = np.arange(n, dtype=np.uint64) // np.uint64(n_subscriptions)
        self.checks = checks
        #: Of each subscription; -1 before the first update.
        self.last = np.full(n, -1, dtype=np.int64)
        self.restart()

    def restart(self) -> None:
        self.sums = dict.fromkeys(("received", "missing", "duplicates", "out_of_order", "wrong"), 0)
        self.gap_ns_max = 0
        self.last_ns = np.zeros(len(self.last), dtype=np.int64)
        self.buckets = np.zeros((SHIFT_MAX + 1) * BUCKETS, dtype=np.int64)

    def decoded(self, index: np.ndarray, value: np.ndarray) -> np.ndarray:
        """The numbers that the values encode; -1 for a value that its PV never had."""
        with np.errstate(invalid="ignore"):
            is_number = (value >= 0.0) & (value < 9e15)
            number = np.where(is_number, value, 0.0).astype(np.int64)
        is_number &= number == value
        if self.checks:
            check, number = number & 255, number >> 8
            mixed = ((self.pvs[index] << np.uint64(32)) ^ number.astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
            is_number &= (mixed >> np.uint64(56)).astype(np.int64) == check
        return np.where(is_number, number, -1)

    def add(self, batch: aio.Batch) -> None:
        now_ns, unix_ns = time.perf_counter_ns(), time.time_ns()
        index, numbers = batch.index, self.decoded(batch.index, batch.value)
        # The rows of each subscription beside each other, in their order. Small keys are sorted fastest.
        order = np.argsort(index.astype(np.uint16) if len(self.last) <= 65536 else index, kind="stable")
        index, numbers = index[order], numbers[order]
        begins = np.empty(len(index), dtype=bool)
        begins[:1] = True
        np.not_equal(index[1:], index[:-1], out=begins[1:])
        before = np.empty_like(numbers)
        before[1:] = numbers[:-1]
        before[begins] = self.last[index[begins]]
        is_first = begins & (before < 0)
        is_next = (before >= 0) & (numbers > before)
        n_first = int(np.count_nonzero(is_first))
        if n_first + np.count_nonzero(is_next) == len(index) and not (is_first & (numbers < 0)).any():
            ends = np.append(begins[1:], True)
            self.last[index[ends]] = numbers[ends]
            self.sums["received"] += len(index) - n_first
            self.sums["missing"] += int((numbers - before - 1)[is_next].sum())
        else:
            for pv, number in zip(index.tolist(), numbers.tolist()):
                self.add_one(pv, number)
        self.add_times(index[begins], now_ns, unix_ns - batch.seconds * 1_000_000_000 - batch.nanoseconds, is_first, order)

    def add_one(self, subscription: int, number: int) -> None:
        """The same for one row, as ``watch.Tally`` counts it."""
        last = int(self.last[subscription])
        self.sums["wrong"] += number < 0
        if last < 0:
            self.last[subscription] = number
            return
        self.sums["received"] += 1
        if number < 0:
            return
        if number == last:
            self.sums["duplicates"] += 1
        elif number < last:
            self.sums["out_of_order"] += 1
        else:
            self.sums["missing"] += number - last - 1
            self.last[subscription] = number

    def add_times(
        self, subscriptions: np.ndarray, now_ns: int, latency_ns: np.ndarray, is_first: np.ndarray, order: np.ndarray
    ) -> None:
        last_ns = self.last_ns[subscriptions]
        gaps = (now_ns - last_ns)[last_ns > 0]
        self.gap_ns_max = max(self.gap_ns_max, int(gaps.max(initial=0)))
        self.last_ns[subscriptions] = now_ns
        latency_ns = np.clip(latency_ns[order][~is_first], 1, LATENCY_NS_MAX)
        shift = np.maximum(np.frexp(latency_ns.astype(np.float64))[1].astype(np.int64) - 8, 0)
        self.buckets += np.bincount(shift * BUCKETS + (latency_ns >> shift), minlength=len(self.buckets))[: len(self.buckets)]

    def latencies(self) -> dict[int, int]:
        """The counts by the upper bounds of the buckets."""
        filled = np.flatnonzero(self.buckets)
        shift, mantissa = filled // BUCKETS, filled % BUCKETS
        return dict(zip((((mantissa + 1) << shift) - 1).tolist(), self.buckets[filled].tolist()))


class Batches:
    """A task of the event loop takes the batches."""

    def __init__(self) -> None:
        self.context = aio.Context()
        self.batches: aio.Batches | None = None
        self.tally = RowTally(0, 1, False)

    async def watch(self, names: list[str], talliers: list[list[Tallier]]) -> None:
        n_subscriptions = len(talliers[0])
        self.tally = RowTally(len(names) * n_subscriptions, n_subscriptions, sys.argv[1] == "checked")
        self.batches = self.context.batches([PREFIX + name for name in names for _ in range(n_subscriptions)])
        self.task = asyncio.create_task(self.count())

    async def count(self) -> None:
        async for batch in self.batches:
            self.tally.add(batch)

    def merged(self) -> int:
        return 0 if self.batches is None else self.batches.counts.merged


class BatchLoad(Load):
    """The requests of a load that is counted by batches."""

    watcher: Batches

    async def watch(self, n_pvs: int, n_subscriptions: int) -> dict[str, Any]:
        names = [f"load:{pv:06}" for pv in range(n_pvs)]
        no_tally = Tally(0, self.decode, self.latencies).add
        await self.watcher.watch(names, [[no_tally] * n_subscriptions] * n_pvs)
        tally, deadline = self.watcher.tally, time.monotonic() + watch.FIRST_UPDATES_S_MAX
        while n_missing := int(np.count_nonzero(tally.last < 0)):
            if time.monotonic() > deadline:
                return {"failed": {"why": f"{len(tally.last) - n_missing} of {len(tally.last)} first updates were received"}}
            await asyncio.sleep(0.01)
        return {"watching": {"n_subscriptions": len(tally.last)}}

    def restart(self) -> None:
        self.watcher.tally.restart()
        self.merged_before = self.watcher.merged()

    def tallied(self) -> dict[str, Any]:
        tally = self.watcher.tally
        sums = {**tally.sums, "longest_gap_ms": tally.gap_ns_max / 1e6}
        merged = self.watcher.merged() - self.merged_before
        latencies = sorted(tally.latencies().items())
        return {"sums": sums, "merged": merged, "received": sums["received"] + merged, "latencies": latencies}


if len(sys.argv) > 3 and sys.argv[3] == "batches":
    serve(Batches, BatchLoad)
else:
    serve(Callbacks)
