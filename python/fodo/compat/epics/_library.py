"""What the module `ca` has of the C library as a whole: contexts, waits and messages. Most of it has no effect here."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from . import dbr
from ._channels import Channel, holder


def write(msg: str, newline: bool = True, flush: bool = True) -> None:
    """Writes a text to the standard output."""
    sys.stdout.write(f"{msg}\n" if newline else msg)
    if flush:
        sys.stdout.flush()


def initialize_libca() -> None:
    """Creates the client of this process, which otherwise the first call does."""
    holder.get()


def find_libca() -> str:
    """The C library of Channel Access: empty, since Fodo needs none."""
    return ""


def finalize_libca(maxtime: float = 10.0) -> None:
    """Closes the client of this process with all its PVs. The next call creates another one."""
    holder.close()


def find_lib(inp_lib_name: str = "ca") -> str:
    """A C library: empty, since Fodo needs none."""
    return ""


def find_libCom() -> str:  # noqa: N802
    """The C library with the functions of the operating system: empty, since Fodo needs none."""
    return ""


def register_clear_cache(callback: Callable[[], object] | None) -> None:
    """`clear_cache` calls this function before it disconnects the PVs."""
    if callback is None:
        return
    if not callable(callback):
        raise RuntimeError(f"{callback!r} cannot be called")
    if callback not in holder.clear_callbacks:
        holder.clear_callbacks.append(callback)


def clear_cache() -> None:
    """Disconnects all PVs and channels, after it has called the functions of `register_clear_cache`."""
    for callback in tuple(holder.clear_callbacks):
        callback()
    client = holder.existing
    if client is not None:
        client.clear()


def show_cache(print_out: bool = True) -> str | None:
    """Prints or returns a table of the channels."""
    client = holder.existing
    channels = [] if client is None else client.channels()
    lines = ["#  PV name  chid  connected?"]
    lines += [f"{channel.name}  {channel.number}  {channel.info is not None}" for channel in channels]
    if not print_out:
        return "\n".join(lines)
    write("\n".join(lines))
    return None


class CacheItem:
    """What is known about a channel, also by `item["pvname"]`."""

    def __init__(self, channel: Channel) -> None:
        self.pvname = channel.name
        self.chid = channel.number
        self.conn = channel.info is not None
        self.context = _context_number()

    @property
    def chid_int(self) -> int:
        """The number of the channel."""
        return int(self.chid)

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)

    def __repr__(self) -> str:
        state = "connected" if self.conn else "disconnected"
        return f"<CacheItem {self.pvname!r} {state} chid={self.chid_int}>"


def get_cache(pvname: str) -> CacheItem | None:
    """What is known about the channel of a PV; `None` if there is no channel."""
    return cache_by_name().get(pvname)


def cache_by_name() -> dict[str, CacheItem]:
    """The channels by their names."""
    client = holder.existing
    return {} if client is None else {channel.name: CacheItem(channel) for channel in client.channels()}


class Empty:
    """A value that is requested and has not been received."""

    def __repr__(self) -> str:
        return "<a value that has not been received>"


GET_PENDING = Empty()


def table(module: str, name: str) -> Any:
    """A table of the module `ca` of pyepics as it is now: changes of it have no effect. `module`: the name in the error for
    other names."""
    if name == "_cache":
        return {current_context(): cache_by_name()}
    if name == "_chid_cache":
        return {item.chid_int: item for item in cache_by_name().values()}
    if name == "initial_context":
        return None if holder.existing is None else current_context()
    raise AttributeError(f"module {module!r} has no attribute {name!r}")


def client_status(context: object, level: int) -> int:
    """Prints the number of channels, and from level 1 on each of them."""
    items = cache_by_name().values()
    print(f"{len(items)} channels, {sum(item.conn for item in items)} connected", file=sys.stderr)
    for item in items if level > 0 else ():
        print(item, file=sys.stderr)
    return dbr.ECA_NORMAL


def create_context(ctx: object = None) -> int:
    """Returns the number of the context. All threads share one, so that each can use every PV."""
    return _context_number()


def current_context() -> int:
    """The number of the context."""
    return _context_number()


def attach_context(context: object) -> int:
    """Without effect: all threads share one context."""
    return dbr.ECA_NORMAL


def use_initial_context() -> int:
    """Without effect: all threads share one context."""
    _context_number()
    return dbr.ECA_NORMAL


def detach_context() -> int:
    """Without effect: all threads share one context."""
    return dbr.ECA_NORMAL


def destroy_context() -> None:
    """Without effect: `finalize_libca` closes the context."""


def _context_number() -> int:
    return id(holder.get())


context_create = create_context
context_destroy = destroy_context


def poll(evt: float = 1e-5, iot: float = 1.0) -> int:
    """Gives other threads time to run; updates are received without it."""
    time.sleep(max(evt, 1e-5))
    return dbr.ECA_NORMAL


def pend_event(timeout: float = 1e-5) -> int:
    """Waits for this time in seconds."""
    time.sleep(max(timeout, 1e-5))
    return dbr.ECA_TIMEOUT


def pend_io(timeout: float = 1.0) -> int:
    """Without effect: each call waits for its own reply."""
    return dbr.ECA_NORMAL


def test_io() -> int:
    """Reports that no reply is pending."""
    return dbr.ECA_IODONE


test_io.__test__ = False  # type: ignore[attr-defined]


def flush_io() -> int:
    """Without effect: each call sends its requests."""
    return dbr.ECA_NORMAL


def version() -> str:
    """The version of Channel Access."""
    return "4.13"


def replace_printf_handler(writer: object = None) -> None:
    """Without effect: Fodo prints nothing; `fodo.sync.Context.next_notice` has what a user should know."""


def disable_ca_messages() -> None:
    """Without effect: Fodo prints nothing."""


def enable_ca_messages(writer: object = "stderr") -> None:
    """Without effect: Fodo prints nothing."""
