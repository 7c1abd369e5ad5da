"""Counters of pythonSoftIOC: records that Python sets, served over both protocols."""

from counters import name_of, serve
from softioc import asyncio_dispatcher, builder, softioc


class Softioc:
    """The records are processed by EPICS, after ``set``, in threads of its own."""

    def __init__(self, n_pvs: int) -> None:
        dispatcher = asyncio_dispatcher.AsyncioDispatcher()
        self.records = [builder.aIn(name_of(pv), initial_value=0.0) for pv in range(n_pvs)]
        builder.LoadDatabase()
        softioc.iocInit(dispatcher)

    def set_all(self, value: float) -> None:
        for record in self.records:
            record.set(value)

    def counts(self) -> None:
        return None


serve(Softioc)
