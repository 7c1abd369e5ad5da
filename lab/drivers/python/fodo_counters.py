"""Counters of the package ``fodo``: records of an IOC that Python sets one by one, served over both protocols."""

from counters import name_of, serve
from fodo.ioc import Ioc


class Fodo:
    """The IOC is configured by the environment."""

    def __init__(self, n_pvs: int) -> None:
        self.ioc = Ioc()
        self.records = [self.ioc.ai(name_of(pv), initial=0.0) for pv in range(n_pvs)]
        self.running = self.ioc.start()

    def set_all(self, value: float) -> None:
        for record in self.records:
            record.set(value)

    def counts(self) -> tuple[int, int]:
        counts = self.running.counts
        return counts.n_updates_sent, counts.n_updates_merged


serve(Fodo)
