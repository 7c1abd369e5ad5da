#!/usr/bin/env bash
# NORD, the number of elements of an array record, as a monitor sees it in EPICS Base 7.0.10.99 (epicscorelibs 7.0.10.99.0.2),
# when a record copies three elements from another one through a link:
#
# - waveform (INP): two updates with the value 3. The first has the time stamp of the previous processing, or none.
# - aao (OMSL closed_loop, DOL): no update at all, although a get returns 3.
#
# A good guess is one update for each change, with the time of the change: a client that counts updates counts too many, one
# that keeps the time of the first gets a wrong time, and one that shows NORD of an aao shows an old number.
#
# Needs python3 and a package registry. Exits with 0 if EPICS Base still behaves so.
set -euo pipefail
place=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$place"' EXIT
cd "$place"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check epicscorelibs==7.0.10.99.0.2 aioca==2.1

cat >arrays.db <<'END'
record(waveform, "finding:source") { field(FTVL, "DOUBLE") field(NELM, "5") }
record(waveform, "finding:copy") { field(FTVL, "DOUBLE") field(NELM, "5") field(INP, "finding:source") }
record(aao, "finding:out") {
    field(FTVL, "DOUBLE") field(NELM, "5") field(OMSL, "closed_loop") field(DOL, "finding:source")
}
END
cat >serve.py <<'END'
import time
from epicscorelibs.ioc import start_ioc

start_ioc("arrays.db", "")
time.sleep(300)
END
cat >watch.py <<'END'
import asyncio
from aioca import FORMAT_TIME, caget, camonitor, caput, purge_channel_caches

async def main():
    seen = {"copy": [], "out": []}
    for name, updates in seen.items():
        await caget(f"finding:{name}", timeout=30)
        camonitor(f"finding:{name}.NORD", updates.append, format=FORMAT_TIME, all_updates=True)
    await asyncio.sleep(1)
    await caput("finding:source", [1.0, 2.0, 3.0], wait=True)
    for name in seen:
        await caput(f"finding:{name}.PROC", 1, wait=True)
    await asyncio.sleep(1)
    for name, updates in seen.items():
        times = len({update.timestamp for update in updates[1:]})
        got = int(await caget(f"finding:{name}.NORD"))
        print(f"{name}: updates {[int(update) for update in updates]}, {times} time stamps after the first, get {got}")
    purge_channel_caches()

asyncio.run(main())
END
free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
EPICS_CA_SERVER_PORT=$(free_port)
export EPICS_CA_SERVER_PORT EPICS_CA_ADDR_LIST=127.0.0.1 EPICS_CA_AUTO_ADDR_LIST=NO EPICS_CAS_INTF_ADDR_LIST=127.0.0.1
venv/bin/python serve.py >server 2>&1 &
venv/bin/python watch.py >seen
echo "EPICS Base 7.0.10.99:"
cat seen
grep -qxF 'copy: updates [0, 3, 3], 2 time stamps after the first, get 3' seen
grep -qxF 'out: updates [0], 0 time stamps after the first, get 3' seen
