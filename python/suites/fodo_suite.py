"""A plugin of pytest: writes the result of each test as a line of JSON to the file FODO_SUITE_RESULTS."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest


class Results:
    """The file of results. A test has the worst outcome of its phases; a file that cannot be collected has failed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._outcome = "passed"
        self._text = ""

    def _write(self, **line: str) -> None:
        with self._path.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._outcome, self._text = "passed", ""
        self._write(test=nodeid, outcome="started", text="")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._outcome = "failed"
            self._text += f"{report.longreprtext}\n{report.capstderr}"
        elif report.skipped and self._outcome == "passed":
            self._outcome = "skipped"

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._write(test=nodeid, outcome=self._outcome, text=self._text)

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self._write(test=report.nodeid, outcome="failed", text=report.longreprtext)


def pytest_configure(config: pytest.Config) -> None:
    path = os.environ.get("FODO_SUITE_RESULTS")
    if path:
        config.pluginmanager.register(Results(Path(path)), "fodo-results")
