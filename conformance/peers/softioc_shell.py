"""Runs a script in the shell of EPICS' IOC: ``softioc_shell.py SCRIPT``. All output is the shell's."""

import ctypes
import os
import sys

from epicscorelibs import ioc

ioc.iocshRegisterCommon()
ioc.dbLoadDatabase(b"base.dbd", ioc.DEFAULT_DBD_PATH.encode(), None)
ioc.registerRecordDeviceDriver(ioc.pdbbase)
iocsh = ioc.Com.iocsh
iocsh.argtypes = [ctypes.c_char_p]
iocsh(sys.argv[1].encode())
# Flushes C's buffers before the exit, which skips all cleanup.
ioc.Com.iocshCmd(b"echo")
ctypes.CDLL(None).fflush(None)
os._exit(0)
