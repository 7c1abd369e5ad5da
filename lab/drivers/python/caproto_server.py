"""caproto's server with the PVs of the laboratory's database: it reads names and values from the file."""

import asyncio
import os
import re
import sys

import numpy as np
from caproto import ChannelDouble, ChannelInteger
from caproto.asyncio.server import start_server

RECORD = re.compile(r'record\((\w+), *"([^"]+)"\)([^}]*)\}')
VALUE = re.compile(r'field\(VAL, *"([^"]*)"\)')
ELEMENTS = re.compile(r'field\(NELM, *"?(\d+)')
PERIOD_S = 0.1


def channels(text: str) -> dict[str, ChannelDouble | ChannelInteger]:
    """One channel per record: an array of 32-bit integers for a waveform, otherwise a double with the VAL or 0."""
    made = {}
    for kind, name, fields in RECORD.findall(text):
        if kind == "waveform":
            n_elements = int(ELEMENTS.search(fields).group(1))
            made[name] = ChannelInteger(value=np.zeros(1, np.int32), max_length=n_elements)
        else:
            value = VALUE.search(fields)
            made[name] = ChannelDouble(value=float(value.group(1)) if value else 0.0)
    return made


async def count(counters: list[ChannelDouble]) -> None:
    loop = asyncio.get_running_loop()
    due = loop.time()
    while True:
        for counter in counters:
            await counter.write(counter.value + 1)
        due += PERIOD_S
        await asyncio.sleep(max(0.0, due - loop.time()))


async def main(path: str) -> None:
    with open(path) as file:
        pvs = channels(file.read())
    counters = [channel for name, channel in pvs.items() if name.startswith("ca:test:counter")]
    running = set()

    async def announce(_library: object) -> None:
        # Kept here, because a task without a reference may be garbage-collected.
        running.add(asyncio.create_task(count(counters)))
        # The server listens shortly after this call.
        await asyncio.sleep(0.2)
        print("caproto serves", flush=True)

    await start_server(pvs, interfaces=[os.environ["EPICS_CAS_INTF_ADDR_LIST"]], startup_hook=announce)


asyncio.run(main(sys.argv[1]))
