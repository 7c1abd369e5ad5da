"""pyepics under a load, through ``epics.ca.create_subscription``: callbacks run in libca's thread."""

import os
import threading
from typing import Any

import epicscorelibs.path

# The same libca as all other clients; the one bundled with pyepics is older.
os.environ["PYEPICS_LIBCA"] = epicscorelibs.path.get_lib("ca")

from epics import ca, dbr  # noqa: E402
from watch import FIRST_UPDATES_S_MAX, Tallier, serve  # noqa: E402


class Pyepics:
    """Merges no updates itself, and does not report lost ones."""

    def __init__(self) -> None:
        ca.initialize_libca()
        self.kept: list[Any] = []

    async def watch(self, names: list[str], talliers: list[list[Tallier]]) -> None:
        connected = threading.Semaphore(0)

        def on_connection(conn: bool = False, **_about: Any) -> None:
            if conn:
                connected.release()

        chids = [ca.create_channel(name, callback=on_connection) for name in names]
        ca.flush_io()
        for name in names:
            if not connected.acquire(timeout=FIRST_UPDATES_S_MAX):
                raise TimeoutError(f"not all channels connected, perhaps not {name}")
        for chid, of_pv in zip(chids, talliers):
            for tally in of_pv:
                update = updater(tally)
                form = dbr.DOUBLE if tally.is_raw else dbr.TIME_DOUBLE
                self.kept += [update, ca.create_subscription(chid, ftype=form, callback=update)]
        ca.flush_io()

    def merged(self) -> int:
        return 0


def updater(tally: Tallier):  # noqa: ANN201
    append = tally.append
    if append is not None:
        return lambda value=None, **_about: append(value)

    def update(value: Any = None, timestamp: float = 0.0, **_about: Any) -> None:
        tally(value, int(timestamp * 1e9))

    return update


serve(Pyepics)
