"""How much ``fodo_numbers.py`` measures, what its clients count, and its rows."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: Updates that have not been received after this many seconds without any are lost.
QUIET_S = 5.0


@dataclass(frozen=True)
class Extent:
    """How much is measured."""

    n_rounds: int = 7
    n_imports: int = 15
    n_calls: int = 1000
    seconds: float = 10
    n_pvs: int = 1000
    n_subscriptions: int = 1000


SHORT = Extent(n_rounds=1, n_imports=1, n_calls=20, seconds=0.2, n_pvs=50, n_subscriptions=20)


class Table:
    """The rows: printed at once, and written to a file at the end."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def add(self, what: str, reach: str, here: str, **numbers: float) -> None:
        print(f"| {what} | {reach} | {here} |", flush=True)
        self.rows.append({"what": what, "reach": reach, "here": here, "numbers": numbers})

    def write(self, path: Path, extent: Extent) -> None:
        machine = {"n_cpus": os.cpu_count(), "kernel": platform.release(), "python": platform.python_version()}
        about = {"schema": "fodo-numbers/1", "date": time.strftime("%Y-%m-%d"), "is_short": extent == SHORT, "machine": machine}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({**about, "rows": self.rows}, indent=1) + "\n")


@dataclass(frozen=True)
class Load:
    """Counters that change, and their subscriptions."""

    hz: int
    seconds: float
    n_pvs: int
    n_subscriptions: int = 1
    #: Whether the IOC sets them with one call.
    together: bool = False

    def request(self, seconds: float) -> dict[str, Any]:
        return {"n_pvs": self.n_pvs, "hz": self.hz, "seconds": seconds, "together": self.together}

    @property
    def warm_up_s(self) -> float:
        return min(1.0, self.seconds)

    def n_offered(self, seconds: float) -> int:
        return self.n_pvs * self.n_subscriptions * round(self.hz * seconds)


@dataclass(frozen=True)
class Received:
    """What a client has counted while an IOC has changed its records, and what that has counted."""

    n: int
    merged: int
    cpu_s: float
    ioc: dict[str, Any]

    def n_lost(self, n_offered: int) -> int:
        """The updates that are not accounted for, or not yet."""
        return n_offered - self.n - self.merged - self.ioc["merged"]


def settled(count: Callable[[], Received], n_offered: int) -> Received:
    """What a client has counted when every update is accounted for, or nothing was received for some seconds."""
    end, quiet_s = count(), 0.0
    while end.n_lost(n_offered) > 0 and quiet_s < QUIET_S:
        time.sleep(0.1)
        before, end = end, count()
        quiet_s = quiet_s + 0.1 if end.n == before.n else 0.0
    return end
