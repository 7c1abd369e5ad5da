"""The files of a CLU in memory, by TFTP as RFC 1350 describes it, without options."""

import select
import socket
import struct
import threading
import time

ADDRESS = "127.0.0.1"
READ, WRITE, BLOCK, ACKNOWLEDGEMENT, ERROR = range(1, 6)
NOT_FOUND, ACCESS_VIOLATION, ILLEGAL = 1, 2, 4
BLOCK_BYTES = 512
RETRY_S = 1.0
TRIES = 5


def packet(kind: int, number: int, content: bytes = b"") -> bytes:
    return struct.pack(">HH", kind, number) + content


def error(code: int, text: str) -> bytes:
    return packet(ERROR, code, text.encode() + b"\0")


class TftpServer:
    """Serves files on a port, each transfer from a port of its own, while `is_unlocked`."""

    def __init__(self, port: int) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind((ADDRESS, port))
        self.files: dict[str, bytes] = {}
        self.is_unlocked = False
        threading.Thread(target=self.run, daemon=True).start()

    def run(self) -> None:
        while True:
            request, client = self.socket.recvfrom(BLOCK_BYTES + 4)
            # A request that is sent again gets a transfer of its own, whose replies the client refuses.
            threading.Thread(target=self.transfer, args=(request, client), daemon=True).start()

    def transfer(self, request: bytes, client: tuple[str, int]) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
            own.bind((ADDRESS, 0))
            own.connect(client)
            if not self.is_unlocked:
                own.send(error(ACCESS_VIOLATION, "TFTP was not started"))
                return
            kind = int.from_bytes(request[:2])
            name, mode, *_ = [*request[2:].split(b"\0"), b""]
            # A CLU ignores the case of names.
            path = name.decode().lower()
            if kind not in (READ, WRITE) or mode.lower() != b"octet":
                own.send(error(ILLEGAL, "a request to read or write in the mode octet is needed"))
            elif kind == WRITE:
                content = receive(own)
                if content is not None:
                    self.files[path] = content
            elif path in self.files:
                send(own, self.files[path])
            else:
                own.send(error(NOT_FOUND, "no such file"))


def reply_to(own: socket.socket, sent: bytes, kind: int, number: int) -> bytes | None:
    """The content of the packet with this kind and number; `sent` is sent again until it is received."""
    for _ in range(TRIES):
        own.send(sent)
        end = time.monotonic() + RETRY_S
        while (rest := end - time.monotonic()) > 0 and select.select([own], [], [], rest)[0]:
            received = own.recv(BLOCK_BYTES + 4)
            if received[:2] == packet(ERROR, 0)[:2]:
                return None
            if received[:4] == packet(kind, number):
                return received[4:]
    return None


def receive(own: socket.socket) -> bytes | None:
    content, number = b"", 0
    while True:
        block = reply_to(own, packet(ACKNOWLEDGEMENT, number), BLOCK, (number + 1) & 0xFFFF)
        if block is None:
            return None
        content, number = content + block, (number + 1) & 0xFFFF
        if len(block) < BLOCK_BYTES:
            own.send(packet(ACKNOWLEDGEMENT, number))
            return content


def send(own: socket.socket, content: bytes) -> None:
    for start in range(0, len(content) + 1, BLOCK_BYTES):
        number = (start // BLOCK_BYTES + 1) & 0xFFFF
        if reply_to(own, packet(BLOCK, number, content[start : start + BLOCK_BYTES]), ACKNOWLEDGEMENT, number) is None:
            return
