//! The servers under test.

use std::ffi::OsString;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::driver::Failure;
use crate::driver::external::{self, External};
use crate::hosts::{self, Hosts};
use crate::limit::{PUT_RECORDS_MAX, SERVER_START_MAX};
use crate::peers::Peers;
use crate::placement::Link;
use crate::process::{Launch, Ports, Process};

/// The database every server loads, so that the laboratory works from anywhere.
const DATABASE: &str = include_str!("../../examples/db/epics_tests.db");

/// That database as a file of this run; removed when dropped.
#[derive(Debug)]
pub struct DatabaseFile {
    directory: PathBuf,
}

impl DatabaseFile {
    /// Writes it, with `n_numbered` records `lab:000000` and so on that each hold their number, and as many
    /// `put:000000` up to [`PUT_RECORDS_MAX`], into a new directory of the system's temporary one.
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

    /// Where it is.
    pub fn path(&self) -> PathBuf {
        self.directory.join("epics_tests.db")
    }
}

impl Drop for DatabaseFile {
    fn drop(&mut self) {
        // What cannot be removed is a few kilobytes in a directory for such things.
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// A server that can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum ServerKind {
    /// Ours.
    Fodo,
    /// Ours, looking for requests before it sleeps.
    #[value(skip)]
    FodoSpin,
    /// That of EPICS: rsrv over the database of EPICS Base.
    SoftIoc,
    /// NSLS-II's, all Python, which has the same PVs but no records.
    Caproto,
    /// A raw socket.
    #[value(skip)]
    Raw,
}

impl ServerKind {
    /// As tables and files name it.
    pub fn text(self) -> &'static str {
        match self {
            ServerKind::Fodo => "fodo",
            ServerKind::FodoSpin => "fodo-spin",
            ServerKind::SoftIoc => "soft-ioc",
            ServerKind::Caproto => "caproto",
            ServerKind::Raw => "raw",
        }
    }

    /// What of the peers it needs but is not there.
    pub fn missing(self, peers: &Peers) -> Option<String> {
        match self {
            ServerKind::SoftIoc => peers.epics.as_ref().err().cloned(),
            ServerKind::Caproto => External::Caproto.missing(peers),
            ServerKind::Fodo | ServerKind::FodoSpin | ServerKind::Raw => None,
        }
    }
}

impl ServerKind {
    /// Whether it is somebody else's.
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
pub struct Server {
    ports: Ports,
    process: Process,
    /// By way of which its clients reach it, where that is further.
    _delay: Option<Process>,
}

impl Server {
    /// Starts it on `cpu` with the database at `database`, and waits until it serves: on loopback, or on one of two
    /// hosts for clients on the other, by way of `link`.
    pub fn start(
        kind: ServerKind,
        database: &Path,
        cpu: Option<usize>,
        hosts: Option<(&Hosts, Link)>,
        peers: &Peers,
    ) -> Result<Server, Failure> {
        let who = kind.text().to_owned();
        let unavailable = |why: String| Failure::Unavailable { who: who.clone(), why };
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
        let mut process = Process::start(&launch)?;
        let ports = process.wait_for(SERVER_START_MAX, |line| match kind {
            ServerKind::Fodo | ServerKind::FodoSpin => line.starts_with("fodo ioc: serving").then_some(ports),
            ServerKind::SoftIoc => line.contains("IOC Running").then_some(ports),
            ServerKind::Caproto => (line == CAPROTO_READY).then_some(ports),
            ServerKind::Raw => {
                let port = line.strip_prefix(RAW_READY)?.trim().parse().ok()?;
                Some(Ports { server: port, ..ports })
            }
        })?;
        if let Some((hosts, Link::Delayed)) = hosts {
            let (ports, delay) = hosts.delayed(ports)?;
            return Ok(Server { ports, process, _delay: Some(delay) });
        }
        let network_of = hosts.map(|(hosts, _)| hosts.client_number());
        Ok(Server { ports: Ports { network_of, ..ports }, process, _delay: None })
    }

    /// Where it is reached, and from which network.
    pub fn ports(&self) -> Ports {
        self.ports
    }

    /// See [`Process::number`].
    pub fn process_number(&self) -> String {
        self.process.number()
    }
}

/// Has ours look for what comes for a few round trips before it sleeps.
pub fn spinning() -> (&'static str, OsString) {
    ("FODO_SPIN_US", "200".into())
}

/// What caproto's server says once it serves.
const CAPROTO_READY: &str = "caproto serves";

/// What the raw server says before its port.
pub const RAW_READY: &str = "raw server on port ";

fn fodo_ioc_words(database: &Path, ports: Ports) -> Vec<OsString> {
    let port = ports.server.to_string();
    let mut words: Vec<OsString> = vec!["ioc".into(), "-d".into(), database.into()];
    words.extend(["--port", &port, "--interface", &ports.host.to_string()].map(OsString::from));
    words
}

/// A softIoc of rsrv alone: Python only loads the libraries and then waits for its standard input, and
/// the PVA server that this module adds by default is left out.
fn softioc_words(database: &Path) -> Vec<OsString> {
    let program = "from epicscorelibs.ioc import main; main((), ())";
    vec!["-c".into(), program.into(), "-d".into(), database.into()]
}
