"""The functions of aioca, on Fodo: `from fodo.compat.aioca import caget, caput, camonitor`.

Names may be those of Channel Access, or have `ca://` or `pva://` before them.
"""

from __future__ import annotations

from ..epicscorelibs.ca.cadef import DBE_ALARM, DBE_LOG, DBE_PROPERTY, DBE_VALUE
from ..epicscorelibs.ca.dbr import (
    DBR_CHAR,
    DBR_CHAR_BYTES,
    DBR_CHAR_STR,
    DBR_CHAR_UNICODE,
    DBR_CLASS_NAME,
    DBR_DOUBLE,
    DBR_ENUM,
    DBR_ENUM_STR,
    DBR_FLOAT,
    DBR_LONG,
    DBR_PUT_ACKS,
    DBR_PUT_ACKT,
    DBR_SHORT,
    DBR_STRING,
    DBR_STSACK_STRING,
    FORMAT_CTRL,
    FORMAT_RAW,
    FORMAT_TIME,
    ca_extra_fields,
)
from ._catools import CAInfo, Subscription, caget, cainfo, camonitor, caput, connect, run
from ._channels import CANothing, ChannelInfo, get_channel_infos, purge_channel_caches

__version__ = "2.1"
"""The version of aioca with these functions."""

__all__ = [
    "CAInfo",
    "CANothing",
    "ChannelInfo",
    "DBE_ALARM",
    "DBE_LOG",
    "DBE_PROPERTY",
    "DBE_VALUE",
    "DBR_CHAR",
    "DBR_CHAR_BYTES",
    "DBR_CHAR_STR",
    "DBR_CHAR_UNICODE",
    "DBR_CLASS_NAME",
    "DBR_DOUBLE",
    "DBR_ENUM",
    "DBR_ENUM_STR",
    "DBR_FLOAT",
    "DBR_LONG",
    "DBR_PUT_ACKS",
    "DBR_PUT_ACKT",
    "DBR_SHORT",
    "DBR_STRING",
    "DBR_STSACK_STRING",
    "FORMAT_CTRL",
    "FORMAT_RAW",
    "FORMAT_TIME",
    "Subscription",
    "__version__",
    "ca_extra_fields",
    "caget",
    "cainfo",
    "camonitor",
    "caput",
    "connect",
    "get_channel_infos",
    "purge_channel_caches",
    "run",
]
