//! Servers under test.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use fodo_net::{Protocol, Server};

use crate::process::{Process, restrict_to_loopback, set_pva_ports};
use crate::{TestFailure, ours, place};

/// Maximum time until a server is ready.
const START_DURATION_MAX: Duration = Duration::from_secs(30);

/// Maximum time until a stopped server has exited.
const STOP_DURATION_MAX: Duration = Duration::from_secs(30);

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
    /// EPICS' softIoc with QSRV2, from the wheel `pvxslibs`.
    Qsrv2,
    /// EPICS' softIoc with QSRV1, from the wheel `epicscorelibs`.
    Qsrv1,
    /// The server of p4p, with values in Python.
    P4p,
    /// The server of Phoebus' core-pva, with values in Java.
    CorePva,
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
    /// The servers of Channel Access.
    pub const CA: [ServerProgram; 4] =
        [ServerProgram::Fodo, ServerProgram::SoftIoc, ServerProgram::Caproto, ServerProgram::PythonSoftIoc];

    /// The servers of pvAccess.
    pub const PVA: [ServerProgram; 5] =
        [ServerProgram::Fodo, ServerProgram::Qsrv2, ServerProgram::Qsrv1, ServerProgram::P4p, ServerProgram::CorePva];

    /// The name in the reference.
    pub fn text(self) -> &'static str {
        match self {
            ServerProgram::Fodo => "`fodo ioc`",
            ServerProgram::SoftIoc => "softIoc",
            ServerProgram::Caproto => "caproto",
            ServerProgram::PythonSoftIoc => "pythonSoftIOC",
            ServerProgram::Qsrv2 => "QSRV2",
            ServerProgram::Qsrv1 => "QSRV1",
            ServerProgram::P4p => "p4p",
            ServerProgram::CorePva => "core-pva",
        }
    }

    /// Whether it serves all of `db/records.db`, with links, alarms and fields.
    pub fn serves_a_database(self) -> bool {
        matches!(self, ServerProgram::Fodo | ServerProgram::SoftIoc | ServerProgram::Qsrv2 | ServerProgram::Qsrv1)
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
    /// The protocol that its clients use.
    pub protocol: Protocol,
    interfaces: ListenOn,
    /// The port for searches of Channel Access.
    pub port: u16,
    /// The ports of pvAccess.
    pub pva: PvaPorts,
    /// The prefix of every name.
    pub prefix: String,
    database: PathBuf,
    far: Option<Far>,
    process: Process,
    /// Serves PVs of any type with the same prefix, if the process does not.
    any_type: Option<AnyTypeServer>,
}

/// A server in the process of the test.
struct AnyTypeServer(Server);

impl fmt::Debug for AnyTypeServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AnyTypeServer")
    }
}

/// The ports on which a server speaks pvAccess.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PvaPorts {
    /// The UDP port of searches.
    pub search: u16,
    /// The TCP port of circuits, and of searches over TCP.
    pub tcp: u16,
}

impl PvaPorts {
    /// Ports that are free at this moment.
    pub fn free() -> PvaPorts {
        PvaPorts { search: place::free_port(), tcp: place::free_port() }
    }
}

/// The server to which another server's links lead.
#[derive(Clone, Debug)]
struct Far {
    prefix: String,
    port: u16,
    pva: PvaPorts,
}

impl Far {
    fn of(server: &TestServer) -> Far {
        Far { prefix: server.prefix.clone(), port: server.port, pva: server.pva }
    }
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
        TestServer::start_at(kind, ListenOn::Loopback, database.to_path_buf(), Some(Far::of(far)))
    }

    /// The same; its links over pvAccess also find its own names.
    pub fn start_pva_linked(kind: ServerProgram, database: &Path, far: &TestServer) -> Result<TestServer, TestFailure> {
        let (database, far) = (database.to_path_buf(), Some(Far::of(far)));
        TestServer::started(kind, Protocol::Pva, ListenOn::Loopback, database, far, PvaPorts::free())
    }

    /// The same with the common records, listening on these interfaces.
    pub fn start_with(kind: ServerProgram, interfaces: ListenOn) -> Result<TestServer, TestFailure> {
        TestServer::start_at(kind, interfaces, place::database("records.db"), None)
    }

    /// Starts a server with the records for pvAccess, for clients of that protocol.
    pub fn start_pva(kind: ServerProgram) -> Result<TestServer, TestFailure> {
        TestServer::start_pva_at(kind, PvaPorts::free())
    }

    /// Starts a server that [serves a database](ServerProgram::serves_a_database) with this one, for clients of pvAccess.
    pub fn start_pva_on(kind: ServerProgram, database: &Path) -> Result<TestServer, TestFailure> {
        let database = database.to_path_buf();
        TestServer::started(kind, Protocol::Pva, ListenOn::Loopback, database, None, PvaPorts::free())
    }

    /// The same on these ports; several servers may share the port for searches.
    pub fn start_pva_at(kind: ServerProgram, pva: PvaPorts) -> Result<TestServer, TestFailure> {
        let database = place::database("pva.db");
        TestServer::started(kind, Protocol::Pva, ListenOn::Loopback, database, None, pva)
    }

    fn start_at(
        kind: ServerProgram,
        interfaces: ListenOn,
        database: PathBuf,
        far: Option<Far>,
    ) -> Result<TestServer, TestFailure> {
        TestServer::started(kind, Protocol::Ca, interfaces, database, far, PvaPorts::free())
    }

    fn started(
        kind: ServerProgram,
        protocol: Protocol,
        interfaces: ListenOn,
        database: PathBuf,
        far: Option<Far>,
        pva: PvaPorts,
    ) -> Result<TestServer, TestFailure> {
        let port = place::free_port();
        let prefix = place::prefix();
        let process = start(kind, interfaces, (port, pva), &prefix, &database, far.as_ref())?;
        let has_any_type = kind == ServerProgram::Fodo && protocol == Protocol::Pva;
        let any_type = has_any_type.then(|| ours::server::start(&prefix).map(AnyTypeServer)).transpose()?;
        Ok(TestServer { kind, protocol, interfaces, port, pva, prefix, database, far, process, any_type })
    }

    /// Kills the server and restarts it on the same ports.
    pub fn restart(&mut self) -> Result<(), TestFailure> {
        self.kill();
        let ports = (self.port, self.pva);
        self.process = start(self.kind, self.interfaces, ports, &self.prefix, &self.database, self.far.as_ref())?;
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

    /// The address for searches of Channel Access.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    /// The addresses for searches of pvAccess.
    pub fn pva_search_addresses(&self) -> Vec<SocketAddr> {
        let any_type = self.any_type.as_ref().and_then(|server| server.0.pva_udp_port());
        let ports = [Some(self.pva.search), any_type].into_iter().flatten();
        ports.map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port))).collect()
    }

    /// The address of its circuits of pvAccess, at which it is its own name server.
    pub fn pva_tcp_address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.pva.tcp))
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
        self.process.stop(signal, STOP_DURATION_MAX)
    }
}

fn start(
    kind: ServerProgram,
    interfaces: ListenOn,
    (port, pva): (u16, PvaPorts),
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
    set_pva_ports(&mut command, pva.search, pva.tcp);
    if kind == ServerProgram::CorePva {
        // By this group it forwards searches for names of other servers on the host.
        command.env("EPICS_PVAS_INTF_ADDR_LIST", "127.0.0.1 224.0.0.128,1@127.0.0.1");
    }
    // Where databases find the ones that they include.
    command.env("EPICS_DB_INCLUDE_PATH", place::own_folder().join("db"));
    if let Some(far) = far {
        command.env("EPICS_CA_ADDR_LIST", format!("127.0.0.1:{}", far.port));
        command.env("EPICS_PVA_ADDR_LIST", format!("127.0.0.1 127.0.0.1:{}", far.pva.search));
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
        ServerProgram::CorePva => place::java("CorePvaServer"),
        _ => Command::new(place::python()),
    };
    let rights = place::database("rights.acf");
    // The groups of a database that are not in its records.
    let groups = Some(database.with_extension("json")).filter(|file| file.exists());
    match kind {
        ServerProgram::Fodo => {
            command.args(["ioc", "-m", macros, "-d"]).arg(database).arg("-a").arg(rights);
            if let Some(groups) = &groups {
                command.args(["-m", macros, "-d"]).arg(groups);
            }
            command.args(["--interface", interface, "--port"]).arg(port.to_string())
        }
        ServerProgram::SoftIoc => command.arg(place::script("softioc_server.py")).arg(database).arg(macros).arg(rights),
        ServerProgram::Caproto => command.arg(place::script("caproto_server.py")).args([prefix, interface]),
        ServerProgram::PythonSoftIoc => command.arg(place::script("pythonsoftioc_server.py")).arg(prefix).arg(rights),
        ServerProgram::Qsrv2 | ServerProgram::Qsrv1 => {
            let version = if kind == ServerProgram::Qsrv2 { "qsrv2" } else { "qsrv1" };
            command.arg(place::script("qsrv_server.py")).arg(version).arg(database).arg(macros).arg(rights).args(groups)
        }
        ServerProgram::P4p => command.arg(place::script("p4p_server.py")).arg(prefix),
        ServerProgram::CorePva => command.arg(prefix),
    };
    command
}
