//! The servers under test.

use std::ffi::OsString;
use std::fmt::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::driver::DriverFailure;
use crate::driver::external::{self, External};
use crate::hosts::{self, TwoHosts};
use crate::limit::{PUT_RECORDS_MAX, SERVER_START_MAX};
use crate::peers::{self, Peers};
use crate::placement::HostLink;
use crate::process::{ChildProcess, Launch, Ports};
use crate::protocol::LabProtocol;

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
    /// QSRV2: the database of EPICS Base, served over pvAccess by pvxs.
    Qsrv2,
    /// QSRV1: the database of EPICS Base, served over pvAccess by pvAccessCPP.
    Qsrv1,
    /// The IOC of the package `fodo`, whose records Python sets: for loads only.
    FodoPython,
    /// The server of PVs of the package `fodo`: for loads only.
    FodoShared,
    /// pythonSoftIOC, whose records Python sets: for loads only.
    Softioc,
    /// The server of PVs of p4p: for loads only.
    P4p,
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
            ServerKind::Qsrv2 => "qsrv2",
            ServerKind::Qsrv1 => "qsrv1",
            ServerKind::FodoPython => "fodo-python",
            ServerKind::FodoShared => "fodo-shared",
            ServerKind::Softioc => "softioc",
            ServerKind::P4p => "p4p",
            ServerKind::Raw => "raw",
        }
    }

    /// Which of its prerequisites is missing.
    pub fn missing(self, peers: &Peers) -> Option<String> {
        match self {
            ServerKind::SoftIoc | ServerKind::Qsrv1 => peers.epics.as_ref().err().cloned(),
            ServerKind::Qsrv2 => external::missing_package("pvxslibs", peers).err(),
            ServerKind::Caproto => External::Caproto.missing(peers),
            ServerKind::FodoPython | ServerKind::FodoShared => peers::fodo_package(peers).err(),
            ServerKind::Softioc | ServerKind::P4p => external::missing_package(self.text(), peers).err(),
            ServerKind::Fodo | ServerKind::FodoSpin | ServerKind::Raw => None,
        }
    }
}

impl ServerKind {
    /// Whether it is another implementation.
    pub fn is_peer(self) -> bool {
        use ServerKind::{Fodo, FodoPython, FodoShared, FodoSpin, Raw};
        !matches!(self, Fodo | FodoSpin | FodoPython | FodoShared | Raw)
    }

    /// Whether it reports the updates that it sends and merges under load.
    pub fn counts_updates(self) -> bool {
        use ServerKind::{Fodo, FodoPython, FodoShared};
        matches!(self, Fodo | FodoPython | FodoShared)
    }

    /// Whether it is a program in Python that changes its own values; it serves loads only.
    pub fn is_set_by_python(self) -> bool {
        use ServerKind::{FodoPython, FodoShared, P4p, Softioc};
        matches!(self, FodoPython | FodoShared | Softioc | P4p)
    }

    /// Whether it is measured between two hosts.
    pub fn is_measured_between_hosts(self) -> bool {
        self.is_measured_over(LabProtocol::Ca) && self != ServerKind::Caproto && !self.is_set_by_python()
    }

    /// Whether it is measured over this protocol.
    pub fn is_measured_over(self, protocol: LabProtocol) -> bool {
        match self {
            ServerKind::Fodo | ServerKind::FodoPython | ServerKind::Softioc | ServerKind::Raw => true,
            ServerKind::FodoSpin | ServerKind::SoftIoc | ServerKind::Caproto => protocol == LabProtocol::Ca,
            ServerKind::Qsrv2 | ServerKind::Qsrv1 | ServerKind::FodoShared | ServerKind::P4p => {
                protocol == LabProtocol::Pva
            }
        }
    }

    /// A peer's version.
    pub fn version(self, peers: &Peers) -> Option<String> {
        match self {
            ServerKind::SoftIoc | ServerKind::Qsrv1 => peers.epics.as_ref().ok().map(|epics| epics.version.clone()),
            ServerKind::Qsrv2 => external::package_version("pvxslibs", peers).ok(),
            ServerKind::Caproto => External::Caproto.version(peers),
            ServerKind::Softioc | ServerKind::P4p => external::package_version(self.text(), peers).ok(),
            ServerKind::FodoPython | ServerKind::FodoShared => None,
            ServerKind::Fodo | ServerKind::FodoSpin | ServerKind::Raw => None,
        }
    }
}

/// A running server; ends when dropped.
#[derive(Debug)]
pub struct ServerUnderTest {
    ports: Ports,
    process: ChildProcess,
    metrics: Option<SocketAddr>,
    /// The delays between it and its clients, one for each protocol.
    delays: Vec<ChildProcess>,
}

/// What a server is started with in addition to its database.
#[derive(Clone, Debug)]
pub struct ServerExtras {
    /// Environment variables.
    pub variables: Vec<(&'static str, OsString)>,
    /// The protocols whose circuits pass the delay of a delayed link.
    pub delayed: Vec<LabProtocol>,
    /// Whether Fodo's IOC serves metrics, which count its updates.
    pub has_metrics: bool,
}

impl Default for ServerExtras {
    fn default() -> Self {
        ServerExtras { variables: Vec::new(), delayed: vec![LabProtocol::Ca], has_metrics: false }
    }
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
        ServerUnderTest::start_with(kind, database, cpu, hosts, peers, ServerExtras::default())
    }

    /// The same with variables or metrics, and over other protocols than Channel Access through a delay.
    pub fn start_with(
        kind: ServerKind,
        database: &Path,
        cpu: Option<usize>,
        hosts: Option<(&TwoHosts, HostLink)>,
        peers: &Peers,
        extras: ServerExtras,
    ) -> Result<ServerUnderTest, DriverFailure> {
        let who = kind.text().to_owned();
        let unavailable = |why: String| DriverFailure::Unavailable { who: who.clone(), why };
        let mut ports = Ports::free().map_err(|why| unavailable(why.to_string()))?;
        if let Some((hosts, _)) = hosts {
            ports = Ports { host: hosts::SERVER, network_of: Some(hosts.server_number()), ..ports };
        }
        let this = crate::program::path().map_err(|why| unavailable(why.to_string()))?;
        let (program, args) = match kind {
            ServerKind::Fodo | ServerKind::FodoSpin => (this, fodo_ioc_words(database, ports)),
            ServerKind::Raw => {
                (this, vec!["lab".into(), "worker".into(), "serve-raw".into(), ports.host.to_string().into()])
            }
            ServerKind::SoftIoc => {
                let epics = peers.epics.as_ref().map_err(|why| unavailable(why.clone()))?;
                (epics.python.clone(), softioc_words(database))
            }
            ServerKind::Qsrv2 | ServerKind::Qsrv1 => {
                let epics = peers.epics.as_ref().map_err(|why| unavailable(why.clone()))?;
                let module = if kind == ServerKind::Qsrv2 { "pvxslibs.ioc" } else { "epicscorelibs.ioc" };
                (epics.python.clone(), vec!["-m".into(), module.into(), "-d".into(), database.into()])
            }
            ServerKind::Caproto => external::caproto_server(database, peers).map_err(&unavailable)?,
            ServerKind::FodoPython | ServerKind::FodoShared | ServerKind::Softioc | ServerKind::P4p => {
                return Err(unavailable("it serves loads only".into()));
            }
        };
        let spinning = (kind == ServerKind::FodoSpin).then(spinning);
        let variables = extras.variables.into_iter().chain(spinning).collect();
        let metrics_words = (kind == ServerKind::Fodo && extras.has_metrics)
            .then(|| ["--metrics".into(), format!("{}:0", ports.host).into()]);
        let args = args.into_iter().chain(metrics_words.into_iter().flatten()).collect();
        let launch = Launch { who, program, args, cpu, ports, variables };
        let mut process = ChildProcess::start(&launch)?;
        let mut metrics = None;
        let ports = process.wait_for(SERVER_START_MAX, |line| match kind {
            ServerKind::Fodo | ServerKind::FodoSpin => {
                metrics = metrics_of(line);
                line.starts_with("fodo ioc: serving").then_some(ports)
            }
            ServerKind::SoftIoc | ServerKind::Qsrv2 | ServerKind::Qsrv1 => {
                line.contains("IOC Running").then_some(ports)
            }
            ServerKind::Caproto => (line == CAPROTO_READY).then_some(ports),
            ServerKind::FodoPython | ServerKind::FodoShared | ServerKind::Softioc | ServerKind::P4p => None,
            ServerKind::Raw => {
                let port = line.strip_prefix(RAW_READY)?.trim().parse().ok()?;
                Some(Ports { server: port, ..ports })
            }
        })?;
        let network_of = hosts.map(|(hosts, _)| hosts.client_number());
        let mut server = ServerUnderTest { ports: Ports { network_of, ..ports }, process, metrics, delays: Vec::new() };
        if let Some((hosts, HostLink::Delayed)) = hosts {
            for protocol in extras.delayed {
                let (delayed, delay) = hosts.delayed(ports, protocol)?;
                server.ports = delayed;
                server.delays.push(delay);
            }
        }
        Ok(server)
    }

    /// Its ports and address, and the network of its clients.
    pub fn ports(&self) -> Ports {
        self.ports
    }

    /// Where it serves its metrics, if it was started to count updates.
    pub fn metrics(&self) -> Option<SocketAddr> {
        self.metrics
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

/// The address of the metrics in the line with which `fodo ioc` starts to serve.
fn metrics_of(line: &str) -> Option<SocketAddr> {
    line.split_once("metrics on http://")?.1.split_once('/')?.0.parse().ok()
}

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
