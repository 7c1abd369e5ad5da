"""The tests of ophyd-async share a `conftest.py` with those of Tango, which do not run: what it imports of Tango does nothing."""

import sys
from types import ModuleType

_executor = ModuleType("tango.asyncio_executor")
_executor.set_global_executor = lambda _: None  # type: ignore[attr-defined]
sys.modules["tango"] = ModuleType("tango")
sys.modules["tango.asyncio_executor"] = _executor
