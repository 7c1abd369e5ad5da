//! The laboratory's end of a driver.

use std::ffi::OsString;
use std::time::Duration;

use serde::Serialize;

use super::{Answer, Ask, Failure, Hello};
use crate::limit::{ANSWER_MAX, DRIVER_START_MAX};
use crate::peers::Peers;
use crate::process::{Launch, Process};
use crate::server::Server;

/// A client that can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Client {
    /// Ours.
    Fodo,
    /// That of EPICS.
    Libca,
    /// A raw socket, reading into fresh memory.
    #[value(skip)]
    Raw,
    /// A raw socket, reading into reused memory.
    #[value(skip)]
    RawReused,
}

impl Client {
    /// As tables show it.
    pub fn text(self) -> &'static str {
        match self {
            Client::Fodo => "fodo",
            Client::Libca => "libca",
            Client::Raw => "raw socket",
            Client::RawReused => "raw, memory reused",
        }
    }

    /// What of the peers it needs but is not there.
    pub fn missing(self, peers: &Peers) -> Option<String> {
        match self {
            Client::Libca => peers.epics.as_ref().err().cloned(),
            Client::Fodo | Client::Raw | Client::RawReused => None,
        }
    }

    /// The words of its worker.
    fn words(self, server: &Server, peers: &Peers) -> Result<Vec<OsString>, Failure> {
        let port = OsString::from(server.ports().server.to_string());
        Ok(match self {
            Client::Fodo => vec!["drive-fodo".into()],
            Client::Raw => vec!["drive-raw".into(), port],
            Client::RawReused => vec!["drive-raw".into(), port, "--reused".into()],
            Client::Libca => {
                let epics = peers.epics.as_ref();
                let epics = epics.map_err(|why| Failure::Unavailable { who: "libca".into(), why: why.clone() })?;
                vec!["drive-libca".into(), epics.libca.clone().into(), epics.libcom.clone().into()]
            }
        })
    }
}

/// A running driver; ends when dropped.
#[derive(Debug)]
pub struct Conversation {
    process: Process,
    hello: Hello,
}

impl Conversation {
    /// Starts the driver of `client` on `cpu`, to talk to `server`.
    pub fn start(client: Client, server: &Server, cpu: Option<usize>, peers: &Peers) -> Result<Conversation, Failure> {
        let who = format!("the driver of {}", client.text());
        let unavailable = |why: std::io::Error| Failure::Unavailable { who: who.clone(), why: why.to_string() };
        let mut args: Vec<OsString> = vec!["lab".into(), "worker".into()];
        args.extend(client.words(server, peers)?);
        let mut process = Process::start(&Launch {
            program: std::env::current_exe().map_err(unavailable)?,
            who,
            args,
            cpu,
            ports: server.ports(),
            // libca would start a caRepeater found here, which outlives it. Without one it uses a thread.
            variables: vec![("PATH", OsString::new())],
        })?;
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

    /// Asks and waits for the answer, as long as an answer may take that has no cap of its own.
    pub fn ask(&mut self, ask: &Ask) -> Result<Answer, Failure> {
        self.ask_within(ask, ANSWER_MAX)
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
