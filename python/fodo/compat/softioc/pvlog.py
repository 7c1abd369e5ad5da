"""Importing this module logs the values that records of the program take, to the logger `fodo.puts`."""

from ._state import STATE

STATE.is_logging = True
