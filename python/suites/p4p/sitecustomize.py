"""Runs p4p's own tests, which are a part of its package, over the face."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import ModuleType

import fodo_faces

TESTS = Path.cwd() / "src" / "p4p" / "test"


class TestsFinder(MetaPathFinder):
    """Finds the package `p4p.test` in the archive of p4p; its relative imports then refer to the face."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname == "p4p.test":
            return importlib.util.spec_from_file_location(
                fullname, TESTS / "__init__.py", submodule_search_locations=[str(TESTS)]
            )
        if fullname.startswith("p4p.test."):
            return importlib.machinery.PathFinder.find_spec(fullname, [str(TESTS)])
        return None


fodo_faces.install("p4p")
sys.meta_path.insert(0, TestsFinder())
