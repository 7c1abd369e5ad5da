"""What both kinds of contexts share."""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar

from . import _native
from ._errors import Closed, Error, Misuse
from ._fork_safe_lock import ForkSafeLock
from ._info import Info

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

Detail = Literal["value", "alarm", "time", "graphic", "control", "full"]
"""Which attributes are requested with a value. `time`: alarm and time stamp; `full`: also units, limits and labels."""

WhenFull = Literal["replace_last", "drop_oldest"]
"""What happens to updates that are not taken in time. Each lost one is counted."""

Arguments = Mapping[str, Any] | Sequence[Mapping[str, Any]] | None
"""The arguments of procedures: for all of them, or a list with those of each."""

_LISTS = 16
"""Lists of names whose channels a context keeps together; the oldest one is dropped for another."""

T = TypeVar("T")


class HasClose(Protocol):
    """A monitor of either kind."""

    def close(self) -> None: ...


def listed(names: str | Iterable[str]) -> list[str]:
    """The names as a list."""
    if not isinstance(names, Iterable):
        raise Misuse("", f"names must be a text or a list of texts, not {type(names).__name__}")
    found = [names] if isinstance(names, str) else list(names)
    for name in found:
        if not isinstance(name, str):
            raise Misuse("", f"a name of a PV is a text, not {type(name).__name__}")
    return found


def several(names: Iterable[str]) -> tuple[str, ...]:
    """The names of a call that reads several PVs; whether they are texts shows when their channels are created."""
    return tuple(names) if isinstance(names, (list, tuple)) else tuple(listed(names))


def values_of(names: str | Iterable[str], values: Any) -> list[Any]:
    """The values for these names: one value for one name, otherwise as many as there are names."""
    if isinstance(names, str):
        return [values]
    if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
        raise Misuse("", f"the values for a list of names must be a list of as many values, not {type(values).__name__}")
    found, n_names = list(values), len(listed(names))
    if len(found) != n_names:
        raise Misuse("", f"there are {n_names} names but {len(found)} values")
    return found


def arguments_of(names: str | list[str], arguments: Arguments) -> list[dict[str, Any]]:
    """The arguments of the calls of these procedures: a dict for all of them, or a list with one for each."""
    if arguments is None or isinstance(arguments, Mapping):
        return [dict(arguments or {})] * (1 if isinstance(names, str) else len(names))
    found: list[Any] = [arguments] if isinstance(names, str) else values_of(names, arguments)
    for each in found:
        if not isinstance(each, Mapping):
            name = names if isinstance(names, str) else ""
            raise Misuse(name, f"the arguments of a procedure must be a dict, not {type(each).__name__}")
    return [dict(each) for each in found]


M = TypeVar("M", bound=HasClose)


def started_all(names: list[str], start: Callable[[str], M]) -> list[M]:
    """What `start` returns for each name. If it fails for one of them, the others are closed."""
    started: list[M] = []
    try:
        for name in names:
            started.append(start(name))
    except BaseException:
        for each in started:
            each.close()
        raise
    return started


def start_info(n_names: int) -> Callable[[_native.Channel, int], _native.Operation]:
    """Connects to each name, and reads the type of each after them."""
    return lambda channel, index: channel.connect() if index < n_names else channel.describe()


def with_types(ends: list[Any]) -> list[Any]:
    """What the first half of these results reports, with the types in the second half. Only PVs of pvAccess have one."""
    n_names = len(ends) // 2
    return [
        replace(end, type=kind) if isinstance(end, Info) and isinstance(kind, str) else end
        for end, kind in zip(ends[:n_names], ends[n_names:], strict=True)
    ]


def settings_of(settings: Mapping[str, str] | None) -> dict[str, str]:
    """The settings of a context, an IOC or a server."""
    if settings is not None and not isinstance(settings, Mapping):
        raise Misuse("", f"settings must be a dict of variables, not {type(settings).__name__}")
    found = dict(settings or {})
    for name, text in found.items():
        if not isinstance(text, str):
            raise Misuse("", f'the setting {name} must be a text, such as "5064", not {type(text).__name__}')
    unknown = found.keys() - _native.known_settings() if found else ()
    if unknown:
        raise Misuse("", _unknown_setting(min(unknown, key=str)))
    return found


def _unknown_setting(name: object) -> str:
    """The message for a setting that no program reads, with the name that is most similar."""
    from difflib import get_close_matches

    similar = get_close_matches(str(name).upper(), _native.known_settings(), n=1, cutoff=0.5)
    hint = f'; did you mean "{similar[0]}"?' if similar else ": expected a variable such as EPICS_CA_ADDR_LIST"
    return f'there is no setting "{name}"{hint}'


def seconds_of(timeout: Any, what: str = "timeout") -> float:
    """A number of seconds that the caller passes."""
    try:
        seconds = float(timeout) if not isinstance(timeout, (str, bytes)) else None
    except (TypeError, ValueError):
        seconds = None
    if seconds is None:
        raise Misuse("", f"{what} must be a number of seconds, not {type(timeout).__name__}")
    if not seconds >= 0:
        raise Misuse("", f'{what} cannot be {timeout}: it must not be negative or NaN; float("inf") is no limit')
    return seconds


def present_loop() -> AbstractEventLoop | None:
    """The event loop that runs this code. Without asyncio there is none."""
    asyncio = sys.modules.get("asyncio")
    if asyncio is None:
        return None
    try:
        loop: AbstractEventLoop = asyncio.get_running_loop()
    except RuntimeError:
        return None
    return loop


class BaseContext:
    """The channels of a client, and its operations before they are waited for."""

    _checks_names = True
    """Whether a name with blanks is an error. Other packages search for such a PV."""

    def __init__(self, settings: Mapping[str, str] | None, timeout: float) -> None:
        self._native = _native.Context(settings_of(settings))
        self._timeout = seconds_of(timeout)
        self._channels: dict[str, _native.Channel] = {}
        self._lists: dict[tuple[str, ...], _native.Channels] = {}
        self._is_closed = False
        self._lock = threading.Lock()

    @property
    def is_usable(self) -> bool:
        """Whether this process created the context: the child of a fork cannot use that of its parent."""
        return self._native.is_usable

    def disconnect(self, *names: str) -> None:
        """Closes the connections to these PVs, or to all, unless monitors use them."""
        if not self.is_usable:
            return
        with self._lock:
            self._lists.clear()
            for name in names or tuple(self._channels):
                self._channels.pop(name, None)

    def next_notice(self, timeout: float | None = None) -> str | None:
        """Waits for something that the user should know although no operation failed: two servers with one name, a refused
        put without completion. Blocks; `None` if there is none in time. The first 256 notices are kept."""
        return self._native.next_notice(timeout)

    def _close(self) -> None:
        self._is_closed = True
        self._native.close()
        self.disconnect()

    def _locked(self) -> threading.Lock:
        """The lock of this context. Raises `Forked` in the child of a fork: there, a thread of the parent may hold it for ever."""
        self._native.check_process()
        return self._lock

    def _check_open(self) -> None:
        if self._is_closed:
            raise Closed("", "the context is closed", advice="create a new one")

    def _channel(self, name: str) -> _native.Channel:
        channel = self._channels.get(name)
        if channel is not None:
            return channel
        with self._locked():
            channel = self._channels.get(name)
            if channel is None:
                channel = self._channels[name] = self._made(name)
        return channel

    def _made(self, name: str) -> _native.Channel:
        return self._native.channel(name, 0, self._checks_names)

    def _opened(self, names: Sequence[str]) -> list[_native.Channel]:
        """The channels of these PVs."""
        with self._locked():
            known = self._channels
            try:
                return [known[name] for name in names]
            except KeyError:
                return [known.get(name) or known.setdefault(name, self._made(name)) for name in names]

    def _gets(self, names: tuple[str, ...], detail: str, kind: str | None, count: int) -> list[_native.Operation | Error]:
        """Starts a get of each name: one operation for all of them, or one for each if a name or an option is invalid."""
        try:
            channels = self._lists.get(names)
        except TypeError:
            # It has something else than texts.
            channels = None
        if channels is None:
            listed(names)
        try:
            return [self._native.gets(channels or self._new_list(names), detail, kind, count)]
        except Error:
            return self._start(names, lambda channel, _: channel.get(detail, kind, count, None))

    def _new_list(self, names: tuple[str, ...]) -> _native.Channels:
        """The channels of these PVs, which are kept together: programs often read the same ones again."""
        opened = self._opened(names)
        channels = self._native.channels(opened)
        with self._locked():
            # Unless one of them was closed meanwhile.
            if all(self._channels.get(name) is channel for name, channel in zip(names, opened, strict=True)):
                if len(self._lists) >= _LISTS:
                    del self._lists[next(iter(self._lists))]
                self._lists[names] = channels
        return channels

    def _group(
        self, names: list[str], mask: str, rows_max: int, window: int | None, queue: _native.CompletionQueue | None
    ) -> _native.Group:
        """Subscribes to these PVs as one group."""
        self._check_open()
        return self._native.group(self._opened(names), mask, rows_max, window, queue)

    def _start(
        self, names: Sequence[str], start: Callable[[_native.Channel, int], _native.Operation]
    ) -> list[_native.Operation | Error]:
        """Starts an operation for each name."""
        started: list[_native.Operation | Error] = []
        for index, name in enumerate(names):
            try:
                started.append(start(self._channel(name), index))
            except Error as error:
                started.append(error)
        return started

    def _ended(self, names: Sequence[str], started: list[_native.Operation | Error], results: Iterable[Any]) -> list[Any]:
        """The result of each name. The connection of a name that could not be connected is closed, so that its search
        ends."""
        rest = iter(results)
        ends: list[Any]
        if len(started) < len(names):
            # One operation for all of them, which also reports whether there are errors.
            ((ends, has_failed),) = rest
        else:
            ends = [one if isinstance(one, Error) else next(rest) for one in started]
            has_failed = any(isinstance(end, TimeoutError) for end in ends)
        if has_failed:
            for name, end in zip(names, ends, strict=True):
                self._ended_one(name, end)
        return ends

    def _ended_one(self, name: str, end: Any) -> Any:
        """The result of one name; see `_ended`."""
        if isinstance(end, TimeoutError):
            with self._locked():
                channel = self._channels.get(name)
                if channel is not None and not channel.is_active:
                    self._lists.clear()
                    del self._channels[name]
        return end

    def _limit(self, timeout: float | None) -> float:
        return self._timeout if timeout is None else seconds_of(timeout)


C = TypeVar("C", bound=BaseContext)


class DefaultContext(Generic[C]):
    """The context of the functions of a module."""

    def __init__(self, create: Callable[[], C]) -> None:
        self._create = create
        self._lock = ForkSafeLock()
        self._context: C | None = None

    def context(self) -> C:
        """The context; a new one if it was closed, and in the child of a fork."""
        context = self._context
        if context is not None and context.is_usable and not context._is_closed:
            return context
        with self._lock:
            context = self._context
            if context is None or not context.is_usable or context._is_closed:
                context = self._context = self._create()
            return context


def operations(started: list[_native.Operation | Error]) -> list[_native.Operation]:
    """Those that have started."""
    return [one for one in started if not isinstance(one, Error)]


def raised(result: T | Error) -> T:
    """The result of one name; raises its error."""
    if isinstance(result, Error):
        raise result
    return result


F = TypeVar("F", bound=Callable[..., Any])


def without_self(function: F) -> F:
    """The function, documented without the first parameter of the method that it calls."""
    method = inspect.signature(function)
    shown = method.replace(parameters=list(method.parameters.values())[1:])
    function.__signature__ = shown  # type: ignore[attr-defined]
    del function.__wrapped__  # type: ignore[attr-defined]
    return function
