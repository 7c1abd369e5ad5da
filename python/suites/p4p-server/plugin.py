"""Lets pytest collect p4p's test cases: the same as for the suite p4p."""

import runpy
from pathlib import Path

_shared = runpy.run_path(str(Path(__file__).parent.parent / "p4p" / "plugin.py"), run_name="plugin")
pytest_configure = _shared["pytest_configure"]
pytest_pycollect_makeitem = _shared["pytest_pycollect_makeitem"]
