"""The messages of Grenton's CLUs, encrypted with the package cryptography: an implementation of its own, for both roles."""

import base64
import json
import re
from dataclasses import dataclass, field

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.padding import PKCS7

BLOCK = 16
RANDOM_BYTES = 30

#: Number of bytes of the encrypted random numbers of a discovery and of a new key.
PROOF_BYTES = 32

#: The part of the initial key that does not depend on the PIN.
DERIVATION = base64.b64decode("ua/jh/kZo9Og15rejhGhFg==")

#: A reply to a request of Lua, or a report.
REPLY = re.compile(rb"resp:([^:]*):([0-9a-f]{8}):(.*)", re.DOTALL)

#: A request of Lua.
REQUEST = re.compile(rb"req:([^:]*):([0-9A-Fa-f]{1,8}):(.+)", re.DOTALL)


@dataclass(frozen=True)
class CipherKey:
    """A key with its initialisation vector, which is the same for all messages."""

    key: bytes = field(repr=False)
    iv: bytes = field(repr=False)

    def encrypt(self, message: bytes) -> bytes:
        padder = PKCS7(BLOCK * 8).padder()
        encryptor = Cipher(algorithms.AES(self.key), modes.CBC(self.iv)).encryptor()
        return encryptor.update(padder.update(message) + padder.finalize()) + encryptor.finalize()

    def decrypt(self, datagram: bytes) -> bytes | None:
        """The message; None if the datagram was not encrypted with this key."""
        if not datagram or len(datagram) % BLOCK:
            return None
        decryptor = Cipher(algorithms.AES(self.key), modes.CBC(self.iv)).decryptor()
        unpadder = PKCS7(BLOCK * 8).unpadder()
        try:
            return unpadder.update(decryptor.update(datagram) + decryptor.finalize()) + unpadder.finalize()
        except ValueError:
            return None


#: The key of requests for a discovery; replies have the same key with the vector of the request.
BROADCAST = CipherKey(base64.b64decode("hd5SHpxl0N5+WEXTXlPQmw=="), base64.b64decode("BwYFBAMCAQAEAgkDBAEFBw=="))


@dataclass(frozen=True)
class KeyFile:
    """The content of a file keys.json."""

    project: CipherKey
    pin: bytes | None = field(default=None, repr=False)

    @staticmethod
    def read(path: str) -> "KeyFile":
        with open(path, encoding="utf-8") as file:
            members = json.load(file)
        binary = {name: base64.b64decode(text) for name, text in members.items() if isinstance(text, str)}
        return KeyFile(CipherKey(binary["key"], binary["iv"]), binary.get("pin"))


def initial_key(pin: bytes) -> bytes:
    """The key of a CLU without a project, from the PIN on its label."""
    return bytes(a ^ b for a, b in zip(DERIVATION, pin + pin[::-1], strict=True))


def signed(byte: int) -> int:
    return byte - 256 if byte > 127 else byte


def remainder(dividend: int, divisor: int) -> int:
    """The remainder with the sign of the dividend."""
    size = abs(dividend) % divisor
    return -size if dividend < 0 else size


def discovery_hash(random: bytes) -> bytes:
    """What a CLU calculates from the random numbers of a discovery."""
    made = [random[0] ^ random[-1]]
    for byte in random[1:]:
        last = remainder(signed(made[-1]), 13) + 1
        made.append(last * (remainder(signed(byte), 19) + 1) & 0xFF)
    return bytes(made)


def discovery_request(project: CipherKey, random: bytes, address: str) -> bytes:
    proof = project.encrypt(random)
    return BROADCAST.encrypt(b":".join([proof, project.iv, b"req_discovery_clu", address.encode()]))


def parse_binary(message: bytes, keyword: bytes) -> tuple[bytes, bytes, bytes] | None:
    """The proof, the vector and the rest of a message with both, which may contain colons."""
    vector = PROOF_BYTES + 1
    words = vector + BLOCK
    start = b":" + keyword + b":"
    if message[PROOF_BYTES:vector] != b":" or not message[words:].startswith(start):
        return None
    return message[:PROOF_BYTES], message[vector:words], message[words + len(start) :]


def discovery_reply(project: CipherKey, temporary: CipherKey, request: bytes, serial: str, mac: str) -> bytes | None:
    """The reply of a CLU; None if this is not a request for a discovery."""
    message = BROADCAST.decrypt(request)
    parts = message and parse_binary(message, b"req_discovery_clu")
    if not parts:
        return None
    proof, vector, _ = parts
    random = project.decrypt(proof)
    if random is None or len(random) != RANDOM_BYTES:
        # A CLU with another key proves that it has another one.
        random = b"\x01" * RANDOM_BYTES
    own_proof = temporary.encrypt(discovery_hash(random))
    words = [own_proof, temporary.iv, b"resp_discovery_clu", serial.encode(), mac.encode()]
    return CipherKey(BROADCAST.key, vector).encrypt(b":".join(words))


def set_key_request(new: CipherKey, random: bytes) -> bytes:
    return b":".join([new.encrypt(random), new.iv, b"req_set_key", new.key]) + b"\r\n"


def new_key(message: bytes) -> CipherKey | None:
    """The key in a request to set it."""
    parts = parse_binary(message, b"req_set_key")
    if not parts or len(parts[2]) not in (BLOCK, BLOCK + 2):
        return None
    return CipherKey(parts[2][:BLOCK], parts[1])


def lua_request(address: str, session: str, expression: str) -> bytes:
    return f"req:{address}:{session}:{expression}\r\n".encode()


def lua_reply(address: str, session: str, value: str) -> bytes:
    return f"resp:{address}:{session}:{value}".encode()


def examples(project: CipherKey) -> dict[str, str]:
    """Results for fixed input, in hexadecimal digits."""

    def of(numbers: range) -> str:
        return discovery_hash(bytes(numbers)).hex()

    messages = {
        "check_alive": lua_request("127.0.0.1", "0000abcd", "checkAlive()"),
        "alive": lua_reply("127.0.0.1", "0000abcd", "00000000"),
        "start_tftp": b"req_start_ftp",
        "ok": b"resp:OK",
        "refused": b"resp:ERROR",
    }
    made = {name: project.encrypt(message).hex() for name, message in messages.items()}
    for name, message in messages.items():
        assert project.decrypt(bytes.fromhex(made[name])) == message, name
    return {
        **made,
        "initial_key_zeros": initial_key(b"00000000").hex(),
        "initial_key_digits": initial_key(b"12345678").hex(),
        "hash_low": of(range(RANDOM_BYTES)),
        "hash_high": of(range(0x80, 0x80 + RANDOM_BYTES)),
        "hash_ones": discovery_hash(b"\xff" * RANDOM_BYTES).hex(),
        "discovery": discovery_request(project, bytes(range(RANDOM_BYTES)), "127.0.0.1").hex(),
    }
