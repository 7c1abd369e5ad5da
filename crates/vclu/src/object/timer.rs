//! Timer: counts down once, or again and again.

use std::time::{Duration, Instant};

use super::{CluObject, Feature, ObjectClass, ObjectContext, ObjectError, ObjectEvent, ObjectMethod};
use crate::limit::TIMER_PERIOD_MIN;
use crate::log::count;
use crate::value::LuaValue;

pub(crate) static CLASS: ObjectClass = ObjectClass {
    number: 6,
    name: "Timer",
    version: 1,
    features: &[
        Feature::number(0, "Time").unit("ms").range(0.0, 2_147_483_647.0).settable(),
        Feature::number(1, "Mode").choices(&[(0.0, "CountDown"), (1.0, "Interval")]).settable(),
        Feature::number(2, "State").choices(&[(0.0, "Stopped"), (1.0, "Counting"), (2.0, "Paused")]),
        Feature::number(3, "Value").unit("ms"),
    ],
    methods: &[ObjectMethod::new(0, "Start"), ObjectMethod::new(1, "Stop"), ObjectMethod::new(2, "Pause")],
    events: &[
        ObjectEvent::new(0, "OnTimer"),
        ObjectEvent::new(1, "OnStart"),
        ObjectEvent::new(2, "OnStop"),
        ObjectEvent::new(3, "OnPause"),
    ],
    create: |_| Box::new(TimerObject { time_ms: 0.0, is_interval: false, state: TimerState::Stopped }),
};

struct TimerObject {
    time_ms: f64,
    is_interval: bool,
    state: TimerState,
}

/// What a timer waits for.
#[derive(Clone, Copy)]
enum TimerState {
    /// Waits for `Start`.
    Stopped,
    /// Waits for the end of its time.
    Counting { due: Instant },
    /// Waits for `Pause` or `Start`.
    Paused { left: Duration },
}

impl TimerObject {
    fn time(&self) -> Duration {
        Duration::from_secs_f64(self.time_ms / 1000.0)
    }
}

impl CluObject for TimerObject {
    fn get(&self, index: u16, context: &mut ObjectContext<'_>) -> LuaValue {
        let now = context.now().monotonic;
        let value = match (index, self.state) {
            (0, _) => self.time_ms,
            (1, _) => f64::from(u8::from(self.is_interval)),
            (_, TimerState::Stopped) => 0.0,
            (2, TimerState::Counting { .. }) => 1.0,
            (2, TimerState::Paused { .. }) => 2.0,
            (_, TimerState::Counting { due }) => due.saturating_duration_since(now).as_millis() as f64,
            (_, TimerState::Paused { left }) => left.as_millis() as f64,
        };
        LuaValue::Number(value)
    }

    /// A new time applies at once: a timer that counts starts again with it.
    fn set(&mut self, index: u16, value: LuaValue, context: &mut ObjectContext<'_>) -> Result<(), ObjectError> {
        let number = value.as_number().unwrap_or_default();
        if index == 1 {
            self.is_interval = number == 1.0;
            return Ok(());
        }
        self.time_ms = number;
        self.state = match self.state {
            TimerState::Stopped => TimerState::Stopped,
            TimerState::Counting { .. } => TimerState::Counting { due: context.now().monotonic + self.time() },
            TimerState::Paused { .. } => TimerState::Paused { left: self.time() },
        };
        Ok(())
    }

    /// `Pause` continues a paused timer with the time that was left.
    fn call(
        &mut self,
        index: u16,
        _arguments: &[LuaValue],
        context: &mut ObjectContext<'_>,
    ) -> Result<LuaValue, ObjectError> {
        let now = context.now().monotonic;
        match (index, self.state) {
            (0, _) => {
                self.state = TimerState::Counting { due: now + self.time() };
                context.fire(1);
            }
            (1, TimerState::Counting { .. } | TimerState::Paused { .. }) => {
                self.state = TimerState::Stopped;
                context.fire(2);
            }
            (2, TimerState::Counting { due }) => {
                self.state = TimerState::Paused { left: due.saturating_duration_since(now) };
                context.fire(3);
            }
            (2, TimerState::Paused { left }) => self.state = TimerState::Counting { due: now + left },
            _ => {}
        }
        Ok(LuaValue::Nil)
    }

    fn deadline(&self) -> Option<Instant> {
        match self.state {
            TimerState::Counting { due } => Some(due),
            TimerState::Stopped | TimerState::Paused { .. } => None,
        }
    }

    /// An interval keeps its phase. Ticks that are already over are skipped and counted.
    fn tick(&mut self, context: &mut ObjectContext<'_>) {
        let TimerState::Counting { due } = self.state else { return };
        let now = context.now().monotonic;
        self.state = TimerState::Stopped;
        if self.is_interval {
            let period = self.time().max(TIMER_PERIOD_MIN);
            let mut next = due + period;
            if next <= now {
                let late = now - due;
                let n_over = (late.as_nanos() / period.as_nanos().max(1)) as u32;
                for _ in 0..n_over.min(1000) {
                    count(&context.world.log.counters.ticks_skipped);
                }
                next = now + period - Duration::from_nanos((late.as_nanos() % period.as_nanos().max(1)) as u64);
            }
            self.state = TimerState::Counting { due: next };
        }
        context.fire(0);
    }
}
