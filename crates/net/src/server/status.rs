//! The status of a server, published as PVs and refreshed every second.
//!
//! Serving values costs nothing extra for this: a message asks each reactor, which then inspects its circuits.

use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fodo_data::{Meta, Reading, Value};

use super::observer::{ClientStatus, Observer, ServerCounts, host_with_most_unused_clients};
use super::{PvTable, SharedPv};
use crate::process::{cpu_used, resident_bytes};
use crate::protocol::Protocol;
use crate::{clock, limit};

/// Refreshes some PVs from the status of the server.
pub(super) type Refresh = Box<dyn FnMut(&[ClientStatus], &ServerCounts) + Send>;

/// The thread that refreshes status PVs; it ends when this is dropped.
#[derive(Debug)]
pub(super) struct StatusThread {
    /// `None` once it has to end.
    refreshes: Option<Sender<Refresh>>,
    thread: Option<JoinHandle<()>>,
}

/// The PVs with the status of a server.
pub(super) struct StatusPvs {
    /// In the order of [`NUMBERS`].
    numbers: [SharedPv; NUMBERS.len()],
    unused_host: SharedPv,
    json: SharedPv,
    cpu: Cpu,
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

impl StatusPvs {
    pub(super) fn new() -> StatusPvs {
        let json = SharedPv::builder(b"{}".to_vec()).count_max(limit::STATUS_BYTES as u32).build();
        let numbers = NUMBERS.map(|(_, units)| SharedPv::builder(0.0).meta(in_units(units)).build());
        StatusPvs { numbers, unused_host: SharedPv::new(""), json, cpu: Cpu::now() }
    }

    /// The PVs by their names, which are the prefix, a colon and the name of the value.
    pub(super) fn table(&self, prefix: &str) -> PvTable {
        let numbers = NUMBERS.iter().zip(&self.numbers).map(|(&(name, _), pv)| (name, pv));
        let pvs = numbers.chain([(UNUSED_HOST, &self.unused_host), (JSON, &self.json)]);
        pvs.map(|(name, pv)| (format!("{prefix}:{name}"), pv.clone())).collect()
    }

    pub(super) fn refresh(&mut self, clients: &[ClientStatus], counts: &ServerCounts) {
        let totals = Totals::of(clients, counts, &mut self.cpu);
        let time = clock::now().wall;
        let post = |pv: &SharedPv, value: Value| pv.post_reading(Reading { time, ..Reading::bare(value) });
        for (pv, &number) in self.numbers.iter().zip(&totals.0) {
            post(pv, Value::from(number));
        }
        post(&self.unused_host, Value::from(unused_host(clients).unwrap_or_default().as_str()));
        post(&self.json, Value::from(json(clients, &totals).into_bytes()));
    }
}

impl StatusThread {
    pub(super) fn start(observer: Observer) -> io::Result<StatusThread> {
        let (refreshes, added) = mpsc::channel();
        let thread = std::thread::Builder::new().name("fodo-status".into());
        let thread = thread.spawn(move || refresh_every_second(&observer, &added))?;
        Ok(StatusThread { refreshes: Some(refreshes), thread: Some(thread) })
    }

    /// Calls `refresh` soon, and then every second.
    pub(super) fn add(&self, refresh: Refresh) {
        if let Some(refreshes) = &self.refreshes {
            // If the thread has panicked, the panic hook has already reported it on stderr.
            let _ = refreshes.send(refresh);
        }
    }
}

fn refresh_every_second(observer: &Observer, added: &Receiver<Refresh>) {
    let mut refreshes: Vec<Refresh> = Vec::new();
    let mut next_at = Instant::now() + limit::STATUS_PERIOD;
    loop {
        match added.recv_timeout(next_at.saturating_duration_since(Instant::now())) {
            Ok(mut refresh) => {
                refresh(&observer.clients(), &observer.counts());
                refreshes.push(refresh);
            }
            Err(RecvTimeoutError::Timeout) => {
                let (clients, counts) = (observer.clients(), observer.counts());
                refreshes.iter_mut().for_each(|refresh| refresh(&clients, &counts));
                next_at = Instant::now() + limit::STATUS_PERIOD;
            }
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

impl Drop for StatusThread {
    fn drop(&mut self) {
        self.refreshes.take();
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
            resident_bytes().map_or(f64::NAN, |bytes| bytes as f64),
        ])
    }
}

fn in_units(units: &str) -> Meta {
    Meta { units: units.into(), ..Meta::default() }
}

/// The host with the most clients without a channel, and their number: `10.0.0.2 (17)`.
fn unused_host(clients: &[ClientStatus]) -> Option<String> {
    host_with_most_unused_clients(clients).map(|(host, n)| format!("{host} ({n})"))
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
            "{}{{\"address\":{},\"protocol\":\"{}\",\"user\":{},\"host\":{},\"channels\":{},\"subscriptions\":{},\"queued_bytes\":{},\
             \"pvs_waiting\":{},\"sent\":{},\"merged\":{},\"waiting_s\":{waiting}}}",
            if index == 0 { "" } else { "," },
            quoted(&client.address.to_string()),
            protocol_name(client.protocol),
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

/// A protocol as it is written before the name of a PV.
fn protocol_name(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Ca => "ca",
        Protocol::Pva => "pva",
    }
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
            protocol: Protocol::Pva,
            user: user.to_owned(),
            host: "desk".to_owned(),
            is_encrypted: false,
            n_channels: 3,
            n_subscriptions: 2,
            queued_bytes: 70,
            n_pvs_waiting: 1,
            updates: UpdateCounts { sent: 9, merged: 4 },
            waiting: Some(Duration::from_millis(1500)),
        }
    }

    #[test]
    fn the_client_status_includes_queued_bytes_and_waiting_pvs() {
        let text = json(&[client("o\"per\n")], &Totals::default());

        let expected = "\"list\":[{\"address\":\"10.0.0.2:4000\",\"protocol\":\"pva\",\"user\":\"o\\\"per\\u000a\",\"host\":\"desk\",\
                        \"channels\":3,\"subscriptions\":2,\"queued_bytes\":70,\"pvs_waiting\":1,\"sent\":9,\
                        \"merged\":4,\"waiting_s\":1.5}]}";
        assert!(text.ends_with(expected), "{text}");
    }

    // Row 81 of docs/reference/faults.md.
    #[test]
    fn the_status_names_the_host_with_most_unused_clients() {
        let unused = |address: &str| ClientStatus { address: address.parse().unwrap(), n_channels: 0, ..client("op") };
        let clients = [client("op"), client("op"), unused("10.0.0.3:1"), unused("10.0.0.4:1"), unused("10.0.0.3:2")];

        assert_eq!(unused_host(&clients).as_deref(), Some("10.0.0.3 (2)"));
        let of_ipv6 = [unused("[2001:db8::1]:1"), unused("[2001:db8::2]:1"), unused("10.0.0.3:1")];
        assert_eq!(unused_host(&of_ipv6).as_deref(), Some("2001:db8:: (2)"));
        assert_eq!(unused_host(&clients[..2]), None);
        assert!(json(&clients, &Totals::default()).contains("\"unused_host\":\"10.0.0.3 (2)\""));
    }

    #[test]
    fn the_status_text_stays_within_its_size_limit() {
        let long = client(&"\u{1}".repeat(100_000));

        let text = json(&vec![long; 10_000], &Totals::default());

        assert!(text.len() <= limit::STATUS_BYTES && text.ends_with("}]}"), "{} bytes", text.len());
    }

    #[test]
    fn the_status_totals_have_their_names() {
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
    fn the_client_list_is_valid_json_and_idle_clients_have_no_waiting_time() {
        let idle = ClientStatus { waiting: None, ..client("a") };

        let text = json(&[idle.clone(), idle], &Totals::default());

        assert_eq!(text.matches("\"waiting_s\":null}").count(), 2);
        assert!(text.contains("null},{\"address\""), "{text}");
    }

    #[test]
    fn a_client_list_of_exactly_the_maximum_size_is_complete() {
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
    fn json_strings_are_escaped_and_truncated() {
        assert_eq!(quoted("a\"b\\c\td\u{7f}é"), "\"a\\\"b\\\\c\\u0009d\\u007fé\"");
        assert_eq!(quoted(&"x".repeat(1000)).len(), limit::STATUS_NAME_CHARS + 2);
    }

    #[test]
    fn cpu_usage_is_reported_in_percent_of_one_core() {
        let start = Instant::now().checked_sub(Duration::from_secs(10)).unwrap();
        let mut cpu = Cpu { at: start, used: Duration::ZERO };

        let percent = cpu.percent();

        let expected = 10.0 * cpu.used.as_secs_f64();
        assert!(percent > 0.0 && (percent / expected - 1.0).abs() < 0.2, "{percent} of {expected}");
        assert!(cpu.at > start);
    }

    #[test]
    fn each_status_pv_has_its_name_after_the_prefix() {
        let names = StatusPvs::new().table("x:ca").names();

        assert_eq!(names.len(), NUMBERS.len() + 2);
        for name in ["x:ca:CLIENTS", "x:ca:STATUS", "x:ca:UNUSED_HOST"] {
            assert!(names.iter().any(|known| known == name), "{name}");
        }
    }
}
