"""Programs for pythonSoftIOC on Fodo, while their IOC starts."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import fodo
from fodo.compat.softioc import alarm, builder, softioc
from fodo.compat.softioc._state import STATE
from test_compat_softioc import PATIENCE, client, until
from test_compat_softioc import settings as settings


@pytest.mark.parametrize("is_taken_later", [False, True])
def test_a_put_of_a_client_while_the_ioc_starts_replaces_the_value_of_the_program(
    is_taken_later: bool, settings: dict[str, str]
) -> None:
    gap = builder.aOut("GAP", initial_value=1)
    on_request = gap._on_request
    arrived, has_started = threading.Event(), threading.Event()

    def take(request: Any) -> None:
        arrived.set()
        if is_taken_later:
            has_started.wait(PATIENCE)
        on_request(request)

    def put() -> None:
        with client(settings) as context:
            context.put("T:GAP", 3, wait=not is_taken_later, timeout=PATIENCE)
            assert arrived.wait(PATIENCE)

    gap._on_request = take
    builder.LoadDatabase()
    gap.set(2)
    STATE.starts.insert(0, put)
    softioc.iocInit()
    has_started.set()

    with client(settings) as context:
        until(lambda: gap.get() == context.get("T:GAP") == 3)


def test_an_alarm_that_is_set_while_the_record_starts_reaches_clients(settings: dict[str, str]) -> None:
    gap = builder.aOut("GAP", initial_value=1)
    builder.LoadDatabase()
    gap.set(2)
    set_with_alarm = gap._set_with_alarm
    setting = threading.Thread(target=gap.set_alarm, args=(alarm.MAJOR_ALARM, alarm.HIHI_ALARM))

    def set_during_start(time: float | None = None) -> None:
        del gap.__dict__["_set_with_alarm"]
        set_with_alarm(time)
        setting.start()
        # It ends only after the start.
        setting.join(0.1)

    gap._set_with_alarm = set_during_start
    softioc.iocInit()
    setting.join(PATIENCE)

    with client(settings) as context:
        assert context.get("ca://T:GAP").severity == fodo.Severity.MAJOR
