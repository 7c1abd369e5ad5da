"""Runs p4p's own tests over the face: the same as for the suite p4p."""

import runpy
from pathlib import Path

runpy.run_path(str(Path(__file__).parent.parent / "p4p" / "sitecustomize.py"), run_name="sitecustomize")
