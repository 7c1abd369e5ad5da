"""The program `fodo`, in this process."""

from __future__ import annotations

import os
import signal
import sys
import sysconfig
from pathlib import Path

from ._native import run


def program() -> Path:
    """An executable that is this program: the script that belongs to the installed package."""
    called = Path(sys.argv[0])
    if called.name != "__main__.py" and os.access(called, os.X_OK):
        return called.resolve()
    return Path(sysconfig.get_path("scripts")) / "fodo"


def main() -> None:
    """Runs the program with the arguments of this process, and ends the process with its exit code."""
    # The program handles Ctrl-C itself, or ends.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.exit(run(program(), ["fodo", *sys.argv[1:]]))


if __name__ == "__main__":
    main()
