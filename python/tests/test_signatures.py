"""The modules of `fodo.compat` accept the calls that the packages accept whose interfaces they have."""

from __future__ import annotations

import json
import os
import subprocess
from fnmatch import fnmatchcase as fnmatch
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

from processes import FOLDER, PATIENCE
from signatures import Parameters, of_modules

MODULES = [
    "aioca",
    "epics",
    "epics.autosave",
    "epics.ca",
    "epics.pv",
    "p4p",
    "p4p.client.asyncio",
    "p4p.client.raw",
    "p4p.client.thread",
    "p4p.nt",
    "p4p.nt.common",
    "p4p.nt.enum",
    "p4p.nt.ndarray",
    "p4p.nt.scalar",
    "p4p.rpc",
    "p4p.server",
    "p4p.server.asyncio",
    "p4p.server.raw",
    "p4p.server.thread",
    "p4p.util",
    "softioc.alarm",
    "softioc.asyncio_dispatcher",
    "softioc.builder",
    "softioc.cothread_dispatcher",
    "softioc.softioc",
]

_CTYPES = "is about the C library and its texts of bytes, which the face does not have"

EXCEPTIONS = {
    "epics.ca.bytes2str": _CTYPES,
    "epics.ca.clib_search_path": _CTYPES,
    "epics.ca.str*": _CTYPES,
    "p4p.client.raw.Subscription": "is created by Context.monitor only",
    "p4p.nt.*.Value": "is another name of p4p.Value",
    "p4p.server.ServerOperation.onCancel": "a handler runs to its end when its client gives up",
}
"""What differs, with the reason. `*` stands for any text."""


def accepts(own: Parameters, other: Parameters) -> bool:
    """Whether a function can be called as the other one: with the same parameters, and no others that are required. What the
    other one passes on (`*args`, `**kws`) is not known."""
    if other is None or own is None:
        return True
    has_keywords = any(kind == "VAR_KEYWORD" for _, kind, _ in own)
    passes_on = any(kind.startswith("VAR_") for _, kind, _ in other)
    known = {name: (position, kind) for position, (name, kind, _) in enumerate(own)}
    named = [(position, name, kind) for position, (name, kind, _) in enumerate(other) if not kind.startswith("VAR_")]
    for position, name, kind in named:
        if name not in known:
            if kind != "KEYWORD_ONLY" or not has_keywords:
                return False
        elif kind != "KEYWORD_ONLY" and known[name] != (position, kind):
            return False
    required = {name for name, kind, has_default in own if not has_default and not kind.startswith("VAR_")}
    return passes_on or required <= {name for name, _, has_default in other if not has_default}


def has(module: str, name: str) -> bool:
    """Whether a module has a function or a class, or a class a method, that it has from elsewhere."""
    try:
        attrgetter(name)(import_module(f"fodo.compat.{module}"))
    except AttributeError:
        return False
    return True


@pytest.fixture(scope="module")
def others() -> dict[str, Any]:
    """What the packages have."""
    python = Path(os.environ.get("FODO_PEERS", ""), "bin", "python")
    if not os.environ.get("FODO_PEERS") or not python.exists():
        pytest.skip("FODO_PEERS names no environment with the packages")
    command = [str(python), str(FOLDER / "signatures.py"), *MODULES]
    end = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert end.returncode == 0, end.stderr
    found: dict[str, Any] = json.loads(end.stdout.splitlines()[-1])
    return found


def test_every_public_function_accepts_the_same_arguments(others: dict[str, Any]) -> None:
    own = of_modules([f"fodo.compat.{name}" for name in MODULES])
    differences = {}
    for module, expected in others.items():
        found = own[f"fodo.compat.{module}"]
        for name, parameters in expected.items():
            if name not in found:
                if not has(module, name):
                    differences[f"{module}.{name}"] = "is missing"
            elif not accepts(found[name], parameters):
                differences[f"{module}.{name}"] = f"{found[name]} instead of {parameters}"

    unexpected = [
        f"{name}: {what}" for name, what in differences.items() if not any(fnmatch(name, each) for each in EXCEPTIONS)
    ]
    assert not unexpected, "\n".join(unexpected)
    outdated = [each for each in EXCEPTIONS if not any(fnmatch(name, each) for name in differences)]
    assert not outdated, f"these exceptions are no longer needed: {outdated}"
