"""The functions of aioca on Fodo, against `fodo ioc`."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from datetime import datetime
from typing import Any, TypeVar

import numpy
import pytest

import fodo
from fodo.compat import aioca
from fodo.compat.aioca import CANothing, Subscription, caget, cainfo, camonitor, caput, connect
from fodo.compat.epicscorelibs.ca import cadef, dbr
from processes import isolated, serving

PREFIX = "face:"
GAP, NUMBER, SHUTTER, TEXT = (PREFIX + name for name in ("gap", "number", "shutter", "text"))
SPECTRUM, INTEGERS, NAMES, PATH = (PREFIX + name for name in ("spectrum", "integers", "names", "path"))
SLOW, LOCKED, ABSENT = (PREFIX + name for name in ("slow", "locked", "absent"))
READ_ONLY = SPECTRUM + ".NELM"

T = TypeVar("T")


@pytest.fixture(scope="module")
def server() -> Iterator[dict[str, str]]:
    """The context of the face takes its settings from the environment."""
    settings = isolated()
    before = dict(os.environ)
    with serving(settings, PREFIX):
        os.environ.update(settings)
        yield settings
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def run(server: dict[str, str]) -> Iterator[Callable[[Awaitable[T]], T]]:
    """Runs coroutines in one event loop, as a program does."""
    with asyncio.Runner() as runner:

        async def within(call: Awaitable[Any]) -> Any:
            return await asyncio.wait_for(call, 30)

        yield lambda call: runner.run(within(call))
        aioca.purge_channel_caches()


Run = Callable[[Awaitable[Any]], Any]


async def until(is_true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not is_true():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


def test_a_number_has_the_attributes_of_its_format(run: Run) -> None:
    raw = run(caget(GAP))
    assert isinstance(raw, dbr.ca_float) and raw == 1.5
    assert (raw.name, raw.ok, raw.datatype, raw.element_count) == (GAP, True, dbr.DBR_DOUBLE, 1)
    assert not hasattr(raw, "severity") and not hasattr(raw, "units")

    timed = run(caget(GAP, format=aioca.FORMAT_TIME))
    assert (timed.severity, timed.status) == (0, 0)
    assert timed.timestamp == pytest.approx(timed.raw_stamp[0] + timed.raw_stamp[1] * 1e-9, abs=1e-6)
    assert timed.datetime == datetime.fromtimestamp(timed.timestamp)

    full = run(caget(GAP, format=aioca.FORMAT_CTRL))
    assert (full.units, full.precision) == ("mm", 2)
    assert (full.lower_disp_limit, full.upper_disp_limit) == (-5, 25)
    assert (full.lower_ctrl_limit, full.upper_ctrl_limit) == (0, 20)
    assert (full.upper_warning_limit, full.upper_alarm_limit) == (15, 18)
    assert not hasattr(full, "timestamp")


def test_an_alarm_has_its_codes(run: Run) -> None:
    run(caput(GAP, 19, wait=True))
    value = run(caget(GAP, format=aioca.FORMAT_TIME))
    run(caput(GAP, 1.5, wait=True))

    assert (value.severity, dbr.STATUS_NAMES[value.status]) == (2, "HIHI")


def test_an_enum_is_a_number_or_its_text(run: Run) -> None:
    run(caput(SHUTTER, "Open", wait=True))

    index = run(caget(SHUTTER, format=aioca.FORMAT_CTRL))
    assert isinstance(index, dbr.ca_int) and index == 1 and index.enums == ["Closed", "Open"]
    texts = run(caget([SHUTTER, NUMBER], datatype=aioca.DBR_ENUM_STR))
    assert texts == ["Open", 7]
    assert run(caget(SHUTTER, datatype=str)) == "Open"


def test_an_array_is_a_numpy_array_that_can_be_written_to(run: Run) -> None:
    run(caput(INTEGERS, [1, 2, 3], wait=True))
    array = run(caget(INTEGERS))
    array[0] = 9

    assert isinstance(array, dbr.ca_array) and array.dtype == numpy.int32 and array.tolist() == [9, 2, 3]
    assert (array.name, array.element_count) == (INTEGERS, 10)
    assert type(+array) is numpy.ndarray


def test_count_limits_or_pads_an_array(run: Run) -> None:
    run(caput(INTEGERS, [1, 2, 3], wait=True))

    assert run(caget(INTEGERS, count=2)).tolist() == [1, 2]
    assert run(caget(INTEGERS, count=5)).tolist() == [1, 2, 3, 0, 0]
    assert run(caget(INTEGERS, count=-1)).tolist() == [1, 2, 3] + [0] * 7
    assert run(caget(INTEGERS, count=1000, format=aioca.FORMAT_TIME)).severity == 0


def test_texts_of_every_kind(run: Run) -> None:
    run(caput(NAMES, ["a", "Grün"], wait=True))
    assert run(caget(NAMES)).tolist() == ["a", "Grün"]
    assert run(caget(TEXT)) == "hello"
    assert run(caget(TEXT, datatype=bytes)) == b"hello"

    long = "a path of more than forty characters " * 3
    run(caput(PATH, long, datatype=aioca.DBR_CHAR_STR, wait=True))
    assert run(caget(PATH, datatype=aioca.DBR_CHAR_STR)) == long
    assert run(caget(PATH, datatype=aioca.DBR_CHAR_BYTES)) == long.encode()
    assert run(caget(PATH))[0] == ord("a")
    assert run(caget(TEXT + ".VAL$")) == "hello"


def test_types_of_python_and_numpy_are_requests(run: Run) -> None:
    assert type(run(caget(GAP, datatype=int))) is dbr.ca_int
    assert run(caget(NUMBER, datatype=numpy.float32)).datatype == dbr.DBR_FLOAT
    assert run(caget(GAP, datatype=aioca.DBR_STRING)) == "1.50"
    with pytest.raises(dbr.InvalidDatatype):
        run(caget(GAP, datatype=complex))


def test_the_class_and_the_acknowledgement_of_a_record(run: Run) -> None:
    assert run(caget(GAP, datatype=aioca.DBR_CLASS_NAME)) == "ao"
    run(caput(GAP, 19, wait=True))
    run(caput(GAP, 1.5, wait=True))
    value = run(caget(GAP + ".DESC", datatype=aioca.DBR_STSACK_STRING))
    assert (value, value.severity, value.ackt, value.acks) == ("Gap of the undulator", 0, 1, 2)
    with pytest.raises(cadef.CAException, match="The data type specified is invalid"):
        run(caput(GAP, 2, datatype=aioca.DBR_PUT_ACKS))


def test_an_absent_name_does_not_hold_up_the_others(run: Run) -> None:
    values = run(caget([GAP, ABSENT, NUMBER], timeout=1.5, throw=False))

    assert [value.ok for value in values] == [True, False, True]
    assert repr(values[1]) == f"CANothing('{ABSENT}', {cadef.ECA_TIMEOUT})"
    assert not values[1]
    with pytest.raises(CANothing, match="Multiple PVs: User specified timeout"):
        run(caget([GAP, ABSENT], timeout=0.2))
    with pytest.raises(CANothing, match=ABSENT):
        run(caget(ABSENT, timeout=(time.time() + 0.2,)))


def test_a_put_of_many(run: Run) -> None:
    assert all(run(caput([GAP, NUMBER], [2.5, 8], wait=True)))
    assert run(caget([GAP, NUMBER])) == [2.5, 8]
    run(caput((GAP, NUMBER), 3, wait=True))
    assert run(caget((GAP, NUMBER))) == [3, 3]
    run(caput([INTEGERS, SPECTRUM], [4, 5], repeat_value=True, wait=True))
    assert [value.tolist() for value in run(caget([INTEGERS, SPECTRUM]))] == [[4, 5], [4, 5]]
    run(caput([NUMBER, NUMBER], [1, 7], wait=True))
    assert run(caget(NUMBER)) == 7
    with pytest.raises(fodo.Misuse, match="2 names but 3 values"):
        run(caput([GAP, NUMBER], [1, 2, 3]))
    run(caput(GAP, 1.5, wait=True))


def test_a_put_that_the_server_refuses(run: Run) -> None:
    with pytest.raises(cadef.CAException, match="Write access denied calling caput"):
        run(caput(READ_ONLY, 3))
    refused = run(caput([READ_ONLY, NUMBER], 7, throw=False))
    assert [result.errorcode for result in refused] == [cadef.ECA_NOWTACCESS, cadef.ECA_NORMAL]
    with pytest.raises(CANothing) as caught:
        run(caput(SHUTTER, "Ajar", wait=True))
    assert caught.value.errorcode == cadef.ECA_PUTFAIL and isinstance(caught.value.__cause__, fodo.Refused)


def test_a_put_that_takes_long_ends_with_its_timeout(run: Run) -> None:
    with pytest.raises(CANothing) as caught:
        run(caput(SLOW + ".PROC", 1, wait=True, timeout=0.2))

    assert caught.value.errorcode == cadef.ECA_TIMEOUT


def test_connect_and_info(run: Run) -> None:
    assert run(connect(GAP)).ok
    connected = run(connect([GAP, ABSENT], timeout=0.5, throw=False))
    assert [result.ok for result in connected] == [True, False]
    info = run(cainfo(SPECTRUM))
    assert (info.state_strings[info.state], info.datatype_strings[info.datatype]) == ("connected", "double")
    assert (info.count, info.read, info.write, info.ok) == (100, True, True, True)
    waiting = run(cainfo(PREFIX + "other", wait=False))
    assert "never connected" in str(waiting) and waiting.host == "<disconnected>"


def test_a_monitor_receives_every_update(run: Run) -> None:
    async def follow() -> list[Any]:
        values: list[Any] = []
        subscription = camonitor(NUMBER, values.append, all_updates=True, format=aioca.FORMAT_TIME)
        assert isinstance(subscription, Subscription)
        await until(lambda: len(values) == 1)
        for number in range(20, 30):
            await caput(NUMBER, number, wait=True)
        await until(lambda: len(values) == 11)
        assert subscription.dropped_callbacks == 0 and subscription.counts.delivered == 11
        subscription.close()
        await caput(NUMBER, 7, wait=True)
        assert subscription.state == Subscription.CLOSED
        return values

    values = run(follow())
    assert values[1:] == list(range(20, 30)) and all(value.severity == 0 for value in values)


def test_updates_during_a_callback_are_replaced_and_counted(run: Run) -> None:
    async def follow() -> None:
        values: list[int] = []
        may_go_on = asyncio.Event()

        async def slow(value: Any) -> None:
            values.append(int(value))
            await may_go_on.wait()

        subscription = camonitor(NUMBER, slow)
        await until(lambda: len(values) == 1)
        for number in (31, 32, 33):
            await caput(NUMBER, number, wait=True)
        await until(lambda: subscription.counts.received == 4)
        may_go_on.set()
        await until(lambda: len(values) == 2)
        assert values[1] == 33 and subscription.dropped_callbacks == 2

    run(follow())


def test_a_list_of_monitors_has_indexes(run: Run) -> None:
    async def follow() -> None:
        found: dict[int, Any] = {}
        subscriptions = camonitor([NUMBER, INTEGERS], lambda value, index: found.update({index: value}), count=-1)
        await until(lambda: len(found) == 2)
        assert len(found[1]) == 10 and [channel.subscriber_count for channel in aioca.get_channel_infos()] == [1, 1]
        for subscription in subscriptions:
            subscription.close()
        assert [channel.subscriber_count for channel in aioca.get_channel_infos()] == [0, 0]

    run(follow())


def test_an_exception_in_a_callback_closes_its_subscription(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    async def follow() -> None:
        async def fail(value: Any) -> None:
            raise ValueError("no such motor")

        others: list[Any] = []
        subscriptions = [camonitor(NUMBER, callback) for callback in (fail, lambda value: 1 / 0, others.append)]
        await until(lambda: [one.state for one in subscriptions] == [2, 2, 1] and len(others) == 1)
        await caput(NUMBER, 40, wait=True)
        await until(lambda: len(others) == 2)

    run(follow())
    printed = capsys.readouterr().err
    assert NUMBER in printed and "no such motor" in printed and "ZeroDivisionError" in printed


def test_an_absent_name_is_reported_once_after_the_timeout(run: Run) -> None:
    async def follow() -> None:
        results: list[Any] = []
        subscription = camonitor(ABSENT, results.append, connect_timeout=0.1)
        await until(lambda: len(results) == 1)
        await asyncio.sleep(0.1)
        assert len(results) == 1 and results[0].errorcode == cadef.ECA_TIMEOUT
        assert subscription.state == Subscription.OPENING
        subscription.close()

    run(follow())


def test_a_server_that_ends_and_returns_is_reported(run: Run) -> None:
    settings = {name: text for name, text in os.environ.items() if name.startswith("EPICS_")}
    own = isolated()
    reach = {"EPICS_CA_ADDR_LIST": f"127.0.0.1:{own['EPICS_CA_SERVER_PORT']}"}

    async def follow() -> None:
        values: list[Any] = []
        name = "gone:number"
        with serving(own, "gone:"):
            camonitor(name, values.append, notify_disconnect=True)
            await until(lambda: len(values) == 1)
        await until(lambda: len(values) == 2)
        assert values[1].errorcode == cadef.ECA_DISCONN
        (channel,) = aioca.get_channel_infos()
        assert not channel.connected
        info = await cainfo(name, wait=False)
        assert info.state_strings[info.state] == "previously connected"
        with serving(own, "gone:"):
            await until(lambda: len(values) >= 3)
            assert values[2] == 7

    os.environ.update(reach)
    try:
        run(follow())
    finally:
        os.environ.update(settings)


def test_two_loops_have_channels_of_their_own(run: Run) -> None:
    assert run(caget(NUMBER)) is not None

    async def elsewhere() -> int:
        await caget([GAP, TEXT])
        return len(aioca.get_channel_infos())

    assert asyncio.run(elsewhere()) == 2

    async def here() -> list[str]:
        return [channel.name for channel in aioca.get_channel_infos()]

    assert run(here()) == [NUMBER]


def test_pvs_of_pvaccess_have_the_same_values(run: Run) -> None:
    value = run(caget("pva://" + GAP, format=aioca.FORMAT_CTRL))

    assert isinstance(value, dbr.ca_float) and value.units == "mm" and value.upper_ctrl_limit == 20


def test_a_text_that_is_too_long_fails_alone(run: Run) -> None:
    results = run(caput([TEXT, NUMBER], ["a" * 60, 7], wait=True, throw=False))

    assert [result.errorcode for result in results] == [cadef.ECA_BADSTR, cadef.ECA_NORMAL]
    with pytest.raises(cadef.CAException, match="Invalid string calling caput") as caught:
        run(caput(TEXT, "a" * 60))
    assert "60 bytes" in str(caught.value.__cause__)


def test_a_name_that_no_record_can_have_is_an_error_as_that_of_another_absent_pv(run: Run) -> None:
    names = ["a b", "x" * 80, "", GAP]

    results = run(caget(names, timeout=0.3, throw=False))

    codes = [result.errorcode for result in results[:3]]
    assert codes == [cadef.ECA_TIMEOUT, cadef.ECA_TIMEOUT, cadef.ECA_BADSTR] and isinstance(results[3], float)
    with pytest.raises(CANothing, match="a b: User specified timeout"):
        run(caget("a b", timeout=0.3))
    with pytest.raises(cadef.CAException, match="Invalid string"):
        run(caput("", 1))
