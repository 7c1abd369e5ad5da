#!/usr/bin/env -S fodo ioc
# 24 racks with 12 sensors each, from one table: fodo ioc st.cmd
on error break
dbLoadTemplate("plant.substitutions", "P=demo:")
iocInit
