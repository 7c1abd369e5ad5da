"""Starts the IOC of pyepics' tests, which is `fodo ioc`, and the simulator that changes its PVs."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

PATIENCE_S = 60

_CAGET = """#!/bin/sh
# The only call of the tests is: caget -n -f5 NAME
for name; do :; done
exec "$FODO" caget -n -f5 "$name"
"""


@contextmanager
def _running(command: list[str], ready: str, folder: Path) -> Iterator[None]:
    """A process that has printed a line with `ready`."""
    with subprocess.Popen(
        command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        lines: list[str] = []
        is_ready = threading.Event()

        def read() -> None:
            assert process.stdout is not None
            for line in process.stdout:
                # Later lines are read, so that the process does not block.
                if not is_ready.is_set():
                    lines.append(line)
                if ready in line:
                    is_ready.set()
            is_ready.set()

        threading.Thread(target=read, daemon=True).start()
        try:
            if not is_ready.wait(PATIENCE_S) or not any(ready in line for line in lines):
                raise pytest.UsageError(f"{command} is not ready:\n{''.join(lines)}")
            yield
        finally:
            process.kill()


def pytest_configure(config: pytest.Config) -> None:
    """Starts the IOC and the simulator, and adds the programs that tests start to PATH."""
    setup = config.rootpath / "tests" / "Setup"
    stack = ExitStack()
    config.add_cleanup(stack.close)
    programs = Path(stack.enter_context(TemporaryDirectory()))
    (programs / "caget").write_text(_CAGET)
    (programs / "caget").chmod(0o755)
    # A test starts `python`.
    path = [str(programs), str(Path(sys.executable).parent), os.environ["PATH"]]
    os.environ["PATH"] = os.pathsep.join(path)
    databases = ["-m", "P=PyTest:", "-d", "pydebug.db", "-m", "P=PyTestClearCache:", "-d", "pyclearcache.db"]
    ioc = [os.environ["FODO"], "ioc", *databases]
    stack.enter_context(_running(ioc, "iocRun: All initialization complete", setup))
    stack.enter_context(_running([sys.executable, "-u", "simulator.py"], "running", setup))


@pytest.fixture(scope="module", autouse=True)
def own_settings() -> Iterator[None]:
    """The project runs each file in a process of its own: some change settings of the module."""
    ca = importlib.import_module("epics").ca
    settings = {name: getattr(ca, name) for name in ("HAS_NUMPY", "PREEMPTIVE_CALLBACK", "AUTOMONITOR_MAXLENGTH")}
    yield
    for name, value in settings.items():
        setattr(ca, name, value)


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests write files to the current folder."""
    monkeypatch.chdir(tmp_path)
