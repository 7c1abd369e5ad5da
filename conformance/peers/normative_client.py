"""Structures as p4p reads them, as JSON in the form of ``fodo get --json``: driven by lines of JSON."""

from typing import Any

import numpy as np
from lines import serve
from p4p.client.thread import Context
from p4p.wrapper import Value

# Without conversion to numbers, texts, tables and images.
CONTEXT = Context("pva", nt=False)

#: The types of numpy's arrays, by their codes in p4p.
CODES = {"bool": "?", "int8": "b", "uint8": "B", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I"}
CODES |= {"int64": "l", "uint64": "L", "float32": "f", "float64": "d"}


def get(pvs: list[str], timeout: float) -> dict[str, Any]:
    results = CONTEXT.get(pvs, timeout=timeout)
    return {"structures": [{"id": result.getID(), "structure": variant(result)} for result in results]}


def variant(value: Any) -> Any:
    """A value of which the type is not known otherwise."""
    if value is None:
        return None
    if isinstance(value, Value):
        return members(value.type().aspy()[2], value)
    return converted(f"a{CODES[value.dtype.name]}" if isinstance(value, np.ndarray) else "", value)


def members(kinds: list[tuple[str, Any]], value: Value) -> dict[str, Any]:
    return {name: converted(kind, value[name]) for name, kind in kinds}


def converted(kind: Any, value: Any) -> Any:
    """A value of this type: a code of p4p, or the code, id and members of a structure or union."""
    if isinstance(kind, str):
        if kind == "v":
            return variant(value)
        if kind == "av":
            return [variant(element) for element in value]
        if value is None and kind.startswith("a"):
            # p4p's value of an array that was never set.
            return []
        if kind == "f" or kind == "af":
            return rounded(value)
        return value.tolist() if isinstance(value, np.ndarray) else value
    code, _, inner = kind
    if code.startswith("a"):
        return [converted((code[1:], "", inner), element) for element in value]
    if value is None:
        return None
    if code == "U":
        return selected(inner, value)
    return members(inner, value)


def rounded(value: Any) -> Any:
    """The shortest decimal numbers that are these numbers of 32 bits."""
    if isinstance(value, np.ndarray):
        return [rounded(element) for element in value]
    return float(str(np.float32(value)))


def selected(inner: list[tuple[str, Any]], value: Any) -> dict[str, Any]:
    """The value of a union with the name of its member, which p4p does not report: the only one of this type."""
    if isinstance(value, Value):
        found = [(name, kind) for name, kind in inner if not isinstance(kind, str) and kind[1] == value.getID()]
    elif isinstance(value, np.ndarray):
        found = [(name, kind) for name, kind in inner if kind == f"a{CODES[value.dtype.name]}"]
    else:
        code = {bool: "?", int: "i", float: "d", str: "s", list: "as"}[type(value)]
        found = [(name, kind) for name, kind in inner if kind == code]
    [(name, kind)] = found
    return {name: converted(kind, value)}


serve({"get": get})
