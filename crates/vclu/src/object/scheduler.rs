//! Scheduler: a value that follows a weekly schedule.

use std::time::Instant;

use super::schedule::WeekSchedule;
use super::{
    CluObject, Feature, FeatureAccess, ObjectClass, ObjectContext, ObjectError, ObjectEvent, ObjectMethod, ValueKind,
    flag,
};
use crate::value::LuaValue;

pub(crate) static CLASS: ObjectClass = ObjectClass {
    number: 16,
    name: "Scheduler",
    version: 1,
    features: &[
        Feature::new(0, "Data", ValueKind::Text, FeatureAccess::GetSet),
        Feature::number(1, "State").choices(super::OFF_ON),
        Feature::number(2, "Value"),
        Feature::number(3, "Min").settable(),
        Feature::number(4, "Max").settable(),
    ],
    methods: &[ObjectMethod::new(0, "Start"), ObjectMethod::new(1, "Stop")],
    events: &[ObjectEvent::new(0, "OnHarmonogram"), ObjectEvent::new(1, "OnStart"), ObjectEvent::new(2, "OnStop")],
    create: |context| {
        let next_check = context.world.clock.next_minute(context.now());
        let schedule = WeekSchedule::default();
        Box::new(Scheduler { schedule, is_active: true, value: None, min: 0.0, max: 1.0, next_check })
    },
};

/// It is active from the start, since Object Manager has no initial value for its state.
struct Scheduler {
    schedule: WeekSchedule,
    is_active: bool,
    value: Option<f64>,
    /// The range of a display; it does not limit the value.
    min: f64,
    max: f64,
    next_check: Instant,
}

impl Scheduler {
    /// Takes the value of the schedule over.
    fn update(&mut self, context: &mut ObjectContext<'_>) {
        let now = context.now();
        self.next_check = context.world.clock.next_minute(now);
        let value = self.schedule.value_at(&context.world.clock.local(now));
        if self.is_active && value.is_some() && value != self.value {
            self.value = value;
            context.fire(0);
        }
    }
}

impl CluObject for Scheduler {
    fn get(&self, index: u16, _context: &mut ObjectContext<'_>) -> LuaValue {
        match index {
            0 => self.schedule.text.as_str().into(),
            1 => flag(self.is_active),
            2 => self.value.map_or(LuaValue::Nil, LuaValue::Number),
            3 => self.min.into(),
            _ => self.max.into(),
        }
    }

    fn set(&mut self, index: u16, value: LuaValue, context: &mut ObjectContext<'_>) -> Result<(), ObjectError> {
        match (index, value) {
            (0, LuaValue::Text(text)) => {
                self.schedule = WeekSchedule::parse(&text).map_err(|reason| ObjectError::Failed { reason })?;
                self.update(context);
            }
            (3, value) => self.min = value.as_number().unwrap_or_default(),
            (_, value) => self.max = value.as_number().unwrap_or_default(),
        }
        Ok(())
    }

    fn call(
        &mut self,
        index: u16,
        _arguments: &[LuaValue],
        context: &mut ObjectContext<'_>,
    ) -> Result<LuaValue, ObjectError> {
        let starts = index == 0;
        if starts != self.is_active {
            self.is_active = starts;
            context.fire(if starts { 1 } else { 2 });
            self.update(context);
        }
        Ok(LuaValue::Nil)
    }

    fn deadline(&self) -> Option<Instant> {
        Some(self.next_check)
    }

    fn tick(&mut self, context: &mut ObjectContext<'_>) {
        self.update(context);
    }
}
