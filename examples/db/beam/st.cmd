#!/usr/bin/env -S fodo ioc
# A beam position, its setpoint and a scan as groups of PVs over pvAccess: fodo ioc st.cmd
on error break
epicsEnvSet("P", "demo:")

dbLoadRecords("beam.template", "P=$(P)")
dbLoadGroup("scan.json", "P=$(P)")

iocInit
