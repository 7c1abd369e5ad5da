"""Saves the values of PVs to a file, and restores them."""

from __future__ import annotations

from .save_restore import AutoSaver, restore_pvs, save_pvs

__all__ = ["AutoSaver", "restore_pvs", "save_pvs"]
