"""caproto's threading client, driven by lines of JSON."""

import queue
import select
import socket
import time
from typing import Any

from caproto import AccessRights, ChannelType
from caproto.threading.client import PV, Context
from lines import long_text, pattern, serve, shown

LIMITS = ["disp", "alarm", "warning", "ctrl"]
EPICS_EPOCH_UNIX_S = 631152000



def send_with_patience(sock: socket.socket, content: bytes, flags: int = 0) -> None:
    rest = memoryview(content)
    while rest:
        select.select([], [sock], [])
        try:
            rest = rest[sock.send(rest, flags) :]
        except BlockingIOError:
            pass


# caproto 1.3.0 sends everything at once on a non-blocking socket, and fails when the socket's buffer is full.
socket.socket.sendall = send_with_patience

CONTEXT = Context()
PVS: dict[str, PV] = {}
#: Kept here, because caproto keeps only weak references to callbacks.
MONITORS: list[tuple[queue.Queue, Any, Any]] = []


def channel(pv: str, timeout: float = 10.0) -> PV:
    if pv not in PVS:
        (PVS[pv],) = CONTEXT.get_pvs(pv)
    PVS[pv].wait_for_connection(timeout=timeout)
    return PVS[pv]


def connect(pv: str, timeout: float) -> dict[str, Any]:
    found = channel(pv, timeout).channel
    return {
        "kind": found.native_data_type.name,
        "count": found.native_data_count,
        "may_write": bool(found.access_rights & AccessRights.WRITE),
    }


def get(pv: str, shape: str, timeout: float) -> dict[str, Any]:
    kinds = {"value": "time", "control": "control", "text": ChannelType.TIME_STRING, "long": "time"}
    found = channel(pv, timeout)
    made = sample(found.read(data_type=kinds[shape], timeout=timeout), is_array=found.channel.native_data_count != 1)
    if shape == "long":
        made["value"] = long_text(made["value"])
    return made


def put(pv: str, value: Any, wait: bool, timeout: float) -> dict[str, Any]:
    values = value if isinstance(value, list) else [value]
    kind = ChannelType.STRING if values and isinstance(values[0], str) else None
    if kind is not None:
        values = [text.encode() for text in values]
    response = channel(pv, timeout).write(values, data_type=kind, wait=wait, notify=wait, timeout=timeout)
    # Its write returns without an exception when the put is rejected.
    if wait and not response.status.success:
        raise PermissionError(f"{pv}: {response.status.description}")
    return {}


def put_pattern(pv: str, first: int, count: int, timeout: float) -> dict[str, Any]:
    channel(pv, timeout).write(pattern(first, count), wait=True, timeout=timeout)
    return {}


def monitor(pv: str, mask: int, timeout: float) -> dict[str, Any]:
    updates: queue.Queue = queue.Queue()
    found = channel(pv, timeout)
    is_array = found.channel.native_data_count != 1

    def update(_subscription: Any, response: Any) -> None:
        updates.put(sample(response, is_array))

    # The native count, caproto's default, would pad a shorter array.
    subscription = found.subscribe(data_type="time", data_count=0, mask=mask)
    MONITORS.append((updates, update, subscription))
    subscription.add_callback(update)
    return {"monitor": len(MONITORS) - 1}


def end_monitors() -> dict[str, Any]:
    for _, _, subscription in MONITORS:
        subscription.clear()
    return {}


def take(monitor: int, count: int, timeout: float) -> dict[str, Any]:
    deadline = time.monotonic() + timeout
    taken = []
    try:
        while len(taken) < count:
            taken.append(MONITORS[monitor][0].get(timeout=max(0.0, deadline - time.monotonic())))
    except queue.Empty:
        pass
    return {"updates": taken}


def sample(response: Any, is_array: bool) -> dict[str, Any]:
    value = shown(response.data)
    made: dict[str, Any] = {"value": value if is_array else value[0]}
    about = response.metadata
    for key in ("severity", "status", "precision"):
        if hasattr(about, key):
            made[key] = int(getattr(about, key))
    if hasattr(about, "stamp"):
        made["seconds"] = about.stamp.secondsSinceEpoch + EPICS_EPOCH_UNIX_S
        made["nanos"] = about.stamp.nanoSeconds
    if hasattr(about, "enum_strings"):
        made["labels"] = [shown(label) for label in about.enum_strings]
    if hasattr(about, "units"):
        made["units"] = shown(about.units)
        made["limits"] = [[getattr(about, f"{end}_{kind}_limit") for end in ("lower", "upper")] for kind in LIMITS]
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
