//! The laboratory's end of the protocol with a driver.

use std::ffi::OsString;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::external::External;
use super::java::{
    CORE_PVA, FODO_JAVA, FODO_JAVA_EXECUTOR, FODO_JAVA_FUTURES, FODO_JAVA_INTO, FODO_JAVA_ROWS, FODO_JAVA_VIRTUAL,
    PSI_CA, PSI_CA_MULTIPLE, PSI_CA_SINGLE, PSI_CA_STRIPED,
};
use super::{DriverFailure, DriverReply, DriverRequest, Hello};
use crate::limit::DRIVER_START_MAX;
use crate::peers::Peers;
use crate::process::{ChildProcess, Launch};
use crate::protocol::LabProtocol;
use crate::scenario::MeasuredRequest;
use crate::server::{ServerUnderTest, spinning};

/// A client under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum ClientUnderTest {
    /// Fodo's client.
    Fodo,
    /// Fodo's client, reading arrays into reused memory as libca does.
    #[value(skip)]
    FodoInto,
    /// Fodo's client, polling for replies before it sleeps.
    #[value(skip)]
    FodoSpin,
    /// Fodo's client with a monitor group: for loads only.
    FodoGroup,
    /// The package `fodo` in Python; under loads with callbacks.
    FodoPython,
    /// The package `fodo` in Python, with batches: for loads only.
    FodoBatches,
    /// Fodo in Java; callbacks of monitors run on the context's thread.
    FodoJava,
    /// The same with callbacks on an executor of the program: for monitors and arrays only, like the next ones.
    FodoJavaExecutor,
    /// The same with callbacks on virtual threads, from Java 21 on.
    FodoJavaVirtual,
    /// The same with a monitor group, whose rows are taken in batches.
    FodoJavaRows,
    /// The same with arrays read into the memory of the caller.
    FodoJavaInto,
    /// The same with a future for each get, where the others use a list: for operations at once only.
    FodoJavaFutures,
    /// EPICS' own client library.
    Libca,
    /// PSI's `ca`, in Java: the client that the studies measured.
    PsiCa,
    /// The same with its engine of one notification thread: for monitors and arrays only, like the next ones.
    PsiCaSingle,
    /// The same with its default engine of 16 threads, also under loads.
    PsiCaMultiple,
    /// The same with its engine of striped executors.
    PsiCaStriped,
    /// Diamond's client for asyncio.
    Aioca,
    /// The client of GSECARS.
    Pyepics,
    /// NSLS-II's client, all Python.
    Caproto,
    /// The library of pvAccess in C++.
    Pvxs,
    /// ISIS' client of pvAccess, in Rust.
    Spvirit,
    /// The client for pvAccess in Python, over pvxs.
    P4p,
    /// The client in Python over epics-rs, for both protocols.
    Repics,
    /// The library of Phoebus for pvAccess, in Java.
    CorePva,
    /// A raw socket, reading into fresh memory.
    #[value(skip)]
    Raw,
    /// A raw socket, reading into reused memory.
    #[value(skip)]
    RawReused,
}

impl ClientUnderTest {
    /// The clients that a user may choose from.
    pub const ALL: [ClientUnderTest; 12] = [
        ClientUnderTest::Fodo,
        ClientUnderTest::FodoJava,
        ClientUnderTest::Libca,
        ClientUnderTest::PsiCa,
        ClientUnderTest::Aioca,
        ClientUnderTest::Pyepics,
        ClientUnderTest::Caproto,
        ClientUnderTest::Pvxs,
        ClientUnderTest::Spvirit,
        ClientUnderTest::P4p,
        ClientUnderTest::CorePva,
        ClientUnderTest::Repics,
    ];

    /// The clients that are measured under loads, and under questions only if they are selected.
    pub const OF_LOADS: [ClientUnderTest; 3] =
        [ClientUnderTest::FodoGroup, ClientUnderTest::FodoPython, ClientUnderTest::FodoBatches];

    /// The variants of the clients in Java: how updates, arrays and many results are delivered. The suite java measures
    /// each with the client that it is a variant of.
    pub const JAVA_VARIANTS: [ClientUnderTest; 8] = [
        ClientUnderTest::FodoJavaExecutor,
        ClientUnderTest::FodoJavaVirtual,
        ClientUnderTest::FodoJavaRows,
        ClientUnderTest::FodoJavaInto,
        ClientUnderTest::FodoJavaFutures,
        ClientUnderTest::PsiCaSingle,
        ClientUnderTest::PsiCaMultiple,
        ClientUnderTest::PsiCaStriped,
    ];

    /// The client that this is a variant of: in Java, and a monitor group in Rust; otherwise itself.
    pub fn variant_of(self) -> ClientUnderTest {
        use ClientUnderTest::*;
        match self {
            FodoJavaExecutor | FodoJavaVirtual | FodoJavaRows | FodoJavaInto | FodoJavaFutures => FodoJava,
            PsiCaSingle | PsiCaMultiple | PsiCaStriped => PsiCa,
            FodoGroup => Fodo,
            other => other,
        }
    }

    /// Whether this variant differs from its client in this work.
    pub fn variant_answers(self, request: MeasuredRequest) -> bool {
        use ClientUnderTest::{FodoGroup, FodoJavaFutures, FodoJavaInto, FodoJavaRows};
        match request {
            _ if self == FodoGroup => false,
            MeasuredRequest::MonitorAtOnce => !matches!(self, FodoJavaInto | FodoJavaFutures),
            MeasuredRequest::MoveArray => !matches!(self, FodoJavaRows | FodoJavaFutures),
            MeasuredRequest::ConnectAtOnce | MeasuredRequest::GetAtOnce => self == FodoJavaFutures,
            _ => false,
        }
    }

    /// Whether it is Fodo in Java.
    pub fn is_fodo_java(self) -> bool {
        self.variant_of() == ClientUnderTest::FodoJava
    }

    /// The clients of a protocol.
    pub fn of(protocol: LabProtocol) -> Vec<ClientUnderTest> {
        ClientUnderTest::ALL.into_iter().filter(|client| client.is_measured_over(protocol)).collect()
    }

    /// Whether it is measured over this protocol.
    pub fn is_measured_over(self, protocol: LabProtocol) -> bool {
        match self {
            ClientUnderTest::Fodo | ClientUnderTest::Raw | ClientUnderTest::RawReused => true,
            ClientUnderTest::Repics => true,
            client if client.is_fodo_java() => true,
            ClientUnderTest::FodoGroup | ClientUnderTest::FodoPython | ClientUnderTest::FodoBatches => true,
            ClientUnderTest::Pvxs | ClientUnderTest::P4p | ClientUnderTest::CorePva => protocol == LabProtocol::Pva,
            ClientUnderTest::Spvirit => protocol == LabProtocol::Pva,
            _ => protocol == LabProtocol::Ca,
        }
    }

    /// The name in tables and files.
    pub fn text(self) -> &'static str {
        match self {
            ClientUnderTest::Fodo => "fodo",
            ClientUnderTest::FodoInto => "fodo-into",
            ClientUnderTest::FodoSpin => "fodo-spin",
            ClientUnderTest::FodoGroup => "fodo-group",
            ClientUnderTest::FodoPython => "fodo-python",
            ClientUnderTest::FodoBatches => "fodo-batches",
            ClientUnderTest::FodoJava => "fodo-java",
            ClientUnderTest::FodoJavaExecutor => "fodo-java-executor",
            ClientUnderTest::FodoJavaVirtual => "fodo-java-virtual",
            ClientUnderTest::FodoJavaRows => "fodo-java-rows",
            ClientUnderTest::FodoJavaInto => "fodo-java-into",
            ClientUnderTest::FodoJavaFutures => "fodo-java-futures",
            ClientUnderTest::Libca => "libca",
            ClientUnderTest::PsiCa => "psi-ca",
            ClientUnderTest::PsiCaSingle => "psi-ca-single",
            ClientUnderTest::PsiCaMultiple => "psi-ca-multiple",
            ClientUnderTest::PsiCaStriped => "psi-ca-striped",
            ClientUnderTest::Aioca => "aioca",
            ClientUnderTest::Pyepics => "pyepics",
            ClientUnderTest::Caproto => "caproto",
            ClientUnderTest::Pvxs => "pvxs",
            ClientUnderTest::Spvirit => "spvirit",
            ClientUnderTest::P4p => "p4p",
            ClientUnderTest::Repics => "repics",
            ClientUnderTest::CorePva => "core-pva",
            ClientUnderTest::Raw => "raw",
            ClientUnderTest::RawReused => "raw-reused",
        }
    }

    /// The external driver of this client, if it has one.
    pub fn external(self) -> Option<External> {
        match self {
            ClientUnderTest::PsiCa => Some(External::Java(&PSI_CA)),
            ClientUnderTest::PsiCaSingle => Some(External::Java(&PSI_CA_SINGLE)),
            ClientUnderTest::PsiCaMultiple => Some(External::Java(&PSI_CA_MULTIPLE)),
            ClientUnderTest::PsiCaStriped => Some(External::Java(&PSI_CA_STRIPED)),
            ClientUnderTest::FodoJava => Some(External::Java(&FODO_JAVA)),
            ClientUnderTest::FodoJavaExecutor => Some(External::Java(&FODO_JAVA_EXECUTOR)),
            ClientUnderTest::FodoJavaVirtual => Some(External::Java(&FODO_JAVA_VIRTUAL)),
            ClientUnderTest::FodoJavaRows => Some(External::Java(&FODO_JAVA_ROWS)),
            ClientUnderTest::FodoJavaInto => Some(External::Java(&FODO_JAVA_INTO)),
            ClientUnderTest::FodoJavaFutures => Some(External::Java(&FODO_JAVA_FUTURES)),
            ClientUnderTest::Aioca => Some(External::Aioca),
            ClientUnderTest::Pyepics => Some(External::Pyepics),
            ClientUnderTest::Caproto => Some(External::Caproto),
            ClientUnderTest::Pvxs => Some(External::Pvxs),
            ClientUnderTest::Spvirit => Some(External::Spvirit),
            ClientUnderTest::P4p => Some(External::P4p),
            ClientUnderTest::Repics => Some(External::Repics),
            ClientUnderTest::CorePva => Some(External::Java(&CORE_PVA)),
            ClientUnderTest::FodoPython => Some(External::FodoPython),
            ClientUnderTest::FodoBatches => Some(External::FodoBatches),
            ClientUnderTest::Fodo
            | ClientUnderTest::FodoGroup
            | ClientUnderTest::FodoInto
            | ClientUnderTest::FodoSpin
            | ClientUnderTest::Libca
            | ClientUnderTest::Raw
            | ClientUnderTest::RawReused => None,
        }
    }

    /// Whether its watcher of loads supports arrays.
    pub fn watches_arrays(self) -> bool {
        use ClientUnderTest::{CorePva, Fodo, FodoJava, P4p, Pvxs, Repics, Spvirit};
        matches!(self, Fodo | FodoJava | Pvxs | Spvirit | P4p | CorePva | Repics)
    }

    /// Whether its watcher is part of this program and Fodo, so that it can misbehave.
    pub fn is_rust_of_fodo(self) -> bool {
        matches!(self, ClientUnderTest::Fodo | ClientUnderTest::FodoGroup)
    }

    /// Whether it is Fodo, which counts the updates that it merges.
    pub fn is_fodo(self) -> bool {
        self == ClientUnderTest::Fodo || ClientUnderTest::OF_LOADS.contains(&self) || self.is_fodo_java()
    }

    /// Whether the client runs in Python.
    pub fn is_python(self) -> bool {
        use ClientUnderTest::{Aioca, Caproto, FodoBatches, FodoPython, P4p, Pyepics, Repics};
        matches!(self, Aioca | Pyepics | Caproto | P4p | Repics | FodoPython | FodoBatches)
    }

    /// Whether its process takes a second to start: a virtual machine, or a package in Python.
    pub fn starts_slowly(self) -> bool {
        self.external().is_some() && !matches!(self, ClientUnderTest::Pvxs | ClientUnderTest::Spvirit)
    }

    /// Which of its prerequisites is missing. May start programs.
    pub fn missing(self, peers: &Peers) -> Option<String> {
        match self.external() {
            Some(external) => external.missing(peers),
            None if self == ClientUnderTest::Libca => peers.epics.as_ref().err().cloned(),
            None => None,
        }
    }

    /// Whether the client or its driver is part of the peers' Python environment.
    pub fn needs_python(self) -> bool {
        match self.external() {
            Some(external) => !matches!(external, External::Java(_) | External::Spvirit),
            None => self == ClientUnderTest::Libca,
        }
    }

    /// Command that starts its driver.
    fn launch(
        self,
        protocol: LabProtocol,
        server: &ServerUnderTest,
        cpu: Option<usize>,
        slower_per_cent: u32,
        peers: &Peers,
    ) -> Result<Launch, DriverFailure> {
        let who = format!("the driver of {}", self.text());
        if let Some(external) = self.external() {
            return external.launch(protocol, server.ports(), cpu, peers);
        }
        let mut args: Vec<OsString> = vec!["lab".into(), "worker".into()];
        let address = OsString::from(format!("{}:{}", server.ports().host, server.ports().server));
        match self {
            ClientUnderTest::Libca => {
                let missing = |why: &String| DriverFailure::Unavailable { who: who.clone(), why: why.clone() };
                let epics = peers.epics.as_ref().map_err(missing)?;
                args.extend(["drive-libca".into(), epics.libca.clone().into(), epics.libcom.clone().into()]);
            }
            ClientUnderTest::Raw | ClientUnderTest::RawReused => {
                args.extend(["drive-raw".into(), address, "--protocol".into(), protocol.text().into()]);
                args.extend((self == ClientUnderTest::RawReused).then(|| "--reused".into()));
            }
            _ => {
                let slower = slower_per_cent.to_string();
                let words = ["drive-fodo", "--slower-per-cent", &slower, "--protocol", protocol.text()];
                args.extend(words.map(OsString::from));
                args.extend((self == ClientUnderTest::FodoInto).then(|| "--into".into()));
            }
        }
        let program = crate::program::path()
            .map_err(|why| DriverFailure::Unavailable { who: who.clone(), why: why.to_string() })?;
        // libca would start a caRepeater found in PATH, which would outlive libca. Without one it uses a thread.
        let mut variables = vec![("PATH", OsString::new())];
        variables.push(protocol_of_names(protocol));
        variables.extend((self == ClientUnderTest::FodoSpin).then(spinning));
        Ok(Launch { who, program, args, cpu, ports: server.ports(), variables })
    }
}

/// Environment variable that selects the protocol of names without a scheme for Fodo's client.
pub fn protocol_of_names(protocol: LabProtocol) -> (&'static str, OsString) {
    ("FODO_PROTOCOL", protocol.text().into())
}

/// A running driver; ends when dropped.
#[derive(Debug)]
pub struct DriverProcess {
    process: ChildProcess,
    hello: Hello,
}

impl DriverProcess {
    /// Starts the driver of `client` on `cpu`, connected to `server`. `slower_per_cent` slows our own driver down, to
    /// test comparisons.
    pub fn start(
        (client, protocol): (ClientUnderTest, LabProtocol),
        server: &ServerUnderTest,
        cpu: Option<usize>,
        slower_per_cent: u32,
        peers: &Peers,
    ) -> Result<DriverProcess, DriverFailure> {
        DriverProcess::start_launch(&client.launch(protocol, server, cpu, slower_per_cent, peers)?)
    }

    /// Starts the driver with more environment variables.
    pub fn start_with(
        (client, protocol): (ClientUnderTest, LabProtocol),
        server: &ServerUnderTest,
        cpu: Option<usize>,
        peers: &Peers,
        variables: Vec<(&'static str, OsString)>,
    ) -> Result<DriverProcess, DriverFailure> {
        let mut launch = client.launch(protocol, server, cpu, 0, peers)?;
        launch.variables.extend(variables);
        DriverProcess::start_launch(&launch)
    }

    fn start_launch(launch: &Launch) -> Result<DriverProcess, DriverFailure> {
        let mut process = ChildProcess::start(launch)?;
        let hello = process.wait_for(DRIVER_START_MAX, |line| match serde_json::from_str(line).ok()? {
            DriverReply::Hello(hello) => Some(hello),
            _ => None,
        })?;
        Ok(DriverProcess { process, hello })
    }

    /// The driver's greeting: client, version, runtime.
    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    /// Sends a request and waits at most `cap` for the answer; after a timeout the driver cannot be used any more.
    pub fn request(&mut self, request: &DriverRequest, cap: Duration) -> Result<DriverReply, DriverFailure> {
        let line = serde_json::to_string(request).map_err(|why| DriverFailure::Protocol { line: why.to_string() })?;
        self.process.write_line(&line)?;
        match self.process.wait_for(cap, |line| serde_json::from_str(line).ok())? {
            DriverReply::Failed(failure) => Err(failure),
            answer => Ok(answer),
        }
    }
}
