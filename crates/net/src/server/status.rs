//! The status of a server, published as PVs and refreshed every second.
//!
//! Serving values costs nothing extra for this: a message asks each reactor, which then inspects its circuits.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{fmt, io};

use fodo_ca::ring::Post;
use fodo_data::{Alarm, EventMask, Kind, Meta, Reading, Severity, TimeStamp, Value};

use super::observer::{ClientStatus, Observer, ServerCounts, host_of_most_unused};
use super::{Completion, Peer, Posts, PutRefusal, Pv, PvFacts, Source};
use crate::process::{ProcessFacts, cpu_used};
use crate::sync::lock;
use crate::{clock, limit};

/// The status PVs; all other names are passed to the inner source.
pub(super) struct StatusSource {
    /// `None` if the status is not served; searches are counted nevertheless.
    prefix: Option<String>,
    inner: Arc<dyn Source>,
    pvs: HashMap<&'static str, Arc<StatusPv>>,
    n_searches: AtomicU64,
}

/// The thread that refreshes the status PVs; it ends when this is dropped.
#[derive(Debug)]
pub(super) struct Refresher {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// A PV that the program sets and clients cannot write.
pub struct StatusPv {
    kind: Kind,
    count_max: u32,
    meta: Arc<Meta>,
    reading: Mutex<Reading>,
    posts: Posts,
}

/// Names after the prefix, with their units. All are doubles: the counters of a long run exceed 32 bits.
const NUMBERS: [(&str, &str); 15] = [
    ("CLIENTS", ""),
    ("UNUSED", ""),
    ("CHANNELS", ""),
    ("SUBSCRIPTIONS", ""),
    ("QUEUED_BYTES", "B"),
    ("UPDATES_POSTED", ""),
    ("UPDATES_SENT", ""),
    ("UPDATES_MERGED", ""),
    ("UPDATES_DROPPED", ""),
    ("SEARCHES", ""),
    ("REFUSED", ""),
    ("FLAWED", ""),
    ("EVICTED", ""),
    ("CPU", "%"),
    ("MEM_RSS", "B"),
];

/// Name of the string PV with the host that has the most clients without a channel, and their number.
const UNUSED_HOST: &str = "UNUSED_HOST";

/// Name of the PV with the whole status, as JSON in an array of char.
const JSON: &str = "STATUS";

/// The values of [`NUMBERS`], in the same order.
#[derive(Debug, Default)]
struct Totals([f64; NUMBERS.len()]);

impl StatusSource {
    pub(super) fn new(prefix: Option<String>, inner: Arc<dyn Source>) -> StatusSource {
        let mut pvs: HashMap<&'static str, Arc<StatusPv>> = NUMBERS
            .iter()
            .map(|&(name, units)| (name, Arc::new(StatusPv::new(Value::from(0.0), 1, in_units(units)))))
            .collect();
        let json = StatusPv::new(Value::from(b"{}".to_vec()), limit::STATUS_BYTES as u32, Meta::default());
        pvs.insert(JSON, Arc::new(json));
        pvs.insert(UNUSED_HOST, Arc::new(StatusPv::new(Value::from(""), 1, Meta::default())));
        StatusSource { prefix, inner, pvs, n_searches: AtomicU64::new(0) }
    }

    pub(super) fn has_prefix(&self) -> bool {
        self.prefix.is_some()
    }

    /// The number of names searched for.
    pub(super) fn n_searches(&self) -> u64 {
        self.n_searches.load(Ordering::Relaxed)
    }

    fn own(&self, name: &str) -> Option<&Arc<StatusPv>> {
        self.pvs.get(name.strip_prefix(self.prefix.as_deref()?)?.strip_prefix(':')?)
    }

    fn post(&self, clients: &[ClientStatus], totals: &Totals) {
        let time = clock::now().wall;
        for (&(name, _), &number) in NUMBERS.iter().zip(&totals.0) {
            self.pvs[name].post(Value::from(number), time);
        }
        self.pvs[UNUSED_HOST].post(Value::from(unused_host(clients).unwrap_or_default().as_str()), time);
        self.pvs[JSON].post(Value::from(json(clients, totals).into_bytes()), time);
    }
}

impl Source for StatusSource {
    fn serves(&self, name: &str) -> bool {
        self.n_searches.fetch_add(1, Ordering::Relaxed);
        self.own(name).is_some() || self.inner.serves(name)
    }

    fn open(&self, name: &str) -> Option<Arc<dyn Pv>> {
        match self.own(name) {
            Some(pv) => Some(pv.clone()),
            None => self.inner.open(name),
        }
    }

    fn refusal(&self, name: &str) -> Option<String> {
        self.inner.refusal(name)
    }
}

impl Refresher {
    /// Refreshes the status PVs, and those of the inner source, every second.
    pub(super) fn start(observer: Observer) -> io::Result<Refresher> {
        let (stop, stopped) = mpsc::channel();
        let thread = std::thread::Builder::new().name("fodo-status".into()).spawn(move || {
            let mut cpu = Cpu::now();
            let source = observer.source();
            loop {
                let (clients, counts) = (observer.clients(), observer.counts());
                source.post(&clients, &Totals::of(&clients, &counts, &mut cpu));
                source.inner.refresh_status(&clients, &counts);
                if stopped.recv_timeout(limit::STATUS_PERIOD) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
            }
        })?;
        Ok(Refresher { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Refresher {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            // If the thread panicked, the panic hook has already reported it on stderr.
            let _ = thread.join();
        }
    }
}

impl Totals {
    fn of(clients: &[ClientStatus], counts: &ServerCounts, cpu: &mut Cpu) -> Totals {
        let sum = |of: fn(&ClientStatus) -> usize| clients.iter().map(of).sum::<usize>() as f64;
        Totals([
            clients.len() as f64,
            clients.iter().filter(|client| client.n_channels == 0).count() as f64,
            sum(|client| client.n_channels),
            sum(|client| client.n_subscriptions),
            sum(|client| client.queued_bytes),
            counts.posted as f64,
            counts.updates.sent as f64,
            counts.updates.merged as f64,
            counts.dropped as f64,
            counts.searches as f64,
            counts.refused as f64,
            counts.flawed as f64,
            counts.evicted as f64,
            cpu.percent(),
            ProcessFacts::now().resident_bytes.map_or(f64::NAN, |bytes| bytes as f64),
        ])
    }
}

fn in_units(units: &str) -> Meta {
    Meta { units: units.into(), ..Meta::default() }
}

/// The host with the most clients without a channel, and their number: `10.0.0.2 (17)`.
fn unused_host(clients: &[ClientStatus]) -> Option<String> {
    host_of_most_unused(clients).map(|(host, n)| format!("{host} ({n})"))
}

/// The totals by name, and as many clients as fit.
fn json(clients: &[ClientStatus], totals: &Totals) -> String {
    let mut text = String::from("{");
    for (&(name, _), number) in NUMBERS.iter().zip(&totals.0) {
        text += &format!("{}:{number},", quoted(&name.to_ascii_lowercase()));
    }
    let unused_host = unused_host(clients).map_or("null".to_owned(), |host| quoted(&host));
    text += &format!("\"unused_host\":{unused_host},\"list\":[");
    for (index, client) in clients.iter().enumerate() {
        let waiting = client.waiting.map_or("null".to_owned(), |waiting| waiting.as_secs_f64().to_string());
        let object = format!(
            "{}{{\"address\":{},\"user\":{},\"host\":{},\"channels\":{},\"subscriptions\":{},\"queued_bytes\":{},\
             \"pvs_waiting\":{},\"sent\":{},\"merged\":{},\"waiting_s\":{waiting}}}",
            if index == 0 { "" } else { "," },
            quoted(&client.address.to_string()),
            quoted(&client.user),
            quoted(&client.host),
            client.n_channels,
            client.n_subscriptions,
            client.queued_bytes,
            client.n_pvs_waiting,
            client.updates.sent,
            client.updates.merged,
        );
        if text.len() + object.len() + 2 > limit::STATUS_BYTES {
            break;
        }
        text += &object;
    }
    text + "]}"
}

/// A JSON string. Client-supplied names are truncated beyond any reasonable length.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars().take(limit::STATUS_NAME_CHARS) {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            control if control.is_control() => quoted += &format!("\\u{:04x}", u32::from(control)),
            other => quoted.push(other),
        }
    }
    quoted + "\""
}

impl StatusPv {
    /// Creates a PV with this initial value. `count_max`: the maximum number of elements of later values.
    pub fn new(value: Value, count_max: u32, meta: Meta) -> StatusPv {
        let kind = value.kind();
        let reading = Mutex::new(Reading::bare(value));
        StatusPv { kind, count_max, meta: Arc::new(meta), reading, posts: Posts::new(limit::STATUS_POSTS) }
    }

    /// Sets a value of the same kind, and posts it to all subscribers.
    pub fn post(&self, value: Value, time: TimeStamp) {
        let mut reading = lock(&self.reading);
        *reading = Reading { value, alarm: Alarm::default(), time, meta: None };
        let mask = EventMask::VALUE | EventMask::LOG;
        self.posts.push(Post { mask, reading: reading.clone() });
    }
}

impl fmt::Debug for StatusPv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StatusPv").field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl Pv for StatusPv {
    fn facts(&self) -> PvFacts {
        PvFacts { kind: self.kind, count_max: self.count_max, is_read_only: true, class_name: "status" }
    }

    fn read(&self) -> Reading {
        lock(&self.reading).clone()
    }

    fn meta(&self) -> Arc<Meta> {
        self.meta.clone()
    }

    fn put(&self, _: Value, _: &Peer, _: Option<Completion>) -> Result<(), PutRefusal> {
        Err(PutRefusal::ReadOnly)
    }

    fn acknowledge(&self, _: Option<bool>, _: Option<Severity>) -> Result<(), PutRefusal> {
        Err(PutRefusal::ReadOnly)
    }

    fn posts(&self) -> &Posts {
        &self.posts
    }

    fn listeners_changed(&self) {}

    fn attach(&self, attach: &mut dyn FnMut(Reading)) {
        let reading = lock(&self.reading);
        attach(reading.clone());
    }
}

impl fmt::Debug for StatusSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StatusSource").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

/// When CPU use was last measured, and the CPU time of this process until then.
#[derive(Debug)]
struct Cpu {
    at: Instant,
    used: Duration,
}

impl Cpu {
    fn now() -> Cpu {
        Cpu { at: Instant::now(), used: cpu_used() }
    }

    /// CPU use since the last call, as percent of one core.
    fn percent(&mut self) -> f64 {
        let last = std::mem::replace(self, Cpu::now());
        let (used, passed) = (self.used.saturating_sub(last.used), self.at.duration_since(last.at));
        if passed.is_zero() { 0.0 } else { 100.0 * used.as_secs_f64() / passed.as_secs_f64() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::UpdateCounts;

    fn client(user: &str) -> ClientStatus {
        ClientStatus {
            address: "10.0.0.2:4000".parse().unwrap(),
            user: user.to_owned(),
            host: "desk".to_owned(),
            n_channels: 3,
            n_subscriptions: 2,
            queued_bytes: 70,
            n_pvs_waiting: 1,
            updates: UpdateCounts { sent: 9, merged: 4 },
            waiting: Some(Duration::from_millis(1500)),
        }
    }

    #[test]
    fn a_client_is_told_with_what_it_keeps_waiting() {
        let text = json(&[client("o\"per\n")], &Totals::default());

        let expected = "\"list\":[{\"address\":\"10.0.0.2:4000\",\"user\":\"o\\\"per\\u000a\",\"host\":\"desk\",\
                        \"channels\":3,\"subscriptions\":2,\"queued_bytes\":70,\"pvs_waiting\":1,\"sent\":9,\
                        \"merged\":4,\"waiting_s\":1.5}]}";
        assert!(text.ends_with(expected), "{text}");
    }

    #[test]
    fn row_81_the_host_with_most_clients_without_a_channel_is_named() {
        let unused = |address: &str| ClientStatus { address: address.parse().unwrap(), n_channels: 0, ..client("op") };
        let clients = [client("op"), client("op"), unused("10.0.0.3:1"), unused("10.0.0.4:1"), unused("10.0.0.3:2")];

        assert_eq!(unused_host(&clients).as_deref(), Some("10.0.0.3 (2)"));
        assert_eq!(unused_host(&clients[..2]), None);
        assert!(json(&clients, &Totals::default()).contains("\"unused_host\":\"10.0.0.3 (2)\""));
    }

    #[test]
    fn any_number_of_clients_with_any_names_stays_within_the_array() {
        let long = client(&"\u{1}".repeat(100_000));

        let text = json(&vec![long; 10_000], &Totals::default());

        assert!(text.len() <= limit::STATUS_BYTES && text.ends_with("}]}"), "{} bytes", text.len());
    }

    #[test]
    fn the_totals_stand_under_their_names() {
        let counts = ServerCounts {
            updates: UpdateCounts { sent: 21, merged: 22 },
            posted: 23,
            dropped: 24,
            searches: 25,
            refused: 26,
            flawed: 27,
            evicted: 28,
        };

        let text = json(&[], &Totals::of(&[client("a"), client("b")], &counts, &mut Cpu::now()));

        let expected = "{\"clients\":2,\"unused\":0,\"channels\":6,\"subscriptions\":4,\"queued_bytes\":140,\"updates_posted\":23,\
                        \"updates_sent\":21,\"updates_merged\":22,\"updates_dropped\":24,\"searches\":25,\
                        \"refused\":26,\"flawed\":27,\"evicted\":28,\"cpu\":";
        assert!(text.starts_with(expected), "{text}");
        assert!(text.ends_with("\"list\":[]}"), "{text}");
    }

    #[test]
    fn clients_are_separated_by_commas_and_one_that_waits_for_nothing_has_no_time() {
        let idle = ClientStatus { waiting: None, ..client("a") };

        let text = json(&[idle.clone(), idle], &Totals::default());

        assert_eq!(text.matches("\"waiting_s\":null}").count(), 2);
        assert!(text.contains("null},{\"address\""), "{text}");
    }

    #[test]
    fn a_list_that_just_fits_is_given_whole() {
        let room_left = |n_clients: usize| {
            let text = json(&vec![client("x"); n_clients], &Totals::default());
            (text.len(), text.matches("\"user\"").count())
        };
        let (one, two) = (room_left(1).0, room_left(2).0);
        let n_fitting = 1 + (limit::STATUS_BYTES - one) / (two - one);

        assert_eq!(room_left(n_fitting), (one + (n_fitting - 1) * (two - one), n_fitting));
        assert_eq!(room_left(n_fitting + 1).1, n_fitting);
    }

    #[test]
    fn a_string_of_json_has_its_special_characters_escaped_and_is_cut() {
        assert_eq!(quoted("a\"b\\c\td\u{7f}é"), "\"a\\\"b\\\\c\\u0009d\\u007fé\"");
        assert_eq!(quoted(&"x".repeat(1000)).len(), limit::STATUS_NAME_CHARS + 2);
    }

    #[test]
    fn the_processors_time_is_counted_in_per_cent_of_one_core() {
        let start = Instant::now().checked_sub(Duration::from_secs(10)).unwrap();
        let mut cpu = Cpu { at: start, used: Duration::ZERO };

        let percent = cpu.percent();

        let expected = 10.0 * cpu.used.as_secs_f64();
        assert!(percent > 0.0 && (percent / expected - 1.0).abs() < 0.2, "{percent} of {expected}");
        assert!(cpu.at > start);
    }

    #[test]
    fn a_status_is_found_by_its_name_behind_the_prefix_and_all_else_in_the_source_behind_it() {
        struct Nothing;
        impl Source for Nothing {
            fn serves(&self, name: &str) -> bool {
                name == "other"
            }

            fn open(&self, _: &str) -> Option<Arc<dyn Pv>> {
                None
            }
        }
        let with = StatusSource::new(Some("x:ca".into()), Arc::new(Nothing));
        let without = StatusSource::new(None, Arc::new(Nothing));

        for (name, is_served, has_pv) in [
            ("x:ca:CLIENTS", true, true),
            ("x:ca:STATUS", true, true),
            ("x:ca:NONE", false, false),
            ("CLIENTS", false, false),
            ("x:caCLIENTS", false, false),
            ("other", true, false),
        ] {
            assert_eq!((with.serves(name), with.open(name).is_some()), (is_served, has_pv), "{name}");
        }
        assert!(!without.serves("x:ca:CLIENTS") && without.serves("other"));
        assert_eq!((with.n_searches(), without.n_searches()), (6, 2));
        assert_eq!((with.has_prefix(), without.has_prefix()), (true, false));
    }
}
