"""A server for all tests, and the two faces of the client."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fodo import aio, sync
from processes import FOLDER, isolated, running, serving

PREFIX = "T:"

# A process that a shell starts in the background ignores it, and so would all that the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)


class Place:
    """Where the tests' server is."""

    def __init__(self, settings: dict[str, str], prefix: str) -> None:
        self.settings = settings
        self.prefix = prefix

    def name(self, protocol: str, pv: str) -> str:
        return f"{protocol}://{self.prefix}{pv}"


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    """`fodo ioc` with the records of the tests."""
    settings = isolated()
    with serving(settings, PREFIX):
        yield Place(settings, PREFIX)


@pytest.fixture(params=["ca", "pva"])
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class SyncFace:
    """`fodo.sync`."""

    def __init__(self, settings: dict[str, str]) -> None:
        self.context = sync.Context(settings=settings, timeout=10)

    def call(self, name: str, *arguments: Any, **options: Any) -> Any:
        return getattr(self.context, name)(*arguments, **options)

    def next(self, monitor: Any, timeout: float = 10) -> Any:
        return monitor.next(timeout)

    def run_until(self, is_true: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 10
        while not is_true():
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def monitor(self, *arguments: Any, **options: Any) -> Any:
        return self.context.monitor(*arguments, **options)

    def batches(self, *arguments: Any, **options: Any) -> Any:
        return self.context.batches(*arguments, **options)

    def close(self) -> None:
        self.context.close()


class AioFace:
    """`fodo.aio`, called from a loop that runs during a call."""

    def __init__(self, settings: dict[str, str]) -> None:
        self.runner = asyncio.Runner()
        self.context = aio.Context(settings=settings, timeout=10)

    def call(self, name: str, *arguments: Any, **options: Any) -> Any:
        return self.runner.run(getattr(self.context, name)(*arguments, **options))

    def next(self, monitor: Any, timeout: float = 10) -> Any:
        return self.runner.run(monitor.next(timeout))

    def run_until(self, is_true: Callable[[], bool]) -> None:
        async def wait() -> None:
            async with asyncio.timeout(10):
                while not is_true():
                    await asyncio.sleep(0.01)

        self.runner.run(wait())

    def monitor(self, *arguments: Any, **options: Any) -> Any:
        async def start() -> Any:
            return self.context.monitor(*arguments, **options)

        return self.runner.run(start())

    def batches(self, *arguments: Any, **options: Any) -> Any:
        async def start() -> Any:
            return self.context.batches(*arguments, **options)

        return self.runner.run(start())

    def close(self) -> None:
        self.context.close()
        self.runner.close()


Face = SyncFace | AioFace


@pytest.fixture(params=[SyncFace, AioFace], ids=["sync", "aio"])
def face(request: pytest.FixtureRequest, place: Place) -> Iterator[Face]:
    """A context of either face."""
    face = request.param(place.settings)
    yield face
    face.close()


@pytest.fixture
def context(place: Place) -> Iterator[sync.Context]:
    with sync.Context(settings=place.settings, timeout=10) as context:
        yield context


@pytest.fixture(scope="module")
def p4p_settings() -> Iterator[dict[str, str]]:
    """A server of p4p with structures and a procedure, from the peers' environment."""
    peers = os.environ.get("FODO_PEERS")
    python = Path(peers or "", "bin", "python")
    if not peers or not python.exists():
        pytest.skip("FODO_PEERS names no environment with p4p")
    settings = isolated()
    with running([str(python), str(FOLDER / "p4p_server.py")], settings, "ready"):
        yield settings


@pytest.fixture(params=[SyncFace, AioFace], ids=["sync", "aio"])
def p4p_face(request: pytest.FixtureRequest, p4p_settings: dict[str, str]) -> Iterator[Face]:
    face = request.param(p4p_settings)
    yield face
    face.close()


