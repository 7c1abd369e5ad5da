"""The exceptions, status codes and event masks of `epicscorelibs.ca.cadef`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["DBE_ALARM", "DBE_LOG", "DBE_PROPERTY", "DBE_VALUE"]

DBE_VALUE = 1
DBE_LOG = 2
DBE_ALARM = 4
DBE_PROPERTY = 8

CA_OP_CONN_UP = 6
CA_OP_CONN_DOWN = 7

ECA_NORMAL = 1
ECA_TIMEOUT = 80
ECA_BADTYPE = 114
ECA_GETFAIL = 152
ECA_PUTFAIL = 160
ECA_ADDFAIL = 168
ECA_BADCOUNT = 176
ECA_BADSTR = 186
ECA_DISCONN = 192
ECA_NORDACCESS = 368
ECA_NOWTACCESS = 376
ECA_NOCONVERT = 400
ECA_CHANDESTROY = 440

TYPENOTCONN = -1

cs_never_conn = 0
cs_prev_conn = 1
cs_conn = 2
cs_closed = 3

_MESSAGES = {
    ECA_NORMAL: "Normal successful completion",
    72: "The requested data transfer is greater than available memory or EPICS_CA_MAX_ARRAY_BYTES",
    ECA_TIMEOUT: "User specified timeout on IO operation expired",
    ECA_BADTYPE: "The data type specified is invalid",
    142: "Channel Access Internal Failure",
    ECA_GETFAIL: "Channel read request failed",
    ECA_PUTFAIL: "Channel write request failed",
    ECA_ADDFAIL: "Channel subscription request failed",
    ECA_BADCOUNT: "Invalid element count requested",
    ECA_BADSTR: "Invalid string",
    ECA_DISCONN: "Virtual circuit disconnect",
    200: "Identical process variable names on multiple servers",
    330: "Invalid event selection mask",
    362: "Put callback timed out",
    ECA_NORDACCESS: "Read access denied",
    ECA_NOWTACCESS: "Write access denied",
    ECA_NOCONVERT: "No reasonable data conversion between client and server types",
    432: "Not supported by attached service",
    ECA_CHANDESTROY: "User destroyed channel",
    480: "Virtual circuit unresponsive",
}


def ca_message(status: int) -> str:
    """The text of a status code."""
    return _MESSAGES.get(status, f"Channel Access status {status}")


class CAException(Exception):
    """A call is refused before a request is sent: access rights, or a type that cannot be requested."""

    def __init__(self, status: int, function: Callable[..., Any]) -> None:
        super().__init__(status, function)
        self.status = status
        self.function = function

    def __str__(self) -> str:
        return f"{ca_message(self.status)} calling {self.function.__name__}"


class Disconnected(Exception):
    """The channel is disconnected."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def __str__(self) -> str:
        return f"Channel {self.name} disconnected"
