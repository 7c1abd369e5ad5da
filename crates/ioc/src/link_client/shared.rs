//! The queued requests of links over pvAccess.
//!
//! The links to one PV share a channel and a subscription: they receive the same updates at the same time, and one put
//! can contain the values of several links.

use std::sync::Arc;

use fodo_data::Value;
use fodo_db::{ExternalLinkId, LinkUsage, PvaLink};

/// What links over pvAccess must have in common to share a channel.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SharedLinkKey {
    pub pv: String,
    pub queue_size: u32,
    pub is_pipelined: bool,
}

impl SharedLinkKey {
    pub(super) fn of(link: &PvaLink) -> SharedLinkKey {
        let PvaLink { pv, queue_size, is_pipelined, .. } = link;
        SharedLinkKey { pv: pv.to_string(), queue_size: *queue_size, is_pipelined: *is_pipelined }
    }
}

/// A link of a shared channel.
#[derive(Clone, Debug)]
pub(super) struct SharedLink {
    pub(super) id: ExternalLinkId,
    pub(super) options: Arc<PvaLink>,
    pub(super) usage: LinkUsage,
}

/// The pending requests of a shared channel.
#[derive(Debug, Default)]
pub(super) struct SharedRequests {
    pub(super) added: Vec<SharedLink>,
    pub(super) removed: Vec<ExternalLinkId>,
    /// What is sent next.
    pub(super) put: SharedPut,
    /// What is sent with the next put of another link.
    deferred: SharedPut,
    /// The numbers of deferred puts that were awaited: they are complete at once, because no other put may ever follow.
    pub(super) completed: Vec<(ExternalLinkId, u64)>,
}

/// Values that are written together: the newest one of each link.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct SharedPut {
    /// With the number of each put.
    pub(super) values: Vec<(ExternalLinkId, Value, u64)>,
    /// The numbers of the puts whose completion is awaited.
    pub(super) awaited: Vec<(ExternalLinkId, u64)>,
    /// The forward links, which process the record of the PV.
    pub(super) forwards: Vec<ExternalLinkId>,
}

impl SharedPut {
    /// A value of one link.
    pub(super) fn of(link: ExternalLinkId, value: Value, number: u64, is_awaited: bool) -> SharedPut {
        let awaited = is_awaited.then_some((link, number)).into_iter().collect();
        SharedPut { values: vec![(link, value, number)], awaited, forwards: Vec::new() }
    }

    /// The request of a forward link.
    pub(super) fn forward(link: ExternalLinkId) -> SharedPut {
        SharedPut { forwards: vec![link], ..SharedPut::default() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.values.is_empty() && self.awaited.is_empty() && self.forwards.is_empty()
    }

    /// Adds what was requested later. Returns the links whose earlier requests it replaces.
    pub(super) fn merge(&mut self, later: SharedPut) -> Vec<ExternalLinkId> {
        let mut replaced = Vec::new();
        for newer in later.values {
            match self.values.iter_mut().find(|(known, ..)| *known == newer.0) {
                Some(earlier) => {
                    replaced.push(newer.0);
                    *earlier = newer;
                }
                None => self.values.push(newer),
            }
        }
        for (link, number) in later.awaited {
            self.awaited.retain(|(known, _)| *known != link);
            self.awaited.push((link, number));
        }
        for link in later.forwards {
            if self.forwards.contains(&link) {
                replaced.push(link);
            } else {
                self.forwards.push(link);
            }
        }
        replaced
    }

    pub(super) fn forget(&mut self, link: ExternalLinkId) {
        self.values.retain(|(known, ..)| *known != link);
        self.awaited.retain(|(known, _)| *known != link);
        self.forwards.retain(|known| *known != link);
    }
}

impl SharedRequests {
    /// Adds a put. One that is deferred waits for the next one that is not, and both are sent together. Returns the
    /// links whose earlier requests are replaced.
    pub(super) fn put(&mut self, mut put: SharedPut, is_deferred: bool) -> Vec<ExternalLinkId> {
        if is_deferred {
            self.completed.append(&mut put.awaited);
            return self.deferred.merge(put);
        }
        let mut replaced = self.put.merge(std::mem::take(&mut self.deferred));
        replaced.extend(self.put.merge(put));
        replaced
    }

    /// Removes a link.
    pub(super) fn remove(&mut self, link: ExternalLinkId) {
        let n_before = self.added.len();
        self.added.retain(|added| added.id != link);
        if self.added.len() == n_before {
            self.removed.push(link);
        }
        self.put.forget(link);
        self.deferred.forget(link);
        self.completed.retain(|(known, _)| *known != link);
    }

    /// The requests that can be executed now.
    pub(super) fn take(&mut self) -> SharedRequests {
        let (added, removed) = (std::mem::take(&mut self.added), std::mem::take(&mut self.removed));
        let (put, completed) = (std::mem::take(&mut self.put), std::mem::take(&mut self.completed));
        SharedRequests { added, removed, put, completed, deferred: SharedPut::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::links;
    use super::*;

    #[test]
    fn a_deferred_value_is_sent_with_the_next_put() {
        let [a, b, _] = links();
        let mut requests = SharedRequests::default();

        assert_eq!(requests.put(SharedPut::of(a, 1.0.into(), 1, false), true), []);
        assert!(requests.take().put.is_empty());
        assert_eq!(requests.put(SharedPut::of(b, 2.0.into(), 4, true), false), []);

        let taken = requests.take().put;
        assert_eq!(taken.values, [(a, 1.0.into(), 1), (b, 2.0.into(), 4)]);
        assert_eq!(taken.awaited, [(b, 4)]);
        assert!(requests.take().put.is_empty());
    }

    #[test]
    fn values_that_belong_together_stay_together_when_they_are_merged() {
        let [a, b, _] = links();
        let mut requests = SharedRequests::default();

        requests.put(SharedPut::of(a, 1.0.into(), 1, false), true);
        requests.put(SharedPut::of(b, 1.0.into(), 1, false), false);
        requests.put(SharedPut::of(a, 2.0.into(), 2, false), true);
        assert_eq!(requests.put.values, [(a, 1.0.into(), 1), (b, 1.0.into(), 1)]);
        let replaced = requests.put(SharedPut::of(b, 2.0.into(), 2, false), false);

        assert_eq!(replaced, [a, b]);
        assert_eq!(requests.put.values, [(a, 2.0.into(), 2), (b, 2.0.into(), 2)]);
    }

    #[test]
    fn a_forward_link_sends_deferred_values_and_two_of_its_requests_are_one() {
        let [a, b, _] = links();
        let mut requests = SharedRequests::default();

        requests.put(SharedPut::of(a, 1.0.into(), 1, false), true);
        assert_eq!(requests.put(SharedPut::forward(b), false), []);
        assert_eq!(requests.put(SharedPut::forward(b), false), [b]);

        let taken = requests.take().put;
        assert_eq!((taken.values.len(), taken.forwards), (1, vec![b]));
    }

    #[test]
    fn a_removed_link_leaves_nothing() {
        let [a, b, c] = links();
        let options = Arc::new(crate::link_client::tests::pva_link("x"));
        let mut requests = SharedRequests::default();
        requests.added.push(SharedLink { id: a, options, usage: LinkUsage::Writes });
        requests.put(SharedPut::of(a, 1.0.into(), 1, true), true);
        requests.put(SharedPut::of(b, 1.0.into(), 2, true), false);
        requests.put(SharedPut::forward(c), false);

        [a, b, c].into_iter().for_each(|link| requests.remove(link));

        let taken = requests.take();
        assert!(taken.added.is_empty() && taken.put.is_empty());
        assert_eq!(taken.removed, [b, c], "the thread has not seen the first one");
    }
}
