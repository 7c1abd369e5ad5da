"""Processes that use PVs."""

from __future__ import annotations

import multiprocessing
from multiprocessing.pool import Pool
from typing import Any

from .ca import clear_cache

__all__ = ["CAPool", "CAProcess", "clear_ca_cache"]

clear_ca_cache = clear_cache


class CAProcess(multiprocessing.Process):
    """A process that uses PVs.

    Any process may use them; those that its parent has created raise `fodo.Forked` in it.
    """


class CAPool(Pool):
    """A pool of processes that use PVs."""

    @staticmethod
    def Process(ctx: Any, *args: Any, **kwds: Any) -> CAProcess:  # noqa: N802
        """A worker."""
        return CAProcess(*args, **kwds)
