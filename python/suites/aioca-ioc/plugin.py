"""Two tests of aioca are functions without `async` that use the current event loop, and need one."""

import asyncio
import inspect
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _current_event_loop(request: pytest.FixtureRequest) -> Iterator[None]:
    if inspect.iscoroutinefunction(request.function):
        yield
        return
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield
    asyncio.set_event_loop(None)
    loop.close()
