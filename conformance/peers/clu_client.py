"""A client of CLUs on the codec in clu_codec.py, driven by lines of JSON.

Usage: clu_client.py ADDRESS PORT
"""

import os
import socket
import sys
import time
from collections import deque
from typing import Any, Iterator

from clu_codec import (
    BROADCAST,
    RANDOM_BYTES,
    REPLY,
    CipherKey,
    KeyFile,
    discovery_hash,
    discovery_request,
    examples,
    initial_key,
    lua_request,
    parse_binary,
    set_key_request,
)
from lines import serve

DATAGRAM_BYTES_MAX = 65536

#: The session of reports.
NO_SESSION = b"00000000"

#: TFTP: operations, the bytes of a block, and the time after which a packet is sent again.
READ, WRITE, BLOCK, ACKNOWLEDGE, FAILURE = range(1, 6)
BLOCK_BYTES = 512
RESEND_S = 1.0


class Timeout(Exception):
    """No reply."""


class Client:
    def __init__(self, address: str, port: int) -> None:
        self.address = address
        self.clu = (address, port)
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        self.socket.bind((address, 0))
        self.key = CipherKey(bytes(16), bytes(16))
        self.temporary: CipherKey | None = None
        self.reports: deque[str] = deque()
        self.n_unexpected = 0

    def received(self, timeout: float) -> Iterator[bytes]:
        """The datagrams until the timeout, which then raises."""
        deadline = time.monotonic() + timeout
        while (remaining := deadline - time.monotonic()) > 0:
            self.socket.settimeout(remaining)
            try:
                yield self.socket.recv(DATAGRAM_BYTES_MAX)
            except TimeoutError:
                break
        raise Timeout

    def replies(self, timeout: float) -> Iterator[tuple[bytes, bytes]]:
        """The messages under the current key that are no reports: the session and the value, or no session."""
        for datagram in self.received(timeout):
            message = self.key.decrypt(datagram)
            if message is None:
                self.n_unexpected += 1
                continue
            parts = REPLY.fullmatch(message)
            if parts and parts[2] == NO_SESSION:
                self.reports.append(parts[3].decode())
                yield b"report", parts[3]
            else:
                yield (parts[2], parts[3]) if parts else (b"", message)

    def execute(self, expression: str, timeout: float) -> str:
        session = f"{int.from_bytes(os.urandom(4)) or 1:08x}"
        self.socket.sendto(self.key.encrypt(lua_request(self.address, session, expression)), self.clu)
        for found, value in self.replies(timeout):
            if found == session.encode() or (not found and value.strip() == b"resp:ERROR"):
                return value.decode()
            self.n_unexpected += found != b"report"
        raise Timeout

    def manage(self, message: bytes, beginning: bytes, timeout: float, next_key: CipherKey | None = None) -> str:
        """The reply to a request that is not Lua; with `next_key`, under that key."""
        datagram = self.key.encrypt(message)
        self.key = next_key or self.key
        self.socket.sendto(datagram, self.clu)
        for session, value in self.replies(timeout):
            if not session and value.startswith(beginning):
                return value.decode()
        raise Timeout


CLIENT = Client(sys.argv[1], int(sys.argv[2]))


def ended(call: Any) -> dict[str, Any]:
    """The result of a call, or the absence of a reply."""
    try:
        return {"reply": call()}
    except Timeout:
        return {"reply": None}


def vectors(keys: str) -> dict[str, Any]:
    return examples(KeyFile.read(keys).project)


def use_keys(keys: str) -> dict[str, Any]:
    CLIENT.key = KeyFile.read(keys).project
    return {}


def use_temporary_key() -> dict[str, Any]:
    assert CLIENT.temporary
    CLIENT.key = CLIENT.temporary
    return {}


def discover(target: str, keys: str, pin: str, timeout: float) -> dict[str, Any]:
    """Searches for one CLU and compares its proof with the PIN in the file `pin`."""
    project, known = KeyFile.read(keys).project, KeyFile.read(pin).pin
    assert known
    random = os.urandom(RANDOM_BYTES)
    CLIENT.socket.sendto(discovery_request(project, random, CLIENT.address), (target, CLIENT.clu[1]))
    reply_key = CipherKey(BROADCAST.key, project.iv)
    try:
        for datagram in CLIENT.received(timeout):
            message = reply_key.decrypt(datagram)
            parts = message and parse_binary(message, b"resp_discovery_clu")
            if parts:
                proof, vector, words = parts
                CLIENT.temporary = CipherKey(initial_key(known), vector)
                serial, mac = words.decode().strip().split(":")
                is_project = CLIENT.temporary.decrypt(proof) == discovery_hash(random)
                return {"serial": serial, "mac": mac, "is_project": is_project}
    except Timeout:
        pass
    return {"serial": None}


def set_key(keys: str, timeout: float) -> dict[str, Any]:
    new = KeyFile.read(keys).project
    message = set_key_request(new, os.urandom(RANDOM_BYTES))
    return ended(lambda: CLIENT.manage(message, b"resp:", timeout, next_key=new))


def execute(expression: str, timeout: float) -> dict[str, Any]:
    return ended(lambda: CLIENT.execute(expression, timeout))


def request(message: str, timeout: float) -> dict[str, Any]:
    """The session and the value of the reply to a request of Lua in any form."""

    def reply() -> list[str]:
        CLIENT.socket.sendto(CLIENT.key.encrypt(message.encode()), CLIENT.clu)
        for session, value in CLIENT.replies(timeout):
            if session not in (b"", b"report"):
                return [session.decode(), value.decode()]
        raise Timeout

    return ended(reply)


def register(form: str, client: int, items: str, timeout: float) -> dict[str, Any]:
    port = CLIENT.socket.getsockname()[1]
    target = {"address": f'"{CLIENT.address}",{port},{client}', "sender": f"0,{client},1"}[form]
    CLIENT.reports.clear()
    return execute(f"SYSTEM:clientRegister({target},{items})", timeout)


def destroy(form: str, client: int, timeout: float) -> dict[str, Any]:
    port = CLIENT.socket.getsockname()[1]
    target = {"address": f'"{CLIENT.address}",{port},{client}', "sender": f"0,{client},1"}[form]
    return execute(f"SYSTEM:clientDestroy({target})", timeout)


def report(text: str, timeout: float) -> dict[str, Any]:
    """Waits for this report."""
    if text in CLIENT.reports:
        return {"reply": text}

    def wait() -> str:
        for session, value in CLIENT.replies(timeout):
            if session == b"report" and value.decode() == text:
                return text
        raise Timeout

    return {**ended(wait), "reports": list(CLIENT.reports)}


def send(datagrams: list[str]) -> dict[str, Any]:
    """Sends these bytes as they are, and waits for nothing."""
    for datagram in datagrams:
        CLIENT.socket.sendto(bytes.fromhex(datagram), CLIENT.clu)
    return {}


def n_unexpected() -> dict[str, Any]:
    """The number of datagrams that were neither a reply that was awaited nor a report."""
    return {"n": CLIENT.n_unexpected}


def manage(text: str, timeout: float) -> dict[str, Any]:
    return ended(lambda: CLIENT.manage(text.encode(), b"resp", timeout))


def exchange(transfer: socket.socket, packet: bytes, to: Any, operation: int, number: int, timeout: float) -> Any:
    """Sends a packet until the expected one is received: its content and sender."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        transfer.sendto(packet, to)
        transfer.settimeout(RESEND_S)
        try:
            while True:
                reply, sender = transfer.recvfrom(DATAGRAM_BYTES_MAX)
                found = int.from_bytes(reply[:2])
                if found == FAILURE:
                    raise OSError(f"TFTP error {int.from_bytes(reply[2:4])}")
                if found == operation and int.from_bytes(reply[2:4]) == number:
                    return reply[4:], sender
        except TimeoutError:
            continue
    raise Timeout


def transfer_start(operation: int, path: str) -> bytes:
    return operation.to_bytes(2) + path.encode() + b"\0octet\0"


def upload(port: int, path: str, content: str, timeout: float) -> dict[str, Any]:
    data = content.encode()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as transfer:
        transfer.bind((CLIENT.address, 0))
        to = (CLIENT.clu[0], port)
        _, to = exchange(transfer, transfer_start(WRITE, path), to, ACKNOWLEDGE, 0, timeout)
        for index in range(len(data) // BLOCK_BYTES + 1):
            part = data[index * BLOCK_BYTES : (index + 1) * BLOCK_BYTES]
            packet = BLOCK.to_bytes(2) + (index + 1).to_bytes(2) + part
            exchange(transfer, packet, to, ACKNOWLEDGE, index + 1, timeout)
    return {"n_blocks": len(data) // BLOCK_BYTES + 1}


def download(port: int, path: str, timeout: float) -> dict[str, Any]:
    data, number, packet = b"", 1, transfer_start(READ, path)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as transfer:
        transfer.bind((CLIENT.address, 0))
        to: Any = (CLIENT.clu[0], port)
        while True:
            part, to = exchange(transfer, packet, to, BLOCK, number, timeout)
            data += part
            packet = ACKNOWLEDGE.to_bytes(2) + number.to_bytes(2)
            if len(part) < BLOCK_BYTES:
                transfer.sendto(packet, to)
                return {"content": data.decode()}
            number += 1


serve(
    {
        "vectors": vectors,
        "use_keys": use_keys,
        "use_temporary_key": use_temporary_key,
        "discover": discover,
        "set_key": set_key,
        "execute": execute,
        "request": request,
        "register": register,
        "destroy": destroy,
        "report": report,
        "send": send,
        "n_unexpected": n_unexpected,
        "manage": manage,
        "upload": upload,
        "download": download,
    }
)
