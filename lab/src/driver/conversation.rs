//! The laboratory's end of the protocol with a driver.

use std::ffi::OsString;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::external::External;
use super::{DriverFailure, DriverReply, DriverRequest, Hello};
use crate::limit::DRIVER_START_MAX;
use crate::peers::Peers;
use crate::process::{ChildProcess, Launch};
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
    /// EPICS' own client library.
    Libca,
    /// PSI's `ca`, in Java: the client that the studies measured.
    PsiCa,
    /// Diamond's client for asyncio.
    Aioca,
    /// The client of GSECARS.
    Pyepics,
    /// NSLS-II's client, all Python.
    Caproto,
    /// A raw socket, reading into fresh memory.
    #[value(skip)]
    Raw,
    /// A raw socket, reading into reused memory.
    #[value(skip)]
    RawReused,
}

impl ClientUnderTest {
    /// The clients that a user may choose from.
    pub const ALL: [ClientUnderTest; 6] = [
        ClientUnderTest::Fodo,
        ClientUnderTest::Libca,
        ClientUnderTest::PsiCa,
        ClientUnderTest::Aioca,
        ClientUnderTest::Pyepics,
        ClientUnderTest::Caproto,
    ];

    /// The name in tables and files.
    pub fn text(self) -> &'static str {
        match self {
            ClientUnderTest::Fodo => "fodo",
            ClientUnderTest::FodoInto => "fodo-into",
            ClientUnderTest::FodoSpin => "fodo-spin",
            ClientUnderTest::Libca => "libca",
            ClientUnderTest::PsiCa => "psi-ca",
            ClientUnderTest::Aioca => "aioca",
            ClientUnderTest::Pyepics => "pyepics",
            ClientUnderTest::Caproto => "caproto",
            ClientUnderTest::Raw => "raw",
            ClientUnderTest::RawReused => "raw-reused",
        }
    }

    /// The external driver of this client, if it has one.
    pub fn external(self) -> Option<External> {
        match self {
            ClientUnderTest::PsiCa => Some(External::PsiCa),
            ClientUnderTest::Aioca => Some(External::Aioca),
            ClientUnderTest::Pyepics => Some(External::Pyepics),
            ClientUnderTest::Caproto => Some(External::Caproto),
            ClientUnderTest::Fodo
            | ClientUnderTest::FodoInto
            | ClientUnderTest::FodoSpin
            | ClientUnderTest::Libca
            | ClientUnderTest::Raw
            | ClientUnderTest::RawReused => None,
        }
    }

    /// Whether the client runs in Python.
    pub fn is_python(self) -> bool {
        matches!(self, ClientUnderTest::Aioca | ClientUnderTest::Pyepics | ClientUnderTest::Caproto)
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
        self == ClientUnderTest::Libca || self.external().is_some_and(|external| external != External::PsiCa)
    }

    /// Command that starts its driver.
    fn launch(
        self,
        server: &ServerUnderTest,
        cpu: Option<usize>,
        slower_per_cent: u32,
        peers: &Peers,
    ) -> Result<Launch, DriverFailure> {
        let who = format!("the driver of {}", self.text());
        if let Some(external) = self.external() {
            return external.launch(server.ports(), cpu, peers);
        }
        let mut args: Vec<OsString> = vec!["lab".into(), "worker".into()];
        let address = OsString::from(format!("{}:{}", server.ports().host, server.ports().server));
        match self {
            ClientUnderTest::Libca => {
                let missing = |why: &String| DriverFailure::Unavailable { who: who.clone(), why: why.clone() };
                let epics = peers.epics.as_ref().map_err(missing)?;
                args.extend(["drive-libca".into(), epics.libca.clone().into(), epics.libcom.clone().into()]);
            }
            ClientUnderTest::Raw => args.extend(["drive-raw".into(), address]),
            ClientUnderTest::RawReused => args.extend(["drive-raw".into(), address, "--reused".into()]),
            _ => {
                let slower = slower_per_cent.to_string();
                args.extend(["drive-fodo", "--slower-per-cent", &slower].map(OsString::from));
                args.extend((self == ClientUnderTest::FodoInto).then(|| "--into".into()));
            }
        }
        let program = std::env::current_exe()
            .map_err(|why| DriverFailure::Unavailable { who: who.clone(), why: why.to_string() })?;
        // libca would start a caRepeater found in PATH, which would outlive libca. Without one it uses a thread.
        let mut variables = vec![("PATH", OsString::new())];
        variables.extend((self == ClientUnderTest::FodoSpin).then(spinning));
        Ok(Launch { who, program, args, cpu, ports: server.ports(), variables })
    }
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
        client: ClientUnderTest,
        server: &ServerUnderTest,
        cpu: Option<usize>,
        slower_per_cent: u32,
        peers: &Peers,
    ) -> Result<DriverProcess, DriverFailure> {
        let mut process = ChildProcess::start(&client.launch(server, cpu, slower_per_cent, peers)?)?;
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
