//! Notices: what a context reports that belongs to no operation.

use std::collections::VecDeque;
use std::fmt;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use fodo_lock::{Condvar, Mutex};

use super::Refusal;
use super::operation::deadline_after;
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
    /// A host name in an address list cannot be resolved; the client retries from time to time.
    UnresolvedHost {
        /// The host's name.
        host: String,
    },
    /// A name server cannot be reached, or the connection to it was lost; the client retries. Reported once until it is
    /// reached.
    NameServerLost {
        /// The name server.
        server: SocketAddr,
    },
    /// A beacon shows that a server has started. Names that no server has claimed are searched for again.
    ServerStarted {
        /// The address of its circuits.
        server: SocketAddr,
    },
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Notice::TwoServers { pv, used, ignored } => {
                write!(f, "two servers have \"{pv}\": using {used}, ignoring {ignored}; stop one of them")
            }
            Notice::PutRefused { pv, server, refusal } => write!(f, "{server} refused a put to \"{pv}\": {refusal}"),
            Notice::UnresolvedHost { host } => {
                write!(f, "the host \"{host}\" cannot be resolved; it is ignored until it can be")
            }
            Notice::NameServerLost { server } => {
                write!(f, "the name server {server} cannot be reached; retrying")
            }
            Notice::ServerStarted { server } => write!(f, "the server {server} has started"),
        }
    }
}

/// Notices that wait to be taken. If they are not taken, the first ones are kept.
#[derive(Debug, Default)]
pub(super) struct Notices {
    waiting: Mutex<VecDeque<Notice>>,
    changed: Condvar,
}

impl Notices {
    pub(super) fn push(&self, notice: Notice) {
        let mut waiting = self.waiting.lock();
        if waiting.len() < limit::NOTICES {
            waiting.push_back(notice);
            self.changed.notify_one();
        }
    }

    /// The next notice; `None` if there is none in time.
    pub(super) fn next(&self, timeout: Duration) -> Option<Notice> {
        let deadline = deadline_after(timeout);
        let mut waiting = self.waiting.lock();
        loop {
            if let Some(notice) = waiting.pop_front() {
                return Some(notice);
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
            (Notice::UnresolvedHost { host: "far".into() }, ["\"far\"", "cannot be resolved", "ignored"]),
            (Notice::NameServerLost { server: used }, ["name server", "10.0.0.1:5064", "retrying"]),
            (Notice::ServerStarted { server: used }, ["server", "10.0.0.1:5064", "started"]),
        ] {
            let text = notice.to_string();
            assert!(texts.iter().all(|part| text.contains(part)), "{text}");
        }
    }

    #[test]
    fn a_full_notice_queue_keeps_the_oldest_notices() {
        let notices = Notices::default();
        let notice = |number: usize| Notice::UnresolvedHost { host: number.to_string() };

        (0..limit::NOTICES + 10).for_each(|number| notices.push(notice(number)));

        for number in 0..limit::NOTICES {
            assert_eq!(notices.next(Duration::ZERO), Some(notice(number)));
        }
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
