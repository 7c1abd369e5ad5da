"""EPICS' softIoc with one database: ``softioc_server.py FILE MACROS``."""

import os
import sys

from epicscorelibs.ioc import start_ioc

start_ioc(sys.argv[1], sys.argv[2])
print("ready", flush=True)
sys.stdin.read()
os._exit(0)
