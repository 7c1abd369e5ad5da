"""Runs the steps of tests/records/*.txt on softIoc and prints the trace that softIoc gives.

usage: softioc_trace.py file.txt

Needs epicscorelibs (softIoc) and aioca. Set the EPICS_CA_* variables so that nothing leaves the
machine. Each watch is four subscriptions, one per mask, whose events are put together again.
"""

import asyncio
import subprocess
import sys
import tempfile
import time

import aioca
from epicscorelibs.ca import dbr

MASKS = {"VALUE": 1, "LOG": 2, "ALARM": 4, "PROPERTY": 8}
STATUS = (
    "NO_ALARM READ WRITE HIHI HIGH LOLO LOW STATE COS COMM TIMEOUT HWLIMIT CALC SCAN LINK SOFT BAD_SUB UDF DISABLE "
    "SIMM READ_ACCESS WRITE_ACCESS"
).split()
SEVERITY = "NO_ALARM MINOR MAJOR INVALID".split()


def start_ioc(db):
    """softIoc with this database, once it runs."""
    with tempfile.NamedTemporaryFile("w", suffix=".db", delete=False) as file:
        file.write(db)
    log = tempfile.NamedTemporaryFile("w+", delete=False)
    command = [sys.executable, "-m", "epicscorelibs.ioc", "-d", file.name]
    ioc = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT)
    for _ in range(100):
        time.sleep(0.1)
        with open(log.name) as text:
            content = text.read()
        if "IOC Running" in content:
            return ioc
        if ioc.poll() is not None:
            break
    raise SystemExit(f"softIoc did not start:\n{content}")


def number(value):
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    value = float(value)
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "inf" if value > 0 else "-inf"
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)


def shown(value, is_array):
    return "[" + ", ".join(number(element) for element in value) + "]" if is_array else number(value)


def alarm(value):
    return f"{STATUS[value.status]}/{SEVERITY[value.severity]}"


class Replay:
    def __init__(self):
        self.events = []

    async def kind(self, name):
        info = await aioca.cainfo(name)
        return {"datatype": dbr.DBR_ENUM} if info.datatype == dbr.DBR_ENUM else {}, info.count > 1

    async def watch(self, name):
        options, is_array = await self.kind(name)
        for mask, bit in MASKS.items():

            def callback(value, mask=mask):
                self.events.append((name, mask, shown(value, is_array or getattr(value, "shape", ())), alarm(value)))

            aioca.camonitor(name, callback, events=bit, format=aioca.FORMAT_TIME, all_updates=True, **options)
        await asyncio.sleep(0.3)
        self.events.clear()

    def print_events(self):
        """Posts in order; events that differ in their mask only are one post."""
        while self.events:
            name, _, value, state = self.events[0]
            masks = []
            for event in list(self.events):
                if (event[0], event[2], event[3]) == (name, value, state) and event[1] not in masks:
                    masks.append(event[1])
                    self.events.remove(event)
            ordered = "|".join(mask for mask in MASKS if mask in masks)
            print(f"  {name} {ordered} {value} {state}")

    async def step(self, step):
        verb, _, rest = step.partition(" ")
        if verb == "watch":
            await self.watch(rest)
        elif verb == "get":
            options, is_array = await self.kind(rest)
            value = await aioca.caget(rest, format=aioca.FORMAT_TIME, **options)
            print(f"  {shown(value, is_array)} {alarm(value)}")
        elif verb == "put":
            name, _, value = rest.partition(" ")
            if value.startswith("["):
                value = [float(element) for element in value.strip("[]").split(",") if element.strip()]
            # Not wait=True: softIoc processes the record even when it refuses a put with completion.
            await aioca.caput(name, value, timeout=5, throw=False)
        elif verb == "tick":
            await asyncio.sleep(float(rest.rstrip("s")))
        await asyncio.sleep(0.15)
        self.print_events()


async def main(steps):
    replay = Replay()
    for step in steps:
        print(step, flush=True)
        if step and not step.startswith("#"):
            await replay.step(step)


if __name__ == "__main__":
    with open(sys.argv[1]) as trace:
        database, _, text = trace.read().partition("---\n")
    running = start_ioc(database)
    try:
        print(f"{database}---")
        asyncio.run(main([line for line in text.splitlines() if not line.startswith("  ")]))
    finally:
        running.kill()
        sys.stdout.flush()
