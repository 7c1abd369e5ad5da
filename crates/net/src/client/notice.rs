//! What a context has to say that belongs to no operation.

use std::collections::VecDeque;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::Refusal;
use crate::limit;
use crate::sync::lock;

/// Something that a user should know, though nothing has failed.
#[derive(Clone, Debug, PartialEq)]
pub enum Notice {
    /// Two servers have the same name; told once per channel.
    TwoServers {
        /// The name.
        pv: String,
        /// Whose PV is used: the one that answered first.
        used: SocketAddr,
        /// Whose PV is not.
        ignored: SocketAddr,
    },
    /// A server has refused a put without completion.
    PutRefused {
        /// The name.
        pv: String,
        /// Who refused.
        server: SocketAddr,
        /// Why.
        refusal: Refusal,
    },
    /// The name of a host in a list cannot be resolved; it is tried again now and then.
    Unresolved {
        /// The host's name.
        host: String,
    },
    /// A name server cannot be reached, or was lost; it is tried again. Told once until it is reached.
    NameServerLost {
        /// Which.
        server: SocketAddr,
    },
    /// A beacon says that a server has started. Names that nobody has claimed are asked for again.
    ServerStarted {
        /// Where its circuits are.
        server: SocketAddr,
    },
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Notice::TwoServers { pv, used, ignored } => {
                write!(f, "two servers have \"{pv}\": {used} is used, {ignored} is not; one of them should not run")
            }
            Notice::PutRefused { pv, server, refusal } => write!(f, "{server} refused a put to \"{pv}\": {refusal}"),
            Notice::Unresolved { host } => {
                write!(f, "the host \"{host}\" cannot be resolved; it is left out until it can")
            }
            Notice::NameServerLost { server } => {
                write!(f, "the name server {server} cannot be reached; it is tried again")
            }
            Notice::ServerStarted { server } => write!(f, "the server {server} has started"),
        }
    }
}

/// Notices that wait to be taken. When nobody takes them, the first ones are kept.
#[derive(Debug, Default)]
pub(super) struct Notices {
    waiting: Mutex<VecDeque<Notice>>,
    changed: Condvar,
}

impl Notices {
    pub(super) fn push(&self, notice: Notice) {
        let mut waiting = lock(&self.waiting);
        if waiting.len() < limit::NOTICES {
            waiting.push_back(notice);
            self.changed.notify_one();
        }
    }

    /// The next one; `None` when there is none in time.
    pub(super) fn next(&self, timeout: Duration) -> Option<Notice> {
        let deadline = Instant::now() + timeout;
        let mut waiting = lock(&self.waiting);
        loop {
            if let Some(notice) = waiting.pop_front() {
                return Some(notice);
            }
            let left = deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())?;
            waiting = self.changed.wait_timeout(waiting, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notices_name_what_they_are_about() {
        let (used, ignored) = ("10.0.0.1:5064".parse().unwrap(), "10.0.0.2:5064".parse().unwrap());
        for (notice, texts) in [
            (
                Notice::TwoServers { pv: "x:y".into(), used, ignored },
                ["\"x:y\"", "10.0.0.1:5064 is used", "10.0.0.2:5064"],
            ),
            (Notice::Unresolved { host: "far".into() }, ["\"far\"", "cannot be resolved", "left out"]),
            (Notice::NameServerLost { server: used }, ["name server", "10.0.0.1:5064", "tried again"]),
            (Notice::ServerStarted { server: used }, ["server", "10.0.0.1:5064", "started"]),
        ] {
            let text = notice.to_string();
            assert!(texts.iter().all(|part| text.contains(part)), "{text}");
        }
    }

    #[test]
    fn the_first_notices_are_kept_when_nobody_takes_them_and_then_none_waits() {
        let notices = Notices::default();
        let notice = |number: usize| Notice::Unresolved { host: number.to_string() };

        (0..limit::NOTICES + 10).for_each(|number| notices.push(notice(number)));

        for number in 0..limit::NOTICES {
            assert_eq!(notices.next(Duration::ZERO), Some(notice(number)));
        }
        assert_eq!(notices.next(Duration::from_millis(1)), None);
    }

    #[test]
    fn a_notice_that_comes_while_somebody_waits_is_given_to_them() {
        let notices = std::sync::Arc::new(Notices::default());
        let waiting = notices.clone();
        let waiter = std::thread::spawn(move || waiting.next(Duration::from_secs(60)));

        notices.push(Notice::Unresolved { host: "far".into() });

        assert_eq!(waiter.join().unwrap(), Some(Notice::Unresolved { host: "far".into() }));
    }
}
