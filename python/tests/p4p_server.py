"""A server of p4p with structures and procedures. It runs in the environment of the peers."""

import sys

import numpy
from p4p import Type, Value
from p4p.nt import NTNDArray, NTScalar, NTTable
from p4p.server import Server, StaticProvider
from p4p.server.thread import SharedPV

ANY = Type([("number", "d"), ("any", "v"), ("choice", ("U", None, [("text", "s"), ("count", "i")]))], id="any_t")

NESTED = Type(
    [
        ("rows", ("aS", "row_t", [("name", "s"), ("size", "i"), ("limits", ("S", None, [("low", "d"), ("high", "d")]))])),
        ("choice", ("U", None, [("text", "s"), ("count", "i"), ("samples", "ad")])),
        ("choices", ("aU", None, [("text", "s"), ("count", "i")])),
        ("any", "v"),
        ("anys", "av"),
    ],
    id="nested_t",
)


class Writable:
    """Accepts every put."""

    def put(self, pv, operation):
        pv.post(operation.value())
        operation.done()


class Sum:
    """Adds two arguments."""

    def rpc(self, pv, operation):
        query = operation.value().query
        operation.done(NTScalar("d").wrap(query.lhs + query.rhs))


class Failure:
    """Refuses every call."""

    def rpc(self, pv, operation):
        operation.done(error="not today")


table = NTTable([("time", "d"), ("name", "s")])
rows = [{"time": 0.5, "name": "a"}, {"time": 1.5, "name": "b"}]
image = numpy.arange(6, dtype="u2").reshape(2, 3)
anything = Value(ANY, {"number": 1.5, "any": 3, "choice": ("text", "two")})
pvs = {
    "table": SharedPV(initial=table.wrap(rows)),
    "image": SharedPV(nt=NTNDArray(), initial=image),
    "anything": SharedPV(initial=anything, handler=Writable()),
    "nested": SharedPV(initial=Value(NESTED), handler=Writable()),
    "sum": SharedPV(initial=NTScalar("d").wrap(0.0), handler=Sum()),
    "failure": SharedPV(initial=NTScalar("d").wrap(0.0), handler=Failure()),
}
provider = StaticProvider("structures")
for name, pv in pvs.items():
    provider.add("S:" + name, pv)

with Server(providers=[provider]):
    print("ready", flush=True)
    sys.stdin.read()
