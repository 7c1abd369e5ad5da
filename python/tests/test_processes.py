"""What happens at import, at the end of the interpreter, and after a fork; and the program."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from conftest import Place
from processes import PATIENCE, environment, printed_by


def test_an_import_loads_neither_numpy_nor_asyncio_and_starts_nothing() -> None:
    source = """
import sys, threading, os
before = len(os.listdir("/proc/self/fd"))
import fodo
assert "fodo._native" not in sys.modules
import fodo.sync, fodo.ioc, fodo.pva
assert not {"numpy", "asyncio", "logging"} & set(sys.modules), sys.modules.keys()
assert threading.active_count() == 1 and len(os.listdir("/proc/self/task")) == 1
assert len(os.listdir("/proc/self/fd")) == before
print(fodo.aio.__name__)
"""
    assert printed_by(source, {}) == "fodo.aio\n"


def test_the_package_has_all_its_names_without_an_import_of_their_modules() -> None:
    source = """
import fodo
assert all(getattr(fodo, name) is getattr(fodo, name) for name in fodo.__all__)
assert set(fodo.__all__) <= set(dir(fodo)) and not hasattr(fodo, "nothing")
print(fodo.FloatValue.__module__, fodo.Row.__module__, fodo.pva.__name__)
"""
    assert printed_by(source, {}) == "fodo._values fodo._batches fodo.pva\n"


def test_the_child_of_a_fork_gets_an_error_and_creates_its_own_context(place: Place, protocol: str) -> None:
    source = """
import os, sys
import fodo
from fodo import sync
name = sys.argv[1]
context = sync.Context()
monitor = context.monitor(name, lambda value: None)
assert isinstance(context.get(name), float) and isinstance(sync.get(name), float)
child = os.fork()
if child == 0:
    assert not context.is_usable
    for call in (lambda: context.get(name), lambda: context.monitor(name), lambda: monitor.counts):
        try:
            call()
            raise SystemExit("the child uses the context of its parent")
        except fodo.Forked as error:
            assert "new context" in str(error)
    monitor.close()
    context.close()
    del monitor, context
    assert isinstance(sync.get(name), float)
    with sync.Context() as own:
        assert isinstance(own.get(name), float)
        assert isinstance(next(own.monitor(name)), float)
    print("child", flush=True)
    sys.exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert isinstance(context.get(name), float)
print("parent")
"""
    assert printed_by(source, place.settings, place.name(protocol, "gap")) == "child\nparent\n"


def test_a_fork_while_an_event_loop_reads_a_connection_leaves_both_processes_working(
    place: Place, protocol: str
) -> None:
    source = """
import asyncio, os, sys
from concurrent import futures
from fodo import aio
name = sys.argv[1]
async def read():
    context = aio.Context()
    for _ in range(20):
        await context.get(name)
    waiting = asyncio.create_task(context.get(name))
    await asyncio.sleep(0)
    child = os.fork()
    if child == 0:
        try:
            context.close()
            with futures.ThreadPoolExecutor(1) as pool:
                assert isinstance(pool.submit(asyncio.run, aio.get(name)).result(), float)
            print("child", flush=True)
            os._exit(0)
        finally:
            os._exit(1)
    assert isinstance(await waiting, float)
    exited = await asyncio.to_thread(os.waitpid, child, 0)
    assert os.waitstatus_to_exitcode(exited[1]) == 0
    for _ in range(20):
        assert isinstance(await context.get(name), float)
    context.close()
    print("parent")
asyncio.run(read())
"""
    assert printed_by(source, place.settings, place.name(protocol, "gap")) == "child\nparent\n"


@pytest.mark.parametrize("module", ["fodo.sync", "fodo.aio", "fodo.compat.aioca"])
def test_a_fork_while_a_thread_holds_the_lock_of_a_module_leaves_the_child_working(place: Place, module: str) -> None:
    source = """
import asyncio, importlib, os, signal, sys, threading
import fodo
name, module = sys.argv[1], importlib.import_module(sys.argv[2])
def get():
    match sys.argv[2]:
        case "fodo.sync": return module.get(name)
        case "fodo.aio": return asyncio.run(module.get(name))
        case _: return asyncio.run(module.caget(name.removeprefix("ca://")))
assert isinstance(get(), float)
if sys.argv[2] == "fodo.compat.aioca":
    holder = importlib.import_module("fodo.compat.aioca._channels").client
    context = holder.context()
else:
    holder, context = module._default, module.default_context()
is_held, can_end = threading.Event(), threading.Event()
def hold():
    with holder._lock, context._lock:
        is_held.set()
        can_end.wait()
thread = threading.Thread(target=hold)
thread.start()
is_held.wait()
child = os.fork()
if child == 0:
    signal.alarm(20)
    try:
        context._channel("ca://T:other")
    except fodo.Forked:
        context.disconnect()
        context.close()
        assert isinstance(get(), float)
        print("child", flush=True)
        os._exit(0)
    finally:
        os._exit(1)
can_end.set()
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""
    assert printed_by(source, place.settings, place.name("ca", "gap"), module) == "child\n"


def test_a_thread_that_forks_while_it_holds_a_lock_releases_it_in_both_processes() -> None:
    source = """
import os
from fodo._fork_safe_lock import ForkSafeLock
lock = ForkSafeLock()
with lock:
    child = os.fork()
with lock:
    os.write(1, b"parent\\n" if child else b"child\\n")
if child:
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""
    assert sorted(printed_by(source, {}).splitlines()) == ["child", "parent"]


def test_workers_of_multiprocessing_have_their_own_clients(place: Place) -> None:
    source = """
import multiprocessing, sys
from fodo import sync
def read(name):
    return float(sync.get(name))
if __name__ == "__main__":
    sync.get(sys.argv[1])
    with multiprocessing.get_context("fork").Pool(3) as pool:
        print(len(pool.map(read, [sys.argv[1]] * 20)))
"""
    assert printed_by(source, place.settings, place.name("ca", "gap")) == "20\n"


@pytest.mark.parametrize(
    "ending",
    [
        "",
        "sys.exit(0)",
        "context.close()",
        "del context",
        "threading.Thread(target=lambda: context.get('ca://T:absent', timeout=60), daemon=True).start()",
        "threading.Thread(target=lambda: list(context.monitor('ca://T:count')), daemon=True).start()",
        "import asyncio; from fodo import aio; asyncio.run(aio.get('ca://T:gap'))",
        "import asyncio; from fodo import aio; loop = asyncio.new_event_loop(); "
        "loop.run_until_complete(aio.get('ca://T:gap'))",
    ],
    ids=["nothing", "exit", "close", "del", "call in progress", "monitor in progress", "run", "open loop"],
)
def test_the_interpreter_ends_whatever_is_in_progress(place: Place, ending: str) -> None:
    source = f"""
import sys, threading
from fodo import sync
context = sync.Context()
context.monitor("ca://T:count", lambda value: None)
iterated = context.monitor("pva://T:count")
next(iterated)
print("done", flush=True)
{ending}
"""
    assert printed_by(source, place.settings) == "done\n"


def test_the_interpreter_ends_at_once_while_updates_are_received() -> None:
    source = """
import sys, threading, time
from fodo import sync
from fodo.ioc import Ioc
ioc = Ioc("X:")
records = [ioc.ai(f"t{n}", initial=0.0) for n in range(10)]
running = ioc.start(isolated=True)
def change():
    for number in range(10**9):
        running.set_many(records, [number] * 10)
        time.sleep(0.0005)
n_called = 0
def called(value):
    global n_called
    n_called += 1
    time.sleep(0.0005)
contexts = [sync.Context(settings=running.settings) for _ in range(4)]
for context in contexts:
    context.monitor([f"X:t{n}" for n in range(10)], called, queue_max=1)
threading.Thread(target=change, daemon=True).start()
while n_called < 200:
    time.sleep(0.01)
print(time.time(), flush=True)
"""
    began = float(printed_by(source, {}))

    # Each context would wait for a second for its thread.
    assert time.time() - began < 3


def test_contexts_leave_no_threads_and_descriptors_behind(place: Place) -> None:
    # All contexts are closed, also that of the functions of the module, which may open a socket at any time. The thread that
    # reads sockets stays, and closes them some time after their context: each measurement waits for that.
    source = """
import asyncio, gc, os, time
from fodo import aio, sync
def used():
    gc.collect()
    files = []
    for number in os.listdir("/proc/self/fd"):
        try:
            files.append(os.readlink(f"/proc/self/fd/{number}"))
        except OSError:
            pass  # The one of the listing itself, or one that was closed meanwhile.
    return len(os.listdir("/proc/self/task")), sum(file.startswith("socket:") for file in files), len(files)
def blocking():
    with sync.Context() as context:
        context.monitor("ca://T:count", lambda value: None)
        context.get(["ca://T:gap", "pva://T:gap"])
async def awaited():
    async with aio.Context() as context:
        context.monitor("pva://T:count", lambda value: None)
        await context.get(["ca://T:gap", "pva://T:gap"])
    await aio.get("ca://T:gap")
    aio.default_context().close()
    aio._default._context = None  # The module keeps a closed context until its next call.
def round():
    blocking()
    asyncio.run(awaited())
def settled(most):
    deadline = time.monotonic() + 20
    while True:
        found = used()
        if all(now <= limit for now, limit in zip(found, most)) or time.monotonic() > deadline:
            return found
        time.sleep(0.01)
round()
before = settled((2, 0, 1000))
for _ in range(30):
    round()
after = settled(before)
print(before[:2], [now <= then for now, then in zip(after, before)])
"""
    assert printed_by(source, place.settings) == "(2, 0) [True, True, True]\n"


@pytest.mark.parametrize("module", ["fodo.aio", "fodo.compat.p4p.client.asyncio"])
def test_a_context_of_a_loop_that_is_no_longer_used_leaves_no_descriptors_behind(place: Place, module: str) -> None:
    source = """
import asyncio, gc, importlib, os, sys
module = importlib.import_module(sys.argv[2])
async def read():
    context = module.Context()
    await asyncio.wait_for(context.get(sys.argv[1]), 10)
async def run():
    for _ in range(20):
        await read()
        gc.collect()
        await asyncio.sleep(0)
    n_files = 1000
    for _ in range(1000):
        # The thread of the client closes sockets some time later.
        n_files = len(os.listdir("/proc/self/fd"))
        if n_files < 40:
            break
        await asyncio.sleep(0.01)
    print(n_files < 40)
asyncio.run(run())
"""
    name = place.name("pva", "gap").removeprefix("" if module == "fodo.aio" else "pva://")
    assert printed_by(source, place.settings, name, module) == "True\n"


@pytest.mark.parametrize(
    ("arguments", "code", "expected"),
    [
        (["get", "ca://T:gap"], 0, "T:gap"),
        (["get", "pva://T:gap", "--json"], 0, '"pva://T:gap"'),
        (["get", "-w", "0.2", "T:absent"], 3, "no server claimed the name"),
        (["caget", "-t", "T:text"], 0, ""),
        (["--version"], 0, "fodo "),
        (["nonsense"], 2, "nonsense"),
        (["lab", "list"], 0, ""),
    ],
)
def test_python_m_fodo_is_the_program(place: Place, arguments: list[str], code: int, expected: str) -> None:
    end = subprocess.run(
        [sys.executable, "-m", "fodo", *arguments],
        env=environment(place.settings),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )

    assert (end.returncode, expected in end.stdout + end.stderr) == (code, True), end.stdout + end.stderr


def test_the_laboratory_starts_the_program_that_it_belongs_to(place: Place) -> None:
    source = "from fodo.__main__ import program; print(program())"
    path = printed_by(source, {}).strip()

    end = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=PATIENCE, check=False)

    assert end.returncode == 0 and end.stdout.startswith("fodo "), end.stderr
