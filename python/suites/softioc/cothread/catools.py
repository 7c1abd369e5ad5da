"""Gets and puts of aioca, on an event loop in a thread."""

import asyncio
import threading
from collections.abc import Awaitable
from typing import Any

import aioca
from aioca import FORMAT_CTRL

__all__ = ["FORMAT_CTRL", "caget", "caput"]

_loop = asyncio.new_event_loop()
threading.Thread(target=_loop.run_forever, daemon=True).start()


def _run(call: Awaitable[Any]) -> Any:
    async def ended() -> Any:
        return await call

    return asyncio.run_coroutine_threadsafe(ended(), _loop).result(60)


def caget(name: str, **options: Any) -> Any:
    """The value of a PV."""
    return _run(aioca.caget(name, **options))


def caput(name: str, value: Any, **options: Any) -> Any:
    """Writes a value."""
    return _run(aioca.caput(name, value, **({"timeout": 30} | options)))


class _Channels:
    def purge(self) -> None:
        """Closes the channels."""

        async def purge() -> None:
            aioca.purge_channel_caches()

        _run(purge())


_channel_cache = _Channels()
