"""pyepics, driven by lines of JSON."""

import queue
import time
from typing import Any

import epics
from epics import ca, dbr
from lines import long_text, pattern, serve, shown

KINDS = ["STRING", "INT", "FLOAT", "ENUM", "CHAR", "LONG", "DOUBLE"]
LIMITS = ["disp", "alarm", "warning", "ctrl"]

PVS: dict[str, epics.PV] = {}
MONITORS: list[tuple[epics.PV, queue.Queue]] = []


def channel(pv: str, timeout: float) -> epics.PV:
    if pv not in PVS:
        PVS[pv] = epics.PV(pv, auto_monitor=False, connection_timeout=timeout)
    if not PVS[pv].wait_for_connection(timeout):
        raise TimeoutError(f"{pv} did not connect")
    return PVS[pv]


def connect(pv: str, timeout: float) -> dict[str, Any]:
    chid = channel(pv, timeout).chid
    return {
        "kind": KINDS[ca.field_type(chid)],
        "count": ca.element_count(chid),
        "may_write": bool(ca.write_access(chid)),
    }


def get(pv: str, shape: str, timeout: float) -> dict[str, Any]:
    chid = channel(pv, timeout).chid
    if shape == "text":
        kind = dbr.TIME_STRING
    elif shape == "long":
        kind = dbr.TIME_CHAR
    else:
        kind = ca.promote_type(chid, use_time=shape == "value", use_ctrl=shape == "control")
    found = ca.get_with_metadata(chid, ftype=kind, timeout=timeout)
    if found is None or found.get("value") is None:
        raise TimeoutError(f"{pv} did not answer")
    made = sample(found)
    if shape == "long":
        made["value"] = long_text(made["value"])
    return made


def put(pv: str, value: Any, wait: bool, timeout: float) -> dict[str, Any]:
    done = channel(pv, timeout).put(value, wait=wait, timeout=timeout)
    if wait and done != 1:
        raise TimeoutError(f"{pv}: put returned {done}")
    return {}


def put_pattern(pv: str, first: int, count: int, timeout: float) -> dict[str, Any]:
    return put(pv, pattern(first, count), True, timeout)


def monitor(pv: str, mask: int, timeout: float) -> dict[str, Any]:
    updates: queue.Queue = queue.Queue()

    def update(**found: Any) -> None:
        updates.put(sample(found))

    # If set explicitly, auto_monitor also monitors arrays that pyepics does not monitor by default.
    MONITORS.append((epics.PV(pv, form="time", auto_monitor=mask, callback=update), updates))
    return {"monitor": len(MONITORS) - 1}


def end_monitors() -> dict[str, Any]:
    for watched, _ in MONITORS:
        watched.disconnect()
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


def sample(found: dict[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {"value": shown(found["value"])}
    for key in ("severity", "status", "units", "precision"):
        if found.get(key) is not None:
            made[key] = found[key]
    if found.get("posixseconds") is not None:
        made["seconds"], made["nanos"] = int(found["posixseconds"]), int(found["nanoseconds"])
    if found.get("enum_strs") is not None:
        made["labels"] = [shown(label) for label in found["enum_strs"]]
    if found.get("upper_disp_limit") is not None:
        made["limits"] = [[found[f"{end}_{kind}_limit"] for end in ("lower", "upper")] for kind in LIMITS]
    return made


serve(
    {
        "connect": connect,
        "get": get,
        "put": put,
        "put_pattern": put_pattern,
        "monitor": monitor,
        "take": take,
        "end_monitors": end_monitors,
    }
)
