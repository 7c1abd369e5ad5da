"""Servers of PVs in Python, with p4p as the client."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest

from fodo.pva import Operation, Server, SharedPV, Type, Union, nt
from processes import FOLDER, environment


def only_positive(put: Operation) -> float:
    if put.value < 0:
        raise ValueError("must be positive")
    return float(put.value) * 2


def failing(call: Operation) -> None:
    raise RuntimeError("not today")


@pytest.fixture(scope="module")
def received() -> Iterator[dict[str, Any]]:
    """What the client has received."""
    peers = os.environ.get("FODO_PEERS")
    python = Path(peers or "", "bin", "python")
    if not peers or not python.exists():
        pytest.skip("FODO_PEERS names no environment with p4p")
    closing = SharedPV(1.5)

    def close(put: Operation) -> None:
        put.done()
        closing.close()
        closing.open(2.5)

    requests: dict[str, Any] = {}

    def note(put: Operation) -> None:
        assert put.request is not None
        requests[put.name] = put.request.to_dict()
        put.accept()

    number = SharedPV(type=nt.Scalar("d", units="mm"), on_put=only_positive)
    number.open(1.5, severity="MINOR", status="HIGH")
    everything = Type(
        {"text": "s", "points": [Type({"x": "d"}, id="point_t")], "choice": Union({"n": "i", "t": "s"}), "any": "v"},
        id="everything_t",
    )
    pvs = {
        "number": number,
        "choice": SharedPV("on", type=nt.Enum(["off", "on"])),
        "names": SharedPV(["a", "b"]),
        "table": SharedPV({"x": [0.5, 1.5], "name": ["a", "b"]}, type=nt.Table({"x": "d", "name": "s"})),
        "image": SharedPV(numpy.arange(6, dtype="u2").reshape(2, 3)),
        "everything": SharedPV(
            {"text": "one", "points": [{"x": 0.5}], "choice": ("t", "two"), "any": 3.5}, type=everything, on_put=True
        ),
        "sum": SharedPV(on_rpc=lambda call: call.value["a"] + call.value["b"]),
        "failure": SharedPV(on_rpc=failing),
        "silent": SharedPV(on_rpc=lambda call: None),
        "closing": closing,
        "close": SharedPV(0.0, on_put=close),
        "noted": SharedPV(0.0, on_put=note),
        "noted_text": SharedPV({"text": "one"}, type=Type({"text": "s"}, id="noted_t"), on_put=note),
    }
    with Server({f"N:{name}": pv for name, pv in pvs.items()}, isolated=True) as server:
        end = subprocess.run(
            [str(python), str(FOLDER / "p4p_client.py")],
            env=environment(server.settings),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert end.returncode == 0, end.stdout + end.stderr
    yield json.loads(end.stdout.splitlines()[-1]) | {"requests": requests}


def test_scalars_and_puts(received: dict[str, Any]) -> None:
    assert received["number"] == [1.5, 1, "mm", "HIGH"]
    assert received["put"] == 9.0
    assert "must be positive" in received["refused"]
    assert received["choice"].endswith("on")
    assert received["names"] == ["a", "b"]


def test_the_handler_of_a_put_receives_its_request(received: dict[str, Any]) -> None:
    number, text = received["requests"]["N:noted"], received["requests"]["N:noted_text"]

    assert number["record"]["_options"]["answer"] == "42" and number["record"]["_options"]["block"] == "true"
    assert list(text["field"]) == ["text"] and text["record"]["_options"]["answer"] == "43"
    assert received["noted"] == [1.5, "two"]


def test_tables_and_images(received: dict[str, Any]) -> None:
    assert received["table"] == [{"x": 0.5, "name": "a"}, {"x": 1.5, "name": "b"}]
    assert received["image"] == ["uint16", [[0, 1, 2], [3, 4, 5]]]


def test_structures(received: dict[str, Any]) -> None:
    assert received["everything"] == {"text": "one", "points": [{"x": 0.5}], "choice": "two", "any": 3.5}
    assert received["changed"] == [{"x": 1.0}, {"x": 2.0}]


def test_procedures(received: dict[str, Any]) -> None:
    assert received["sum"] == 3.5
    assert "not today" in received["failure"]
    assert received["silent"] is None


def test_clients_of_a_closed_pv_are_disconnected(received: dict[str, Any]) -> None:
    assert received["closing"] == [1.5, "disconnected", 2.5]
