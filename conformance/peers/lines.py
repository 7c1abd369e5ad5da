"""Common code of the client scripts: one JSON request per line in, one JSON answer per line out.

A request has its verb in ``do``; an answer contains the result, or ``error``. The script exits at the end of
its standard input, so it never outlives the test that started it.
"""

import json
import math
import os
import sys
from collections import UserList
from typing import Any, Callable, Iterator

import numpy as np

#: The element ``i`` of an array of the pattern ``first`` is ``first + STEP * i``, wrapped to 32 bits.
STEP = 7919

#: Longer values are not printed but compared with the pattern.
SHOWN_MAX = 1000


def pattern(first: int, count: int) -> np.ndarray:
    wide = np.arange(count, dtype=np.int64) * STEP + first
    return wide.astype(np.uint32).view(np.int32)


def shown(value: Any) -> Any:
    """A value as JSON. A long array becomes its length, first element and number of unexpected elements."""
    if isinstance(value, np.ndarray):
        if value.size > SHOWN_MAX:
            n_wrong = int(np.count_nonzero(value != pattern(int(value[0]), value.size)))
            return {"count": int(value.size), "first": int(value[0]), "n_wrong": n_wrong}
        value = value.tolist()
    if isinstance(value, (list, tuple, UserList)):
        return [shown(element) for element in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bytes):
        return value.split(b"\0", 1)[0].decode("utf-8", "replace")
    if isinstance(value, str):
        return str(value)
    if isinstance(value, float):
        return float(value)
    return int(value)


def long_text(characters: list[int]) -> str:
    """The characters up to the first zero."""
    return bytes(characters).split(b"\0", 1)[0].decode("latin-1")


def requests() -> Iterator[dict[str, Any]]:
    for line in sys.stdin:
        yield json.loads(line)


def finite(content: Any) -> Any:
    """The same content with infinities and NaN as texts, which JSON does not support as numbers."""
    if isinstance(content, dict):
        return {key: finite(value) for key, value in content.items()}
    if isinstance(content, list):
        return [finite(value) for value in content]
    if isinstance(content, float) and not math.isfinite(content):
        return str(content)
    return content


def answer(content: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(finite(content)) + "\n")
    sys.stdout.flush()


def failure(error: BaseException) -> dict[str, Any]:
    return {"error": f"{type(error).__name__}: {error}"}


def serve(verbs: dict[str, Callable[..., dict[str, Any]]]) -> None:
    """Answers requests until the end of the input, then exits without waiting for threads."""
    for request in requests():
        verb = verbs[request.pop("do")]
        try:
            answer(verb(**request))
        except Exception as error:  # Any error is the answer.
            answer(failure(error))
    os._exit(0)
