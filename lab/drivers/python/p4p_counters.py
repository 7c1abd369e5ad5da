"""Counters of p4p: PVs of its server, without records."""

import time

from counters import name_of, serve
from p4p.nt import NTScalar
from p4p.server import Server, StaticProvider
from p4p.server.thread import SharedPV


class P4p:
    """Each value has a time stamp, from which latency is measured."""

    def __init__(self, n_pvs: int) -> None:
        self.provider = StaticProvider("load")
        self.pvs = [SharedPV(nt=NTScalar("d"), initial=0.0) for _ in range(n_pvs)]
        for index, pv in enumerate(self.pvs):
            self.provider.add(name_of(index), pv)
        self.server = Server(providers=[self.provider])

    def set_all(self, value: float) -> None:
        for pv in self.pvs:
            pv.post(value, timestamp=time.time())

    def counts(self) -> None:
        return None


serve(P4p)
