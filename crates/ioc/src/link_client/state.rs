//! What is known about the connection of each link: its server, why it does not work, and what the log has reported.

use std::collections::HashMap;
use std::fmt;
use std::mem::discriminant;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use fodo_lock::Mutex;
use fodo_net::{Channel, ErrorKind, Refusal, WrongReply};

use super::RequestTarget;
use crate::limit;

/// Why a link does not work.
#[derive(Clone, Debug, PartialEq)]
pub enum LinkTrouble {
    /// It has not connected since it was opened.
    Unconnected,
    /// The connection was lost.
    Lost,
    /// The server has been silent for too long.
    Silent,
    /// The server denies the access that the link needs, or has refused its subscription or its last put.
    Refused(Refusal),
    /// The server has sent a value of another type or length than requested.
    WrongReply(WrongReply),
    /// The channel cannot be opened.
    Unopened(ErrorKind),
    /// The PV has no field with a value at this path.
    NoField(String),
    /// The last value cannot be sent, and why.
    Unsent(String),
    /// The link demands a PV of this IOC, which does not have it.
    NotLocal,
}

impl LinkTrouble {
    /// Whether the link is connected, although it does not work.
    fn is_connected(&self) -> bool {
        matches!(
            self,
            LinkTrouble::Refused(_) | LinkTrouble::WrongReply(_) | LinkTrouble::NoField(_) | LinkTrouble::Unsent(_)
        )
    }

    /// How long the trouble may last before it is reported.
    fn grace(&self) -> Duration {
        if *self == LinkTrouble::Unconnected { limit::LINK_GRACE } else { Duration::ZERO }
    }
}

impl fmt::Display for LinkTrouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LinkTrouble::Unconnected => write!(f, "no server has claimed the name"),
            LinkTrouble::Lost => write!(f, "the connection was lost"),
            LinkTrouble::Silent => write!(f, "the server does not respond"),
            LinkTrouble::Refused(refusal) => write!(f, "the server refuses {refusal}"),
            LinkTrouble::WrongReply(reply) => write!(f, "the server has sent {reply}"),
            LinkTrouble::Unopened(kind) => write!(f, "{kind}"),
            LinkTrouble::NoField(path) if path.is_empty() => {
                write!(f, "the PV is a structure without a value; the option field selects a part of it")
            }
            LinkTrouble::NoField(path) => write!(f, "the PV has no value at the field \"{path}\""),
            LinkTrouble::Unsent(reason) => write!(f, "the value cannot be sent: {reason}"),
            LinkTrouble::NotLocal => {
                write!(f, "the option local demands a PV of this IOC, which has none of this name")
            }
        }
    }
}

/// How many links are in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounts {
    /// Connected, without trouble.
    pub connected: usize,
    /// Connected, but the server refuses values or has sent an invalid one.
    pub failing: usize,
    /// Not connected, or the server does not respond.
    pub not_connected: usize,
}

/// A link whose state the log has not reported yet.
#[derive(Debug)]
pub struct UnreportedLink {
    pub target: RequestTarget,
    /// The name of the PV.
    pub pv: String,
    /// The server of the current or last connection.
    pub server: Option<SocketAddr>,
    /// What is wrong; `None` if the link works again.
    pub trouble: Option<LinkTrouble>,
    channel: Option<Channel>,
}

impl UnreportedLink {
    /// What is wrong, as the end of a sentence.
    pub fn reason(&self) -> Option<String> {
        self.trouble.as_ref().map(|trouble| reason(trouble, self.channel.as_ref()))
    }
}

/// The states of all links and inputs of access rules.
#[derive(Debug, Default)]
pub struct LinkStates {
    table: Mutex<LinkTable>,
}

#[derive(Debug, Default)]
struct LinkTable {
    links: HashMap<RequestTarget, LinkState>,
    /// Links whose state may differ from what the log reported last; each at most once.
    unreported: Vec<RequestTarget>,
}

#[derive(Debug)]
struct LinkState {
    pv: String,
    /// `None` until it is opened.
    channel: Option<Channel>,
    server: Option<SocketAddr>,
    trouble: Option<LinkTrouble>,
    since: Instant,
    /// Whether `unreported` contains it.
    is_queued: bool,
    /// Whether the log's last report of it is a trouble.
    is_reported: bool,
    /// When the log may report it again.
    paused_until: Option<Instant>,
}

impl LinkStates {
    /// Adds a target, which is not connected yet.
    pub(super) fn add(&self, target: RequestTarget, pv: &str, now: Instant) {
        let state = LinkState {
            pv: pv.to_owned(),
            channel: None,
            server: None,
            trouble: Some(LinkTrouble::Unconnected),
            since: now,
            is_queued: true,
            is_reported: false,
            paused_until: None,
        };
        let mut table = self.table.lock();
        let replaced = table.links.insert(target.clone(), state);
        if !replaced.as_ref().is_some_and(|replaced| replaced.is_queued) {
            table.unreported.push(target);
        }
        drop(table);
        // Closing its channel takes locks, so it happens after the table is unlocked.
        drop(replaced);
    }

    pub(super) fn remove(&self, target: &RequestTarget) {
        let mut table = self.table.lock();
        let removed = table.links.remove(target);
        if removed.as_ref().is_some_and(|removed| removed.is_queued) {
            table.unreported.retain(|other| other != target);
        }
        drop(table);
        // As above.
        drop(removed);
    }

    pub(super) fn clear(&self) {
        let removed = std::mem::take(&mut *self.table.lock());
        // As above.
        drop(removed);
    }

    pub(super) fn set_channel(&self, target: &RequestTarget, channel: Channel) {
        let mut table = self.table.lock();
        let replaced = table.links.get_mut(target).map(|link| link.channel.replace(channel));
        drop(table);
        // As above.
        drop(replaced);
    }

    pub(super) fn set_server(&self, target: &RequestTarget, server: SocketAddr) {
        if let Some(link) = self.table.lock().links.get_mut(target) {
            link.server = Some(server);
        }
    }

    /// Sets what is wrong with a link; `None` if it works. Of several troubles of the same kind the first is kept.
    pub(super) fn set(&self, target: &RequestTarget, trouble: Option<LinkTrouble>, now: Instant) {
        let mut table = self.table.lock();
        let LinkTable { links, unreported } = &mut *table;
        let Some(link) = links.get_mut(target) else { return };
        if link.trouble.as_ref().map(discriminant) == trouble.as_ref().map(discriminant) {
            return;
        }
        (link.trouble, link.since) = (trouble, now);
        if !std::mem::replace(&mut link.is_queued, true) {
            unreported.push(target.clone());
        }
    }

    /// The server of the current or last connection.
    pub fn server(&self, target: &RequestTarget) -> Option<SocketAddr> {
        self.table.lock().links.get(target).and_then(|link| link.server)
    }

    /// What is wrong with a link, as the end of a sentence; `None` if it works.
    pub fn reason(&self, target: &RequestTarget) -> Option<String> {
        let (trouble, channel) = {
            let table = self.table.lock();
            let link = table.links.get(target)?;
            (link.trouble.clone()?, link.channel.clone())
        };
        Some(reason(&trouble, channel.as_ref()))
    }

    /// How many links are in each state.
    pub fn counts(&self) -> LinkCounts {
        let mut counts = LinkCounts::default();
        for link in self.table.lock().links.values() {
            match &link.trouble {
                None => counts.connected += 1,
                Some(trouble) if trouble.is_connected() => counts.failing += 1,
                Some(_) => counts.not_connected += 1,
            }
        }
        counts
    }

    /// The links whose state must be reported now; counts them as reported.
    pub(super) fn take_unreported(&self, now: Instant) -> Vec<UnreportedLink> {
        let mut table = self.table.lock();
        let LinkTable { links, unreported } = &mut *table;
        let mut taken = Vec::new();
        unreported.retain(|target| {
            let Some(link) = links.get_mut(target) else { return false };
            if let Some(trouble) = &link.trouble
                && (now < link.since + trouble.grace() || link.paused_until.is_some_and(|until| now < until))
            {
                return true;
            }
            link.is_queued = false;
            if std::mem::replace(&mut link.is_reported, link.trouble.is_some()) || link.is_reported {
                link.paused_until = Some(now + limit::LINK_LOG_PAUSE);
                let LinkState { pv, channel, server, trouble, .. } = &*link;
                taken.push(UnreportedLink {
                    target: target.clone(),
                    pv: pv.clone(),
                    server: *server,
                    trouble: trouble.clone(),
                    channel: channel.clone(),
                });
            }
            false
        });
        taken
    }
}

/// What is wrong with a link. While it is not connected, its channel has the reason.
fn reason(trouble: &LinkTrouble, channel: Option<&Channel>) -> String {
    let error = match trouble {
        LinkTrouble::Unconnected => channel.and_then(|channel| channel.why_inactive(limit::LINK_GRACE)),
        _ => None,
    };
    match error.as_ref().map(|error| error.kind()) {
        None | Some(ErrorKind::NotFound { .. }) => trouble.to_string(),
        Some(ErrorKind::NoReply { server, .. }) => format!("{server} claims the name but does not respond"),
        Some(kind) => kind.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use fodo_data::Now;

    use super::*;

    fn target(name: &str) -> RequestTarget {
        RequestTarget::Input(name.into())
    }

    /// Links to these PVs, opened now.
    fn links(names: &[&str]) -> (LinkStates, Instant) {
        let (states, start) = (LinkStates::default(), Now::for_test().monotonic);
        names.iter().for_each(|name| states.add(target(name), name, start));
        (states, start)
    }

    /// The links to report, each with its trouble.
    fn unreported(states: &LinkStates, now: Instant) -> Vec<(String, Option<LinkTrouble>)> {
        states.take_unreported(now).into_iter().map(|link| (link.pv, link.trouble)).collect()
    }

    #[test]
    fn a_link_that_never_connects_is_reported_once_after_its_grace_period() {
        let (states, start) = links(&["absent", "present"]);
        states.set(&target("present"), None, start);

        let seen = [0, 29, 30, 31, 3600].map(|s| unreported(&states, start + Duration::from_secs(s)));

        let report = vec![("absent".to_owned(), Some(LinkTrouble::Unconnected))];
        assert_eq!(seen, [vec![], vec![], report, vec![], vec![]]);
    }

    #[test]
    fn a_lost_link_and_its_recovery_are_each_reported_once() {
        let (states, start) = links(&["x"]);
        states.set(&target("x"), None, start);
        assert_eq!(unreported(&states, start), []);

        states.set(&target("x"), Some(LinkTrouble::Lost), start);
        assert_eq!(unreported(&states, start), [("x".to_owned(), Some(LinkTrouble::Lost))]);
        assert_eq!(unreported(&states, start), []);
        states.set(&target("x"), None, start);

        assert_eq!(unreported(&states, start), [("x".to_owned(), None)]);
        assert_eq!(unreported(&states, start), []);
    }

    #[test]
    fn a_link_that_is_lost_again_and_again_is_reported_at_most_once_a_minute() {
        let (states, start) = links(&["x"]);
        let mut lost_at_s = Vec::new();
        for s in 0..180 {
            let now = start + Duration::from_secs(s);
            states.set(&target("x"), None, now);
            states.set(&target("x"), Some(LinkTrouble::Lost), now);
            if unreported(&states, now).iter().any(|(_, trouble)| trouble.is_some()) {
                lost_at_s.push(s);
            }
        }

        assert_eq!(lost_at_s, [0, 60, 120]);
    }

    #[test]
    fn a_loss_during_the_pause_is_not_reported_if_the_link_recovers_before_its_end() {
        let (states, start) = links(&["x"]);
        states.set(&target("x"), Some(LinkTrouble::Lost), start);
        assert_eq!(unreported(&states, start).len(), 1);
        states.set(&target("x"), None, start);
        assert_eq!(unreported(&states, start).len(), 1);

        states.set(&target("x"), Some(LinkTrouble::Lost), start);
        assert_eq!(unreported(&states, start), []);
        states.set(&target("x"), None, start);

        assert_eq!(unreported(&states, start + limit::LINK_LOG_PAUSE), []);
    }

    #[test]
    fn repeated_troubles_of_one_kind_are_one_trouble_with_the_first_reason() {
        let (states, start) = links(&["x"]);
        let refused = |refusal| Some(LinkTrouble::Refused(refusal));

        states.set(&target("x"), refused(Refusal::ReadAccess), start);
        states.set(&target("x"), refused(Refusal::Channel { text: String::new() }), start);

        assert_eq!(unreported(&states, start), [("x".to_owned(), refused(Refusal::ReadAccess))]);
        let reason = states.reason(&target("x")).unwrap();
        assert_eq!(reason, "the server refuses reading: this client has no read access");
    }

    #[test]
    fn removed_links_are_neither_counted_nor_reported_and_unknown_ones_are_ignored() {
        let (states, start) = links(&["x", "y"]);
        states.remove(&target("x"));
        states.set(&target("x"), Some(LinkTrouble::Lost), start);

        assert_eq!(states.counts(), LinkCounts { not_connected: 1, ..LinkCounts::default() });
        assert_eq!(states.table.lock().unreported, [target("y")]);
        assert_eq!(unreported(&states, start + limit::LINK_GRACE).len(), 1);
        assert_eq!((states.reason(&target("x")), states.server(&target("x"))), (None, None));
    }

    #[test]
    fn links_are_counted_by_state() {
        let (states, start) = links(&["a", "b", "c", "d", "e"]);
        let reply = WrongReply::Count { requested: 1, received: 2 };
        for (name, trouble) in [
            ("a", None),
            ("b", Some(LinkTrouble::Lost)),
            ("c", Some(LinkTrouble::Silent)),
            ("d", Some(LinkTrouble::WrongReply(reply))),
        ] {
            states.set(&target(name), trouble, start);
        }

        assert_eq!(states.counts(), LinkCounts { connected: 1, failing: 1, not_connected: 3 });
    }
}
