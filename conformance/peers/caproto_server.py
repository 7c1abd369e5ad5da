"""caproto's server: ``caproto_server.py PREFIX INTERFACE``."""

import asyncio
import sys

from caproto import ChannelType
from caproto.server import PVGroup, pvproperty, run
from ending import end_with_input

STATES = ["zero", "one", "two"]


class Records(PVGroup):
    ai = pvproperty(value=2.5, precision=3, units="mm", lower_disp_limit=-10.0, upper_disp_limit=10.0)
    ao = pvproperty(value=-1.25, precision=2, units="V")
    bi = pvproperty(value="on", enum_strings=["off", "on"], record="bi", dtype=ChannelType.ENUM)
    bo = pvproperty(value="off", enum_strings=["off", "on"], record="bo", dtype=ChannelType.ENUM)
    longin = pvproperty(value=7)
    longout = pvproperty(value=-7)
    stringin = pvproperty(value="hello", dtype=ChannelType.STRING)
    stringout = pvproperty(value="world", dtype=ChannelType.STRING)
    mbbi = pvproperty(value="two", enum_strings=STATES, dtype=ChannelType.ENUM)
    mbbo = pvproperty(value="one", enum_strings=STATES, dtype=ChannelType.ENUM)
    wf_SHORT = pvproperty(value=[0], max_length=8, dtype=ChannelType.INT)
    wf_LONG = pvproperty(value=[0], max_length=8, dtype=ChannelType.LONG)
    wf_FLOAT = pvproperty(value=[0.0], max_length=8, dtype=ChannelType.FLOAT)
    wf_DOUBLE = pvproperty(value=[0.0], max_length=8, dtype=ChannelType.DOUBLE)
    masked = pvproperty(value=0.0, value_atol=1.0, log_atol=5.0)
    locked = pvproperty(value=5, read_only=True)
    slow = pvproperty(value=0.0)
    slow_done = pvproperty(value=0.0, name="slow:done")

    @slow.putter
    async def slow(self, _instance: object, value: float) -> None:
        await asyncio.sleep(0.3)
        await self.slow_done.write(value)

    big = pvproperty(value=[0], max_length=1_000_000, dtype=ChannelType.LONG)


async def ready(_async_library: object) -> None:
    print("ready", flush=True)


end_with_input()
run(Records(prefix=sys.argv[1]).pvdb, interfaces=[sys.argv[2]], startup_hook=ready)
