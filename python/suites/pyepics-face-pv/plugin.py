"""Starts `fodo ioc` and the simulator of the tests."""

from fodo_pyepics import own_folder, own_settings, pytest_configure

__all__ = ["own_folder", "own_settings", "pytest_configure"]
