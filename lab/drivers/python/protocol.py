"""The laboratory's driver protocol for clients in Python; ``lab/src/driver/mod.rs`` describes it.

A driver is a class with one coroutine per request. They are coroutines because aioca's calls are; the other
clients block in them. Only the driver reads the clock, around the calls of its client and nothing else.
The values are checked here, after the clock has stopped.
"""

import asyncio
import dataclasses
import importlib.metadata
import json
import math
import os
import platform
import subprocess
import sys
import time
from typing import Any

import numpy as np

#: Maximum time of one operation, or of many concurrent ones. The laboratory ends a slower driver earlier.
OPERATION_S_MAX = 600.0

#: The requests for batches of channels.
BATCHES = (
    "create_channels",
    "connect_one_by_one",
    "connect_at_once",
    "get_at_once",
    "get_whole_at_once",
    "monitor_at_once",
    "put_at_once",
    "commands",
)

now_ns = time.perf_counter_ns


class Failed(Exception):
    """Why a measurement has no result, as an answer of the protocol."""

    def __init__(self, kind: str, **about: Any) -> None:
        super().__init__(f"{kind}: {about}")
        self.answer = {"failed": {kind: about}}


def unable(what: str, why: str) -> Failed:
    """The failure of an operation that the client does not support, or that failed."""
    return Failed("operation", what=what, why=why)


def require_one_channel(n: int, client: str) -> None:
    """For a client that shares one channel per name."""
    if n != 1:
        raise unable("separate channels to one PV", f"{client} shares one channel per name")


@dataclasses.dataclass(frozen=True)
class Channels:
    """The channels of a request."""

    pattern: str
    n: int
    variant: str

    def numbers(self) -> list[int]:
        return [index if self.variant == "distinct" else 0 for index in range(self.n)]

    def names(self) -> list[str]:
        return [self.pattern.format(number) for number in self.numbers()]

    def is_shared(self) -> bool:
        """Whether a client with one channel per name has a single channel."""
        return self.n > 1 and (self.variant != "distinct" or "{" not in self.pattern)

    def distinct_only(self, client: str) -> list[str]:
        """The names, for a client that shares one channel per name; fails if they are equal."""
        if self.is_shared():
            require_one_channel(self.n, client)
        return self.names()

    def check(self, values: list[float]) -> None:
        """The value of a numbered PV must be its number; any other PV is a counter."""
        require_count(len(values), self.n)
        for number, value in zip(self.numbers(), values):
            if "{" in self.pattern:
                if value != number:
                    raise Failed("wrong_value", value=float(value), expected=str(number))
            elif not (math.isfinite(value) and value >= 0):
                raise Failed("wrong_value", value=float(value), expected="a counter")


@dataclasses.dataclass(frozen=True)
class Timed:
    """The result of a batch; times in nanoseconds."""

    ns: int
    n: int
    created_ns: int | None = None
    close_ns: int | None = None
    note: str | None = None


@dataclasses.dataclass(frozen=True)
class Hello:
    """The driver's greeting: which client it drives."""

    client: str
    version: str
    runtime: str


def hello(package: str, *libraries: str) -> Hello:
    """``libraries``: the libraries it runs on, each as ``name version``."""
    words = [f"Python {platform.python_version()}", *libraries]
    return Hello(package, importlib.metadata.version(package), ", ".join(words))


def commands(channels: Channels, words: list[str]) -> Timed:
    """Runs ``words`` with each name as the last argument; the last word of the output must be the value."""
    ns = 0
    values = []
    for name in channels.names():
        start = now_ns()
        done = subprocess.run([*words, name], capture_output=True, text=True, timeout=OPERATION_S_MAX)
        ns += now_ns() - start
        if done.returncode != 0:
            raise unable("a command that prints a value", done.stderr.strip()[-200:])
        values.append(float(done.stdout.split()[-1]))
    channels.check(values)
    return Timed(ns, len(values))


def pattern(n_elements: int, salt: int) -> np.ndarray:
    """The array of the protocol: (index * 2654435761) xor salt, in 32 bits."""
    wide = np.arange(n_elements, dtype=np.uint32) * np.uint32(2654435761)
    return (wide ^ np.uint32(salt & 0xFFFFFFFF)).view(np.int32)


def keeper(pv: str) -> str:
    """Another name for the PV, so that a client with one channel per name can keep it open during a batch."""
    return pv if "." in pv else f"{pv}.VAL"


def require_count(n: int, expected: int) -> None:
    if n != expected:
        raise Failed("wrong_count", n=n, expected=expected)


def compare(came: np.ndarray, put: np.ndarray) -> None:
    require_count(int(np.size(came)), int(put.size))
    if not np.array_equal(came, put):
        index = int(np.flatnonzero(came != put)[0])
        raise Failed("wrong_element", index=index, value=int(came[index]), expected=int(put[index]))


async def open_pv(driver: Any, request: dict[str, Any], about: Hello) -> dict[str, Any]:
    n_channels, element_count_max = await driver.open(request["pv"], request["n_channels"])
    return {"opened": {"version": about.version, "n_channels": n_channels, "element_count_max": element_count_max}}


async def get_scalars(driver: Any, n: int) -> dict[str, Any]:
    latencies_ns = []
    readings = []
    for index in range(n):
        start = now_ns()
        reading = await driver.get_scalar(index)
        latencies_ns.append(now_ns() - start)
        readings.append(reading)
    last = -math.inf
    for value, seconds in readings:
        if not math.isfinite(value) or value < last or seconds <= 0:
            raise Failed("wrong_value", value=float(value), expected=f"a counter at {last} or beyond, with its time")
        last = value
    first = readings[0][0] if readings else 0.0
    return {"scalars": {"latencies_ns": latencies_ns, "first": float(first), "last": max(float(last), float(first))}}


async def move_array(driver: Any, n_elements: int, salt: int, n_gets: int) -> dict[str, Any]:
    latencies_ns = []
    for index in range(n_gets):
        put = pattern(n_elements, salt + index)
        await driver.put_array(put)
        start = now_ns()
        came = await driver.get_array(n_elements)
        latencies_ns.append(now_ns() - start)
        compare(came, put)
    return {"array": {"latencies_ns": latencies_ns, "n_elements": n_elements}}


async def answer(driver: Any, line: str, about: Hello) -> dict[str, Any]:
    try:
        ((verb, request),) = json.loads(line).items()
    except (ValueError, AttributeError):
        raise Failed("protocol", line=line.strip()) from None
    if verb == "open":
        return await open_pv(driver, request, about)
    if verb == "get_scalars":
        return await get_scalars(driver, **request)
    if verb == "move_array":
        return await move_array(driver, **request)
    if verb == "context_close":
        return {"answered": {"yes": await driver.context_close(request["pv"], request["how"])}}
    if verb == "create_contexts":
        timed = await driver.create_contexts(request["n"], request["pv"])
    elif verb in BATCHES:
        request = Channels(**request)
        timed = await getattr(driver, verb)(request)
    else:
        raise Failed("protocol", line=line.strip())
    require_count(timed.n, request.n if isinstance(request, Channels) else request["n"])
    return {"timed": {name: value for name, value in dataclasses.asdict(timed).items() if value is not None}}


async def answer_lines(driver_class: type, about: Hello) -> None:
    output = sys.stdout
    # Prints of a library are not answers.
    sys.stdout = sys.stderr
    print(json.dumps({"hello": dataclasses.asdict(about)}), file=output, flush=True)
    driver = driver_class()
    # No other task needs this loop between two requests, so it may block.
    for line in sys.stdin:
        try:
            content = await answer(driver, line, about)
        except Failed as failed:
            content = failed.answer
        except Exception as error:  # Any error is the answer.
            content = unable(line.strip()[:200], f"{type(error).__name__}: {error}").answer
        print(json.dumps(content), file=output, flush=True)


def serve(driver_class: type, about: Hello) -> None:
    """Answers requests until the end of the input, then exits without waiting for threads."""
    asyncio.run(answer_lines(driver_class, about))
    os._exit(0)
