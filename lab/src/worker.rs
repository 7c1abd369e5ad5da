//! Worker processes of the laboratory: launcher, raw server, drivers.

use std::ffi::OsString;
use std::io::{Write, stdin, stdout};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;

use crate::driver::fodo::Fodo;
use crate::driver::libca::{Libca, Watching};
use crate::driver::raw::{Destination, Raw};
use crate::driver::{Client, Driver, Failure, serve, serve_slowed, trial};
use crate::load;
use crate::load::book::Book;
use crate::load::double::Double;
use crate::load::tally::Numbers;
use crate::plant::{self, Caps};
use crate::server::RAW_READY;

/// Arguments of `fodo lab worker`.
#[derive(Debug, Subcommand)]
pub enum Worker {
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
    },
    /// Drive our client.
    DriveFodo {
        /// Slow down every get by this percentage, to test whether it is detected.
        #[arg(long, default_value_t = 0)]
        slower_per_cent: u32,
        /// Read large answers into reused memory.
        #[arg(long)]
        into: bool,
    },
    /// Measure a plant; puts only if allowed.
    DrivePlant {
        /// Search addresses.
        #[arg(long, required = true)]
        search: Vec<SocketAddr>,
        #[command(flatten)]
        caps: Caps,
    },
    /// Serve counters that change on schedule.
    ServeLoad {
        /// Number of PVs.
        #[arg(long)]
        pvs: u32,
        /// Port for searches and circuits.
        #[arg(long)]
        port: u16,
    },
    /// Put numbers to a server's records on schedule, or let the records count.
    ProduceLoad {
        /// Number of PVs.
        #[arg(long)]
        pvs: u32,
        /// How values encode their number: checked ones are put, plain ones count by themselves.
        #[arg(long)]
        numbers: Numbers,
        /// Misbehave in one way.
        #[arg(long)]
        double: Option<Double>,
        /// Number of the server's process.
        #[arg(long)]
        server: String,
    },
    /// Subscribe to these counters and count updates.
    WatchLoad {
        /// How values encode their number.
        #[arg(long, default_value = "checked")]
        numbers: Numbers,
        /// Misbehave in one way.
        #[arg(long)]
        double: Option<Double>,
    },
    /// Subscribe through libca and count updates.
    WatchLibca {
        /// The library.
        libca: PathBuf,
        /// The library it depends on.
        libcom: PathBuf,
        /// How values encode their number.
        #[arg(long)]
        numbers: Numbers,
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
        client: Client,
        /// Number of channels or contexts.
        #[arg(long, default_value_t = 20)]
        n: usize,
    },
}

impl Worker {
    /// Runs the worker.
    pub fn run(self) -> ExitCode {
        let done = match self {
            Worker::Launch { cpu, parent, words } => Err(crate::process::become_program(cpu, parent, &words)),
            Worker::ServeRaw { host } => crate::floor::serve(host, announce),
            Worker::DriveRaw { server, reused } => {
                drive(Raw::new(server, if reused { Destination::Reused } else { Destination::Fresh }))
            }
            Worker::ServeLoad { pvs, port } => load::worker::serve(pvs, port),
            Worker::WatchLoad { numbers, double } => {
                load::watch::Fodo::new().and_then(|client| load::watch::watch(client, Book::new(numbers, double)))
            }
            Worker::ProduceLoad { pvs, numbers, double, server } => {
                load::produce::produce(pvs, numbers, double, &server)
            }
            Worker::WatchLibca { libca, libcom, numbers } => {
                let client = Watching::load_in_worker(&libca, &libcom).map_err(std::io::Error::other);
                client.and_then(|client| load::watch::watch(client, Book::new(numbers, None)))
            }
            Worker::DrivePlant { search, caps } => plant::worker::run(search, caps),
            Worker::DriveFodo { slower_per_cent, into } => {
                let fodo = Fodo::new(into).map_err(std::io::Error::other);
                fodo.and_then(|fodo| serve_slowed(fodo, slower_per_cent, stdin().lock(), stdout().lock()))
            }
            Worker::DriveLibca { libca, libcom, get } => {
                let libca = Libca::load_in_worker(&libca, &libcom).map_err(std::io::Error::other);
                libca.and_then(|libca| match get {
                    Some(name) => print(libca, &name).map_err(std::io::Error::other),
                    None => drive(libca),
                })
            }
            Worker::Delay { at, to, one_way_us } => {
                crate::hosts::delay::run(at, to, std::time::Duration::from_micros(one_way_us))
            }
            Worker::TryDriver { client, n } => trial::run(client, n, stdout().lock()).map_err(std::io::Error::other),
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
fn print(mut libca: Libca, name: &str) -> Result<(), Failure> {
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
