"""The numbers that the package ``fodo`` must reach, beside what they are compared with.

    python lab/drivers/python/fodo_numbers.py [--only import,await,...] [--rust target/release/fodo] [--peers PYTHON] [--json FILE]

It runs with any Python that has the package and nothing else, on loopback and free ports, in about five minutes. ``--rust`` is
the program of the same build, whose drivers are the clients in Rust; ``--peers`` is a Python that has aioca and pyepics. Clients
and the IOC are separate processes. A number is the median of rounds in which it and what it is compared with take turns. Nothing
else should run: each row that depends on time says how busy the machine was. ``--json`` also writes the rows to a file;
``--short`` asks every question with small loads, to test the script.

Questions: ``import``, ``await`` (one get after another in asyncio, beside a ping-pong of a Protocol with messages as long),
``blocking`` (get, beside Rust), ``many`` (get of 1000 names, beside Rust's ``many::get``), ``tenhertz`` (1000 PVs at 10 Hz: CPU of
the client), ``delivered`` (the rate at which callbacks and batches receive every update; what is not received must be counted
by the IOC as merged), ``set`` (values that an IOC sets per second, one by one and together), ``server`` (1000 PVs at 100 Hz, set
one by one, with a monitor each: CPU of the IOC), ``group`` (1000 PVs with 1000 subscriptions each in one MonitorGroup of Rust).
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fodo_numbers_table import SHORT, Extent, Load, Received, Table, settled

N_PVS = 1000
PROTOCOLS = ("ca", "pva")
#: Bytes of a request and a reply of a double with alarm and time stamp.
SIZES = {"ca": (16, 40), "pva": (17, 60)}
QUESTIONS = ("import", "await", "blocking", "many", "tenhertz", "delivered", "set", "server", "group")


def names(protocol: str, n: int = N_PVS) -> list[str]:
    return [f"{protocol}://n:{index}" for index in range(n)]


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


class Process:
    """Another process of this program, which answers lines of JSON."""

    def __init__(self, *arguments: str, python: str = sys.executable, settings: dict[str, str] | None = None) -> None:
        others = {name: text for name, text in os.environ.items() if not name.startswith("EPICS_")}
        program = [python, os.path.abspath(__file__), *arguments]
        self.start(program, {**others, **(settings or {})})

    def start(self, program: list[str], environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            program, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def answer(self) -> Any:
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"{' '.join(map(str, self.process.args))} has ended")
        return json.loads(line)

    def ask(self, request: Any) -> Any:
        self.process.stdin.write(json.dumps(request) + "\n")
        return self.answer()

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()


class RustClient(Process):
    """The driver of the client in Rust; ``lab/src/driver/mod.rs`` has its requests."""

    def __init__(self, program: str, protocol: str, settings: dict[str, str]) -> None:
        self.start([program, "lab", "worker", "drive-fodo", "--protocol", protocol], {**os.environ, **settings})
        self.answer()

    def get_us(self, pv: str, n: int) -> float:
        self.ask({"open": {"pv": pv, "n_channels": 1}})
        return statistics.fmean(self.ask({"get_scalars": {"n": n}})["scalars"]["latencies_ns"]) / 1000

    def many_per_s(self, protocol: str) -> float:
        batch = {"pattern": f"{protocol}://n:{{}}", "n": N_PVS, "variant": "distinct"}
        timed = self.ask({"get_at_once": batch})["timed"]
        return float(timed["n"] / timed["ns"] * 1e9)


class GroupClient(Process):
    """The client in Rust that counts the updates of one MonitorGroup."""

    def __init__(self, program: str, settings: dict[str, str]) -> None:
        words = ["lab", "worker", "watch-load", "--numbers", "plain", "--group"]
        self.start([program, *words], {**os.environ, **settings})
        # It prints that it is ready.
        self.process.stdout.readline()

    def count(self) -> Any:
        return self.ask({"count": {}})["tallied"]


# What other processes do.


def serve() -> None:
    """An IOC with counters, which changes them on schedule at each request, or as fast as it can (``hz`` is 0). The request
    ``{"count": null}`` reports the updates that were merged since the last other request."""
    from array import array

    from fodo.ioc import Ioc

    ioc = Ioc()
    # The clients in Rust that count updates have their own names.
    records = [ioc.ai(f"n:{index}", initial=index, aliases=[f"load:{index:06}"]) for index in range(N_PVS)]
    with ioc.serve(isolated=True) as running:
        print(json.dumps(running.settings), flush=True)
        before = running.counts

        def merged() -> int:
            return running.counts.n_updates_merged - before.n_updates_merged

        for line in sys.stdin:
            load = json.loads(line)
            if "count" in load:
                print(json.dumps({"merged": merged()}), flush=True)
                continue
            changed, hz = records[: load["n_pvs"]], load["hz"]
            before, used_s, start, late_s, n_rounds = running.counts, cpu_s(), time.monotonic(), 0.0, 0
            n_planned = round(hz * load["seconds"])
            while n_rounds < n_planned if hz else time.monotonic() < start + load["seconds"]:
                after_s = start + n_rounds / hz - time.monotonic() if hz else 0.0
                if after_s > 0:
                    time.sleep(after_s)
                late_s = max(late_s, -after_s)
                if load.get("together"):
                    running.set_many(changed, array("d", [n_rounds]) * len(changed))
                else:
                    for record in changed:
                        record.set(n_rounds)
                n_rounds += 1
            took_s = time.monotonic() - start
            # What is sent takes a moment to be counted.
            time.sleep(0.5)
            end = {"n_set": n_rounds * len(changed), "cpu_s": cpu_s() - used_s, "took_s": took_s, "late_s": late_s}
            print(json.dumps({**end, "merged": merged()}), flush=True)


def echo(n_in: int, n_out: int) -> None:
    """A socket that answers so many bytes with so many."""
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    connection, _ = listener.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    answer = bytes(n_out)
    while received := connection.recv(4096):
        for _ in range(len(received) // n_in):
            connection.send(answer)


def watch(how: str, protocol: str, n_pvs: int, n_subscriptions: int) -> None:
    """Counts updates of the first PVs, and reports the counts at each question."""
    import asyncio

    asyncio.run(Watch().run(how, names(protocol, n_pvs) * n_subscriptions))


class Watch:
    """What is received: the number of updates, and what the client has merged."""

    n = 0
    last_s = 0.0

    def add(self, _value: Any) -> None:
        self.n += 1

    async def run(self, how: str, pvs: list[str]) -> None:
        import asyncio

        loop = asyncio.get_running_loop()
        merged = getattr(self, how)(pvs)
        while self.n < len(pvs):
            await asyncio.sleep(0.01)
        print(json.dumps("ready"), flush=True)
        n = self.n
        while await loop.run_in_executor(None, sys.stdin.readline):
            print(json.dumps({"n": self.n - n, "merged": merged(), "cpu_s": cpu_s()}), flush=True)

    def aio(self, pvs: list[str]) -> Callable[[], int]:
        from fodo import aio

        context = aio.Context()
        monitors = context.monitor(pvs, self.add)
        return lambda: sum(monitor.counts.merged for monitor in monitors)

    def sync(self, pvs: list[str]) -> Callable[[], int]:
        from fodo import sync

        context = sync.Context()
        monitors = context.monitor(pvs, self.add)
        return lambda: sum(monitor.counts.merged for monitor in monitors)

    def batches(self, pvs: list[str]) -> Callable[[], int]:
        import asyncio

        from fodo import aio

        batches = aio.Context().batches(pvs)

        async def count() -> None:
            async for batch in batches:
                self.n += len(batch)

        self.task = asyncio.ensure_future(count())
        return lambda: batches.counts.merged

    def aioca(self, pvs: list[str]) -> Callable[[], int]:
        import aioca

        monitors = aioca.camonitor([pv.removeprefix("ca://") for pv in pvs], lambda value, _: self.add(value), all_updates=True)
        return lambda: sum(monitor.dropped_callbacks for monitor in monitors)

    def pyepics(self, pvs: list[str]) -> Callable[[], int]:
        import epicscorelibs.path

        # The same libca as aioca; the one that comes with pyepics is older.
        os.environ["PYEPICS_LIBCA"] = epicscorelibs.path.get_lib("ca")
        from epics import ca, dbr

        ca.initialize_libca()
        chids = [ca.create_channel(pv.removeprefix("ca://")) for pv in pvs]
        for chid in chids:
            ca.connect_channel(chid, timeout=30)
        update = lambda value=None, **_about: self.add(value)  # noqa: E731
        self.kept = [ca.create_subscription(chid, ftype=dbr.TIME_DOUBLE, callback=update) for chid in chids]
        ca.flush_io()
        return lambda: 0


# The questions.


def imports(table: Table, extent: Extent) -> None:
    source = (
        "import os, sys, time\n"
        "def kb(): return int(open('/proc/self/statm').read().split()[1]) * os.sysconf('SC_PAGE_SIZE') / 1e6\n"
        "mb, start = kb(), time.perf_counter()\n"
        "__import__(sys.argv[1])\n"
        "took = time.perf_counter() - start\n"
        "print(took * 1e3, kb() - mb, *({'numpy', 'asyncio', 'logging'} & set(sys.modules)))"
    )
    for module in ("fodo", "fodo.sync", "fodo.ioc", "fodo.pva", "fodo.aio"):
        ends = [
            subprocess.run([sys.executable, "-c", source, module], capture_output=True, text=True, check=True).stdout.split()
            for _ in range(extent.n_imports)
        ]
        ms, mb = (statistics.median(float(end[index]) for end in ends) for index in (0, 1))
        reach = "30 ms, 15 MB, no numpy, asyncio, logging" if module == "fodo" else ""
        loaded = ", ".join(ends[0][2:]) or "none of numpy, asyncio, logging"
        table.add(f"import {module}", reach, f"{ms:.1f} ms, {mb:.1f} MB; {loaded}", ms=ms, mb=mb)


def timed_us(call: Callable[[], Any], n: int) -> float:
    start = time.perf_counter()
    for _ in range(n):
        call()
    return (time.perf_counter() - start) / n * 1e6


def awaited(table: Table, extent: Extent, settings: dict[str, str], protocol: str) -> None:
    import asyncio

    asyncio.run(awaited_in_loop(table, extent, settings, protocol))


async def awaited_in_loop(table: Table, extent: Extent, settings: dict[str, str], protocol: str) -> None:
    import asyncio

    from fodo import aio

    class Ping(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            self.transport = transport
            transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def data_received(self, _data: bytes) -> None:
            self.reply.set_result(None)

        async def ask(self) -> None:
            self.reply: asyncio.Future[None] = loop.create_future()
            self.transport.write(request)
            await self.reply

    async def us_of(call: Callable[[], Any]) -> float:
        for _ in range(extent.n_calls // 3):
            await call()
        start = time.perf_counter()
        for _ in range(extent.n_calls):
            await call()
        return (time.perf_counter() - start) / extent.n_calls * 1e6

    loop, request = asyncio.get_running_loop(), bytes(SIZES[protocol][0])
    async with aio.Context(settings=settings) as context:
        with Process("echo", *map(str, SIZES[protocol])) as echoes:
            transport, ping = await loop.create_connection(Ping, "127.0.0.1", echoes.answer())
            (name,) = names(protocol, 1)
            floors, gets = [], []
            for _ in range(extent.n_rounds):
                floors.append(await us_of(ping.ask))
                gets.append(await us_of(lambda: context.get(name)))
            transport.close()
            # The loop closes the socket now, and the other process ends.
            await asyncio.sleep(0)
    print_ratio(table, f"await get, {protocol}", "at most 1.15 of the ping-pong", gets, floors, "us", "ping-pong")


def print_ratio(
    table: Table, what: str, reach: str, ours: list[float], others: list[float], unit: str, other: str
) -> None:
    ours_median, others_median = statistics.median(ours), statistics.median(others)
    of_pairs = statistics.median(our / other for our, other in zip(ours, others))
    here = f"{ours_median:.4g} {unit}, {other} {others_median:.4g} {unit}: {of_pairs:.2f} ({min(ours) / min(others):.2f} of the minima)"
    numbers = {"median": ours_median, "other_median": others_median, "ratio": of_pairs}
    table.add(what, reach, f"{here}; load {os.getloadavg()[0]:.1f}", **numbers)


def blocking(table: Table, extent: Extent, settings: dict[str, str], protocol: str, rust: str | None) -> None:
    from fodo import sync

    (name,) = names(protocol, 1)
    with sync.Context(settings=settings) as context:
        timed_us(lambda: context.get(name), extent.n_calls // 2)
        if rust is None:
            us = timed_us(lambda: context.get(name), extent.n_calls * 5)
            table.add(f"blocking get, {protocol}", "", f"{us:.1f} us; no program in Rust", median=us)
            return
        with RustClient(rust, protocol, settings) as client:
            client.get_us(name, extent.n_calls // 2)
            pairs = [
                (timed_us(lambda: context.get(name), extent.n_calls), client.get_us(name, extent.n_calls))
                for _ in range(extent.n_rounds * 2)
            ]
    ours, others = zip(*pairs)
    print_ratio(table, f"blocking get, {protocol}", "at most 1.1 of Rust", list(ours), list(others), "us", "Rust")


def many(table: Table, extent: Extent, settings: dict[str, str], protocol: str, rust: str | None) -> None:
    import asyncio

    from fodo import aio, sync

    pvs = names(protocol)

    def of_us(us: float) -> float:
        return N_PVS / us

    async def in_loop() -> list[float]:
        async with aio.Context(settings=settings) as context:
            await context.get(pvs)
            rates = []
            for _ in range(extent.n_rounds * 20):
                start = time.perf_counter()
                await context.get(pvs)
                rates.append(of_us((time.perf_counter() - start) * 1e6))
            return rates

    with sync.Context(settings=settings) as context:
        if context.get(pvs) != [float(index) for index in range(N_PVS)]:
            raise SystemExit("the values are wrong")
        ours, others = [], []
        if rust is None:
            ours = [of_us(timed_us(lambda: context.get(pvs), 1)) for _ in range(extent.n_rounds * 20)]
        else:
            with RustClient(rust, protocol, settings) as client:
                client.many_per_s(protocol)
                for _ in range(extent.n_rounds * 20):
                    ours.append(of_us(timed_us(lambda: context.get(pvs), 1)))
                    others.append(client.many_per_s(protocol) / 1e6)
    reach = "1 M values/s, 0.6 of many::get"
    if others:
        print_ratio(table, f"sync get of {N_PVS} names, {protocol}", reach, ours, others, "M/s", "Rust")
    else:
        rate = statistics.median(ours)
        table.add(f"sync get of {N_PVS} names, {protocol}", reach, f"{rate:.2f} M/s", median=rate)
    rate = statistics.median(asyncio.run(in_loop()))
    table.add(f"aio get of {N_PVS} names, {protocol}", reach, f"{rate:.2f} M/s", median=rate)


def received_in_python(
    ioc: Process, settings: dict[str, str], how: str, load: Load, python: str = sys.executable
) -> Received:
    shape = ["ca", str(load.n_pvs), str(load.n_subscriptions)]
    with Process("watch", how, *shape, python=python, settings=settings) as client:
        client.answer()

        def received(seconds: float) -> Received:
            before = client.ask(None)
            produced = ioc.ask(load.request(seconds))

            def count() -> Received:
                now = client.ask(None)
                n, merged, used_s = (now[key] - before[key] for key in ("n", "merged", "cpu_s"))
                return Received(n, merged, used_s, {**produced, **ioc.ask({"count": None})})

            return settled(count, load.n_offered(seconds))

        received(load.warm_up_s)
        return received(load.seconds)


def received_in_rust(ioc: Process, settings: dict[str, str], program: str, load: Load) -> Received:
    """The same with one MonitorGroup; ``lab/src/load/group.rs`` has its requests."""
    with GroupClient(program, settings) as client:
        client.ask({"watch": {"n_pvs": load.n_pvs, "n_subscriptions": load.n_subscriptions}})

        def received(seconds: float) -> Received:
            client.ask({"restart": {}})
            used_s = client.count()["usage"]["cpu_s"]
            produced = ioc.ask(load.request(seconds))

            def count() -> Received:
                now = client.count()
                # The IOC merges further updates while it sends what waits.
                end = {**produced, **ioc.ask({"count": None})}
                return Received(now["sums"]["received"], now["merged"], now["usage"]["cpu_s"] - used_s, end)

            return settled(count, load.n_offered(seconds))

        received(load.warm_up_s)
        return received(load.seconds)


def add_load(table: Table, what: str, reach: str, load: Load, end: Received) -> None:
    took_s, merged = end.ioc["took_s"], end.ioc["merged"]
    n_offered = load.n_offered(load.seconds)
    lost = end.n_lost(n_offered)
    numbers = {
        "rate": end.n / took_s,
        "offered": n_offered,
        "received": end.n,
        "merged_by_ioc": merged,
        "merged_by_client": end.merged,
        "lost": lost,
        "client_cores": end.cpu_s / took_s,
        "ioc_cores": end.ioc["cpu_s"] / took_s,
        "us_each": end.cpu_s / max(end.n, 1) * 1e6,
        "late_ms": end.ioc["late_s"] * 1e3,
    }
    here = (
        f"{numbers['rate'] / 1e6:.3f} M/s; {end.n} of {n_offered} received, merged {merged} by the IOC, {end.merged} by the "
        f"client, not accounted for {lost}; client {numbers['client_cores'] * 100:.2f} % of a core, {numbers['us_each']:.2f} us each; "
        f"IOC {numbers['ioc_cores'] * 100:.2f} % of a core, late by {numbers['late_ms']:.0f} ms; load {os.getloadavg()[0]:.1f}"
    )
    table.add(what, reach, here, **numbers)


def ten_hertz(table: Table, extent: Extent, ioc: Process, settings: dict[str, str], peers: str | None) -> None:
    load = Load(hz=10, seconds=extent.seconds, n_pvs=extent.n_pvs)
    used = {}
    clients = [("sync", sys.executable), ("aio", sys.executable), ("batches", sys.executable)]
    for how, python in [*clients, *(("aioca", peers), ("pyepics", peers))] if peers else clients:
        end = received_in_python(ioc, settings, how, load, python)
        add_load(table, f"{load.n_pvs} PVs x 10 Hz, {how}", "", load, end)
        used[how] = end.cpu_s
    if peers:
        best = min(("aioca", "pyepics"), key=used.__getitem__)
        for how in ("sync", "aio"):
            ratio = used[how] / used[best]
            here = f"{ratio:.3f} of {best}; load {os.getloadavg()[0]:.1f}"
            table.add(f"{load.n_pvs} PVs x 10 Hz, client CPU, {how}", "a tenth of the best peer", here, ratio=ratio)


def delivered(table: Table, extent: Extent, ioc: Process, settings: dict[str, str]) -> None:
    for how, hz in (("sync", 500), ("aio", 500), ("batches", 2500)):
        load = Load(hz=hz, seconds=extent.seconds * 0.4, n_pvs=1, n_subscriptions=extent.n_subscriptions)
        what = f"1 PV x {hz} Hz x {load.n_subscriptions} subscriptions, {how}"
        reach = f"{hz * load.n_subscriptions / 1e6:g} M/s, all accounted for"
        add_load(table, what, reach, load, received_in_python(ioc, settings, how, load))


def sets(table: Table, extent: Extent, ioc: Process) -> None:
    for what, together, reach in (("record.set", False, 0.5), ("set_many of an array", True, 3)):
        rates = []
        for _ in range(extent.n_rounds):
            end = ioc.ask({"n_pvs": N_PVS, "hz": 0, "seconds": min(1.0, extent.seconds), "together": together})
            rates.append(end["n_set"] / end["took_s"])
        rate = statistics.median(rates)
        here = f"{rate / 1e6:.3f} M/s; load {os.getloadavg()[0]:.1f}"
        table.add(f"{what} of {N_PVS} records", f"{reach} M/s", here, rate=rate)


def server(table: Table, extent: Extent, ioc: Process, settings: dict[str, str]) -> None:
    load = Load(hz=100, seconds=extent.seconds, n_pvs=extent.n_pvs)
    reach = "nothing lost, IOC below 60 % of a core"
    for how in ("batches", "sync"):
        end = received_in_python(ioc, settings, how, load)
        add_load(table, f"{load.n_pvs} PVs x 100 Hz set one by one, a monitor each, {how}", reach, load, end)


def group(table: Table, extent: Extent, ioc: Process, settings: dict[str, str], rust: str | None) -> None:
    if rust is None:
        table.add("MonitorGroup in Rust", "", "no program in Rust")
        return
    n_pvs, n_subscriptions = extent.n_pvs, extent.n_subscriptions
    load = Load(hz=10, seconds=extent.seconds, n_pvs=n_pvs, n_subscriptions=n_subscriptions, together=True)
    what = f"{n_pvs} PVs x 10 Hz x {n_subscriptions} subscriptions, MonitorGroup in Rust"
    add_load(table, what, "8 M/s, 0.08 us each, all accounted for", load, received_in_rust(ioc, settings, rust, load))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(QUESTIONS), help="questions, separated by commas")
    parser.add_argument("--rust", help="the program fodo of a release build")
    parser.add_argument("--peers", help="a Python that has aioca and pyepics")
    parser.add_argument("--json", type=Path, help="a file for the rows")
    parser.add_argument("--short", action="store_true", help="small loads, to test the script")
    arguments = parser.parse_args()
    questions = arguments.only.split(",")
    if unknown := set(questions) - set(QUESTIONS):
        parser.error(f"there is no question {', '.join(unknown)}; there are {', '.join(QUESTIONS)}")
    table, extent = Table(), SHORT if arguments.short else Extent()
    print("| what | reach | here |\n| --- | --- | --- |")
    if "import" in questions:
        imports(table, extent)
    with Process("serve") as ioc:
        settings = ioc.answer()
        for protocol in PROTOCOLS:
            if "await" in questions:
                awaited(table, extent, settings, protocol)
            if "blocking" in questions:
                blocking(table, extent, settings, protocol, arguments.rust)
            if "many" in questions:
                many(table, extent, settings, protocol, arguments.rust)
        if "tenhertz" in questions:
            ten_hertz(table, extent, ioc, settings, arguments.peers)
        if "delivered" in questions:
            delivered(table, extent, ioc, settings)
        if "set" in questions:
            sets(table, extent, ioc)
        if "server" in questions:
            server(table, extent, ioc, settings)
        if "group" in questions:
            group(table, extent, ioc, settings, arguments.rust)
    if arguments.json is not None:
        table.write(arguments.json, extent)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["serve"]:
            serve()
        case ["echo", n_in, n_out]:
            echo(int(n_in), int(n_out))
        case ["watch", how, protocol, n_pvs, n_subscriptions]:
            watch(how, protocol, int(n_pvs), int(n_subscriptions))
        case _:
            main()
