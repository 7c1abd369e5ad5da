"""Records of a program: those that it sets, and those that it takes."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..._errors import Misuse, NoReply, Refused
from ..._values import EnumValue
from . import alarm as _alarm
from . import autosave
from ._database import Definition, Link
from ._kinds import Kind, is_same, short_text, text_of
from ._state import STATE

if TYPE_CHECKING:
    from ...ioc import OutputRequest, Record, RunningIoc

__all__ = ["ProcessDeviceSupportCore", "ProcessDeviceSupportIn", "ProcessDeviceSupportOut", "SetBlocking"]

HANDLED = 1.0
"""Seconds that `set` waits until the record has the value. It takes longer only if the record is busy."""

LATER_MAX = 10_000
"""Values that wait while the function of a blocking record is running."""

CALLS_MAX = 1000
"""Calls of functions that wait for the dispatcher. From then on, each record is busy until its function has returned, as a blocking
record is, so that each adds at most one."""

_thread = threading.local()


def SetBlocking(new_val: bool) -> bool:  # noqa: N802
    """Whether records that take values are blocking unless they say otherwise. Returns what it was."""
    last, STATE.is_blocking = STATE.is_blocking, new_val
    return last


class ProcessDeviceSupportCore:
    """A record. Until `LoadDatabase`, its attributes in capitals are its fields; assigning to them changes them."""

    _definition: Definition
    _is_output = False

    def __init__(
        self,
        kind: str,
        dtyp: str,
        name: str,
        values: Kind,
        *,
        autosave_fields: Any,
        initial: Any,
        fields: dict[str, Any],
    ) -> None:
        definition = Definition(kind, name, {"DTYP": dtyp} | fields)
        own = self.__dict__
        own["_name"] = definition.name
        own["_definition"] = definition
        own["_values"] = values
        own["_value"] = initial
        own["_alarm"] = (_alarm.NO_ALARM, _alarm.NO_ALARM)
        own["_record"] = None
        own["_time"] = None
        own["_is_changed"] = False
        own["_set_at_start"] = None
        own["_start_lock"] = threading.Lock()
        own["_saved"] = autosave.fields_of(autosave_fields)
        STATE.devices[definition.name] = self

    @property
    def name(self) -> str:
        """The full name."""
        return str(self.__dict__["_name"])

    def __str__(self) -> str:
        return self.name

    def __call__(self, *modifiers: str) -> Link:
        return self._definition(*modifiers)

    def __getattr__(self, field: str) -> Any:
        if field.startswith("_") or STATE.is_loaded:
            raise AttributeError(f"{self.name} has no attribute {field}: fields are attributes before LoadDatabase")
        return getattr(self._definition, field)

    def __setattr__(self, field: str, value: Any) -> None:
        if field.startswith("_"):
            self.__dict__[field] = value
        elif STATE.is_loaded:
            raise AttributeError(f"{self.name}.{field}: fields can be assigned only before LoadDatabase; use set_field")
        else:
            setattr(self._definition, field, value)

    def __delattr__(self, field: str) -> None:
        delattr(self._definition, field)

    def get(self) -> Any:
        """The last value."""
        return self._value

    def get_field(self, field: str) -> str:
        """The value of a field, as a text."""
        assert self._record is not None and STATE.running is not None, "get_field may only be called after iocInit"
        return text_of(field_text(STATE.running, f"{self.name}.{field}").encode()[:39])

    def set_field(self, field: str, value: Any) -> None:
        """Writes a text to a field, as a client does."""
        assert self._record is not None and STATE.running is not None, "set_field may only be called after iocInit"
        text = short_text(str(value)).decode()
        STATE.running.record(f"{self.name}.{field}").put(text, wait=not _is_inside())

    def _options(self) -> dict[str, Any]:
        """Options of `Ioc.record`."""
        options: dict[str, Any] = {"autosave": self._saved} if self._saved else {}
        if self._has_value():
            options["initial"] = self._values.write(self._value)
        return options

    def _has_value(self) -> bool:
        return True

    def _restore_old(self, values: dict[str, Any]) -> None:
        """Uses what pythonSoftIOC has saved of this record."""
        for field in self._saved:
            name = self.name if field == "VAL" else f"{self.name}.{field}"
            if name not in values:
                continue
            try:
                if field == "VAL":
                    self._is_kept(self._values.convert(values[name]), self._alarm)
                else:
                    setattr(self._definition, field, values[name])
            except Exception:
                logging.getLogger("fodo").exception("the saved value of %s is not used", name)

    def _load(self) -> None:
        self._restore_old(STATE.old_values)
        with self._start_lock:
            self._definition.options = self._options()
            self._loaded = self._value
            self._is_changed = self._time is not None
        self._pending: Record = self._definition.load()

    def _is_kept(self, value: Any, alarm: tuple[int, int], time: float | None = None) -> bool:
        """Keeps a value for the start of the IOC; false if the IOC has started."""
        with self._start_lock:
            if self._record is not None:
                return False
            self._value, self._alarm, self._time, self._is_changed = value, alarm, time, True
            return True

    def _is_alarm_kept(self, alarm: tuple[int, int]) -> bool:
        """Keeps an alarm, but no value, for the start of the IOC; false if the IOC has started."""
        with self._start_lock:
            self._alarm = alarm
            return self._record is None

    def _start(self) -> None:
        """The IOC has started."""
        with self._start_lock:
            if "VAL" in self._saved:
                value = self._values.read(self._pending.get())
                # A saved value has precedence over those that the program set before the start.
                if not self._is_changed or not is_same(value, self._loaded):
                    self._value, self._is_changed = value, False
            if self._is_changed or self._alarm[0] != _alarm.NO_ALARM:
                self._set_with_alarm(self._time)
                self._set_at_start = self._value
            self._record: Record | None = self._pending

    def _set_with_alarm(self, time: float | None = None) -> None:
        """Sets the last value with its alarm. A value that was never set would be in the alarm UDF."""
        severity, status = self._alarm
        self._pending.set(self._values.write(self._value), severity=severity, status=status, time=time)


class ProcessDeviceSupportIn(ProcessDeviceSupportCore):
    """A record that the program sets."""

    def set(
        self, value: Any, severity: int = _alarm.NO_ALARM, alarm: int = _alarm.NO_ALARM, timestamp: float | None = None
    ) -> None:
        """Sets the value, its alarm and its time stamp, in seconds since 1970."""
        value = self._values.convert(value)
        if self._is_kept(value, (severity, alarm), timestamp):
            return
        self._value, self._alarm = value, (severity, alarm)
        self._pending.set(self._values.write(value), severity=severity, status=alarm, time=timestamp)

    def set_alarm(self, severity: int, alarm: int, timestamp: float | None = None) -> None:
        """Sets the alarm, with the last value."""
        if self._is_kept(self._value, (severity, alarm), timestamp):
            return
        self._alarm = (severity, alarm)
        self._pending.set_alarm(severity, alarm, time=timestamp)


class ProcessDeviceSupportOut(ProcessDeviceSupportCore):
    """A record whose values the program takes, and may set."""

    _is_output = True

    def __init__(
        self,
        kind: str,
        dtyp: str,
        name: str,
        values: Kind,
        *,
        is_initial: bool,
        on_update: Callable[[Any], Any] | None = None,
        on_update_name: Callable[[Any, str], Any] | None = None,
        validate: Callable[[Any, Any], Any] | None = None,
        always_update: bool = False,
        blocking: bool | None = None,
        **options: Any,
    ) -> None:
        assert on_update is None or on_update_name is None, "Cannot specify on_update and on_update_name together"
        super().__init__(kind, dtyp, name, values, **options)
        self._callback = on_update
        if on_update_name is not None:
            self._callback = lambda value: on_update_name(value, self.name)
        self._validate = validate
        self._always_update = always_update
        self._blocking = STATE.is_blocking if blocking is None else blocking
        self._is_set = is_initial
        self._n_active = 0
        self._later: deque[Any] = deque()
        # A value of these was written and has not arrived.
        self._is_putting = False
        self._lock = threading.RLock()
        self._set_lock = threading.RLock()
        self._handled = threading.Event()

    def _has_value(self) -> bool:
        return bool(self._is_set or self._is_changed)

    def _options(self) -> dict[str, Any]:
        return super()._options() | {"on_request": self._on_request}

    def set(
        self, value: Any, process: bool = True, severity: int = _alarm.NO_ALARM, alarm: int = _alarm.NO_ALARM
    ) -> None:
        """Sets the value. `process`: the record is processed, and `on_update` is called if the value is another."""
        value = self._values.convert(value)
        if self._is_kept(value, (severity, alarm)):
            return
        if process:
            self._process(value, (severity, alarm))
        else:
            self._value, self._alarm = value, (severity, alarm)
            self._pending.set(self._values.write(value), severity=severity, status=alarm)

    def set_alarm(self, severity: int, alarm: int) -> None:
        """Sets the alarm, with the last value. The record is not processed."""
        if not self._is_alarm_kept((severity, alarm)):
            self._set_with_alarm()

    def _process(self, value: Any, alarm: tuple[int, int]) -> None:
        """Writes a value as a client does, and waits until it is here, so that the next one cannot replace it."""
        record = self._record
        assert record is not None
        self._alarm = alarm
        written = self._values.write(value)
        with self._lock:
            if self._n_active or self._later or self._is_putting:
                # The record is busy until its function returns, which may be the one that calls this.
                if len(self._later) >= LATER_MAX:
                    raise Misuse(self.name, f"{LATER_MAX} values wait until its function returns")
                self._later.append(written)
                return
        if _is_inside():
            record.put(written)
            return
        # The put may end only after a function that this thread has to run: as soon as the value is here, the wait ends.
        waits_for_function = self._blocking or STATE.calls.n_waiting >= CALLS_MAX
        with self._set_lock:
            self._handled.clear()
            try:
                record.put(written, wait=not waits_for_function, timeout=HANDLED)
            except Refused:
                # DISP is for clients.
                self._set_directly(value)
                return
            except NoReply:
                self._keep_putting()
            if waits_for_function:
                if not self._handled.wait(HANDLED):
                    self._keep_putting()
                return
        if alarm[0] != _alarm.NO_ALARM:
            record.set_alarm(*alarm)

    def _keep_putting(self) -> None:
        """If the value waits in the record, the values that follow wait until it is here: the record keeps only one."""
        assert STATE.running is not None
        # Otherwise a record after this one is busy, or this one is disabled.
        is_busy = STATE.running.record(f"{self.name}.PACT").get() == 1
        with self._lock:
            self._is_putting = is_busy and not self._handled.is_set()

    def _on_request(self, request: OutputRequest) -> None:
        _thread.is_inside = True
        try:
            self._take(request)
        finally:
            _thread.is_inside = False
            self._handled.set()
            with self._lock:
                self._is_putting = False
            self._put_next()

    def _take(self, request: OutputRequest) -> None:
        value = self._values.read(request.value)
        if not self._always_update and is_same(value, self._value):
            self._complete(request)
            return
        if self._validate is not None and not self._validate(self, value):
            request.restore()
            return
        if STATE.is_logging:
            logging.getLogger("fodo.puts").info("%s: %r was %r", self.name, value, self._value)
        self._keep_taken(value)
        if self._callback is None or STATE.dispatcher is None:
            self._complete(request)
            return
        is_deferred = not self._blocking and STATE.calls.n_waiting >= CALLS_MAX
        if not self._blocking and not is_deferred:
            self._dispatch(value)
            self._complete(request)
            return
        with self._lock:
            self._n_active += 1
        if is_deferred:
            # Not by `completion`, which a dispatcher of the program may call for blocking records only.
            self._dispatch(value, ended=lambda: self._ended(request))
            return
        try:
            self._dispatch(value, self._ended, request)
        except BaseException:
            with self._lock:
                self._n_active -= 1
            raise

    def _keep_taken(self, value: Any) -> None:
        """The last value is that of a client. It replaces one that the program has set before the start, also if the client has
        put it before `_start`."""
        with self._start_lock:
            self._value, self._is_changed = value, False
            replaced, self._set_at_start = self._set_at_start, None
        if replaced is None or is_same(value, replaced):
            return
        if is_same(self._values.read(self._pending.get()), replaced):
            # `_start` has set the record after the put.
            self._set_with_alarm()

    def _set_directly(self, value: Any) -> None:
        """Sets a value that is not processed."""
        is_update = self._always_update or not is_same(value, self._value)
        if is_update and self._validate is not None and not self._validate(self, value):
            return
        self._value = value
        self._set_with_alarm()
        if is_update:
            self._dispatch(value)

    def _dispatch(
        self,
        value: Any,
        completion: Callable[..., None] | None = None,
        *request: OutputRequest,
        ended: Callable[[], None] | None = None,
    ) -> None:
        if self._callback is None or STATE.dispatcher is None:
            return
        call, end = STATE.calls.counted(self._callback, ended)
        try:
            STATE.dispatcher(call, func_args=(value,), completion=completion, completion_args=request)
        except BaseException:
            end()
            raise

    def _ended(self, request: OutputRequest) -> None:
        with self._lock:
            self._n_active -= 1
        self._complete(request)
        self._put_next()

    def _put_next(self) -> None:
        """Writes the next of the values that were set while the function of the record was running."""
        with self._lock:
            # The record keeps one value while it is busy: the next one waits until this one is here.
            if self._n_active or self._is_putting or not self._later or self._record is None:
                return
            written, self._is_putting = self._later.popleft(), True
        try:
            self._record.put(written)
        except BaseException:
            with self._lock:
                self._is_putting = False
            raise

    def _complete(self, request: OutputRequest) -> None:
        request.complete()
        severity, status = self._alarm
        if severity != _alarm.NO_ALARM and self._record is not None:
            self._record.set_alarm(severity, status)


def field_text(running: RunningIoc, full_name: str) -> str:
    """The value of a record or of its field as a text."""
    value = running.record(full_name).get()
    if isinstance(value, EnumValue):
        # Only clients receive the labels.
        value = STATE.client().get(full_name, detail="full")
    return str(value)


def _is_inside() -> bool:
    """Whether this is the thread of the IOC, which cannot wait for itself."""
    return getattr(_thread, "is_inside", False)
