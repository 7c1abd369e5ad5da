"""A client of p4p for a server of the package. It runs in the environment of the peers and prints what it receives."""

import json
import sys
from queue import Queue

import numpy
from p4p.client.thread import Context, Disconnected
from p4p.nt import NTTable, NTURI

received = {}
with Context("pva") as context:
    number = context.get("N:number")
    received["number"] = [float(number), number.severity, number.raw.display.units, number.raw.alarm.message]
    context.put("N:number", 4.5)
    received["put"] = float(context.get("N:number"))
    try:
        context.put("N:number", -1.0)
    except Exception as error:
        received["refused"] = str(error)
    received["choice"] = str(context.get("N:choice"))
    received["names"] = list(context.get("N:names"))
    table = context.get("N:table")
    received["table"] = [dict(row) for row in NTTable.unwrap(table)]
    image = context.get("N:image")
    received["image"] = [str(image.dtype), numpy.asarray(image).tolist()]
    everything = context.get("N:everything", request="field()")
    received["everything"] = everything.todict()
    context.put("N:everything", {"text": "short", "points": [{"x": 1.0}, {"x": 2.0}]})
    received["changed"] = context.get("N:everything").todict()["points"]
    arguments = NTURI([("a", "d"), ("b", "d")])
    received["sum"] = float(context.rpc("N:sum", arguments.wrap("N:sum", kws={"a": 1.5, "b": 2})))
    try:
        context.rpc("N:failure", arguments.wrap("N:failure", kws={"a": 1, "b": 2}))
    except Exception as error:
        received["failure"] = str(error)
    received["silent"] = context.rpc("N:silent", arguments.wrap("N:silent", kws={"a": 1, "b": 2}))
    events = Queue()
    subscription = context.monitor("N:closing", events.put, notify_disconnect=True)
    kinds = []
    while len(kinds) < 3:
        event = events.get(timeout=20)
        kind = "disconnected" if isinstance(event, Disconnected) else float(event)
        if kinds[-1:] != [kind] and (kinds or kind != "disconnected"):
            kinds.append(kind)
            print("event", kind, flush=True)
        if kind == 1.5:
            context.put("N:close", 1.0, wait=False)
    received["closing"] = kinds
    subscription.close()
    context.put("N:noted", 1.5, request="record[block=true,answer=42]")
    context.put("N:noted_text", {"text": "two"}, request="field(text)record[answer=43]")
    received["noted"] = [float(context.get("N:noted")), context.get("N:noted_text").text]
print(json.dumps(received), flush=True)
sys.stdout.flush()
