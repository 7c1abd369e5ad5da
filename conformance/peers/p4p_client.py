"""p4p, driven by lines of JSON."""

import queue
import time
from typing import Any

from lines import pattern, serve, shown
from p4p import Value
from p4p.client.thread import Context, Disconnected, Subscription
from p4p.nt import NTURI

#: The names of scalar types in pvAccess, by their codes in p4p.
KINDS = {
    "?": "boolean",
    "b": "byte",
    "B": "ubyte",
    "h": "short",
    "H": "ushort",
    "i": "int",
    "I": "uint",
    "l": "long",
    "L": "ulong",
    "f": "float",
    "d": "double",
    "s": "string",
    "v": "any",
}
DISPLAY = ("display.limitLow", "display.limitHigh")
ALARM = ("valueAlarm.lowAlarmLimit", "valueAlarm.highAlarmLimit")
WARNING = ("valueAlarm.lowWarningLimit", "valueAlarm.highWarningLimit")
CONTROL = ("control.limitLow", "control.limitHigh")

CONTEXT = Context("pva")
#: Without p4p's own types for numbers, strings and tables.
RAW = Context("pva", nt=False)
#: By default 4 updates are queued before they are merged, which a busy host would take for a lossy peer.
MONITORED = "field()record[queueSize=100]"
MONITORS: list[tuple[Subscription, queue.Queue]] = []


def connect(pv: str, timeout: float) -> dict[str, Any]:
    found = raw(CONTEXT.get(pv, timeout=timeout))
    kind = found.type()["value"]
    made = {"id": found.getID(), "count": 1, "may_write": True}
    if isinstance(kind, str):
        is_array = kind.startswith("a")
        # The protocol does not report the maximum number of elements.
        return {**made, "kind": KINDS[kind[-1]], "count": 0 if is_array else 1}
    return {**made, "kind": "enum"}


def get(pv: str, shape: str, timeout: float) -> dict[str, Any]:
    return sample(CONTEXT.get(pv, timeout=timeout), is_whole=shape == "control")


def put(pv: str, value: Any, wait: bool, timeout: float) -> dict[str, Any]:
    CONTEXT.put(pv, value, wait=wait, timeout=timeout)
    return {}


def put_pattern(pv: str, first: int, count: int, timeout: float) -> dict[str, Any]:
    CONTEXT.put(pv, pattern(first, count), wait=True, get=False, timeout=timeout)
    return {}


def process(pv: str, value: Any, timeout: float) -> dict[str, Any]:
    # If completion is requested as well, QSRV processes a record only where a put without options does.
    CONTEXT.put(pv, value, process="true", wait=False, timeout=timeout)
    return {}


def describe(pv: str, timeout: float) -> dict[str, Any]:
    # p4p has no request for a type alone.
    _, name, members = RAW.get(pv, timeout=timeout).type().aspy()
    return {"result": {"id": name, "members": types(members)}}


def get_structure(pv: str, timeout: float) -> dict[str, Any]:
    return {"result": whole(RAW.get(pv, timeout=timeout))}


def put_fields(pv: str, fields: dict[str, Any], timeout: float) -> dict[str, Any]:
    RAW.put(pv, fields, wait=True, timeout=timeout)
    return {}


def put_union(pv: str, member: str, value: Any, timeout: float) -> dict[str, Any]:
    return put_fields(pv, {"value": (member, value)}, timeout)


def call(pv: str, query: dict[str, float], timeout: float) -> dict[str, Any]:
    argument = NTURI([(name, "d") for name in query]).wrap(pv, kws=query, scheme="pva")
    return {"result": whole(RAW.rpc(pv, argument, timeout=timeout))}


def monitor(
    pv: str, mask: int, timeout: float, window: int | None = None, structure: bool = False
) -> dict[str, Any]:
    updates: queue.Queue = queue.Queue()
    shape = whole_update if structure else sample

    def update(value: Any) -> None:
        # The other clients do not report a disconnection in their stream of updates either.
        if not isinstance(value, Disconnected):
            updates.put(shape(value))

    request = MONITORED if window is None else f"field()record[pipeline=true,queueSize={window}]"
    # On the connection of the puts, so that the server receives the subscription before them.
    context = RAW if structure else CONTEXT
    subscription = context.monitor(pv, update, request=request, notify_disconnect=True)
    MONITORS.append((subscription, updates))
    return {"monitor": len(MONITORS) - 1}


def end_monitors() -> dict[str, Any]:
    for subscription, _ in MONITORS:
        subscription.close()
    return {}


def take(monitor: int, count: int, timeout: float) -> dict[str, Any]:
    updates = MONITORS[monitor][1]
    deadline = time.monotonic() + timeout
    taken = []
    try:
        while len(taken) < count:
            taken.append(updates.get(timeout=max(0.0, deadline - time.monotonic())))
    except queue.Empty:
        pass
    return {"updates": taken}


def raw(value: Any) -> Any:
    """The structure of a value, which p4p unwraps to a number, a string or an array."""
    return getattr(value, "raw", value)


def types(members: list[tuple[str, Any]]) -> dict[str, Any]:
    return {name: described(kind) for name, kind in members}


def described(kind: Any) -> Any:
    """A type as JSON: a name, or the members of a structure or union."""
    if isinstance(kind, str):
        name = KINDS[kind[-1]]
        return f"{name}[]" if kind.startswith("a") else name
    code, _, members = kind
    return {"union": types(members)} if code.endswith("U") else types(members)


def whole(value: Any) -> Any:
    """All fields of a structure as JSON; a union or a variant is the value that it contains."""
    if isinstance(value, Value):
        return {name: whole(value[name]) for name in value}
    return value if value is None else shown(value)


def whole_update(value: Any) -> dict[str, Any]:
    if isinstance(value, Exception):
        raise value
    return {"value": whole(value)}


def sample(value: Any, is_whole: bool = False) -> dict[str, Any]:
    if isinstance(value, Exception):
        raise value
    found = raw(value)
    content = found["value"]
    made: dict[str, Any] = {"severity": found["alarm.severity"], "status": found["alarm.status"]}
    made["seconds"], made["nanos"] = found["timeStamp.secondsPastEpoch"], found["timeStamp.nanoseconds"]
    if hasattr(content, "getID"):
        made["value"] = content["index"]
        made["labels"] = list(content["choices"])
    else:
        made["value"] = shown(content)
    if is_whole and found.has("display.units"):
        made["units"] = found["display.units"]
    if is_whole and found.has("display.precision"):
        made["precision"] = found["display.precision"]
    if is_whole and found.has("valueAlarm"):
        pairs = (DISPLAY, ALARM, WARNING, CONTROL)
        made["limits"] = [[found[name] for name in pair] for pair in pairs]
    return made


serve(
    {
        "connect": connect,
        "get": get,
        "put": put,
        "put_pattern": put_pattern,
        "process": process,
        "describe": describe,
        "get_structure": get_structure,
        "put_fields": put_fields,
        "put_union": put_union,
        "call": call,
        "monitor": monitor,
        "take": take,
        "end_monitors": end_monitors,
    }
)
