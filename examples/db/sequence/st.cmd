#!/usr/bin/env -S fodo ioc
# Switches a magnet on step by step; each step waits for the previous one: fodo ioc st.cmd
on error break
epicsEnvSet("P", "demo:")

dbLoadRecords("water.template", "P=$(P)")
dbLoadRecords("supply.template", "P=$(P)")
dbLoadRecords("sequence.template", "P=$(P)")

iocInit
