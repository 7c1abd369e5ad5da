#!/usr/bin/env -S fodo ioc
# A vacuum section with an interlock: fodo ioc st.cmd
on error break
epicsEnvSet("P", "demo:")

dbLoadTemplate("vacuum.substitutions", "P=$(P)")

# The user who starts the IOC is its operator.
asSetFilename("vacuum.acf")
asSetSubstitutions("P=$(P),OPERATOR=$(USER=operator)")

iocInit
