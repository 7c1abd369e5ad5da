"""The PVs of the captured files in this folder: `python server.py`, with p4p 4.3.0. Their times are fixed."""
import sys

from p4p import Type, Value
from p4p.nt import NTEnum, NTScalar
from p4p.server import Server, StaticProvider
from p4p.server.raw import SharedPV

ALARM = {"severity": 0, "status": 0, "message": ""}
TIME = {"secondsPastEpoch": 1795000000, "nanoseconds": 123456000, "userTag": 0}

def scalar(code, value, alarm=ALARM, tag=0, **parts):
    kind = NTScalar.buildType(code, display=bool(parts), control=False, valueAlarm=False)
    return Value(kind, dict(value=value, alarm=alarm, timeStamp=dict(TIME, userTag=tag), **parts))

def enum(index, alarm=ALARM):
    return Value(NTEnum.buildType(), {"value": {"index": index, "choices": ["Off", "Switched on", "Bro\"ken"]},
                                      "alarm": alarm, "timeStamp": TIME})

def table():
    kind = Type([("labels", "as"), ("value", ("S", None, [("name", "as"), ("x", "ad"), ("n", "ai")])),
                 ("descriptor", "s"), ("alarm", ("S", "alarm_t", [("severity", "i"), ("status", "i"), ("message", "s")])),
                 ("timeStamp", ("S", "time_t", [("secondsPastEpoch", "l"), ("nanoseconds", "i"), ("userTag", "i")]))],
                id="epics:nt/NTTable:1.0")
    return Value(kind, {"labels": ["Name", "Position in mm", "n"],
                        "value": {"name": ["first", "the second", "x,y"], "x": [1.5, -2.25, 1e10], "n": [1, 20, 300]},
                        "descriptor": "a table", "alarm": ALARM, "timeStamp": TIME})

POINT = ("S", "point_t", [("x", "d"), ("y", "d")])
def mixed():
    kind = Type([("flag", "?"), ("small", "b"), ("usmall", "B"), ("big", "l"), ("ubig", "L"), ("single", "f"), ("name", "s"),
                 ("flags", "a?"), ("bytes", "ab"), ("ubytes", "aB"), ("names", "as"),
                 ("point", POINT), ("choice", ("U", "choice_t", [("number", "d"), ("text", "s"), ("point", POINT), ("list", "ai")])),
                 ("none", ("U", None, [("number", "d"), ("text", "s")])),
                 ("any", "v"), ("empty", "v"), ("points", ("aS", "point_t", POINT[2])),
                 ("choices", ("aU", None, [("number", "d"), ("text", "s")])), ("anys", "av"),
                 ("mode", ("S", "enum_t", [("index", "i"), ("choices", "as")])),
                 ("state", ("S", "alarm_t", [("severity", "i"), ("status", "i"), ("message", "s")])),
                 ("when", ("S", "time_t", [("secondsPastEpoch", "l"), ("nanoseconds", "i"), ("userTag", "i")]))], id="mixed_t")
    point = Type(POINT[2], id="point_t")
    return Value(kind, {"flag": True, "small": -5, "usmall": 200, "big": -2**40, "ubig": 2**63 + 1, "single": 0.1, "name": "it's \"q\"\t\\ é",
                        "flags": [True, False], "bytes": [-1, 0, 65], "ubytes": [0, 65, 255], "names": ["one", "two words", ""],
                        "point": {"x": 1.5, "y": -2.0}, "choice": ("point", {"x": 3.0, "y": 4.0}), 
                        "any": 42,
                        "points": [{"x": 0.5, "y": 1.0}, {"x": 1e-7, "y": 1e20}],
                        "choices": [("number", 1.5), ("text", "a b")], "anys": [7, "text"],
                        "mode": {"index": 1, "choices": ["Slow", "Fast"]},
                        "state": {"severity": 1, "status": 3, "message": "LOW"},
                        "when": dict(TIME, userTag=42)})

def plain():
    kind = Type([("a", "i"), ("b", ("S", None, [("c", "d"), ("d", "as")])), ("choice", ("U", None, [("number", "d"), ("text", "s")]))])
    return Value(kind, {"a": 1, "b": {"c": 2.5, "d": ["x"]}, "choice": ("text", "hi")})

MAJOR = {"severity": 2, "status": 3, "message": "HIHI"}
START = {
    "g:double": lambda: scalar("d", 1.5, display={"limitLow": -10.0, "limitHigh": 10.0, "description": "a number", "units": "mm"}),
    "g:major": lambda: scalar("d", 99.0, MAJOR, 7),
    "g:pi": lambda: scalar("d", 3.141592653589793),
    "g:large": lambda: scalar("d", 1.23456789e20),
    "g:nan": lambda: scalar("d", float("nan"), {"severity": 3, "status": 6, "message": "UDF"}),
    "g:inf": lambda: scalar("d", float("-inf")),
    "g:float": lambda: scalar("f", 0.1),
    "g:long": lambda: scalar("i", -42),
    "g:int64": lambda: scalar("l", 1234567890123),
    "g:bool": lambda: scalar("?", True),
    "g:byte": lambda: scalar("b", 65),
    "g:string": lambda: scalar("s", "two words"),
    "g:quotes": lambda: scalar("s", "it's \"q\" \\ t\tu\x7f é"),
    "g:nothing": lambda: scalar("s", ""),
    "g:enum": lambda: enum(1),
    "g:enum:bad": lambda: enum(7, {"severity": 4, "status": 1, "message": ""}),
    "g:array": lambda: scalar("ad", [1.0, 2.5, -3e10]),
    "g:array:one": lambda: scalar("ai", [7], MAJOR),
    "g:array:long": lambda: scalar("ai", list(range(25))),
    "g:array:empty": lambda: scalar("ad", []),
    "g:bytes": lambda: scalar("aB", [1, 65, 255]),
    "g:strings": lambda: scalar("as", ["one", "two words", "say \"three\""]),
    "g:table": table,
    "g:mixed": mixed,
    "g:plain": plain,
    "g:undated": lambda: Value(NTScalar.buildType("d"), {"value": 1.0}),
    "g:target": lambda: scalar("d", 2.0),
    "g:target:enum": lambda: enum(0),
    "g:target:array": lambda: scalar("ad", [1.0]),
    "g:target:string": lambda: scalar("s", "old"),
    "g:target:plain": plain,
    "g:target:long": lambda: scalar("i", 1),
}

class Store:
    def put(self, pv, op):
        # Only the fields that were sent; the time stays.
        new = pv.current()
        new.unmark()
        sent = op.value()
        for name in sent.changedSet():
            new[name] = sent[name]
        pv.post(new)
        op.done()

class Add:
    def rpc(self, pv, op):
        query = op.value().query
        op.done(scalar("d", float(query.lhs) + float(query.rhs)))

class Echo:
    def rpc(self, pv, op):
        op.done(op.value())

class Fail:
    def rpc(self, pv, op):
        op.done(error="this call always fails")

class Nothing:
    def rpc(self, pv, op):
        op.done()

provider = StaticProvider("golden")
pvs = {}
for name, start in START.items():
    pvs[name] = SharedPV(initial=start(), handler=Store())
    provider.add(name, pvs[name])
for name, handler in (("g:add", Add()), ("g:echo", Echo()), ("g:fail", Fail()), ("g:void", Nothing())):
    pvs[name] = SharedPV(initial=scalar("d", 0.0), handler=handler)
    provider.add(name, pvs[name])
with Server(providers=[provider]) as server:
    conf = server.conf()
    print(conf["EPICS_PVAS_SERVER_PORT"], conf["EPICS_PVAS_BROADCAST_PORT"], flush=True)
    sys.stdin.read()
