"""caproto's threading client under a load; each monitor is a separate subscription on the wire."""

from typing import Any

from caproto.threading.client import Context
from watch import EPICS_EPOCH_S, FIRST_UPDATES_S_MAX, Tallier, serve


class Caproto:
    """Callbacks run in caproto's pool of one thread; it does not report merged updates."""

    def __init__(self) -> None:
        self.context = Context(timeout=FIRST_UPDATES_S_MAX)
        # caproto keeps only weak references to callbacks.
        self.kept: list[Any] = []

    async def watch(self, names: list[str], talliers: list[list[Tallier]]) -> None:
        pvs = self.context.get_pvs(*names)
        for pv in pvs:
            pv.wait_for_connection()
        for pv, of_pv in zip(pvs, talliers):
            for index, tally in enumerate(of_pv):
                # caproto merges equal subscriptions of a PV; a number that is not sent keeps them separate.
                subscription = pv.subscribe(data_type="native" if tally.is_raw else "time", to=float(index))
                update = updater(tally)
                subscription.add_callback(update)
                self.kept += [subscription, update]

    def merged(self) -> int:
        return 0


def updater(tally: Tallier):  # noqa: ANN201
    append = tally.append
    if append is not None:
        return lambda _subscription, response: append(response.data[0])

    def update(_subscription: Any, response: Any) -> None:
        stamp = response.metadata.stamp
        tally(response.data[0], (EPICS_EPOCH_S + stamp.secondsSinceEpoch) * 1_000_000_000 + stamp.nanoSeconds)

    return update


serve(Caproto)
