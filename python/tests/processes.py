"""Processes of the tests, on loopback and on ports of their own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path

FOLDER = Path(__file__).parent
PATIENCE = 30.0
"""Seconds after which a process counts as hung."""

# As the conformance tests: none of the ports that the system gives to sockets without one.
_PORTS = (12_000, 32_000)
_numbers = count(os.getpid() * 397)


def free_port() -> int:
    """A port of loopback that is free for UDP and TCP, and that no other test of this process has."""
    for _ in range(1000):
        port = _PORTS[0] + next(_numbers) % (_PORTS[1] - _PORTS[0])
        try:
            for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
                with socket.socket(socket.AF_INET, kind) as tried:
                    tried.bind(("127.0.0.1", port))
        except OSError:
            continue
        return port
    raise AssertionError("loopback has no free port")


def isolated() -> dict[str, str]:
    """The variables of a server and its clients, which reach nothing else."""
    ca, search, tcp, repeater = (str(free_port()) for _ in range(4))
    variables = {
        "EPICS_CA_SERVER_PORT": ca,
        "EPICS_CAS_SERVER_PORT": ca,
        "EPICS_CA_REPEATER_PORT": repeater,
        "EPICS_PVA_BROADCAST_PORT": search,
        "EPICS_PVAS_BROADCAST_PORT": search,
        "EPICS_PVA_SERVER_PORT": tcp,
        "EPICS_PVAS_SERVER_PORT": tcp,
    }
    for name in ("CA", "PVA"):
        variables |= {
            f"EPICS_{name}_ADDR_LIST": "127.0.0.1",
            f"EPICS_{name}_AUTO_ADDR_LIST": "NO",
            f"EPICS_{name}S_INTF_ADDR_LIST": "127.0.0.1",
            f"EPICS_{name}S_BEACON_ADDR_LIST": "127.0.0.1",
            f"EPICS_{name}S_AUTO_BEACON_ADDR_LIST": "NO",
        }
    return variables


def environment(variables: dict[str, str]) -> dict[str, str]:
    """The environment of a process with these variables."""
    others = {name: text for name, text in os.environ.items() if not name.startswith("EPICS_")}
    return others | variables


@contextmanager
def running(command: Sequence[str], variables: dict[str, str], ready: str) -> Iterator[subprocess.Popen[str]]:
    """A process that has printed a line with `ready`; it ends with the block."""
    process = subprocess.Popen(
        command,
        env=environment(variables),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    lines: list[str] = []
    is_ready = threading.Event()

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            if ready in line:
                is_ready.set()
        is_ready.set()

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        assert is_ready.wait(PATIENCE) and any(ready in line for line in lines), "".join(lines)
        yield process
    finally:
        process.kill()
        process.wait()
        reader.join(PATIENCE)
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


@contextmanager
def serving(variables: dict[str, str], prefix: str) -> Iterator[subprocess.Popen[str]]:
    """`fodo ioc` with the records of the tests."""
    program = [sys.executable, "-m", "fodo", "ioc", "-m", f"P={prefix}", "-d", str(FOLDER / "records.db")]
    with running(program, variables, "iocRun: All initialization complete") as process:
        yield process


def printed_by(source: str, variables: dict[str, str], *arguments: str) -> str:
    """What a Python program prints; it must succeed."""
    program = [sys.executable, "-c", source, *arguments]
    end = subprocess.run(
        program, env=environment(variables), capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert end.returncode == 0, f"exit code {end.returncode}\n{end.stdout}{end.stderr}"
    return end.stdout
