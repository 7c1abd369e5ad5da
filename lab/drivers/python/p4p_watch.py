"""p4p's ``Context.monitor`` under a load; its four threads call back, one for each subscription at a time."""

import asyncio
import math
import threading
import time

import numpy as np
from p4p import Value
from p4p.client.thread import Context, Subscription
from watch import FIRST_UPDATES_S_MAX, Tallier, is_counted_at_once, serve

#: By default 4 updates are queued before they are merged.
REQUEST = "field(value,timeStamp)record[queueSize=100]"
#: Subscriptions created at once. Of a thousand, QSRV2 leaves some without any update on a network of frames of 1500 bytes.
AT_ONCE = 100
#: Time without a first update after which a subscription is made again.
AGAIN_S = 2.0


def encoded(value: float | np.ndarray) -> float:
    """The value that encodes a number; an array encodes it by its ends, see ``lab/src/load/tally.rs``."""
    if not isinstance(value, np.ndarray):
        return value
    is_whole = value.size > 0 and value[-1] == value[0] + value.size
    return float(value[0]) if is_whole else math.nan


class P4p:
    """Callbacks run in p4p's threads; the tally of all of them is common."""

    def __init__(self) -> None:
        self.context = Context("pva", nt=False)
        self.subscriptions: list[Subscription] = []
        self.lock = threading.Lock()

    async def watch(self, names: list[str], talliers: list[list[Tallier]]) -> None:
        wanted = [(name, tally) for name, of_pv in zip(names, talliers) for tally in of_pv]
        if is_counted_at_once():
            self.subscriptions += [self.subscribed(name, tally) for name, tally in wanted]
            return
        deadline = time.monotonic() + FIRST_UPDATES_S_MAX
        for first in range(0, len(wanted), AT_ONCE):
            await self.subscribe(wanted[first : first + AT_ONCE], deadline)

    async def subscribe(self, wanted: list[tuple[str, Tallier]], deadline: float) -> None:
        """Subscribes, and again where p4p has lost the first update, as it does if that arrives very early."""
        missing = wanted
        while missing:
            made = [(name, tally, self.subscribed(name, tally)) for name, tally in missing]
            again = time.monotonic() + AGAIN_S
            while time.monotonic() < again and not all(tally.has_begun() for _, tally, _ in made):
                await asyncio.sleep(0.001)
            is_late = time.monotonic() > deadline
            missing = []
            for name, tally, subscription in made:
                if is_late or tally.has_begun():
                    self.subscriptions.append(subscription)
                else:
                    subscription.close()
                    missing.append((name, tally))

    def subscribed(self, name: str, tally: Tallier) -> Subscription:
        return self.context.monitor(name, self.updater(tally), request=REQUEST)

    def updater(self, tally: Tallier):  # noqa: ANN201
        append = tally.append
        if append is not None:
            return lambda value: append(value.value)

        def update(value: Value) -> None:
            stamp = value.timeStamp
            with self.lock:
                tally(encoded(value.value), stamp.secondsPastEpoch * 1_000_000_000 + stamp.nanoseconds)

        return update

    def merged(self) -> int:
        # p4p does not report what it or the server has merged.
        return 0


serve(P4p)
