//! Worker processes of the laboratory: launcher, raw server, drivers.

use std::ffi::OsString;
use std::io::{Write, stdin, stdout};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;

use crate::clu::echo::ECHO_READY;
use crate::driver::fodo::FodoDriver;
use crate::driver::libca::{Libca, LibcaWatcher};
use crate::driver::raw::{Destination, RawDriver};
use crate::driver::{ClientUnderTest, Driver, DriverFailure, serve, serve_slowed, trial};
use crate::load;
use crate::load::book::UpdateLog;
use crate::load::double::Misbehavior;
use crate::load::tally::NumberEncoding;
use crate::plant::{self, RunLimits};
use crate::protocol::LabProtocol;
use crate::server::{RAW_READY, ServerKind};

/// Arguments of `fodo lab worker`.
#[derive(Debug, Subcommand)]
pub enum WorkerCommand {
    /// Pin to a CPU, ask the kernel to end with the laboratory, become another program.
    Launch {
        /// The CPU.
        #[arg(long)]
        cpu: Option<usize>,
        /// The process id of the laboratory.
        #[arg(long)]
        parent: u32,
        /// The program and its arguments.
        #[arg(last = true, required = true)]
        words: Vec<OsString>,
    },
    /// Serve bytes over a raw socket.
    ServeRaw {
        /// The address to listen at.
        host: Ipv4Addr,
    },
    /// Drive a raw socket.
    DriveRaw {
        /// Address of the server.
        server: SocketAddrV4,
        /// Read large answers into reused memory.
        #[arg(long)]
        reused: bool,
        /// The protocol whose messages have the same sizes.
        #[arg(long, default_value = "ca")]
        protocol: LabProtocol,
    },
    /// Drive our client.
    DriveFodo {
        /// Slow down every get by this percentage, to test whether it is detected.
        #[arg(long, default_value_t = 0)]
        slower_per_cent: u32,
        /// Read large answers into reused memory.
        #[arg(long)]
        into: bool,
        /// The protocol of names without a scheme.
        #[arg(long, default_value = "ca")]
        protocol: LabProtocol,
    },
    /// Measure a plant; puts only if allowed.
    DrivePlant {
        /// Search addresses.
        #[arg(long, required = true)]
        search: Vec<SocketAddr>,
        #[command(flatten)]
        caps: RunLimits,
    },
    /// Serve counters that change on schedule.
    ServeLoad {
        /// Number of PVs.
        #[arg(long)]
        pvs: u32,
        #[command(flatten)]
        at: load::worker::ServedAt,
    },
    /// Serve an array that changes as fast as it is sent.
    ServeStream {
        /// Its number of elements.
        #[arg(long)]
        elements: usize,
        #[command(flatten)]
        at: load::worker::ServedAt,
    },
    /// Put numbers to a server's records on schedule, or let the records count.
    ProduceLoad {
        /// Number of PVs.
        #[arg(long)]
        pvs: u32,
        /// How values encode their number: checked ones are put, plain ones count by themselves.
        #[arg(long)]
        numbers: NumberEncoding,
        /// Misbehave in one way.
        #[arg(long)]
        double: Option<Misbehavior>,
        /// Number of the server's process.
        #[arg(long)]
        server: String,
        /// Where the server reports the updates that it has sent and merged.
        #[arg(long)]
        metrics: Option<std::net::SocketAddr>,
    },
    /// Subscribe to these counters and count updates.
    WatchLoad {
        /// How values encode their number.
        #[arg(long, default_value = "checked")]
        numbers: NumberEncoding,
        /// Misbehave in one way.
        #[arg(long)]
        double: Option<Misbehavior>,
        /// Take the updates of all subscriptions from one monitor group.
        #[arg(long)]
        group: bool,
    },
    /// Subscribe through libca and count updates.
    WatchLibca {
        /// The library.
        libca: PathBuf,
        /// The library it depends on.
        libcom: PathBuf,
        /// How values encode their number.
        #[arg(long)]
        numbers: NumberEncoding,
    },
    /// Drive libca.
    DriveLibca {
        /// The library.
        libca: PathBuf,
        /// The library it depends on.
        libcom: PathBuf,
        /// Instead, get one value, as `caget` does, and print it.
        #[arg(long)]
        get: Option<String>,
    },
    /// Return each datagram of study 004.
    ServeCluEcho {
        /// Decrypt and encrypt each of them.
        #[arg(long)]
        encrypts: bool,
        /// Lose each datagram whose number is a multiple of this, to test whether it is detected.
        #[arg(long)]
        lose_every: Option<u64>,
    },
    /// Send the requests of study 004.
    DriveClu(crate::clu::worker::DriveCluArguments),
    /// Forward all data with a delay.
    Delay {
        /// Address at which clients connect and search.
        #[arg(long)]
        at: SocketAddr,
        /// Address of the server.
        #[arg(long)]
        to: SocketAddr,
        /// Delay in either direction, in microseconds.
        #[arg(long)]
        one_way_us: u64,
    },
    /// Send every request to the driver of a client, on a small scale, and print its answers.
    TryDriver {
        /// The client.
        client: ClientUnderTest,
        /// Number of channels or contexts.
        #[arg(long, default_value_t = 20)]
        n: usize,
        /// The protocol, for a client that has both.
        #[arg(long)]
        protocol: Option<LabProtocol>,
        /// The server, instead of that of EPICS.
        #[arg(long)]
        server: Option<ServerKind>,
    },
}

impl WorkerCommand {
    /// Runs the worker.
    pub fn run(self) -> ExitCode {
        let done = match self {
            WorkerCommand::Launch { cpu, parent, words } => Err(crate::process::become_program(cpu, parent, &words)),
            WorkerCommand::ServeRaw { host } => crate::floor::serve(host, announce),
            WorkerCommand::DriveRaw { server, reused, protocol } => {
                let destination = if reused { Destination::Reused } else { Destination::Fresh };
                drive(RawDriver::new(server, destination, protocol))
            }
            WorkerCommand::ServeLoad { pvs, at } => load::worker::serve(pvs, at),
            WorkerCommand::ServeStream { elements, at } => load::worker::serve_stream(elements, at),
            WorkerCommand::WatchLoad { numbers, double, group: true } => load::group::watch(numbers, double),
            WorkerCommand::WatchLoad { numbers, double, group: false } => load::watch::FodoWatcher::new()
                .and_then(|client| load::watch::watch(client, UpdateLog::new(numbers, double))),
            WorkerCommand::ProduceLoad { pvs, numbers, double, server, metrics } => {
                load::produce::produce(pvs, numbers, double, &server, metrics)
            }
            WorkerCommand::WatchLibca { libca, libcom, numbers } => {
                let client = LibcaWatcher::load_in_worker(&libca, &libcom).map_err(std::io::Error::other);
                client.and_then(|client| load::watch::watch(client, UpdateLog::new(numbers, None)))
            }
            WorkerCommand::DrivePlant { search, caps } => plant::worker::run(search, caps),
            WorkerCommand::DriveFodo { slower_per_cent, into, protocol } => {
                let fodo = FodoDriver::new(into, protocol).map_err(std::io::Error::other);
                fodo.and_then(|fodo| serve_slowed(fodo, slower_per_cent, stdin().lock(), stdout().lock()))
            }
            WorkerCommand::DriveLibca { libca, libcom, get } => {
                let libca = Libca::load_in_worker(&libca, &libcom).map_err(std::io::Error::other);
                libca.and_then(|libca| match get {
                    Some(name) => print(libca, &name).map_err(std::io::Error::other),
                    None => drive(libca),
                })
            }
            WorkerCommand::ServeCluEcho { encrypts, lose_every } => {
                crate::clu::echo::serve(Ipv4Addr::LOCALHOST, encrypts, lose_every, |port| {
                    println!("{ECHO_READY}{port}");
                    stdout().flush()
                })
            }
            WorkerCommand::DriveClu(arguments) => crate::clu::worker::drive(arguments),
            WorkerCommand::Delay { at, to, one_way_us } => {
                crate::hosts::delay::run(at, to, std::time::Duration::from_micros(one_way_us))
            }
            WorkerCommand::TryDriver { client, n, protocol, server } => {
                trial::run(client, n, (protocol, server), stdout().lock()).map_err(std::io::Error::other)
            }
        };
        match done {
            Ok(()) => ExitCode::SUCCESS,
            Err(why) => {
                eprintln!("{why}");
                ExitCode::FAILURE
            }
        }
    }
}

/// Connects, gets and prints one value.
fn print(mut libca: Libca, name: &str) -> Result<(), DriverFailure> {
    libca.open(name, 1)?;
    println!("{name} {}", libca.get_double(0)?);
    Ok(())
}

fn drive(driver: impl Driver) -> std::io::Result<()> {
    serve(driver, stdin().lock(), stdout().lock())
}

fn announce(port: u16) -> std::io::Result<()> {
    println!("{RAW_READY}{port}");
    stdout().flush()
}
