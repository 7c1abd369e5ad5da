//! Cost of records in a soft IOC: memory, loading, scans, chains, puts; and the cost of idle clients.
//!
//! Every question starts a separate server with a database made for it. The client is ours, on a thread of this process
//! pinned to the client's CPU.

use std::fmt::Write as _;
use std::net::{SocketAddr, SocketAddrV4};
use std::path::Path;
use std::time::{Duration, Instant};

use fodo_net::{Channel, ClientConfig, Context};

use super::cast::TemporaryDatabase;
use super::usage::Usage;
use super::{on_cpu, unavailable};
use crate::driver::raw::{Destination, RawDriver};
use crate::driver::{Driver, DriverFailure};
use crate::floor;
use crate::limit::OPERATION_MAX;
use crate::peers;
use crate::placement::{CpuChoice, Placement};
use crate::process::Ports;
use crate::protocol::LabProtocol;
use crate::server::{ServerKind, ServerUnderTest};

/// The server under test, and where both ends run.
#[derive(Clone, Copy, Debug)]
pub struct IocBenchmark<'a> {
    /// The server.
    pub server: ServerKind,
    /// Placement of the client.
    pub placement: Placement,
    /// The CPUs.
    pub cpus: &'a CpuChoice,
}

/// Cost of a database with many records.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DatabaseCost {
    /// Memory per record, all included.
    pub record_bytes: f64,
    /// Time from the start of the program until it serves, minus the same time with a single record.
    pub time: Duration,
}

/// Cost of a client that has a circuit and a channel and is idle.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct IdleClientCost {
    /// Memory of the server per client.
    pub client_bytes: f64,
    /// Threads of the server per client.
    pub client_threads: f64,
}

/// Duration of a put with completion, one put after the other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RoundTrips {
    /// The median of the puts.
    pub put: Duration,
    /// The median of round trips with as many bytes over a raw socket.
    pub floor: Duration,
}

/// A server with its own database; both end when it is dropped.
struct StartedIoc {
    reached: ServerAccess,
    time: Duration,
    _server: ServerUnderTest,
    _file: TemporaryDatabase,
}

/// How to reach and inspect a server.
struct ServerAccess {
    process: String,
    ports: Ports,
}

impl ServerAccess {
    fn usage(&self) -> Usage {
        Usage::of_process(&self.process)
    }

    fn context(&self) -> Context {
        let Ports { host, server, .. } = self.ports;
        Context::new(ClientConfig::with_addresses(vec![SocketAddr::from((host, server))]))
    }
}

impl IocBenchmark<'_> {
    fn start(&self, records: &str) -> Result<StartedIoc, DriverFailure> {
        let file = TemporaryDatabase::write(records).map_err(|why| unavailable("the database", &why))?;
        let start = Instant::now();
        let server = ServerUnderTest::start(self.server, file.path(), self.cpus.server_cpu, None, &peers::present())?;
        let time = start.elapsed();
        let reached = ServerAccess { process: server.process_number(), ports: server.ports() };
        Ok(StartedIoc { reached, time, _server: server, _file: file })
    }

    /// Loads `n` records of type ao.
    pub fn load(&self, n: u32) -> Result<DatabaseCost, DriverFailure> {
        let few = self.start(&numbered("ao", 1, ""))?;
        let (few_bytes, few_time) = (few.reached.usage().rss_bytes, few.time);
        drop(few);
        let many = self.start(&numbered("ao", n, ""))?;
        // If the last record exists, all do.
        let reached = &many.reached;
        self.as_client(|| connected(&reached.context(), &name(n.saturating_sub(1))))?;
        let grown = many.reached.usage().rss_bytes.saturating_sub(few_bytes);
        let others = f64::from(n.saturating_sub(1).max(1));
        Ok(DatabaseCost { record_bytes: grown as f64 / others, time: many.time.saturating_sub(few_time) })
    }

    /// Connects `n` clients to one record, each with its own circuit.
    pub fn idle_clients(&self, n: u32) -> Result<IdleClientCost, DriverFailure> {
        let started = self.start(&numbered("ao", 1, ""))?;
        let reached = &started.reached;
        self.as_client(|| {
            let first = reached.context();
            let _channel = connected(&first, &name(0))?;
            let before = reached.usage();
            let mut clients = Vec::new();
            for _ in 0..n {
                let context = reached.context();
                let channel = connected(&context, &name(0))?;
                clients.push((context, channel));
            }
            let after = reached.usage();
            let each = |after: u64, before: u64| after.saturating_sub(before) as f64 / f64::from(n.max(1));
            Ok(IdleClientCost {
                client_bytes: each(after.rss_bytes, before.rss_bytes),
                client_threads: each(after.threads, before.threads),
            })
        })
    }

    /// CPU time per second of `n` records that count ten times a second, without clients.
    pub fn scans(&self, n: u32, counted: Duration) -> Result<f64, DriverFailure> {
        let started = self.start(&numbered("calc", n, "field(SCAN, \".1 second\") field(CALC, \"VAL+1\")"))?;
        let reached = &started.reached;
        self.as_client(|| {
            let context = reached.context();
            let ends = [connected(&context, &name(0))?, connected(&context, &name(n.saturating_sub(1)))?];
            let values = || ends.iter().map(number).collect::<Result<Vec<f64>, DriverFailure>>();
            let (before, usage, start) = (values()?, reached.usage(), Instant::now());
            std::thread::sleep(counted);
            let (after, elapsed) = (values()?, start.elapsed().as_secs_f64());
            let cpu_s = reached.usage().since(usage).cpu_s;
            let expected = (elapsed * 10.0) as usize;
            for (before, after) in before.iter().zip(&after) {
                let n = (after - before).round() as usize;
                if n.abs_diff(expected) > 1 + expected / 10 {
                    return Err(DriverFailure::WrongCount { n, expected });
                }
            }
            Ok(cpu_s / elapsed)
        })
    }

    /// Records processed per second when one put processes `n` records linked by FLNK; the puts are with completion,
    /// one after the other.
    pub fn chain(&self, n: u32, n_puts: u32) -> Result<f64, DriverFailure> {
        let mut records = String::new();
        for number in 0..n {
            let (own, next) = (name(number), name(number + 1));
            let forward = if number + 1 < n { format!(" field(FLNK, \"{next}\")") } else { String::new() };
            let _ = writeln!(records, "record(calc, \"{own}\") {{ field(CALC, \"VAL+1\"){forward} }}");
        }
        let started = self.start(&records)?;
        let reached = &started.reached;
        self.as_client(|| {
            let context = reached.context();
            let first = connected(&context, &format!("{}.PROC", name(0)))?;
            let last = connected(&context, &name(n.saturating_sub(1)))?;
            first.put_timeout(1.0, OPERATION_MAX).map_err(failed("put"))?;
            let (before, start) = (number(&last)?, Instant::now());
            for _ in 0..n_puts {
                first.put_timeout(1.0, OPERATION_MAX).map_err(failed("put"))?;
            }
            let elapsed = start.elapsed().as_secs_f64();
            let (n_processed, expected) = ((number(&last)? - before).round() as usize, n_puts as usize);
            if n_processed != expected {
                return Err(DriverFailure::WrongCount { n: n_processed, expected });
            }
            Ok(f64::from(n) * f64::from(n_puts) / elapsed)
        })
    }

    /// Puts with completion to one record, one after the other, alternating with as many bytes over a raw socket.
    pub fn round_trips(&self, n_puts: u32) -> Result<RoundTrips, DriverFailure> {
        let started = self.start(&numbered("ao", 1, ""))?;
        let raw =
            ServerUnderTest::start(ServerKind::Raw, Path::new(""), self.cpus.server_cpu, None, &peers::present())?;
        let Ports { host, server, .. } = raw.ports();
        let reached = &started.reached;
        self.as_client(|| {
            let context = reached.context();
            let channel = connected(&context, &name(0))?;
            let mut circuit = RawDriver::new(SocketAddrV4::new(host, server), Destination::Fresh, LabProtocol::Ca);
            circuit.open("", 1)?;
            let (mut puts, mut floors) = (Vec::new(), Vec::new());
            for value in 0..n_puts {
                let start = Instant::now();
                channel.put_timeout(f64::from(value), OPERATION_MAX).map_err(failed("put"))?;
                puts.push(start.elapsed());
                let start = Instant::now();
                circuit.round_trip(floor::PUT)?;
                floors.push(start.elapsed());
            }
            let (value, expected) = (number(&channel)?, n_puts.saturating_sub(1));
            if value != f64::from(expected) {
                return Err(DriverFailure::WrongCount { n: value as usize, expected: expected as usize });
            }
            Ok(RoundTrips { put: median(puts), floor: median(floors) })
        })
    }

    /// Does `work` on the client's CPU.
    fn as_client<T: Send>(&self, work: impl FnOnce() -> Result<T, DriverFailure> + Send) -> Result<T, DriverFailure> {
        on_cpu(self.cpus.client_cpu(self.placement), work)
    }
}

fn name(number: u32) -> String {
    format!("ioc:{number:06}")
}

fn numbered(record_type: &str, n: u32, fields: &str) -> String {
    let mut records = String::new();
    for number in 0..n {
        let _ = writeln!(records, "record({record_type}, \"{}\") {{ {fields} }}", name(number));
    }
    records
}

fn failed<E: std::fmt::Display>(what: &str) -> impl Fn(E) -> DriverFailure + '_ {
    move |why| DriverFailure::Operation { what: what.into(), why: why.to_string() }
}

fn connected(context: &Context, name: &str) -> Result<Channel, DriverFailure> {
    let channel = context.channel(name).map_err(failed("making a channel"))?;
    channel.connect_timeout(OPERATION_MAX).map_err(failed("connecting"))?;
    Ok(channel)
}

fn number(channel: &Channel) -> Result<f64, DriverFailure> {
    let value = channel.get_timeout(OPERATION_MAX).map_err(failed("get"))?.value;
    let number = value.first().and_then(|value| value.to_f64().ok());
    number.ok_or_else(|| DriverFailure::Protocol { line: format!("{value:?}") })
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}
