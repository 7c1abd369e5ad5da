"""Prints the parameters of the public functions, classes and methods of modules. It runs in the environment of the peers too.

The arguments are names of modules. The output is JSON: for each module a dict of the names with their parameters, each with its
name, its kind and whether it has a default; `null` where Python does not know them.
"""

from __future__ import annotations

import importlib
import inspect
import json
import sys
from collections.abc import Iterable
from types import ModuleType
from typing import Any

Parameters = list[list[Any]] | None
"""Of each parameter its name, its kind, and whether it has a default."""


def parameters(function: Any) -> Parameters:
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    return [[each.name, each.kind.name, each.default is not each.empty] for each in found]


def members(module: ModuleType) -> dict[str, Parameters]:
    """The functions and classes that this module names in `__all__`, or that its package defines, with the public methods of the
    classes."""
    package = module.__name__.removeprefix("fodo.compat.").partition(".")[0]
    found: dict[str, Parameters] = {}
    for name in sorted(set(getattr(module, "__all__", vars(module)))):
        value = getattr(module, name, None)
        origin = (getattr(value, "__module__", None) or "").removeprefix("fodo.compat.")
        if name.startswith("_") or not callable(value) or origin.partition(".")[0] != package:
            continue
        found[name] = parameters(value)
        if inspect.isclass(value) and not issubclass(value, BaseException):
            for attribute, method in inspect.getmembers(value, callable):
                owner = (getattr(method, "__module__", None) or "").removeprefix("fodo.compat.")
                if not attribute.startswith("_") and owner.partition(".")[0] == package:
                    found[f"{name}.{attribute}"] = parameters(method)
    return found


def of_modules(names: Iterable[str]) -> dict[str, dict[str, Parameters]]:
    return {name: members(importlib.import_module(name)) for name in names}


if __name__ == "__main__":
    json.dump(of_modules(sys.argv[1:]), sys.stdout)
