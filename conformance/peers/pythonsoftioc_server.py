"""pythonSoftIOC with its Python device support: ``pythonsoftioc_server.py PREFIX``.

Its In records take no puts from clients, by design.
"""

import os
import sys

import numpy as np
from softioc import asyncio_dispatcher, builder, softioc

builder.SetDeviceName(sys.argv[1].rstrip(":"))

builder.records.calc("calc", CALC="A+1", INPA=41, PINI="YES")
for index in range(50):
    builder.records.calc(f"count{index:02}", CALC="VAL+1", SCAN=".1 second")

states = ["zero", "one", "two"]
builder.aIn("ai", initial_value=2.5, PREC=3, EGU="mm", LOPR=-10, HOPR=10)
builder.aOut("ao", initial_value=-1.25, PREC=2, EGU="V", always_update=True)
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

builder.LoadDatabase()
softioc.iocInit(asyncio_dispatcher.AsyncioDispatcher(), enable_pva=False)
print("ready", flush=True)
sys.stdin.read()
os._exit(0)
