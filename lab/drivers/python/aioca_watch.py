"""aioca's ``camonitor`` under a load, with all updates; by default it keeps only the newest one."""

import aioca
from watch import Tallier, serve


class Aioca:
    """Callbacks run in the event loop."""

    def __init__(self) -> None:
        self.subscriptions: list[aioca.Subscription] = []

    async def watch(self, names: list[str], talliers: list[list[Tallier]]) -> None:
        await aioca.connect(names, timeout=None)
        for name, of_pv in zip(names, talliers):
            for tally in of_pv:
                shape = aioca.FORMAT_RAW if tally.is_raw else aioca.FORMAT_TIME
                callback = tally.append or updater(tally)
                subscription = aioca.camonitor(name, callback, format=shape, all_updates=True)
                self.subscriptions.append(subscription)

    def merged(self) -> int:
        return sum(subscription.dropped_callbacks for subscription in self.subscriptions)


def updater(tally: Tallier):  # noqa: ANN201
    def update(value: aioca.types.AugmentedValue) -> None:
        seconds, nanos = value.raw_stamp
        tally(value, seconds * 1_000_000_000 + nanos)

    return update


serve(Aioca)
