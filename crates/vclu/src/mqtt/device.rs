//! Home Assistant: the lights, shutters and sensors of other CLUs as entities.
//!
//! A device has one topic for its state and one for commands. Which features and methods it needs is that of
//! OpenGr8ton's virtual CLU.
//!
//! Source: Home Assistant documentation, MQTT light, cover, sensor, binary sensor and event.

use fodo_clu::omp::ProjectObject;
use fodo_data::Scalar;
use serde_json::{Map, Value, json};

use crate::json::payload_of;
use crate::pv::lights::{PART_MAX, SET_RGB, SET_WHITE, colour_parts, rgb_text};
use crate::value::LuaValue;

/// The method of a shutter that sets its position in percent, and the one that stops it.
const SET_POSITION: u32 = 10;
const STOP: u32 = 3;

/// What a device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DeviceKind {
    /// A light that is on or off.
    Switch,
    Dimmer,
    /// A light with colours, and white if there are four parts.
    Led,
    Shutter,
    Contact,
    Sensor,
    /// A button, which a script reports.
    Button,
}

/// The types of objects in a project, and the feature with the state.
const KINDS: [(&str, DeviceKind, &str); 11] = [
    ("DOUT", DeviceKind::Switch, "Value"),
    ("DIMM", DeviceKind::Dimmer, "Value"),
    ("LEDRGB", DeviceKind::Led, ""),
    ("ROLLER_SHUTTER", DeviceKind::Shutter, "Position"),
    ("DIN", DeviceKind::Contact, "Value"),
    ("PANELSENSTEMP", DeviceKind::Sensor, "Value"),
    ("PANELSENSLIGHT", DeviceKind::Sensor, "Value"),
    ("AnalogIN", DeviceKind::Sensor, "Value"),
    ("PowerSupplyVoltage", DeviceKind::Sensor, "Value"),
    ("BUTTON", DeviceKind::Button, ""),
    ("PANEL_BUTTON", DeviceKind::Button, ""),
];

/// An object of another CLU that is an entity of Home Assistant.
#[derive(Clone, Debug)]
pub(crate) struct RemoteDevice {
    /// The name in Lua.
    pub object: String,
    label: String,
    kind: DeviceKind,
    /// The features with its state.
    pub features: Vec<u32>,
    unit: String,
}

/// What a command of Home Assistant requests of the CLU.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum DeviceRequest {
    Set { feature: u32, value: Scalar },
    Call { method: u32, argument: Option<Scalar> },
}

impl RemoteDevice {
    /// `None` for an object without an entity.
    pub fn of(object: &ProjectObject) -> Option<RemoteDevice> {
        let (interface, type_name) = (&object.interface, object.interface.name.as_str());
        let (_, kind, state) = KINDS.into_iter().find(|(name, ..)| name.eq_ignore_ascii_case(type_name))?;
        let (features, unit) = match kind {
            DeviceKind::Led => (colour_parts(interface)?, String::new()),
            DeviceKind::Button => (Vec::new(), String::new()),
            _ => {
                let feature = interface.feature(state)?;
                (vec![feature.index], feature.unit.clone())
            }
        };
        let label = object.name.as_ref().unwrap_or(&object.id).clone();
        Some(RemoteDevice { object: object.id.clone(), label, kind, features, unit })
    }

    /// The kind of the entity.
    pub fn platform(&self) -> &'static str {
        match self.kind {
            DeviceKind::Switch | DeviceKind::Dimmer | DeviceKind::Led => "light",
            DeviceKind::Shutter => "cover",
            DeviceKind::Contact => "binary_sensor",
            DeviceKind::Sensor => "sensor",
            DeviceKind::Button => "event",
        }
    }

    /// The configuration of the entity, without what all entities have.
    pub fn config(&self, state: &str, command: &str) -> Map<String, Value> {
        let own = match self.kind {
            DeviceKind::Switch => json!({ "command_topic": command, "payload_on": "1", "payload_off": "0" }),
            DeviceKind::Dimmer => json!({
                "command_topic": command, "payload_on": "1", "payload_off": "0", "on_command_type": "brightness",
                "state_value_template": "{{ 1 if value | float(0) > 0 else 0 }}",
                "brightness_state_topic": state, "brightness_command_topic": command, "brightness_scale": 100,
            }),
            DeviceKind::Led => {
                let colours = if self.features.len() == 4 { "rgbw" } else { "rgb" };
                let mut led = Map::new();
                led.insert(format!("{colours}_state_topic"), state.into());
                led.insert(format!("{colours}_command_topic"), command.into());
                led.insert("command_topic".into(), command.into());
                led.insert("payload_on".into(), "1".into());
                led.insert("payload_off".into(), "0".into());
                let is_on = "{{ 0 if value in ['0,0,0', '0,0,0,0'] else 1 }}";
                led.insert("state_value_template".into(), is_on.into());
                Value::Object(led)
            }
            DeviceKind::Shutter => {
                json!({ "command_topic": command, "position_topic": state, "set_position_topic": command })
            }
            DeviceKind::Contact => json!({ "payload_on": "1", "payload_off": "0" }),
            DeviceKind::Sensor if self.unit.is_empty() => json!({ "state_class": "measurement" }),
            DeviceKind::Sensor => json!({ "state_class": "measurement", "unit_of_measurement": self.unit }),
            DeviceKind::Button => json!({ "event_types": ["press"] }),
        };
        let mut config = if let Value::Object(own) = own { own } else { Map::new() };
        config.insert("name".into(), self.label.as_str().into());
        // A shutter has a position instead.
        if self.kind != DeviceKind::Shutter {
            config.insert("state_topic".into(), state.into());
        }
        config
    }

    /// The payload of a button that a script reports as pressed; `None` for other devices.
    pub fn press(&self) -> Option<String> {
        (self.kind == DeviceKind::Button).then(|| json!({ "event_type": "press" }).to_string())
    }

    /// The payload of the state; `None` if the CLU does not report it.
    pub fn state(&self, values: &[Option<Scalar>]) -> Option<String> {
        let numbers: Vec<f64> = values.iter().map(|value| number(value.as_ref()?)).collect::<Option<_>>()?;
        let first = *numbers.first()?;
        Some(match self.kind {
            DeviceKind::Switch | DeviceKind::Contact => if first == 0.0 { "0" } else { "1" }.into(),
            DeviceKind::Dimmer => format!("{:.0}", 100.0 * first),
            DeviceKind::Led => numbers.iter().map(|part| format!("{part:.0}")).collect::<Vec<_>>().join(","),
            DeviceKind::Shutter => format!("{first:.0}"),
            DeviceKind::Sensor => payload_of(&LuaValue::Number(first)),
            DeviceKind::Button => return None,
        })
    }

    /// What a command requests, or why it is refused.
    pub fn command(&self, payload: &str) -> Result<Vec<DeviceRequest>, String> {
        let payload = payload.trim();
        let within = |max: f64| {
            let number: Option<f64> = payload.parse().ok().filter(|number| (0.0..=max).contains(number));
            number.ok_or_else(|| format!("\"{payload}\" must be a number between 0 and {max}"))
        };
        let set = |value: f64| match self.features.first() {
            Some(feature) => vec![DeviceRequest::Set { feature: *feature, value: Scalar::F64(value) }],
            None => Vec::new(),
        };
        let call = |method, argument| vec![DeviceRequest::Call { method, argument }];
        match (self.kind, payload) {
            (DeviceKind::Switch, _) => Ok(set(within(1.0)?.round())),
            (DeviceKind::Dimmer, _) => Ok(set(within(100.0)? / 100.0)),
            (DeviceKind::Led, _) => self.colour(payload),
            (DeviceKind::Shutter, "OPEN") => Ok(call(SET_POSITION, Some(Scalar::F64(100.0)))),
            (DeviceKind::Shutter, "CLOSE") => Ok(call(SET_POSITION, Some(Scalar::F64(0.0)))),
            (DeviceKind::Shutter, "STOP") => Ok(call(STOP, None)),
            (DeviceKind::Shutter, _) => Ok(call(SET_POSITION, Some(Scalar::F64(within(100.0)?)))),
            (DeviceKind::Contact | DeviceKind::Sensor | DeviceKind::Button, _) => Err("it cannot be set".into()),
        }
    }

    /// On, off, or the parts of a colour.
    fn colour(&self, payload: &str) -> Result<Vec<DeviceRequest>, String> {
        let parts: Option<Vec<u8>> = match payload {
            "1" => Some(vec![PART_MAX as u8; self.features.len()]),
            "0" => Some(vec![0; self.features.len()]),
            colour => colour.split(',').map(|part| part.trim().parse().ok()).collect(),
        };
        let n_parts = self.features.len();
        match parts.as_deref() {
            Some([red, green, blue, white @ ..]) if 3 + white.len() <= n_parts => {
                let text = Scalar::Text(rgb_text([*red, *green, *blue]).as_str().into());
                let white = white.iter().map(|white| (SET_WHITE, Scalar::F64(f64::from(*white))));
                let calls = std::iter::once((SET_RGB, text)).chain(white);
                Ok(calls.map(|(method, argument)| DeviceRequest::Call { method, argument: Some(argument) }).collect())
            }
            _ => Err(format!("\"{payload}\" must have 3 to {n_parts} numbers from 0 to 255, with commas between them")),
        }
    }
}

fn number(value: &Scalar) -> Option<f64> {
    match value {
        Scalar::Bool(is_on) => Some(f64::from(u8::from(*is_on))),
        value => value.to_f64().ok(),
    }
}

#[cfg(test)]
mod tests {
    use fodo_clu::interface::{FeatureInterface, InterfaceKind, ObjectInterface};

    use super::*;

    fn device(type_name: &str, features: &[(u32, &str)]) -> RemoteDevice {
        let features = features.iter().map(|(index, name)| FeatureInterface {
            index: *index,
            name: (*name).into(),
            kind: InterfaceKind::Number,
            unit: "C".into(),
            can_get: true,
            can_set: true,
            range: None,
            choices: Vec::new(),
        });
        let interface =
            ObjectInterface { name: type_name.into(), features: features.collect(), ..ObjectInterface::default() };
        let object = ProjectObject { clu: None, id: "OBJ1".into(), name: Some("Hall".into()), interface };
        RemoteDevice::of(&object).unwrap()
    }

    fn call(method: u32, argument: impl Into<Option<Scalar>>) -> DeviceRequest {
        DeviceRequest::Call { method, argument: argument.into() }
    }

    #[test]
    fn lights_have_their_state_and_commands() {
        let (lamp, dimmer) = (device("DOUT", &[(0, "Value")]), device("DIMM", &[(0, "Value")]));
        let led = device("LEDRGB", &[(3, "RedValue"), (4, "GreenValue"), (5, "BlueValue"), (15, "WhiteValue")]);
        let numbers = |numbers: &[f64]| numbers.iter().map(|number| Some(Scalar::F64(*number))).collect::<Vec<_>>();

        assert_eq!((lamp.platform(), lamp.state(&[Some(Scalar::Bool(true))])), ("light", Some("1".into())));
        assert_eq!(dimmer.state(&numbers(&[0.4])).as_deref(), Some("40"));
        assert_eq!(led.state(&numbers(&[255.0, 128.0, 0.0, 7.0])).as_deref(), Some("255,128,0,7"));
        assert_eq!(dimmer.state(&[None]), None);
        let set = |value| vec![DeviceRequest::Set { feature: 0, value: Scalar::F64(value) }];
        assert_eq!((lamp.command("1"), dimmer.command("75")), (Ok(set(1.0)), Ok(set(0.75))));
        let colour = vec![call(6, Scalar::Text("#ff8000".into())), call(12, Scalar::F64(7.0))];
        assert_eq!(led.command("255,128,0,7"), Ok(colour));
        assert_eq!(led.command("0").map(|requests| requests.len()), Ok(2));
        for (light, payload) in [(&lamp, "2"), (&dimmer, "101"), (&led, "1,2"), (&led, "1,2,3,4,5"), (&led, "1,2,x")] {
            assert!(light.command(payload).is_err(), "{payload}");
        }
        assert_eq!(led.config("s", "c")["rgbw_command_topic"], "c");
        assert_eq!(dimmer.config("s", "c")["brightness_state_topic"], "s");
    }

    #[test]
    fn a_shutter_has_a_position_and_a_sensor_its_unit() {
        let (shutter, sensor) =
            (device("roller_shutter", &[(7, "Position")]), device("PANELSENSTEMP", &[(0, "Value")]));

        assert_eq!((shutter.platform(), shutter.command("STOP")), ("cover", Ok(vec![call(3, None)])));
        assert_eq!(shutter.command("30"), Ok(vec![call(10, Scalar::F64(30.0))]));
        assert!(!shutter.config("s", "c").contains_key("state_topic"));
        assert_eq!(sensor.config("s", "c")["unit_of_measurement"], "C");
        assert_eq!(sensor.state(&[Some(Scalar::F64(21.5))]).as_deref(), Some("21.5"));
        assert!(sensor.command("1").is_err());
        assert!(device("BUTTON", &[]).press().is_some_and(|payload| payload.contains("press")));
    }
}
