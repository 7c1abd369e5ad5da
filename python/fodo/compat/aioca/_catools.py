"""The functions of aioca over `fodo.aio`."""

from __future__ import annotations

import asyncio
import inspect
import logging
import sys
import time
import traceback
import warnings
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeAlias

from ... import aio
from ..._client import Detail
from ..._errors import Error, Misuse, Refused
from ..._info import Info
from ..._monitors import Counts, Event
from ..epicscorelibs.ca import cadef, dbr
from ._channels import CANothing, Channel, client, get_channel, nothing_of, seconds_left
from .types import Datatype, Dbe, Timeout

DEFAULT_TIMEOUT = 5.0

ALL_UPDATES_MAX = 100_000
"""Updates of a subscription with `all_updates` that wait for its callback."""

PVs = list[str] | tuple[str, ...]

_ExcInfo: TypeAlias = tuple[type[BaseException], BaseException, TracebackType] | tuple[None, None, None]


def _ended(pv: str | PVs, results: Sequence[Any], throw: bool) -> Any:
    """The results of a call for one PV or for several. Raises the first error, or returns each as `CANothing`."""
    names = [pv] if isinstance(pv, str) else list(pv)
    ends = []
    for name, result in zip(names, results, strict=True):
        has_failed = isinstance(result, Exception) and not (isinstance(result, CANothing) and result.ok)
        if has_failed and throw:
            if isinstance(result, CANothing) and result.errorcode == cadef.ECA_TIMEOUT and not isinstance(pv, str):
                raise CANothing("Multiple PVs", cadef.ECA_TIMEOUT) from result
            raise result
        if isinstance(result, cadef.CAException):
            result = CANothing(name, result.status)
        ends.append(result)
    return ends[0] if isinstance(pv, str) else ends


_Member = tuple[Channel, Info]


async def _with_each(
    pv: str | PVs, deadline: Timeout, operate: Callable[[list[_Member]], Awaitable[list[Any]]]
) -> list[Any]:
    """The result of an operation on each of these PVs, or its error. Those that are connected are operated on together, and
    each other one as soon as it is connected."""
    names = [pv] if isinstance(pv, str) else list(pv)
    results: list[Any] = [None] * len(names)
    going: list[Awaitable[None]] = []
    ready: list[tuple[int, _Member]] = []

    async def end(indexes: list[int], members: list[_Member]) -> None:
        for index, result in zip(indexes, await operate(members), strict=True):
            results[index] = result

    async def wait(index: int, channel: Channel) -> None:
        try:
            info = await channel.wait(seconds_left(deadline))
        except CANothing as nothing:
            results[index] = nothing
            return
        await end([index], [(channel, info)])

    for index, name in enumerate(names):
        try:
            channel = get_channel(name)
        except Misuse as error:
            # An empty name.
            results[index] = cadef.CAException(cadef.ECA_BADSTR, get_channel)
            results[index].__cause__ = error
            continue
        info = channel.info
        if info is None:
            going.append(wait(index, channel))
        else:
            ready.append((index, (channel, info)))
    if ready:
        going.append(end([index for index, _ in ready], [member for _, member in ready]))
    if len(going) == 1:
        await going[0]
    else:
        await asyncio.gather(*going)
    return results


def _deadline(timeout: Timeout) -> Timeout:
    """The same timeout as a deadline."""
    return None if timeout is None else (time.time() + seconds_left(timeout),)


async def caget(
    pv: str | PVs,
    datatype: Datatype = None,
    format: int = dbr.FORMAT_RAW,  # noqa: A002
    count: int = 0,
    timeout: Timeout = DEFAULT_TIMEOUT,
    throw: bool = True,
) -> Any:
    """Reads a PV, or several with one deadline.

    `datatype`: a `DBR_` code or a type; by default that of the channel. `format`: which attributes the value has. `count`: the
    maximum number of elements; 0: as many as there are; -1: the length of the array. With `throw=False` errors are returned as
    `CANothing`.
    """
    deadline = _deadline(timeout)

    async def read(members: list[_Member]) -> list[Any]:
        return await _read(members, datatype, format, count, deadline)

    return _ended(pv, await _with_each(pv, deadline, read), throw)


async def _read(
    members: list[_Member], datatype: Datatype, format: int, count: int, deadline: Timeout  # noqa: A002
) -> list[Any]:
    if isinstance(datatype, int) and datatype in (dbr.DBR_CLASS_NAME, dbr.DBR_STSACK_STRING):
        read = _class_name if datatype == dbr.DBR_CLASS_NAME else _acknowledgement
        return [await read(channel, deadline) for channel, _ in members]
    results: list[Any] = [cadef.CAException(cadef.ECA_NORDACCESS, caget)] * len(members)
    # Those with the same request are read together.
    groups: dict[tuple[Detail, str, int], list[tuple[int, dbr.ReadRequest]]] = {}
    for index, (channel, info) in enumerate(members):
        if info.may_read:
            request = dbr.read_request(channel.name, info, datatype, format)
            wanted = info.count_max if count < 0 else min(count, info.count_max)
            groups.setdefault((request.detail, request.kind, wanted), []).append((index, request))

    for (detail, kind, wanted), requests in groups.items():
        names = [members[index][0].name for index, _ in requests]
        context = client.context()
        values = await context.get(names, detail=detail, kind=kind, count=wanted, timeout=seconds_left(deadline))
        for (index, request), name, value in zip(requests, names, values, strict=True):
            if isinstance(value, Error):
                results[index] = nothing_of(name, value, cadef.ECA_GETFAIL)
            else:
                results[index] = dbr.padded(request.convert(value), wanted)
    return results


def _record(name: str) -> str:
    """The name of the record of a PV."""
    return name.removesuffix("$").rsplit(".", 1)[0]


async def _texts_of(channel: Channel, names: list[str], deadline: Timeout) -> list[Any] | CANothing:
    """Values of a record as texts, with alarm and time stamp."""
    values = await client.context().get(names, kind="text", timeout=seconds_left(deadline))
    for value in values:
        if isinstance(value, Error):
            return nothing_of(channel.name, value, cadef.ECA_GETFAIL)
    return list(values)


async def _class_name(channel: Channel, deadline: Timeout) -> Any:
    """The type of the record."""
    values = await _texts_of(channel, [f"{_record(channel.name)}.RTYP"], deadline)
    return values if isinstance(values, CANothing) else dbr.of_record(channel.name, values[0], dbr.DBR_CLASS_NAME)


async def _acknowledgement(channel: Channel, deadline: Timeout) -> Any:
    """The value as a text, with its alarm and what must be acknowledged."""
    record = _record(channel.name)
    values = await _texts_of(channel, [channel.name, f"{record}.ACKT", f"{record}.ACKS"], deadline)
    if isinstance(values, CANothing):
        return values
    result = dbr.of_record(channel.name, values[0], dbr.DBR_STSACK_STRING)
    result.ackt = int(values[1] == "YES")
    result.acks = dbr.SEVERITY_NAMES.index(values[2])
    return result


async def caput(
    pv: str | PVs,
    value: Any,
    datatype: Datatype = None,
    wait: bool = False,
    timeout: Timeout = DEFAULT_TIMEOUT,
    throw: bool = True,
    repeat_value: bool = False,
) -> Any:
    """Writes a PV, or several with one deadline.

    For several, `value` has as many values; a number or a text, or any value with `repeat_value`, is written to all. `wait`:
    until the server has completed processing. Without it, a refusal by the server is a notice: `next_notice` of
    `fodo.aio.Context`.
    """
    deadline = _deadline(timeout)
    names = [pv] if isinstance(pv, str) else list(pv)
    values = [value] if isinstance(pv, str) else _values(value, len(names), repeat_value)
    # A name may be in the list more than once.
    rest: dict[str, list[Any]] = {}
    for name, one in zip(names, values, strict=True):
        rest.setdefault(name, []).append(one)

    async def write(members: list[_Member]) -> list[Any]:
        given = [rest[channel.name].pop(0) for channel, _ in members]
        return await _write(members, given, datatype, wait, deadline)

    return _ended(pv, await _with_each(pv, deadline, write), throw)


async def _write(
    members: list[_Member], values: list[Any], datatype: Datatype, wait: bool, deadline: Timeout
) -> list[Any]:
    results: list[Any] = [CANothing(channel.name) for channel, _ in members]
    going: list[tuple[int, Any]] = []
    for index, ((channel, info), value) in enumerate(zip(members, values, strict=True)):
        if not info.may_write:
            results[index] = cadef.CAException(cadef.ECA_NOWTACCESS, caput)
        elif isinstance(datatype, int) and datatype in (dbr.DBR_PUT_ACKT, dbr.DBR_PUT_ACKS):
            # Fodo has no request that acknowledges alarms.
            results[index] = cadef.CAException(cadef.ECA_BADTYPE, caput)
        else:
            going.append((index, dbr.value_to_put(channel.name, info, datatype, value)))
    names, written = [members[index][0].name for index, _ in going], [value for _, value in going]
    ends = await client.context().put(names, written, wait=wait, timeout=seconds_left(deadline))
    for (index, value), name, end in zip(going, names, ends, strict=True):
        if isinstance(end, Misuse):
            # Such as a text that is too long; other values are written.
            is_text = isinstance(value, (str, bytes))
            results[index] = cadef.CAException(cadef.ECA_BADSTR if is_text else cadef.ECA_NOCONVERT, caput)
            results[index].__cause__ = end
        elif end is not None:
            results[index] = nothing_of(name, end, cadef.ECA_PUTFAIL)
    return results


def _values(value: Any, n_values: int, is_repeated: bool) -> list[Any]:
    """A value for each PV."""
    if is_repeated or isinstance(value, (str, bytes)):
        return [value] * n_values
    try:
        values = list(value)
    except TypeError:
        return [value] * n_values
    if len(values) != n_values:
        raise Misuse("", f"there are {n_values} names but {len(values)} values")
    return values


async def connect(
    pv: str | PVs, wait: bool = True, timeout: Timeout = DEFAULT_TIMEOUT, throw: bool = True
) -> Any:
    """Connects to a PV, or to several. `wait=False` only starts the search."""

    async def report(members: list[_Member]) -> list[Any]:
        return [CANothing(channel.name) for channel, _ in members]

    if wait:
        return _ended(pv, await _with_each(pv, _deadline(timeout), report), throw)
    return _ended(pv, [CANothing(get_channel(name).name) for name in ([pv] if isinstance(pv, str) else pv)], throw)


class CAInfo:
    """What is known about a channel."""

    state_strings = ["never connected", "previously connected", "connected", "closed"]
    """The names of the values of `state`."""

    datatype_strings = ["string", "short", "float", "enum", "char", "long", "double", "no access"]
    """The names of the values of `datatype`."""

    def __init__(self, pv: str, channel: Channel) -> None:
        info = channel.info
        self.ok = True
        self.name = pv
        self.state = channel.state
        self.host = "<disconnected>" if info is None else info.server
        self.read = info is not None and info.may_read
        self.write = info is not None and info.may_write
        self.count = 0 if info is None else info.count_max
        self.datatype = len(dbr.KINDS) if info is None else dbr.native_code(info)

    def __str__(self) -> str:
        lines = {
            "State": self.state_strings[self.state],
            "Host": self.host,
            "Access": f"{self.read}, {self.write}",
            "Data type": self.datatype_strings[self.datatype],
            "Count": self.count,
        }
        return "\n".join([f"{self.name}:", *(f"    {what}: {value}" for what, value in lines.items())])


async def cainfo(
    pv: str | PVs, wait: bool = True, timeout: Timeout = DEFAULT_TIMEOUT, throw: bool = True
) -> Any:
    """Reports a channel, or several. `wait=False` reports them as they are."""

    async def report(members: list[_Member]) -> list[Any]:
        return [CAInfo(channel.name, channel) for channel, _ in members]

    if wait:
        return _ended(pv, await _with_each(pv, _deadline(timeout), report), throw)
    return _ended(pv, [CAInfo(name, get_channel(name)) for name in ([pv] if isinstance(pv, str) else pv)], throw)


_MASKS = {
    cadef.DBE_VALUE: "value",
    cadef.DBE_LOG: "log",
    cadef.DBE_ALARM: "alarm",
    cadef.DBE_PROPERTY: "property",
}

_DEFAULT_EVENTS = {
    dbr.FORMAT_RAW: cadef.DBE_VALUE,
    dbr.FORMAT_TIME: cadef.DBE_VALUE | cadef.DBE_ALARM,
    dbr.FORMAT_CTRL: cadef.DBE_VALUE | cadef.DBE_ALARM | cadef.DBE_PROPERTY,
}


class Subscription:
    """A subscription, as `camonitor` returns it."""

    OPENING = 0
    """Waits for the channel to connect."""
    OPEN = 1
    """The callback receives updates."""
    CLOSED = 2
    """`close` was called, or the callback raised an exception."""

    def __init__(
        self,
        name: str,
        callback: Callable[[Any], Any],
        events: Dbe,
        datatype: Datatype,
        format: int,  # noqa: A002
        count: int,
        all_updates: bool,
        notify_disconnect: bool,
        connect_timeout: Timeout,
    ) -> None:
        self.name = name
        self.callback = callback
        self.all_updates = all_updates
        self.notify_disconnect = notify_disconnect
        self.state = self.OPENING
        self.dbr_to_value: Callable[[Any], Any] = lambda value: value
        self._datatype, self._format, self._count = datatype, format, count
        self._events = _DEFAULT_EVENTS[format] if events is None else events
        self._loop = asyncio.get_running_loop()
        self._monitor: aio.Monitor | None = None
        self._info: Info | None = None
        self.channel = get_channel(name)
        self._task: asyncio.Task[None] | None = None
        known = self.channel.info
        if known is not None:
            # Puts that follow are then after the subscription.
            self._open(known)
        else:
            self._task = asyncio.ensure_future(self._open_when_connected(connect_timeout))

    @property
    def counts(self) -> Counts:
        """How many updates were received, delivered and merged so far, and how often the connection was lost."""
        return Counts(0, 0, 0, 0, 0, 0) if self._monitor is None else self._monitor.counts

    @property
    def dropped_callbacks(self) -> int:
        """Updates that later ones replaced before the callback received them. With `all_updates` these are updates beyond
        `ALL_UPDATES_MAX` that waited."""
        return self.counts.merged

    async def _open_when_connected(self, connect_timeout: Timeout) -> None:
        try:
            self._open(await self._connected(connect_timeout))
        except Exception:
            self.close(sys.exc_info())

    def _open(self, info: Info) -> None:
        request = self._convert_for(info)
        self.state = self.OPEN
        self.channel.subscriptions.add(self)
        self._monitor = client.context().monitor(
            self.name,
            self._deliver,
            detail=request.detail,
            kind=request.kind,
            count=info.count_max if self._count < 0 else self._count,
            mask=",".join(name for bit, name in _MASKS.items() if self._events & bit),
            queue_max=ALL_UPDATES_MAX if self.all_updates else 1,
            events=True,
        )

    async def _connected(self, connect_timeout: Timeout) -> Info:
        try:
            return await self.channel.wait(seconds_left(connect_timeout))
        except CANothing as nothing:
            result = self.callback(nothing)
            if inspect.isawaitable(result):
                await result
            return await self.channel.wait()

    def _convert_for(self, info: Info) -> dbr.ReadRequest:
        """From now on, updates are converted for this channel."""
        request = dbr.read_request(self.name, info, self._datatype, self._format)
        self._info = info
        self.dbr_to_value = request.convert
        return request

    def _deliver(self, item: Any) -> Awaitable[None] | None:
        """Passes an update or a disconnection to the callback. An awaitable is awaited before the next call."""
        if self.state == self.CLOSED:
            return None
        try:
            value = self._notice(item) if isinstance(item, Event) else self.dbr_to_value(item)
            result = None if value is None else self.callback(value)
        except Exception:
            self.close(sys.exc_info())
            return None
        return self._awaited(result) if inspect.isawaitable(result) else None

    def _notice(self, event: Event) -> CANothing | None:
        """What the callback receives for an event."""
        if event.kind == "connected" and isinstance(event.detail, Info) and event.detail != self._info:
            # The server may serve another type after it was restarted.
            self._convert_for(event.detail)
        if event.kind == "disconnected" and self.notify_disconnect:
            return CANothing(self.name, cadef.ECA_DISCONN)
        if isinstance(event.detail, Error):
            code = cadef.ECA_NORDACCESS if isinstance(event.detail, Refused) else cadef.ECA_ADDFAIL
            logging.getLogger("fodo").error("%s", event.detail)
            return CANothing(self.name, code) if self.notify_disconnect else None
        return None

    async def _awaited(self, call: Awaitable[Any]) -> None:
        try:
            await call
        except Exception:
            self.close(sys.exc_info())

    def close(self, exc_info: _ExcInfo | None = None) -> None:
        """Ends the subscription: the callback is not called again, also not with updates that wait."""
        if exc_info is not None:
            print(f"the subscription to {self.name} is closed: its callback raised an exception", file=sys.stderr)
            traceback.print_exception(*exc_info)
        self.state = self.CLOSED
        self.channel.subscriptions.discard(self)
        if self._monitor is not None:
            self._monitor.close()
        if self._task is not None and not self._loop.is_closed() and exc_info is None:
            self._task.cancel()


def camonitor(
    pv: str | PVs,
    callback: Callable[..., Any],
    events: Dbe = None,
    datatype: Datatype = None,
    format: int = dbr.FORMAT_RAW,  # noqa: A002
    count: int = 0,
    all_updates: bool = False,
    notify_disconnect: bool = False,
    connect_timeout: Timeout = None,
) -> Any:
    """Subscribes to a PV, or to several, in the running event loop; is not awaited.

    `callback`: a function or a coroutine function; for several PVs it also receives the index of the PV. `all_updates`: whether
    updates that arrive during a call all wait, or only the newest; `dropped_callbacks` counts those that were lost.
    `notify_disconnect`: whether the callback receives a `CANothing` when the connection is lost. `connect_timeout`: after this
    time it receives a `CANothing` if the PV is not connected.
    """
    options = (events, datatype, format, count, all_updates, notify_disconnect, connect_timeout)
    if isinstance(pv, str):
        return Subscription(pv, callback, *options)

    def with_index(index: int) -> Callable[[Any], Any]:
        return lambda value: callback(value, index)

    return [Subscription(name, with_index(index), *options) for index, name in enumerate(pv)]


def run(coro: Awaitable[Any], forever: bool = False) -> Any:
    """Runs a coroutine in the current event loop, and closes the loop. aioca advises to use `asyncio.run` instead."""
    warnings.warn("run is deprecated, use asyncio.run instead", DeprecationWarning, stacklevel=2)
    loop = asyncio.get_event_loop()
    task = asyncio.ensure_future(coro, loop=loop)
    try:
        if forever:
            loop.run_forever()
            return None
        return loop.run_until_complete(task)
    finally:
        if forever:
            task.cancel()
        loop.close()
