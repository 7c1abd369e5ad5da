//! Notices: what a context reports that belongs to no operation.

use std::collections::VecDeque;
use std::fmt;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use fodo_lock::{Condvar, Mutex};

use super::Refusal;
use super::operation::deadline_after;
use crate::config::Host;
use crate::limit;

/// Something a user should know although no operation failed.
///
/// See the example of [`Context::next_notice`](crate::Context::next_notice).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Notice {
    /// Two servers serve the same name; reported once per channel.
    TwoServers {
        /// The PV's name.
        pv: String,
        /// The server whose PV is used: the first one to reply.
        used: SocketAddr,
        /// The server whose PV is ignored.
        ignored: SocketAddr,
    },
    /// A server has refused a put without completion.
    PutRefused {
        /// The PV's name.
        pv: String,
        /// The server that refused.
        server: SocketAddr,
        /// Why.
        refusal: Refusal,
    },
    /// A server has sent a text about an operation, which only pvAccess permits. The operation ends as without it.
    ServerMessage {
        /// The PV's name.
        pv: String,
        /// The server that sent it.
        server: SocketAddr,
        /// The text.
        text: String,
    },
    /// A host name in an address list cannot be resolved, and the client retries from time to time; or an entry is an address
    /// of IPv6, which is not supported.
    UnresolvedHost {
        /// The host's name or address.
        host: String,
    },
    /// Addresses of IPv6 are configured, and no search can be sent to them; those of IPv4 are searched. The client retries.
    /// Reported once.
    NoSearchOverIpv6 {
        /// Why, and what to do.
        reason: String,
    },
    /// A name server cannot be reached, or the connection to it was lost; the client retries. Reported once until it is
    /// reached.
    NameServerLost {
        /// The name server.
        server: SocketAddr,
    },
    /// The handshake of TLS with a server failed. Reported once for each reason; the client retries.
    HandshakeFailed {
        /// The server.
        server: SocketAddr,
        /// Why, about the server: "its certificate has expired".
        reason: String,
    },
    /// A beacon shows that a server has started. Names that no server has claimed are searched for again.
    ServerStarted {
        /// The address of its circuits.
        server: SocketAddr,
    },
    /// Notices that followed were dropped, because too many waited to be taken.
    Dropped {
        /// Their number.
        n_notices: u64,
    },
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Notice::TwoServers { pv, used, ignored } => {
                write!(f, "two servers have \"{pv}\": using {used}, ignoring {ignored}; stop one of them")
            }
            Notice::PutRefused { pv, server, refusal } => write!(f, "{server} refused a put to \"{pv}\": {refusal}"),
            // Quoted, since text from the network may contain control characters.
            Notice::ServerMessage { pv, server, text } => write!(f, "{server} reports about \"{pv}\": {text:?}"),
            Notice::UnresolvedHost { host } if Host::is_ipv6(host) => {
                write!(
                    f,
                    "the address \"{host}\" is ignored: IPv6 is for pvAccess only, and needs its interface to exist"
                )
            }
            Notice::UnresolvedHost { host } => {
                write!(f, "the host \"{host}\" cannot be resolved; it is ignored until it can be")
            }
            Notice::NoSearchOverIpv6 { reason } => write!(f, "no search is sent over IPv6: {reason}"),
            Notice::NameServerLost { server } => {
                write!(f, "the name server {server} cannot be reached; retrying")
            }
            Notice::HandshakeFailed { server, reason } => {
                write!(f, "the TLS handshake with {server} failed: {reason}")
            }
            Notice::ServerStarted { server } => write!(f, "the server {server} has started"),
            Notice::Dropped { n_notices } => {
                write!(f, "{n_notices} more notices were dropped, because too many waited")
            }
        }
    }
}

/// Notices that wait to be taken. If they are not taken, the first ones are kept, and the number of the others.
#[derive(Debug, Default)]
pub(super) struct Notices {
    waiting: Mutex<WaitingNotices>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct WaitingNotices {
    kept: VecDeque<Notice>,
    n_dropped: u64,
    /// Failed handshakes that were reported, at most [`limit::NOTICES`]; then again.
    failed_handshakes: Vec<Notice>,
}

impl WaitingNotices {
    /// Whether a failed handshake was reported before, with the same reason.
    fn is_repeated(&mut self, notice: &Notice) -> bool {
        if self.failed_handshakes.contains(notice) {
            return true;
        }
        if self.failed_handshakes.len() >= limit::NOTICES {
            self.failed_handshakes.clear();
        }
        self.failed_handshakes.push(notice.clone());
        false
    }
}

impl Notices {
    pub(super) fn push(&self, notice: Notice) {
        let mut waiting = self.waiting.lock();
        if matches!(notice, Notice::HandshakeFailed { .. }) && waiting.is_repeated(&notice) {
            return;
        }
        // After a drop, none is kept until those before it are taken, so that the number has its place.
        if waiting.kept.len() < limit::NOTICES && waiting.n_dropped == 0 {
            waiting.kept.push_back(notice);
            self.changed.notify_one();
        } else {
            waiting.n_dropped += 1;
        }
    }

    /// The next notice; `None` if there is none in time.
    pub(super) fn next(&self, timeout: Duration) -> Option<Notice> {
        let deadline = deadline_after(timeout);
        let mut waiting = self.waiting.lock();
        loop {
            if let Some(notice) = waiting.kept.pop_front() {
                return Some(notice);
            }
            let n_notices = std::mem::take(&mut waiting.n_dropped);
            if n_notices > 0 {
                return Some(Notice::Dropped { n_notices });
            }
            let left = deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())?;
            self.changed.wait_for(&mut waiting, left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notices_contain_the_names_and_addresses_they_concern() {
        let (used, ignored) = ("10.0.0.1:5064".parse().unwrap(), "10.0.0.2:5064".parse().unwrap());
        for (notice, texts) in [
            (
                Notice::TwoServers { pv: "x:y".into(), used, ignored },
                ["\"x:y\"", "using 10.0.0.1:5064", "10.0.0.2:5064"],
            ),
            (
                Notice::ServerMessage { pv: "x:y".into(), server: used, text: "slow\n".into() },
                ["\"x:y\"", "10.0.0.1:5064", "\"slow\\n\""],
            ),
            (Notice::UnresolvedHost { host: "far".into() }, ["\"far\"", "cannot be resolved", "ignored"]),
            (Notice::UnresolvedHost { host: "fe80::1%eth0".into() }, ["\"fe80::1%eth0\"", "IPv6", "ignored"]),
            (Notice::NoSearchOverIpv6 { reason: "in use".into() }, ["no search", "IPv6", "in use"]),
            (Notice::NameServerLost { server: used }, ["name server", "10.0.0.1:5064", "retrying"]),
            (Notice::ServerStarted { server: used }, ["server", "10.0.0.1:5064", "started"]),
            (Notice::Dropped { n_notices: 7 }, ["7 more", "dropped", "waited"]),
        ] {
            let text = notice.to_string();
            assert!(texts.iter().all(|part| text.contains(part)), "{text}");
        }
    }

    #[test]
    fn a_full_notice_queue_keeps_the_oldest_notices_and_counts_the_others() {
        let notices = Notices::default();
        let notice = |number: usize| Notice::UnresolvedHost { host: number.to_string() };

        (0..limit::NOTICES + 10).for_each(|number| notices.push(notice(number)));

        for number in 0..limit::NOTICES {
            assert_eq!(notices.next(Duration::ZERO), Some(notice(number)));
        }
        assert_eq!(notices.next(Duration::ZERO), Some(Notice::Dropped { n_notices: 10 }));
        assert_eq!(notices.next(Duration::from_millis(1)), None);
    }

    #[test]
    fn a_wait_without_timeout_returns_an_available_notice() {
        let notices = Notices::default();
        notices.push(Notice::UnresolvedHost { host: "far".into() });

        assert_eq!(notices.next(Duration::MAX), Some(Notice::UnresolvedHost { host: "far".into() }));
    }

    #[test]
    fn a_notice_wakes_a_waiting_caller() {
        let notices = std::sync::Arc::new(Notices::default());
        let waiting = notices.clone();
        let waiter = std::thread::spawn(move || waiting.next(Duration::from_secs(60)));

        notices.push(Notice::UnresolvedHost { host: "far".into() });

        assert_eq!(waiter.join().unwrap(), Some(Notice::UnresolvedHost { host: "far".into() }));
    }
}
