"""The version of p4p whose interface this is."""

from __future__ import annotations

import re


class Version:
    """A version, which compares with texts and tuples."""

    def __init__(self, text: str) -> None:
        match = re.fullmatch(r"(\d+)\.(\d+)\.(\d+)(?:([ab])(\d+))?", text)
        if match is None:
            raise ValueError(f"invalid version {text!r}")
        self._text = text
        self._parts = (*map(int, match.groups()[:3]), {"a": -2, "b": -1, None: 0}[match[4]], int(match[5] or 0))

    @property
    def is_release(self) -> bool:
        """Whether it is not a preview."""
        return self._parts[3] == 0

    def _other(self, other: object) -> tuple[int, ...] | None:
        if isinstance(other, str):
            other = Version(other)
        if isinstance(other, Version):
            return other._parts
        return other if isinstance(other, tuple) else None

    def _own(self, other: tuple[int, ...]) -> tuple[int, ...]:
        return self._parts[: len(other)] if len(other) < len(self._parts) else self._parts

    def __eq__(self, other: object) -> bool:
        theirs = self._other(other)
        return NotImplemented if theirs is None else self._own(theirs) == theirs

    def __lt__(self, other: object) -> bool:
        theirs = self._other(other)
        return NotImplemented if theirs is None else self._own(theirs) < theirs

    def __le__(self, other: object) -> bool:
        theirs = self._other(other)
        return NotImplemented if theirs is None else self._own(theirs) <= theirs

    def __gt__(self, other: object) -> bool:
        theirs = self._other(other)
        return NotImplemented if theirs is None else self._own(theirs) > theirs

    def __ge__(self, other: object) -> bool:
        theirs = self._other(other)
        return NotImplemented if theirs is None else self._own(theirs) >= theirs

    def __hash__(self) -> int:
        return hash(self._parts)

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"Version({self._text!r})"


version = Version("4.3.0")
