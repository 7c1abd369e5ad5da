//! The state of a channel, guarded by its lock.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use fodo_engine::Rights;

use super::super::circuit::{Circuit, ServerChannel};
use super::super::monitor::MonitorCore;
use super::super::operation::{OperationCore, OperationOutcome, OperationTask};
use super::super::{ChannelFacts, Error, ErrorKind, Refusal};
use crate::limit;

/// The data that a channel's lock guards.
pub(super) struct State {
    pub(super) phase: ChannelPhase,
    pub(super) rights: Rights,
    /// The user was notified that two servers have the name.
    pub(super) duplicate_reported: bool,
    pub(super) monitors: Vec<Arc<MonitorCore>>,
    /// Usually `None` while the channel is active.
    pub(super) until_active: Option<Box<UntilActive>>,
}

/// Data that a channel needs only while it is not active.
#[derive(Default)]
pub(super) struct UntilActive {
    /// Operations that wait until the channel is active.
    pub(super) waiting: Vec<(Arc<OperationCore>, OperationTask)>,
    /// The last failure, for the text of a timeout.
    pub(super) trouble: Option<Trouble>,
    /// Consecutive claims that did not make it active; each doubles the pause before the next search.
    n_failures: u32,
    /// The server of the last failure. Its next claim is skipped, so that another server has time to claim the name.
    avoided: Option<SocketAddr>,
    /// The last failure was that of its connection.
    is_unreached: bool,
    /// The circuit is silent, so the name is searched for as well.
    pub(in super::super) is_sought: bool,
}

#[derive(Clone, Debug)]
pub(super) enum ChannelPhase {
    Searching,
    Connecting(Arc<Circuit>),
    Active(Arc<Circuit>, ServerChannel, Responsiveness),
    /// The last handle was dropped, or the context was closed.
    Closed,
}

/// Whether the server of an active channel responds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::client) enum Responsiveness {
    /// It responds.
    Responsive,
    /// It has been silent for too long; its circuit is still open.
    Silent,
}

/// Why a claim did not make a channel active.
#[derive(Clone, Debug)]
pub(in crate::client) enum Trouble {
    /// The server did not reply.
    NoReply(SocketAddr),
    /// The connection ended before the server confirmed the channel.
    ConnectionClosed(SocketAddr),
    /// The server refused.
    Refused(SocketAddr, Refusal),
    /// The handshake of TLS failed.
    Handshake(SocketAddr, Arc<str>),
    /// The system provided no socket for a circuit to the server.
    System(SocketAddr, Arc<io::Error>),
}

impl Trouble {
    pub(super) fn server(&self) -> SocketAddr {
        match self {
            Trouble::NoReply(server)
            | Trouble::ConnectionClosed(server)
            | Trouble::Refused(server, _)
            | Trouble::Handshake(server, _)
            | Trouble::System(server, _) => *server,
        }
    }

    /// The error of an operation that has waited for `after`.
    pub(super) fn error(&self, pv: &str, after: Duration) -> Error {
        let kind = match self.clone() {
            Trouble::NoReply(server) => ErrorKind::NoReply { server, after },
            Trouble::ConnectionClosed(server) => ErrorKind::ConnectionClosed { server },
            Trouble::Refused(server, refusal) => ErrorKind::Refused { server, refusal },
            Trouble::Handshake(server, reason) => ErrorKind::Handshake { server, reason: reason.as_ref().into() },
            Trouble::System(_, source) => return Error::of_system(pv, source),
        };
        Error::new(pv, kind)
    }
}

impl State {
    /// The state of a new channel.
    pub(super) fn new() -> State {
        State {
            phase: ChannelPhase::Searching,
            rights: Rights { read: true, write: true },
            duplicate_reported: false,
            monitors: Vec::new(),
            until_active: None,
        }
    }

    /// Whether the access rights permit the task.
    pub(super) fn allows(&self, task: &OperationTask) -> bool {
        match task {
            // Servers of pvAccess do not report rights, they refuse requests.
            OperationTask::Connect | OperationTask::Structured(_) => true,
            OperationTask::Get(_) => self.rights.read,
            OperationTask::Put(_) | OperationTask::PutUnconfirmed(_) | OperationTask::CheckedPut(_) => {
                self.rights.write
            }
        }
    }

    pub(super) fn refusal(&self, pv: &str, task: &OperationTask) -> Option<Error> {
        let server = match &self.phase {
            ChannelPhase::Active(circuit, ..) if !self.allows(task) => circuit.server(),
            _ => return None,
        };
        let refusal = if matches!(task, OperationTask::Get(_)) { Refusal::ReadAccess } else { Refusal::WriteAccess };
        Some(Error::new(pv, ErrorKind::Refused { server, refusal }))
    }

    /// The result of a task that needs no request on an active channel: connecting, or one without access.
    pub(super) fn ended(&self, pv: &str, task: &OperationTask) -> Option<Result<OperationOutcome, Error>> {
        match task {
            OperationTask::Connect => self.facts().map(OperationOutcome::Connected).map(Ok),
            _ => self.refusal(pv, task).map(Err),
        }
    }

    /// What the server has reported while the channel is active.
    pub(super) fn facts(&self) -> Option<ChannelFacts> {
        match &self.phase {
            ChannelPhase::Active(circuit, server_channel, _) => Some(ChannelFacts {
                server: circuit.server(),
                kind: server_channel.kind,
                count_max: server_channel.count,
                may_read: self.rights.read,
                may_write: self.rights.write,
                tls: circuit.tls_peer(),
            }),
            _ => None,
        }
    }

    pub(super) fn until_active(&mut self) -> &mut UntilActive {
        self.until_active.get_or_insert_default()
    }
}

impl UntilActive {
    /// Counts a failed claim; returns the pause before the next search. A server's refusal is kept over other failures.
    pub(super) fn failed(&mut self, trouble: Trouble) -> Duration {
        self.avoided = Some(trouble.server());
        self.is_unreached = matches!(trouble, Trouble::NoReply(_) | Trouble::Refused(_, Refusal::Connection));
        let is_said = |trouble: &Trouble| matches!(trouble, Trouble::Refused(..) | Trouble::Handshake(..));
        if is_said(&trouble) || !self.trouble.as_ref().is_some_and(is_said) {
            self.trouble = Some(trouble);
        }
        let pause = limit::SEARCH_PAUSE * (1 << self.n_failures.min(limit::SEARCH_PAUSE_DOUBLINGS));
        self.n_failures = self.n_failures.saturating_add(1);
        pause
    }

    /// Whether to skip a claim of this server; the claim after it is accepted.
    pub(super) fn avoids(&mut self, server: SocketAddr) -> bool {
        self.avoided.take_if(|avoided| *avoided == server).is_some()
    }

    /// Whether the last failure was that of the connection to a server: nothing there has replied.
    pub(super) fn is_unreached(&self) -> bool {
        self.is_unreached
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_pauses_after_failed_claims_double_up_to_a_maximum() {
        let mut until = UntilActive::default();
        let server: SocketAddr = "10.0.0.1:5064".parse().unwrap();

        let pauses: Vec<Duration> = (0..12).map(|_| until.failed(Trouble::NoReply(server))).collect();

        assert_eq!(pauses[..3], [1, 2, 4].map(|n| limit::SEARCH_PAUSE * n));
        assert_eq!(pauses[9..], [limit::SEARCH_PAUSE * 512; 3], "sixteen seconds");
    }

    #[test]
    fn a_refusal_is_kept_until_another_refusal() {
        let mut until = UntilActive::default();
        let [one, other]: [SocketAddr; 2] = ["10.0.0.1:5064", "10.0.0.2:5064"].map(|text| text.parse().unwrap());

        until.failed(Trouble::NoReply(one));
        assert!(matches!(until.trouble, Some(Trouble::NoReply(server)) if server == one));
        until.failed(Trouble::Refused(one, Refusal::Channel { text: String::new() }));
        until.failed(Trouble::NoReply(other));
        assert!(matches!(until.trouble, Some(Trouble::Refused(server, Refusal::Channel { .. })) if server == one));
        until.failed(Trouble::Refused(other, Refusal::Connection));
        assert!(matches!(until.trouble, Some(Trouble::Refused(server, Refusal::Connection)) if server == other));
    }

    #[test]
    fn a_lack_of_sockets_is_an_error_of_the_system_with_its_cause() {
        use std::error::Error as _;
        let cause = Arc::new(io::Error::from(io::ErrorKind::OutOfMemory));

        let error = Trouble::System("10.0.0.1:5064".parse().unwrap(), cause).error("x:y", Duration::ZERO);

        assert_eq!(error.kind(), &ErrorKind::System { kind: io::ErrorKind::OutOfMemory });
        assert_eq!((error.pv(), error.source().map(ToString::to_string)), ("x:y", Some("out of memory".to_owned())));
    }

    #[test]
    fn each_operation_requires_its_own_access_right() {
        let mut state = State::new();
        let tasks = [
            OperationTask::Connect,
            OperationTask::Get(Default::default()),
            OperationTask::Put(1.into()),
            OperationTask::PutUnconfirmed(1.into()),
        ];

        for (read, write, allowed) in [
            (true, true, [true, true, true, true]),
            (true, false, [true, true, false, false]),
            (false, true, [true, false, true, true]),
            (false, false, [true, false, false, false]),
        ] {
            state.rights = Rights { read, write };
            assert_eq!(tasks.clone().map(|task| state.allows(&task)), allowed);
            assert!(state.refusal("x:y", &tasks[1]).is_none(), "nothing is refused before the channel is active");
        }
    }
}
