"""The context of this process, its channels in each event loop, and their errors."""

from __future__ import annotations

import asyncio
import math
import time
from dataclasses import dataclass
from typing import Protocol

from ... import aio
from ..._errors import Closed, Disconnected, Error, Misuse
from ..._fork_safe_lock import ForkSafeLock
from ..._info import Info
from ..epicscorelibs.ca import cadef
from .types import Timeout


class OpenSubscription(Protocol):
    """A subscription, as its channel uses it."""

    def close(self) -> None: ...


class CANothing(Exception):  # noqa: N818
    """The result of a call without a value: success, or an error with its code. It is raised unless `throw=False`."""

    def __init__(self, name: str, errorcode: int = cadef.ECA_NORMAL) -> None:
        super().__init__(name, errorcode)
        self.name = name
        self.ok = errorcode == cadef.ECA_NORMAL
        self.errorcode = errorcode

    def __repr__(self) -> str:
        return f"CANothing({self.name!r}, {self.errorcode})"

    def __str__(self) -> str:
        return f"{self.name}: {cadef.ca_message(self.errorcode)}"

    def __bool__(self) -> bool:
        return self.ok


def nothing_of(name: str, error: Error, refused: int) -> CANothing:
    """The error as aioca reports it; `refused` is the code of a refusal without one of its own."""
    if isinstance(error, TimeoutError):
        code = cadef.ECA_TIMEOUT
    elif isinstance(error, Disconnected):
        code = cadef.ECA_DISCONN
    elif isinstance(error, Closed):
        code = cadef.ECA_CHANDESTROY
    elif isinstance(error, Misuse):
        raise error
    else:
        code = refused
    nothing = CANothing(name, code)
    nothing.__cause__ = error
    return nothing


def seconds_left(timeout: Timeout) -> float:
    """The seconds that are left."""
    if timeout is None:
        return math.inf
    if isinstance(timeout, tuple):
        return max(0.0, timeout[0] - time.time())
    return max(0.0, float(timeout))


class Channel:
    """A PV that the event loop has used."""

    def __init__(self, name: str, context: aio.Context) -> None:
        self.name = name
        self._context = context
        # Keeps the channel connected, and its search going.
        self._native = context._channel(name)
        self._was_connected = False
        self.subscriptions: set[OpenSubscription] = set()

    @property
    def info(self) -> Info | None:
        """What the server reports; `None` unless connected."""
        info: Info | None = self._native.info
        self._was_connected = self._was_connected or info is not None
        return info

    @property
    def state(self) -> int:
        """The state as a code of `cadef`."""
        if self.info is not None:
            return cadef.cs_conn
        return cadef.cs_prev_conn if self._was_connected else cadef.cs_never_conn

    async def wait(self, seconds: float = math.inf) -> Info:
        """Waits until it is connected."""
        info = self.info
        if info is None:
            try:
                info = await self._context.connect(self.name, timeout=seconds)
            except Error as error:
                raise nothing_of(self.name, error, cadef.ECA_DISCONN) from error
            self._was_connected = True
        return info


class _Client:
    """The context of this process, and the channels of each event loop."""

    def __init__(self) -> None:
        self._lock = ForkSafeLock()
        self._context: aio.Context | None = None
        self._channels: dict[asyncio.AbstractEventLoop, dict[str, Channel]] = {}

    def context(self) -> aio.Context:
        with self._lock:
            if self._context is None or not self._context.is_usable:
                self._context = aio.Context(timeout=math.inf)
                # Like aioca, it also searches for names that no record can have.
                self._context._checks_names = False
                self._channels = {}
            return self._context

    def channels(self) -> dict[str, Channel]:
        """Those of the running loop."""
        context, loop = self.context(), asyncio.get_running_loop()
        with self._lock:
            if context is self._context and loop not in self._channels:
                for closed in [known for known in self._channels if known.is_closed()]:
                    del self._channels[closed]
                self._channels[loop] = {}
            return self._channels.setdefault(loop, {})

    def channel(self, name: str) -> Channel:
        channels = self.channels()
        channel = channels.get(name)
        if channel is None:
            channel = channels[name] = Channel(name, self.context())
        return channel

    def purge(self) -> None:
        with self._lock:
            context, self._context = self._context, None
            every, self._channels = self._channels, {}
        for channels in every.values():
            for channel in channels.values():
                for subscription in list(channel.subscriptions):
                    subscription.close()
        if context is not None:
            context.close()


client = _Client()


def get_channel(pv: str) -> Channel:
    """The channel of the running event loop to this PV."""
    return client.channel(pv)


def purge_channel_caches() -> None:
    """Closes all channels and subscriptions, those of all event loops."""
    client.purge()


@dataclass(frozen=True)
class ChannelInfo:
    """A channel, the number of its subscriptions, and whether it is connected."""

    name: str
    connected: bool
    subscriber_count: int


def get_channel_infos() -> list[ChannelInfo]:
    """The channels of the running event loop."""
    return [
        ChannelInfo(channel.name, channel.info is not None, len(channel.subscriptions))
        for channel in client.channels().values()
    ]
