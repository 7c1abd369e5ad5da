//! A well-behaved client on a different host than the hostile ones, and the latencies of its requests.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use fodo_ca::eca::Eca;
use fodo_ca::message::Answer;
use socket2::{Domain, Socket, Type};

use crate::faults::FAULTS;
use crate::raw::{Raw, create, read};
use crate::{PATIENCE, PAUSE};

/// Number of gets on one circuit before a new one is opened.
const GETS: usize = 50;

/// Connects from another address of this host, which servers treat as another host.
pub fn connected_from(own: Ipv4Addr, server: SocketAddr) -> Raw {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.bind(&SocketAddr::from((own, 0)).into()).expect("loopback has many addresses");
    socket.connect(&server.into()).expect("the server listens");
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE)).expect("it is a socket");
    Raw { stream }
}

/// The well-behaved client.
pub struct Neighbour {
    own: Ipv4Addr,
    server: SocketAddr,
}

/// Latencies in microseconds, by the fault active at the time.
pub struct Latencies {
    gets: Vec<Vec<u32>>,
    connects: Vec<Vec<u32>>,
    /// How late this thread was woken after each pause, whatever the server does.
    wakes: Vec<u32>,
}

/// Sorted latencies of some requests.
pub struct Summary {
    gets: Vec<u32>,
    connects: Vec<u32>,
}

impl Neighbour {
    /// A client with this address.
    pub fn at(own: Ipv4Addr, server: SocketAddr) -> Neighbour {
        Neighbour { own, server }
    }

    /// Opens a circuit and a channel; returns the time that it took.
    pub fn connect(&self) -> (Raw, Duration) {
        let start = Instant::now();
        let mut raw = connected_from(self.own, self.server);
        raw.send(&[create(0, "f:longin")]);
        raw.until(|answer| matches!(answer, Answer::CreateChan { .. }));
        (raw, start.elapsed())
    }

    /// Gets values, regularly on a new circuit, until `is_over`.
    pub fn watch(&self, fault: &AtomicUsize, is_over: &AtomicBool) -> Latencies {
        let none = || vec![Vec::new(); FAULTS.len()];
        let mut latencies = Latencies { gets: none(), connects: none(), wakes: Vec::new() };
        while !is_over.load(Ordering::Relaxed) {
            let (mut raw, after) = self.connect();
            latencies.connects[fault.load(Ordering::Relaxed)].push(micros(after));
            for ioid in 0..GETS as u32 {
                let start = Instant::now();
                get(&mut raw, ioid);
                latencies.gets[fault.load(Ordering::Relaxed)].push(micros(start.elapsed()));
                let start = Instant::now();
                std::thread::sleep(PAUSE);
                latencies.wakes.push(micros(start.elapsed().saturating_sub(PAUSE)));
            }
        }
        latencies
    }
}

fn get(raw: &mut Raw, ioid: u32) {
    raw.send(&[read(ioid)]);
    let answer = raw.until(|answer| matches!(answer, Answer::ReadNotify { .. })).0;
    assert!(matches!(answer, Answer::ReadNotify { status: Eca::NORMAL, .. }), "{answer:?}");
}

fn micros(duration: Duration) -> u32 {
    u32::try_from(duration.as_micros()).unwrap_or(u32::MAX)
}

impl Latencies {
    /// Latencies of the requests while one fault was active.
    pub fn of(&self, fault: usize) -> Summary {
        Summary::new(self.gets[fault].clone(), self.connects[fault].clone())
    }

    /// The 99th percentile of the time in which the machine wakes a thread.
    pub fn p99_of_wakes(&self) -> Duration {
        let mut wakes = self.wakes.clone();
        wakes.sort_unstable();
        quantile(&wakes, 99)
    }

    pub fn all(&self) -> Summary {
        Summary::new(self.gets.concat(), self.connects.concat())
    }
}

impl Summary {
    fn new(mut gets: Vec<u32>, mut connects: Vec<u32>) -> Summary {
        gets.sort_unstable();
        connects.sort_unstable();
        Summary { gets, connects }
    }

    /// The 99th percentile of the gets.
    pub fn p99(&self) -> Duration {
        quantile(&self.gets, 99)
    }
}

fn quantile(sorted: &[u32], percent: usize) -> Duration {
    let index = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    Duration::from_micros(u64::from(sorted.get(index).copied().unwrap_or_default()))
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Summary { gets, connects } = self;
        let [half, most] = [50, 99].map(|percent| quantile(gets, percent));
        let worst = quantile(connects, 100);
        write!(f, "{} gets, p50 {half:?}, p99 {most:?}; {} connects, worst {worst:?}", gets.len(), connects.len())
    }
}
