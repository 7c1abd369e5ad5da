"""Lets pytest collect p4p's test cases, which were written for another runner."""

from __future__ import annotations

from typing import Any

import pytest


def pytest_configure() -> None:
    from p4p.test.utils import RefTestCase

    # pytest creates an instance of each class for a method of this name before it looks for tests.
    RefTestCase.runTest = lambda self: None


def pytest_pycollect_makeitem(collector: pytest.Collector, name: str, obj: object) -> Any:
    """The base class itself, which each module imports, has no tests."""
    return [] if name in ("RefTestCase", "AsyncTest") else None
