//! Home Assistant: the entities of the objects of a CLU, with the topics of their states and commands.
//!
//! Source: Home Assistant documentation, "MQTT", MQTT discovery and the platforms that [`platform_of`] returns.

use serde_json::{Map, Value, json};

use crate::json::payload_of;
use crate::limit::MQTT_TEXT_STATE_MAX;
use crate::object::{Feature, FeatureAccess, ObjectClass, ObjectMethod, ValueKind};
use crate::value::LuaValue;

/// Classes with a form of their own.
const CLU: u32 = 0;
const THERMOSTAT: u32 = 18;
const PRESENCE_SENSOR: u32 = 40;
const HTTP_LISTENER: u32 = 120;
const HTTP_REQUEST: u32 = 121;
const MQTT_TOPIC: u32 = 999;

/// The range of a number without a range; Home Assistant requires one.
const NUMBER_MAX: f64 = 1e9;

/// How a CLU is named in topics and entities.
pub(crate) struct EntityNames {
    /// The CLU as a level of topics.
    pub clu: String,
    /// The name for people.
    pub label: String,
    /// The first level of discovery topics.
    pub prefix: String,
}

/// An object with entities.
#[derive(Clone, Copy)]
pub(crate) struct EntityObject<'a> {
    pub name: &'a str,
    /// The name for people.
    pub label: &'a str,
    pub class: &'static ObjectClass,
    /// The range of the target of a thermostat.
    pub target_range: (f64, f64),
}

/// A topic and the configuration of its entity.
pub(crate) type EntityConfig = (String, Value);

/// A command from MQTT.
#[derive(Debug, PartialEq)]
pub(crate) enum EntityCommand<'a> {
    Set {
        object: &'a str,
        feature: &'a str,
    },
    Call {
        object: &'a str,
        method: &'a str,
    },
    /// A value that a script has announced with `mqttSendDiscovery`.
    Value {
        id: &'a str,
    },
}

impl EntityNames {
    pub fn availability_topic(&self) -> String {
        format!("fodo/{}/availability", self.clu)
    }

    pub fn state_topic(&self, object: &str, feature: &Feature) -> String {
        format!("fodo/{}/state/{}/{}", self.clu, topic_level(object), feature.name)
    }

    fn set_topic(&self, object: &str, feature: &Feature) -> String {
        format!("fodo/{}/set/{}/{}", self.clu, topic_level(object), feature.name)
    }

    fn call_topic(&self, object: &str, method: &ObjectMethod) -> String {
        format!("fodo/{}/call/{}/{}", self.clu, topic_level(object), method.name)
    }

    /// The topic of a value that a script sends.
    pub fn value_topic(&self, id: &str) -> String {
        format!("fodo/{}/state/{}", self.clu, topic_level(id))
    }

    /// The topic of an object of another CLU. `verb`: `state` or `set`.
    pub fn remote_topic(&self, verb: &str, clu: &str, object: &str) -> String {
        format!("fodo/{}/{verb}/{clu}/{object}", self.clu)
    }

    /// The filters of all topics that [`EntityNames::command`] accepts.
    pub fn command_filters(&self) -> [String; 2] {
        [format!("fodo/{}/set/#", self.clu), format!("fodo/{}/call/#", self.clu)]
    }

    /// The command of a topic.
    pub fn command<'a>(&self, topic: &'a str) -> Option<EntityCommand<'a>> {
        let rest = topic.strip_prefix("fodo/")?.strip_prefix(&self.clu)?.strip_prefix('/')?;
        let levels: Vec<&str> = rest.split('/').collect();
        match levels.as_slice() {
            ["set", object, feature] => Some(EntityCommand::Set { object, feature }),
            ["call", object, method] => Some(EntityCommand::Call { object, method }),
            ["set", id] => Some(EntityCommand::Value { id }),
            _ => None,
        }
    }

    /// The sensor that a script announces. `details`: its name, class, unit and template.
    pub fn value_config(&self, id: &str, details: Map<String, Value>) -> EntityConfig {
        let mut config = details;
        config.insert("state_topic".into(), self.value_topic(id).into());
        self.finish("sensor", id, config)
    }

    /// The configurations of all entities of an object.
    pub fn object_configs(&self, object: EntityObject<'_>) -> Vec<EntityConfig> {
        let features = object.class.features.iter().filter(|feature| is_published(object.class, feature));
        let mut configs: Vec<EntityConfig> =
            features.filter_map(|feature| self.feature_config(object, feature)).collect();
        let methods = object.class.methods.iter().filter(|method| method.parameters.is_empty());
        configs.extend(methods.filter(|_| object.class.number != CLU).map(|method| {
            let mut config = Map::new();
            config.insert("name".into(), format!("{} {}", object.label, method.name).into());
            config.insert("command_topic".into(), self.call_topic(object.name, method).into());
            self.finish("button", &format!("{}_{}", object.name, method.name), config)
        }));
        if object.class.number == THERMOSTAT {
            configs.extend(self.climate_config(object));
        }
        configs
    }

    fn feature_config(&self, object: EntityObject<'_>, feature: &Feature) -> Option<EntityConfig> {
        let platform = platform_of(object.class, feature)?;
        let mut config = Map::new();
        config.insert("name".into(), format!("{} {}", object.label, feature.name).into());
        config.insert("state_topic".into(), self.state_topic(object.name, feature).into());
        if feature.access != FeatureAccess::Get {
            config.insert("command_topic".into(), self.set_topic(object.name, feature).into());
        }
        match platform {
            "switch" => config.extend(entries(json!({
                "payload_on": "1", "payload_off": "0", "state_on": "1", "state_off": "0"
            }))),
            "binary_sensor" => config.extend(entries(json!({ "payload_on": "1", "payload_off": "0" }))),
            "select" | "sensor" if !feature.choices.is_empty() => {
                let options: Vec<&str> = feature.choices.iter().map(|(_, name)| *name).collect();
                config.insert("options".into(), options.into());
            }
            "number" => {
                let (min, max) = feature.range.unwrap_or((-NUMBER_MAX, NUMBER_MAX));
                config.extend(entries(json!({ "min": min, "max": max, "step": 0.001, "mode": "box" })));
            }
            "text" => drop(config.insert("max".into(), MQTT_TEXT_STATE_MAX.into())),
            _ => {}
        }
        if platform == "sensor" && !feature.choices.is_empty() {
            config.insert("device_class".into(), "enum".into());
        } else if platform == "sensor" && feature.kind == ValueKind::Number {
            config.insert("state_class".into(), "measurement".into());
        }
        if object.class.number == PRESENCE_SENSOR && platform == "binary_sensor" {
            config.insert("device_class".into(), "occupancy".into());
        }
        if matches!(platform, "sensor" | "number") && !feature.unit.is_empty() {
            config.insert("unit_of_measurement".into(), feature.unit.into());
        }
        Some(self.finish(platform, &format!("{}_{}", object.name, feature.name), config))
    }

    /// A thermostat as one entity: target, temperature, on and off.
    fn climate_config(&self, object: EntityObject<'_>) -> Option<EntityConfig> {
        let feature = |index: u16| object.class.features.iter().find(|feature| feature.index == index);
        let (target, state, temperature) = (feature(3)?, feature(6)?, feature(14)?);
        let (min, max) = object.target_range;
        let config = entries(json!({
            "name": object.label,
            "modes": ["off", "heat"],
            "mode_state_topic": self.state_topic(object.name, state),
            "mode_state_template": "{{ 'heat' if value == '1' else 'off' }}",
            "mode_command_topic": self.set_topic(object.name, state),
            "mode_command_template": "{{ 0 if value == 'off' else 1 }}",
            "temperature_state_topic": self.state_topic(object.name, target),
            "temperature_command_topic": self.set_topic(object.name, target),
            "current_temperature_topic": self.state_topic(object.name, temperature),
            "min_temp": min,
            "max_temp": max,
            "temp_step": 0.1,
            "temperature_unit": "C",
        }));
        Some(self.finish("climate", object.name, config.collect()))
    }

    /// Adds what all entities have.
    pub fn finish(&self, platform: &str, id: &str, mut config: Map<String, Value>) -> EntityConfig {
        let (node, id) = (identifier(&self.clu), identifier(id));
        config.extend(entries(json!({
            "unique_id": format!("fodo_{node}_{id}"),
            "availability_topic": self.availability_topic(),
            "qos": 1,
            "device": {
                "identifiers": [format!("fodo_{node}")],
                "name": self.label,
                "manufacturer": "Fodo",
                "model": "virtual CLU",
            },
            "origin": { "name": "fodo", "sw_version": env!("CARGO_PKG_VERSION") },
        })));
        (format!("{}/{platform}/{node}/{id}/config", self.prefix), Value::Object(config))
    }
}

fn entries(object: Value) -> impl Iterator<Item = (String, Value)> {
    let map = if let Value::Object(map) = object { map } else { Map::new() };
    map.into_iter()
}

/// Whether the state of a feature is published. Not published are clocks, and what may contain a password.
pub(crate) fn is_published(class: &ObjectClass, feature: &Feature) -> bool {
    let is_public = match class.number {
        CLU => feature.name == "State",
        HTTP_LISTENER => feature.name == "StatusCode",
        HTTP_REQUEST => matches!(feature.name, "StatusCode" | "IsActive"),
        MQTT_TOPIC => false,
        _ => true,
    };
    is_public && feature.access != FeatureAccess::Set && feature.kind != ValueKind::Table
}

/// Whether a feature changes by itself with the time.
pub(crate) fn is_elapsed_time(feature: &Feature) -> bool {
    feature.access == FeatureAccess::Get && matches!(feature.unit, "s" | "ms" | "min")
}

fn is_on_off(feature: &Feature) -> bool {
    matches!(feature.choices, [(off, _), (on, _)] if *off == 0.0 && *on == 1.0)
        && feature.choices.iter().any(|(_, name)| *name == "On")
}

/// The kind of entity; `None` if another entity of the object contains the feature.
fn platform_of(class: &ObjectClass, feature: &Feature) -> Option<&'static str> {
    let is_settable = feature.access == FeatureAccess::GetSet;
    let settable_or = |settable, fixed| if is_settable { settable } else { fixed };
    Some(match feature.kind {
        _ if class.number == THERMOSTAT && matches!(feature.index, 3 | 6 | 14) => return None,
        _ if class.number == PRESENCE_SENSOR && feature.name == "PresenceDetected" => "binary_sensor",
        _ if is_on_off(feature) => settable_or("switch", "binary_sensor"),
        _ if !feature.choices.is_empty() => settable_or("select", "sensor"),
        ValueKind::Number => settable_or("number", "sensor"),
        ValueKind::Text => settable_or("text", "sensor"),
        ValueKind::Table => return None,
        _ => "sensor",
    })
}

/// The payload of a state: the name of a choice, or the value; `None` is unknown in Home Assistant.
pub(crate) fn state_payload(feature: &Feature, value: &LuaValue) -> String {
    let choice = feature.choices.iter().find(|(choice, _)| *value == LuaValue::Number(*choice));
    match (choice, value) {
        (_, LuaValue::Nil) => "None".into(),
        (Some((_, name)), _) if !is_on_off(feature) => (*name).to_string(),
        (_, value) => payload_of(value).chars().take(MQTT_TEXT_STATE_MAX).collect(),
    }
}

/// The value of a command: the name of a choice means the choice.
pub(crate) fn command_value(feature: &Feature, payload: &str) -> LuaValue {
    let named = feature.choices.iter().find(|(_, name)| name.eq_ignore_ascii_case(payload.trim()));
    named.map_or_else(|| payload.into(), |(choice, _)| LuaValue::Number(*choice))
}

/// A name as one level of a topic.
pub(crate) fn topic_level(name: &str) -> String {
    name.chars().map(|c| if matches!(c, '/' | '+' | '#' | '$' | '\0') { '_' } else { c }).collect()
}

/// A name as a part of an identifier of Home Assistant.
fn identifier(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::CLASSES;

    fn names() -> EntityNames {
        EntityNames { clu: "CLU1".into(), label: "Cellar".into(), prefix: "homeassistant".into() }
    }

    fn class(name: &str) -> &'static ObjectClass {
        CLASSES.into_iter().find(|class| class.name == name).unwrap()
    }

    fn configs(name: &str) -> std::collections::BTreeMap<String, Value> {
        let object = EntityObject { name: "OBJ", label: "Hall", class: class(name), target_range: (5.0, 30.0) };
        names().object_configs(object).into_iter().collect()
    }

    #[test]
    fn a_thermostat_is_a_climate_entity_with_its_other_features_beside() {
        let configs = configs("Thermostat");

        let climate = &configs["homeassistant/climate/CLU1/OBJ/config"];
        assert_eq!(climate["temperature_command_topic"], "fodo/CLU1/set/OBJ/PointValue");
        assert_eq!(climate["current_temperature_topic"], "fodo/CLU1/state/OBJ/CurrentTemp");
        assert_eq!((&climate["min_temp"], &climate["max_temp"]), (&json!(5.0), &json!(30.0)));
        let hysteresis = &configs["homeassistant/number/CLU1/OBJ_Hysteresis/config"];
        assert_eq!((&hysteresis["max"], &hysteresis["unit_of_measurement"]), (&json!(100.0), &json!("°C")));
        assert_eq!(configs["homeassistant/select/CLU1/OBJ_Mode/config"]["options"][1], "HolidayMode");
        assert!(!configs.keys().any(|topic| topic.contains("PointValue")), "{configs:?}");
    }

    #[test]
    fn the_kind_of_an_entity_follows_the_table_of_the_class() {
        let presence = configs("PresenceSensor");
        let detected = &presence["homeassistant/binary_sensor/CLU1/OBJ_PresenceDetected/config"];
        assert_eq!((&detected["device_class"], &detected["payload_on"]), (&json!("occupancy"), &json!("1")));
        let locked = &presence["homeassistant/switch/CLU1/OBJ_Locked/config"];
        assert_eq!(locked["command_topic"], "fodo/CLU1/set/OBJ/Locked");
        assert_eq!(presence["homeassistant/button/CLU1/OBJ_Start/config"]["command_topic"], "fodo/CLU1/call/OBJ/Start");

        let timer = configs("Timer");
        assert_eq!(timer["homeassistant/number/CLU1/OBJ_Time/config"]["unit_of_measurement"], "ms");
        assert_eq!(timer["homeassistant/sensor/CLU1/OBJ_State/config"]["device_class"], "enum");
        assert_eq!(timer["homeassistant/sensor/CLU1/OBJ_Value/config"]["state_class"], "measurement");
    }

    #[test]
    fn every_class_has_entities_with_distinct_identifiers() {
        for class in CLASSES {
            let object = EntityObject { name: "OBJ", label: "Hall", class, target_range: (5.0, 30.0) };
            let configs = names().object_configs(object);

            let mut ids: Vec<&str> = configs.iter().map(|(_, config)| config["unique_id"].as_str().unwrap()).collect();
            ids.sort_unstable();
            ids.dedup();
            assert_eq!(ids.len(), configs.len(), "{}", class.name);
            // A RemoteCLU has only a method with an argument.
            assert_eq!(configs.is_empty(), class.name == "RemoteCLU", "{}", class.name);
        }
    }

    #[test]
    fn what_may_contain_a_password_is_not_published() {
        for class in ["CLU", "HttpRequest", "HttpListener", "MqttTopic"].map(class) {
            let published: Vec<&str> =
                class.features.iter().filter(|one| is_published(class, one)).map(|one| one.name).collect();
            assert!(published.iter().all(|name| matches!(*name, "State" | "StatusCode" | "IsActive")), "{published:?}");
        }
    }

    #[test]
    fn a_command_is_found_by_its_topic() {
        let names = names();

        let set = EntityCommand::Set { object: "THE1", feature: "PointValue" };
        assert_eq!(names.command("fodo/CLU1/set/THE1/PointValue"), Some(set));
        let call = EntityCommand::Call { object: "TIM1", method: "Start" };
        assert_eq!(names.command("fodo/CLU1/call/TIM1/Start"), Some(call));
        assert_eq!(names.command("fodo/CLU1/set/x"), Some(EntityCommand::Value { id: "x" }));
        for other in ["fodo/CLU2/set/x", "fodo/CLU12/set/x", "fodo/CLU1/state/x", "fodo/CLU1/set/a/b/c"] {
            assert_eq!(names.command(other), None, "{other}");
        }
    }

    #[test]
    fn states_and_commands_use_the_names_of_choices() {
        let state = class("Timer").features.iter().find(|feature| feature.name == "State").unwrap();
        let mode = class("Timer").features.iter().find(|feature| feature.name == "Mode").unwrap();

        assert_eq!(state_payload(state, &1.0.into()), "Counting");
        assert_eq!(state_payload(state, &LuaValue::Nil), "None");
        assert_eq!(command_value(mode, "interval"), 1.0.into());
        assert_eq!(command_value(mode, "1"), "1".into());
    }
}
