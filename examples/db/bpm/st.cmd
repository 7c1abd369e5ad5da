#!/usr/bin/env -S fodo ioc
# 32 beam position monitors and the orbit as an array: fodo ioc st.cmd
on error break
epicsEnvSet("P", "demo:")

dbLoadRecords("orbit.template", "P=$(P)")
dbLoadTemplate("bpms.substitutions", "P=$(P)")

iocInit
