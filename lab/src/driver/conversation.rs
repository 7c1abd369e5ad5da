//! The laboratory's end of a driver.

use std::ffi::OsString;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::external::External;
use super::{Answer, Ask, Failure, Hello};
use crate::limit::DRIVER_START_MAX;
use crate::peers::Peers;
use crate::process::{Launch, Process};
use crate::server::{Server, spinning};

/// A client that can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Client {
    /// Ours.
    Fodo,
    /// Ours, reading arrays into reused memory as libca does.
    #[value(skip)]
    FodoInto,
    /// Ours, looking for answers before it sleeps.
    #[value(skip)]
    FodoSpin,
    /// That of EPICS.
    Libca,
    /// PSI's, in Java: the one the studies measured.
    PsiCa,
    /// Diamond's for asyncio.
    Aioca,
    /// GSECARS's.
    Pyepics,
    /// NSLS-II's, all Python.
    Caproto,
    /// A raw socket, reading into fresh memory.
    #[value(skip)]
    Raw,
    /// A raw socket, reading into reused memory.
    #[value(skip)]
    RawReused,
}

impl Client {
    /// Those that a user may choose from.
    pub const ALL: [Client; 6] =
        [Client::Fodo, Client::Libca, Client::PsiCa, Client::Aioca, Client::Pyepics, Client::Caproto];

    /// As tables and files name it.
    pub fn text(self) -> &'static str {
        match self {
            Client::Fodo => "fodo",
            Client::FodoInto => "fodo-into",
            Client::FodoSpin => "fodo-spin",
            Client::Libca => "libca",
            Client::PsiCa => "psi-ca",
            Client::Aioca => "aioca",
            Client::Pyepics => "pyepics",
            Client::Caproto => "caproto",
            Client::Raw => "raw",
            Client::RawReused => "raw-reused",
        }
    }

    /// The one in a language of its own that it is.
    pub fn external(self) -> Option<External> {
        match self {
            Client::PsiCa => Some(External::PsiCa),
            Client::Aioca => Some(External::Aioca),
            Client::Pyepics => Some(External::Pyepics),
            Client::Caproto => Some(External::Caproto),
            Client::Fodo | Client::FodoInto | Client::FodoSpin | Client::Libca | Client::Raw | Client::RawReused => {
                None
            }
        }
    }

    /// Whether it runs in Python.
    pub fn is_python(self) -> bool {
        matches!(self, Client::Aioca | Client::Pyepics | Client::Caproto)
    }

    /// What of the peers it needs but is not there. May start programs.
    pub fn missing(self, peers: &Peers) -> Option<String> {
        match self.external() {
            Some(external) => external.missing(peers),
            None if self == Client::Libca => peers.epics.as_ref().err().cloned(),
            None => None,
        }
    }

    /// Whether it or its driver comes with the peers' Python environment.
    pub fn needs_python(self) -> bool {
        self == Client::Libca || self.external().is_some_and(|external| external != External::PsiCa)
    }

    /// How its driver is started.
    fn launch(
        self,
        server: &Server,
        cpu: Option<usize>,
        slower_per_cent: u32,
        peers: &Peers,
    ) -> Result<Launch, Failure> {
        let who = format!("the driver of {}", self.text());
        if let Some(external) = self.external() {
            return external.launch(server.ports(), cpu, peers);
        }
        let mut args: Vec<OsString> = vec!["lab".into(), "worker".into()];
        let address = OsString::from(format!("{}:{}", server.ports().host, server.ports().server));
        match self {
            Client::Libca => {
                let missing = |why: &String| Failure::Unavailable { who: who.clone(), why: why.clone() };
                let epics = peers.epics.as_ref().map_err(missing)?;
                args.extend(["drive-libca".into(), epics.libca.clone().into(), epics.libcom.clone().into()]);
            }
            Client::Raw => args.extend(["drive-raw".into(), address]),
            Client::RawReused => args.extend(["drive-raw".into(), address, "--reused".into()]),
            _ => {
                let slower = slower_per_cent.to_string();
                args.extend(["drive-fodo", "--slower-per-cent", &slower].map(OsString::from));
                args.extend((self == Client::FodoInto).then(|| "--into".into()));
            }
        }
        let program =
            std::env::current_exe().map_err(|why| Failure::Unavailable { who: who.clone(), why: why.to_string() })?;
        // libca would start a caRepeater found here, which outlives it. Without one it uses a thread.
        let mut variables = vec![("PATH", OsString::new())];
        variables.extend((self == Client::FodoSpin).then(spinning));
        Ok(Launch { who, program, args, cpu, ports: server.ports(), variables })
    }
}

/// A running driver; ends when dropped.
#[derive(Debug)]
pub struct Conversation {
    process: Process,
    hello: Hello,
}

impl Conversation {
    /// Starts the driver of `client` on `cpu`, to talk to `server`; ours as a double that is so much slower.
    pub fn start(
        client: Client,
        server: &Server,
        cpu: Option<usize>,
        slower_per_cent: u32,
        peers: &Peers,
    ) -> Result<Conversation, Failure> {
        let mut process = Process::start(&client.launch(server, cpu, slower_per_cent, peers)?)?;
        let hello = process.wait_for(DRIVER_START_MAX, |line| match serde_json::from_str(line).ok()? {
            Answer::Hello(hello) => Some(hello),
            _ => None,
        })?;
        Ok(Conversation { process, hello })
    }

    /// Who the driver says it drives.
    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    /// Asks and waits for the answer no longer than `cap`; a driver that missed it cannot be asked again.
    pub fn ask_within(&mut self, ask: &Ask, cap: Duration) -> Result<Answer, Failure> {
        let line = serde_json::to_string(ask).map_err(|why| Failure::Protocol { line: why.to_string() })?;
        self.process.write_line(&line)?;
        match self.process.wait_for(cap, |line| serde_json::from_str(line).ok())? {
            Answer::Failed(failure) => Err(failure),
            answer => Ok(answer),
        }
    }
}
