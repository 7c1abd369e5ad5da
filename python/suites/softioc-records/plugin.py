"""The fixtures of the tests, and names that a fixture of the tests of autosave saves and restores."""

from types import SimpleNamespace

from conftest import clear_records, own_records
from softioc import autosave

__all__ = ["clear_records", "own_records"]

# They are internals of pythonSoftIOC, and have no effect here.
autosave.AutosaveConfig = SimpleNamespace(
    save_period=30.0, device_name=None, directory=None, enabled=False, timestamped_backups=True
)
autosave._AutosaveContext = SimpleNamespace(_fields=None, _instance=None)
autosave.Autosave._pvs = {}
autosave.Autosave._last_saved_state = {}
