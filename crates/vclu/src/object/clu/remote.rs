//! Home Assistant: the objects of other CLUs of the project. The CLU of a RemoteCLU object reports their values, and commands set
//! them or call their methods.

use std::collections::{BTreeSet, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use fodo_clu::cipher::CipherKey;
use fodo_clu::client::{Availability, CluRequest, RequestOutcome};
use fodo_clu::script::CluItem;
use fodo_data::Scalar;
use fodo_lock::Mutex;
use fodo_net::clu::{CluConnection, CluConnectionConfig, CluMonitor, CluOperation, CluUpdate};
use serde_json::Value;

use super::super::{ObjectClass, ObjectContext};
use crate::limit::{MQTT_COMMANDS_MAX, REMOTE_TIMEOUT};
use crate::log::LogSeverity;
use crate::mqtt::MqttMessage;
use crate::mqtt::device::{DeviceRequest, RemoteDevice};
use crate::mqtt::entity::{EntityNames, topic_level};
use crate::remote::PeerClu;

/// The class of RemoteCLU objects.
pub(super) const REMOTE_CLU: u32 = 1;

/// The other CLUs with entities.
#[derive(Default)]
pub(super) struct RemoteEntities {
    clus: Vec<RemoteLink>,
}

/// The connection to another CLU.
struct RemoteLink {
    name: String,
    /// The key of the project, unless the CLU has its own.
    project_key: Option<CipherKey>,
    connection: CluConnection,
    /// The last reported values, in the order of the subscription.
    values: Arc<Mutex<Vec<Option<Scalar>>>>,
    devices: Vec<PublishedDevice>,
    /// The commands that have not ended, with their topics.
    commands: VecDeque<(String, CluOperation)>,
    _monitor: CluMonitor,
}

/// A device whose state is published.
struct PublishedDevice {
    device: RemoteDevice,
    topic: String,
    /// The place of its first value in the subscription.
    first: usize,
    last: Option<String>,
    is_forced: bool,
}

impl RemoteEntities {
    /// Connects to the CLUs of all RemoteCLU objects, and returns the configurations of their devices.
    pub fn connect(names: &EntityNames, context: &mut ObjectContext<'_>) -> (RemoteEntities, Vec<(String, Value)>) {
        let (mut clus, mut configs) = (Vec::new(), Vec::new());
        let is_remote = |class: Option<&'static ObjectClass>| class.is_some_and(|class| class.number == REMOTE_CLU);
        let objects = context.world.objects().filter(|(_, class)| is_remote(*class));
        let existing: BTreeSet<String> = objects.map(|(name, _)| name.to_string()).collect();
        for (name, peer) in context.world.peers.constructed() {
            // A RemoteCLU object may have been removed by a reset.
            if !existing.contains(&name) {
                continue;
            }
            let objects = context.world.peers.objects_of(&name);
            let devices: Vec<RemoteDevice> = objects.iter().filter_map(RemoteDevice::of).collect();
            if devices.is_empty() {
                continue;
            }
            configs.extend(devices.iter().map(|device| {
                let (level, object) = (topic_level(&name), topic_level(&device.object));
                let config = device
                    .config(&names.remote_topic("state", &level, &object), &names.remote_topic("set", &level, &object));
                names.finish(device.platform(), &format!("{name}_{}", device.object), config)
            }));
            match RemoteLink::open(&name, peer, devices, names, context) {
                Ok(link) => clus.push(link),
                Err(reason) => context.log(LogSeverity::Warning, &format!("no values of {name}: {reason}")),
            }
        }
        (RemoteEntities { clus }, configs)
    }

    /// Whether the key of the project has changed since the connections were opened.
    pub fn is_outdated(&self, context: &ObjectContext<'_>) -> bool {
        let key = context.world.peers.project_key();
        self.clus.iter().any(|clu| clu.project_key.is_some() && clu.project_key != key)
    }

    /// The topics of all states.
    pub fn topics(&self) -> impl Iterator<Item = &String> {
        self.clus.iter().flat_map(|clu| clu.devices.iter().map(|device| &device.topic))
    }

    /// Publishes the states that have changed, and logs the commands that have failed.
    pub fn scan(&mut self, context: &ObjectContext<'_>) {
        for clu in &mut self.clus {
            clu.publish(context);
            clu.end_commands(context);
        }
    }

    /// Publishes the state of an object now, or that its button was pressed. Returns whether it is known.
    pub fn publish_now(&mut self, clu: &str, object: &str, context: &ObjectContext<'_>) -> Result<bool, String> {
        let clu = self.clus.iter_mut().find(|known| known.name == clu);
        let device = clu.and_then(|clu| clu.devices.iter_mut().find(|device| device.device.object == object));
        let Some(device) = device else { return Ok(false) };
        match device.device.press() {
            Some(payload) => {
                let (topic, is_retained) = (device.topic.clone(), false);
                context.world.network.mqtt.publish(MqttMessage { topic, payload, is_retained })?;
            }
            None => device.is_forced = true,
        }
        Ok(true)
    }

    /// Carries out a command. `object`: as a level of a topic.
    pub fn command(&mut self, clu: &str, object: &str, message: &MqttMessage) -> Result<(), String> {
        let clu = self.clus.iter_mut().find(|known| known.name == clu);
        let clu = clu.ok_or("no object of this CLU is announced")?;
        let device = clu.devices.iter_mut().find(|device| topic_level(&device.device.object) == object);
        let device = device.ok_or_else(|| format!("there is no object {object}"))?;
        device.is_forced = true;
        let requests = device.device.command(&message.payload)?;
        let id = device.device.object.clone();
        for request in requests {
            clu.start(&id, request, &message.topic)?;
        }
        Ok(())
    }
}

impl RemoteLink {
    fn open(
        name: &str,
        peer: PeerClu,
        devices: Vec<RemoteDevice>,
        names: &EntityNames,
        context: &ObjectContext<'_>,
    ) -> Result<RemoteLink, String> {
        let project_key = context.world.peers.project_key().filter(|_| peer.key.is_none());
        let key = peer.key.or_else(|| project_key.clone()).ok_or("this CLU has no key for it")?;
        let mut config = CluConnectionConfig::new(peer.address, key);
        config.timeout = REMOTE_TIMEOUT;
        let connection = CluConnection::open(config).map_err(|error| error.to_string())?;
        let (mut items, mut published) = (Vec::new(), Vec::new());
        for device in devices {
            let topic = names.remote_topic("state", &topic_level(name), &topic_level(&device.object));
            let first = items.len();
            items.extend(device.features.iter().filter_map(|feature| CluItem::feature(&device.object, *feature)));
            published.push(PublishedDevice { device, topic, first, last: None, is_forced: true });
        }
        let values = Arc::new(Mutex::new(vec![None; items.len()]));
        let reported = values.clone();
        let monitor = connection.subscribe(items, move |update| {
            let mut values = reported.lock();
            let (first, new) = match update {
                CluUpdate::Values { first, values } => (first, values),
                CluUpdate::Missing { index } => (index, vec![None]),
            };
            values.iter_mut().skip(first).zip(new).for_each(|(value, new)| *value = new);
        });
        let monitor = monitor.map_err(|error| error.to_string())?;
        let (name, commands) = (name.to_string(), VecDeque::new());
        Ok(RemoteLink { name, project_key, connection, values, devices: published, commands, _monitor: monitor })
    }

    fn publish(&mut self, context: &ObjectContext<'_>) {
        let is_silent = matches!(self.connection.availability(), Availability::Unavailable | Availability::Emergency);
        let values = self.values.lock().clone();
        for device in self.devices.iter_mut().filter(|device| !device.device.features.is_empty()) {
            let end = device.first + device.device.features.len();
            let of_device = values.get(device.first..end).filter(|_| !is_silent);
            // Home Assistant knows this as unknown.
            let payload = of_device.and_then(|values| device.device.state(values)).unwrap_or_else(|| "None".into());
            if device.last.as_ref() == Some(&payload) && !device.is_forced {
                continue;
            }
            let link = &context.world.network.mqtt;
            if link.set_retained(&device.topic, payload.clone(), device.is_forced).is_ok() {
                (device.last, device.is_forced) = (Some(payload), false);
            }
        }
    }

    fn start(&mut self, object: &str, request: DeviceRequest, topic: &str) -> Result<(), String> {
        if self.commands.len() == MQTT_COMMANDS_MAX {
            return Err(format!("{MQTT_COMMANDS_MAX} commands already wait for {}", self.name));
        }
        let operation = match request {
            DeviceRequest::Set { feature, value } => {
                let item = CluItem::feature(object, feature).ok_or("the name of the object is not a name in Lua")?;
                self.connection.start(CluRequest::Set(&item, &value))
            }
            DeviceRequest::Call { method, argument } => {
                let arguments: Vec<Scalar> = argument.into_iter().collect();
                self.connection.start(CluRequest::Call { object, method, arguments: &arguments })
            }
        };
        self.commands.push_back((topic.to_string(), operation.map_err(|error| error.to_string())?));
        Ok(())
    }

    /// Removes the commands that have ended.
    fn end_commands(&mut self, context: &ObjectContext<'_>) {
        let waker = Waker::noop();
        let name = &self.name;
        self.commands.retain_mut(|(topic, operation)| {
            match Pin::new(operation).poll(&mut Context::from_waker(waker)) {
                Poll::Pending => true,
                Poll::Ready(outcome) => {
                    let reason = match outcome {
                        RequestOutcome::Answered(_) | RequestOutcome::Nil => return false,
                        RequestOutcome::Refused => "refused the command",
                        RequestOutcome::Wrong(_) => "sent an invalid reply",
                        RequestOutcome::TimedOut { .. } => "did not reply",
                        RequestOutcome::Cancelled => "did not receive the command: the connection was closed",
                    };
                    context.log(LogSeverity::Warning, &format!("MQTT command {topic}: {name} {reason}"));
                    false
                }
            }
        });
    }
}
