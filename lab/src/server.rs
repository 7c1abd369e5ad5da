//! The servers under test.

use std::ffi::OsString;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::driver::DriverFailure;
use crate::driver::external::{self, External};
use crate::hosts::{self, TwoHosts};
use crate::limit::{PUT_RECORDS_MAX, SERVER_START_MAX};
use crate::peers::Peers;
use crate::placement::HostLink;
use crate::process::{ChildProcess, Launch, Ports};

/// The database of every server, embedded so that the laboratory runs from any directory. The file is a link, of which
/// the package contains the target.
const DATABASE: &str = include_str!("../embedded/epics_tests.db");

/// The database as a file of this run; removed when dropped.
#[derive(Debug)]
pub struct DatabaseFile {
    directory: PathBuf,
}

impl DatabaseFile {
    /// Writes the file into a new temporary directory, with `n_numbered` records `lab:000000` and so on whose value is
    /// their number, and as many `put:000000`, at most [`PUT_RECORDS_MAX`].
    pub fn write(n_numbered: usize) -> std::io::Result<DatabaseFile> {
        let directory = std::env::temp_dir().join(format!("fodo-lab-{}", std::process::id()));
        std::fs::create_dir(&directory)?;
        let file = DatabaseFile { directory };
        let mut text = String::from(DATABASE);
        for number in 0..n_numbered {
            let _ = writeln!(text, "record(ao, \"lab:{number:06}\") {{ field(VAL, \"{number}\") }}");
        }
        for number in 0..n_numbered.min(PUT_RECORDS_MAX) {
            let _ = writeln!(text, "record(ao, \"put:{number:06}\") {{ field(VAL, \"{number}\") }}");
        }
        std::fs::write(file.path(), text)?;
        Ok(file)
    }

    /// The path of the file.
    pub fn path(&self) -> PathBuf {
        self.directory.join("epics_tests.db")
    }
}

impl Drop for DatabaseFile {
    fn drop(&mut self) {
        // A file that cannot be removed is a few kilobytes in the temporary directory.
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// A server under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum ServerKind {
    /// Fodo's server.
    Fodo,
    /// Fodo's server, polling for requests before it sleeps.
    #[value(skip)]
    FodoSpin,
    /// EPICS' server: rsrv with the database of EPICS Base.
    SoftIoc,
    /// NSLS-II's server, all Python, with the same PVs but without records.
    Caproto,
    /// A raw socket.
    #[value(skip)]
    Raw,
}

impl ServerKind {
    /// The name in tables and files.
    pub fn text(self) -> &'static str {
        match self {
            ServerKind::Fodo => "fodo",
            ServerKind::FodoSpin => "fodo-spin",
            ServerKind::SoftIoc => "soft-ioc",
            ServerKind::Caproto => "caproto",
            ServerKind::Raw => "raw",
        }
    }

    /// Which of its prerequisites is missing.
    pub fn missing(self, peers: &Peers) -> Option<String> {
        match self {
            ServerKind::SoftIoc => peers.epics.as_ref().err().cloned(),
            ServerKind::Caproto => External::Caproto.missing(peers),
            ServerKind::Fodo | ServerKind::FodoSpin | ServerKind::Raw => None,
        }
    }
}

impl ServerKind {
    /// Whether it is another implementation.
    pub fn is_peer(self) -> bool {
        matches!(self, ServerKind::SoftIoc | ServerKind::Caproto)
    }

    /// A peer's version.
    pub fn version(self, peers: &Peers) -> Option<String> {
        match self {
            ServerKind::SoftIoc => peers.epics.as_ref().ok().map(|epics| epics.version.clone()),
            ServerKind::Caproto => External::Caproto.version(peers),
            ServerKind::Fodo | ServerKind::FodoSpin | ServerKind::Raw => None,
        }
    }
}

/// A running server; ends when dropped.
#[derive(Debug)]
pub struct ServerUnderTest {
    ports: Ports,
    process: ChildProcess,
    /// The delay between it and its clients, if there is one.
    _delay: Option<ChildProcess>,
}

impl ServerUnderTest {
    /// Starts the server on `cpu` with the database at `database`, and waits until it serves: on loopback, or on one of
    /// two hosts for clients on the other, through `link`.
    pub fn start(
        kind: ServerKind,
        database: &Path,
        cpu: Option<usize>,
        hosts: Option<(&TwoHosts, HostLink)>,
        peers: &Peers,
    ) -> Result<ServerUnderTest, DriverFailure> {
        let who = kind.text().to_owned();
        let unavailable = |why: String| DriverFailure::Unavailable { who: who.clone(), why };
        let mut ports = Ports::free().map_err(|why| unavailable(why.to_string()))?;
        if let Some((hosts, _)) = hosts {
            ports = Ports { host: hosts::SERVER, network_of: Some(hosts.server_number()), ..ports };
        }
        let this = std::env::current_exe().map_err(|why| unavailable(why.to_string()))?;
        let (program, args) = match kind {
            ServerKind::Fodo | ServerKind::FodoSpin => (this, fodo_ioc_words(database, ports)),
            ServerKind::Raw => {
                (this, vec!["lab".into(), "worker".into(), "serve-raw".into(), ports.host.to_string().into()])
            }
            ServerKind::SoftIoc => {
                let epics = peers.epics.as_ref().map_err(|why| unavailable(why.clone()))?;
                (epics.python.clone(), softioc_words(database))
            }
            ServerKind::Caproto => external::caproto_server(database, peers).map_err(&unavailable)?,
        };
        let variables = (kind == ServerKind::FodoSpin).then(spinning).into_iter().collect();
        let launch = Launch { who, program, args, cpu, ports, variables };
        let mut process = ChildProcess::start(&launch)?;
        let ports = process.wait_for(SERVER_START_MAX, |line| match kind {
            ServerKind::Fodo | ServerKind::FodoSpin => line.starts_with("fodo ioc: serving").then_some(ports),
            ServerKind::SoftIoc => line.contains("IOC Running").then_some(ports),
            ServerKind::Caproto => (line == CAPROTO_READY).then_some(ports),
            ServerKind::Raw => {
                let port = line.strip_prefix(RAW_READY)?.trim().parse().ok()?;
                Some(Ports { server: port, ..ports })
            }
        })?;
        if let Some((hosts, HostLink::Delayed)) = hosts {
            let (ports, delay) = hosts.delayed(ports)?;
            return Ok(ServerUnderTest { ports, process, _delay: Some(delay) });
        }
        let network_of = hosts.map(|(hosts, _)| hosts.client_number());
        Ok(ServerUnderTest { ports: Ports { network_of, ..ports }, process, _delay: None })
    }

    /// Its ports and address, and the network of its clients.
    pub fn ports(&self) -> Ports {
        self.ports
    }

    /// See [`ChildProcess::number`].
    pub fn process_number(&self) -> String {
        self.process.number()
    }
}

/// Environment variable that makes Fodo poll for a few round trips before it sleeps.
pub fn spinning() -> (&'static str, OsString) {
    ("FODO_SPIN_US", "200".into())
}

/// Line that caproto's server prints when it serves.
const CAPROTO_READY: &str = "caproto serves";

/// Prefix of the line in which the raw server prints its port.
pub const RAW_READY: &str = "raw server on port ";

fn fodo_ioc_words(database: &Path, ports: Ports) -> Vec<OsString> {
    let port = ports.server.to_string();
    let mut words: Vec<OsString> = vec!["ioc".into(), "-d".into(), database.into()];
    words.extend(["--port", &port, "--interface", &ports.host.to_string()].map(OsString::from));
    words
}

/// A softIoc with rsrv only: Python just loads the libraries and then waits for its standard input; the PVA server that
/// this module adds by default is omitted.
fn softioc_words(database: &Path) -> Vec<OsString> {
    let program = "from epicscorelibs.ioc import main; main((), ())";
    vec!["-c".into(), program.into(), "-d".into(), database.into()]
}
