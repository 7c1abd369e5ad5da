"""Counters of the package ``fodo``: PVs of its server, without records."""

import time

from counters import name_of, serve
from fodo.pva import Server, SharedPV


class FodoShared:
    """The server is configured by the environment. Each value has a time stamp, from which latency is measured."""

    def __init__(self, n_pvs: int) -> None:
        self.pvs = [SharedPV(0.0) for _ in range(n_pvs)]
        self.server = Server({name_of(index): pv for index, pv in enumerate(self.pvs)})
        self.server.start()

    def set_all(self, value: float) -> None:
        for pv in self.pvs:
            pv.post(value, time=time.time())

    def counts(self) -> tuple[int, int]:
        counts = self.server.counts
        return counts.sent, counts.merged


serve(FodoShared)
