//! The RecSync client as a state machine, without sockets or clocks: inputs include the time, outputs are actions.
//!
//! ```
//! use std::time::{Duration, Instant};
//!
//! use fodo_ioc::reccaster::machine::{Out, RecCasterMachine, RecSyncEvent, RecSyncInput, RecSyncTimeouts};
//!
//! let timeouts = RecSyncTimeouts { hold_off_max: Duration::ZERO, answer: Duration::from_secs(20) };
//! let mut machine = RecCasterMachine::new(Box::new(|| Box::new(std::iter::empty())), timeouts, 1);
//!
//! let (now, mut out) = (Instant::now(), Out::default());
//! machine.handle(RecSyncInput::Tick, now, &mut out);
//! if let Some(RecSyncEvent::Failed(reason)) = out.event {
//!     eprintln!("{reason}");
//! }
//! // It waits for the announcement of a server.
//! assert!(out.connect.is_none() && machine.deadline().is_none());
//! ```

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use super::message::{self, FromServer, WHOLE};
use super::{ItemSource, RecSyncItem, RecSyncItems};
use crate::limit;

/// Timeouts of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecSyncTimeouts {
    /// Maximum random delay after an announcement, so that the IOCs of a plant do not all connect at once.
    pub hold_off_max: Duration,
    /// Maximum time for opening a connection. A server that is silent for four times as long is disconnected. Both
    /// times are limited to one hour.
    pub answer: Duration,
}

impl RecSyncTimeouts {
    fn silence(self) -> Duration {
        self.answer.saturating_mul(4)
    }
}

/// An input.
#[derive(Clone, Copy, Debug)]
pub enum RecSyncInput<'a> {
    /// A datagram and its sender.
    Datagram(&'a [u8], SocketAddr),
    /// The connection is open.
    Connected,
    /// Bytes received from the server.
    Received(&'a [u8]),
    /// All pending bytes were sent to the server.
    Drained,
    /// The connection was closed, or could not be opened.
    Closed,
    /// Time has passed.
    Tick,
}

/// The resulting actions.
#[derive(Debug, Default)]
pub struct Out {
    /// The server to connect to.
    pub connect: Option<SocketAddr>,
    /// The bytes to send on the connection.
    pub send: Vec<u8>,
    /// Whether to close the connection.
    pub close: bool,
    /// An event for the log.
    pub event: Option<RecSyncEvent>,
}

/// An event for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecSyncEvent {
    /// The server has received all records.
    Announced,
    /// The server has disconnected, which is not an error.
    Disconnected,
    /// Something failed, with the reason.
    Failed(&'static str),
}

/// The state of the client; the comment of each says what it waits for.
enum RecSyncState {
    /// For the end of a pause after a failure.
    Resting { until: Instant },
    /// For the announcement of a server.
    Listening,
    /// For the end of the random delay.
    HoldingOff { server: SocketAddr, key: u32, until: Instant },
    /// For the connection to open.
    Connecting { key: u32, until: Instant },
    /// For the server's greeting, which is delayed while other clients send their records.
    Greeting { until: Instant },
    /// For the server to read the bytes sent.
    Sending { sending: Sending, until: Instant },
    /// For the end of the pause between slices.
    Pausing { sending: Sending, until: Instant },
    /// For pings.
    Synchronized { until: Instant },
}

/// The items being sent.
struct Sending {
    items: RecSyncItems,
    /// The number of the last record sent.
    record: u32,
}

/// Sends all items to one server at a time.
pub struct RecCasterMachine {
    timeouts: RecSyncTimeouts,
    items: ItemSource,
    state: RecSyncState,
    received: Vec<u8>,
    n_failures: u32,
    random: u64,
}

impl RecCasterMachine {
    /// `seed`: should differ between processes.
    pub fn new(items: ItemSource, timeouts: RecSyncTimeouts, seed: u64) -> RecCasterMachine {
        let state = RecSyncState::Listening;
        let bounded = |wait: Duration| wait.min(limit::RECCASTER_WAIT_MAX);
        let timeouts =
            RecSyncTimeouts { hold_off_max: bounded(timeouts.hold_off_max), answer: bounded(timeouts.answer) };
        RecCasterMachine { timeouts, items, state, received: Vec::new(), n_failures: 0, random: seed }
    }

    /// The latest time for the next [`RecSyncInput::Tick`].
    pub fn deadline(&self) -> Option<Instant> {
        match &self.state {
            RecSyncState::Listening => None,
            RecSyncState::Resting { until }
            | RecSyncState::HoldingOff { until, .. }
            | RecSyncState::Connecting { until, .. }
            | RecSyncState::Greeting { until }
            | RecSyncState::Sending { until, .. }
            | RecSyncState::Pausing { until, .. }
            | RecSyncState::Synchronized { until } => Some(*until),
        }
    }

    /// Handles an input; adds the resulting actions to `out`.
    pub fn handle(&mut self, input: RecSyncInput<'_>, now: Instant, out: &mut Out) {
        match input {
            RecSyncInput::Datagram(datagram, from) => self.announced(datagram, from, now),
            RecSyncInput::Connected => self.connected(now, out),
            RecSyncInput::Received(bytes) => self.received(bytes, now, out),
            RecSyncInput::Drained => self.drained(now),
            RecSyncInput::Closed => self.closed(now, out),
            RecSyncInput::Tick => {}
        }
        self.tick(now, out);
    }

    fn announced(&mut self, datagram: &[u8], from: SocketAddr, now: Instant) {
        let RecSyncState::Listening = self.state else { return };
        let Some(announcement) = message::announcement(datagram) else { return };
        let ip = announcement.address.map_or(from.ip(), IpAddr::V4);
        let until = now + self.timeouts.hold_off_max.mul_f64(self.fraction());
        let server = SocketAddr::new(ip, announcement.port);
        self.state = RecSyncState::HoldingOff { server, key: announcement.key, until };
    }

    fn connected(&mut self, now: Instant, out: &mut Out) {
        if let RecSyncState::Connecting { key, .. } = self.state {
            message::greeting(key, &mut out.send);
            self.state = RecSyncState::Greeting { until: now + self.timeouts.silence() };
        }
    }

    fn received(&mut self, bytes: &[u8], now: Instant, out: &mut Out) {
        self.received.extend(bytes);
        let mut n_read = 0;
        loop {
            match message::from_server(self.received.get(n_read..).unwrap_or_default()) {
                Ok(None) => break,
                Ok(Some((message, n))) => {
                    n_read += n;
                    if !self.handle_message(message, now, out) {
                        return self.fail("it did not start with a greeting", now, out);
                    }
                }
                Err(message::InvalidMessage) => return self.fail("it sent an invalid RecSync message", now, out),
            }
        }
        self.received.drain(..n_read);
    }

    /// Handles a message; returns false if the server violates the protocol.
    fn handle_message(&mut self, message: FromServer, now: Instant, out: &mut Out) -> bool {
        let silent_at = now + self.timeouts.silence();
        match (&mut self.state, message) {
            (RecSyncState::Greeting { .. }, FromServer::Greeting) => {
                let sending = Sending { items: (self.items)(), record: WHOLE };
                self.state = RecSyncState::Pausing { sending, until: now };
            }
            (RecSyncState::Greeting { .. }, _) => return false,
            (RecSyncState::Synchronized { until }, FromServer::Ping { nonce }) => {
                *until = silent_at;
                message::pong(nonce, &mut out.send);
            }
            (RecSyncState::Sending { .. } | RecSyncState::Pausing { .. }, FromServer::Ping { nonce }) => {
                message::pong(nonce, &mut out.send);
            }
            _ => {}
        }
        true
    }

    fn drained(&mut self, now: Instant) {
        self.state = match std::mem::replace(&mut self.state, RecSyncState::Listening) {
            RecSyncState::Sending { sending, .. } => {
                RecSyncState::Pausing { sending, until: now + limit::RECCASTER_PAUSE }
            }
            state => state,
        };
    }

    fn closed(&mut self, now: Instant, out: &mut Out) {
        match self.state {
            RecSyncState::Resting { .. } | RecSyncState::Listening | RecSyncState::HoldingOff { .. } => {}
            RecSyncState::Synchronized { .. } => {
                self.forget();
                self.n_failures = 0;
                out.event = Some(RecSyncEvent::Disconnected);
            }
            RecSyncState::Connecting { .. } => self.fail("it cannot be reached at its announced address", now, out),
            _ => self.fail("it closed the connection before it received all records", now, out),
        }
    }

    fn tick(&mut self, now: Instant, out: &mut Out) {
        if self.deadline().is_none_or(|due| now < due) {
            return;
        }
        match std::mem::replace(&mut self.state, RecSyncState::Listening) {
            RecSyncState::Listening | RecSyncState::Resting { .. } => {}
            RecSyncState::HoldingOff { server, key, .. } => {
                out.connect = Some(server);
                self.state = RecSyncState::Connecting { key, until: now + self.timeouts.answer };
            }
            RecSyncState::Pausing { sending, .. } => self.send_items(sending, now, out),
            RecSyncState::Connecting { .. } => self.fail("it did not accept the connection", now, out),
            RecSyncState::Greeting { .. } => self.fail("it sent no greeting", now, out),
            RecSyncState::Sending { .. } => self.fail("it does not read the records", now, out),
            RecSyncState::Synchronized { .. } => self.fail("it has been silent for too long", now, out),
        }
    }

    /// Sends one slice of items.
    fn send_items(&mut self, mut sending: Sending, now: Instant, out: &mut Out) {
        while out.send.len() < limit::RECCASTER_SLICE_BYTES {
            match sending.items.next() {
                Some(RecSyncItem::Variable { name, value }) => message::info(WHOLE, &name, &value, &mut out.send),
                Some(RecSyncItem::Record { record_type, name }) => {
                    sending.record += 1;
                    message::record(sending.record, record_type, &name, &mut out.send);
                }
                Some(RecSyncItem::Alias(name)) => message::alias(sending.record, &name, &mut out.send),
                Some(RecSyncItem::Info { name, value }) => message::info(sending.record, &name, &value, &mut out.send),
                None => {
                    message::done(&mut out.send);
                    out.event = Some(RecSyncEvent::Announced);
                    self.n_failures = 0;
                    self.state = RecSyncState::Synchronized { until: now + self.timeouts.silence() };
                    return;
                }
            }
        }
        self.state = RecSyncState::Sending { sending, until: now + self.timeouts.silence() };
    }

    /// Disconnects from the server, and pauses for longer after each failure.
    fn fail(&mut self, why: &'static str, now: Instant, out: &mut Out) {
        self.forget();
        self.n_failures = (self.n_failures + 1).min(limit::RECCASTER_FAILURES_COUNTED);
        self.state = RecSyncState::Resting { until: now + limit::RECCASTER_REST * self.n_failures };
        out.send.clear();
        out.close = true;
        out.event = Some(RecSyncEvent::Failed(why));
    }

    fn forget(&mut self) {
        self.state = RecSyncState::Listening;
        self.received = Vec::new();
    }

    /// A pseudo-random number from 0 to 1; splitmix64.
    fn fraction(&mut self) -> f64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) as f64 / u64::MAX as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: &str = "10.0.0.9:20000";
    const ANNOUNCEMENT: &[u8] = b"RC\0\0\xff\xff\xff\xff\x4e\x20\0\0\0\0\0\x07";
    const GREETING: &[u8] = b"RC\x80\x01\0\0\0\x01\0";
    const PING: &[u8] = b"RC\x80\x02\0\0\0\x04\0\0\0\x2a";
    const PONG: &[u8] = b"RC\0\x02\0\0\0\x04\0\0\0\x2a";
    const DONE: &[u8] = b"RC\0\x05\0\0\0\x04\0\0\0\0";
    const PATIENCE: RecSyncTimeouts =
        RecSyncTimeouts { hold_off_max: Duration::from_secs(10), answer: Duration::from_secs(20) };

    /// A machine with this many records, and the time.
    struct Simulation {
        machine: RecCasterMachine,
        now: Instant,
    }

    impl Simulation {
        fn new(n_records: u32) -> Simulation {
            let items: ItemSource = Box::new(move || {
                let variable = RecSyncItem::Variable { name: "IOC".to_owned(), value: "vac1".to_owned() };
                let records = (0..n_records).flat_map(|number| {
                    let alias = RecSyncItem::Alias(format!("y:{number}"));
                    let info = RecSyncItem::Info { name: "archive".to_owned(), value: "1 Hz".to_owned() };
                    [RecSyncItem::Record { record_type: "ai", name: format!("x:{number}") }, alias, info]
                });
                Box::new(std::iter::once(variable).chain(records))
            });
            Simulation { machine: RecCasterMachine::new(items, PATIENCE, 1), now: Instant::now() }
        }

        fn put(&mut self, input: RecSyncInput<'_>) -> Out {
            let mut out = Out::default();
            self.machine.handle(input, self.now, &mut out);
            out
        }

        /// Advances the time until something is due.
        fn wait(&mut self) -> Out {
            self.now = self.machine.deadline().unwrap();
            self.put(RecSyncInput::Tick)
        }

        fn hear(&mut self) -> Out {
            self.put(RecSyncInput::Datagram(ANNOUNCEMENT, "10.0.0.9:5049".parse().unwrap()))
        }

        /// Advances until the server has sent its greeting.
        fn greeted(&mut self) -> Out {
            self.hear();
            assert!(self.wait().connect.is_some());
            self.put(RecSyncInput::Connected);
            self.put(RecSyncInput::Received(GREETING))
        }
    }

    #[test]
    fn a_server_that_announces_itself_receives_all_records_and_replies_to_its_pings() {
        let mut simulation = Simulation::new(1);

        simulation.hear();
        assert_eq!(simulation.wait().connect, Some(SERVER.parse().unwrap()));
        assert_eq!(simulation.put(RecSyncInput::Connected).send, b"RC\0\x01\0\0\0\x08\0\0\0\0\0\0\0\x07");
        let reply = simulation.put(RecSyncInput::Received(GREETING));

        let expected = [
            &b"RC\0\x06\0\0\0\x0f\0\0\0\0\x03\0\0\x04IOCvac1"[..],
            b"RC\0\x03\0\0\0\x0d\0\0\0\x01\0\x02\0\x03aix:0",
            b"RC\0\x03\0\0\0\x0b\0\0\0\x01\x01\0\0\x03y:0",
            b"RC\0\x06\0\0\0\x13\0\0\0\x01\x07\0\0\x04archive1 Hz",
            DONE,
        ];
        assert_eq!((reply.send, reply.event), (expected.concat(), Some(RecSyncEvent::Announced)));
        assert_eq!(simulation.put(RecSyncInput::Received(PING)).send, PONG);
    }

    #[test]
    fn the_hold_off_is_random_and_at_most_the_maximum() {
        let mut simulation = Simulation::new(1);
        let mut held_off: Vec<Duration> = Vec::new();

        for _ in 0..100 {
            simulation.hear();
            let start = simulation.now;
            simulation.wait();
            held_off.push(simulation.now - start);
            simulation.put(RecSyncInput::Connected);
            simulation.put(RecSyncInput::Received(GREETING));
            simulation.put(RecSyncInput::Closed);
        }

        assert!(held_off.iter().all(|held| *held <= PATIENCE.hold_off_max));
        let seconds: std::collections::HashSet<u64> = held_off.iter().map(Duration::as_secs).collect();
        assert_eq!(seconds.len(), 10, "every second of ten");
    }

    #[test]
    fn announcements_are_ignored_while_connected_to_a_server() {
        let mut simulation = Simulation::new(1);
        simulation.greeted();

        let out = simulation.hear();

        assert!(out.connect.is_none() && !out.close);
        assert_eq!(simulation.put(RecSyncInput::Received(PING)).send, PONG);
    }

    #[test]
    fn many_records_are_sent_in_slices_each_after_the_previous_one_and_a_pause() {
        let mut simulation = Simulation::new(10_000);
        let mut slice = simulation.greeted();
        let mut n_bytes = 0;

        for _ in 0.. {
            n_bytes += slice.send.len();
            assert!(slice.send.len() < limit::RECCASTER_SLICE_BYTES + 100, "{}", slice.send.len());
            if slice.event == Some(RecSyncEvent::Announced) {
                break;
            }
            let taken = simulation.now;
            assert!(simulation.put(RecSyncInput::Drained).send.is_empty());
            slice = simulation.wait();
            assert_eq!(simulation.now - taken, limit::RECCASTER_PAUSE);
        }

        assert!(n_bytes > 10 * limit::RECCASTER_SLICE_BYTES);
        assert!(slice.send.ends_with(DONE));
    }

    #[test]
    fn a_ping_between_slices_gets_one_reply_and_does_not_restart_sending() {
        let mut simulation = Simulation::new(10_000);
        simulation.greeted();

        assert_eq!(simulation.put(RecSyncInput::Received(PING)).send, PONG);

        assert!(simulation.put(RecSyncInput::Drained).send.is_empty());
        assert_eq!(simulation.put(RecSyncInput::Received(&PING.repeat(3))).send, PONG.repeat(3));
    }

    #[test]
    fn a_reccaster_closes_a_silent_connection_in_every_phase() {
        let silent_in = |goes_on: fn(&mut Simulation)| {
            let mut simulation = Simulation::new(10_000);
            simulation.hear();
            simulation.wait();
            goes_on(&mut simulation);
            let start = simulation.now;
            let out = simulation.wait();
            assert!(out.close && out.send.is_empty());
            (out.event, simulation.now - start)
        };

        let (connecting, waited) = silent_in(|_| {});
        assert_eq!(
            (connecting, waited),
            (Some(RecSyncEvent::Failed("it did not accept the connection")), PATIENCE.answer)
        );
        let (greeting, waited) = silent_in(|simulation| drop(simulation.put(RecSyncInput::Connected)));
        assert_eq!((greeting, waited), (Some(RecSyncEvent::Failed("it sent no greeting")), PATIENCE.silence()));
        let (sending, _) = silent_in(|simulation| {
            simulation.put(RecSyncInput::Connected);
            simulation.put(RecSyncInput::Received(GREETING));
        });
        assert_eq!(sending, Some(RecSyncEvent::Failed("it does not read the records")));
    }

    #[test]
    fn a_ping_restarts_the_silence_timeout() {
        let mut simulation = Simulation::new(0);
        simulation.greeted();
        simulation.now += PATIENCE.silence() - Duration::from_secs(1);
        simulation.put(RecSyncInput::Received(PING));

        simulation.now += PATIENCE.silence() - Duration::from_secs(1);
        assert!(!simulation.put(RecSyncInput::Tick).close);

        assert_eq!(simulation.wait().event, Some(RecSyncEvent::Failed("it has been silent for too long")));
    }

    #[test]
    fn repeated_failures_lengthen_the_pause_up_to_a_maximum() {
        let mut simulation = Simulation::new(1);
        let mut rests = Vec::new();

        for _ in 0..20 {
            simulation.hear();
            simulation.wait();
            assert!(simulation.put(RecSyncInput::Closed).close);
            assert!(simulation.hear().connect.is_none());
            let start = simulation.now;
            simulation.wait();
            rests.push((simulation.now - start).as_secs());
        }

        assert_eq!(rests[..3], [5, 10, 15]);
        assert_eq!(rests[19], 50);
    }

    #[test]
    fn a_server_that_disconnects_after_all_records_is_reconnected_at_once() {
        let mut simulation = Simulation::new(1);
        simulation.greeted();

        assert_eq!(simulation.put(RecSyncInput::Closed).event, Some(RecSyncEvent::Disconnected));

        simulation.hear();
        assert!(simulation.wait().connect.is_some());
    }

    #[test]
    fn invalid_bytes_end_the_recsync_connection_and_free_its_buffer() {
        let mut simulation = Simulation::new(1);
        simulation.hear();
        simulation.wait();
        simulation.put(RecSyncInput::Connected);

        let out = simulation.put(RecSyncInput::Received(&b"HTTP/1.1 400 Bad Request\r\n".repeat(1000)));

        assert_eq!(out.event, Some(RecSyncEvent::Failed("it sent an invalid RecSync message")));
        assert!(simulation.machine.received.is_empty());
    }

    #[test]
    fn the_reccaster_uses_bounded_memory_for_any_input() {
        let mut simulation = Simulation::new(10);
        let mut state = 7_u64;
        let mut random = move |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };

        for _ in 0..20_000 {
            let bytes: Vec<u8> = match random(4) {
                0 => GREETING.to_vec(),
                1 => PING.to_vec(),
                2 => b"RC\x80\x77\0\0\x03\xff".to_vec(),
                _ => (0..random(50)).map(|_| random(256) as u8).collect(),
            };
            let input = match random(8) {
                0 => RecSyncInput::Datagram(ANNOUNCEMENT, SERVER.parse().unwrap()),
                1 => RecSyncInput::Datagram(&bytes, SERVER.parse().unwrap()),
                2 => RecSyncInput::Connected,
                3 => RecSyncInput::Drained,
                4 if random(10) == 0 => RecSyncInput::Closed,
                5 => RecSyncInput::Tick,
                _ => RecSyncInput::Received(&bytes),
            };
            simulation.now += Duration::from_millis(random(2_000));
            let out = simulation.put(input);
            assert!(out.send.len() < 2 * limit::RECCASTER_SLICE_BYTES);
            assert!(simulation.machine.received.len() < 2048);
        }
    }

    #[test]
    fn a_slice_ends_only_after_reaching_its_size() {
        let mut simulation = Simulation::new(10_000);

        let slice = simulation.greeted();

        assert!((limit::RECCASTER_SLICE_BYTES..limit::RECCASTER_SLICE_BYTES + 100).contains(&slice.send.len()));
        assert_eq!(simulation.machine.deadline(), Some(simulation.now + PATIENCE.silence()));
    }

    #[test]
    fn recsync_timeouts_are_limited_to_an_hour() {
        let items: ItemSource = Box::new(|| Box::new(std::iter::empty()));
        let forever = RecSyncTimeouts { hold_off_max: Duration::MAX, answer: Duration::MAX };
        let mut simulation = Simulation { machine: RecCasterMachine::new(items, forever, 1), now: Instant::now() };

        simulation.hear();
        let held_off = simulation.now;
        assert!(simulation.wait().connect.is_some());
        assert!(simulation.now - held_off <= limit::RECCASTER_WAIT_MAX);
        assert_eq!(simulation.machine.deadline(), Some(simulation.now + limit::RECCASTER_WAIT_MAX));
    }

    #[test]
    fn sending_all_records_resets_the_failure_count() {
        let mut simulation = Simulation::new(1);
        for _ in 0..3 {
            simulation.hear();
            simulation.wait();
            simulation.put(RecSyncInput::Closed);
            simulation.wait();
        }
        simulation.greeted();
        simulation.put(RecSyncInput::Closed);

        simulation.hear();
        simulation.wait();
        assert_eq!(
            simulation.put(RecSyncInput::Closed).event,
            Some(RecSyncEvent::Failed("it cannot be reached at its announced address"))
        );
        assert_eq!(simulation.machine.deadline(), Some(simulation.now + limit::RECCASTER_REST));
    }

    #[test]
    fn an_early_close_or_missing_greeting_is_reported_as_a_failure() {
        for (bytes, why) in [
            (None, "it closed the connection before it received all records"),
            (Some(PING), "it did not start with a greeting"),
        ] {
            let mut simulation = Simulation::new(1);
            simulation.hear();
            simulation.wait();
            simulation.put(RecSyncInput::Connected);

            let out = simulation.put(bytes.map_or(RecSyncInput::Closed, RecSyncInput::Received));

            assert_eq!((out.event, out.close), (Some(RecSyncEvent::Failed(why)), true));
        }
    }

    #[test]
    fn closing_an_already_failed_connection_reports_nothing() {
        let mut simulation = Simulation::new(1);
        simulation.hear();
        simulation.wait();
        simulation.put(RecSyncInput::Closed);
        let rests_until = simulation.machine.deadline();

        let out = simulation.put(RecSyncInput::Closed);

        assert!(out.event.is_none() && !out.close);
        assert_eq!(simulation.machine.deadline(), rests_until);
    }
}
