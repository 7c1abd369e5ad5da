"""`fodo.compat.epics`: programs written for pyepics."""

from __future__ import annotations

import ctypes
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import fodo
from conftest import PREFIX, Place
from processes import FOLDER, PATIENCE, isolated, printed_by, running, serving

numpy = pytest.importorskip("numpy")


def peers_python() -> str:
    """The interpreter of the peers' environment."""
    python = Path(os.environ.get("FODO_PEERS", ""), "bin", "python")
    if not os.environ.get("FODO_PEERS") or not python.exists():
        pytest.skip("FODO_PEERS names no environment with epicscorelibs and caproto")
    return str(python)


@pytest.fixture(scope="module", params=["fodo", "softioc"])
def server(request: pytest.FixtureRequest) -> Iterator[Place]:
    """The records of the tests, on `fodo ioc` and on the C implementation."""
    settings = isolated()
    if request.param == "fodo":
        with serving(settings, PREFIX):
            yield Place(settings, PREFIX)
        return
    command = [peers_python(), "-m", "epicscorelibs.ioc", "-m", f"P={PREFIX}", "-d", str(FOLDER / "records.db")]
    with running(command, settings, "iocRun: All initialization complete"):
        yield Place(settings, PREFIX)


@contextmanager
def face_of(settings: dict[str, str]) -> Iterator[Any]:
    """The face with a client of its own."""
    from fodo.compat import epics

    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings.items():
            patch.setenv(name, value)
        epics.ca.finalize_libca()
        yield epics
        epics.ca.finalize_libca()


@pytest.fixture
def epics(server: Place) -> Iterator[Any]:
    with face_of(server.settings) as face:
        yield face


def until(is_true: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_importing_the_face_starts_nothing() -> None:
    source = """
import sys, threading
from fodo.compat import epics
assert "numpy" not in sys.modules and threading.active_count() == 1
print(epics.PV.__name__)
"""
    assert printed_by(source, isolated()) == "PV\n"


def test_the_functions_read_and_write(epics: Any) -> None:
    assert epics.caput("T:gap", 6.25, wait=True) == 1

    until(lambda: epics.caget("T:gap") == 6.25)
    assert type(epics.caget("T:gap")) is float
    assert epics.caget("T:gap", as_string=True) == "6.25"
    assert epics.caget("T:text") == "hello" and type(epics.caget("T:text")) is str
    assert epics.caput("T:shutter", "Open", wait=True) == 1
    until(lambda: epics.caget("T:shutter") == 1)
    assert epics.caget("T:shutter", as_string=True) == "Open"
    assert epics.caget("T:absent", connection_timeout=0.1) is None
    assert epics.caput("T:absent", 1, connection_timeout=0.1) is None
    shown = epics.cainfo("T:gap", print_out=False)
    assert "== T:gap  (time_double) ==" in shown and "char_value      = '6.25'" in shown
    assert "upper_disp_limit     = 25.0" in shown and "units           = mm" in shown


def test_many_pvs_are_read_and_written_with_one_call(epics: Any) -> None:
    names = ["T:gap", "T:number", "T:absent"]

    assert epics.caput_many(names, [1.5, 7, 1], wait="all", connection_timeout=0.5) == [1, 1, -1]
    assert epics.caget_many(names, connection_timeout=0.5) == [1.5, 7, None]
    assert epics.caput_many(names[:2], [2.5, 8], wait="each") == [1, 1]
    assert epics.caget_many(["T:gap", "T:shutter"], as_string=True)[0] == "2.5"
    with pytest.raises(ValueError, match="2 names but 1 values"):
        epics.caput_many(names[:2], [1])


def test_arrays_are_arrays_of_numpy_or_lists(epics: Any) -> None:
    spectrum = epics.PV("T:spectrum")
    assert spectrum.put([1.0, 2.0, 3.0], wait=True) == 1

    # The reply to a put may overtake the update, and `get` returns the latest update.
    until(lambda: spectrum.get(as_numpy=False) == [1, 2, 3])
    value = spectrum.get()

    assert isinstance(value, numpy.ndarray) and value.tolist() == [1, 2, 3] and value.dtype == numpy.float64
    assert spectrum.get(as_numpy=False) == [1, 2, 3]
    assert spectrum.get(count=2).tolist() == [1, 2]
    assert spectrum.get(count=1, use_monitor=False).tolist() == [1]
    assert (spectrum.nelm, spectrum.type) == (100, "time_double")
    assert spectrum.char_value == "<array size=3, type=time_double>"
    value[0] = 5
    assert isinstance(epics.ca.get(spectrum.chid, as_numpy=False), ctypes.Array)
    names = epics.PV("T:names")
    names.put(["a", 2, "b"], wait=True)
    assert names.get(as_numpy=False, use_monitor=False) == ["a", "2", "b"]
    assert epics.caput("T:path", "a longer text", wait=True) == 1
    until(lambda: epics.caget("T:path", as_string=True) == "a longer text")
    assert epics.caget("T:path").dtype == numpy.uint8


@pytest.mark.parametrize(
    ("name", "given", "value"),
    [
        ("number", 3.7, 3),
        ("number", "0x10", 16),
        ("number", numpy.int16(5), 5),
        ("gap", "2.5", 2.5),
        ("gap", numpy.float32(1.5), 1.5),
        ("shutter", True, 1),
        ("text", 12, "12"),
        ("text", b"abc", "abc"),
        ("spectrum", 5, [5]),
        ("spectrum", range(3), [0, 1, 2]),
        ("integers", numpy.arange(20), list(range(10))),
        ("integers", numpy.array([1.7, 2.2]), [1, 2]),
        ("path", b"xyz", [120, 121, 122, 0]),
        ("names", "one", ["one"]),
        ("names", numpy.array(["x", "y"]), ["x", "y"]),
    ],
)
def test_values_are_converted_to_the_type_of_the_pv(epics: Any, name: str, given: Any, value: Any) -> None:
    assert epics.caput(f"T:{name}", given, wait=True) == 1

    assert epics.caget(f"T:{name}", use_monitor=False, as_numpy=False) == value


def test_a_pv_has_the_attributes_of_its_form(epics: Any) -> None:
    epics.caput("T:gap", 16, wait=True)

    times = epics.PV("T:gap").get_with_metadata(use_monitor=False)
    limits = epics.PV("T:gap", form="ctrl").get_with_metadata(use_monitor=False)
    bare = epics.PV("T:gap", form="native").get_with_metadata(use_monitor=False)

    assert times["severity"] == epics.MINOR_ALARM and times["status"] == epics.dbr.AlarmStatus.HIGH
    assert times["posixseconds"] == int(times["timestamp"]) and abs(time.time() - times["timestamp"]) < PATIENCE
    assert "units" not in times and "timestamp" not in limits and set(bare) == {"value"}
    assert (limits["units"], limits["precision"], limits["upper_ctrl_limit"]) == ("mm", 2, 20)
    pv = epics.PV("T:gap")
    assert (pv.upper_alarm_limit, pv.upper_warning_limit, pv.lower_disp_limit) == (18, 15, -5)
    assert (pv.char_status, pv.char_severity, pv.access) == ("HIGH", "MINOR", "read/write")
    assert pv.host.startswith("127.0.0.1:") and pv.get(as_string=True) == "16.00"
    assert epics.PV("T:shutter").enum_strs == ("Closed", "Open")
    assert pv.get_with_metadata(as_namespace=True).value == 16
    assert "count=1, type=time_double, access=read/write" in repr(pv)
    assert repr(epics.PV("T:absent")) == "<PV 'T:absent': not connected>"


def test_callbacks_receive_all_attributes(epics: Any) -> None:
    received: queue.Queue[dict[str, Any]] = queue.Queue()
    epics.caput("T:number", 1, wait=True)
    pv = epics.PV("T:number", callback=lambda **given: received.put(given))

    first = received.get(timeout=PATIENCE)
    index = pv.add_callback(lambda **given: received.put(given), mine="own")
    pv.put(2)
    both = [received.get(timeout=PATIENCE) for _ in range(2)]

    assert (first["pvname"], first["value"], first["char_value"], first["cb_info"]) == ("T:number", 1, "1", (0, pv))
    assert first["chid"] == pv.chid and first["count"] == 1 and first["type"] == "time_long"
    assert [given["value"] for given in both] == [2, 2]
    assert both[1]["mine"] == "own" and both[1]["cb_info"] == (index, pv)
    pv.run_callback(index)
    assert received.get(timeout=PATIENCE)["cb_info"] == (index, pv)
    pv.remove_callback(index)
    pv.run_callbacks()
    assert received.get(timeout=PATIENCE)["cb_info"] == (0, pv) and received.empty()
    now = pv.add_callback(lambda **given: received.put(given), index="x", run_now=True)
    assert now == "x" and received.get(timeout=PATIENCE)["cb_info"] == ("x", pv)
    pv.clear_callbacks()
    assert pv.callbacks == {}


def test_a_callback_may_get_put_and_create_pvs(epics: Any) -> None:
    ends: queue.Queue[tuple[Any, ...]] = queue.Queue()
    epics.caput("T:text", "before", wait=True)

    def copy(value: Any = None, **_: Any) -> None:
        status = epics.caput("T:text", f"copy of {value}", wait=True)
        new = epics.PV("T:integers")
        ends.put((status, epics.caget("T:text", use_monitor=False), new.wait_for_connection(), threading.get_ident()))

    pv = epics.PV("T:gap", callback=copy)
    first = ends.get(timeout=PATIENCE)
    pv.put(3.5)
    second = ends.get(timeout=PATIENCE)

    assert first[0] == 1 and first[1].startswith("copy of") and first[2]
    assert second[1] == "copy of 3.5" and second[3] == first[3] != threading.get_ident()


def test_a_failing_callback_is_counted_and_the_others_are_called(epics: Any, caplog: pytest.LogCaptureFixture) -> None:
    received: queue.Queue[Any] = queue.Queue()

    def fail(**_: Any) -> None:
        raise RuntimeError("of the test")

    pv = epics.PV("T:number", callback=[fail, lambda value=None, **_: received.put(value)])
    received.get(timeout=PATIENCE)
    pv.put(5)

    until(lambda: received.get(timeout=PATIENCE) == 5)
    until(lambda: pv.counts.n_callback_errors >= 2)
    assert '"T:number": the callback failed' in caplog.text
    assert pv.counts.delivered == pv.counts.received >= 2 and pv.counts.merged == 0


def test_connection_callbacks_and_rights_are_reported_before_the_connection_is_complete(epics: Any) -> None:
    states: list[Any] = []

    pv = epics.get_pv("T:gap", connection_callback=lambda pvname, conn, pv: states.append((pvname, conn, pv)))
    assert pv.wait_for_connection()
    assert states == [("T:gap", True, pv)]

    again = epics.get_pv("T:gap", connection_callback=lambda conn, **_: states.append(conn))
    rights: list[Any] = []
    epics.get_pv("T:gap", access_callback=lambda read, write, pv: rights.append((read, write)))
    assert again is pv and states[1:] == [True] and rights == [(True, True)]


def test_a_put_reports_its_completion(epics: Any) -> None:
    done: queue.Queue[dict[str, Any]] = queue.Queue()
    pv = epics.PV("T:gap")

    assert pv.put(1, callback=lambda **given: done.put(given), callback_data="mine") == 1
    assert done.get(timeout=PATIENCE) == {"pvname": "T:gap", "data": "mine"}
    pv.put(2, wait=True, callback=lambda **given: done.put(given), callback_data={"n": 3})
    assert done.get_nowait() == {"pvname": "T:gap", "n": 3} and pv.get() == 2
    pv.put(3, use_complete=True)
    until(lambda: pv.put_complete)
    pv.put(4)
    assert pv.put_complete is None
    pv.value = 5
    until(lambda: pv.value == 5)


def test_a_callback_cannot_end_the_thread_of_the_callbacks(epics: Any, caplog: pytest.LogCaptureFixture) -> None:
    received: queue.Queue[Any] = queue.Queue()

    def leave(**_: Any) -> None:
        raise SystemExit

    pv = epics.PV("T:number", callback=leave)
    pv.put(1, callback=leave)
    until(lambda: caplog.text.count("the callback failed") >= 2)

    pv.put(2, callback=lambda **given: received.put(given))
    assert received.get(timeout=PATIENCE) == {"pvname": "T:number", "data": None}


def test_what_fails_is_counted(epics: Any) -> None:
    slow = epics.PV("T:slow.A")

    assert slow.put(time.time(), wait=True, timeout=0.2) == -1
    assert slow.counts.n_puts_failed == 1
    absent = epics.PV("T:absent", connection_timeout=0.1)
    assert absent.get() is None and absent.put(1) is None
    assert absent.counts.n_gets_failed == 1
    locked = epics.PV("T:locked")
    with pytest.raises(epics.ca.CASeverityException, match="T:locked"):
        locked.put(1, wait=True)
    locked.put(1, use_complete=True)
    until(lambda: locked.put_complete)
    assert isinstance(locked.counts.last_put_error, fodo.Refused) and locked.counts.n_puts_failed == 1
    with pytest.raises(epics.ca.ChannelAccessException, match="cannot put"):
        epics.caput("T:number", "not a number")


def test_a_disconnected_pv_has_no_value_until_it_is_connected_again(epics: Any) -> None:
    pv, other = epics.PV("T:gap", callback=lambda **_: None), epics.PV("T:gap")
    assert pv.get() is not None and other.get() is not None

    pv.disconnect()

    assert not pv.connected and pv.get() is None and pv.callbacks == {}
    assert other.connected and other.get() is not None
    assert pv.reconnect() and pv.get() is not None


def test_a_lost_connection_is_reported(server: Place) -> None:
    settings, states = isolated(), queue.Queue[Any]()
    with face_of(settings) as epics:
        with serving(settings, PREFIX):
            pv = epics.PV("T:gap", connection_callback=lambda conn, **_: states.put(conn))
            access: list[Any] = []
            pv.access_callbacks.append(lambda *rights, pv: access.append(rights))
            assert pv.wait_for_connection() and states.get(timeout=PATIENCE)
        assert states.get(timeout=PATIENCE) is False
        until(lambda: access and access[-1] == (False, False))

        assert not pv.connected and pv.get(timeout=0.1) is None and pv.counts.n_disconnected == 1


def test_changed_rights_are_reported(tmp_path: Path) -> None:
    rules = tmp_path / "rules.acf"
    rules.write_text(
        'ASG(DEFAULT) { RULE(1,READ) RULE(1,WRITE) }\n'
        'ASG(KEYED) { INPA("T:key") RULE(1,READ) RULE(1,WRITE) { CALC("A=0") } }\n'
    )
    database = tmp_path / "keyed.db"
    database.write_text('record(ao, "T:key") { field(VAL, "0") }\nrecord(ao, "T:door") { field(ASG, "KEYED") }\n')
    settings = isolated()
    program = [*fodo_program(), "ioc", "-a", str(rules), "-d", str(database)]
    with running(program, settings, "iocRun: All initialization complete"), face_of(settings) as epics:
        rights: queue.Queue[Any] = queue.Queue()
        pv = epics.PV("T:door", access_callback=lambda read, write, pv: rights.put((read, write)))
        assert rights.get(timeout=PATIENCE) == (True, True)

        epics.caput("T:key", 1, wait=True)

        assert rights.get(timeout=PATIENCE) == (True, False)
        assert pv.access == "read-only" and not pv.write_access
        with pytest.raises(epics.ca.CASeverityException):
            pv.put(1, wait=True)


def fodo_program() -> list[str]:
    import sys

    return [sys.executable, "-m", "fodo"]


def test_a_pv_is_monitored_with_its_mask(epics: Any) -> None:
    dbr = epics.dbr
    alarms = epics.PV("T:gap", auto_monitor=dbr.DBE_ALARM)
    never = epics.PV("T:gap", auto_monitor=False)
    always = epics.PV("T:gap")
    for pv in (alarms, never, always):
        assert pv.wait_for_connection()
    until(lambda: alarms.auto_monitor_mask is not None and always.counts.received)

    assert alarms.auto_monitor_mask == dbr.DBE_ALARM
    assert (always.auto_monitor, always.auto_monitor_mask) == (True, dbr.DBE_VALUE | dbr.DBE_ALARM)
    epics.caput("T:gap", 1, wait=True)
    epics.caput("T:gap", 2, wait=True)
    assert never.counts.received == 0 and never.get() == 2
    always.clear_auto_monitor()
    received = always.counts.received
    epics.caput("T:gap", 3, wait=True)
    assert always.auto_monitor_mask is None and always.get() == 3 and always.counts.received == received


def test_a_deadband_is_that_of_the_record(epics: Any) -> None:
    pv = epics.PV("T:gap", monitor_delta=0.5)
    until(lambda: pv.auto_monitor_mask is not None)

    assert epics.caget("T:gap.MDEL") == 0.5
    epics.caput("T:gap.MDEL", 0, wait=True)


def test_camonitor_has_one_callback_for_each_pv(epics: Any) -> None:
    lines: list[str] = []
    received: queue.Queue[Any] = queue.Queue()
    epics.camonitor("T:number", writer=lines.append)
    epics.caput("T:number", 11, wait=True)
    until(lambda: lines and lines[-1].endswith(" 11") and lines[-1].startswith("T:number "))

    epics.camonitor("T:number", callback=lambda value, **_: received.put(value))
    epics.caput("T:number", 12, wait=True)
    assert received.get(timeout=PATIENCE) == 12
    epics.camonitor_clear("T:number")
    epics.caput("T:number", 13, wait=True)

    assert received.empty() and not any(line.endswith((" 12", " 13")) for line in lines)


def test_channels_are_used_by_their_numbers(epics: Any) -> None:
    ca, dbr = epics.ca, epics.dbr
    changes: queue.Queue[dict[str, Any]] = queue.Queue()
    connections: queue.Queue[dict[str, Any]] = queue.Queue()
    chid = ca.create_channel("T:number", callback=lambda **given: connections.put(given))
    assert ca.create_channel("T:number") == chid and ca.connect_channel(chid)
    assert connections.get(timeout=PATIENCE) == {"pvname": "T:number", "chid": chid, "conn": True}

    assert (ca.name(chid), ca.element_count(chid), ca.field_type(chid)) == ("T:number", 1, dbr.LONG)
    assert (ca.state(chid), ca.access(chid), ca.isConnected(chid)) == (dbr.CS_CONN, "read/write", True)
    assert ca.promote_type(chid, use_time=True) == dbr.TIME_LONG and dbr.Name(dbr.TIME_LONG) == "TIME_LONG"
    assert ca.put(chid, 21, wait=True) == 1 and ca.get(chid) == 21
    assert ca.get(chid, ftype=dbr.STRING) == "21"
    assert ca.get(chid, wait=False) is None and ca.get_complete(chid) == 21
    subscription = ca.create_subscription(chid, use_time=True, callback=lambda **given: changes.put(given))
    first = changes.get(timeout=PATIENCE)
    assert (first["value"], first["chid"], first["ftype"]) == (21, chid, dbr.TIME_LONG) and "timestamp" in first
    ca.clear_subscription(subscription[-1])
    group = ca.sg_create()
    ca.sg_put(group, chid, 22)
    ca.sg_block(group)
    result = ca.sg_get(group, chid)
    assert ca.sg_block(group) == dbr.ECA_NORMAL and result == [22]
    absent = ca.create_channel("T:absent")
    assert ca.state(absent) == dbr.CS_NEVER_CONN and not ca.connect_channel(absent, timeout=0.1)
    ca.clear_channel(absent)
    with pytest.raises(ca.ChannelAccessException, match="not the number of a channel"):
        ca.name(absent)


def test_a_device_has_pvs_as_attributes(epics: Any, tmp_path: Path) -> None:
    gap = epics.Device("T:gap", delim=".", attrs=("VAL", "DESC"), aliases={"position": "VAL"})

    gap.put("VAL", 4.5, wait=True)

    until(lambda: gap.position == 4.5)
    assert gap.DESC == "Gap of the undulator" and gap.EGU == "mm"
    gap.write_state(tmp_path / "state")
    gap.put("VAL", 5, wait=True)
    assert gap.read_state(tmp_path / "state", restore=True)["VAL"] == 4.5
    until(lambda: gap.PV("VAL").get(use_monitor=False) == 4.5)
    with pytest.raises(AttributeError, match="Device has no attribute NONE"):
        _ = gap.NONE
    fixed = epics.Device("T:gap", delim=".", attrs=("VAL",), mutable=False)
    with pytest.raises(AttributeError):
        _ = fixed.EGU
    with pytest.raises(epics.motor.MotorException, match="not a motor record"):
        epics.Motor("T:gap")


def test_an_alarm_calls_back_when_its_condition_becomes_true(epics: Any) -> None:
    raised: queue.Queue[dict[str, Any]] = queue.Queue()
    epics.caput("T:gap", 1, wait=True)
    alarm = epics.Alarm("T:gap", comparison=">", trip_point=5, callback=lambda **given: raised.put(given))

    for value in (6, 7, 1, 8):
        epics.caput("T:gap", value, wait=True)

    first = raised.get(timeout=PATIENCE)
    assert (first["value"], first["trip_point"], first["comparison"]) == (6, 5, ">")
    until(lambda: alarm.pv.get() == 8)
    assert raised.empty() and alarm.alarm_state
    with pytest.raises(UserWarning, match="no comparison"):
        epics.Alarm("T:gap", comparison="about", trip_point=1)


def test_threads_and_processes_use_pvs(epics: Any, server: Place) -> None:
    values: list[Any] = []
    pv = epics.PV("T:gap")
    threads = [epics.CAThread(target=lambda: values.append(pv.get())) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(values) == 10 and None not in values
    source = """
from fodo.compat import epics
def read(name):
    return epics.caget(name) is not None
if __name__ == "__main__":
    assert read("T:gap")
    child = epics.CAProcess(target=read, args=("T:gap",))
    child.start()
    child.join()
    with epics.CAPool(2) as pool:
        print(child.exitcode, pool.map(read, ["T:gap", "T:number"]))
"""
    assert printed_by(source, server.settings) == "0 [True, True]\n"


def test_a_name_may_select_pvaccess(place: Place) -> None:
    with face_of(place.settings) as epics:
        pv = epics.PV("pva://T:gap")

        assert pv.put(2.5, wait=True) == 1
        until(lambda: pv.get() == 2.5)
        assert (pv.units, pv.upper_disp_limit) == ("mm", 25)


def test_an_ioc_of_caproto_is_used() -> None:
    settings = isolated()
    command = [peers_python(), "-m", "caproto.ioc_examples.simple", "--prefix", PREFIX, "--list-pvs"]
    with running(command, settings, "Server startup complete"), face_of(settings) as epics:
        received: queue.Queue[Any] = queue.Queue()
        pv = epics.PV("T:A", callback=lambda value, **_: received.put(value))
        first = received.get(timeout=PATIENCE)

        assert pv.put(first + 1, wait=True) == 1

        assert received.get(timeout=PATIENCE) == first + 1
        assert list(epics.caget("T:C")) == [1, 2, 3] and isinstance(epics.caget("T:B"), float)


def test_a_motor_moves_within_its_limits() -> None:
    settings = isolated()
    command = [peers_python(), "-m", "caproto.ioc_examples.fake_motor_record", "--prefix", PREFIX, "--list-pvs"]
    with running(command, settings, "Server startup complete"), face_of(settings) as epics:
        motor = epics.Motor("T:mtr1.VAL")
        fields: list[str] = []
        motor.set_callback("readback", lambda **given: fields.append(given["motor_field"]))
        for field, value in (("VELO", 100), ("HLM", 10), ("LLM", -10)):
            motor.put(field, value, wait=True)
        until(lambda: motor.within_limits(1.5))

        # LVIO of this IOC is always 1.
        assert motor.soft_limit == 1 and motor.move(1.5, wait=True, timeout=PATIENCE) == -4

        assert motor.drive == motor.get_position() == 1.5
        # This IOC completes a put before the motor has moved.
        until(lambda: abs(motor.get_position(readback=True) - 1.5) < 0.1)
        until(lambda: fields and set(fields) == {"readback"})
        assert motor.within_limits(9) and not motor.within_limits(11)
        assert motor.move(11) == -12 and motor.move("far") == -13


def test_the_client_is_created_again_after_it_was_closed(epics: Any) -> None:
    assert epics.caget("T:gap") is not None
    first = epics.ca.current_context()

    epics.ca.finalize_libca()

    assert epics.caget("T:gap") is not None and epics.ca.current_context() != first


def test_modules_are_attributes_of_the_package() -> None:
    from fodo.compat import epics
    from fodo.compat.epics import devices

    assert all(isinstance(getattr(epics, name), ModuleType) for name in ("ca", "dbr", "pv", "utils", "device", "motor"))
    assert issubclass(devices.ao, epics.Device)
    assert epics.utils.bytes2str(b"x") == "x" and epics.utils.strjoin(",", ["a", b"b", b"\0", b"c"]) == "a,b"
