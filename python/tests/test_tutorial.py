"""The notebook among the tutorials runs from start to end."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import nbclient
import nbformat
import pytest

from processes import FOLDER

NOTEBOOK = FOLDER.parent.parent / "docs" / "tutorials" / "python.ipynb"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which a kernel with this Python may write."""
    monkeypatch.setenv("JUPYTER_PATH", str(Path(sys.prefix) / "share" / "jupyter"))
    for name in ("HOME", "IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "MPLCONFIGDIR"):
        monkeypatch.setenv(name, str(tmp_path))
    return tmp_path


def outputs(notebook: nbformat.NotebookNode, kind: str) -> list[str]:
    """What the cells of a notebook display of this kind."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    shown = [output for cell in cells for output in cell.outputs]
    return [output.data[kind] for output in shown if "data" in output and kind in output.data]


def test_the_notebook_runs_and_displays_values_a_table_and_plots(folder: Path) -> None:
    notebook = nbformat.reads(NOTEBOOK.read_text(), as_version=4)  # type: ignore[no-untyped-call]

    nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(folder)}}).execute()

    html = "".join(outputs(notebook, "text/html"))
    assert ">MINOR HIGH" in html and "45.00</b> mm" in html and "<th>position</th>" in html
    assert len(outputs(notebook, "image/png")) >= 2
    text = "".join(
        output.text for cell in notebook.cells for output in cell.get("outputs", []) if output.output_type == "stream"
    )
    assert "NotFound" in text and "LAB:gpa" in text
    if "FODO_WRITE_REFERENCE" in os.environ:
        NOTEBOOK.write_text(nbformat.writes(notebook) + "\n")  # type: ignore[no-untyped-call]
