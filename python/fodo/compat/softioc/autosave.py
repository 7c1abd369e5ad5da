"""Saves fields of records, and restores them at the start."""

from __future__ import annotations

import logging
import threading
from importlib import import_module
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any

from ._state import STATE

__all__ = ["Autosave", "configure"]

DEFAULT_SAVE_PERIOD = 30.0
"""Seconds between two checks for changes."""

_context = threading.local()


def configure(
    directory: str | PathLike[str],
    name: str,
    save_period: float = DEFAULT_SAVE_PERIOD,
    timestamped_backups: bool = True,
    enabled: bool = True,
) -> None:
    """Saves to the folder `name` in `directory`, which has to exist. Call it before `LoadDatabase`.

    `timestamped_backups` has no effect: the files have the generations that Fodo keeps. Values that pythonSoftIOC has saved in
    the file `name.softsav` of the directory are those at the start, until the folder has newer ones.
    """
    folder = Path(directory)
    if not folder.is_dir():
        raise FileNotFoundError(f"{directory} is not a valid autosave directory")
    if enabled:
        own = folder / name
        own.mkdir(exist_ok=True)
        STATE.ioc.autosave(own, period=save_period)
        STATE.old_values = _old_values(folder / f"{name}.softsav")


def _old_values(path: Path) -> dict[str, Any]:
    """What pythonSoftIOC has saved, by the names of records and fields."""
    if not path.is_file():
        return {}
    try:
        yaml: Any = import_module("yaml")
    except ImportError:
        logging.getLogger("fodo").warning("%s is not read: that needs the package PyYAML", path)
        return {}
    with path.open() as file:
        return dict(yaml.safe_load(file) or {})


class Autosave:
    """Records that are created within this context have these fields saved, besides their own."""

    def __init__(self, fields: Any = True) -> None:
        if getattr(_context, "fields", None) is not None:
            raise RuntimeError("Can not instantiate Autosave when already in context manager")
        self._fields = _names(fields)

    def __enter__(self) -> None:
        _context.fields = self._fields

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _context.fields = None


def fields_of(fields: Any) -> list[str]:
    """The fields of a record that are saved."""
    if fields is False:
        return []
    return list(dict.fromkeys([*_names(fields), *(getattr(_context, "fields", None) or [])]))


def _names(fields: Any) -> list[str]:
    if not fields:
        return []
    if fields is True:
        return ["VAL"]
    if isinstance(fields, str):
        return [fields]
    if isinstance(fields, list):
        return fields
    raise ValueError(f"Could not parse autosave fields argument: {fields}")
