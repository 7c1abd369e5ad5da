//! What a server says of itself: PVs beside those that it serves, refreshed every second.
//!
//! Nothing is counted for them where values are served: each reactor is asked by a message, and
//! looks at its circuits then.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{fmt, io};

use fodo_ca::ring::Post;
use fodo_data::{Alarm, EventMask, Kind, Meta, Reading, Severity, TimeStamp, Value};

use super::quota::Hosts;
use super::reactor::{Inbox, Message};
use super::{Completion, Peer, Posts, PutRefusal, Pv, PvFacts, Source, UpdateCounts, UpdateTally};
use crate::sync::lock;
use crate::{clock, limit};

/// One client as the server sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientStatus {
    /// Its end of the circuit.
    pub address: SocketAddr,
    /// As it says itself.
    pub user: String,
    /// Likewise.
    pub host: String,
    /// PVs it has a channel to, counted by channel.
    pub n_channels: usize,
    /// Running monitors.
    pub n_subscriptions: usize,
    /// Bytes that it has not taken yet.
    pub queued_bytes: usize,
    /// PVs with posts that are not among these bytes yet.
    pub n_pvs_waiting: usize,
    /// What became of its updates.
    pub updates: UpdateCounts,
    /// For how long there has always been something that it had not taken.
    pub waiting: Option<Duration>,
}

/// The PVs of the status and, behind them, whatever else is served.
pub(super) struct StatusSource {
    prefix: String,
    inner: Arc<dyn Source>,
    pvs: HashMap<&'static str, Arc<StatusPv>>,
    n_searches: AtomicU64,
}

/// The thread that refreshes them; it ends when this is dropped.
#[derive(Debug)]
pub(super) struct Refresher {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

struct StatusPv {
    kind: Kind,
    meta: Arc<Meta>,
    reading: Mutex<Reading>,
    posts: Posts,
}

/// Names behind the prefix, with their units. All are doubles: counts of a long run need more than 32 bits.
const NUMBERS: [(&str, &str); 13] = [
    ("CLIENTS", ""),
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
    ("CPU", "%"),
    ("MEM_RSS", "B"),
];

/// The name of all in one, as JSON in an array of char.
const JSON: &str = "STATUS";

/// What was counted since the server began.
#[derive(Debug)]
struct Counts {
    updates: UpdateCounts,
    n_posted: u64,
    n_dropped: u64,
    n_searches: u64,
    n_refused: u64,
    n_flawed: u64,
}

/// What the numbers are; in their order.
#[derive(Debug, Default)]
struct Totals([f64; NUMBERS.len()]);

impl StatusSource {
    pub(super) fn new(prefix: &str, inner: Arc<dyn Source>) -> StatusSource {
        let mut pvs: HashMap<&'static str, Arc<StatusPv>> =
            NUMBERS.iter().map(|&(name, units)| (name, Arc::new(StatusPv::new(Value::from(0.0), units)))).collect();
        pvs.insert(JSON, Arc::new(StatusPv::new(Value::from(b"{}".to_vec()), "")));
        StatusSource { prefix: prefix.to_owned(), inner, pvs, n_searches: AtomicU64::new(0) }
    }

    fn own(&self, name: &str) -> Option<&Arc<StatusPv>> {
        self.pvs.get(name.strip_prefix(&self.prefix)?.strip_prefix(':')?)
    }

    fn post(&self, clients: &[ClientStatus], totals: &Totals) {
        let time = clock::now().wall;
        for (&(name, _), &number) in NUMBERS.iter().zip(&totals.0) {
            self.pvs[name].post(Value::from(number), time);
        }
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
    /// Refreshes the PVs of `source` every second from what these reactors say.
    pub(super) fn start(
        source: Arc<StatusSource>,
        inboxes: Vec<Arc<Inbox>>,
        tally: Arc<UpdateTally>,
        hosts: Arc<Hosts>,
    ) -> io::Result<Refresher> {
        let (stop, stopped) = mpsc::channel();
        let thread = std::thread::Builder::new().name("fodo-status".into()).spawn(move || {
            let mut cpu = Cpu::now();
            loop {
                let clients = clients(&inboxes);
                let sum =
                    |of: fn(&Inbox) -> &AtomicU64| inboxes.iter().map(|inbox| of(inbox).load(Ordering::Relaxed)).sum();
                let counts = Counts {
                    updates: tally.counts(),
                    n_posted: sum(|inbox| &inbox.updates.posted),
                    n_dropped: sum(|inbox| &inbox.updates.dropped),
                    n_searches: source.n_searches.load(Ordering::Relaxed),
                    n_refused: hosts.n_refused(),
                    n_flawed: hosts.n_flawed(),
                };
                let totals = Totals::of(&clients, &counts, &mut cpu);
                source.post(&clients, &totals);
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
            // One that panicked has said so on stderr.
            let _ = thread.join();
        }
    }
}

/// Every client, those that keep something waiting for longest first.
pub(super) fn clients(inboxes: &[Arc<Inbox>]) -> Vec<ClientStatus> {
    let mut clients = Vec::new();
    let asked: Vec<_> = inboxes
        .iter()
        .map(|inbox| {
            let (sender, answer) = mpsc::channel();
            inbox.push(Message::Status(sender));
            answer
        })
        .collect();
    for answer in asked {
        // A reactor that is busy for longer is left out this time; what it says late goes nowhere.
        clients.extend(answer.recv_timeout(limit::STATUS_ANSWER).unwrap_or_default());
    }
    clients.sort_by_key(|client| std::cmp::Reverse((client.waiting, client.queued_bytes, client.updates.merged)));
    clients
}

impl Totals {
    fn of(clients: &[ClientStatus], counts: &Counts, cpu: &mut Cpu) -> Totals {
        let sum = |of: fn(&ClientStatus) -> usize| clients.iter().map(of).sum::<usize>() as f64;
        Totals([
            clients.len() as f64,
            sum(|client| client.n_channels),
            sum(|client| client.n_subscriptions),
            sum(|client| client.queued_bytes),
            counts.n_posted as f64,
            counts.updates.sent as f64,
            counts.updates.merged as f64,
            counts.n_dropped as f64,
            counts.n_searches as f64,
            counts.n_refused as f64,
            counts.n_flawed as f64,
            cpu.percent(),
            resident_bytes(),
        ])
    }
}

/// The totals by their names, and the clients for as long as there is room.
fn json(clients: &[ClientStatus], totals: &Totals) -> String {
    let mut text = String::from("{");
    for (&(name, _), number) in NUMBERS.iter().zip(&totals.0) {
        text += &format!("{}:{number},", quoted(&name.to_ascii_lowercase()));
    }
    text += "\"list\":[";
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

/// A string of JSON. What clients call themselves is cut where no honest name reaches.
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
    fn new(value: Value, units: &str) -> StatusPv {
        let meta = Arc::new(Meta { units: units.into(), ..Meta::default() });
        let kind = value.kind();
        let reading = Mutex::new(Reading::bare(value));
        StatusPv { kind, meta, reading, posts: Posts::new(limit::STATUS_POSTS) }
    }

    fn post(&self, value: Value, time: TimeStamp) {
        let mut reading = lock(&self.reading);
        *reading = Reading { value, alarm: Alarm::default(), time, meta: None };
        let mask = EventMask::VALUE | EventMask::LOG;
        self.posts.push(Post { mask, reading: reading.clone() });
    }
}

impl Pv for StatusPv {
    fn facts(&self) -> PvFacts {
        let count_max = if self.kind == Kind::U8 { limit::STATUS_BYTES as u32 } else { 1 };
        PvFacts { kind: self.kind, count_max, is_read_only: true, class_name: "status" }
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

/// When the processor's time was last looked at, and how much this process had had.
#[derive(Debug)]
struct Cpu {
    at: Instant,
    used: Duration,
}

impl Cpu {
    fn now() -> Cpu {
        Cpu { at: Instant::now(), used: cpu_used() }
    }

    /// Per cent of one core since the last look.
    fn percent(&mut self) -> f64 {
        let last = std::mem::replace(self, Cpu::now());
        let (used, passed) = (self.used.saturating_sub(last.used), self.at.duration_since(last.at));
        if passed.is_zero() { 0.0 } else { 100.0 * used.as_secs_f64() / passed.as_secs_f64() }
    }
}

fn cpu_used() -> Duration {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(used.tv_sec.try_into().unwrap_or(0), used.tv_nsec.try_into().unwrap_or(0))
}

/// Bytes of memory that this process has in use; NaN where the system does not tell in `/proc`.
fn resident_bytes() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<f64>().ok());
    kib.map_or(f64::NAN, |kib| kib * 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn any_number_of_clients_with_any_names_stays_within_the_array() {
        let long = client(&"\u{1}".repeat(100_000));

        let text = json(&vec![long; 10_000], &Totals::default());

        assert!(text.len() <= limit::STATUS_BYTES && text.ends_with("}]}"), "{} bytes", text.len());
    }
}
