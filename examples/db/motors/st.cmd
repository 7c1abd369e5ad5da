#!/usr/bin/env -S fodo ioc
# Three simulated axes: fodo ioc st.cmd
epicsEnvSet("P", "demo:")

dbLoadRecords("motor.template", "P=$(P),M=x,DESC=Sample across the beam,LOW=-25,HIGH=25,VELO=2")
dbLoadRecords("motor.template", "P=$(P),M=y,DESC=Sample along the beam,LOW=-10,HIGH=10")
dbLoadRecords("motor.template", "P=$(P),M=theta,DESC=Sample angle,LOW=0,HIGH=360,EGU=deg,VELO=30")

iocInit

# The initial speed.
dbpf("$(P)theta:velocity", "45")
