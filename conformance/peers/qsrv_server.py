"""One of the two servers of EPICS for pvAccess with one database: ``qsrv_server.py qsrv1|qsrv2 FILE MACROS [ACCESS_FILE [GROUPS]]``.

The same as ``python -m epicscorelibs.ioc`` (QSRV1) and ``python -m pvxslibs.ioc`` (QSRV2), which have no option for the
file of access rights. GROUPS is a JSON file with groups of PVs.
"""

import os
import sys

import pvxslibs.path
from epicscorelibs import ioc

LIBRARIES = {
    "qsrv1": {"extra_dbd_load": ioc.pva_dbd_load, "extra_dso_load": ioc.pva_dso_load},
    "qsrv2": {
        "extra_dbd_load": (("pvxsIoc.dbd", pvxslibs.path.dbd_path),),
        "extra_dso_load": ("pvxslibs.lib.pvxsIoc",),
    },
}

os.environ.setdefault("PVXS_QSRV_ENABLE", "YES")
if len(sys.argv) > 4:
    ioc.dbCore.asSetFilename(sys.argv[4].encode())
if len(sys.argv) > 5:
    init = ioc.iocInit

    def load_groups_and_init() -> int:
        ioc.ioc(f'dbLoadGroup("{sys.argv[5]}", "{sys.argv[3]}")')
        return init()

    ioc.iocInit = load_groups_and_init
ioc.start_ioc(sys.argv[2], sys.argv[3], **LIBRARIES[sys.argv[1]])
print("ready", flush=True)
sys.stdin.read()
os._exit(0)
