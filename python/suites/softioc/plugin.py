"""The fixtures of the tests."""

from conftest import clear_records, own_records

__all__ = ["clear_records", "own_records"]
