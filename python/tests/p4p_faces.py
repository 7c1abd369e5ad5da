"""A server of p4p for the tests of its interface. It runs in the environment of the peers.

Each PV is served by p4p itself. A put of a text to `F:control` closes and opens `F:number`, or posts to it many times.
"""

import sys

import numpy
from p4p import Type, Value
from p4p.nt import NTEnum, NTNDArray, NTScalar, NTTable
from p4p.server import Server, StaticProvider
from p4p.server.thread import SharedPV

ANY = Type([("number", "d"), ("any", "v"), ("choice", ("U", None, [("text", "s"), ("count", "i")]))], id="any_t")
ELEMENTS = Type([("rows", ("aS", None, [("name", "s"), ("size", "I")])), ("anys", "av")], id="rows_t")


class Writable:
    """Accepts every put, except of negative numbers."""

    def put(self, pv, operation):
        value = operation.value()
        if isinstance(value, float) and value < 0:
            operation.done(error="must not be negative")
            return
        pv.post(value)
        operation.done()


class Control:
    """Executes a command."""

    def put(self, _pv, operation):
        command, _, argument = str(operation.value().raw.value).partition(" ")
        number = pvs["number"]
        if command == "close":
            number.close()
        elif command == "open":
            number.open(float(argument))
        elif command == "post":
            for index in range(int(argument)):
                number.post(float(index))
        operation.done()


class Sum:
    """Adds two arguments."""

    def rpc(self, _pv, operation):
        query = operation.value().get("query")
        if query is None:
            operation.done()
        else:
            operation.done(NTScalar("d").wrap(query.lhs + query.rhs))


class Failure:
    """Refuses every call."""

    def rpc(self, _pv, operation):
        operation.done(error="not today")


table = NTTable([("time", "d"), ("name", "s")])
rows = [{"time": 0.5, "name": "a"}, {"time": 1.5, "name": "b"}]
pvs = {
    "number": SharedPV(nt=NTScalar("d", display=True), initial=1.5, handler=Writable()),
    "text": SharedPV(nt=NTScalar("s"), initial="first", handler=Writable()),
    "array": SharedPV(nt=NTScalar("ai"), initial=[1, 2, 3], handler=Writable()),
    "choice": SharedPV(nt=NTEnum(), initial={"index": 1, "choices": ["Off", "On"]}, handler=Writable()),
    "image": SharedPV(nt=NTNDArray(), initial=numpy.arange(6, dtype="u2").reshape(2, 3)),
    "table": SharedPV(initial=table.wrap(rows)),
    "anything": SharedPV(initial=Value(ANY, {"number": 1.5, "any": 3, "choice": ("text", "two")}), handler=Writable()),
    "elements": SharedPV(initial=Value(ELEMENTS, {"rows": [{"name": "a", "size": 1}]}), handler=Writable()),
    "sum": SharedPV(initial=NTScalar("d").wrap(0.0), handler=Sum()),
    "failure": SharedPV(initial=NTScalar("d").wrap(0.0), handler=Failure()),
    "read_only": SharedPV(nt=NTScalar("d"), initial=0.0),
    "control": SharedPV(nt=NTScalar("s"), initial="", handler=Control()),
}
provider = StaticProvider("faces")
for name, pv in pvs.items():
    provider.add("F:" + name, pv)

with Server(providers=[provider]):
    print("ready", flush=True)
    sys.stdin.read()
