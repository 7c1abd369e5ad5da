#!/usr/bin/env bash
# A link put to a calcout while the IOC runs, in EPICS Base 7.0.10.99 (epicscorelibs 7.0.10.99.0.2) and 7.0.7.99: after
# `caput c.INPA 10` the input A is still 0, and after `caput c.INPB other` and `caput c.OUT other` INBV and OUTV are still
# "Constant". The links work all the same: the next processing reads and writes the other record. If the same links are set in
# the database file, A is 10, and INBV and OUTV are "Local PV".
#
# A good guess is that the fields which show the states of links, INAV to INUV and OUTV, show them for links that were put as
# well, and that a constant that is put becomes the value of its input: the source of the record does both after a put.
#
# Needs python3 and a package registry. Exits with 0 if EPICS Base still behaves so.
set -euo pipefail
place=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$place"' EXIT
cd "$place"

cat >links.db <<'END'
record(calcout, "finding:c") { field(CALC, "7") field(OOPT, "Every Time") }
record(calcout, "finding:file") { field(CALC, "7") field(INPA, "10") field(INPB, "finding:other") field(OUT, "finding:other") }
record(ai, "finding:other") { field(VAL, "3") }
END
cat >serve.py <<'END'
import time
from epicscorelibs.ioc import start_ioc

start_ioc("links.db", "")
time.sleep(300)
END
cat >put.py <<'END'
import asyncio
from aioca import caget, caput, purge_channel_caches

async def main():
    async def show(name):
        a = await caget(f"finding:{name}.A")
        inbv, outv = await caget([f"finding:{name}.INBV", f"finding:{name}.OUTV"], datatype=str)
        return f"{name}: A {int(a)}, INBV {inbv}, OUTV {outv}"

    await caget("finding:c", timeout=30)
    await caput("finding:c.INPA", "10", datatype=str, wait=True)
    await caput("finding:c.INPB", "finding:other", datatype=str, wait=True)
    await caput("finding:c.OUT", "finding:other", datatype=str, wait=True)
    await asyncio.sleep(1)
    print(await show("c"))
    print(await show("file"))
    await caput("finding:c.PROC", 1, wait=True)
    print(f"processed: B {int(await caget('finding:c.B'))}, other {int(await caget('finding:other'))}")
    purge_channel_caches()

asyncio.run(main())
END
free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
export EPICS_CA_ADDR_LIST=127.0.0.1 EPICS_CA_AUTO_ADDR_LIST=NO EPICS_CAS_INTF_ADDR_LIST=127.0.0.1
of_version() {
    python3 -m venv "venv-$1"
    "venv-$1/bin/pip" install --quiet --disable-pip-version-check "epicscorelibs==$1" "aioca==$2"
    EPICS_CA_SERVER_PORT=$(free_port)
    export EPICS_CA_SERVER_PORT
    "venv-$1/bin/python" serve.py >"server-$1" 2>&1 &
    "venv-$1/bin/python" put.py >"seen-$1"
    echo "epicscorelibs $1:"
    cat "seen-$1"
}
of_version 7.0.7.99.1.2 1.8.1
of_version 7.0.10.99.0.2 2.1
for seen in seen-*; do
    grep -qxF 'c: A 0, INBV Constant, OUTV Constant' "$seen"
    grep -qxF 'file: A 10, INBV Local PV, OUTV Local PV' "$seen"
    grep -qxF 'processed: B 3, other 7' "$seen"
done
