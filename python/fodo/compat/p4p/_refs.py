"""Counts of the objects that exist, for tests that look for leaks."""

from __future__ import annotations

import weakref
from collections import Counter
from typing import Any

from . import _body


class Living:
    """The open objects of some classes."""

    def __init__(self) -> None:
        self._open: weakref.WeakSet[Any] = weakref.WeakSet()

    def add(self, thing: Any) -> None:
        """The object is open."""
        self._open.add(thing)

    def discard(self, thing: Any) -> None:
        """The object is closed."""
        self._open.discard(thing)

    def all(self) -> list[Any]:
        """The open objects."""
        return list(self._open)


contexts = Living()
servers = Living()


def listRefs() -> dict[str, int]:
    """How many objects of each kind exist: values, open contexts and open servers."""
    counts = Counter({"StructTop": _body.n_alive()})
    counts["ClientContextImpl"] = len(contexts.all())
    counts["ServerPvt"] = len(servers.all())
    return dict(counts)
