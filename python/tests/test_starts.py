"""Starts and stops leave nothing behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from processes import FOLDER, PATIENCE, environment


def test_starts_and_stops_leave_threads_descriptors_and_memory_as_they_were() -> None:
    # FODO_STARTS=10000 is the whole measurement.
    n_rounds = int(os.environ.get("FODO_STARTS", "200"))
    program = [sys.executable, str(FOLDER / "starts.py"), str(n_rounds)]

    end = subprocess.run(
        program, env=environment({}), capture_output=True, text=True, timeout=PATIENCE + n_rounds, check=False
    )

    assert end.returncode == 0, end.stdout + end.stderr
    print(end.stdout)
    counts = json.loads(end.stdout)
    before, after = counts["before"], counts["after"]
    assert after["n_threads"] == before["n_threads"] and after["n_descriptors"] == before["n_descriptors"]
    # Fragments of the heap come and go; a leak of one IOC is far larger.
    assert after["n_resident_bytes"] - before["n_resident_bytes"] < 8_000_000 + n_rounds * 200
