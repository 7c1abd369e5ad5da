//! MQTT: what the objects of a CLU and the thread of its broker connection share.
//!
//! Objects never wait for the broker. A publication waits in a bounded queue until the broker has acknowledged it. A retained
//! value waits in its place: a newer one replaces it, so that a slow broker receives fewer of them, and the newest always.
//! Received messages wait in a queue of each subscription; while one is full, nothing is read from the broker.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::task::Waker;

use fodo_lock::Mutex;
use tokio::sync::Notify;

mod connection;
pub(crate) mod device;
pub(crate) mod entity;
mod settings;

pub(crate) use settings::{BrokerUrl, MqttSettings, without_password};

use crate::limit::{
    MQTT_ATTEMPTS_MAX, MQTT_PAYLOAD_BYTES_MAX, MQTT_QUEUED_BYTES_MAX, MQTT_QUEUED_MAX, MQTT_RECEIVED_MAX,
    MQTT_RETAINED_MAX,
};
use crate::log::{LogSeverity, count};
use crate::network::{CertificateFolder, NetworkThread, Reporter};

/// A message for subscribers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MqttMessage {
    pub topic: String,
    pub payload: String,
    /// The broker stores it, or had stored it before the subscription.
    pub is_retained: bool,
}

/// A message for the broker.
struct OutgoingMessage {
    message: MqttMessage,
    origin: MessageOrigin,
    /// How many connections have ended before the broker acknowledged it.
    n_lost: u32,
}

impl OutgoingMessage {
    fn new(message: MqttMessage, origin: MessageOrigin) -> OutgoingMessage {
        OutgoingMessage { message, origin, n_lost: 0 }
    }

    /// Whether it may be the reason for which the broker ends connections. Such a message is sent alone, so that the others
    /// are not repeated with it.
    fn is_suspect(&self) -> bool {
        self.n_lost > 0
    }
}

/// What the broker must store for a topic.
#[derive(Default)]
struct RetainedTopic {
    /// An empty one removes the topic from the broker.
    payload: String,
    /// As of an [`OutgoingMessage`].
    n_lost: u32,
}

/// Where a message waits, and what happens to it if the connection ends before the broker has acknowledged it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MessageOrigin {
    /// In the queue, to which it returns.
    Publication,
    /// In the retained topics, which the next connection sends all.
    Retained,
}

/// The broker connection of a CLU, as its objects use it.
pub(crate) struct MqttLink {
    state: Mutex<BrokerState>,
    /// Wakes the thread of the connection.
    changed: Notify,
    certificates: CertificateFolder,
    reporter: Reporter,
    thread: Mutex<Option<NetworkThread>>,
}

#[derive(Default)]
struct BrokerState {
    /// `None` while MQTT is not used.
    settings: Option<Arc<MqttSettings>>,
    is_closing: bool,
    is_connected: bool,
    subscriptions: BTreeMap<u64, SubscriptionState>,
    n_subscriptions: u64,
    publications: VecDeque<OutgoingMessage>,
    publications_bytes: usize,
    retained: BTreeMap<String, RetainedTopic>,
    /// The retained topics that must be sent.
    changed_topics: BTreeSet<String>,
}

struct SubscriptionState {
    filter: String,
    received: VecDeque<MqttMessage>,
    waker: Waker,
}

/// A subscription; it ends when this is dropped.
pub(crate) struct MqttSubscription {
    link: Arc<MqttLink>,
    number: u64,
}

impl MqttLink {
    pub fn new(certificates: CertificateFolder, reporter: Reporter) -> Arc<MqttLink> {
        Arc::new(MqttLink {
            state: Mutex::default(),
            changed: Notify::new(),
            certificates,
            reporter,
            thread: Mutex::default(),
        })
    }

    /// Connects to the broker of the settings, or disconnects without them. The same settings change nothing.
    pub fn configure(self: &Arc<Self>, settings: Option<MqttSettings>) {
        let mut state = self.state.lock();
        if state.settings.as_deref() == settings.as_ref() {
            return;
        }
        let is_used = settings.is_some();
        state.settings = settings.map(Arc::new);
        drop(state);
        self.changed.notify_one();
        if is_used {
            self.start();
        }
    }

    /// Starts the thread with the first settings.
    fn start(self: &Arc<Self>) {
        let mut thread = self.thread.lock();
        if thread.is_none() {
            match NetworkThread::start("fodo-vclu-mqtt", connection::run(Arc::clone(self))) {
                Ok(started) => *thread = Some(started),
                Err(error) => self.reporter.write(LogSeverity::Error, format!("MQTT has no thread: {error}")),
            }
        }
    }

    /// Ends the connection and its thread.
    pub fn close(&self) {
        self.state.lock().is_closing = true;
        self.changed.notify_one();
        let thread = self.thread.lock().take();
        drop(thread);
    }

    pub fn is_connected(&self) -> bool {
        self.state.lock().is_connected
    }

    /// Subscribes to a filter. The waker is called when a message was received.
    pub fn subscribe(self: &Arc<Self>, filter: &str, waker: Waker) -> MqttSubscription {
        let mut state = self.state.lock();
        state.n_subscriptions += 1;
        let number = state.n_subscriptions;
        state
            .subscriptions
            .insert(number, SubscriptionState { filter: filter.to_string(), received: VecDeque::new(), waker });
        drop(state);
        self.changed.notify_one();
        MqttSubscription { link: Arc::clone(self), number }
    }

    /// Queues a publication. Fails if too many wait.
    pub fn publish(&self, message: MqttMessage) -> Result<(), String> {
        let mut state = self.state.lock();
        let n_bytes = n_bytes(&message);
        let is_full =
            state.publications.len() >= MQTT_QUEUED_MAX || state.publications_bytes + n_bytes > MQTT_QUEUED_BYTES_MAX;
        if is_full {
            let n_waiting = state.publications.len();
            drop(state);
            count(&self.reporter.log.counters.mqtt_refused);
            return Err(format!("{n_waiting} publications already wait for the broker"));
        }
        state.publications_bytes += n_bytes;
        state.publications.push_back(OutgoingMessage::new(message, MessageOrigin::Publication));
        drop(state);
        self.changed.notify_one();
        Ok(())
    }

    /// Sets the payload of a retained topic, and sends it if it has changed or `is_forced`.
    pub fn set_retained(&self, topic: &str, payload: String, is_forced: bool) -> Result<(), String> {
        let mut state = self.state.lock();
        let n_topics = state.retained.len();
        match state.retained.get_mut(topic) {
            Some(known) if known.payload == payload && !is_forced => return Ok(()),
            Some(known) => *known = RetainedTopic { payload, n_lost: 0 },
            None if n_topics == MQTT_RETAINED_MAX => {
                count(&self.reporter.log.counters.mqtt_refused);
                return Err(format!("a CLU has at most {MQTT_RETAINED_MAX} retained topics"));
            }
            None => drop(state.retained.insert(topic.to_string(), RetainedTopic { payload, n_lost: 0 })),
        }
        state.changed_topics.insert(topic.to_string());
        drop(state);
        self.changed.notify_one();
        Ok(())
    }

    /// Removes the retained topics for which `is_kept` is false, also from the broker.
    pub fn keep_retained(&self, is_kept: impl Fn(&str) -> bool) {
        let mut state = self.state.lock();
        let BrokerState { retained, changed_topics, .. } = &mut *state;
        let is_removed = |(name, topic): &(&String, &mut RetainedTopic)| !topic.payload.is_empty() && !is_kept(name);
        for (name, topic) in retained.iter_mut().filter(is_removed) {
            *topic = RetainedTopic::default();
            changed_topics.insert(name.clone());
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Passes a message to all subscriptions that match; one that is too long is dropped. Returns it if the queue of one of
    /// them is full.
    fn deliver(&self, message: MqttMessage) -> Result<(), MqttMessage> {
        if message.payload.len() > MQTT_PAYLOAD_BYTES_MAX {
            count(&self.reporter.log.counters.mqtt_dropped);
            let text = format!("a message of {} has more than {MQTT_PAYLOAD_BYTES_MAX} bytes", message.topic);
            self.reporter.write(LogSeverity::Warning, text);
            return Ok(());
        }
        let mut state = self.state.lock();
        let matching = |subscription: &&mut SubscriptionState| is_match(&subscription.filter, &message.topic);
        if state.subscriptions.values_mut().filter(matching).any(|one| one.received.len() >= MQTT_RECEIVED_MAX) {
            return Err(message);
        }
        let mut wakers = Vec::new();
        for subscription in state.subscriptions.values_mut().filter(matching) {
            subscription.received.push_back(message.clone());
            wakers.push(subscription.waker.clone());
        }
        drop(state);
        let counters = &self.reporter.log.counters;
        count(if wakers.is_empty() { &counters.mqtt_unmatched } else { &counters.mqtt_received });
        wakers.into_iter().for_each(Waker::wake);
        Ok(())
    }

    /// The filters of all subscriptions.
    fn filters(&self) -> BTreeSet<String> {
        self.state.lock().subscriptions.values().map(|subscription| subscription.filter.clone()).collect()
    }

    /// The next publication; retained values come after the publications of scripts. `is_idle`: whether nothing waits for an
    /// acknowledgement, so that a suspect message can be sent alone.
    fn next_outgoing(&self, is_idle: bool) -> Option<OutgoingMessage> {
        let mut state = self.state.lock();
        if let Some(next) = state.publications.front() {
            if next.is_suspect() && !is_idle {
                return None;
            }
            let outgoing = state.publications.pop_front()?;
            state.publications_bytes -= n_bytes(&outgoing.message);
            return Some(outgoing);
        }
        let n_lost = state.retained.get(state.changed_topics.first()?).map_or(0, |topic| topic.n_lost);
        if n_lost > 0 && !is_idle {
            return None;
        }
        let topic = state.changed_topics.pop_first()?;
        let payload = state.retained.get(&topic).map(|topic| topic.payload.clone()).unwrap_or_default();
        let message = MqttMessage { topic, payload, is_retained: true };
        Some(OutgoingMessage { message, origin: MessageOrigin::Retained, n_lost })
    }

    /// A connection begins: every retained topic must be sent, as the broker may have lost it. Those that were given up wait
    /// for another payload.
    fn begin(&self) {
        let mut state = self.state.lock();
        let is_sent =
            |(name, topic): (&String, &RetainedTopic)| (topic.n_lost < MQTT_ATTEMPTS_MAX).then(|| name.clone());
        state.changed_topics = state.retained.iter().filter_map(is_sent).collect();
        state.is_connected = true;
    }

    /// A connection has ended. `unacknowledged`: in the order of sending. Gives up a message for which too many connections
    /// have ended; it is counted and reported once.
    fn end(&self, unacknowledged: impl DoubleEndedIterator<Item = OutgoingMessage>) {
        let mut given_up = Vec::new();
        let mut state = self.state.lock();
        state.is_connected = false;
        for outgoing in unacknowledged.rev() {
            let is_repeated = outgoing.n_lost < MQTT_ATTEMPTS_MAX;
            if !is_repeated {
                given_up.push((outgoing.message.topic.clone(), outgoing.message.payload.len()));
            }
            match outgoing.origin {
                MessageOrigin::Publication if is_repeated => {
                    count(&self.reporter.log.counters.mqtt_repeated);
                    state.publications_bytes += n_bytes(&outgoing.message);
                    state.publications.push_front(outgoing);
                }
                MessageOrigin::Publication => {}
                MessageOrigin::Retained => {
                    let topic = state.retained.get_mut(&outgoing.message.topic);
                    if let Some(topic) = topic.filter(|topic| topic.payload == outgoing.message.payload) {
                        topic.n_lost = outgoing.n_lost;
                    }
                }
            }
        }
        drop(state);
        for (topic, n_bytes) in given_up.into_iter().rev() {
            count(&self.reporter.log.counters.mqtt_given_up);
            let text = format!(
                "the message of {topic} with {n_bytes} bytes is given up: the MQTT broker has ended \
                 {MQTT_ATTEMPTS_MAX} connections without acknowledging it"
            );
            self.reporter.write(LogSeverity::Error, text);
        }
    }

    /// The broker has acknowledged a message.
    fn acknowledged(&self, outgoing: &OutgoingMessage) {
        count(&self.reporter.log.counters.mqtt_published);
        let message = &outgoing.message;
        let mut state = self.state.lock();
        let is_current = !state.changed_topics.contains(&message.topic);
        match state.retained.get_mut(&message.topic) {
            Some(topic) if topic.payload.is_empty() && is_current => drop(state.retained.remove(&message.topic)),
            Some(topic) if topic.payload == message.payload => topic.n_lost = 0,
            _ => {}
        }
    }
}

impl MqttSubscription {
    /// The next received message.
    pub fn take(&self) -> Option<MqttMessage> {
        let mut state = self.link.state.lock();
        let received = &mut state.subscriptions.get_mut(&self.number)?.received;
        let was_full = received.len() >= MQTT_RECEIVED_MAX;
        let message = received.pop_front()?;
        drop(state);
        if was_full {
            self.link.changed.notify_one();
        }
        Some(message)
    }
}

impl Drop for MqttSubscription {
    fn drop(&mut self) {
        let removed = self.link.state.lock().subscriptions.remove(&self.number);
        for _ in removed.into_iter().flat_map(|subscription| subscription.received) {
            count(&self.link.reporter.log.counters.mqtt_dropped);
        }
        self.link.changed.notify_one();
    }
}

fn n_bytes(message: &MqttMessage) -> usize {
    message.topic.len() + message.payload.len()
}

/// Whether a filter matches a topic: `+` is one level, `#` all further levels. Source: MQTT 3.1.1, section 4.7.
fn is_match(filter: &str, topic: &str) -> bool {
    if topic.starts_with('$') && filter.starts_with(['+', '#']) {
        return false;
    }
    let mut levels = topic.split('/');
    for part in filter.split('/') {
        match (part, levels.next()) {
            ("#", _) => return true,
            ("+", Some(_)) => {}
            (part, Some(level)) if part == level => {}
            _ => return false,
        }
    }
    levels.next().is_none()
}

/// Checks a topic to publish to.
pub(crate) fn check_topic(topic: &str) -> Result<(), String> {
    if topic.is_empty() || topic.contains(['+', '#', '\0']) {
        return Err(format!("\"{topic}\" is not a topic: it must have a name without + and #"));
    }
    Ok(())
}

/// Checks a filter to subscribe to.
pub(crate) fn check_filter(filter: &str) -> Result<(), String> {
    let n_levels = filter.split('/').count();
    let is_valid = |(index, level): (usize, &str)| match level {
        "+" => true,
        "#" => index + 1 == n_levels,
        level => !level.contains(['+', '#', '\0']),
    };
    if filter.is_empty() || !filter.split('/').enumerate().all(is_valid) {
        return Err(format!("\"{filter}\" is not a topic filter: + stands for one level, # for all after the last /"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::engine::request::VcluConfig;
    use crate::log::CluLog;
    use crate::network::CluNetwork;

    fn network() -> (CluNetwork, Arc<CluLog>) {
        let log = Arc::<CluLog>::default();
        (CluNetwork::new(&VcluConfig::new("/nonexistent"), &log), log)
    }

    /// What a connection sends until the broker ends it because of `fatal`; the topics.
    fn connection_with(link: &MqttLink, fatal: &str) -> Vec<String> {
        let (mut sent, mut in_flight) = (Vec::new(), Vec::<OutgoingMessage>::new());
        link.begin();
        loop {
            let Some(outgoing) = link.next_outgoing(in_flight.is_empty()) else {
                if in_flight.is_empty() {
                    return sent;
                }
                in_flight.drain(..).for_each(|outgoing| link.acknowledged(&outgoing));
                continue;
            };
            let is_fatal = outgoing.message.topic == fatal;
            sent.push(outgoing.message.topic.clone());
            in_flight.push(outgoing);
            if is_fatal {
                let lost = |outgoing: OutgoingMessage| OutgoingMessage { n_lost: outgoing.n_lost + 1, ..outgoing };
                link.end(in_flight.into_iter().map(lost));
                return sent;
            }
        }
    }

    #[test]
    fn a_retained_value_for_which_the_broker_ends_the_connection_waits_for_another_value() {
        let (network, log) = network();
        let link = &network.mqtt;
        for topic in ["a", "b", "c"] {
            link.set_retained(topic, "1".into(), false).unwrap();
        }

        let sent: Vec<String> = (0..6).map(|_| connection_with(link, "b").concat()).collect();
        assert_eq!(sent, ["ab", "ab", "ab", "ab", "ac", "ac"]);
        assert_eq!(log.counters.mqtt_given_up.load(Ordering::Relaxed), 1);

        link.set_retained("b", "2".into(), false).unwrap();
        assert_eq!(connection_with(link, "").concat(), "abc");
    }

    #[test]
    fn a_message_that_was_in_flight_with_a_fatal_one_is_repeated_alone_and_kept() {
        let (network, log) = network();
        let link = &network.mqtt;
        for topic in ["1", "2", "fatal", "3"] {
            link.publish(MqttMessage { topic: topic.into(), payload: "x".into(), is_retained: false }).unwrap();
        }

        let sent: Vec<String> = (0..5).map(|_| connection_with(link, "fatal").concat()).collect();

        assert_eq!(sent, ["12fatal", "12fatal", "fatal", "fatal", "3"]);
        assert_eq!(log.counters.mqtt_given_up.load(Ordering::Relaxed), 1);
        assert_eq!(log.counters.mqtt_published.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn filters_match_as_the_specification_requires() {
        for (filter, topic) in [
            ("a/b", "a/b"),
            ("a/+/c", "a/b/c"),
            ("+/+", "/finance"),
            ("/+", "/finance"),
            ("sport/#", "sport"),
            ("sport/#", "sport/tennis/score"),
            ("#", "a"),
            ("$SYS/#", "$SYS/broker"),
        ] {
            assert!(is_match(filter, topic), "{filter} {topic}");
        }
        for (filter, topic) in
            [("a/b", "a/c"), ("a/+", "a"), ("+", "/finance"), ("a", "a/b"), ("#", "$SYS/x"), ("+/x", "$SYS/x")]
        {
            assert!(!is_match(filter, topic), "{filter} {topic}");
        }
    }

    #[test]
    fn topics_and_filters_are_checked() {
        assert!(check_topic("a/b").is_ok());
        for invalid in ["", "a/+", "#", "a\0"] {
            assert!(check_topic(invalid).is_err(), "{invalid}");
        }
        for valid in ["a", "#", "+/a/#", "a//b"] {
            assert!(check_filter(valid).is_ok(), "{valid}");
        }
        for invalid in ["", "#/a", "a+/b", "a/b#"] {
            assert!(check_filter(invalid).is_err(), "{invalid}");
        }
    }
}
