//! CLU: the CLU itself, with its clock and its log.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

mod mqtt;
mod remote;

use fodo_data::Now;

use self::mqtt::CluMqtt;
use super::{
    CluObject, Feature, FeatureAccess, ObjectClass, ObjectContext, ObjectError, ObjectEvent, ObjectMethod, Parameter,
    ValueKind, flag,
};
use crate::clock::{LocalClock, ZONES};
use crate::limit::CLU_LOG_LINES_MAX;
use crate::log::LogSeverity;
use crate::mqtt::without_password;
use crate::value::LuaValue;

/// How often the clock is checked for a step.
const CLOCK_CHECK_PERIOD: Duration = Duration::from_secs(1);

/// The step of the local clock from which `OnTimeChange` is fired.
const TIME_CHANGE_S: i64 = 60;

const ON_MQTT_RECEIVE_VALUE: u16 = 20;

const fn zone_choices() -> [(f64, &'static str); ZONES.len()] {
    let mut choices = [(0.0, ""); ZONES.len()];
    let mut index = 0;
    while index < ZONES.len() {
        choices[index] = (index as f64, ZONES[index]);
        index += 1;
    }
    choices
}

static ZONE_CHOICES: [(f64, &str); ZONES.len()] = zone_choices();

pub(crate) static CLASS: ObjectClass = ObjectClass {
    number: 0,
    name: "CLU",
    version: 1,
    features: &[
        Feature::number(0, "Uptime").unit("s"),
        Feature::text(1, "Log"),
        Feature::number(2, "State").choices(&[
            (0.0, "System starting"),
            (1.0, "System ok"),
            (2.0, "Critical error"),
            (4.0, "Emergency mode"),
            (5.0, "Monitor mode"),
        ]),
        Feature::text(5, "Date"),
        Feature::text(6, "Time"),
        Feature::number(7, "Day").range(1.0, 31.0),
        Feature::number(8, "Month").range(1.0, 12.0),
        Feature::number(9, "Year"),
        Feature::number(10, "DayOfWeek").range(0.0, 6.0),
        Feature::number(11, "Hour").range(0.0, 23.0).unit("h"),
        Feature::number(12, "Minute").range(0.0, 59.0).unit("m"),
        Feature::number(13, "LocalTime").unit("s"),
        Feature::number(14, "TimeZone").choices(&ZONE_CHOICES).settable(),
        Feature::text(20, "MQTTUrl").settable(),
        Feature::number(21, "UseMQTT").choices(super::OFF_ON).settable(),
        Feature::number(22, "MQTTConnection").choices(super::OFF_ON),
        Feature::number(23, "MQTTDiscovery").choices(super::OFF_ON).settable(),
        Feature::text(24, "MQTTDiscoveryPrefix").settable(),
        Feature::new(25, "MQTTMessage", ValueKind::Any, FeatureAccess::Get),
    ],
    methods: &[
        ObjectMethod::with(0, "AddToLog", &[Parameter::new("Log", ValueKind::Text, "")]),
        ObjectMethod::new(1, "ClearLog"),
        ObjectMethod::with(2, "SetDateTime", &[Parameter::new("LocalTimestamp", ValueKind::TimeStamp, "s")]),
        ObjectMethod::with(
            20,
            "mqttSendDiscovery",
            &[
                Parameter::new("Name", ValueKind::Text, ""),
                Parameter::new("UniqueId", ValueKind::Text, ""),
                Parameter::new("DeviceClass", ValueKind::Text, ""),
                Parameter::new("Unit", ValueKind::Text, ""),
                Parameter::new("Template", ValueKind::Text, ""),
            ],
        ),
        ObjectMethod::with(
            21,
            "mqttSendValue",
            &[Parameter::new("UniqueId", ValueKind::Text, ""), Parameter::new("Value", ValueKind::Any, "")],
        ),
        ObjectMethod::with(30, "mqttOnValueChange", &[Parameter::new("Object", ValueKind::Text, "")]),
    ],
    events: &[
        ObjectEvent::new(0, "OnInit"),
        ObjectEvent::new(13, "OnTimeChange"),
        ObjectEvent::new(ON_MQTT_RECEIVE_VALUE, "OnMqttReceiveValue"),
    ],
    create: |context| {
        let now = context.now();
        Box::new(Clu {
            lines: VecDeque::new(),
            checked: TimeCheck::new(&context.world.clock, now),
            mqtt: CluMqtt::new(now.monotonic),
        })
    },
};

struct Clu {
    /// What `AddToLog` has written.
    lines: VecDeque<String>,
    checked: TimeCheck,
    mqtt: CluMqtt,
}

/// The local time when the clock was last checked.
struct TimeCheck {
    at: Instant,
    local_s: i64,
}

impl TimeCheck {
    fn new(clock: &LocalClock, now: Now) -> TimeCheck {
        TimeCheck { at: now.monotonic, local_s: clock.local_seconds(now) }
    }
}

impl CluObject for Clu {
    fn get(&self, index: u16, context: &mut ObjectContext<'_>) -> LuaValue {
        let now = context.now();
        let local = context.world.clock.local(now);
        let number = match index {
            0 => now.monotonic.saturating_duration_since(context.world.started).as_secs() as f64,
            1 => return self.lines.iter().cloned().collect::<Vec<String>>().join("\n").into(),
            2 => context.world.state.number(),
            5 => return local.strftime("%Y-%m-%d").to_string().into(),
            6 => return local.strftime("%H:%M:%S").to_string().into(),
            7 => f64::from(local.day()),
            8 => f64::from(local.month()),
            9 => f64::from(local.year()),
            10 => f64::from(local.weekday().to_sunday_zero_offset()),
            11 => f64::from(local.hour()),
            12 => f64::from(local.minute()),
            13 => context.world.clock.local_seconds(now) as f64,
            20 => return without_password(&self.mqtt.url).into(),
            21 => return flag(self.mqtt.is_used),
            22 => return flag(context.world.network.mqtt.is_connected()),
            23 => return flag(self.mqtt.has_discovery),
            24 => return self.mqtt.prefix.as_str().into(),
            25 => return self.mqtt.message.clone(),
            _ => match context.world.clock.zone_index() {
                Some(zone) => zone as f64,
                None => return LuaValue::Nil,
            },
        };
        LuaValue::Number(number)
    }

    fn set(&mut self, index: u16, value: LuaValue, context: &mut ObjectContext<'_>) -> Result<(), ObjectError> {
        if index >= 20 {
            return self.mqtt.set(index, value, context);
        }
        let zone = value.as_number().unwrap_or_default() as usize;
        if context.world.clock.set_zone(zone) {
            return Ok(());
        }
        let name = ZONES.get(zone).unwrap_or(&"");
        Err(ObjectError::Failed { reason: format!("this computer has no time zone \"{name}\"") })
    }

    fn call(
        &mut self,
        index: u16,
        arguments: &[LuaValue],
        context: &mut ObjectContext<'_>,
    ) -> Result<LuaValue, ObjectError> {
        match (index, arguments) {
            (20.., _) => return self.mqtt.call(index, arguments, context),
            (0, [LuaValue::Text(line)]) => {
                if self.lines.len() == CLU_LOG_LINES_MAX {
                    self.lines.pop_front();
                }
                let line: String = line.chars().take(100).collect();
                context.log(LogSeverity::Info, &line);
                self.lines.push_back(line);
            }
            (1, _) => self.lines.clear(),
            (2, [LuaValue::Number(seconds)]) => {
                let now = context.now();
                if !context.world.clock.set_local_seconds(*seconds as i64, now) {
                    return Err(ObjectError::Failed { reason: format!("{seconds} is not a valid time") });
                }
            }
            _ => return Err(ObjectError::Failed { reason: "an argument is missing".into() }),
        }
        Ok(LuaValue::Nil)
    }

    fn init(&mut self, context: &mut ObjectContext<'_>) {
        context.fire(0);
    }

    fn deadline(&self) -> Option<Instant> {
        Some(self.checked.at + CLOCK_CHECK_PERIOD).into_iter().chain(self.mqtt.deadline()).min()
    }

    fn tick(&mut self, context: &mut ObjectContext<'_>) {
        self.mqtt.tick(context);
        if self.checked.at + CLOCK_CHECK_PERIOD <= context.now().monotonic {
            self.check_time(context);
        }
    }

    fn woken(&mut self, context: &mut ObjectContext<'_>) {
        if self.mqtt.receive(context) {
            context.fire(ON_MQTT_RECEIVE_VALUE);
        }
    }
}

impl Clu {
    /// Compares the local time with the monotonic clock. They differ after a step of the computer's clock, `SetDateTime`,
    /// another zone, and at the start and end of daylight saving time.
    fn check_time(&mut self, context: &mut ObjectContext<'_>) {
        let now = context.now();
        let check = TimeCheck::new(&context.world.clock, now);
        let elapsed = now.monotonic.saturating_duration_since(self.checked.at).as_secs() as i64;
        let step = check.local_s - self.checked.local_s - elapsed;
        self.checked = check;
        if step.abs() >= TIME_CHANGE_S {
            context.fire(13);
        }
    }
}
