"""Conversions of texts."""

from __future__ import annotations

import os
from collections.abc import Sequence

IOENCODING = os.environ.get("PYEPICS_ENCODING", os.environ.get("PYTHONIOENCODING", "utf-8"))


def str2bytes(text: str | bytes) -> bytes:
    """The text as bytes."""
    return text if isinstance(text, bytes) else text.encode(IOENCODING)


def bytes2str(text: object) -> str:
    """The bytes as a text."""
    return text.decode(IOENCODING) if isinstance(text, bytes) else str(text)


def strjoin(separator: str | bytes, parts: Sequence[str | bytes]) -> str:
    """Joins texts; bytes end with the first NUL."""
    texts = []
    for part in parts:
        if part == b"\0":
            break
        texts.append(bytes2str(part))
    return bytes2str(separator).join(texts)
