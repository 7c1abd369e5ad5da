//! The thread of the broker connection: connects, subscribes, publishes, and connects again.

use std::collections::{BTreeSet, VecDeque};
use std::mem;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use mqtt_protocol_core::mqtt::common::Cursor;
use mqtt_protocol_core::mqtt::connection::{Connection, ConnectionOptions, Event, TimerKind};
use mqtt_protocol_core::mqtt::packet::v3_1_1::{Connect, Disconnect, Puback, Publish, Subscribe, Unsubscribe};
use mqtt_protocol_core::mqtt::packet::{GenericPacketTrait, Packet, Qos, SubEntry, SubOpts};
use mqtt_protocol_core::mqtt::result_code::{ConnectReturnCode, MqttError, SubackReturnCode};
use mqtt_protocol_core::mqtt::{Version, role};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

use super::settings::MqttSettings;
use super::{MessageOrigin, MqttLink, MqttMessage, OutgoingMessage};
use crate::limit::{
    MQTT_CONNECT_TIME_MAX, MQTT_FILTERS_PER_REQUEST_MAX, MQTT_IN_FLIGHT_MAX, MQTT_PACKET_BYTES_MAX, MQTT_PAUSE_MAX,
    MQTT_PAUSE_MIN, MQTT_REPLY_TIME_MAX, MQTT_STABLE_TIME,
};
use crate::log::{LogSeverity, count};
use crate::tls::client_config;

/// How long a connection may be silent; the CLU and the broker send something before.
const KEEP_ALIVE_S: u16 = 10;

/// Payloads of the availability topic, as Home Assistant expects them by default.
const ONLINE: &str = "online";
const OFFLINE: &str = "offline";

trait BrokerStream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> BrokerStream for T {}

/// Why a connection has ended.
enum ConnectionEnd {
    /// Other settings, or the CLU stops.
    Closed,
    /// The broker, the network or the broker's answer; the reason.
    Lost(String),
    /// The broker sends a packet that is too long, and would send it again on each connection that keeps the subscriptions.
    Oversized,
}

impl From<String> for ConnectionEnd {
    fn from(reason: String) -> ConnectionEnd {
        ConnectionEnd::Lost(reason)
    }
}

/// A connection, or an attempt, that has ended.
struct EndedConnection {
    /// What the broker has not acknowledged, in the order of sending.
    unacknowledged: Vec<OutgoingMessage>,
    end: ConnectionEnd,
    /// `None` if the broker did not accept it.
    duration: Option<Duration>,
}

impl EndedConnection {
    fn not_accepted(end: ConnectionEnd) -> EndedConnection {
        EndedConnection { unacknowledged: Vec::new(), end, duration: None }
    }
}

/// When to connect again, and what was reported. A broker that accepts connections and ends them at once is reported once, as
/// one that is not reachable.
struct RetryState {
    pause: Duration,
    /// The last failure that was reported, until a connection is stable.
    failure: String,
    /// The last connection was accepted and ended soon.
    was_short: bool,
}

impl Default for RetryState {
    fn default() -> RetryState {
        RetryState { pause: MQTT_PAUSE_MIN, failure: String::new(), was_short: false }
    }
}

/// Connects to the broker of the current settings until the CLU stops.
pub(super) async fn run(link: Arc<MqttLink>) {
    let mut retry = RetryState::default();
    // The settings for which the broker has forgotten the subscriptions of an earlier start.
    let mut fresh = None;
    loop {
        let (settings, is_closing) = {
            let state = link.state.lock();
            (state.settings.clone(), state.is_closing)
        };
        if is_closing {
            return;
        }
        let Some(settings) = settings else {
            retry = RetryState::default();
            link.changed.notified().await;
            continue;
        };
        let is_first = fresh.as_ref() != Some(&settings);
        let ended = connect_and_serve(&link, &settings, is_first, retry.was_short).await;
        let EndedConnection { unacknowledged, end, duration } = ended;
        let mut is_reported = false;
        if let Some(duration) = duration {
            fresh = Some(Arc::clone(&settings));
            if duration < MQTT_STABLE_TIME {
                is_reported = mem::replace(&mut retry.was_short, true);
            } else {
                retry = RetryState::default();
            }
        }
        let n_lost = u32::from(!matches!(end, ConnectionEnd::Closed));
        let repeated = |outgoing: OutgoingMessage| OutgoingMessage { n_lost: outgoing.n_lost + n_lost, ..outgoing };
        link.end(unacknowledged.into_iter().map(repeated));
        let lost = match end {
            ConnectionEnd::Closed => {
                retry = RetryState::default();
                None
            }
            ConnectionEnd::Lost(reason) => Some(reason),
            ConnectionEnd::Oversized => {
                count(&link.reporter.log.counters.mqtt_dropped);
                (fresh, is_reported) = (None, false);
                Some(format!("a message was dropped, its packet has more than {MQTT_PACKET_BYTES_MAX} bytes"))
            }
        };
        if let Some(reason) = lost {
            let text = format!("no connection to the MQTT broker {}: {reason}", settings.broker);
            if !is_reported && text != retry.failure {
                link.reporter.write(LogSeverity::Warning, &text);
                retry.failure = text;
            }
            wait_before_retry(&link, &settings, retry.pause).await;
            retry.pause = (retry.pause * 2).min(MQTT_PAUSE_MAX);
        }
    }
}

/// Waits for a time, or until the settings change.
async fn wait_before_retry(link: &MqttLink, settings: &Arc<MqttSettings>, pause: Duration) {
    let end = Instant::now() + pause;
    while !is_outdated(link, settings) {
        tokio::select! {
            () = sleep_until(end) => return,
            () = link.changed.notified() => {}
        }
    }
}

/// Whether the connection must end.
fn is_outdated(link: &MqttLink, settings: &Arc<MqttSettings>) -> bool {
    let state = link.state.lock();
    state.is_closing || state.settings.as_deref() != Some(&**settings)
}

/// `was_short`: the connection before was accepted and ended soon, so that this one is reported when it is stable.
async fn connect_and_serve(
    link: &MqttLink,
    settings: &Arc<MqttSettings>,
    is_first: bool,
    was_short: bool,
) -> EndedConnection {
    let connecting = async {
        if is_first {
            forget_subscriptions(link, settings).await?;
        }
        let stream = open(link, settings).await?;
        BrokerConnection::establish(link, settings, stream, SessionKind::Kept).await
    };
    let connected = {
        let mut connecting = pin!(timeout(MQTT_CONNECT_TIME_MAX, connecting));
        loop {
            tokio::select! {
                result = &mut connecting => break result,
                () = link.changed.notified() => {
                    if is_outdated(link, settings) {
                        return EndedConnection::not_accepted(ConnectionEnd::Closed);
                    }
                }
            }
        }
    };
    let mut connection = match connected {
        Ok(Ok(connection)) => connection,
        Ok(Err(end)) => return EndedConnection::not_accepted(end),
        Err(_) => {
            let reason = format!("it does not answer within {} s", MQTT_CONNECT_TIME_MAX.as_secs());
            return EndedConnection::not_accepted(ConnectionEnd::Lost(reason));
        }
    };
    link.begin();
    count(&link.reporter.log.counters.mqtt_connections);
    let accepted_at = Instant::now();
    connection.report_at = Some(if was_short { accepted_at + MQTT_STABLE_TIME } else { accepted_at });
    let end = match connection.serve(settings).await {
        Ok(()) => {
            connection.disconnect(settings).await;
            ConnectionEnd::Closed
        }
        Err(end) => end,
    };
    let in_flight = mem::take(&mut connection.in_flight);
    let unacknowledged = in_flight.into_iter().filter_map(|(_, waiting)| waiting.outgoing()).collect();
    EndedConnection { unacknowledged, end, duration: Some(accepted_at.elapsed()) }
}

/// The broker keeps subscriptions and messages of a client while it is away, also those of scripts that have changed since. A
/// connection with a new session removes them.
async fn forget_subscriptions(link: &MqttLink, settings: &Arc<MqttSettings>) -> Result<(), ConnectionEnd> {
    let stream = open(link, settings).await?;
    let mut connection = BrokerConnection::establish(link, settings, stream, SessionKind::New).await?;
    connection.close().await;
    Ok(())
}

/// Connects to the broker, with TLS if its URL requires it.
async fn open(link: &MqttLink, settings: &MqttSettings) -> Result<Box<dyn BrokerStream>, ConnectionEnd> {
    let broker = &settings.broker;
    let connected = TcpStream::connect((broker.host.as_str(), broker.port)).await;
    let stream = connected.map_err(|error| error.to_string())?;
    // Packets are written as a whole. Without this option they only arrive later.
    let _ = stream.set_nodelay(true);
    if !broker.has_tls {
        return Ok(Box::new(stream));
    }
    let config = client_config(link.certificates.as_deref())?;
    let name = ServerName::try_from(broker.host.clone()).map_err(|error| error.to_string())?;
    let stream = TlsConnector::from(config).connect(name, stream).await.map_err(|error| format!("TLS: {error}"))?;
    Ok(Box::new(stream))
}

/// Whether the broker keeps subscriptions and unacknowledged messages for the next connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SessionKind {
    New,
    Kept,
}

/// What waits for an acknowledgement of the broker.
enum AwaitedAck {
    Message(OutgoingMessage),
    Subscribe(Vec<String>),
    Unsubscribe,
}

impl AwaitedAck {
    fn outgoing(self) -> Option<OutgoingMessage> {
        match self {
            AwaitedAck::Message(outgoing) => Some(outgoing),
            AwaitedAck::Subscribe(_) | AwaitedAck::Unsubscribe => None,
        }
    }
}

/// An open connection.
struct BrokerConnection<'a> {
    link: &'a MqttLink,
    stream: Box<dyn BrokerStream>,
    machine: Connection<role::Client>,
    /// In the order of sending, with their packet identifiers.
    in_flight: VecDeque<(u16, AwaitedAck)>,
    /// The filters that were sent to the broker.
    filters: BTreeSet<String>,
    /// Bytes to write.
    output: Vec<u8>,
    /// Received messages that wait for a full queue, with the identifier to acknowledge.
    received: VecDeque<(Option<u16>, MqttMessage)>,
    /// When a request for a sign of life must be sent, and when its reply is late.
    ping_at: Option<Instant>,
    lost_at: Option<Instant>,
    /// When the connection is reported.
    report_at: Option<Instant>,
    connack: Option<ConnectReturnCode>,
}

/// The broker sends messages again that wait for an acknowledgement. Others are lost.
impl Drop for BrokerConnection<'_> {
    fn drop(&mut self) {
        for _ in self.received.iter().filter(|(id, _)| id.is_none()) {
            count(&self.link.reporter.log.counters.mqtt_dropped);
        }
    }
}

impl<'a> BrokerConnection<'a> {
    fn new(link: &'a MqttLink, stream: Box<dyn BrokerStream>) -> BrokerConnection<'a> {
        let options = ConnectionOptions::new().maximum_packet_size_recv(MQTT_PACKET_BYTES_MAX);
        let mut machine = Connection::with_options(Version::V3_1_1, options);
        machine.set_pingresp_recv_timeout(MQTT_REPLY_TIME_MAX.as_millis() as u64);
        BrokerConnection {
            link,
            stream,
            machine,
            in_flight: VecDeque::new(),
            filters: BTreeSet::new(),
            output: Vec::new(),
            received: VecDeque::new(),
            ping_at: None,
            lost_at: None,
            report_at: None,
            connack: None,
        }
    }

    /// Introduces the CLU to the broker, with its last will unless the session is only to be forgotten.
    async fn establish(
        link: &'a MqttLink,
        settings: &MqttSettings,
        stream: Box<dyn BrokerStream>,
        session: SessionKind,
    ) -> Result<BrokerConnection<'a>, ConnectionEnd> {
        let mut connection = BrokerConnection::new(link, stream);
        let packet = connect_packet(settings, session).map_err(unsendable)?;
        let events = connection.machine.checked_send(packet);
        connection.handle(events)?;
        connection.write().await?;
        while connection.connack.is_none() {
            connection.read().await?;
        }
        match connection.connack {
            Some(ConnectReturnCode::Accepted) => Ok(connection),
            Some(refused) => Err(format!("the broker refuses: {refused:?}").into()),
            None => Err("the broker sent no answer".to_string().into()),
        }
    }

    /// Exchanges messages until the settings change or the connection is lost.
    async fn serve(&mut self, settings: &Arc<MqttSettings>) -> Result<(), ConnectionEnd> {
        let online =
            MqttMessage { topic: settings.availability_topic.clone(), payload: ONLINE.into(), is_retained: true };
        self.publish(OutgoingMessage::new(online, MessageOrigin::Retained))?;
        loop {
            if is_outdated(self.link, settings) {
                return Ok(());
            }
            if self.report_at.is_some_and(|at| at <= Instant::now()) {
                self.report_at = None;
                let text = format!("connected to the MQTT broker {}", settings.broker);
                self.link.reporter.write(LogSeverity::Info, text);
            }
            self.deliver()?;
            self.update_subscriptions()?;
            while self.can_publish()
                && let Some(outgoing) = self.link.next_outgoing(self.in_flight.is_empty())
            {
                self.publish(outgoing)?;
            }
            self.write().await?;
            let link = self.link;
            // Nothing is read while a queue is full: the broker waits.
            let is_reading = self.received.is_empty();
            let late = self.lost_at.filter(|_| is_reading);
            let due = [self.ping_at, late, self.report_at].into_iter().flatten().min();
            tokio::select! {
                result = self.read(), if is_reading => result?,
                () = link.changed.notified() => {}
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
            }
            self.check_time()?;
        }
    }

    /// Sends what the broker would publish as the last will, and ends the connection.
    async fn disconnect(&mut self, settings: &MqttSettings) {
        let offline =
            MqttMessage { topic: settings.availability_topic.clone(), payload: OFFLINE.into(), is_retained: true };
        // Without this message, a connection that is lost now ends with the last will.
        let _ = self.publish(OutgoingMessage::new(offline, MessageOrigin::Retained));
        self.close().await;
    }

    /// Ends the connection in the way that causes no last will.
    async fn close(&mut self) {
        if let Ok(packet) = Disconnect::builder().build() {
            let events = self.machine.checked_send(packet);
            // The connection ends in any case.
            let _ = self.handle(events);
        }
        let closing = async {
            let _ = self.write().await;
            let _ = self.stream.shutdown().await;
        };
        let _ = timeout(MQTT_REPLY_TIME_MAX, closing).await;
    }

    /// Whether further messages may be sent before the broker acknowledges those in flight.
    fn can_publish(&self) -> bool {
        let is_suspect = |awaited: &AwaitedAck| matches!(awaited, AwaitedAck::Message(sent) if sent.is_suspect());
        self.in_flight.len() < MQTT_IN_FLIGHT_MAX && !self.in_flight.iter().any(|(_, awaited)| is_suspect(awaited))
    }

    fn publish(&mut self, outgoing: OutgoingMessage) -> Result<(), ConnectionEnd> {
        let id = self.machine.acquire_packet_id().map_err(unsendable)?;
        let message = &outgoing.message;
        let built = Publish::builder()
            .topic_name(message.topic.as_str())
            .map(|builder| builder.qos(Qos::AtLeastOnce).retain(message.is_retained).packet_id(id))
            .and_then(|builder| builder.payload(message.payload.as_str()).build());
        self.in_flight.push_back((id, AwaitedAck::Message(outgoing)));
        let events = self.machine.checked_send(built.map_err(unsendable)?);
        self.handle(events)
    }

    /// Subscribes to new filters, and unsubscribes from those that have no subscriber left.
    fn update_subscriptions(&mut self) -> Result<(), ConnectionEnd> {
        let requested = self.link.filters();
        if requested == self.filters {
            return Ok(());
        }
        let added: Vec<String> = requested.difference(&self.filters).cloned().collect();
        let removed: Vec<String> = self.filters.difference(&requested).cloned().collect();
        self.filters = requested;
        for filters in added.chunks(MQTT_FILTERS_PER_REQUEST_MAX) {
            let id = self.machine.acquire_packet_id().map_err(unsendable)?;
            let options = SubOpts::new().set_qos(Qos::AtLeastOnce);
            let entries: Result<Vec<SubEntry>, MqttError> =
                filters.iter().map(|filter| SubEntry::new(filter.as_str(), options)).collect();
            let packet = entries.and_then(|entries| Subscribe::builder().packet_id(id).entries(entries).build());
            self.in_flight.push_back((id, AwaitedAck::Subscribe(filters.to_vec())));
            let events = self.machine.checked_send(packet.map_err(unsendable)?);
            self.handle(events)?;
        }
        for filters in removed.chunks(MQTT_FILTERS_PER_REQUEST_MAX) {
            let id = self.machine.acquire_packet_id().map_err(unsendable)?;
            let packet = Unsubscribe::builder()
                .packet_id(id)
                .entries(filters.iter().map(String::as_str))
                .and_then(|builder| builder.build());
            self.in_flight.push_back((id, AwaitedAck::Unsubscribe));
            let events = self.machine.checked_send(packet.map_err(unsendable)?);
            self.handle(events)?;
        }
        Ok(())
    }

    /// Reads what has arrived.
    async fn read(&mut self) -> Result<(), ConnectionEnd> {
        let mut bytes = [0; 4096];
        let n_bytes = self.stream.read(&mut bytes).await.map_err(|error| error.to_string())?;
        if n_bytes == 0 {
            return Err("the broker closed the connection".to_string().into());
        }
        let bytes = bytes.get(..n_bytes).unwrap_or_default();
        let mut cursor = Cursor::new(bytes);
        while (cursor.position() as usize) < bytes.len() {
            let events = self.machine.recv(&mut cursor);
            self.handle(events)?;
        }
        Ok(())
    }

    async fn write(&mut self) -> Result<(), ConnectionEnd> {
        if self.output.is_empty() {
            return Ok(());
        }
        let writing = async {
            self.stream.write_all(&self.output).await?;
            self.stream.flush().await
        };
        match timeout(MQTT_REPLY_TIME_MAX, writing).await {
            Ok(Ok(())) => self.output.clear(),
            Ok(Err(error)) => return Err(error.to_string().into()),
            Err(_) => return Err("the broker reads nothing".to_string().into()),
        }
        Ok(())
    }

    /// Does what the protocol requires.
    fn handle(&mut self, events: Vec<Event>) -> Result<(), ConnectionEnd> {
        let mut end = None;
        for event in events {
            match event {
                Event::RequestSendPacket { packet, .. } => self.output.extend(packet.to_continuous_buffer()),
                Event::NotifyPacketReceived(packet) => self.received_packet(packet),
                Event::RequestTimerReset { kind, duration_ms } => {
                    let due = Instant::now() + Duration::from_millis(duration_ms);
                    *self.timer(kind) = Some(due);
                }
                Event::RequestTimerCancel(kind) => *self.timer(kind) = None,
                Event::NotifyError(MqttError::PacketTooLarge) => end = Some(ConnectionEnd::Oversized),
                Event::NotifyError(error) => end = Some(format!("the protocol was violated: {error:?}").into()),
                Event::RequestClose if end.is_none() => end = Some("the protocol requires the end".to_string().into()),
                Event::RequestClose | Event::NotifyPacketIdReleased(_) => {}
            }
        }
        end.map_or(Ok(()), Err)
    }

    fn timer(&mut self, kind: TimerKind) -> &mut Option<Instant> {
        match kind {
            TimerKind::PingreqSend => &mut self.ping_at,
            TimerKind::PingreqRecv | TimerKind::PingrespRecv => &mut self.lost_at,
        }
    }

    fn received_packet(&mut self, packet: Packet) {
        match packet {
            Packet::V3_1_1Connack(packet) => self.connack = Some(packet.return_code()),
            Packet::V3_1_1Publish(packet) => {
                let message = MqttMessage {
                    topic: packet.topic_name().to_string(),
                    payload: String::from_utf8_lossy(packet.payload().as_slice()).into_owned(),
                    is_retained: packet.retain(),
                };
                self.received.push_back((packet.packet_id(), message));
            }
            Packet::V3_1_1Puback(packet) => {
                if let Some(AwaitedAck::Message(outgoing)) = self.acknowledged(packet.packet_id()) {
                    self.link.acknowledged(&outgoing);
                }
            }
            Packet::V3_1_1Suback(packet) => {
                let Some(AwaitedAck::Subscribe(filters)) = self.acknowledged(packet.packet_id()) else { return };
                for (filter, code) in filters.iter().zip(packet.return_codes()) {
                    if code == SubackReturnCode::Failure {
                        count(&self.link.reporter.log.counters.mqtt_refused);
                        let text = format!("the MQTT broker refuses the subscription of {filter}");
                        self.link.reporter.write(LogSeverity::Warning, text);
                    }
                }
            }
            Packet::V3_1_1Unsuback(packet) => drop(self.acknowledged(packet.packet_id())),
            _ => {}
        }
    }

    /// Removes what the broker has acknowledged.
    fn acknowledged(&mut self, id: u16) -> Option<AwaitedAck> {
        let place = self.in_flight.iter().position(|(waiting, _)| *waiting == id)?;
        self.in_flight.remove(place).map(|(_, awaited)| awaited)
    }

    /// Passes the received messages on, and acknowledges those that were accepted.
    fn deliver(&mut self) -> Result<(), ConnectionEnd> {
        while let Some((id, message)) = self.received.pop_front() {
            if let Err(message) = self.link.deliver(message) {
                self.received.push_front((id, message));
                return Ok(());
            }
            let Some(id) = id else { continue };
            let packet = Puback::builder().packet_id(id).build().map_err(unsendable)?;
            let events = self.machine.checked_send(packet);
            self.handle(events)?;
        }
        Ok(())
    }

    /// Sends a request for a sign of life, or ends a connection whose broker is silent.
    fn check_time(&mut self) -> Result<(), ConnectionEnd> {
        let now = Instant::now();
        if self.ping_at.is_some_and(|due| due <= now) {
            self.ping_at = None;
            let events = self.machine.notify_timer_fired(TimerKind::PingreqSend);
            self.handle(events)?;
        }
        if !self.received.is_empty() {
            // Its reply may wait behind the messages that were not read.
            self.lost_at = self.lost_at.map(|_| now + MQTT_REPLY_TIME_MAX);
        }
        if self.lost_at.is_some_and(|due| due <= now) {
            return Err(format!("it was silent for {} s", MQTT_REPLY_TIME_MAX.as_secs()).into());
        }
        Ok(())
    }
}

fn connect_packet(settings: &MqttSettings, session: SessionKind) -> Result<Connect, MqttError> {
    let mut builder = Connect::builder()
        .client_id(settings.client_id.as_str())?
        .clean_session(session == SessionKind::New)
        .keep_alive(KEEP_ALIVE_S);
    if session == SessionKind::Kept {
        let topic = settings.availability_topic.as_str();
        builder = builder.will_message(topic, OFFLINE, Qos::AtLeastOnce, true)?;
    }
    if let Some((user, password)) = settings.broker.user() {
        builder = builder.user_name(user)?;
        if let Some(password) = password {
            builder = builder.password(password)?;
        }
    }
    builder.build()
}

/// A packet that cannot be built, or for which no identifier is left.
fn unsendable(error: MqttError) -> ConnectionEnd {
    ConnectionEnd::Lost(format!("a packet cannot be sent: {error:?}"))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::engine::request::VcluConfig;
    use crate::log::CluLog;
    use crate::network::CluNetwork;

    fn message() -> MqttMessage {
        MqttMessage { topic: "a".into(), payload: "1".into(), is_retained: false }
    }

    #[test]
    fn a_broker_has_its_time_for_a_reply_after_messages_that_were_not_read() {
        let network = CluNetwork::new(&VcluConfig::new("/nonexistent"), &Arc::<CluLog>::default());
        let mut connection = BrokerConnection::new(&network.mqtt, Box::new(tokio::io::empty()));
        connection.received.push_back((Some(1), message()));
        connection.lost_at = Some(Instant::now());

        assert!(connection.check_time().is_ok());
        connection.received.clear();
        assert!(connection.check_time().is_ok());

        connection.lost_at = Some(Instant::now());
        assert!(connection.check_time().is_err());
    }

    #[test]
    fn messages_that_the_broker_does_not_send_again_are_counted_when_the_connection_ends() {
        let log = Arc::<CluLog>::default();
        let network = CluNetwork::new(&VcluConfig::new("/nonexistent"), &log);
        let mut connection = BrokerConnection::new(&network.mqtt, Box::new(tokio::io::empty()));
        connection.received.extend([(Some(1), message()), (None, message()), (None, message())]);

        drop(connection);

        assert_eq!(log.counters.mqtt_dropped.load(Ordering::Relaxed), 2);
    }
}
