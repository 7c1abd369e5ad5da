"""Servers of PVs that a program of Python owns, over pvAccess and Channel Access.

    with Server({"lab:x": SharedPV(1.5, on_put=True)}) as server:
        ...

`nt` has the normative types, `Type` describes other structures.
"""

from __future__ import annotations

from . import nt
from ._properties import Properties
from ._server import Counts, Server
from ._shared import Described, Operation, Peer, SharedPV
from ._type import Type, Union

__all__ = ["Counts", "Described", "Operation", "Peer", "Properties", "Server", "SharedPV", "Type", "Union", "nt"]
