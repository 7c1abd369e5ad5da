"""p4p's server with values in Python: ``p4p_server.py PREFIX``."""

import sys
import threading
import time
from typing import Any

import numpy as np
from ending import end_with_input
from p4p import Type, Value
from p4p.nt import NTEnum, NTScalar, NTTable, alarm, timeStamp
from p4p.server import Server, ServerOperation, StaticProvider
from p4p.server.thread import SharedPV

PREFIX = sys.argv[1]
STATES = ["zero", "one", "two"]
N_COUNTERS = 50
TICK_S = 0.1


class Mailbox:
    """Stores what a client puts."""

    def put(self, pv: SharedPV, operation: ServerOperation) -> None:
        pv.post(operation.value(), timestamp=time.time())
        operation.done()


class Slow:
    """Ends a put 0.3 s later, when the other PV has the value."""

    def put(self, pv: SharedPV, operation: ServerOperation) -> None:
        pv.post(operation.value(), timestamp=time.time())

        def finish() -> None:
            PVS["slow:done"].post(float(operation.value()), timestamp=time.time())
            operation.done()

        threading.Timer(0.3, finish).start()


class Locked:
    """Refuses every put."""

    def put(self, pv: SharedPV, operation: ServerOperation) -> None:
        operation.done(error="this value is read-only")


class Raw:
    """Stores the fields that a client puts, of any type."""

    def put(self, pv: SharedPV, operation: ServerOperation) -> None:
        pv.post(stamped(operation.value()))
        operation.done()


class Counted:
    """Stores the fields that a client puts, and counts the puts."""

    n_puts = 0

    def put(self, pv: SharedPV, operation: ServerOperation) -> None:
        value = operation.value()
        fields = sorted(name for name in ("a", "b") if value.changed(name))
        self.n_puts += 1
        value["n_puts"] = self.n_puts
        value["fields"] = " ".join(fields)
        value["process"] = str(operation.pvRequest().get("record._options.process", ""))
        pv.post(value)
        operation.done()


class Sum:
    """Adds two arguments."""

    def rpc(self, pv: SharedPV, operation: ServerOperation) -> None:
        # Programs without types, such as pvcall and `fodo call`, send texts.
        query = operation.value().query
        operation.done(NTScalar("d").wrap(float(query.lhs) + float(query.rhs)))


def stamped(value: Value) -> Value:
    seconds, fraction = divmod(time.time(), 1)
    value["timeStamp"] = {"secondsPastEpoch": int(seconds), "nanoseconds": int(fraction * 1e9)}
    return value


def structure(kind: Type, initial: dict[str, Any]) -> SharedPV:
    return SharedPV(handler=Raw(), initial=stamped(Value(kind, initial)))


def union(kind: Any, value: Any) -> SharedPV:
    members = [("value", kind), ("alarm", alarm), ("timeStamp", timeStamp)]
    return structure(Type(members, id="epics:nt/NTUnion:1.0"), {"value": value})


def scalar(code: str, value: Any, handler: Any = None, **fields: Any) -> SharedPV:
    is_number = code != "s"
    made = NTScalar(code, display=True, control=is_number, valueAlarm=is_number, form=is_number)
    return opened(made, {"value": value, **fields}, handler)


def array(code: str, value: Any) -> SharedPV:
    return opened(NTScalar(f"a{code}"), {"value": value}, None)


def enum(labels: list[str], index: int) -> SharedPV:
    return opened(NTEnum(), {"value": {"index": index, "choices": labels}}, None)


def opened(shape: Any, initial: dict[str, Any], handler: Any) -> SharedPV:
    pv = SharedPV(handler=handler or Mailbox(), nt=shape)
    pv.open(shape.type(initial), timestamp=time.time())
    return pv


LIMITS = {
    "display": {"limitLow": -10.0, "limitHigh": 10.0, "units": "mm", "precision": 3},
    "control": {"limitLow": -10.0, "limitHigh": 10.0},
    "valueAlarm": {
        "lowAlarmLimit": -8.0,
        "highAlarmLimit": 8.0,
        "lowWarningLimit": -6.0,
        "highWarningLimit": 6.0,
    },
}

PVS: dict[str, SharedPV] = {
    "ai": scalar("d", 2.5, **LIMITS),
    "ao": scalar("d", -1.25),
    "bi": enum(["off", "on"], 1),
    "bo": enum(["off", "on"], 0),
    "longin": scalar("i", 7),
    "longout": scalar("i", -7),
    "int64out": scalar("l", -4294967296),
    "stringin": scalar("s", "hello"),
    "stringout": scalar("s", "world"),
    "mbbi": enum(STATES, 2),
    "mbbo": enum(STATES, 1),
    "wf_STRING": array("s", []),
    "wf_CHAR": array("b", []),
    "wf_UCHAR": array("B", []),
    "wf_SHORT": array("h", []),
    "wf_USHORT": array("H", []),
    "wf_LONG": array("i", []),
    "wf_ULONG": array("I", []),
    "wf_INT64": array("l", []),
    "wf_UINT64": array("L", []),
    "wf_FLOAT": array("f", []),
    "wf_DOUBLE": array("d", []),
    "huge": array("i", np.zeros(1, dtype=np.int32)),
    "slow": scalar("d", 0.0, Slow()),
    "slow:done": scalar("d", 0.0),
    "locked": scalar("i", 5, Locked()),
    "table": structure(
        NTTable.buildType([("name", "as"), ("position", "ad")]),
        {"labels": ["name", "position"], "value": {"name": ["left", "right"], "position": [-1.5, 2.5]}},
    ),
    "union": union(("U", None, [("flag", "?"), ("number", "d"), ("text", "s")]), ("number", 1.5)),
    "variant": union("v", 1.5),
    "raw": structure(NTScalar.buildType("d", display=True), {"value": 1.5, "display": {"units": "mm"}}),
    "pair": SharedPV(
        handler=Counted(),
        initial=Value(Type([("a", "d"), ("b", "d"), ("n_puts", "i"), ("fields", "s"), ("process", "s")])),
    ),
    "add": SharedPV(handler=Sum()),
    **{f"count{index:02}": scalar("d", 0.0) for index in range(N_COUNTERS)},
}


def count() -> None:
    n = 0
    due = time.monotonic()
    while True:
        due += TICK_S
        time.sleep(max(0.0, due - time.monotonic()))
        n += 1
        for index in range(N_COUNTERS):
            PVS[f"count{index:02}"].post(float(n), timestamp=time.time())


provider = StaticProvider("values")
for name, pv in PVS.items():
    provider.add(PREFIX + name, pv)
server = Server(providers=[provider])
threading.Thread(target=count, daemon=True).start()
end_with_input()
print("ready", flush=True)
threading.Event().wait()
