"""Normative types: structures for Python objects, and the reverse.

`wrap` makes a structure, `unwrap` the object, `assign` writes an object to a structure, and `buildType` returns the type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..wrapper import Value
from .common import NTBase, ntwrappercommon
from .enum import NTEnum, ntenum
from .scalar import NTScalar, ntbool, ntfloat, ntint, ntstr, ntstringarray
from ._table import NTURI, NTMultiChannel, NTTable

if TYPE_CHECKING:
    from .ndarray import NTNDArray, ntndarray, ntnumericarray

__all__ = [
    "NTBase",
    "NTEnum",
    "NTMultiChannel",
    "NTNDArray",
    "NTScalar",
    "NTTable",
    "NTURI",
    "buildNT",
    "defaultNT",
    "ntbool",
    "ntenum",
    "ntfloat",
    "ntint",
    "ntndarray",
    "ntnumericarray",
    "ntstr",
    "ntstringarray",
    "ntwrappercommon",
]


def __getattr__(name: str) -> Any:
    # They need numpy, which is imported only when it is used.
    if name in ("NTNDArray", "ntndarray", "ntnumericarray"):
        return getattr(import_module(f"{__name__}.ndarray"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _image() -> Any:
    return import_module(f"{__name__}.ndarray").NTNDArray()


Factory = Callable[[], Any]


def _default() -> dict[str, Factory]:
    return {
        "epics:nt/NTScalar:1.0": NTScalar,
        "epics:nt/NTScalarArray:1.0": NTScalar,
        "epics:nt/NTEnum:1.0": NTEnum,
        "epics:nt/NTNDArray:1.0": _image,
    }


def defaultNT() -> dict[str, Factory]:
    """The normative types that a context unwraps, by their ids."""
    return _default()


class _UnwrapOnly:
    """A function that unwraps, as a normative type."""

    def __init__(self, function: Callable[[Value], Any]) -> None:
        self.unwrap = function

    def __call__(self) -> _UnwrapOnly:
        return self

    def wrap(self, value: Any, **_kws: Any) -> Any:
        """The value itself."""
        return value

    def assign(self, V: Value, py: Any) -> None:
        """Writes a value to the field `value`."""
        V["value"] = py


def buildNT(nt: Any = None, unwrap: Any = None) -> ClientUnwrapper:
    """The types that a context unwraps. `nt`: those in addition to the default ones, or `False` for none; `unwrap`: functions,
    or `False` for none."""
    if unwrap is False or nt is False:
        return ClientUnwrapper({})
    if unwrap is not None:
        return ClientUnwrapper({id: _UnwrapOnly(function) for id, function in unwrap.items()})
    return ClientUnwrapper({**_default(), **(nt or {})})


class ClientUnwrapper:
    """Unwraps the values of one PV, whose type may change."""

    def __init__(self, nt: Mapping[str, Factory] | None = None) -> None:
        self.nt = dict(nt or {})
        self.id: str | None = None
        self._normative: Any = None

    def fresh(self) -> ClientUnwrapper:
        """One for another PV: a type such as NTEnum remembers what one PV has sent."""
        return ClientUnwrapper(self.nt)

    def _of(self, id: str) -> Any:
        if id != self.id:
            factory = self.nt.get(id)
            self._normative = None if factory is None else factory()
            self.id = id
        return self._normative

    def wrap(self, val: Any, **kws: Any) -> Any:
        """The structure for an object of the last type."""
        return val if self._normative is None else self._normative.wrap(val, **kws)

    def unwrap(self, val: Value) -> Any:
        """The object for a structure; the structure if its type is not unwrapped."""
        normative = self._of(val.getID())
        return val if normative is None else normative.unwrap(val)

    def assign(self, V: Value, value: Any) -> None:
        """Writes an object to a structure."""
        normative = self._of(V.getID())
        if normative is None:
            V["value"] = value
        else:
            normative.assign(V, value)

    def __repr__(self) -> str:
        return f"ClientUnwrapper({self.nt!r})"
