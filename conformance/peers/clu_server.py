"""A CLU with one object and one variable, on the codec in clu_codec.py. Its Lua is a list of expressions.

Usage: clu_server.py PORT KEYS [TFTP_PORT]

It listens on loopback, also to its broadcasts, and prints a line when it is ready. Discoveries are answered if the file
with the keys has a PIN. With TFTP_PORT it permits transfers of files, which it keeps in memory and does not run.
"""

import json
import os
import re
import select
import socket
import sys
import time
from dataclasses import dataclass
from typing import Any

from clu_codec import (
    REQUEST,
    CipherKey,
    KeyFile,
    discovery_reply,
    initial_key,
    lua_reply,
    new_key,
)
from clu_tftp import TftpServer
from ending import end_with_input

ADDRESS = "127.0.0.1"
BROADCAST_ADDRESS = "127.255.255.255"
DATAGRAM_BYTES_MAX = 2048
SERIAL = "0d0a1b2c"
MAC = "020000000001"
NO_SESSION = "00000000"
REPORT_S = 0.2

#: An element of the list of a subscription: a feature, or a variable.
ITEM = re.compile(r'\{(\w+),(\d+)\}|"(\w+)"')
REGISTER = re.compile(r'SYSTEM:clientRegister\((?:"([\d.]+)",(\d+),(\d+)|0,(\d+),1),\{(.*)\}\)')
DESTROY = re.compile(r'SYSTEM:clientDestroy\((?:"([\d.]+)",(\d+),(\d+)|0,(\d+),1)\)')
CALL = re.compile(r"(\w+):(get|set)\((\d+)(?:,(.*))?\)")
VARIABLE = re.compile(r'(getVar|setVar)\("(\w+)"(?:,(.*))?\)')


@dataclass
class Subscription:
    to: tuple[str, int]
    items: list[Any]
    last_report: str


def shown(value: Any) -> str:
    """A value as a CLU prints it in a list."""
    if value is None:
        return "nil"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    return str(int(value)) if value == int(value) else f"{value:.2f}"


def literal(text: str) -> Any:
    """The value of a literal in Lua."""
    return None if text == "nil" else json.loads(text)


class Clu:
    def __init__(self, port: int, keys: KeyFile, tftp: TftpServer | None) -> None:
        self.tftp = tftp
        self.key = keys.project
        self.pin = keys.pin
        self.temporary: CipherKey | None = None
        self.sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2)]
        for opened, address in zip(self.sockets, (ADDRESS, BROADCAST_ADDRESS), strict=True):
            opened.bind((address, port))
        # As OpenGr8ton does, discoveries are answered from a port of their own.
        self.discovery_socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.discovery_socket.bind((ADDRESS, 0))
        self.values: dict[Any, Any] = {("THE1", 3): 21, ("THE1", 14): 19.25, "greeting": "hello"}
        self.subscriptions: dict[tuple[Any, ...], Subscription] = {}

    def run(self) -> None:
        next_report = time.monotonic()
        while True:
            ready, _, _ = select.select(self.sockets, [], [], max(0.0, next_report - time.monotonic()))
            for opened in ready:
                datagram, sender = opened.recvfrom(DATAGRAM_BYTES_MAX)
                is_broadcast = opened is self.sockets[1]
                answering = self.discovery_socket if is_broadcast else self.sockets[0]
                for reply in self.replies(datagram, sender, is_broadcast):
                    answering.sendto(reply, sender)
            if time.monotonic() >= next_report:
                next_report = time.monotonic() + REPORT_S
                self.send_reports()

    def send_reports(self) -> None:
        for (_, _, client), subscription in self.subscriptions.items():
            values = self.listed(subscription.items)
            if values != subscription.last_report:
                subscription.last_report = values
                message = lua_reply(ADDRESS, NO_SESSION, f"clientReport:{client}:{values}")
                self.sockets[0].sendto(self.key.encrypt(message), subscription.to)

    def replies(self, datagram: bytes, sender: tuple[str, int], is_broadcast: bool) -> list[bytes]:
        if is_broadcast:
            return self.discovered(datagram)
        for key in filter(None, (self.key, self.temporary)):
            message = key.decrypt(datagram)
            # What another key decrypts to is random.
            if message is None or b"req" not in message:
                continue
            new = new_key(message)
            if new:
                self.key, self.temporary = new, None
                return [new.encrypt(b"resp:OK")]
            request = REQUEST.fullmatch(message.strip())
            if self.tftp and key is self.key and message.strip() in (b"req_start_ftp", b"req_stop_ftp"):
                self.tftp.is_unlocked = message.strip() == b"req_start_ftp"
                return [key.encrypt(b"resp:OK")]
            if message.startswith(b"req_reset:"):
                return [key.encrypt(b"resp_reset:" + ADDRESS.encode())]
            if not request or (key is self.temporary and request[3] != b"checkAlive()"):
                return [key.encrypt(b"resp:ERROR")]
            session = f"{int(request[2], 16):08x}"
            return [key.encrypt(reply) for reply in self.evaluated(session, request[3].decode(), sender)]
        return []

    def discovered(self, datagram: bytes) -> list[bytes]:
        if not self.pin:
            return []
        self.temporary = self.temporary or CipherKey(initial_key(self.pin), os.urandom(16))
        reply = discovery_reply(self.key, self.temporary, datagram, SERIAL, MAC)
        return [reply] if reply else []

    def evaluated(self, session: str, expression: str, sender: tuple[str, int]) -> list[bytes]:
        if expression == "silence()":
            return []
        if expression == "refuse()":
            return [b"resp:ERROR"]
        value = lua_reply(ADDRESS, session, self.value(expression, sender))
        if expression == "late()":
            # Replies that belong to no request, before the right one.
            other = f"{int(session, 16) ^ 1:08x}"
            return [b"resp:OK", lua_reply(ADDRESS, other, "wrong"), b"noise", value]
        return [value]

    def value(self, expression: str, sender: tuple[str, int]) -> str:
        constants = {"checkAlive()": SERIAL, "1 + 1": "2", "late()": "right", '"a:b"': "a:b", "true": "true"}
        if expression in constants:
            return constants[expression]
        if found := CALL.fullmatch(expression):
            return self.used((found[1], int(found[3])), found[2] == "set", found[4])
        if found := VARIABLE.fullmatch(expression):
            return self.used(found[2], found[1] == "setVar", found[3])
        if found := REGISTER.fullmatch(expression):
            target = self.target(found, sender)
            items = self.items(found[5])
            values = self.listed(items)
            self.subscriptions[target] = Subscription((target[0], target[1]), items, values)
            return f"clientReport:{target[2]}:{values}"
        if found := DESTROY.fullmatch(expression):
            target = self.target(found, sender)
            self.subscriptions.pop(target, None)
            return str(target[2])
        return "nil"

    def used(self, name: Any, is_set: bool, text: str | None) -> str:
        """The value after a get or a set; strings are not quoted here."""
        if is_set and name in self.values and text is not None:
            self.values[name] = literal(text)
            return "nil"
        value = self.values.get(name)
        return value if isinstance(value, str) else shown(value)

    @staticmethod
    def target(found: re.Match[str], sender: tuple[str, int]) -> tuple[str, int, int]:
        address, port, client, of_sender = found.groups()[:4]
        return (address, int(port), int(client)) if address else (*sender, int(of_sender))

    @staticmethod
    def items(text: str) -> list[Any]:
        return [(item[1], int(item[2])) if item[1] else item[3] for item in ITEM.finditer(text)]

    def listed(self, items: list[Any]) -> str:
        return "{" + ",".join(shown(self.values.get(item)) for item in items) + "}"


def main() -> None:
    tftp = TftpServer(int(sys.argv[3])) if len(sys.argv) > 3 else None
    clu = Clu(int(sys.argv[1]), KeyFile.read(sys.argv[2]), tftp)
    print("ready", flush=True)
    end_with_input()
    clu.run()


main()
