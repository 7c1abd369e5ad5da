"""Types of values."""

from aioca import DBR_CHAR_STR

__all__ = ["DBR_CHAR_STR"]
