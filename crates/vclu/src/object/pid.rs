//! PIDcontroller: a controller with a switched output.
//!
//! Each call of `Source` passes a new input and computes the share of the cycle `SwitchTime` for which the output is on.
//! The normal mode is a PID controller. The automatic mode estimates a model of the process, `y' = A y + B u`, by the
//! projection algorithm of Kaczmarz, and chooses the `u` with which the model reaches the set point.

use std::time::{Duration, Instant};

use super::{
    CluObject, Feature, ObjectClass, ObjectContext, ObjectError, ObjectEvent, ObjectMethod, Parameter, ValueKind, flag,
};
use crate::value::LuaValue;

pub(crate) static CLASS: ObjectClass = ObjectClass {
    number: 14,
    name: "PIDcontroller",
    version: 1,
    features: &[
        Feature::number(0, "ControlOut"),
        Feature::number(1, "State"),
        Feature::number(2, "SetPoint").settable(),
        Feature::number(3, "Kp").settable(),
        Feature::number(4, "Ki").settable(),
        Feature::number(5, "Kd").settable(),
        Feature::number(6, "SwitchTime").unit("s").range(1.0, 86_400.0).settable(),
        Feature::number(7, "Alpha").range(1e-9, 1e9).settable(),
        Feature::number(8, "Gamma").range(0.0, 2.0).settable(),
        Feature::number(9, "Mode").choices(&[(1.0, "Normal - PID"), (2.0, "Auto - Kaczmarz")]).settable(),
        Feature::number(10, "A").settable(),
        Feature::number(11, "B").settable(),
    ],
    methods: &[
        ObjectMethod::with(0, "Source", &[Parameter::new("Value", ValueKind::Number, "")]),
        ObjectMethod::new(1, "Start"),
        ObjectMethod::new(2, "Stop"),
    ],
    events: &[
        ObjectEvent::new(0, "OnChange"),
        ObjectEvent::new(1, "OnStart"),
        ObjectEvent::new(2, "OnStop"),
        ObjectEvent::new(4, "OnOutOn"),
        ObjectEvent::new(5, "OnOutOff"),
    ],
    create: |_| {
        Box::new(Pid {
            // The set point to B; the entries for the output and the state are not used.
            settings: [0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 60.0, 0.01, 0.1, 2.0, 1.0, 1.0],
            is_active: false,
            is_on: false,
            duty: 0.0,
            integral: 0.0,
            last: None,
            cycle_start: None,
            next_switch: None,
        })
    },
};

const SET_POINT: usize = 2;
const KP: usize = 3;
const KI: usize = 4;
const KD: usize = 5;
const SWITCH_TIME: usize = 6;
const ALPHA: usize = 7;
const GAMMA: usize = 8;
const MODE: usize = 9;
const A: usize = 10;
const B: usize = 11;

struct Pid {
    /// The features by index.
    settings: [f64; 12],
    is_active: bool,
    is_on: bool,
    /// The share of a cycle for which the output is on, 0 to 1.
    duty: f64,
    integral: f64,
    /// The last input with its time.
    last: Option<(f64, Instant)>,
    /// When the current cycle started; `None` before the first input.
    cycle_start: Option<Instant>,
    next_switch: Option<Instant>,
}

impl Pid {
    /// Settings near the limits of numbers may have no result: then the output is off.
    fn new_input(&mut self, input: f64, now: Instant) {
        let duty = if self.settings[MODE] == 1.0 { self.pid(input, now) } else { self.kaczmarz(input) };
        self.duty = if duty.is_nan() { 0.0 } else { duty };
        self.last = Some((input, now));
        if self.cycle_start.is_none() {
            self.cycle_start = Some(now);
        }
    }

    /// The integral stays where more of it would only drive the output further beyond its limit.
    fn pid(&mut self, input: f64, now: Instant) -> f64 {
        let error = self.settings[SET_POINT] - input;
        let (dt_s, change) = match self.last {
            Some((last, at)) => (now.saturating_duration_since(at).as_secs_f64(), last - input),
            None => (0.0, 0.0),
        };
        let derivative = if dt_s > 0.0 { change / dt_s } else { 0.0 };
        let integral = self.integral + self.settings[KI] * error * dt_s;
        let output = self.settings[KP] * error + integral + self.settings[KD] * derivative;
        let is_driven_out = (output > 1.0 && integral > self.integral) || (output < 0.0 && integral < self.integral);
        if !is_driven_out && integral.is_finite() {
            self.integral = integral;
        }
        output.clamp(0.0, 1.0)
    }

    fn kaczmarz(&mut self, input: f64) -> f64 {
        if let Some((last, _)) = self.last {
            let (a, b) = (self.settings[A], self.settings[B]);
            let residual = input - (a * last + b * self.duty);
            let step = self.settings[GAMMA] * residual / (self.settings[ALPHA] + last * last + self.duty * self.duty);
            let (a, b) = (a + step * last, b + step * self.duty);
            if a.is_finite() && b.is_finite() {
                (self.settings[A], self.settings[B]) = (a, b);
            }
        }
        let (set_point, a, b) = (self.settings[SET_POINT], self.settings[A], self.settings[B]);
        if b.abs() < 1e-9 {
            return f64::from(u8::from(input < set_point));
        }
        ((set_point - a * input) / b).clamp(0.0, 1.0)
    }

    /// Switches the output as the cycle and the duty demand.
    fn switch(&mut self, context: &mut ObjectContext<'_>) {
        let now = context.now().monotonic;
        let start = self.cycle_start.filter(|_| self.is_active);
        let (is_on, next) = match start {
            None => (false, None),
            Some(start) => {
                let cycle = Duration::from_secs_f64(self.settings[SWITCH_TIME]);
                let into = now.saturating_duration_since(start).as_nanos() % cycle.as_nanos().max(1);
                let start = now - Duration::from_nanos(into as u64);
                let on_end = start + cycle.mul_f64(self.duty);
                self.cycle_start = Some(start);
                let is_on = now < on_end;
                (is_on, Some(if is_on { on_end } else { start + cycle }))
            }
        };
        self.next_switch = next;
        if is_on != self.is_on {
            self.is_on = is_on;
            context.fire(0);
            context.fire(if is_on { 4 } else { 5 });
        }
    }
}

impl CluObject for Pid {
    fn get(&self, index: u16, _context: &mut ObjectContext<'_>) -> LuaValue {
        match index {
            0 => flag(self.is_on),
            1 => flag(self.is_active),
            _ => self.settings.get(usize::from(index)).map_or(LuaValue::Nil, |value| LuaValue::Number(*value)),
        }
    }

    fn set(&mut self, index: u16, value: LuaValue, context: &mut ObjectContext<'_>) -> Result<(), ObjectError> {
        if let (Some(setting), Some(number)) = (self.settings.get_mut(usize::from(index)), value.as_number()) {
            *setting = number;
        }
        self.switch(context);
        Ok(())
    }

    fn call(
        &mut self,
        index: u16,
        arguments: &[LuaValue],
        context: &mut ObjectContext<'_>,
    ) -> Result<LuaValue, ObjectError> {
        let now = context.now().monotonic;
        match (index, arguments) {
            (0, [LuaValue::Number(input)]) if self.is_active => self.new_input(*input, now),
            (0, [LuaValue::Number(_)]) => {}
            (0, _) => return Err(ObjectError::Failed { reason: "Source needs the value of the input".into() }),
            (1, _) if !self.is_active => {
                (self.is_active, self.integral, self.duty) = (true, 0.0, 0.0);
                (self.last, self.cycle_start) = (None, None);
                context.fire(1);
            }
            (2, _) if self.is_active => {
                self.is_active = false;
                context.fire(2);
            }
            _ => {}
        }
        self.switch(context);
        Ok(LuaValue::Nil)
    }

    fn deadline(&self) -> Option<Instant> {
        self.next_switch
    }

    fn tick(&mut self, context: &mut ObjectContext<'_>) {
        self.switch(context);
    }
}
