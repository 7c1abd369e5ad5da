//! The MQTT part of the object CLU: the broker, Home Assistant discovery, states and commands.
//!
//! States are compared every [`MQTT_SCAN_PERIOD`], and published when they have changed. Commands set features and call
//! methods; a command that is refused publishes the state again, so that Home Assistant shows what the object has.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use serde_json::{Map, Value};

use super::super::{Feature, ObjectClass, ObjectContext, ObjectError};
use super::ON_MQTT_RECEIVE_VALUE;
use super::remote::{REMOTE_CLU, RemoteEntities};
use crate::json::{from_json_text, payload_of};
use crate::limit::{MQTT_SCAN_PERIOD, MQTT_SETTLE_TIME, MQTT_SLOW_SCAN_PERIOD, MQTT_VALUES_MAX};
use crate::log::LogSeverity;
use crate::mqtt::entity::{
    EntityCommand, EntityNames, EntityObject, command_value, is_elapsed_time, is_published, state_payload, topic_level,
};
use crate::mqtt::{BrokerUrl, MqttMessage, MqttSettings, MqttSubscription, check_topic};
use crate::value::LuaValue;

/// The target of a thermostat whose features `Min` and `Max` give no range.
const TARGET_RANGE: (f64, f64) = (5.0, 35.0);

/// What a script has set, and what follows from it.
pub(super) struct CluMqtt {
    pub url: String,
    pub is_used: bool,
    pub has_discovery: bool,
    pub prefix: String,
    /// The last value from MQTT: `{id=.., value=..}`.
    pub message: LuaValue,
    /// The sensors that scripts have announced, by their identifiers.
    values: BTreeMap<String, Map<String, Value>>,
    /// The identifiers for which scripts have sent a value.
    sent: BTreeSet<String>,
    states: Vec<PublishedState>,
    /// The objects of other CLUs.
    remote: RemoteEntities,
    commands: Vec<MqttSubscription>,
    /// The number of objects when their entities were announced.
    n_objects: usize,
    /// When the settings are applied: scripts set them one after another.
    apply_at: Option<Instant>,
    scan_at: Option<Instant>,
}

/// A feature whose state is published.
struct PublishedState {
    object: String,
    feature: &'static Feature,
    topic: String,
    last: LuaValue,
    /// When it is compared again.
    next: Instant,
    is_forced: bool,
}

impl CluMqtt {
    /// `now`: of the creation of the CLU, also by a reset; what an earlier script has set ends soon.
    pub fn new(now: Instant) -> CluMqtt {
        CluMqtt {
            url: String::new(),
            is_used: false,
            has_discovery: false,
            prefix: "homeassistant".into(),
            message: LuaValue::Nil,
            values: BTreeMap::new(),
            sent: BTreeSet::new(),
            states: Vec::new(),
            remote: RemoteEntities::default(),
            commands: Vec::new(),
            n_objects: 0,
            apply_at: Some(now + MQTT_SETTLE_TIME),
            scan_at: None,
        }
    }

    /// Sets a feature from 20 on.
    pub fn set(&mut self, index: u16, value: LuaValue, context: &ObjectContext<'_>) -> Result<(), ObjectError> {
        let is_on = value.as_number() == Some(1.0);
        match (index, value) {
            (20, LuaValue::Text(url)) => {
                if !url.is_empty() {
                    BrokerUrl::parse(&url).map_err(|reason| ObjectError::Failed { reason })?;
                }
                self.url = url;
            }
            (21, _) => self.is_used = is_on,
            (23, _) => self.has_discovery = is_on,
            (_, LuaValue::Text(prefix)) if check_topic(&prefix).is_ok() => self.prefix = prefix,
            _ => return Err(ObjectError::Failed { reason: "the prefix must be a topic".into() }),
        }
        self.apply_at = Some(context.now().monotonic + MQTT_SETTLE_TIME);
        Ok(())
    }

    /// Calls a method from 20 on.
    pub fn call(
        &mut self,
        index: u16,
        arguments: &[LuaValue],
        context: &ObjectContext<'_>,
    ) -> Result<LuaValue, ObjectError> {
        let text = |index: usize| match arguments.get(index) {
            Some(LuaValue::Text(text)) => text.clone(),
            _ => String::new(),
        };
        match index {
            20 => self.announce([text(0), text(1), text(2), text(3), text(4)], context)?,
            21 => {
                let value = arguments.get(1).cloned().unwrap_or_default();
                self.send_value(&text(0), &value, context)?;
            }
            _ => self.publish_now(&text(0), context)?,
        }
        Ok(LuaValue::Nil)
    }

    /// `mqttSendDiscovery`.
    fn announce(&mut self, arguments: [String; 5], context: &ObjectContext<'_>) -> Result<(), ObjectError> {
        let [name, id, class, unit, template] = arguments;
        self.check_id(&id, self.values.len(), self.values.contains_key(&id))?;
        let details =
            [("name", name), ("device_class", class), ("unit_of_measurement", unit), ("value_template", template)];
        let set = details.into_iter().filter(|(_, value)| !value.is_empty());
        let config: Map<String, Value> = set.map(|(key, value)| (key.to_string(), value.into())).collect();
        self.values.insert(id.clone(), config.clone());
        let (topic, config) = names(self, context).value_config(&id, config);
        publish(context, &topic, config.to_string(), false)
    }

    /// `mqttSendValue`.
    fn send_value(&mut self, id: &str, value: &LuaValue, context: &ObjectContext<'_>) -> Result<(), ObjectError> {
        self.check_id(id, self.sent.len(), self.sent.contains(id))?;
        self.sent.insert(id.to_string());
        publish(context, &names(self, context).value_topic(id), payload_of(value), true)
    }

    fn check_id(&self, id: &str, n_known: usize, is_known: bool) -> Result<(), ObjectError> {
        if id.is_empty() {
            return Err(ObjectError::Failed { reason: "the identifier of the value is missing".into() });
        }
        if !is_known && n_known == MQTT_VALUES_MAX {
            return Err(ObjectError::Failed { reason: format!("a CLU announces at most {MQTT_VALUES_MAX} values") });
        }
        Ok(())
    }

    /// `mqttOnValueChange`: publishes the states of an object now. `name`: `OBJECT` or `CLU->OBJECT`.
    fn publish_now(&mut self, name: &str, context: &ObjectContext<'_>) -> Result<(), ObjectError> {
        let (clu, object) = name.split_once("->").unwrap_or(("", name));
        let now = context.now().monotonic;
        let is_own = clu.is_empty() || clu == context.name();
        let mut n_states = 0;
        for state in self.states.iter_mut().filter(|state| is_own && state.object == object) {
            (state.is_forced, state.next) = (true, now);
            n_states += 1;
        }
        let failed = |reason| ObjectError::Failed { reason };
        let is_remote = !is_own && self.remote.publish_now(clu, object, context).map_err(failed)?;
        if n_states == 0 && !is_remote {
            return Err(ObjectError::Failed { reason: format!("no states of \"{name}\" are published") });
        }
        self.scan_at = Some(now);
        Ok(())
    }

    pub fn deadline(&self) -> Option<Instant> {
        self.apply_at.into_iter().chain(self.scan_at).min()
    }

    pub fn tick(&mut self, context: &mut ObjectContext<'_>) {
        let now = context.now().monotonic;
        let has_new_objects = self.has_entities() && context.world.objects().count() != self.n_objects;
        if self.apply_at.is_some_and(|due| due <= now) || has_new_objects || self.remote.is_outdated(context) {
            self.apply_at = None;
            self.apply(context);
        }
        if self.scan_at.is_some_and(|due| due <= now) {
            self.scan(context);
            self.scan_at = Some(now + MQTT_SCAN_PERIOD);
        }
    }

    fn has_entities(&self) -> bool {
        self.is_used && self.has_discovery
    }

    /// Connects, announces the entities and subscribes to their commands, according to what scripts have set.
    fn apply(&mut self, context: &mut ObjectContext<'_>) {
        let names = names(self, context);
        let settings = match BrokerUrl::parse(&self.url) {
            Ok(broker) if self.is_used => Some(MqttSettings {
                broker,
                client_id: format!("fodo-{}", names.clu),
                availability_topic: names.availability_topic(),
            }),
            Err(reason) if self.is_used => {
                context.log(LogSeverity::Warning, &format!("MQTT is not used: {reason}"));
                None
            }
            _ => None,
        };
        let mut topics: BTreeSet<String> = self.sent.iter().map(|id| names.value_topic(id)).collect();
        let mut configs: Vec<(String, Value)> =
            self.values.iter().map(|(id, details)| names.value_config(id, details.clone())).collect();
        self.states.clear();
        self.n_objects = context.world.objects().count();
        if self.has_entities() {
            configs.extend(self.entities(&names, context));
            topics.extend(self.states.iter().map(|state| state.topic.clone()));
            let (remote, of_remote) = RemoteEntities::connect(&names, context);
            self.remote = remote;
            configs.extend(of_remote);
            topics.extend(self.remote.topics().cloned());
            if self.commands.is_empty() {
                let filters = names.command_filters();
                let link = &context.world.network.mqtt;
                self.commands = filters.iter().map(|filter| link.subscribe(filter, context.waker())).collect();
            }
        } else {
            self.commands.clear();
            self.remote = RemoteEntities::default();
        }
        topics.extend(configs.iter().map(|(topic, _)| topic.clone()));
        context.world.network.mqtt.keep_retained(|topic| topics.contains(topic));
        for (topic, config) in configs {
            if let Err(error) = publish(context, &topic, config.to_string(), false) {
                context.log(LogSeverity::Warning, &format!("{topic} was not announced: {error}"));
            }
        }
        self.scan_at = (!self.states.is_empty()).then(|| context.now().monotonic);
        context.world.network.mqtt.configure(settings);
    }

    /// The configurations of all objects. Fills the list of states.
    fn entities(&mut self, names: &EntityNames, context: &mut ObjectContext<'_>) -> Vec<(String, Value)> {
        let now = context.now().monotonic;
        let listed = context.world.objects().filter_map(|(name, class)| Some((name.to_string(), class?)));
        let objects: Vec<(String, &'static ObjectClass)> = listed.collect();
        let mut configs = Vec::new();
        for (name, class) in objects {
            let range = [10, 11].map(|index| context.read(&name, index).as_number());
            let target_range = match range {
                [Some(min), Some(max)] if min < max => (min, max),
                _ => TARGET_RANGE,
            };
            let label = context.world.label(&name);
            configs.extend(names.object_configs(EntityObject { name: &name, label: &label, class, target_range }));
            for feature in class.features.iter().filter(|feature| is_published(class, feature)) {
                let topic = names.state_topic(&name, feature);
                let object = name.clone();
                let state = PublishedState { object, feature, topic, last: LuaValue::Nil, next: now, is_forced: true };
                self.states.push(state);
            }
        }
        configs
    }

    /// Publishes the states that have changed.
    fn scan(&mut self, context: &mut ObjectContext<'_>) {
        let now = context.now().monotonic;
        self.remote.scan(context);
        let own = context.name();
        for state in self.states.iter_mut().filter(|state| state.next <= now) {
            let value = match state.object == own {
                true => LuaValue::Number(context.world.state.number()),
                false => context.read(&state.object, state.feature.index),
            };
            let period = if is_elapsed_time(state.feature) { MQTT_SLOW_SCAN_PERIOD } else { MQTT_SCAN_PERIOD };
            state.next = now + period;
            if value == state.last && !state.is_forced {
                continue;
            }
            let payload = state_payload(state.feature, &value);
            if publish(context, &state.topic, payload, state.is_forced).is_ok() {
                (state.last, state.is_forced) = (value, false);
            }
        }
    }

    /// Handles the next command, after the handlers of the last value. Returns whether it was a value for `OnMqttReceiveValue`.
    pub fn receive(&mut self, context: &mut ObjectContext<'_>) -> bool {
        if context.is_pending(ON_MQTT_RECEIVE_VALUE) {
            context.waker().wake();
            return false;
        }
        let Some(message) = self.commands.iter().find_map(MqttSubscription::take) else { return false };
        // The next one waits for the next turn.
        context.waker().wake();
        if message.is_retained {
            let text = format!("a command that the broker had stored is ignored: {}", message.topic);
            context.log(LogSeverity::Warning, &text);
            return false;
        }
        let names = names(self, context);
        match names.command(&message.topic) {
            Some(EntityCommand::Value { id }) => {
                let value = from_json_text(&message.payload);
                self.message = LuaValue::Table(vec![("id".into(), id.into()), ("value".into(), value)]);
                return true;
            }
            Some(command) => {
                if let Err(error) = self.execute(&command, &message, context) {
                    context.world.refuse(format!("MQTT command {}: {error}", message.topic));
                }
            }
            None => context.world.refuse(format!("there is no MQTT command {}", message.topic)),
        }
        false
    }

    fn execute(
        &mut self,
        command: &EntityCommand<'_>,
        message: &MqttMessage,
        context: &mut ObjectContext<'_>,
    ) -> Result<(), ObjectError> {
        let (EntityCommand::Set { object: level, .. } | EntityCommand::Call { object: level, .. }) = command else {
            return Err(ObjectError::UnknownObject);
        };
        let mut objects = context.world.objects();
        let found = objects.find_map(|(name, class)| (topic_level(name) == *level).then(|| (name.to_string(), class)));
        drop(objects);
        let (object, class) = found.ok_or(ObjectError::UnknownObject)?;
        let class = class.ok_or(ObjectError::Unavailable)?;
        if let EntityCommand::Set { feature: of_remote, .. } = command
            && class.number == REMOTE_CLU
        {
            return self.remote.command(&object, of_remote, message).map_err(|reason| ObjectError::Failed { reason });
        }
        for state in self.states.iter_mut().filter(|state| state.object == object) {
            state.is_forced = true;
        }
        let unknown = |what: &str, name: &str| ObjectError::Failed { reason: format!("there is no {what} {name}") };
        match command {
            EntityCommand::Set { feature: name, .. } => {
                let mut published = class.features.iter().filter(|feature| is_published(class, feature));
                let feature = published.find(|feature| feature.name == *name);
                let feature = feature.ok_or_else(|| unknown("feature", name))?;
                let value = command_value(feature, &message.payload);
                context.world.set(&object, feature.index, value, context.variables)
            }
            EntityCommand::Call { method: name, .. } => {
                let mut announced = class.methods.iter().filter(|method| method.parameters.is_empty());
                let method = announced.find(|method| method.name == *name);
                let method = method.ok_or_else(|| unknown("method", name))?;
                context.world.call(&object, method.index, Vec::new(), context.variables).map(drop)
            }
            EntityCommand::Value { .. } => Ok(()),
        }
    }
}

fn names(mqtt: &CluMqtt, context: &ObjectContext<'_>) -> EntityNames {
    let name = context.name();
    let label = context.world.label(&name);
    EntityNames { clu: topic_level(&name), label, prefix: mqtt.prefix.clone() }
}

fn publish(context: &ObjectContext<'_>, topic: &str, payload: String, is_forced: bool) -> Result<(), ObjectError> {
    let set = context.world.network.mqtt.set_retained(topic, payload, is_forced);
    set.map_err(|reason| ObjectError::Failed { reason })
}
