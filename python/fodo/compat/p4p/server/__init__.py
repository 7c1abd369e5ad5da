"""Servers of pvAccess with the interface of p4p."""

from __future__ import annotations

import logging
import time
import uuid
import weakref
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any

from .... import pva
from ...._errors import Error
from .. import _core, _refs
from .raw import ServerOperation, SharedPV

__all__ = [
    "DynamicProvider",
    "Server",
    "ServerOperation",
    "StaticProvider",
    "clearProviders",
    "installProvider",
    "removeProvider",
]

_log = logging.getLogger("fodo.compat.p4p")

_ISOLATED = {
    "EPICS_PVAS_INTF_ADDR_LIST": "127.0.0.1",
    "EPICS_PVA_ADDR_LIST": "127.0.0.1",
    "EPICS_PVA_AUTO_ADDR_LIST": "NO",
}


class StaticProvider:
    """A list of names with their PVs, which may change while servers use it."""

    def __init__(self, name: str | None = None) -> None:
        self.name = str(uuid.uuid4()) if name is None else name
        self._pvs: dict[str, SharedPV] = {}
        self._servers: weakref.WeakSet[Server] = weakref.WeakSet()

    def add(self, name: str, pv: SharedPV) -> None:
        """Adds a PV."""
        if name in self._pvs:
            raise ValueError(f'the provider has a PV "{name}" already')
        self._pvs[name] = pv
        for server in self._servers:
            server._add(name, pv)

    def remove(self, name: str) -> SharedPV:
        """Removes a PV, and disconnects its clients."""
        pv = self._pvs.pop(name)
        for server in self._servers:
            server._remove(name, pv)
        return pv

    def keys(self) -> list[str]:
        """The names."""
        return list(self._pvs)

    def close(self) -> None:
        """Removes all PVs."""
        for name in self.keys():
            self.remove(name)


class DynamicProvider:
    """PVs that are created when clients search for them.

    `handler` has `testChannel(name)`, which returns whether the PV exists, and `makeChannel(name, peer)`, which returns its
    `SharedPV`. Both are called when a client searches; the peer is not known then and is an empty text. The PV has the name until
    its last client disconnects.
    """

    NotYet = b"nocache"

    def __init__(self, name: str | None, handler: Any) -> None:
        self.name = name
        self._handler = handler

    def _find(self, name: str) -> SharedPV | None:
        """The PV with this name, if it exists."""
        if self._handler.testChannel(name) is not True:
            return None
        pv: SharedPV | None = self._handler.makeChannel(name, "")
        return pv


Provider = StaticProvider | DynamicProvider


class _Registry:
    """Providers by their names."""

    def __init__(self) -> None:
        self._providers: weakref.WeakValueDictionary[str, Provider] = weakref.WeakValueDictionary()

    def set(self, name: str, provider: Provider) -> None:
        self._providers[name] = provider

    def remove(self, name: str) -> None:
        self._providers.pop(name, None)

    def clear(self) -> None:
        self._providers.clear()

    def named(self, name: str) -> Provider:
        try:
            return self._providers[name]
        except KeyError:
            raise ValueError(f"there is no provider {name!r}: call installProvider first") from None


_registry = _Registry()


def installProvider(name: str, provider: Provider) -> None:
    """Gives a provider a name for `Server`. It is kept only as long as the program keeps it."""
    _registry.set(name, provider)


def removeProvider(name: str) -> None:
    """Forgets the name of a provider."""
    _registry.remove(name)


def clearProviders() -> None:
    """Forgets all names of providers."""
    _registry.clear()


class Server:
    """Server(providers, isolate=False, conf=None, useenv=True): serves the PVs of providers until `stop`.

    `providers`: names of installed providers, providers, or mappings of names to PVs; each may be a tuple with an integer, and
    the lowest is searched first. `isolate`: only on loopback, on free ports, which `conf()` returns.
    """

    def __init__(
        self,
        providers: Iterable[Any],
        isolate: bool = False,
        conf: Mapping[str, str] | None = None,
        useenv: bool | None = True,
    ) -> None:
        if isolate and conf is not None:
            raise ValueError("an isolated server has no configuration: pass one of both")
        names = providers.split() if isinstance(providers, str) else providers
        self._providers = [provider for _, provider in sorted(map(_ordered, names), key=lambda pair: pair[0])]
        dynamic = [provider for provider in self._providers if isinstance(provider, DynamicProvider)]
        self._dynamic = dynamic
        settings = None if isolate else _core.settings_of(conf, useenv is not False)
        owner = weakref.ref(self)

        def find(name: str) -> pva.SharedPV | None:
            server = owner()
            return None if server is None else server._find(name)

        self._server = pva.Server(settings=settings, isolated=isolate, on_search=find if dynamic else None)
        for provider in self._providers:
            if isinstance(provider, StaticProvider):
                provider._servers.add(self)
                for name in provider.keys():
                    self._add(name, provider._pvs[name])
        try:
            self._server.start()
        except Error as error:
            self.stop()
            raise RuntimeError(f"the configuration is invalid: {error.reason}") from None
        self._conf = {name: text for name, text in self._server.settings.items() if name.startswith("EPICS_PVA")}
        if isolate:
            self._conf |= _ISOLATED
            self._conf["EPICS_PVA_ADDR_LIST"] = "127.0.0.1"
        for variable in ("SERVER_PORT", "BROADCAST_PORT"):
            self._conf[f"EPICS_PVAS_{variable}"] = self._conf[f"EPICS_PVA_{variable}"]
        _refs.servers.add(self)

    def _find(self, name: str) -> pva.SharedPV | None:
        for provider in self._dynamic:
            pv = provider._find(name)
            if pv is not None:
                return pv._served()
        return None

    def _add(self, name: str, pv: SharedPV) -> None:
        # The provider that is searched first has the name.
        if name not in self._server.names:
            self._server.add(name, pv._served())

    def _remove(self, name: str, pv: SharedPV) -> None:
        if name in self._server.names and self._server.remove(name) is not pv._served():
            raise AssertionError("another provider has the name")

    def conf(self) -> dict[str, str]:
        """The variables of this server, and of a client that searches only it."""
        return dict(self._conf)

    @property
    def counts(self) -> pva.Counts:
        """The counters of the server, which p4p does not have."""
        return self._server.counts

    def tostr(self, detail: int = 0) -> str:
        """The configuration; from `detail` 1 on also the names."""
        lines = [f"{name}={text}" for name, text in sorted(self._conf.items())]
        return "\n".join(lines + (self._server.names if detail > 0 else []))

    def stop(self) -> None:
        """Disconnects all clients. May be called more than once."""
        _refs.servers.discard(self)
        self._server.stop()
        for provider in self._providers:
            if isinstance(provider, StaticProvider):
                provider._servers.discard(self)
        for name in self._server.names:
            self._server.remove(name)

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @classmethod
    def forever(cls, *args: Any, **kws: Any) -> None:
        """Serves until Ctrl-C. The arguments are those of the constructor."""
        with cls(*args, **kws):
            try:
                while True:
                    time.sleep(3600)
            except KeyboardInterrupt:
                _log.info("the server stops")


def _ordered(entry: Any) -> tuple[int, Provider]:
    """The place of a provider, and the provider."""
    provider, order = entry if isinstance(entry, tuple) else (entry, getattr(entry, "order", 0))
    if isinstance(provider, bytes):
        provider = provider.decode()
    if isinstance(provider, str):
        return order, _registry.named(provider)
    if isinstance(provider, (StaticProvider, DynamicProvider)):
        return order, provider
    if hasattr(provider, "items"):
        names = StaticProvider()
        for name, pv in provider.items():
            names.add(name, pv)
        return order, names
    raise ValueError(f"a provider cannot be {provider!r}: expected a name, a provider, or a mapping of names to PVs")
