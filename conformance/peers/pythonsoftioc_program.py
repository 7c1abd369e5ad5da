"""pythonSoftIOC as the device of its records: ``pythonsoftioc_program.py PREFIX``.

Each line on standard input is a JSON list: a method, a record, and keyword arguments. The reply is ``done``. The value of
each update of an output is printed as ``update NAME VALUE``.
"""

import asyncio
import json
import os
import sys
import threading

from softioc import asyncio_dispatcher, builder, softioc

printing = threading.Lock()


def say(line: str) -> None:
    """Prints a line as a whole: updates come from another thread."""
    with printing:
        print(line, flush=True)


builder.SetDeviceName(sys.argv[1].rstrip(":"))


async def report(value: float) -> None:
    await asyncio.sleep(0)
    say(f"update gap {value}")


records = {
    "t": builder.aIn("t", initial_value=1.0, HIGH=5, HSV="MINOR"),
    "stamped": builder.aIn("stamped", initial_value=1.0, TSE=-2),
    "n": builder.longIn("n", initial_value=1),
    "b": builder.boolIn("b", "off", "on", initial_value=0, OSV="MAJOR"),
    "m": builder.mbbIn("m", "zero", "one", ("two", "MINOR"), initial_value=0),
    "s": builder.stringIn("s", initial_value="first"),
    "w": builder.WaveformIn("w", [1.0, 2.0], length=4),
    "gap": builder.aOut(
        "gap", initial_value=10.0, on_update=report, validate=lambda _, value: value < 100, blocking=True
    ),
}

builder.LoadDatabase()
softioc.iocInit(asyncio_dispatcher.AsyncioDispatcher(), enable_pva=False)
say("ready")
for line in sys.stdin:
    method, name, arguments = json.loads(line)
    getattr(records[name], method)(**arguments)
    say("done")
os._exit(0)
