"""pythonSoftIOC with its Python device support: ``pythonsoftioc_server.py PREFIX ACCESS_FILE``.

Its input records reject puts from clients, by design.
"""

import asyncio
import os
import sys

import numpy as np
from epicscorelibs.ioc import dbCore
from softioc import asyncio_dispatcher, builder, softioc

builder.SetDeviceName(sys.argv[1].rstrip(":"))

builder.records.calc("calc", CALC="A+1", INPA=41, PINI="YES")
for index in range(50):
    builder.records.calc(f"count{index:02}", CALC="VAL+1", SCAN=".1 second")

states = ["zero", "one", "two"]
builder.aIn("ai", initial_value=2.5, PREC=3, EGU="mm", LOPR=-10, HOPR=10)
builder.aOut("ao", initial_value=-1.25, PREC=2, EGU="V", DESC="how far", always_update=True)
builder.boolIn("bi", "off", "on", initial_value=1)
builder.boolOut("bo", "off", "on", initial_value=0)
builder.longIn("longin", initial_value=7)
builder.longOut("longout", initial_value=-7)
builder.stringIn("stringin", initial_value="hello")
builder.stringOut("stringout", initial_value="world")
builder.mbbIn("mbbi", *states, initial_value=2)
builder.mbbOut("mbbo", *states, initial_value=1)
for kind, datatype in (("SHORT", np.int16), ("LONG", np.int32), ("FLOAT", np.float32), ("DOUBLE", np.float64)):
    builder.WaveformOut(f"wf_{kind}", length=8, datatype=datatype, initial_value=[])
builder.WaveformOut("big", length=1_000_000, datatype=np.int32, initial_value=[])

builder.aOut("masked", initial_value=0.0, MDEL=1, ADEL=5, HIGH=50, HSV="MINOR", EGU="V", always_update=True)
builder.longOut("locked", initial_value=5, ASG="READONLY")
severities = {"LLSV": "MAJOR", "LSV": "MINOR", "HSV": "MINOR", "HHSV": "MAJOR"}
builder.aOut("alarmed", initial_value=0.0, LOLO=-8, LOW=-6, HIGH=6, HIHI=8, always_update=True, **severities)
builder.records.ao("chain", FLNK=f"{sys.argv[1]}chain:twice")
builder.records.calc("chain:twice", CALC="A*2", INPA=f"{sys.argv[1]}chain NPP NMS", FLNK=f"{sys.argv[1]}chain:more")
builder.records.calc("chain:more", CALC="A+1", INPA=f"{sys.argv[1]}chain:twice NPP NMS")
slow_done = builder.aOut("slow:done", initial_value=0.0, always_update=True)


async def finish_slowly(value: float) -> None:
    await asyncio.sleep(0.3)
    slow_done.set(value)


builder.aOut("slow", initial_value=0.0, always_update=True, on_update=finish_slowly, blocking=True)

dbCore.asSetFilename(sys.argv[2].encode())
builder.LoadDatabase()
softioc.iocInit(asyncio_dispatcher.AsyncioDispatcher(), enable_pva=False)
print("ready", flush=True)
sys.stdin.read()
os._exit(0)
