"""repics under a load, over either protocol, with all updates: ``repics_watch.py NUMBERS RECORDED ca|pva``.

Its one thread calls back, which takes less processor time than callbacks in an event loop.
"""

import math
import sys
from typing import Any

import numpy as np
from repics import Augmented
from repics.ca import camonitor
from repics.pva import Context, Value
from watch import Tallier, serve

#: By default 4 updates are queued before they are merged.
REQUEST = "field(value,timeStamp)record[queueSize=100]"


def encoded(value: Any) -> float:
    """The value that encodes a number; an array encodes it by its ends, see ``lab/src/load/tally.rs``."""
    if not isinstance(value, np.ndarray):
        return value
    is_whole = value.size > 0 and value[-1] == value[0] + value.size
    return float(value[0]) if is_whole else math.nan


class ChannelAccess:
    """Updates always have a time stamp: ``form`` selects only the events. Nor is it reported what the Rust part merges."""

    def __init__(self) -> None:
        self.subscriptions: list[Any] = []

    async def watch(self, names: list[str], talliers: list[list[Tallier]]) -> None:
        for name, of_pv in zip(names, talliers):
            for tally in of_pv:
                form = "plain" if tally.is_raw else "time"
                callback = tally.append or self.updater(tally)
                self.subscriptions.append(camonitor(name, callback, form, all_updates=True))

    def updater(self, tally: Tallier):  # noqa: ANN201
        def update(value: Augmented) -> None:
            seconds, nanos = value.raw_stamp
            tally(encoded(value), seconds * 1_000_000_000 + nanos)

        return update

    def merged(self) -> int:
        return sum(subscription.dropped_callbacks for subscription in self.subscriptions)


class PvAccess:
    """The queue of a subscription merges without a report."""

    def __init__(self) -> None:
        self.context = Context(nt=False)
        self.subscriptions: list[Any] = []

    async def watch(self, names: list[str], talliers: list[list[Tallier]]) -> None:
        for name, of_pv in zip(names, talliers):
            for tally in of_pv:
                self.subscriptions.append(self.context.monitor(name, self.updater(tally), REQUEST))

    def updater(self, tally: Tallier):  # noqa: ANN201
        append = tally.append
        if append is not None:
            return lambda value: append(value["value"])

        def update(value: Value) -> None:
            seconds, nanos = value["timeStamp.secondsPastEpoch"], value["timeStamp.nanoseconds"]
            tally(encoded(value["value"]), seconds * 1_000_000_000 + nanos)

        return update

    def merged(self) -> int:
        return 0


serve(PvAccess if sys.argv[3:] == ["pva"] else ChannelAccess)
