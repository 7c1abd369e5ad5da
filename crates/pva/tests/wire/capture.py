"""Records the traffic between a small client and two IOCs in the files of this folder.

Needs the packages pvxslibs (QSRV2) and epicscorelibs (QSRV1). Uses only loopback; every address is
set below. To keep your host name out of the files, run it in separate namespaces:

    unshare -rnu sh -c 'ip link set lo up; hostname desk; python capture.py'

The client is this program: it sends each request below and records all replies until the server is
silent. Each line of a file is one frame, or one datagram. To record only some files, name them as
arguments. After a capture, generate the lines with the decoded messages with
`WIRE_BLESS=1 cargo test -p fodo-pva --test wire` and review them.
"""

from __future__ import annotations

import os
import platform
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).parent
LOOPBACK = "127.0.0.1"
# The servers reply within a few milliseconds.
SILENCE_S = 0.3

DATABASE = """
record(ao, "w:double") {
  field(VAL, "1.5") field(PREC, "3") field(EGU, "mm") field(PINI, "YES") field(DESC, "a position")
  field(HOPR, "10") field(LOPR, "-10") field(DRVH, "70") field(DRVL, "-70")
  field(HIHI, "9") field(HIGH, "8") field(LOW, "-8") field(LOLO, "-9")
  field(HHSV, "MAJOR") field(HSV, "MINOR") field(LSV, "MINOR") field(LLSV, "MAJOR")
  info(Q:form, "Exponential")
}
record(longout, "w:long") { field(VAL, "-100000") field(EGU, "counts") field(PINI, "YES") }
record(int64out, "w:int64") { field(VAL, "4294967296") field(PINI, "YES") }
record(stringout, "w:string") { field(VAL, "a string") field(PINI, "YES") field(DESC, "a text") }
record(mbbo, "w:enum") {
  field(ZRST, "closed") field(ONST, "opening") field(TWST, "open")
  field(ZRVL, "0") field(ONVL, "1") field(TWVL, "2") field(VAL, "2") field(PINI, "YES")
}
record(waveform, "w:doubles") { field(FTVL, "DOUBLE") field(NELM, "20000") field(PREC, "2") field(EGU, "K") }
record(waveform, "w:chars") { field(FTVL, "CHAR") field(NELM, "40") }
record(waveform, "w:strings") { field(FTVL, "STRING") field(NELM, "3") }
record(waveform, "w:shorts") { field(FTVL, "SHORT") field(NELM, "5") }
record(ai, "w:x") {
  field(VAL, "2.5") field(PINI, "YES")
  info(Q:group, {
    "w:group": { "+id": "example:group",
      "x": { "+channel": "VAL" }, "any": { "+type": "any", "+channel": "VAL" },
      "plain": { "+type": "plain", "+channel": "VAL", "+putorder": 1 },
      "list[1].name": { "+type": "plain", "+channel": "DESC" } } })
}
"""

Frame = tuple[str, bytes]


def size(n: int) -> bytes:
    return bytes([n]) if n < 254 else b"\xfe" + struct.pack("<i", n)


def text(s: str) -> bytes:
    return size(len(s)) + s.encode()


def members(**kinds: bytes) -> bytes:
    return b"\x80\0" + size(len(kinds)) + b"".join(text(name) + kind for name, kind in kinds.items())


def request(fields: list[str] | None = None, **options: str) -> bytes:
    """A pvRequest: type and value."""
    kinds = {"field": members(**{name: members() for name in fields or []})}
    if options:
        kinds["record"] = members(_options=members(**{name: b"\x60" for name in options}))
    return members(**kinds) + b"".join(text(value) for value in options.values())


class Recording:
    """One circuit or one exchange of datagrams, to be written to a file."""

    def __init__(self, name: str, server: str, is_stream: bool = True) -> None:
        self.path = HERE / f"{name}.txt"
        self.server = server
        self.is_stream = is_stream
        self.lines: list[str] = []

    def add(self, way: str, frame: bytes) -> None:
        self.lines.append(f"{way} {pack(frame)}")

    def note(self, note: str) -> None:
        self.lines.append(f"# {note}")

    def save(self) -> None:
        head = [
            f"# {'Circuit' if self.is_stream else 'Datagrams'}: > from the client, < from the server.",
            f"# Server: {self.server}.",
            "# Client: capture.py, which contains the database.",
            "# = and ~ lines from WIRE_BLESS, then reviewed.",
        ]
        self.path.write_text("\n".join(head + self.lines) + "\n")


def pack(frame: bytes) -> str:
    """Hex in groups of 8 bytes; `00*40` for zeros."""
    out, at = [], 0
    while at < len(frame):
        n_zeros = len(frame[at:]) - len(frame[at:].lstrip(b"\0"))
        if n_zeros >= 24:
            out.append(f"00*{n_zeros}")
            at += n_zeros
            continue
        out.append(frame[at : at + 8].hex())
        at += 8
    return " ".join(out)


class Circuit:
    """A connection of the client, which records every frame."""

    def __init__(self, recording: Recording, port: int) -> None:
        self.recording = recording
        self.socket = socket.create_connection((LOOPBACK, port))
        self.partial = b""
        self.sids: dict[str, int] = {}
        self.next_id = 0x1000

    def receive(self, first_s: float = SILENCE_S) -> list[bytes]:
        """All frames until the server is silent."""
        frames = []
        while True:
            self.socket.settimeout(SILENCE_S if frames else first_s)
            try:
                piece = self.socket.recv(65536)
            except TimeoutError:
                return frames
            if not piece:
                self.recording.note("The server closes the circuit.")
                return frames
            self.partial += piece
            while (n := frame_bytes(self.partial)) is not None:
                self.recording.add("<", self.partial[:n])
                frames.append(self.partial[:n])
                self.partial = self.partial[n:]

    def send(self, command: int, payload: bytes, flags: int = 0) -> list[bytes]:
        order = ">" if flags & 0x80 else "<"
        frame = struct.pack(order + "BBBBI", 0xCA, 2, flags, command, len(payload)) + payload
        self.recording.add(">", frame)
        self.socket.sendall(frame)
        return self.receive()

    def validate(self, method: str = "ca") -> None:
        # QSRV1 accepts one client after the other.
        self.receive(20)
        user = members(user=b"\x60", host=b"\x60") + text("operator") + text(LOOPBACK)
        self.send(1, struct.pack("<IHH", 0x10000, 0x7FFF, 0) + text(method) + (user if method == "ca" else b"\xff"))

    def create(self, name: str) -> None:
        self.next_id += 1
        for frame in self.send(7, struct.pack("<HI", 1, self.next_id) + text(name)):
            if frame[3] == 7:
                self.sids[name] = struct.unpack("<I", frame[12:16])[0]

    def start(self, command: int, name: str, pv_request: bytes, sub: int = 0x08) -> int:
        self.next_id += 1
        self.send(command, struct.pack("<IIB", self.sids[name], self.next_id, sub) + pv_request)
        return self.next_id

    def go(self, command: int, name: str, ioid: int, sub: int = 0, body: bytes = b"") -> None:
        self.send(command, struct.pack("<IIB", self.sids[name], ioid, sub) + body)

    def end(self, name: str, ioid: int) -> None:
        self.send(15, struct.pack("<II", self.sids[name], ioid))

    def get_field(self, name: str, sub_field: str = "") -> None:
        self.next_id += 1
        self.send(17, struct.pack("<II", self.sids[name], self.next_id) + text(sub_field))


def frame_bytes(stream: bytes) -> int | None:
    if len(stream) < 8:
        return None
    if stream[2] & 1:
        return 8
    n = 8 + struct.unpack(">I" if stream[2] & 0x80 else "<I", stream[4:8])[0]
    return n if len(stream) >= n else None


def greetings(circuit: Circuit) -> None:
    circuit.validate("anonymous")
    circuit.send(2, b"echo")
    circuit.create("w:double")
    sid, cid = circuit.sids["w:double"], circuit.next_id
    circuit.send(8, struct.pack("<II", sid, cid))


def gets(circuit: Circuit) -> None:
    circuit.validate()
    names = ["double", "long", "int64", "string", "enum", "doubles", "chars", "strings", "shorts"]
    for name in (f"w:{name}" for name in names):
        circuit.create(name)
        ioid = circuit.start(10, name, request())
        circuit.go(10, name, ioid)
        circuit.end(name, ioid)
        circuit.get_field(name)
    circuit.recording.note("A selection, and a sub-field.")
    ioid = circuit.start(10, "w:double", request(["alarm", "timeStamp"]))
    circuit.go(10, "w:double", ioid, 0x10)
    circuit.get_field("w:double", "alarm")


PUTS = [
    ("w:double", struct.pack("<d", 1.25)),
    ("w:long", struct.pack("<i", -7)),
    ("w:string", text("another text")),
    ("w:doubles", b"\x02" + struct.pack("<2d", 1.5, -2.5)),
    ("w:chars", b"\x03abc"),
    ("w:strings", b"\x02" + text("one") + text("two")),
    ("w:shorts", b"\x02" + struct.pack("<2h", 1, -2)),
]


def puts(circuit: Circuit) -> None:
    circuit.validate()
    for name, value in PUTS:
        circuit.create(name)
        ioid = circuit.start(11, name, request(["value"]))
        circuit.go(11, name, ioid, 0, b"\x01\x02" + value)
        circuit.go(11, name, ioid, 0x40)
        circuit.end(name, ioid)
    circuit.recording.note("The index of an enum; with completion.")
    circuit.create("w:enum")
    ioid = circuit.start(11, "w:enum", request(["value"], process="true", block="true"))
    circuit.go(11, "w:enum", ioid, 0x10, b"\x01\x04" + struct.pack("<i", 1))


def large(circuit: Circuit) -> None:
    circuit.validate()
    circuit.create("w:doubles")
    ioid = circuit.start(11, "w:doubles", request(["value"]))
    circuit.go(11, "w:doubles", ioid, 0, b"\x01\x02" + size(20000) + bytes(160000))
    ioid = circuit.start(10, "w:doubles", request())
    circuit.go(10, "w:doubles", ioid)


def monitors(circuit: Circuit) -> None:
    circuit.validate()
    for name in ("w:double", "w:enum"):
        circuit.create(name)
    put = circuit.start(11, "w:double", request(["value"]))

    def change(value: float) -> None:
        circuit.go(11, "w:double", put, 0, b"\x01\x02" + struct.pack("<d", value))

    monitor = circuit.start(13, "w:double", request())
    circuit.go(13, "w:double", monitor, 0x44)
    circuit.recording.note("Values without alarm, with alarms, and without again.")
    for value in (2.0, 3.0, 8.5, 9.5, 2.0):
        change(value)
    circuit.recording.note("Stopped, and started again.")
    circuit.go(13, "w:double", monitor, 0x04)
    change(4.0)
    circuit.go(13, "w:double", monitor, 0x44)
    circuit.end("w:double", monitor)
    circuit.recording.note("With flow control: two updates, then one more.")
    monitor = circuit.start(13, "w:double", request(pipeline="true", queueSize="4"))
    circuit.go(13, "w:double", monitor, 0x80, struct.pack("<I", 2))
    circuit.go(13, "w:double", monitor, 0x44)
    for value in (5.0, 6.0, 7.0):
        change(value)
    circuit.go(13, "w:double", monitor, 0x80, struct.pack("<I", 1))
    circuit.go(13, "w:double", monitor, 0x10)
    circuit.recording.note("An enum.")
    monitor = circuit.start(13, "w:enum", request(["value", "alarm"]))
    circuit.go(13, "w:enum", monitor, 0x44)


def rpc(circuit: Circuit) -> None:
    circuit.validate()
    circuit.create("server")
    call = circuit.start(20, "server", request())
    uri = b"\x80" + text("epics:nt/NTURI:1.0") + b"\x03"
    uri += text("scheme") + b"\x60" + text("path") + b"\x60" + text("query") + members(op=b"\x60")
    for op in ("channels", "help", "nonsense"):
        circuit.go(20, "server", call, 0, uri + text("pva") + text("server") + text(op))


def groups(circuit: Circuit) -> None:
    circuit.validate()
    circuit.create("w:group")
    ioid = circuit.start(10, "w:group", request())
    circuit.go(10, "w:group", ioid)
    ioid = circuit.start(13, "w:group", request())
    circuit.go(13, "w:group", ioid, 0x44)
    ioid = circuit.start(11, "w:group", request(["plain"]))
    circuit.get_field("w:group")


def failures(circuit: Circuit) -> None:
    circuit.validate()
    for name in ("w:double", "w:enum", "w:absent"):
        circuit.create(name)
    circuit.recording.note("A field that does not exist.")
    circuit.start(10, "w:double", request(["absent"]))
    circuit.recording.note("A state that does not exist.")
    put = circuit.start(11, "w:enum", request(["value"]))
    circuit.go(11, "w:enum", put, 0, b"\x01\x04" + struct.pack("<i", 99))
    circuit.recording.note("Put-get, array and process.")
    for command in (12, 14, 16):
        ioid = circuit.start(command, "w:double", request())
    circuit.go(16, "w:double", ioid)
    circuit.recording.note("Operations that do not exist.")
    circuit.send(21, struct.pack("<II", circuit.sids["w:double"], 0x7777))
    circuit.end("w:double", 0x7777)
    circuit.send(99, b"unknown")


def unknown_method(circuit: Circuit) -> None:
    circuit.validate("unheard-of")


def big_endian(circuit: Circuit) -> None:
    circuit.validate()
    circuit.create("w:double")
    sid = circuit.sids["w:double"]
    circuit.send(10, struct.pack(">IIB", sid, 0x5678, 8) + request(), 0x80)
    circuit.send(10, struct.pack(">IIB", sid, 0x5678, 0x10), 0x80)


def tcp_search(circuit: Circuit) -> None:
    circuit.validate()
    circuit.send(3, search([(42, "w:double"), (43, "w:absent")], 0))
    circuit.send(3, search([(43, "w:absent")], 0))


def search(names: list[tuple[int, str]], port: int, flags: int = 0x01) -> bytes:
    where = bytes(10) + b"\xff\xff" + (socket.inet_aton(LOOPBACK) if port else bytes(4))
    found = b"".join(struct.pack("<I", cid) + text(name) for cid, name in names)
    head = struct.pack("<IB3x", 7, flags) + where + struct.pack("<H", port)
    return head + b"\x01" + text("tcp") + struct.pack("<H", len(names)) + found


def datagrams(recording: Recording, udp_port: int, beacon: bytes) -> None:
    recording.add("<", beacon)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.bind((LOOPBACK, 0))
        client.settimeout(SILENCE_S)
        port = client.getsockname()[1]
        for names in ([(42, "w:double"), (43, "w:absent")], [(43, "w:absent")], []):
            payload = search(names, port, 0x01)
            frame = struct.pack("<BBBBI", 0xCA, 2, 0, 3, len(payload)) + payload
            recording.add(">", frame)
            client.sendto(frame, (LOOPBACK, udp_port))
            try:
                while True:
                    recording.add("<", client.recv(65536))
            except TimeoutError:
                pass


SCENES: dict[str, Callable[[Circuit], None]] = {
    "greetings": greetings, "gets": gets, "puts": puts, "large": large, "monitors": monitors, "rpc": rpc,
    "groups": groups, "failures": failures, "unknown-method": unknown_method,
    "big-endian": big_endian, "tcp-search": tcp_search,
}  # fmt: skip
SERVERS = {
    "qsrv2": ("pvxslibs.ioc", f"QSRV2 of pvxs (pvxslibs {version('pvxslibs')}, {platform.system()})"),
    "qsrv1": ("epicscorelibs.ioc", f"QSRV1 of EPICS 7.0.10 (epicscorelibs {version('epicscorelibs')}, {platform.system()})"),
}
# QSRV1 closes the circuit of a client with another byte order, and does not reply to searches over TCP.
ONLY_QSRV2 = {"big-endian", "tcp-search"}


def free_port(kind: socket.SocketKind) -> int:
    with socket.socket(socket.AF_INET, kind) as probe:
        probe.bind((LOOPBACK, 0))
        return probe.getsockname()[1]


@contextmanager
def ioc(module: str) -> Iterator[tuple[int, int, bytes]]:
    """Runs an IOC; its TCP and UDP ports, and its first beacon."""
    tcp_port, udp_port = free_port(socket.SOCK_STREAM), free_port(socket.SOCK_DGRAM)
    ca_port = free_port(socket.SOCK_STREAM)
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as beacons:
        beacons.bind((LOOPBACK, 0))
        beacons.settimeout(20)
        path = Path(folder) / "wire.db"
        path.write_text(DATABASE)
        own = {
            "EPICS_PVAS_SERVER_PORT": str(tcp_port), "EPICS_PVAS_BROADCAST_PORT": str(udp_port),
            "EPICS_PVAS_INTF_ADDR_LIST": LOOPBACK, "EPICS_PVAS_AUTO_BEACON_ADDR_LIST": "NO",
            "EPICS_PVAS_BEACON_ADDR_LIST": f"{LOOPBACK}:{beacons.getsockname()[1]}",
            "EPICS_PVA_ADDR_LIST": LOOPBACK, "EPICS_PVA_AUTO_ADDR_LIST": "NO",
            "EPICS_PVA_SERVER_PORT": str(tcp_port), "EPICS_PVA_BROADCAST_PORT": str(udp_port),
            "EPICS_CAS_INTF_ADDR_LIST": LOOPBACK, "EPICS_CAS_SERVER_PORT": str(ca_port),
            "EPICS_CAS_BEACON_ADDR_LIST": "", "EPICS_CAS_AUTO_BEACON_ADDR_LIST": "NO",
        }  # fmt: skip
        command = [sys.executable, "-m", module, "-d", str(path)]
        process = subprocess.Popen(
            command, env={**os.environ, **own}, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
        )
        try:
            yield tcp_port, udp_port, beacons.recv(65536)
        finally:
            process.kill()
            process.wait()


def main() -> None:
    chosen = sys.argv[1:]
    for server, (module, what) in SERVERS.items():
        names = [f"{server}-{scene}" for scene in [*SCENES, "datagrams"]]
        if chosen and not set(names) & set(chosen):
            continue
        with ioc(module) as (tcp_port, udp_port, beacon):
            for name in names:
                scene = name.partition("-")[2]
                if (chosen and name not in chosen) or (server == "qsrv1" and scene in ONLY_QSRV2):
                    continue
                recording = Recording(name, what, is_stream=scene != "datagrams")
                if scene == "datagrams":
                    datagrams(recording, udp_port, beacon)
                else:
                    circuit = Circuit(recording, tcp_port)
                    SCENES[scene](circuit)
                    circuit.socket.close()
                recording.save()
                print(name)


main()
