"""The motor record."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from . import ca
from .device import Device
from .pv import PV

_ALIASES = dict(
    pair.split("=")
    for pair in """
    acceleration=ACCL back_accel=BACC backlash=BDST back_speed=BVEL base_speed=VBAS card=CARD deriv_gain=DCOF
    description=DESC device_type=DTYP dial_difference=RDIF dial_drive=DVAL dial_high_limit=DHLM dial_low_limit=DLLM
    dial_readback=DRBV dial_speed=RVEL direction=DIR done_moving=DMOV drive=VAL encoder_step=ERES freeze_offset=FOFF
    hi_alarm=HIGH hi_severity=HHSV high_limit=HLM high_limit_set=HLS high_op_range=HOPR high_severity=HSV
    hihi_alarm=HIHI
    home_forward=HOMF home_reverse=HOMR hw_limit=HLSV in_progress=MIP integral_gain=ICOF jog_accel=JAR jog_forward=JOGF
    jog_reverse=JOGR jog_speed=JVEL last_SPMG=LSPG last_dial_drive=LRVL last_dial_val=LDVL last_drive=LVAL
    last_rel_val=LRLV lo_severity=LLSV lolo_alarm=LOLO low_alarm=LOW low_limit=LLM low_limit_set=LLS low_op_range=LOPR
    low_severity=LSV max_speed=VMAX missed=MISS motor_status=MSTA move_fraction=FRAC moving=MOVN offset=OFF output=OUT
    output_mode=OMSL precision=PREC prop_gain=PCOF raw_drive=RVAL raw_encoder_pos=REP raw_high_limit=RHLS
    raw_low_limit=RLLS raw_motor_pos=RMP raw_readback=RRBV readback=RBV readback_res=RRES record_type=RTYP
    relative_value=RLV resolution=MRES retry_count=RCNT retry_deadband=RDBD retry_max=RTRY s_back_speed=SBAK
    s_base_speed=SBAS s_max_speed=SMAX s_revolutions=SREV s_speed=S set=SET settle_time=DLY slew_speed=VELO
    soft_limit=LVIO status=STAT stop_command=STOP stop_go=SPMG t_direction=TDIR tweak_forward=TWF tweak_reverse=TWR
    tweak_val=TWV u_revolutions=UREV units=EGU use_encoder=UEIP use_home=ATHM use_rdbl=URIP use_torque=CNEN version=VERS
    """.split()
)
_AT_ONCE = (
    *("VAL", "DESC", "RTYP", "RBV", "PREC", "TWV", "FOFF", "VELO", "STAT", "SET", "LLM", "HLM", "SPMG"),
    *("LVIO", "HLS", "LLS"),
)
_DESCRIBED = ("DESC", "VAL", "RBV", "PREC", "VELO", "STAT", "SET", "TWV", "LLM", "HLM", "SPMG")

# Seconds within which a motor that `move` was called for starts to move.
_START_S = 0.25


class MotorLimitException(Exception):  # noqa: N818
    """A limit is violated."""


class MotorException(Exception):  # noqa: N818
    """The PV is not a motor, or has no such field."""


class Motor(Device):
    """A motor record: its fields are attributes, also under longer names such as `readback`."""

    def __init__(self, name: str | None = None, timeout: float = 3.0) -> None:
        if name is None:
            raise MotorException("a motor needs the name of its record")
        record = name.removesuffix(".VAL").removesuffix(".")
        super().__init__(record, delim=".", attrs=_AT_ONCE, timeout=timeout)
        self._aliases = dict(_ALIASES)
        self._callbacks: dict[str, Any] = {}
        kind = self.get("RTYP")
        if kind != "motor":
            raise MotorException(f'"{record}" is not a motor record: its type is {kind}')
        self.add_pv(f"{record}_able.VAL", attr="disabled")

    def __repr__(self) -> str:
        return f"<epics.Motor: {self._prefix.removesuffix('.')}: '{self.DESC}'>"

    def __getattr__(self, attr: str) -> Any:
        try:
            return super().__getattr__(attr)
        except AttributeError as error:
            if attr.startswith("_"):
                raise
            raise MotorException(f"the motor has no field {attr}") from error

    def check_limits(self) -> None:
        """Raises `MotorLimitException` if a limit is violated."""
        for field, text in (
            ("LVIO", "soft limit violation"),
            ("HLS", "high hard limit violation"),
            ("LLS", "low hard limit violation"),
        ):
            if self.get(field):
                raise MotorLimitException(f"{self._prefix}{field}: {text}")

    def within_limits(self, val: float, dial: bool = False, limits: str = "user") -> bool:
        """Whether a position is within the limits of the user or, with `dial`, of the dial."""
        low, high = ("DLLM", "DHLM") if dial or limits == "dial" else ("LLM", "HLM")
        return bool(self.get(low) <= val <= self.get(high))

    def move(
        self,
        val: float | None = None,
        relative: bool = False,
        wait: bool = False,
        timeout: float = 300.0,
        dial: bool = False,
        step: bool = False,
        raw: bool = False,
        ignore_limits: bool = False,
        confirm_move: bool = False,
    ) -> int:
        """Moves to a position. Returns 0 if the move was requested or, with `wait`, completed; 1 if it has begun.

        Other results: -13 the position is not a number, -12 it is outside the limits, -11 not connected, -8 timed out, -7 timed
        out but done, -5 the put has failed, -4 and 4 soft limit violated, -3 and 3 hard limit violated (negative with `wait`).
        """
        try:
            position = float(val)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            return -13
        is_raw = step or raw
        field = _field(dial, is_raw, readback=False)
        if relative:
            position += self.get(field)
        if not ignore_limits and not is_raw and not self.within_limits(position, dial=dial):
            return -12
        status = self.put(field, position, wait=wait, timeout=timeout)
        if status is None:
            return -11
        if wait and status == -1:
            return -8 if self._now("DMOV") == 0 else -7
        if status != 1:
            return -5
        if wait:
            return -self._violated()
        is_moving = self._now("MOVN") == 1
        deadline = time.monotonic() + (_START_S if confirm_move else 0.0)
        while not is_moving and time.monotonic() < deadline:
            ca.poll(evt=1e-3)
            is_moving = self._now("MOVN") == 1
        return 1 if is_moving else self._violated()

    def _now(self, field: str) -> Any:
        return self.PV(field).get(use_monitor=False)

    def _violated(self) -> int:
        """4 if the soft limit is violated, 3 if a hard limit is."""
        if self._now("LVIO") == 1:
            return 4
        return 3 if self._now("HLS") == 1 or self._now("LLS") == 1 else 0

    def get_position(
        self, dial: bool = False, readback: bool = False, step: bool = False, raw: bool = False
    ) -> float | None:
        """The position that was requested or, with `readback`, the actual one."""
        return self.get(_field(dial, step or raw, readback))  # type: ignore[no-any-return]

    def set_position(self, position: float, dial: bool = False, step: bool = False, raw: bool = False) -> None:
        """Defines the current position."""
        self.put("SET", 1, wait=True)
        try:
            self.put(_field(dial, step or raw, readback=False), position, wait=True)
        finally:
            self.put("SET", 0, wait=True)

    def tweak(self, direction: str = "forward", wait: bool = False, timeout: float = 300.0) -> int | None:
        """Moves by `tweak_val`; in reverse if the direction begins with `rev` or `back`. Returns 0, or -1 on a failure or a
        violated limit."""
        status = self.put("TWR" if direction.startswith(("rev", "back")) else "TWF", 1, wait=wait, timeout=timeout)
        try:
            self.check_limits()
        except MotorLimitException:
            return -1
        return 0 if status == 1 else status

    def stop(self) -> None:
        """Stops the motor."""
        self.put("STOP", 1)

    StopNow = stop

    def get_pv(self, attr: str) -> PV:
        """The PV of a field."""
        return self.PV(attr)

    def set_callback(
        self, attr: str = "VAL", callback: Callable[..., Any] | None = None, kws: Mapping[str, Any] | None = None
    ) -> None:
        """Sets the callback of a field. It also receives `motor_field`."""
        self.get(attr)
        self._callbacks[attr] = self.PV(attr).add_callback(callback, **{"motor_field": attr, **(kws or {})})

    def clear_callback(self, attr: str = "drive") -> None:
        """Removes the callback of a field."""
        index = self._callbacks.pop(attr, None)
        if index is not None:
            self.PV(attr).remove_callback(index=index)

    def refresh(self) -> None:
        """Without effect: the fields are monitored."""

    def make_step_list(self, minstep: float = 0.0, maxstep: float | None = None, decades: int = 10) -> list[float]:
        """Steps of 1, 2 and 5 in each decade, as for a menu, from the precision up to 0.6 of the range."""
        highest = 0.6 * abs(self.HLM - self.LLM) if maxstep is None else maxstep
        steps = [factor * 10.0 ** (decade - self.PREC) for decade in range(decades) for factor in (1, 2, 5)]
        return [step for step in steps if 0.98 * minstep < step <= highest]

    def get_info(self) -> dict[str, Any]:
        """The main fields as texts."""
        return {field: self.get(field, as_string=True) for field in _DESCRIBED}

    def show_info(self) -> None:
        """Prints the main fields."""
        lines = [f"{field:16s} = {text}" for field, text in self.get_info().items()]
        ca.write("\n".join([repr(self), "-" * 38, *lines, "-" * 38]))

    def show_all(self) -> None:
        """Prints all fields."""
        lines = [f"# Motor {self._prefix.removesuffix('.')}", "#  field               value                 PV name"]
        for alias, field in sorted(self._aliases.items()):
            lines.append(f" {alias:18s}  {self.get(field, as_string=True) or '':18s}  {self.PV(field).pvname}")
        ca.write("\n".join(lines))


def _field(dial: bool, is_raw: bool, readback: bool) -> str:
    if dial:
        return "DRBV" if readback else "DVAL"
    if is_raw:
        return "RRBV" if readback else "RVAL"
    return "RBV" if readback else "VAL"
