"""Request files, which name PVs, and save files, which have their values. Both have the format of autosave of synApps."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from datetime import datetime
from os import PathLike
from pathlib import Path
from typing import Any

from ..pv import PV, get_pv

__all__ = ["AutoSaver", "restore_pvs", "save_pvs"]

_ARRAY = "@array@"

_DEPTH_MAX = 20
"""Request files that include one another."""

_log = logging.getLogger("fodo")

StrPath = str | PathLike[str]


class AutoSaver:
    """Saves the PVs of a request file.

    Each line of the file has the name of a PV, or includes another file: `file other.req P=X:,R=1`. A macro is written as
    `$(P)` or `${P}`. Lines that begin with `#` are comments.
    """

    def __init__(self, request_file: StrPath | None = None) -> None:
        self.request_file = request_file
        self.pvs: list[PV] = []
        if request_file is not None:
            self.read_request_file(request_file)

    def read_request_file(self, request_file: StrPath | None = None) -> None:
        """Reads the names of the PVs, and begins to connect them."""
        self.request_file = self.request_file if request_file is None else request_file
        if self.request_file is None:
            raise ValueError("there is no request file")
        names = _requested(Path(self.request_file), {}, _DEPTH_MAX)
        self.pvs = [get_pv(name, connect=False) for name in names]

    def save(self, save_file: StrPath | None = None, verbose: bool = False) -> None:
        """Writes the values to a file, by default to one that is named after the request file and the time. PVs that are not
        connected are left out, and logged; so are texts of several lines, unless they are arrays of characters, which are saved
        as numbers. `verbose`: prints each value."""
        now = datetime.now()
        if save_file is None:
            if self.request_file is None:
                raise ValueError("there is neither a save file nor a request file")
            save_file = f"{str(self.request_file).removesuffix('.req')}_{now:%Y%b%d_%H%M%S}.sav"
        lines = [f"# Saved by fodo.compat.epics on {now}", "# Edit with extreme care."]
        for pv in self.pvs:
            pv.wait_for_connection()
            text = _saved_text(pv) if pv.connected else None
            if text is None:
                _log.warning('"%s" is not saved: it is not connected, or has no value', pv.pvname)
                continue
            if _has_line_breaks(text):
                _log.warning('"%s" is not saved: its text has several lines, and a save file has one for each PV', pv.pvname)
                continue
            lines.append(f"{pv.pvname} {text}")
            if verbose:
                print(f"PV {pv.pvname} = {text}")
        lines.append("<END>")
        Path(save_file).write_text("\n".join(lines) + "\n")


def save_pvs(request_file: StrPath, save_file: StrPath, debug: bool = False) -> None:
    """Saves the PVs of a request file. `debug`: prints each value."""
    AutoSaver(request_file).save(save_file, verbose=debug)


def restore_pvs(filepath: StrPath, debug: bool = False) -> bool:
    """Writes the values of a save file. Returns whether all were written; others are logged. `debug`: prints each value."""
    values: list[tuple[PV, Any]] = []
    n_failed = 0
    for number, line in enumerate(Path(filepath).read_text().splitlines(), 1):
        try:
            restored = _restored(line)
        except ValueError as error:
            _log.warning("%s:%d: the value is not valid: %s", filepath, number, error)
            n_failed += 1
            continue
        if restored is not None:
            # All connect at the same time.
            name, value = restored
            values.append((get_pv(name, connect=False), value))
    for pv, value in values:
        pv.wait_for_connection()
        if debug:
            print(f"Setting {pv.pvname} to {value}")
        try:
            is_written = pv.connected and pv.write_access and pv.put(value, wait=False) is not None
        except Exception:
            _log.exception('"%s" is not restored', pv.pvname)
            n_failed += 1
            continue
        if not is_written:
            _log.warning('"%s" is not restored: it is not connected, or has no write access', pv.pvname)
            n_failed += 1
    return n_failed == 0


def _saved_text(pv: PV) -> str | None:
    value = pv.get(as_string=True) if (pv.count or 0) > 1 and "char" in str(pv.type) else pv.get()
    if isinstance(value, str) and _has_line_breaks(value):
        value = pv.get()
    if value is None:
        return None
    if hasattr(value, "tolist"):
        value = value.tolist()
    return f"{_ARRAY} {json.dumps(value)}" if isinstance(value, (list, tuple)) else str(value)


def _has_line_breaks(text: str) -> bool:
    return "".join(text.splitlines()) != text


def _restored(line: str) -> tuple[str, Any] | None:
    """The name and the value in a line of a save file; `None` if it has none. The value may be an empty text."""
    name, separator, text = line.lstrip().partition(" ")
    text = text.strip()
    # synApps writes `! 1 channel(s) not connected`.
    if not separator or name.startswith(("#", "!", "<END")):
        return None
    if not text.startswith(_ARRAY):
        return name, text
    elements = text.removeprefix(_ARRAY).strip()
    if elements.startswith("{") and elements.endswith("}"):
        # As synApps writes them: texts in quotation marks, between braces.
        elements = elements[1:-1].strip()
    if not elements.startswith("["):
        elements = "[" + re.sub(r'"\s+"', '","', elements) + "]"
    return name, json.loads(elements)


def _requested(path: Path, macros: Mapping[str, str], depth: int) -> list[str]:
    """The names in a request file."""
    if depth == 0:
        raise ValueError(f"{path}: request files include one another more than {_DEPTH_MAX} times")
    names: list[str] = []
    for number, raw in enumerate(path.read_text().splitlines(), 1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        words = _expanded(line, macros).split(None, 2)
        if words[0] == "file":
            if len(words) == 1:
                raise ValueError(f"{path}:{number}: expected the name of a file")
            included = path.parent / words[1].strip('",')
            inner = dict(pair.split("=", 1) for pair in re.split(r"[,;\s]+", words[2].strip('"')) if "=" in pair) if words[2:] else {}
            names += _requested(included, {**macros, **inner}, depth - 1)
        elif len(words) == 1:
            names.append(words[0])
        else:
            raise ValueError(f"{path}:{number}: expected the name of one PV, found {raw!r}")
    return names


def _expanded(text: str, macros: Mapping[str, str]) -> str:
    """The text with its macros replaced; those without a value stay."""
    return re.sub(r"\$[({](\w+)[)}]", lambda match: macros.get(match[1], match[0]), text)
