//! Faults at random, for as long as one likes, against `fodo ioc` with clients beside that behave well. The row is that
//! of `docs/reference/faults.md`.
#![forbid(unsafe_code)]

#[path = "../../crates/net/tests/faults/raw.rs"]
#[expect(dead_code, reason = "the rest is for the tests that are about it")]
mod raw;

use std::collections::VecDeque;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fodo_ca::message::Request;
use fodo_conformance::place::{database, free_port, program};
use fodo_conformance::process::{Process, confine};
use fodo_net::{ClientConfig, Context, Monitor, MonitorEvent, MonitorOptions, Reading};

use raw::{Raw, bare, create, echo, put, read, subscribe};

/// How long anything may take that is to happen.
const PATIENCE: Duration = Duration::from_secs(10);

/// Connections of ill-behaved clients that are held open at once.
const N_HELD: usize = 40;

/// What memory may grow by once it is warm. A leak of a hundred bytes with every fault of an hour would be more.
const GROWTH_BYTES_MAX: u64 = 32 << 20;

/// Numbers that look random and come back with their seed.
struct Chance(u64);

impl Chance {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % n
    }

    fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.below(256) as u8).collect()
    }
}

/// Does one thing that a client should not do. What it leaves open is kept for a while.
fn misbehave(chance: &mut Chance, server: SocketAddr, held: &mut VecDeque<Raw>) {
    let port = server.port();
    match chance.below(9) {
        0 => held.push_back(saying(Raw::connected(port), b"GET / HTTP/1.1\r\n\r\n")),
        1 => held.push_back(saying(Raw::connected(port), &chance.bytes(200))),
        2 => held.push_back(saying(Raw::connected(port), &echo()[..1 + chance.below(15)])),
        3 => (0..50).for_each(|_| drop(TcpStream::connect(server))),
        4 => held.push_back(saying(Raw::with_channel(port, "f:big"), &read(1).repeat(1000))),
        5 => {
            let mut dying = Raw::with_channel(port, "f:count20");
            dying.say(&(0..100).map(subscribe).collect::<Vec<_>>());
            let last = put(1);
            dying.say(&[last[..1 + chance.below(last.len())].to_vec()]);
        }
        6 => {
            let mut conversation = [create(1, "f:ao"), subscribe(1), read(2), put(3), echo()].concat();
            for _ in 0..3 {
                let at = chance.below(conversation.len());
                conversation[at] = chance.below(256) as u8;
            }
            held.push_back(saying(Raw::with_channel(port, "f:longout"), &conversation));
        }
        7 => {
            let mut off = Raw::with_channel(port, "f:count21");
            off.say(&[subscribe(1), bare(Request::EventsOff {})]);
            held.push_back(off);
        }
        _ => {
            let stray = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has a port");
            for _ in 0..20 {
                let n_bytes = chance.below(1400);
                // What the system does not take is no fault of the server.
                let _ = stray.send_to(&chance.bytes(n_bytes), server);
            }
        }
    }
    while held.len() > N_HELD {
        held.pop_front();
    }
}

/// Says it unless the server does not take it, or has closed: no matter which.
fn saying(mut raw: Raw, bytes: &[u8]) -> Raw {
    raw.stream.set_nonblocking(true).expect("it is a socket");
    let _ = raw.stream.write(bytes);
    raw
}

/// The bytes of memory that a process has, and how many files it has open.
fn memory_and_files(process: &Process) -> (u64, usize) {
    let account = process.account().expect("it runs");
    let of_process = |what: &str| account.join(what);
    let pages = std::fs::read_to_string(of_process("statm")).expect("it runs");
    let resident: u64 = pages.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("statm has numbers");
    (resident * 4096, std::fs::read_dir(of_process("fd")).expect("it runs").count())
}

fn number(reading: &Reading) -> f64 {
    reading.value.first().and_then(|value| value.to_f64().ok()).expect("a number")
}

/// Watches a PV that counts until it is over; gives how many updates came, and how many are unexplained.
fn account(monitor: &Monitor, is_over: &AtomicBool) -> (u64, i64) {
    let (mut n, mut span) = (0, None);
    while !is_over.load(Ordering::Relaxed) {
        match monitor.next(Duration::from_millis(200)) {
            Some(MonitorEvent::Update(reading)) => {
                let value = number(&reading);
                let (first, _) = span.unwrap_or((value, value));
                span = Some((first, value));
                n += 1;
            }
            Some(MonitorEvent::Connected(_)) | None => {}
            Some(other) => panic!("a client that behaves well is told {other:?}"),
        }
    }
    let (first, last) = span.expect("there were updates");
    let counts = monitor.counts();
    (n, (last - first) as i64 + 1 - n as i64 - counts.merged as i64)
}

/// Runs it all for so long.
fn soak(duration: Duration, seed: u64) {
    let port = free_port();
    let mut command = Command::new(program());
    command.args(["ioc", "-m", "P=f:", "--interface", "127.0.0.1", "--port", &port.to_string(), "-d"]);
    command.arg(database("records.db"));
    confine(&mut command, port);
    let mut ioc = Process::start("fodo ioc", &mut command).expect("it starts");
    ioc.line_that_begins("fodo ioc: serving", PATIENCE).expect("it serves");
    let server = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let context = Context::new(ClientConfig::at(vec![server]));
    let channels: Vec<_> =
        (0..10).map(|index| context.channel(&format!("f:count{index:02}")).expect("a channel")).collect();
    let monitors: Vec<_> = channels.iter().map(|channel| channel.monitor(MonitorOptions::default())).collect();
    let longin = context.channel("f:longin").expect("a channel");
    longin.connect(PATIENCE).expect("it is there");
    let big = context.channel("f:big").expect("a channel");
    big.put(vec![7; 100_000], PATIENCE).expect("an array for those who ask and do not read");
    let (_, files_before) = memory_and_files(&ioc);

    let is_over = AtomicBool::new(false);
    let (accounts, n_operations, warm, end) = std::thread::scope(|scope| {
        let accounting: Vec<_> = monitors.iter().map(|monitor| scope.spawn(|| account(monitor, &is_over))).collect();
        let operating = scope.spawn(|| {
            let mut n_operations = 0;
            while !is_over.load(Ordering::Relaxed) {
                longin.put(n_operations, PATIENCE).expect("a put that completes");
                assert_eq!(number(&longin.get(PATIENCE).expect("a get")), f64::from(n_operations));
                n_operations += 1;
            }
            n_operations
        });
        let (mut chance, mut held, start, mut warm) = (Chance(seed), VecDeque::new(), Instant::now(), None);
        while start.elapsed() < duration && !operating.is_finished() {
            misbehave(&mut chance, server, &mut held);
            if warm.is_none() && start.elapsed() > duration / 3 {
                warm = Some(memory_and_files(&ioc));
            }
        }
        let end = memory_and_files(&ioc);
        is_over.store(true, Ordering::Relaxed);
        let accounts: Vec<_> = accounting.into_iter().map(|one| one.join().expect("no panic")).collect();
        (accounts, operating.join().expect("no panic"), warm.expect("a third of the time has passed"), end)
    });

    println!("seed {seed}: {n_operations} operations, {accounts:?}, {} MB and then {} MB", warm.0 >> 20, end.0 >> 20);
    assert!(accounts.iter().all(|&(n, unexplained)| n > 0 && unexplained == 0), "seed {seed}: {accounts:?}");
    assert!(end.0 < warm.0 + GROWTH_BYTES_MAX, "seed {seed}: {} bytes, then {}", warm.0, end.0);
    let start = Instant::now();
    while memory_and_files(&ioc).1 > files_before {
        assert!(start.elapsed() < PATIENCE, "seed {seed}: descriptors are kept");
        std::thread::yield_now();
    }
}

#[test]
fn row_79_ten_seconds_of_faults_at_random_harm_nobody_who_behaves_well() {
    soak(Duration::from_secs(10), 79);
}

#[test]
#[ignore = "takes an hour, or FODO_SOAK_MINUTES; `cargo xtask soak MINUTES` runs it"]
fn row_79_an_hour_of_faults_at_random_harms_nobody_who_behaves_well() {
    let minutes = std::env::var("FODO_SOAK_MINUTES").ok().and_then(|minutes| minutes.parse().ok()).unwrap_or(60);
    let seed = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(1, |since| since.as_secs());
    soak(Duration::from_secs(60 * minutes), seed);
}
