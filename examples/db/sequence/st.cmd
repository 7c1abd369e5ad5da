#!/usr/bin/env -S fodo ioc
# Switching on step by step, each when the one before is complete: fodo ioc st.cmd
on error break
epicsEnvSet("P", "demo:")

dbLoadRecords("water.template", "P=$(P)")
dbLoadRecords("supply.template", "P=$(P)")
dbLoadRecords("sequence.template", "P=$(P)")

iocInit
