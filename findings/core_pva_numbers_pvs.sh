#!/usr/bin/env bash
# A server of core-pva 5.0.5 (Java) answers CREATE_CHANNEL with the number of the PV, not of the channel: two channels of
# one connection to one PV have the same server channel ID. p4p 4.2.2 (C++) numbers channels.
#
# A client that finds its channels by the server's ID alone, as one finds handles, takes the second channel for the first.
# Requests have only this ID, replies only the ID of the request, and DESTROY_CHANNEL has both IDs of the channel; so a client
# must find its channels by its own ID.
#
# Needs java 17 or newer, mvn, python3 and package registries. Exits with 0 if both still behave so.
set -euo pipefail
place=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$place"' EXIT
cd "$place"

cat >pom.xml <<'END'
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>org.example</groupId><artifactId>finding</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>org.phoebus</groupId><artifactId>core-pva</artifactId><version>5.0.5</version></dependency>
  </dependencies>
</project>
END
mvn --batch-mode --quiet org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies -DoutputDirectory=jars
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check p4p==4.2.2

cat >Serve.java <<'END'
import org.epics.pva.data.PVAInt;
import org.epics.pva.data.PVAStructure;
import org.epics.pva.server.PVAServer;

public class Serve {
    public static void main(String[] arguments) throws Exception {
        PVAServer server = new PVAServer();
        server.createPV("finding:one", new PVAStructure("", "epics:nt/NTScalar:1.0", new PVAInt("value", 7)));
        server.createPV("finding:two", new PVAStructure("", "epics:nt/NTScalar:1.0", new PVAInt("value", 8)));
        System.out.println("ready");
        Thread.sleep(120_000);
    }
}
END
cat >serve.py <<'END'
import time
from p4p.nt import NTScalar
from p4p.server import Server
from p4p.server.thread import SharedPV

pvs = {name: SharedPV(nt=NTScalar("i"), initial=7) for name in ("finding:one", "finding:two")}
with Server(providers=[pvs]):
    print("ready", flush=True)
    time.sleep(120)
END
cat >create.py <<'END'
"""Creates three channels on one connection; prints the server channel ID of each."""
import socket, struct, sys

NAMES = ["finding:one", "finding:one", "finding:two"]

def text(value):
    return bytes([len(value)]) + value.encode()

def send(to, command, payload):
    to.sendall(struct.pack("<BBBBI", 0xCA, 2, 0, command, len(payload)) + payload)

def exactly(source, n):
    received = b""
    while len(received) < n:
        piece = source.recv(n - len(received))
        if not piece:
            raise SystemExit("the server has closed the connection")
        received += piece
    return received

def receive(source):
    while True:
        header = exactly(source, 8)
        order = ">" if header[2] & 0x80 else "<"
        if header[2] & 1:  # A control message has no payload.
            continue
        return header[3], order, exactly(source, struct.unpack(order + "I", header[4:])[0])

with socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=30) as server:
    while receive(server)[0] != 1:
        pass
    send(server, 1, struct.pack("<IHH", 65536, 0, 0) + text("anonymous") + b"\xff")
    while receive(server)[0] != 9:
        pass
    for cid, name in enumerate(NAMES):
        send(server, 7, struct.pack("<HI", 1, cid) + text(name))
    numbers = {}
    while len(numbers) < len(NAMES):
        command, order, payload = receive(server)
        if command == 7:
            cid, sid = struct.unpack(order + "II", payload[:8])
            numbers[cid] = sid
    print("same" if numbers[0] == numbers[1] else "different", "same" if numbers[0] == numbers[2] else "different")
END

free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

# Prints whether the IDs of two channels to one PV, and to two PVs, are the same: numbers COMMAND ..
numbers() {
    local port; port=$(free_port)
    export EPICS_PVA_SERVER_PORT=$port EPICS_PVAS_SERVER_PORT=$port EPICS_PVA_BROADCAST_PORT EPICS_PVAS_BROADCAST_PORT
    EPICS_PVA_BROADCAST_PORT=$(free_port); EPICS_PVAS_BROADCAST_PORT=$EPICS_PVA_BROADCAST_PORT
    export EPICS_PVAS_INTF_ADDR_LIST=127.0.0.1 EPICS_PVAS_AUTO_BEACON_ADDR_LIST=NO EPICS_PVAS_BEACON_ADDR_LIST=127.0.0.1
    "$@" >server.txt 2>&1 &
    local server=$!
    timeout 60 bash -c 'until grep -q ready server.txt; do sleep 0.1; done' || { cat server.txt >&2; return 1; }
    python3 create.py "$port"
    kill "$server"; wait "$server" 2>/dev/null || true
}

java=$(numbers java -cp 'jars/*' Serve.java)
p4p=$(numbers venv/bin/python serve.py)
for line in "core-pva 5.0.5: $java" "p4p 4.2.2: $p4p"; do
    read -r of_one of_two <<<"${line#*: }"
    echo "${line%%: *}: the IDs of two channels to one PV are: $of_one; of two channels to two PVs: $of_two"
done
[ "$java" = "same different" ] && [ "$p4p" = "different different" ]
