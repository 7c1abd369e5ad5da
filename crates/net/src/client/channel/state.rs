//! How a channel stands, behind its lock.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use fodo_ca::Rights;

use super::super::circuit::{Circuit, Place};
use super::super::monitor::MonitorCore;
use super::super::operation::{OperationCore, Outcome, Task};
use super::super::{Error, Facts, Refusal};
use crate::limit;

/// What the lock of a channel guards.
pub(super) struct State {
    pub(super) phase: Phase,
    pub(super) rights: Rights,
    /// The user knows that two servers have the name.
    pub(super) is_double_told: bool,
    pub(super) monitors: Vec<Arc<MonitorCore>>,
    /// Mostly nothing while it is active.
    pub(super) until_active: Option<Box<UntilActive>>,
}

/// What a channel may have beside its phase while it is not active.
#[derive(Default)]
pub(super) struct UntilActive {
    /// Operations that wait for it.
    pub(super) waiting: Vec<(Arc<OperationCore>, Task)>,
    /// What went wrong last, for the text of a time-out.
    pub(super) trouble: Option<Trouble>,
    /// Claims in a row that did not make it active; each doubles the pause before the next search.
    n_failures: u32,
    /// The server of the last of them: its next claim is passed over, so that another server has time for its own.
    avoided: Option<SocketAddr>,
    /// Its circuit is silent, so its name is searched for as well.
    pub(in super::super) is_sought: bool,
}

#[derive(Clone, Debug)]
pub(super) enum Phase {
    Searching,
    Connecting(Arc<Circuit>),
    Active(Arc<Circuit>, Place, Responsive),
    /// The last handle is gone, or the context was closed.
    Closed,
}

/// Whether the server of an active channel is heard.
pub(super) type Responsive = bool;

/// Why a claim did not make a channel active.
#[derive(Clone, Debug)]
pub(in crate::client) enum Trouble {
    /// The server did not answer.
    Claimed(SocketAddr),
    /// It closed the connection.
    Dropped(SocketAddr),
    /// It refused.
    Refused(SocketAddr, Refusal),
}

impl Trouble {
    pub(super) fn server(&self) -> SocketAddr {
        match self {
            Trouble::Claimed(server) | Trouble::Dropped(server) | Trouble::Refused(server, _) => *server,
        }
    }

    /// The error of an operation that has waited for so long.
    pub(super) fn error(&self, pv: String, after: Duration) -> Error {
        match self.clone() {
            Trouble::Claimed(server) => Error::NoAnswer { pv, server, after },
            Trouble::Dropped(server) => Error::Dropped { pv, server },
            Trouble::Refused(server, refusal) => Error::Refused { pv, server, refusal },
        }
    }
}

impl State {
    /// Of a channel that has just been made.
    pub(super) fn new() -> State {
        State {
            phase: Phase::Searching,
            rights: Rights { read: true, write: true },
            is_double_told: false,
            monitors: Vec::new(),
            until_active: None,
        }
    }

    /// Whether its rights are enough.
    pub(super) fn allows(&self, task: &Task) -> bool {
        match task {
            Task::Connect => true,
            Task::Get(_) => self.rights.read,
            Task::Put(_) | Task::PutUnconfirmed(_) => self.rights.write,
        }
    }

    pub(super) fn refusal(&self, pv: &str, task: &Task) -> Option<Error> {
        let server = match &self.phase {
            Phase::Active(circuit, ..) if !self.allows(task) => circuit.server(),
            _ => return None,
        };
        let refusal = if matches!(task, Task::Get(_)) { Refusal::ReadAccess } else { Refusal::WriteAccess };
        Some(Error::Refused { pv: pv.to_owned(), server, refusal })
    }

    /// How a task ends on an active channel without being asked of the server.
    pub(super) fn ended(&self, pv: &str, task: &Task) -> Option<Result<Outcome, Error>> {
        match task {
            Task::Connect => self.facts().map(Outcome::Connected).map(Ok),
            _ => self.refusal(pv, task).map(Err),
        }
    }

    /// What the server says of it while it is active.
    pub(super) fn facts(&self) -> Option<Facts> {
        match &self.phase {
            Phase::Active(circuit, place, _) => Some(Facts {
                server: circuit.server(),
                kind: place.kind,
                count_max: place.count,
                may_read: self.rights.read,
                may_write: self.rights.write,
            }),
            _ => None,
        }
    }

    pub(super) fn until_active(&mut self) -> &mut UntilActive {
        self.until_active.get_or_insert_default()
    }
}

impl UntilActive {
    /// Counts a claim that came to nothing; gives the pause before the next search. What a server has said is kept.
    pub(super) fn failed(&mut self, trouble: Trouble) -> Duration {
        self.avoided = Some(trouble.server());
        let is_said = |trouble: &Trouble| matches!(trouble, Trouble::Refused(..));
        if is_said(&trouble) || !self.trouble.as_ref().is_some_and(is_said) {
            self.trouble = Some(trouble);
        }
        let pause = limit::SEARCH_PAUSE * (1 << self.n_failures.min(limit::SEARCH_PAUSE_DOUBLINGS));
        self.n_failures = self.n_failures.saturating_add(1);
        pause
    }

    /// Whether a claim of this server is to be passed over; the one behind it is not.
    pub(super) fn avoids(&mut self, server: SocketAddr) -> bool {
        self.avoided.take_if(|avoided| *avoided == server).is_some()
    }
}
