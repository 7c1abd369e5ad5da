"""What a server does in the child of a fork, and when a handler does not return."""

from __future__ import annotations

import logging
import threading

import pytest

from fodo import sync
from fodo.pva import Operation, Server, SharedPV
from processes import printed_by

PATIENCE = 20.0


def test_an_operation_of_the_parent_cannot_be_ended_in_the_child_of_a_fork() -> None:
    source = """
import gc, os, sys, threading
import fodo
from fodo import sync
from fodo.pva import Server, SharedPV
operations, arrived, ends = [], threading.Event(), []
def put(operation):
    operations.append(operation.defer())
    if len(operations) == 2:
        arrived.set()
with Server({"x": SharedPV(1.5, on_put=put), "y": SharedPV(1.5, on_put=put)}, isolated=True) as server:
    with sync.Context(settings=server.settings, timeout=20) as context:
        writer = threading.Thread(target=lambda: ends.extend(context.put(["ca://x", "pva://y"], [2.5, 3.5])))
        writer.start()
        assert arrived.wait(20)
        child = os.fork()
        if child == 0:
            for operation in operations:
                assert operation.name in ("x", "y") and operation.structure["value"] in (2.5, 3.5)
                for end in (operation.accept, operation.done, lambda: operation.error("no"), lambda: operation.is_open):
                    try:
                        end()
                        os._exit(1)
                    except fodo.Forked:
                        pass
            del operation, end
            operations.clear()
            gc.collect()
            print("child", flush=True)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        # The child has ended none of them.
        assert all(operation.is_open for operation in operations) and writer.is_alive()
        for operation in operations:
            operation.accept()
        writer.join(20)
        assert ends == [None, None], ends
        assert context.get(["ca://x", "pva://y"]) == [2.5, 3.5]
print("parent")
"""
    assert printed_by(source, {}) == "child\nparent\n"


def test_a_stop_waits_for_a_handler_for_a_limited_time_and_names_its_pv(caplog: pytest.LogCaptureFixture) -> None:
    entered, release, ended = threading.Event(), threading.Event(), threading.Event()

    def block(operation: Operation) -> None:
        entered.set()
        release.wait(PATIENCE)
        ended.set()

    called: list[str] = []
    pvs = {"blocked": SharedPV(1.5, on_put=block), "behind": SharedPV(1.5, on_put=lambda put: called.append(put.name))}
    server = Server(pvs, isolated=True)
    server.start()
    with sync.Context(settings=server.settings, timeout=PATIENCE) as context:
        for name in pvs:
            context.connect(f"pva://{name}")
        context.put("pva://blocked", 2.5, wait=False)
        assert entered.wait(PATIENCE)
        behind = threading.Thread(target=lambda: context.put(["pva://behind"], [2.5]))
        behind.start()
        while server.counts.waiting < 1:
            behind.join(0.01)

        with caplog.at_level(logging.ERROR, "fodo"):
            server.stop(timeout=0.1)

        assert 'the handler of a put to "blocked" has not returned within 0.1 s' in caplog.text
        assert not server.is_running and server.counts.waiting == 0
    behind.join(PATIENCE)

    # It serves again, and its new thread is the only one that calls handlers.
    server.start()
    release.set()
    assert ended.wait(PATIENCE)
    with sync.Context(settings=server.settings, timeout=PATIENCE) as context:
        context.put("pva://behind", 3.5)
    server.stop()
    assert called == ["behind"]


@pytest.mark.parametrize("timeout", [-1, float("nan"), "5", None], ids=str)
def test_the_timeout_of_a_stop_is_checked(timeout: float) -> None:
    server = Server(isolated=True)
    server.start()

    with pytest.raises(ValueError, match="timeout"):
        server.stop(timeout)

    assert server.is_running
    server.stop(float("inf"))
