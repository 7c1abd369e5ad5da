"""Starts and stops a context and an IOC many times, and prints what is left of each: threads, descriptors and memory.

`python starts.py 10000` takes minutes; the tests call it with fewer.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from fodo import sync
from fodo.ioc import Ioc

N_WARM = 50
"""Rounds before the first look: by then every allocator has its memory."""


@dataclass(frozen=True)
class Held:
    """What this process holds."""

    n_threads: int
    n_descriptors: int
    n_resident_bytes: int


def held() -> Held:
    gc.collect()
    n_pages = int(Path("/proc/self/statm").read_text().split()[1])
    n_threads, n_descriptors = (len(os.listdir(f"/proc/self/{folder}")) for folder in ("task", "fd"))
    return Held(n_threads, n_descriptors, n_pages * os.sysconf("SC_PAGESIZE"))


def held_in_the_end(before: Held) -> Held:
    """What it holds when the threads that had to end have done so."""
    deadline = time.monotonic() + 20
    while (after := held()).n_threads > before.n_threads and time.monotonic() < deadline:
        time.sleep(0.01)
    return after


def start_and_stop(ioc: Ioc, with_client: bool) -> None:
    """One round. A client connects only now and then, since its search takes longer than the rest."""
    with ioc.serve(isolated=True) as running, sync.Context(settings=running.settings, timeout=20) as client:
        running.record("X:gap").put(1.0, wait=True)
        if with_client:
            client.put("pva://X:gap", 2.0)
            assert client.get("ca://X:gap") == 2.0


def main(n_rounds: int) -> None:
    ioc = Ioc("X:")
    ioc.ao("gap", on_put=lambda value: None)
    ioc.ai("measured", initial=1.0)
    for n in range(N_WARM):
        start_and_stop(ioc, n % 10 == 0)
    # The thread of the program, and the one that all clients share.
    before = held_in_the_end(Held(2, 0, 0))
    for n in range(n_rounds):
        start_and_stop(ioc, n % 100 == 0)
    print(json.dumps({"rounds": n_rounds, "before": asdict(before), "after": asdict(held_in_the_end(before))}))


main(int(sys.argv[1]))
