"""Records the traffic between libca and softIoc in the files of this folder.

Needs the package epicscorelibs. Uses only loopback; every address is set below. To keep your host
and user names out of the files, run it in separate namespaces:

    unshare -rnu sh -c 'ip link set lo up; hostname desk; python capture.py'

A proxy forwards TCP and UDP between the two: client -> proxy -> softIoc. It records the received
bytes, one line for each message (or datagram). Only in the forwarded copy it replaces the address
in search replies by its own. To record only some scenes, name them as arguments. After a capture,
generate the lines with the decoded messages with `WIRE_BLESS=1 cargo test -p fodo-ca --test wire`
and review them.
"""

from __future__ import annotations

import ctypes
import os
import platform
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).parent
LOOPBACK = "127.0.0.1"
DATABASE = """
record(ao, "w:double") {
  field(VAL, "1.5") field(PREC, "3") field(EGU, "mm") field(PINI, "YES")
  field(HOPR, "10") field(LOPR, "-10") field(DRVH, "7") field(DRVL, "-7")
  field(HIHI, "9") field(HIGH, "1") field(LOW, "-8") field(LOLO, "-9")
  field(HHSV, "MAJOR") field(HSV, "MINOR") field(LSV, "MINOR") field(LLSV, "MAJOR")
}
record(longout, "w:long") {
  field(VAL, "-100000") field(EGU, "counts") field(PINI, "YES")
  field(HOPR, "1000000") field(LOPR, "-1000000") field(DRVH, "500000") field(DRVL, "-500000")
  field(HIHI, "900000") field(HIGH, "800000") field(LOW, "-800000") field(LOLO, "-900000")
}
record(stringout, "w:string") { field(VAL, "a string") field(PINI, "YES") }
record(mbbo, "w:enum") {
  field(ZRST, "closed") field(ONST, "opening") field(TWST, "open") field(THST, "exactly 25 characters, ok")
  field(THVL, "3") field(ONVL, "1") field(TWVL, "2") field(VAL, "2") field(PINI, "YES")
}
record(waveform, "w:float") { field(FTVL, "FLOAT") field(NELM, "1") field(PREC, "2") field(EGU, "K") }
record(waveform, "w:shorts") { field(FTVL, "SHORT") field(NELM, "5") field(EGU, "V") }
record(waveform, "w:chars") { field(FTVL, "CHAR") field(NELM, "40") }
record(waveform, "w:strings") { field(FTVL, "STRING") field(NELM, "3") }
record(waveform, "w:longs") { field(FTVL, "LONG") field(NELM, "20000") }
record(int64out, "w:int64") { field(VAL, "4294967296") field(PINI, "YES") }
"""


class Recording:
    """One circuit or one exchange of datagrams, to be written to a file."""

    def __init__(self, name: str, client: str, is_stream: bool = True) -> None:
        self.path = HERE / f"{name}.txt"
        self.client = client
        self.is_stream = is_stream
        self.lines: list[str] = []
        self.lock = threading.Lock()
        self.partial = {">": b"", "<": b""}

    def take(self, way: str, piece: bytes) -> None:
        with self.lock:
            if not self.is_stream:
                self.lines.append(f"{way} {pack(piece)}")
                return
            rest = self.partial[way] + piece
            while (size := message_bytes(rest)) is not None:
                self.lines.append(f"{way} {pack(rest[:size])}")
                rest = rest[size:]
            self.partial[way] = rest

    def note(self, text: str) -> None:
        with self.lock:
            self.lines.append(f"# {text}")

    def save(self) -> None:
        assert self.partial == {">": b"", "<": b""}, self.partial
        release = version("epicscorelibs")
        head = [
            f"# {'Circuit' if self.is_stream else 'Datagrams'}: > from the client, < from the server.",
            f"# Server: softIoc of EPICS 7.0.10 (epicscorelibs {release}, {platform.system()}).",
            f"# Client: {self.client.format(release=release)}.",
            "# Recorded by capture.py, which contains the database; = and ~ lines from WIRE_BLESS, then reviewed.",
        ]
        self.path.write_text("\n".join(head + self.lines) + "\n")


def message_bytes(stream: bytes) -> int | None:
    if len(stream) < 16:
        return None
    size, head = struct.unpack(">H", stream[2:4])[0], 16
    if size == 0xFFFF:
        if len(stream) < 24:
            return None
        size, head = struct.unpack(">I", stream[16:20])[0], 24
    return head + size if len(stream) >= head + size else None


def pack(message: bytes) -> str:
    """Hex in groups of 8 bytes; `00*40` for zeros, `i32:0+7*20000` for a series of numbers."""
    out, at = [], 0
    while at < len(message):
        n_zeros = len(message[at:]) - len(message[at:].lstrip(b"\0"))
        if n_zeros >= 16:
            out.append(f"00*{n_zeros}")
            at += n_zeros
            continue
        n_numbers = rising(message[at:]) if at % 8 == 0 else 0
        if n_numbers > 16:
            first, second = struct.unpack(">2i", message[at : at + 8])
            out.append(f"i32:{first}+{second - first}*{n_numbers}")
            at += 4 * n_numbers
            continue
        out.append(message[at : at + 8].hex())
        at += 8
    return " ".join(out)


def rising(message: bytes) -> int:
    words = struct.unpack(f">{len(message) // 4}i", message[: len(message) // 4 * 4])
    if len(words) < 3:
        return 0
    step, n = words[1] - words[0], 1
    while n < len(words) and words[n] - words[n - 1] == step:
        n += 1
    return n


class Proxy:
    """Forwards all bytes and records them in `self.recording`."""

    def __init__(self, server_port: int) -> None:
        self.server = (LOOPBACK, server_port)
        self.tcp = socket.create_server((LOOPBACK, 0))
        self.port = self.tcp.getsockname()[1]
        self.udp = udp_socket(self.port)
        self.recording: Recording | None = None
        self.searches: Recording | None = None
        threading.Thread(target=self.accept, daemon=True).start()
        threading.Thread(target=self.datagrams, daemon=True).start()

    def accept(self) -> None:
        while True:
            client, _ = self.tcp.accept()
            server = socket.create_connection(self.server)
            for way, source, target in ((">", client, server), ("<", server, client)):
                threading.Thread(target=self.copy, args=(way, source, target, self.recording), daemon=True).start()

    def copy(self, way: str, source: socket.socket, target: socket.socket, recording: Recording | None) -> None:
        try:
            while piece := source.recv(65536):
                if recording:
                    recording.take(way, piece)
                target.sendall(piece)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def datagrams(self) -> None:
        while True:
            asked, client = self.udp.recvfrom(65536)
            upward = udp_socket(0)
            upward.settimeout(0.5)
            upward.sendto(asked, self.server)
            if self.searches:
                self.searches.take(">", asked)
            try:
                answer = upward.recv(65536)
            except TimeoutError:
                continue
            finally:
                upward.close()
            if self.searches:
                self.searches.take("<", answer)
            port, own = (struct.pack(">H", n) for n in (self.server[1], self.port))
            self.udp.sendto(answer.replace(b"\0\6\0\x08" + port, b"\0\6\0\x08" + own), client)


def udp_socket(port: int) -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.bind((LOOPBACK, port))
    return made


class EventArgs(ctypes.Structure):
    _fields_ = [
        ("usr", ctypes.c_void_p), ("chid", ctypes.c_void_p), ("type", ctypes.c_long),
        ("count", ctypes.c_long), ("dbr", ctypes.c_void_p), ("status", ctypes.c_int),
    ]  # fmt: skip


class Libca:
    """The required calls of libca; each waits for its completion."""

    def __init__(self) -> None:
        from epicscorelibs.path import get_lib

        self.lib = ctypes.CDLL(get_lib("ca"))
        self.done = threading.Semaphore(0)
        self.callback_type = ctypes.CFUNCTYPE(None, EventArgs)
        self.callback = self.callback_type(lambda args: self.done.release())
        self.connected = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda args: self.done.release())
        self.lib.ca_message.restype = ctypes.c_char_p
        self.check(self.lib.ca_context_create(1))

    def check(self, status: int) -> None:
        assert status == 1, self.lib.ca_message(status)

    def flush(self) -> None:
        self.check(self.lib.ca_flush_io())

    def wait(self) -> None:
        self.flush()
        assert self.done.acquire(timeout=5), "no answer"

    def create(self, name: str) -> ctypes.c_void_p:
        chid = ctypes.c_void_p()
        self.check(self.lib.ca_create_channel(name.encode(), self.connected, None, 0, ctypes.byref(chid)))
        self.wait()
        return chid

    def get(self, chid: ctypes.c_void_p, dbr: int, count: int) -> None:
        self.check(self.lib.ca_array_get_callback(dbr, ctypes.c_ulong(count), chid, self.callback, None))
        self.wait()

    def put(self, chid: ctypes.c_void_p, dbr: int, count: int, payload: ctypes.Array, is_answered: bool) -> None:
        if is_answered:
            args = (dbr, ctypes.c_ulong(count), chid, payload, self.callback, None)
            self.check(self.lib.ca_array_put_callback(*args))
            self.wait()
        else:
            self.check(self.lib.ca_array_put(dbr, ctypes.c_ulong(count), chid, payload))
            self.flush()

    def subscribe(self, chid: ctypes.c_void_p, dbr: int, count: int, mask: int) -> ctypes.c_void_p:
        evid = ctypes.c_void_p()
        args = (dbr, ctypes.c_ulong(count), chid, ctypes.c_long(mask), self.callback, None, ctypes.byref(evid))
        self.check(self.lib.ca_create_subscription(*args))
        self.wait()
        return evid

    def cancel(self, evid: ctypes.c_void_p) -> None:
        self.check(self.lib.ca_clear_subscription(evid))
        self.flush()

    def clear(self, chid: ctypes.c_void_p) -> None:
        self.check(self.lib.ca_clear_channel(chid))
        self.flush()
        time.sleep(0.2)

    def close(self) -> None:
        self.lib.ca_context_destroy()
        time.sleep(0.2)


def strings(*texts: str) -> ctypes.Array:
    return (ctypes.c_char * (40 * len(texts)))(*b"".join(text.encode().ljust(40, b"\0") for text in texts))


def reads(proxy: Proxy) -> None:
    """Every native type at every level, the two special types, arrays."""
    recording = proxy.recording = Recording("reads", "libca of the same build (epicscorelibs {release})")
    proxy.searches = Recording("search", "libca of the same build (epicscorelibs {release})", is_stream=False)
    ca = Libca()
    first = ca.create("w:float")
    proxy.searches.save()
    proxy.searches = None
    ca.put(first, 2, 1, (ctypes.c_float * 1)(0.25), True)
    names = {"w:string": 0, "w:double.PREC": 1, "w:float": 2, "w:enum": 3, "w:double.TPRO": 4, "w:long": 5}
    for name, basic in (names | {"w:double": 6}).items():
        chid = first if name == "w:float" else ca.create(name)
        for level in range(5):
            ca.get(chid, 7 * level + basic, 1)
        if name == "w:double":
            for dbr in (37, 38, 0, 14, 5, 3):
                ca.get(chid, dbr, 1)
            ca.get(chid, 20, 0)
        if name == "w:enum":
            ca.get(chid, 0, 1)
            ca.get(chid, 6, 1)
    ca.get(ca.create("w:int64"), 6, 1)
    shorts = ca.create("w:shorts")
    ca.put(shorts, 1, 3, (ctypes.c_short * 3)(1, -2, 3), True)
    for dbr, count in ((1, 0), (15, 0), (15, 5), (29, 2), (20, 0), (14, 2)):
        ca.get(shorts, dbr, count)
    chars = ca.create("w:chars")
    ca.get(chars, 4, 0)
    ca.get(chars, 18, 0)
    ca.put(chars, 4, 6, (ctypes.c_char * 6)(*b"hello\0"), True)
    for dbr in (4, 18, 32):
        ca.get(chars, dbr, 0)
    texts = ca.create("w:strings")
    ca.put(texts, 0, 2, strings("one", "thirty-nine characters is what goes in."), True)
    ca.get(texts, 14, 0)
    ca.get(texts, 0, 3)
    ca.close()
    recording.save()


def writes(proxy: Proxy) -> None:
    """Puts with and without a reply, subscriptions, a rejected put, cleared channels."""
    recording = proxy.recording = Recording("writes", "libca of the same build (epicscorelibs {release})")
    ca = Libca()
    double, enum = ca.create("w:double"), ca.create("w:enum")
    evid = ca.subscribe(double, 20, 0, 5)
    other = ca.subscribe(enum, 17, 1, 5)
    for value in (2.5, 9.5, -1.0):
        ca.put(double, 6, 1, (ctypes.c_double * 1)(value), False)
        ca.wait()
    ca.put(double, 0, 1, strings("3.25"), True)
    ca.wait()
    ca.put(enum, 0, 1, strings("opening"), True)
    ca.wait()
    ca.put(enum, 3, 1, (ctypes.c_ushort * 1)(3), False)
    ca.wait()
    ca.put(double, 0, 1, strings("no number"), True)
    ca.put(double, 0, 1, strings("no number"), False)
    time.sleep(0.3)
    ca.cancel(evid)
    time.sleep(0.2)
    ca.put(double, 6, 1, (ctypes.c_double * 1)(0.0), True)
    ca.cancel(other)
    time.sleep(0.2)
    ca.clear(enum)
    ca.clear(double)
    ca.close()
    recording.save()


def large(proxy: Proxy) -> None:
    """An array whose messages need the extended header."""
    recording = proxy.recording = Recording("large", "libca of the same build (epicscorelibs {release})")
    ca = Libca()
    longs = ca.create("w:longs")
    ca.subscribe(longs, 19, 0, 1)
    ca.put(longs, 5, 20000, (ctypes.c_int * 20000)(*range(0, 140000, 7)), True)
    ca.wait()
    ca.get(longs, 5, 20000)
    ca.get(longs, 19, 0)
    ca.clear(longs)
    ca.close()
    recording.save()


def header(command: int, payload: bytes = b"", dbr: int = 0, count: int = 0, p1: int = 0, p2: int = 0) -> bytes:
    payload += bytes(-len(payload) % 8)
    return struct.pack(">HHHHII", command, len(payload), dbr, count, p1, p2) + payload


class Plain:
    """A client with plain sockets, for messages that libca never sends."""

    def __init__(self, proxy: Proxy, name: str) -> None:
        self.recording = proxy.recording = Recording(name, "bytes written by hand")
        self.socket = socket.create_connection((LOOPBACK, proxy.port))
        self.socket.settimeout(0.3)
        self.heard()

    def heard(self) -> bytes:
        """Receives until the server sends no more."""
        heard = b""
        try:
            while piece := self.socket.recv(65536):
                heard += piece
        except TimeoutError:
            return heard
        except ConnectionResetError:
            pass
        self.recording.note("The server has closed the circuit.")
        return heard

    def say(self, *messages: bytes) -> bytes:
        self.socket.sendall(b"".join(messages))
        return self.heard()

    def begin(self) -> None:
        self.say(header(0, dbr=0, count=13), header(20, b"ann\0"), header(21, b"desk\0"))

    def create(self, cid: int, name: str) -> int:
        return struct.unpack(">I", self.say(header(18, name.encode() + b"\0", p1=cid, p2=13))[28:32])[0]

    def close(self) -> None:
        self.socket.close()
        time.sleep(0.2)
        self.recording.save()


def event_add(sid: int, subscription: int, dbr: int, count: int, mask: int) -> bytes:
    return header(1, struct.pack(">3fHH", 0, 0, 0, mask, 0), dbr, count, sid, subscription)


def oddities(proxy: Proxy) -> None:
    plain = Plain(proxy, "oddities")
    plain.begin()
    text, double = plain.create(7, "w:string"), plain.create(8, "w:double")
    plain.say(header(18, b"w:absent\0", p1=9, p2=13))
    plain.recording.note("The old READ, of a string that is truncated and of others that are not.")
    plain.say(header(3, dbr=0, count=1, p1=text, p2=100))
    plain.say(header(3, dbr=14, count=1, p1=text, p2=101))
    plain.say(header(3, dbr=20, count=1, p1=double, p2=102))
    plain.say(header(3, dbr=0, count=1, p1=double, p2=103), header(10))
    plain.say(header(23))
    plain.recording.note("A fixed count beyond the channel's own, and types that cannot be read.")
    plain.say(header(15, dbr=6, count=2, p1=double, p2=104))
    plain.say(header(15, dbr=35, count=1, p1=double, p2=105))
    plain.say(header(15, dbr=38, count=1, p1=double, p2=106))
    plain.recording.note("Flow control.")
    plain.say(event_add(double, 50, 6, 1, 1))
    plain.say(header(8))
    plain.say(header(4, struct.pack(">d", 4.0), 6, 1, double), header(4, struct.pack(">d", 5.0), 6, 1, double))
    plain.say(header(9))
    plain.say(header(2, b"", 6, 1, double, 50))
    plain.recording.note("A put of more elements than the channel has: rsrv writes as many as the channel has.")
    plain.say(header(19, struct.pack(">2d", 4.0, 5.0), 6, 2, double, 60))
    plain.recording.note("A put of a text that is not a number, without and with a reply.")
    plain.say(header(4, b"x\0", 0, 1, double, 8), header(19, b"x\0", 0, 1, double, 62))
    plain.recording.note("A host or user name that is sent too late.")
    plain.say(header(20, b"eve\0"))
    plain.say(header(12, p1=double, p2=8))
    plain.recording.note("A subscription that does not exist.")
    plain.say(header(2, b"", 0, 1, text, 77))
    plain.close()


def failures(proxy: Proxy) -> None:
    """Requests that are rejected while the circuit stays open."""
    plain = Plain(proxy, "failures")
    plain.begin()
    double = plain.create(7, "w:double")
    plain.recording.note("Subscriptions with types that are only valid for puts: every update fails.")
    plain.say(event_add(double, 50, 35, 1, 1))
    plain.say(event_add(double, 51, 36, 3, 1))
    plain.say(header(4, struct.pack(">d", 4.0), 6, 1, double, 7))
    plain.say(header(2, b"", 35, 1, double, 50))
    plain.say(header(2, b"", 36, 3, double, 51))
    plain.recording.note("A subscription to the record type: every update contains it.")
    plain.say(event_add(double, 52, 38, 1, 1))
    plain.say(header(4, struct.pack(">d", 5.0), 6, 1, double, 7))
    plain.say(header(2, b"", 38, 1, double, 52))
    plain.recording.note("Types that are invalid for puts; WRITE accepts those with metadata, WRITE_NOTIFY does not.")
    plain.say(header(4, bytes(48), 37, 1, double, 7))
    plain.say(header(4, bytes(40), 38, 1, double, 7))
    plain.say(header(4, bytes(16), 13, 1, double, 7))
    for dbr, size in ((13, 16), (20, 24), (27, 72), (34, 88), (37, 48), (38, 40)):
        plain.say(header(19, bytes(size), dbr, 1, double, 60 + dbr))
    plain.close()


def endings(proxy: Proxy) -> None:
    for name, last in {
        "end-command": lambda sid: header(5),
        "end-sid": lambda sid: header(15, dbr=6, count=1, p1=sid + 1000, p2=1),
        "end-mask": lambda sid: event_add(sid, 1, 6, 1, 0),
        "end-size": lambda sid: struct.pack(">HHHHII", 4, 12, 6, 1, sid, 0) + bytes(12),
        "end-type": lambda sid: header(15, dbr=99, count=1, p1=sid, p2=1),
        "end-put-type": lambda sid: header(19, bytes(8), 99, 1, sid, 1),
        "end-put-acknowledge": lambda sid: header(19, bytes(40), 37, 1, sid, 1),
        "end-put-short": lambda sid: header(19, bytes(8), 6, 2, sid, 1),
        "end-version": lambda sid: header(18, b"w:long\0", p1=2, p2=3),
    }.items():
        plain = Plain(proxy, name)
        plain.begin()
        plain.say(last(plain.create(1, "w:double")))
        plain.close()


def beacons(listener: socket.socket) -> None:
    recording = Recording("beacon", "none; only the server sends", is_stream=False)
    for _ in range(3):
        recording.take("<", listener.recv(2048))
    recording.save()


def main() -> None:
    listener = udp_socket(0)
    listener.settimeout(20)
    with socket.create_server((LOOPBACK, 0)) as free:
        port = free.getsockname()[1]
    addresses = {
        "EPICS_CA_AUTO_ADDR_LIST": "NO", "EPICS_CAS_AUTO_BEACON_ADDR_LIST": "NO",
        "EPICS_CAS_INTF_ADDR_LIST": LOOPBACK, "EPICS_CAS_SERVER_PORT": str(port),
        "EPICS_CAS_BEACON_ADDR_LIST": f"{LOOPBACK}:{listener.getsockname()[1]}",
        "EPICS_PVA_ADDR_LIST": LOOPBACK, "EPICS_PVA_AUTO_ADDR_LIST": "NO", "EPICS_PVAS_INTF_ADDR_LIST": LOOPBACK,
        "EPICS_CA_REPEATER_PORT": str(listener.getsockname()[1]),
    }  # fmt: skip
    os.environ.update(addresses)
    with tempfile.NamedTemporaryFile("w", suffix=".db") as database:
        database.write(DATABASE)
        database.flush()
        command = [sys.executable, "-m", "epicscorelibs.ioc", "-d", database.name]
        ioc = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        try:
            beacons(listener)
            proxy = Proxy(port)
            os.environ["EPICS_CA_ADDR_LIST"] = f"{LOOPBACK}:{proxy.port}"
            for scene in (reads, writes, large, oddities, failures, endings):
                if scene.__name__ in (sys.argv[1:] or scene.__name__):
                    scene(proxy)
        finally:
            ioc.stdin.close()
            ioc.wait(10)


if __name__ == "__main__":
    main()
