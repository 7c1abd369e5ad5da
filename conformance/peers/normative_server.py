"""p4p's server with structures of all normative types: ``normative_server.py PREFIX``. It prints the names of its PVs."""

import sys
import threading
from typing import Any

import numpy as np
from ending import end_with_input
from p4p import Type, Value
from p4p.nt import NTURI, NTMultiChannel, NTNDArray, NTScalar, NTTable, alarm, timeStamp
from p4p.server import Server, StaticProvider
from p4p.server.thread import SharedPV

PREFIX = sys.argv[1]
META = [("descriptor", "s"), ("alarm", alarm), ("timeStamp", timeStamp)]
LARGE = 12345

#: The element types of images: code of p4p, type of numpy.
ELEMENTS = {
    "?": np.bool_,
    "b": np.int8,
    "B": np.uint8,
    "h": np.int16,
    "H": np.uint16,
    "i": np.int32,
    "I": np.uint32,
    "l": np.int64,
    "L": np.uint64,
    "f": np.float32,
    "d": np.float64,
}


def elements(dtype: Any, n: int) -> np.ndarray:
    """The extremes of the type, and numbers between them."""
    if dtype is np.bool_:
        return np.arange(n) % 3 == 0
    if np.issubdtype(dtype, np.floating):
        values = np.linspace(-1, 1, n).astype(dtype) / 3
        values[:4] = [np.nan, np.inf, -np.inf, np.finfo(dtype).max]
        return values
    info = np.iinfo(dtype)
    values = np.arange(n).astype(dtype)
    values[:2] = [info.min, info.max]
    return values


def structure(name: str, fields: list[tuple[str, Any]], /, **values: Any) -> Value:
    return Value(Type(fields, id=f"epics:nt/{name}:1.0"), values)


def with_meta(name: str, fields: list[tuple[str, Any]], /, **values: Any) -> Value:
    given = {
        "descriptor": "a \"quoted\" text",
        "alarm": {"severity": 1, "status": 3, "message": "µ"},
        "timeStamp": {"secondsPastEpoch": 1_800_000_000, "nanoseconds": 5, "userTag": 42},
    }
    return structure(name, [*fields, *META], **{**given, **values})


def table(columns: list[tuple[str, str]], labels: list[str], **values: Any) -> Value:
    return Value(NTTable.buildType(columns), {"labels": labels, "value": values})


def image(array: np.ndarray, /, **attributes: Any) -> Value:
    return NTNDArray().wrap(array, attrib=attributes, timestamp=1_800_000_000.5)


def compressed() -> Value:
    made = image(np.zeros((2, 3), dtype=np.uint8))
    made["value"] = ("ubyteValue", np.array([0xFF, 0xD8, 0xFF], dtype=np.uint8))
    made["codec.name"] = "jpeg"
    made["codec.parameters"] = ("i", 5)
    made["compressedSize"] = 3
    return made


def region() -> Value:
    made = image(np.zeros((2, 3), dtype=np.int16))
    width, height = made["dimension"]
    width["fullSize"], width["offset"], width["binning"], width["reverse"] = 640, 100, 2, True
    made["dimension"] = [width, height]
    return made


POINT = Type([("x", "d"), ("label", "s")], id="point_t")
POINT_OF = ("S", "point_t", [("x", "d"), ("label", "s")])
UNION = [("number", "d"), ("text", "s"), ("flags", "a?"), ("words", "as"), ("samples", "af"), ("point", POINT_OF)]


def point(x: float, label: str) -> Value:
    return Value(POINT, {"x": x, "label": label})


def union(value: Any) -> Value:
    # p4p cannot assign that nothing is selected; it is so at first.
    values = {} if value is None else {"value": value}
    return with_meta("NTUnion", [("value", ("U", None, UNION))], **values)


def variant(value: Any) -> Value:
    return with_meta("NTUnion", [("value", "v")], value=value)


ALL = [(name, f"a{code}") for code, name in zip(ELEMENTS, "abcdefghijk", strict=True)]
TABLES = {
    "table": table(
        [*ALL, ("text", "as")],
        [name.upper() for name, _ in ALL] + ["a text"],
        **{name: elements(dtype, 8) for (name, _), dtype in zip(ALL, ELEMENTS.values(), strict=True)},
        text=["", "two words", "\"quoted\"", "µ\n", "5", "6", "7", "8"],
    ),
    "table:empty": table([("a", "ad"), ("b", "as")], ["first", "second"]),
    "table:none": table([], []),
    "table:unlabelled": table([("a", "ai"), ("b", "ai")], [], a=[1, 2], b=[3, 4]),
    "table:uneven": table([("a", "ai"), ("b", "as")], ["a", "b"], a=[1, 2, 3], b=["one"]),
    "table:long": table([("a", "ai")], ["a"], a=np.arange(LARGE, dtype=np.int32)),
}
IMAGES = {
    **{f"image:{dtype.__name__}": image(elements(dtype, 12).reshape(3, 4)) for dtype in ELEMENTS.values()},
    "image:vector": image(np.arange(5.0), ColorMode=0),
    "image:colour": image(np.arange(60 * 40 * 3, dtype=np.uint8).reshape(60, 40, 3)),
    "image:attributes": image(
        np.zeros((2, 2), dtype=np.uint16),
        number=5,
        fraction=0.1,
        text="a word",
        array=np.arange(3, dtype=np.int16),
        words=["a", "b"],
        pv=NTScalar("d").wrap(1.5, timestamp=1_800_000_000.25),
        point=point(0.5, "p"),
        none=None,
    ),
    "image:compressed": compressed(),
    "image:region": region(),
    "image:empty": NTNDArray.buildType()(),
}
UNIONS = {
    "union:number": union(("number", 1.5)),
    "union:text": union(("text", "hi")),
    "union:flags": union(("flags", [True, False])),
    "union:words": union(("words", ["a", ""])),
    "union:samples": union(("samples", np.array([0.1, np.nan], dtype=np.float32))),
    "union:point": union(("point", {"x": 0.5, "label": "p"})),
    "union:empty": union(None),
    "variant:number": variant(1.5),
    "variant:text": variant("hi"),
    "variant:bool": variant(True),
    "variant:integer": variant(("L", 2**64 - 1)),
    "variant:array": variant(np.array([1.5, np.inf])),
    "variant:texts": variant(["a", "b"]),
    "variant:structure": variant(point(0.5, "p")),
    "variant:table": variant(TABLES["table"]),
    "variant:empty": variant(None),
    "arrays": Value(
        Type(
            [
                ("points", ("aS", "point_t", [("x", "d"), ("label", "s")])),
                ("unions", ("aU", None, UNION)),
                ("variants", "av"),
                ("nothing", ("aS", "point_t", [("x", "d"), ("label", "s")])),
            ],
            id="arrays_t",
        ),
        {
            "points": [{"x": 1.5, "label": "p"}, {"x": np.nan, "label": ""}],
            "unions": [("number", 1.5), ("text", "t"), ("words", ["a"])],
            "variants": [1.5, "text", np.array([1, 2], dtype=np.int32), point(0.5, "p")],
        },
    ),
}
CHANNELS = [("severity", "ai"), ("status", "ai"), ("message", "as"), ("secondsPastEpoch", "al"), ("nanoseconds", "ai")]
OTHERS = {
    "matrix": with_meta("NTMatrix", [("value", "ad"), ("dim", "ai")], value=np.arange(6.0), dim=[2, 3]),
    "uri": NTURI([("a", "d"), ("b", "s")]).wrap("x:y", kws={"a": 1.5, "b": "two"}, scheme="pva"),
    "name_value": with_meta("NTNameValue", [("name", "as"), ("value", "ad")], name=["a", "b"], value=[1.5, 2.5]),
    "attribute": with_meta("NTAttribute", [("name", "s"), ("value", "v"), ("tags", "as")], name="n", value=5, tags=["t"]),
    "multi_channel": Value(
        NTMultiChannel.buildType("av"),
        {"value": [1.5, "closed"], "channelName": ["x", "y"], "isConnected": [True, False], "severity": [0, 3]},
    ),
    "scalar_multi_channel": with_meta(
        "NTScalarMultiChannel",
        [("value", "ad"), ("channelName", "as"), *CHANNELS],
        value=[1.5, 2.5],
        channelName=["x", "y"],
        severity=[0, 2],
    ),
    "continuum": with_meta(
        "NTContinuum",
        [("base", "ad"), ("value", "ad"), ("units", "as")],
        base=[0.0, 1.0],
        value=np.arange(4.0),
        units=["s", "V", "A"],
    ),
    "histogram": with_meta("NTHistogram", [("ranges", "ad"), ("value", "al")], ranges=[0.0, 1.0, 2.0], value=[5, 2**62]),
    "aggregate": with_meta(
        "NTAggregate",
        [("value", "d"), ("N", "l"), ("dispersion", "d"), ("firstTimeStamp", timeStamp), ("max", "d"), ("min", "d")],
        value=1.5,
        N=3,
        dispersion=np.nan,
        max=2.0,
        min=1.0,
    ),
}
PVS = {**TABLES, **IMAGES, **UNIONS, **OTHERS}

provider = StaticProvider("structures")
for name, value in PVS.items():
    provider.add(PREFIX + name, SharedPV(initial=value))
server = Server(providers=[provider])
end_with_input()
print("ready", *(PREFIX + name for name in PVS), flush=True)
threading.Event().wait()
