"""EPICS' softIoc with one database: ``softioc_server.py FILE MACROS [ACCESS_FILE]``."""

import os
import sys

from epicscorelibs.ioc import dbCore, start_ioc

if len(sys.argv) > 3:
    dbCore.asSetFilename(sys.argv[3].encode())
start_ioc(sys.argv[1], sys.argv[2])
print("ready", flush=True)
sys.stdin.read()
os._exit(0)
