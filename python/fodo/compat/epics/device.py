"""PVs that share a prefix, as attributes of an object."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from . import ca
from .pv import PV as _PV
from .pv import get_pv
from .utils import IOENCODING


class Device:
    """A collection of PVs named `prefix` + `delim` + attribute.

    `device.VAL` reads and `device.VAL = 1` writes a PV. `attrs`: the attributes whose PVs are created at once; with
    `mutable=False` there are no others. `aliases`: other names of attributes. `nonpvs`: attributes that are no PVs, and so are
    all that begin with an underscore.
    """

    _prefix: str = ""
    _delim = ""
    _init = False
    _mutable = True
    _aliases: Mapping[str, str] = {}
    _nonpvs: Iterable[str] = ()

    def __init__(
        self,
        prefix: str = "",
        attrs: Iterable[str] | None = None,
        nonpvs: Iterable[str] | None = None,
        delim: str = "",
        timeout: float | None = None,
        mutable: bool = True,
        aliases: Mapping[str, str] | None = None,
        with_poll: bool = True,
    ) -> None:
        self._delim = delim
        self._prefix = prefix + delim
        self._pvs: dict[str, _PV] = {}
        self._mutable = mutable
        self._aliases = dict(aliases or {})
        self._nonpvs = (*self._nonpvs, *(nonpvs or ()))
        self._timeout = timeout
        for attr in (*(attrs or ()), *self._aliases.values()):
            self.PV(attr, connect=False)
        self._init = True

    def PV(self, attr: str, connect: bool = True, **kw: Any) -> _PV:  # noqa: N802
        """The PV of an attribute. `connect`: waits until it is connected. `kw`: options of the PV."""
        attr = self._aliases.get(attr, attr)
        pv = self._pvs.get(attr)
        if pv is None:
            if self._timeout is not None:
                kw.setdefault("timeout", self._timeout)
            pv = self._pvs[attr] = get_pv(f"{self._prefix}{attr}", **kw)
        if connect and not pv.connected:
            pv.wait_for_connection()
        return pv

    def add_pv(self, pvname: str, attr: str | None = None, **kw: Any) -> _PV:
        """Adds a PV with any name; `attr` is its attribute, by default the name."""
        pv = self._pvs[pvname if attr is None else attr] = get_pv(pvname, **kw)
        return pv

    def put(
        self, attr: str, value: Any, wait: bool = False, use_complete: bool = False, timeout: float = 10
    ) -> int | None:
        """Writes an attribute, as `PV.put`."""
        return self.PV(attr).put(value, wait=wait, use_complete=use_complete, timeout=timeout)

    def get(self, attr: str, as_string: bool = False, count: int | None = None, timeout: float | None = None) -> Any:
        """Reads an attribute, as `PV.get`."""
        return self.PV(attr).get(as_string=as_string, count=count, timeout=timeout)

    def save_state(self) -> dict[str, Any]:
        """The values of all attributes."""
        return {attr: pv.get(as_string=_is_text(pv)) for attr, pv in self._pvs.items()}

    get_all = save_state

    def restore_state(self, state: Mapping[str, Any]) -> None:
        """Writes the values of the attributes that may be written."""
        for attr, value in state.items():
            pv = self._pvs.get(attr)
            if pv is not None and pv.write_access:
                pv.put(value)

    def write_state(self, fname: str | Path, state: Mapping[str, Any] | None = None) -> None:
        """Writes a state, by default the current one, to a file: the attributes that may be written and are no arrays."""
        values = self.save_state() if state is None else state
        name = type(self).__name__
        lines = [f"#Device Saved State for {name},prefix='{self._prefix}',time={time.ctime()}"]
        for attr in sorted(values):
            pv = self._pvs.get(attr)
            if pv is not None and pv.write_access and (pv.count == 1 or _is_text(pv)):
                lines.append(f"{attr} {values[attr]}")
        Path(fname).write_text("\n".join(lines) + "\n", encoding=IOENCODING)

    def read_state(self, fname: str | Path, restore: bool = False) -> dict[str, Any]:
        """Reads a state from a file. `restore`: also writes it to the PVs."""
        state: dict[str, Any] = {}
        for line in Path(fname).read_text(encoding=IOENCODING).splitlines():
            attr, _, text = line.partition(" ")
            pv = self._pvs.get(attr)
            if line.startswith("#") or pv is None:
                continue
            pv.wait_for_connection()
            kind = pv.type.rpartition("_")[2]
            is_number = kind in ("int", "short", "long", "enum")
            state[attr] = float(text) if kind in ("double", "float") else int(text) if is_number else text
        if restore:
            self.restore_state(state)
        return state

    def add_callback(self, attr: str, callback: Callable[..., Any], **kws: Any) -> Any:
        """Adds a callback to the PV of an attribute; returns its index."""
        pv = self.PV(attr)
        pv.get()
        return pv.add_callback(callback, **kws)

    def remove_callbacks(self, attr: str, index: Any = None) -> None:
        """Removes a callback of the PV of an attribute."""
        self.PV(attr).remove_callback(index=index)

    def __getattr__(self, attr: str) -> Any:
        attr = self._aliases.get(attr, attr)
        if not attr.startswith("_") and self._init:
            if attr in self._pvs:
                return self.get(attr)
            if self._mutable:
                pv = self.PV(attr)
                if pv.connected:
                    return pv.get()
                del self._pvs[attr]
        raise AttributeError(f"{type(self).__name__} has no attribute {attr}")

    def __setattr__(self, attr: str, value: Any) -> None:
        attr = self._aliases.get(attr, attr)
        is_own = attr.startswith("_") or attr in self._nonpvs or hasattr(type(self), attr) or attr in self.__dict__
        if is_own or not self._init:
            object.__setattr__(self, attr, value)
            return
        if attr in self._pvs or self._mutable:
            is_known = attr in self._pvs
            if self.put(attr, value) is not None or is_known:
                return
            del self._pvs[attr]
        raise AttributeError(f"{type(self).__name__} has no attribute {attr}")

    def __dir__(self) -> list[str]:
        return sorted({*object.__dir__(self), *self._aliases, *self._pvs})

    def __repr__(self) -> str:
        return f"<{type(self).__name__} '{self._prefix.removesuffix('.')}', {len(self._pvs)} attributes>"

    @staticmethod
    def pv_property(attr: str, as_string: bool = False, wait: bool = False, timeout: float = 10.0) -> property:
        """A property that reads and writes an attribute with these options."""
        return property(
            lambda device: device.get(attr, as_string=as_string),
            lambda device, value: device.put(attr, value, wait=wait, timeout=timeout),
        )


def _is_text(pv: _PV) -> bool:
    return pv.type.endswith("char") and pv.nelm > 1


poll = ca.poll
