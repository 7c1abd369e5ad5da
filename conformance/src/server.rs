//! Servers under test.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::process::{Process, restrict_to_loopback};
use crate::{TestFailure, place};

/// Maximum time until a server is ready.
const START_DURATION_MAX: Duration = Duration::from_secs(30);

/// The program of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerProgram {
    /// `fodo ioc`.
    Fodo,
    /// EPICS' softIoc, from the wheel `epicscorelibs`.
    SoftIoc,
    /// The server of caproto.
    Caproto,
    /// pythonSoftIOC with records in Python.
    PythonSoftIoc,
}

/// The interfaces on which a server listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenOn {
    /// Loopback only.
    Loopback,
    /// All interfaces, so that broadcasts reach it: only if [`place::is_alone`].
    Everywhere,
}

impl ServerProgram {
    /// All servers.
    pub const ALL: [ServerProgram; 4] =
        [ServerProgram::Fodo, ServerProgram::SoftIoc, ServerProgram::Caproto, ServerProgram::PythonSoftIoc];

    /// The name in the reference.
    pub fn text(self) -> &'static str {
        match self {
            ServerProgram::Fodo => "`fodo ioc`",
            ServerProgram::SoftIoc => "softIoc",
            ServerProgram::Caproto => "caproto",
            ServerProgram::PythonSoftIoc => "pythonSoftIOC",
        }
    }

    /// Whether it serves all of `db/records.db`, with links, alarms and fields.
    pub fn serves_a_database(self) -> bool {
        matches!(self, ServerProgram::Fodo | ServerProgram::SoftIoc)
    }

    /// Whether it has calc records that count at 10 Hz.
    pub fn counts(self) -> bool {
        self != ServerProgram::Caproto
    }
}

/// A running server; it ends when dropped.
#[derive(Debug)]
pub struct TestServer {
    /// The kind of server.
    pub kind: ServerProgram,
    interfaces: ListenOn,
    /// The port for searches.
    pub port: u16,
    /// The prefix of every name.
    pub prefix: String,
    database: PathBuf,
    far: Option<Far>,
    process: Process,
}

/// The server to which another server's links lead.
#[derive(Clone, Debug)]
struct Far {
    prefix: String,
    port: u16,
}

impl TestServer {
    /// Starts the server with the common records and waits until it is ready.
    pub fn start(kind: ServerProgram) -> Result<TestServer, TestFailure> {
        TestServer::start_with(kind, ListenOn::Loopback)
    }

    /// Starts a server that [serves a database](ServerProgram::serves_a_database), on loopback with this database.
    pub fn start_on(kind: ServerProgram, database: &Path) -> Result<TestServer, TestFailure> {
        TestServer::start_at(kind, ListenOn::Loopback, database.to_path_buf(), None)
    }

    /// The same; its links search for the names of `far`, whose prefix is the macro `$(FAR)`.
    pub fn start_linked(kind: ServerProgram, database: &Path, far: &TestServer) -> Result<TestServer, TestFailure> {
        let far = Far { prefix: far.prefix.clone(), port: far.port };
        TestServer::start_at(kind, ListenOn::Loopback, database.to_path_buf(), Some(far))
    }

    /// The same with the common records, listening on these interfaces.
    pub fn start_with(kind: ServerProgram, interfaces: ListenOn) -> Result<TestServer, TestFailure> {
        TestServer::start_at(kind, interfaces, place::database("records.db"), None)
    }

    fn start_at(
        kind: ServerProgram,
        interfaces: ListenOn,
        database: PathBuf,
        far: Option<Far>,
    ) -> Result<TestServer, TestFailure> {
        let port = place::free_port();
        let prefix = place::prefix();
        let process = start(kind, interfaces, port, &prefix, &database, far.as_ref())?;
        Ok(TestServer { kind, interfaces, port, prefix, database, far, process })
    }

    /// Kills the server and restarts it on the same port.
    pub fn restart(&mut self) -> Result<(), TestFailure> {
        self.kill();
        self.process = start(self.kind, self.interfaces, self.port, &self.prefix, &self.database, self.far.as_ref())?;
        Ok(())
    }

    /// Kills the server.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// The server's process.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// A failure message with the server's last output lines.
    pub fn failure(&self, what: &str) -> TestFailure {
        self.process.failure(what)
    }

    /// The address for searches.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    /// The full name of a record or field.
    pub fn pv(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// Its resident memory.
    pub fn resident_bytes(&self) -> Option<u64> {
        let status = std::fs::read_to_string(self.process.proc_folder()?.join("status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        line.trim().trim_end_matches(" kB").parse::<u64>().ok().map(|kib| kib * 1024)
    }

    /// Stops the server with a signal, as a user would, and returns its exit status.
    pub fn stop(self, signal: rustix::process::Signal) -> Result<std::process::ExitStatus, TestFailure> {
        self.process.stop(signal, Duration::from_secs(5))
    }
}

fn start(
    kind: ServerProgram,
    interfaces: ListenOn,
    port: u16,
    prefix: &str,
    database: &Path,
    far: Option<&Far>,
) -> Result<Process, TestFailure> {
    let macros = match far {
        Some(far) => format!("P={prefix},FAR={}", far.prefix),
        None => format!("P={prefix}"),
    };
    let mut command = command(kind, interfaces, port, prefix, &macros, database);
    restrict_to_loopback(&mut command, port);
    if let Some(far) = far {
        command.env("EPICS_CA_ADDR_LIST", format!("127.0.0.1:{}", far.port));
    }
    if interfaces == ListenOn::Everywhere {
        command.env_remove("EPICS_CAS_INTF_ADDR_LIST");
    }
    let mut process = Process::start(&format!("{kind:?}"), &mut command)?;
    let ready = if kind == ServerProgram::Fodo { "fodo ioc: serving" } else { "ready" };
    process.wait_for_line_starting(ready, START_DURATION_MAX)?;
    Ok(process)
}

fn command(
    kind: ServerProgram,
    interfaces: ListenOn,
    port: u16,
    prefix: &str,
    macros: &str,
    database: &Path,
) -> Command {
    let interface = match interfaces {
        ListenOn::Loopback => "127.0.0.1",
        ListenOn::Everywhere => "0.0.0.0",
    };
    let mut command = match kind {
        ServerProgram::Fodo => Command::new(place::program()),
        _ => Command::new(place::python()),
    };
    let rights = place::database("rights.acf");
    match kind {
        ServerProgram::Fodo => {
            command.args(["ioc", "-m", macros, "-d"]).arg(database).arg("-a").arg(rights);
            command.args(["--interface", interface, "--port"]).arg(port.to_string())
        }
        ServerProgram::SoftIoc => command.arg(place::script("softioc_server.py")).arg(database).arg(macros).arg(rights),
        ServerProgram::Caproto => command.arg(place::script("caproto_server.py")).args([prefix, interface]),
        ServerProgram::PythonSoftIoc => command.arg(place::script("pythonsoftioc_server.py")).arg(prefix).arg(rights),
    };
    command
}
