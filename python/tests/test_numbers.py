"""The script that measures what the package must reach, with small loads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

from processes import FOLDER, environment

SCRIPT = FOLDER.parents[1] / "lab" / "drivers" / "python" / "fodo_numbers.py"


def test_the_script_of_the_numbers_asks_every_question_and_accounts_for_every_update(tmp_path: Path) -> None:
    path = tmp_path / "numbers.json"
    peers = Path(os.environ.get("FODO_PEERS", ""), "bin", "python")
    with_peers = ["--peers", str(peers)] if peers.exists() else []
    program = Path(sysconfig.get_path("scripts"), "fodo")
    arguments = ["--short", "--rust", str(program), "--json", str(path), *with_peers]

    end = subprocess.run(
        [sys.executable, str(SCRIPT), *arguments], env=environment({}), capture_output=True, text=True, timeout=240, check=False
    )

    assert end.returncode == 0, end.stdout + end.stderr
    run = json.loads(path.read_text())
    assert run["is_short"] and len(run["rows"]) == end.stdout.count("\n") - 2
    numbers = {row["what"]: row["numbers"] for row in run["rows"]}
    assert {what: each["lost"] for what, each in numbers.items() if each.get("lost", 0) != 0} == {}
    loads = ["50 PVs x 10 Hz x 20 subscriptions, MonitorGroup in Rust", "50 PVs x 100 Hz set one by one, a monitor each, batches"]
    loads += ["50 PVs x 10 Hz, pyepics"] if with_peers else []
    assert all(numbers[what]["received"] > 0 for what in loads)
    assert all(numbers[f"{what} of 1000 records"]["rate"] > 0 for what in ("record.set", "set_many of an array"))
