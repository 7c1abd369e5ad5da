"""Channels, and calls on them by their numbers."""

from __future__ import annotations

import functools
import logging
import math
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from ... import _native
from ..._errors import Closed, Error, Misuse, Refused
from . import _channels, _library, dbr
from ._channels import Channel, holder
from ._library import (
    GET_PENDING as GET_PENDING,
    Empty as Empty,
    attach_context as attach_context,
    clear_cache as clear_cache,
    client_status as client_status,
    context_create as context_create,
    context_destroy as context_destroy,
    create_context as create_context,
    current_context as current_context,
    destroy_context as destroy_context,
    detach_context as detach_context,
    disable_ca_messages as disable_ca_messages,
    enable_ca_messages as enable_ca_messages,
    finalize_libca as finalize_libca,
    find_lib as find_lib,
    find_libca as find_libca,
    find_libCom as find_libCom,
    flush_io as flush_io,
    get_cache as get_cache,
    initialize_libca as initialize_libca,
    pend_event as pend_event,
    pend_io as pend_io,
    poll as poll,
    register_clear_cache as register_clear_cache,
    replace_printf_handler as replace_printf_handler,
    show_cache as show_cache,
    test_io as test_io,
    use_initial_context as use_initial_context,
    version as version,
    write as write,
)
from ._status import (
    CASeverityException as CASeverityException,
    ChannelAccessException as ChannelAccessException,
    ChannelAccessGetFailure as ChannelAccessGetFailure,
    PySEVCHK as PySEVCHK,
    message as message,
    withSEVCHK as withSEVCHK,
)

HAS_NUMPY = _channels.has_numpy()
"""Whether arrays are arrays of numpy."""
PREEMPTIVE_CALLBACK = True
"""Without effect: callbacks always run on a thread of their own."""
AUTO_CLEANUP = True
WITH_CA_MESSAGES = False
AUTOMONITOR_MAXLENGTH = 65536
"""From this number of elements on, a PV is monitored only on request."""
DEFAULT_CONNECTION_TIMEOUT = 2.0
"""Seconds for which a call waits for a connection."""
DEFAULT_SUBSCRIPTION_MASK = dbr.DBE_VALUE | dbr.DBE_ALARM

libca = None
"""There is none: Fodo is the client."""
__getattr__ = functools.partial(_library.table, __name__)
"""Tables that other packages read."""

F = TypeVar("F", bound=Callable[..., Any])


def withCA(fcn: F) -> F:  # noqa: N802
    """Creates the client before a function is called."""

    @functools.wraps(fcn)
    def called(*arguments: Any, **options: Any) -> Any:
        holder.get()
        return fcn(*arguments, **options)

    return called  # type: ignore[return-value]


withInitialContext = withCA  # noqa: N816


def withCHID(fcn: F) -> F:  # noqa: N802
    """Checks that the first argument of a function is the number of a channel."""

    @functools.wraps(fcn)
    def called(chid: Any, *arguments: Any, **options: Any) -> Any:
        _channel(chid)
        return fcn(chid, *arguments, **options)

    return called  # type: ignore[return-value]


def withConnectedCHID(fcn: F) -> F:  # noqa: N802
    """Waits until the channel is connected before a function is called; raises `ChannelAccessException` if it is not."""

    @functools.wraps(fcn)
    def called(chid: Any, *arguments: Any, **options: Any) -> Any:
        _connected(chid, fcn.__name__, options.get("timeout"))
        return fcn(chid, *arguments, **options)

    return called  # type: ignore[return-value]


def withMaybeConnectedCHID(fcn: F) -> F:  # noqa: N802
    """Waits until the channel is connected before a function is called; returns `None` if it is not."""

    @functools.wraps(fcn)
    def called(chid: Any, *arguments: Any, **options: Any) -> Any:
        if not _channel(chid).wait(DEFAULT_CONNECTION_TIMEOUT):
            return None
        return fcn(chid, *arguments, **options)

    return called  # type: ignore[return-value]


def _channel(chid: Any) -> Channel:
    number = getattr(chid, "value", chid)
    channel = holder.get().numbered(number) if isinstance(number, int) else None
    if channel is None:
        raise ChannelAccessException(f"{chid!r} is not the number of a channel")
    return channel


def _connected(chid: Any, purpose: str, timeout: float | None = None) -> Channel:
    channel = _channel(chid)
    limit = DEFAULT_CONNECTION_TIMEOUT if timeout is None else timeout
    if not channel.wait(limit):
        raise ChannelAccessException(f'{purpose}: "{channel.name}" is not connected after {limit} s')
    return channel


def create_channel(
    pvname: str, connect: bool = False, auto_cb: bool = True, callback: Callable[..., Any] | None = None
) -> dbr.chid_t:
    """The number of the channel of a PV. All calls with the same name return the same one.

    `callback(pvname=, chid=, conn=)` is called when the channel is connected or disconnected, and at once if it is connected.
    """
    channel = holder.get().channel(pvname)
    if callable(callback):
        channel.add_listener(
            lambda is_connected: callback(pvname=channel.name, chid=channel.number, conn=is_connected)
        )
    if connect:
        channel.wait(DEFAULT_CONNECTION_TIMEOUT)
    return channel.number


def connect_channel(chid: Any, timeout: float | None = None, verbose: bool = False) -> bool:
    """Waits until the channel is connected, and returns whether it is."""
    return _channel(chid).wait(DEFAULT_CONNECTION_TIMEOUT if timeout is None else timeout)


def replace_access_rights_event(chid: Any, callback: Callable[[bool, bool], Any] | None = None) -> int:
    """`callback(read_access, write_access)` is called at once if the channel is connected, and when the rights change."""
    channel = _channel(chid)
    if callable(callback):
        channel.access_callbacks.append(callback)
        info = channel.info
        if info is not None:
            callback(info.may_read, info.may_write)
    return dbr.ECA_NORMAL


def clear_channel(chid: Any) -> int:
    """Closes the channel for all its users."""
    holder.get().clear_channel(_channel(chid))
    return dbr.ECA_NORMAL


def name(chid: Any) -> str:
    """The name of the PV."""
    return _channel(chid).name


def host_name(chid: Any) -> str:
    """The address of the server."""
    info = _connected(chid, "host_name").last_info
    return "" if info is None else info.server


def element_count(chid: Any) -> int:
    """The maximum number of elements."""
    return _connected(chid, "element_count").nelm


def field_type(chid: Any) -> int:
    """The native type; -1 if the channel is not connected."""
    channel = _channel(chid)
    return channel.ftype if channel.wait(DEFAULT_CONNECTION_TIMEOUT) else -1


def read_access(chid: Any) -> int:
    """Whether the PV may be read: 1 or 0."""
    info = _channel(chid).info
    return int(info is not None and info.may_read)


def write_access(chid: Any) -> int:
    """Whether the PV may be written: 1 or 0."""
    info = _channel(chid).info
    return int(info is not None and info.may_write)


def access(chid: Any) -> str:
    """The access rights as a text."""
    return access_text(bool(read_access(chid)), bool(write_access(chid)))


def access_text(may_read: bool, may_write: bool) -> str:
    """The access rights as a text."""
    return ("no access", "read-only", "write-only", "read/write")[may_read + 2 * may_write]


def state(chid: Any) -> int:
    """The state of the connection: one of `dbr.CS_CONN`, `dbr.CS_PREV_CONN` and `dbr.CS_NEVER_CONN`."""
    channel = _channel(chid)
    if channel.info is not None:
        return dbr.CS_CONN
    return dbr.CS_NEVER_CONN if channel.last_info is None else dbr.CS_PREV_CONN


def isConnected(chid: Any) -> bool:  # noqa: N802
    """Whether the channel is connected."""
    return state(chid) == dbr.CS_CONN


def promote_type(chid: Any, use_time: bool = False, use_ctrl: bool = False) -> int:
    """The native type with attributes; -1 if the channel has not been connected."""
    return dbr.promoted(_channel(chid).ftype, use_time, use_ctrl)


promote_fieldtype = dbr.promoted


def default_timeout(count: int | None) -> float:
    """Seconds for which a get waits: more for arrays."""
    return 1.0 + math.log10(max(1, count or 1))


def _elements(channel: Channel, value: Any, ftype: int, as_numpy: bool) -> Any:
    with_numpy = as_numpy and HAS_NUMPY
    found = _channels.plain(value, channel.is_array, with_numpy)
    if isinstance(found, list) and found and isinstance(found[0], (int, float)):
        kind: Any = dbr.Map[dbr.native_type(ftype)]
        return (kind * len(found))(*found)
    return found


def _text(channel: Channel, value: Any, ftype: int, timeout: float) -> str:
    native = dbr.native_type(ftype)
    if channel.is_array:
        if native == dbr.CHAR and channel.nelm < AUTOMONITOR_MAXLENGTH:
            return _channels.text_of_characters(value)
        return f"<array count={len(value)}, type={ftype}>"
    if native == dbr.ENUM:
        return _channels.as_enum_text(channel, value, timeout)
    return str(value)


def get_with_metadata(
    chid: Any,
    ftype: int | None = None,
    count: int | None = None,
    wait: bool = True,
    timeout: float | None = None,
    as_string: bool = False,
    as_numpy: bool = True,
) -> dict[str, Any] | None:
    """Reads the PV. Returns a dict with the value and what belongs to the type; `None` if there is none in time.

    With `wait=False` it starts the get, for `get_complete_with_metadata`, and returns `None`.
    """
    channel = _channel(chid)
    if not channel.wait(DEFAULT_CONNECTION_TIMEOUT):
        return None
    kind = channel.ftype if ftype is None else ftype
    n = min(count or 0, channel.nelm)
    channel.keep((kind, n), channel.start_get(kind, n))
    if not wait:
        return None
    return get_complete_with_metadata(chid, kind, count, timeout, as_string, as_numpy)


def get_complete_with_metadata(
    chid: Any,
    ftype: int | None = None,
    count: int | None = None,
    timeout: float | None = None,
    as_string: bool = False,
    as_numpy: bool = True,
) -> dict[str, Any] | None:
    """Waits for a get that was started with `wait=False`; starts one if there is none."""
    channel = _channel(chid)
    if not channel.wait(DEFAULT_CONNECTION_TIMEOUT):
        return None
    kind = channel.ftype if ftype is None else ftype
    n = min(count or 0, channel.nelm)
    limit = default_timeout(count or channel.nelm) if timeout is None else timeout
    started = channel.kept((kind, n)) or channel.start_get(kind, n)
    (end,) = _native.wait([started], max(0.0, limit))
    value = received(channel, end)
    if value is None:
        return None
    found = _elements(channel, value, kind, as_numpy)
    if as_string:
        found = _text(channel, found, kind, limit)
    return {"value": found} | _channels.metadata(value, kind)


def received(channel: Channel, end: Any) -> Any:
    """The value that a get has ended with; `None`, and a line in the log, if there was none in time."""
    if isinstance(end, Refused):
        raise ChannelAccessGetFailure(str(end), channel.number, 0)
    if isinstance(end, Misuse):
        raise ChannelAccessException(str(end))
    if isinstance(end, Error):
        logging.getLogger("fodo").warning("get: %s", end)
        return None
    return end


def get(
    chid: Any,
    ftype: int | None = None,
    count: int | None = None,
    wait: bool = True,
    timeout: float | None = None,
    as_string: bool = False,
    as_numpy: bool = True,
) -> Any:
    """Reads the PV; `None` if there is no value in time."""
    found = get_with_metadata(chid, ftype, count, wait, timeout, as_string, as_numpy)
    return None if found is None else found["value"]


def get_complete(
    chid: Any,
    ftype: int | None = None,
    count: int | None = None,
    timeout: float | None = None,
    as_string: bool = False,
    as_numpy: bool = True,
) -> Any:
    """Waits for a get that was started with `wait=False`; `None` if there is no value in time."""
    found = get_complete_with_metadata(chid, ftype, count, timeout, as_string, as_numpy)
    return None if found is None else found["value"]


def put(
    chid: Any,
    value: Any,
    wait: bool = False,
    timeout: float = 30,
    callback: Callable[..., Any] | None = None,
    callback_data: Any = None,
    ftype: int | None = None,
) -> int:
    """Writes the PV. Returns 1, or -1 if it was not completed in time.

    `callback(pvname=, data=callback_data)` is called when the server has completed processing; a dict is passed as keywords.
    Raises `CASeverityException` if the server refuses.
    """
    channel = _connected(chid, "put")

    def completed(error: Error | None) -> None:
        if callable(callback):
            options = callback_data if isinstance(callback_data, dict) else {"data": callback_data}
            callback(pvname=channel.name, **options)

    return put_channel(channel, value, wait, timeout, completed if callable(callback) else None)


def put_channel(
    channel: Channel,
    value: Any,
    wait: bool,
    timeout: float,
    completed: Callable[[Error | None], None] | None,
) -> int:
    """Writes a connected channel; `completed` is called on the thread of the callbacks."""
    context = channel.client.context
    try:
        sent = _channels.sendable(channel, value)
        operation = channel.native.put(sent, wait or completed is not None, None, False)
    except (Misuse, ValueError, TypeError) as error:
        text = f'"{channel.name}": cannot put {value!r} to a PV of type {str(dbr.Name(channel.ftype)).lower()}: {error}'
        raise ChannelAccessException(text) from error
    if completed is None:
        (end,) = _native.wait([operation], max(0.0, timeout))
        return _put_status(end)
    function = completed
    ends: list[Any] = []
    is_completed = threading.Event()

    def done(results: list[Any]) -> None:
        ends.extend(results)
        error = results[0] if isinstance(results[0], Error) else None
        if error is not None:
            logging.getLogger("fodo").warning("put: %s", error)
        try:
            function(error)
        except (Exception, SystemExit) as failure:  # noqa: BLE001
            # It would end the thread, and with it all other callbacks.
            channel.n_callback_errors += 1
            _channels.report(channel.name, failure)
        is_completed.set()

    if wait and context._is_calling_back:
        done(_native.wait([operation], max(0.0, timeout)))
        return _put_status(ends[0])
    context._when_done([operation], done)
    if not wait:
        return dbr.ECA_NORMAL
    return _put_status(ends[0]) if is_completed.wait(max(0.0, timeout)) else -dbr.ECA_NORMAL


def _put_status(end: Any) -> int:
    if isinstance(end, (Refused, Misuse, Closed)):
        raise CASeverityException("put", str(end))
    if isinstance(end, Error):
        logging.getLogger("fodo").warning("put: %s", end)
        return -dbr.ECA_NORMAL
    return dbr.ECA_NORMAL


def _vars(chid: Any, ftype: int, timeout: float) -> dict[str, Any] | None:
    channel = _channel(chid)
    found = get_with_metadata(chid, ftype=ftype, count=1 if channel.is_array else None, timeout=timeout)
    if found is None:
        return None
    del found["value"]
    return found


def get_ctrlvars(chid: Any, timeout: float = 5.0, warn: bool = True) -> dict[str, Any] | None:
    """The alarm, the units, the limits and the texts of states; `None` if they are not received in time."""
    if not _channel(chid).wait(DEFAULT_CONNECTION_TIMEOUT):
        return None
    found = _vars(chid, promote_type(chid, use_ctrl=True), timeout)
    if found is not None and "enum_strs" in found:
        _channel(chid).enum_strs = found["enum_strs"]
    return found


def get_timevars(chid: Any, timeout: float = 5.0, warn: bool = True) -> dict[str, Any] | None:
    """The alarm and the time stamp; `None` if they are not received in time."""
    if not _channel(chid).wait(DEFAULT_CONNECTION_TIMEOUT):
        return None
    return _vars(chid, promote_type(chid, use_time=True), timeout)


def get_timestamp(chid: Any) -> float:
    """The time stamp in seconds since 1970."""
    return float((get_timevars(chid) or {}).get("timestamp", 0))


def get_severity(chid: Any) -> int:
    """How bad the alarm is."""
    return int((get_timevars(chid) or {}).get("severity", 0))


def get_precision(chid: Any) -> int:
    """Digits after the decimal point; 0 unless the PV is a floating-point number."""
    return int((get_ctrlvars(chid) or {}).get("precision", 0))


def get_enum_strings(chid: Any) -> tuple[str, ...] | None:
    """The texts of the states of an enum."""
    return (get_ctrlvars(chid) or {}).get("enum_strs")


def create_subscription(
    chid: Any,
    use_time: bool = False,
    use_ctrl: bool = False,
    ftype: int | None = None,
    mask: int | None = None,
    callback: Callable[..., Any] | None = None,
    count: int = 0,
    timeout: float | None = None,
) -> tuple[Any, Any, Any]:
    """Calls `callback(pvname=, value=, ftype=, count=, chid=, ...)` with every change. The last element of the result is for
    `clear_subscription`; the subscription lives until then, also if the result is not kept."""
    channel = _channel(chid)
    if ftype is None:
        channel = _connected(chid, "create_subscription", timeout)
        ftype = channel.ftype
    kind = dbr.promoted(ftype, use_time, use_ctrl)

    def updated(value: Any) -> None:
        found = _elements(channel, value, kind, True)
        if callable(callback):
            callback(
                value=found,
                ftype=kind,
                count=_channels.element_count(value),
                chid=channel.number,
                pvname=channel.name,
                **_channels.metadata(value, kind),
            )

    form = "ctrl" if use_ctrl else "time" if use_time else "native"
    monitor = channel.client.context.monitor(
        channel.name,
        updated,
        detail=_channels.DETAILS[form],
        mask=_channels.mask_text(mask or DEFAULT_SUBSCRIPTION_MASK),
        count=count,
    )
    return callback, None, monitor


def clear_subscription(event_id: Any) -> int:
    """Ends a subscription."""
    event_id.close()
    return dbr.ECA_NORMAL


class _Groups:
    """Groups of gets and puts that are waited for together."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.next_number = 1
        self.operations: dict[int, list[tuple[Channel, _native.Operation, list[Any]]]] = {}


_groups = _Groups()


def sg_create() -> int:
    """Creates a group."""
    with _groups.lock:
        number = _groups.next_number
        _groups.next_number += 1
        _groups.operations[number] = []
    return number


def sg_delete(gid: int) -> int:
    """Removes a group."""
    _groups.operations.pop(gid, None)
    return dbr.ECA_NORMAL


def sg_get(gid: int, chid: Any, ftype: int | None = None, as_numpy: bool = True, as_string: bool = True) -> list[Any]:
    """Starts a get. The returned list contains the value after `sg_block`."""
    channel = _connected(chid, "sg_get")
    kind = channel.ftype if ftype is None else ftype
    result: list[Any] = []
    _groups.operations[gid].append((channel, channel.start_get(kind, 0), result))
    return result


def sg_put(gid: int, chid: Any, value: Any) -> int:
    """Starts a put."""
    channel = _connected(chid, "sg_put")
    operation = channel.native.put(_channels.sendable(channel, value), True, None, False)
    _groups.operations[gid].append((channel, operation, []))
    return dbr.ECA_NORMAL


def sg_block(gid: int, timeout: float = 10.0) -> int:
    """Waits for the operations of a group."""
    operations, _groups.operations[gid] = _groups.operations[gid], []
    status = dbr.ECA_NORMAL
    ends = _native.wait([operation for _, operation, _ in operations], timeout)
    for (channel, _, result), end in zip(operations, ends, strict=True):
        if isinstance(end, Error):
            status = dbr.ECA_TIMEOUT
        elif end is not None:
            result.append(_elements(channel, end, channel.ftype, True))
    return status


def sg_test(gid: int) -> int:
    """Whether the operations of a group have ended: `dbr.ECA_IODONE` after `sg_block`."""
    return dbr.ECA_NORMAL if _groups.operations.get(gid) else dbr.ECA_IODONE


def sg_reset(gid: int) -> int:
    """Drops the operations of a group."""
    _groups.operations[gid] = []
    return dbr.ECA_NORMAL


class CAThread(threading.Thread):
    """A thread that uses PVs. Any thread may use them."""


