//! PresenceSensor: whether a room is occupied, from the signals of a motion sensor.

use std::time::{Duration, Instant};

use super::{CluObject, Feature, ObjectClass, ObjectContext, ObjectError, ObjectEvent, ObjectMethod, flag};
use crate::value::LuaValue;

/// A year, the maximum of both times.
const SECONDS_MAX: f64 = 31_556_926.0;

pub(crate) static CLASS: ObjectClass = ObjectClass {
    number: 40,
    name: "PresenceSensor",
    version: 2,
    features: &[
        Feature::number(0, "Timeout").range(5.0, SECONDS_MAX).unit("s").settable(),
        Feature::number(1, "State").choices(super::OFF_ON).settable(),
        Feature::number(2, "PresenceDetected"),
        Feature::number(3, "TimeFromLastPresence").unit("s"),
        Feature::number(4, "DetectionDelay").range(0.0, SECONDS_MAX).unit("s").settable(),
        Feature::number(5, "Locked").unit("bool").choices(super::OFF_ON).settable(),
        Feature::number(6, "Mode").choices(&[(0.0, "Impulse input"), (1.0, "State input")]).settable(),
    ],
    methods: &[
        ObjectMethod::new(0, "Start"),
        ObjectMethod::new(1, "Stop"),
        ObjectMethod::new(2, "DetectPresence"),
        ObjectMethod::new(3, "UndetectPresence"),
        ObjectMethod::new(4, "SwitchLocked"),
    ],
    events: &[
        ObjectEvent::new(0, "OnStart"),
        ObjectEvent::new(1, "OnStop"),
        ObjectEvent::new(2, "OnSwitchOn"),
        ObjectEvent::new(3, "OnSwitchOff"),
    ],
    create: |context| {
        Box::new(Presence {
            timeout_s: 60.0,
            delay_s: 2.0,
            is_active: false,
            is_state_input: false,
            is_detected: false,
            is_locked: false,
            is_held: false,
            last_presence: context.now().monotonic,
            ignore_until: None,
        })
    },
};

struct Presence {
    timeout_s: f64,
    delay_s: f64,
    is_active: bool,
    /// `UndetectPresence` ends a detection; otherwise each `DetectPresence` is a moment.
    is_state_input: bool,
    is_detected: bool,
    is_locked: bool,
    /// The input still detects (state input).
    is_held: bool,
    last_presence: Instant,
    /// Detections are ignored until then, after unlocking.
    ignore_until: Option<Instant>,
}

impl Presence {
    fn set_detected(&mut self, is_detected: bool, context: &mut ObjectContext<'_>) {
        if is_detected != self.is_detected {
            self.is_detected = is_detected;
            context.fire(if is_detected { 2 } else { 3 });
        }
    }

    fn set_active(&mut self, is_active: bool, context: &mut ObjectContext<'_>) {
        if is_active == self.is_active {
            return;
        }
        self.is_active = is_active;
        context.fire(if is_active { 0 } else { 1 });
        if !is_active {
            (self.is_held, self.is_locked) = (false, false);
            self.set_detected(false, context);
        }
    }

    /// A locked sensor reports presence until it is unlocked.
    fn set_locked(&mut self, is_locked: bool, context: &mut ObjectContext<'_>) {
        let now = context.now().monotonic;
        if !self.is_active || (!is_locked && !self.is_locked) {
            return;
        }
        self.is_locked = is_locked;
        if is_locked {
            self.last_presence = now;
        } else {
            self.is_held = false;
            self.ignore_until = Some(now + Duration::from_secs_f64(self.delay_s));
        }
        self.set_detected(is_locked, context);
    }

    fn detect(&mut self, context: &mut ObjectContext<'_>) {
        let now = context.now().monotonic;
        if !self.is_active {
            return;
        }
        self.last_presence = now;
        if self.is_locked || self.ignore_until.is_some_and(|until| now < until) {
            return;
        }
        self.is_held = self.is_state_input;
        self.set_detected(true, context);
    }

    /// When presence ends by itself.
    fn timeout_at(&self) -> Option<Instant> {
        let counts = self.is_detected && !self.is_held && !self.is_locked;
        counts.then(|| self.last_presence + Duration::from_secs_f64(self.timeout_s))
    }
}

impl CluObject for Presence {
    fn get(&self, index: u16, context: &mut ObjectContext<'_>) -> LuaValue {
        match index {
            0 => self.timeout_s.into(),
            1 => flag(self.is_active),
            2 => flag(self.is_detected),
            3 if self.is_held => 0.0.into(),
            3 => (context.now().monotonic.saturating_duration_since(self.last_presence).as_secs() as f64).into(),
            4 => self.delay_s.into(),
            5 => flag(self.is_locked),
            _ => flag(self.is_state_input),
        }
    }

    fn set(&mut self, index: u16, value: LuaValue, context: &mut ObjectContext<'_>) -> Result<(), ObjectError> {
        let number = value.as_number().unwrap_or_default();
        match index {
            0 => self.timeout_s = number,
            1 => self.set_active(number == 1.0, context),
            4 => self.delay_s = number,
            5 => self.set_locked(number == 1.0, context),
            _ => {
                self.is_state_input = number == 1.0;
                self.is_held &= self.is_state_input;
            }
        }
        Ok(())
    }

    fn call(
        &mut self,
        index: u16,
        _arguments: &[LuaValue],
        context: &mut ObjectContext<'_>,
    ) -> Result<LuaValue, ObjectError> {
        match index {
            0 => self.set_active(true, context),
            1 => self.set_active(false, context),
            2 => self.detect(context),
            3 if self.is_held => {
                self.is_held = false;
                self.last_presence = context.now().monotonic;
            }
            4 => self.set_locked(!self.is_locked, context),
            _ => {}
        }
        Ok(LuaValue::Nil)
    }

    fn deadline(&self) -> Option<Instant> {
        self.timeout_at()
    }

    fn tick(&mut self, context: &mut ObjectContext<'_>) {
        self.set_detected(false, context);
    }
}
