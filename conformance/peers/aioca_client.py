"""aioca, driven by lines of JSON."""

import asyncio
import json
import os
import sys
from typing import Any

import aioca
from lines import answer, failure, pattern, shown

KINDS = ["STRING", "INT", "FLOAT", "ENUM", "CHAR", "LONG", "DOUBLE"]
LIMITS = ["disp", "alarm", "warning", "ctrl"]


class Client:
    def __init__(self) -> None:
        self.updates: list[asyncio.Queue] = []
        self.subscriptions: list[aioca.Subscription] = []

    async def connect(self, pv: str, timeout: float) -> dict[str, Any]:
        about = await aioca.cainfo(pv, timeout=timeout)
        return {"kind": KINDS[about.datatype], "count": about.count, "may_write": bool(about.write)}

    async def get(self, pv: str, shape: str, timeout: float) -> dict[str, Any]:
        datatype = {"text": aioca.DBR_STRING, "long": aioca.DBR_CHAR_STR}.get(shape)
        layout = aioca.FORMAT_CTRL if shape == "control" else aioca.FORMAT_TIME
        return sample(await aioca.caget(pv, datatype=datatype, format=layout, timeout=timeout))

    async def put(self, pv: str, value: Any, wait: bool, timeout: float) -> dict[str, Any]:
        # For a name with a dollar aioca expects text by default, and sends it as one string.
        datatype = aioca.DBR_CHAR if pv.endswith("$") else None
        await aioca.caput(pv, value, datatype=datatype, wait=wait, timeout=timeout)
        return {}

    async def put_pattern(self, pv: str, first: int, count: int, timeout: float) -> dict[str, Any]:
        await aioca.caput(pv, pattern(first, count), wait=True, timeout=timeout)
        return {}

    async def monitor(self, pv: str, mask: int, timeout: float) -> dict[str, Any]:
        queue: asyncio.Queue = asyncio.Queue()
        self.updates.append(queue)
        self.subscriptions.append(
            aioca.camonitor(pv, queue.put_nowait, events=mask, format=aioca.FORMAT_TIME, all_updates=True)
        )
        return {"monitor": len(self.updates) - 1}

    async def end_monitors(self) -> dict[str, Any]:
        for subscription in self.subscriptions:
            subscription.close()
        self.subscriptions.clear()
        return {}

    async def take(self, monitor: int, count: int, timeout: float) -> dict[str, Any]:
        taken = []
        try:
            async with asyncio.timeout(timeout):
                while len(taken) < count:
                    taken.append(sample(await self.updates[monitor].get()))
        except TimeoutError:
            pass
        return {"updates": taken}


def sample(value: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"value": shown(value), "severity": value.severity, "status": value.status}
    if hasattr(value, "raw_stamp"):
        found["seconds"], found["nanos"] = value.raw_stamp
    if hasattr(value, "enums"):
        found["labels"] = list(value.enums)
    if hasattr(value, "units"):
        found["units"] = value.units
        found["limits"] = [[getattr(value, f"{end}_{kind}_limit") for end in ("lower", "upper")] for kind in LIMITS]
    if hasattr(value, "precision"):
        found["precision"] = value.precision
    return found


async def main() -> None:
    client = Client()
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        request = json.loads(line)
        verb = getattr(client, request.pop("do"))
        try:
            answer(await verb(**request))
        except Exception as error:  # Any error is the answer.
            answer(failure(error))
    os._exit(0)


asyncio.run(main())
