"""The changing end of a load for servers in Python; ``lab/src/load/worker.rs`` lists the requests.

A server is a class that takes the number of PVs and serves them as ``load:000000`` and so on, all with the value 0. Its
method ``set_all`` gives all of them one value, its method ``counts`` returns how many updates the server has sent and how
many it has merged, or ``None`` if it does not report them.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any, Protocol

READY = "load worker ready"


class Server(Protocol):
    """A server of counters."""

    def set_all(self, value: float) -> None:
        """Sets all PVs, one after the other."""

    def counts(self) -> tuple[int, int] | None:
        """Updates sent and merged so far."""


class Counters:
    """Answers the requests of one load."""

    def __init__(self, server: Server, n_pvs: int) -> None:
        self.server = server
        self.n_pvs = n_pvs
        #: The current number of all PVs.
        self.number = 0

    def answer(self, line: str) -> dict[str, Any]:
        ((verb, request),) = json.loads(line).items()
        if verb == "produce":
            late_max_ns = self.produce(request["period_ns"], request["n_rounds"])
            return {"produced": {"n_posts": request["n_rounds"] * self.n_pvs, "late_max_ns": late_max_ns}}
        if verb == "count":
            sent, merged = self.server.counts() or (0, 0)
            return {"counts": {"sent": sent, "merged": merged}}
        return {"failed": {"why": f"this server does not support {verb}"}}

    def produce(self, period_ns: int, n_rounds: int) -> int:
        """Sets all PVs to the next number every period; returns the longest delay after the schedule."""
        late_max_ns = 0
        start_ns = time.monotonic_ns()
        for index in range(n_rounds):
            after_ns = start_ns + index * period_ns - time.monotonic_ns()
            if after_ns > 0:
                time.sleep(after_ns / 1e9)
            self.number += 1
            self.server.set_all(float(self.number))
            late_max_ns = max(late_max_ns, time.monotonic_ns() - start_ns - index * period_ns)
        # The last period belongs to the load.
        time.sleep(max(start_ns + n_rounds * period_ns - time.monotonic_ns(), 0) / 1e9)
        return late_max_ns


def name_of(pv: int) -> str:
    return f"load:{pv:06}"


def serve(start: Callable[[int], Server]) -> None:
    """Serves as many PVs as the first argument says, answers requests until the end of the input, then exits."""
    output = sys.stdout
    # Prints of a library are not answers.
    sys.stdout = sys.stderr
    n_pvs = int(sys.argv[1])
    counters = Counters(start(n_pvs), n_pvs)
    print(READY, file=output, flush=True)
    for line in sys.stdin:
        try:
            content = counters.answer(line)
        except Exception as error:  # Any error is the answer.
            content = {"failed": {"why": f"{type(error).__name__}: {error}"}}
        print(json.dumps(content), file=output, flush=True)
    os._exit(0)
