"""Replaces packages by the faces of Fodo, and their IOC by `fodo ioc`; used by the `sitecustomize.py` of a suite."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType
from typing import Any

FACES = {
    "aioca": "fodo.compat.aioca",
    "epics": "fodo.compat.epics",
    "epicscorelibs.ca": "fodo.compat.epicscorelibs.ca",
    "p4p": "fodo.compat.p4p",
    "softioc": "fodo.compat.softioc",
}
"""The packages that can be replaced."""


class _FaceLoader(Loader):
    """Loads a module of a face as the module that it replaces: both names have one module object."""

    def __init__(self, name: str) -> None:
        self._name = name

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(self._name)
        self._own = {key: getattr(module, key) for key in ("__spec__", "__loader__", "__package__")}
        return module

    def exec_module(self, module: ModuleType) -> None:
        # The import system has replaced them by those of the other name.
        for key, value in self._own.items():
            setattr(module, key, value)

    def get_code(self, _name: str) -> CodeType | None:
        """For `python -m`."""
        spec = importlib.util.find_spec(self._name)
        loader: Any = spec and spec.loader
        code: CodeType | None = loader.get_code(self._name)
        return code


class _FaceFinder(MetaPathFinder):
    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        for name in self._names:
            if fullname == name or fullname.startswith(name + "."):
                replaced = FACES[name] + fullname[len(name) :]
                found = importlib.util.find_spec(replaced)
                if found is None:
                    raise ModuleNotFoundError(f"{FACES[name]} has no module {replaced}", name=fullname)
                spec = ModuleSpec(fullname, _FaceLoader(replaced), origin=found.origin)
                spec.submodule_search_locations = found.submodule_search_locations
                return spec
        return None


def install(*names: str) -> None:
    """From now on, these packages are the faces of Fodo. Imports nothing by itself."""
    for name in names:
        if name not in FACES:
            raise ValueError(f"there is no face for {name}; there are {', '.join(FACES)}")
    sys.meta_path.insert(0, _FaceFinder(names))


def replace_ioc() -> None:
    """If this process is `python -m epicscorelibs.ioc ARGUMENTS`, it becomes `fodo ioc ARGUMENTS`."""
    if sys.orig_argv[1:3] == ["-m", "epicscorelibs.ioc"]:
        program = os.environ["FODO"]
        os.execv(program, [program, "ioc", *sys.orig_argv[3:]])
