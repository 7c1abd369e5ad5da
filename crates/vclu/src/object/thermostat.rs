//! Thermostat: switches an output so that a temperature reaches its target.

use std::time::{Duration, Instant};

use super::schedule::WeekSchedule;
use super::{
    CluObject, Feature, FeatureAccess, ObjectClass, ObjectContext, ObjectError, ObjectEvent, ObjectMethod, Parameter,
    ValueKind, flag, number_or,
};
use crate::limit::NAME_BYTES_MAX;
use crate::log::LogSeverity;
use crate::value::LuaValue;

/// How often the temperature is compared with the target.
const CONTROL_PERIOD: Duration = Duration::from_secs(1);

/// The unit of temperatures and of differences between them.
const DEGREE: &str = "°C";

/// The longest `HeatUp`, a week.
const HEAT_UP_MINUTES_MAX: f64 = 10_080.0;

pub(crate) static CLASS: ObjectClass = ObjectClass {
    number: 18,
    name: "Thermostat",
    version: 2,
    features: &[
        Feature::new(0, "Source", ValueKind::Table, FeatureAccess::Set),
        Feature::new(1, "Control", ValueKind::Table, FeatureAccess::Set),
        Feature::number(2, "OutputType").choices(&[(-1.0, "Auto"), (0.0, "Digital"), (1.0, "Analog")]).settable(),
        Feature::number(3, "PointValue").unit(DEGREE).settable(),
        Feature::number(4, "HolidayModeValue").unit(DEGREE).settable(),
        Feature::number(5, "Hysteresis").unit(DEGREE).range(0.0, 100.0).settable(),
        Feature::number(6, "State").choices(super::OFF_ON).settable(),
        Feature::number(7, "ControlDirection").choices(&[(0.0, "Normal"), (1.0, "Reverse")]).settable(),
        Feature::number(8, "Mode")
            .choices(&[(0.0, "use PointValue"), (1.0, "HolidayMode"), (2.0, "AutoMode"), (3.0, "HeatUp")])
            .settable(),
        Feature::new(9, "Data", ValueKind::Text, FeatureAccess::GetSet),
        Feature::number(10, "Min").unit(DEGREE).settable(),
        Feature::number(11, "Max").unit(DEGREE).settable(),
        Feature::number(12, "TargetTemp").unit(DEGREE),
        Feature::number(13, "ControlOutValue"),
        Feature::number(14, "CurrentTemp").unit(DEGREE),
    ],
    methods: &[
        ObjectMethod::new(0, "Start"),
        ObjectMethod::new(1, "Stop"),
        ObjectMethod::new(2, "IncreaseDegree"),
        ObjectMethod::new(3, "DecreaseDegree"),
        ObjectMethod::with(
            4,
            "HeatUp",
            &[Parameter::new("Value", ValueKind::Number, DEGREE), Parameter::new("Time", ValueKind::Number, "min")],
        ),
        ObjectMethod::new(5, "HolidayModeStart"),
        ObjectMethod::new(6, "HolidayModeStop"),
        ObjectMethod::new(7, "AutoModeStart"),
        ObjectMethod::new(8, "AutoModeStop"),
    ],
    events: &[
        ObjectEvent::new(0, "OnChange"),
        ObjectEvent::new(1, "OnStart"),
        ObjectEvent::new(2, "OnStop"),
        ObjectEvent::new(3, "OnOutOn"),
        ObjectEvent::new(4, "OnOutOff"),
        ObjectEvent::new(5, "OnHolidayModeOn"),
        ObjectEvent::new(6, "OnHolidayModeOff"),
    ],
    create: |_| Box::new(Thermostat::default()),
};

struct Thermostat {
    source: Option<FeatureReference>,
    control: Option<FeatureReference>,
    output_type: f64,
    point: f64,
    holiday_point: f64,
    hysteresis: f64,
    /// Cools instead of heating.
    is_reverse: bool,
    mode: ThermostatMode,
    schedule: WeekSchedule,
    /// The range of a display.
    min: f64,
    max: f64,
    temperature: Option<f64>,
    output: f64,
    /// When the output is computed again; `None` while stopped.
    next_control: Option<Instant>,
}

/// Which temperature is the target.
#[derive(Clone, Copy, PartialEq)]
enum ThermostatMode {
    /// `PointValue`.
    Point,
    /// `HolidayModeValue`.
    Holiday,
    /// The schedule; `PointValue` if it is empty.
    Schedule,
    /// `PointValue` and something more, until a time; then the mode before.
    HeatUp { more: f64, until: Option<Instant>, is_schedule_next: bool },
}

/// A feature of another object: the table `{OBJECT, feature}`.
struct FeatureReference {
    object: String,
    index: u16,
}

impl FeatureReference {
    fn from_value(value: &LuaValue) -> Result<Option<FeatureReference>, ObjectError> {
        match value {
            LuaValue::Nil => Ok(None),
            LuaValue::Table(entries) => match entries.as_slice() {
                [] => Ok(None),
                [(_, LuaValue::Object(object)), (_, LuaValue::Number(index))]
                    if object.len() <= NAME_BYTES_MAX && *index == f64::from(*index as u16) =>
                {
                    Ok(Some(FeatureReference { object: object.clone(), index: *index as u16 }))
                }
                _ => Err(ObjectError::Failed { reason: "a connection has the form {OBJECT, feature}".into() }),
            },
            _ => Err(ObjectError::Failed { reason: "a connection has the form {OBJECT, feature}".into() }),
        }
    }
}

impl Default for Thermostat {
    fn default() -> Thermostat {
        Thermostat {
            source: None,
            control: None,
            output_type: -1.0,
            point: 20.0,
            holiday_point: 17.0,
            hysteresis: 2.0,
            is_reverse: false,
            mode: ThermostatMode::Point,
            schedule: WeekSchedule::default(),
            min: 0.0,
            max: 30.0,
            temperature: None,
            output: 0.0,
            next_control: None,
        }
    }
}

impl Thermostat {
    fn target(&self, context: &ObjectContext<'_>) -> f64 {
        let scheduled = || self.schedule.value_at(&context.world.clock.local(context.now()));
        match self.mode {
            ThermostatMode::Point => self.point,
            ThermostatMode::Holiday => self.holiday_point,
            ThermostatMode::Schedule => scheduled().unwrap_or(self.point),
            ThermostatMode::HeatUp { more, .. } => self.point + more,
        }
    }

    fn set_point(&mut self, point: f64, context: &mut ObjectContext<'_>) {
        if point != self.point {
            self.point = point;
            context.fire(0);
        }
    }

    fn set_mode(&mut self, mode: ThermostatMode, context: &mut ObjectContext<'_>) {
        let (was_holiday, is_holiday) = (self.mode == ThermostatMode::Holiday, mode == ThermostatMode::Holiday);
        self.mode = mode;
        if was_holiday != is_holiday {
            context.fire(if is_holiday { 5 } else { 6 });
        }
    }

    fn set_active(&mut self, is_active: bool, context: &mut ObjectContext<'_>) {
        if is_active == self.next_control.is_some() {
            return;
        }
        self.next_control = is_active.then_some(context.now().monotonic);
        context.fire(if is_active { 1 } else { 2 });
        if !is_active {
            self.set_output(0.0, context);
        }
    }

    /// Computes the output. Without a temperature it is off.
    fn control(&mut self, context: &mut ObjectContext<'_>) {
        if self.next_control.is_none() {
            return;
        }
        let now = context.now().monotonic;
        self.next_control = Some(now + CONTROL_PERIOD);
        if let ThermostatMode::HeatUp { until: Some(until), is_schedule_next, .. } = self.mode
            && until <= now
        {
            self.mode = if is_schedule_next { ThermostatMode::Schedule } else { ThermostatMode::Point };
        }
        let read = self.source.as_ref().and_then(|source| context.read(&source.object, source.index).as_number());
        let read = read.filter(|temperature| temperature.is_finite());
        if self.temperature.is_some() && read.is_none() {
            context.log(LogSeverity::Warning, "the temperature cannot be read; the output is off");
        }
        self.temperature = read;
        let Some(temperature) = read else { return self.set_output(0.0, context) };
        let sign = if self.is_reverse { -1.0 } else { 1.0 };
        let missing = sign * (self.target(context) - temperature);
        let half = self.hysteresis / 2.0;
        let output = match self.output_type {
            1.0 if self.hysteresis > 0.0 => ((missing + half) / self.hysteresis).clamp(0.0, 1.0),
            _ if missing > half => 1.0,
            _ if missing < -half => 0.0,
            _ if half == 0.0 => 0.0,
            _ => f64::from(u8::from(self.output > 0.0)),
        };
        self.set_output(output, context);
    }

    fn set_output(&mut self, output: f64, context: &mut ObjectContext<'_>) {
        if output == self.output {
            return;
        }
        let (was_on, is_on) = (self.output > 0.0, output > 0.0);
        self.output = output;
        if let Some(control) = &self.control {
            context.write(&control.object, control.index, LuaValue::Number(output));
        }
        if was_on != is_on {
            context.fire(if is_on { 3 } else { 4 });
        }
    }
}

impl CluObject for Thermostat {
    fn get(&self, index: u16, context: &mut ObjectContext<'_>) -> LuaValue {
        match index {
            2 => self.output_type.into(),
            3 => self.point.into(),
            4 => self.holiday_point.into(),
            5 => self.hysteresis.into(),
            6 => flag(self.next_control.is_some()),
            7 => flag(self.is_reverse),
            8 => LuaValue::Number(match self.mode {
                ThermostatMode::Point => 0.0,
                ThermostatMode::Holiday => 1.0,
                ThermostatMode::Schedule => 2.0,
                ThermostatMode::HeatUp { .. } => 3.0,
            }),
            9 => self.schedule.text.as_str().into(),
            10 => self.min.into(),
            11 => self.max.into(),
            12 => self.target(context).into(),
            13 => self.output.into(),
            _ => self.temperature.map_or(LuaValue::Nil, LuaValue::Number),
        }
    }

    fn set(&mut self, index: u16, value: LuaValue, context: &mut ObjectContext<'_>) -> Result<(), ObjectError> {
        let number = value.as_number().unwrap_or_default();
        match index {
            0 => self.source = FeatureReference::from_value(&value)?,
            1 => self.control = FeatureReference::from_value(&value)?,
            2 => self.output_type = number,
            3 => self.set_point(number, context),
            4 => self.holiday_point = number,
            5 => self.hysteresis = number,
            6 => self.set_active(number == 1.0, context),
            7 => self.is_reverse = number == 1.0,
            8 => {
                let mode = match number {
                    0.0 => ThermostatMode::Point,
                    1.0 => ThermostatMode::Holiday,
                    2.0 => ThermostatMode::Schedule,
                    _ => ThermostatMode::HeatUp { more: 0.0, until: None, is_schedule_next: false },
                };
                self.set_mode(mode, context);
            }
            9 => {
                let text = value.to_text(Default::default());
                self.schedule = WeekSchedule::parse(&text).map_err(|reason| ObjectError::Failed { reason })?;
            }
            10 => self.min = number,
            _ => self.max = number,
        }
        self.control(context);
        Ok(())
    }

    fn call(
        &mut self,
        index: u16,
        arguments: &[LuaValue],
        context: &mut ObjectContext<'_>,
    ) -> Result<LuaValue, ObjectError> {
        match index {
            0 => self.set_active(true, context),
            1 => self.set_active(false, context),
            2 => self.set_point(self.point + 1.0, context),
            3 => self.set_point(self.point - 1.0, context),
            4 => {
                let minutes = number_or(arguments, 1, 0.0);
                if !(0.0..=HEAT_UP_MINUTES_MAX).contains(&minutes) {
                    let reason = format!("the time of HeatUp must be between 0 and {HEAT_UP_MINUTES_MAX} min");
                    return Err(ObjectError::Failed { reason });
                }
                let is_schedule_next = match self.mode {
                    ThermostatMode::HeatUp { is_schedule_next, .. } => is_schedule_next,
                    mode => mode == ThermostatMode::Schedule,
                };
                let until = Some(context.now().monotonic + Duration::from_secs_f64(minutes * 60.0));
                let more = number_or(arguments, 0, 0.0);
                self.set_mode(ThermostatMode::HeatUp { more, until, is_schedule_next }, context);
            }
            5 => self.set_mode(ThermostatMode::Holiday, context),
            7 => self.set_mode(ThermostatMode::Schedule, context),
            6 if self.mode == ThermostatMode::Holiday => self.set_mode(ThermostatMode::Point, context),
            8 if self.mode == ThermostatMode::Schedule => self.set_mode(ThermostatMode::Point, context),
            _ => {}
        }
        self.control(context);
        Ok(LuaValue::Nil)
    }

    fn deadline(&self) -> Option<Instant> {
        self.next_control
    }

    fn tick(&mut self, context: &mut ObjectContext<'_>) {
        self.control(context);
    }
}
