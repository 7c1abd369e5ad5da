#!/usr/bin/env -S fodo ioc
# A tree of alarms: fodo ioc st.cmd
on error break
epicsEnvSet("P", "demo:")

dbLoadTemplate("tree.substitutions", "P=$(P)")

iocInit
