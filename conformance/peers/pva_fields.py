"""Structures as p4p receives them, in full: driven by lines of JSON."""

import queue
import time
from typing import Any

import numpy as np
from lines import serve
from p4p.client.thread import Context, Subscription
from p4p.wrapper import Type, Value

# Without conversion to numbers and texts.
CONTEXT = Context("pva", nt=False)
MONITORS: list[tuple[Subscription, queue.Queue]] = []


def get(pvs: list[str], request: str, timeout: float) -> dict[str, Any]:
    results = CONTEXT.get(pvs, request=[request or None] * len(pvs), timeout=timeout, throw=False)
    return {"structures": [shown(result) for result in results]}


def put(puts: list[tuple[str, Any]], request: str, timeout: float) -> dict[str, Any]:
    """Puts one after another. A value that is an object contains the paths to set. An error is a result."""
    results: list[str] = []
    for pv, value in puts:
        try:
            CONTEXT.put(pv, value, request=request or None, timeout=timeout, get=False)
            results.append("done")
        except Exception as error:  # Any error is a result.
            results.append(f"{type(error).__name__}: {error}")
    return {"results": results}


def monitor(pvs: list[str], request: str) -> dict[str, Any]:
    first = len(MONITORS)
    for pv in pvs:
        updates: queue.Queue = queue.Queue()
        MONITORS.append((CONTEXT.monitor(pv, updates.put, request=request or None), updates))
    return {"first": first}


def take(monitors: list[int], timeout: float) -> dict[str, Any]:
    """The next update of each of these monitors."""
    deadline = time.monotonic() + timeout
    return {"structures": [next_update(MONITORS[index][1], deadline) for index in monitors]}


def take_until(monitor: int, leaf: str, text: str, timeout: float, skips_first: bool = False) -> dict[str, Any]:
    """The updates of a monitor up to the first one that marks this leaf and has this value there.

    skips_first: leaves out repetitions of the first update, the only one that marks the options.
    """
    deadline = time.monotonic() + timeout
    updates = []
    while True:
        update = next_update(MONITORS[monitor][1], deadline)
        if skips_first and "record._options.queueSize" in update.get("marked", []):
            continue
        updates.append(update)
        if "error" in update or (leaf in update["marked"] and update["leaves"][leaf] == text):
            return {"structures": updates}


def next_update(updates: queue.Queue, deadline: float) -> dict[str, Any]:
    try:
        return shown(updates.get(timeout=max(0.0, deadline - time.monotonic())))
    except queue.Empty:
        return {"error": "no update"}


def end_monitors() -> dict[str, Any]:
    for subscription, _ in MONITORS:
        subscription.close()
    return {}


def shown(value: Any) -> dict[str, Any]:
    if isinstance(value, Exception):
        return {"error": f"{type(value).__name__}: {value}"}
    leaves: dict[str, str] = {}
    add_leaves(value, "", leaves)
    marked = sorted(value.changedSet(expand=True, parents=False))
    return {"type": type_text(value.type()), "leaves": leaves, "marked": marked}


def type_text(kind: Any) -> str:
    if not isinstance(kind, Type):
        return str(kind)
    members = ", ".join(f"{name}: {member_text(kind[name])}" for name in kind)
    return f"{kind.getID()} {{{members}}}"


def member_text(kind: Any) -> str:
    return type_text(kind) if isinstance(kind, Type) else str(kind)


def add_leaves(value: Value, path: str, leaves: dict[str, str]) -> None:
    for name, content in value.items():
        if isinstance(content, Value):
            add_leaves(content, f"{path}{name}.", leaves)
        elif isinstance(content, list) and any(isinstance(element, Value) for element in content):
            for index, element in enumerate(content):
                if isinstance(element, Value):
                    add_leaves(element, f"{path}{name}[{index}].", leaves)
                else:
                    leaves[f"{path}{name}[{index}]"] = leaf_text(element)
        else:
            leaves[path + name] = leaf_text(content)


def leaf_text(content: Any) -> str:
    if isinstance(content, np.ndarray):
        content = content.tolist()
    return repr(content)


serve(
    {
        "get": get,
        "put": put,
        "monitor": monitor,
        "take": take,
        "take_until": take_until,
        "end_monitors": end_monitors,
    }
)
