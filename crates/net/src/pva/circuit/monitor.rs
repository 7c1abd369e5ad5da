//! Subscriptions: their start, their first update and their end.

use std::sync::Arc;

use fodo_data::{BitSet, EventMask, NormativeLayout, STRING_BYTES};
use fodo_engine::Sid;
use fodo_pva::server::{Contents, FieldSelection, RequestKey, SubscriptionOptions};
use fodo_pva::status::RequestStatus;

use super::PvAccess;
use super::pv::PvaPv;
use super::read::{NO_READ_ACCESS, with_meta};
use super::update::UpdateContent;
use crate::limit;
use crate::server::circuit::{Circuit, subscribe};
use crate::server::{Pv, PvFacts, StructuredPv};

/// A subscription that has sent nothing yet.
pub(super) struct NotStarted {
    pub(super) sid: Sid,
    pub(super) options: SubscriptionOptions,
    pub(super) selection: FieldSelection,
    /// Whether the client requested metadata.
    pub(super) needs_meta: bool,
}

/// What the updates of a subscription contain.
pub(crate) struct MonitorContent {
    pub(super) updates: ContentKind,
    /// `None` if the queue of the PV is long enough for the client.
    pub(super) long_queue: Option<LongQueue>,
}

/// A queue that is longer than that of the PV without this subscription.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LongQueue {
    pub(super) n_posts: usize,
    /// Memory of the additional posts.
    pub(super) n_bytes: usize,
}

pub(super) enum ContentKind {
    Flat(UpdateContent),
    Structured(FieldSelection),
}

impl Circuit<PvAccess> {
    /// The client can take updates: the first one contains everything, the next ones what has changed. Like QSRV2, a
    /// subscription that was stopped continues with what has changed meanwhile.
    pub(super) fn resume(&mut self, request: RequestKey) {
        let Some(not_started) = self.protocol.not_started.remove(&request) else {
            return self.look_for_updates(request);
        };
        let Some(channel) = self.channel(not_started.sid) else { return };
        if !channel.allowed.read {
            return self.refuse_subscription(request);
        }
        if !self.machine.may_update(request) {
            // Its window is closed.
            self.protocol.not_started.insert(request, not_started);
            return;
        }
        match channel.pv.clone() {
            PvaPv::Flat { pv, layout } => self.start_flat(request, not_started, &pv, &layout),
            PvaPv::Structured(pv) => self.start_structured(request, not_started, &pv),
            // It may not be read.
            PvaPv::Server => {}
        }
    }

    fn start_flat(
        &mut self,
        request: RequestKey,
        not_started: NotStarted,
        pv: &Arc<dyn Pv>,
        layout: &Arc<NormativeLayout>,
    ) {
        let NotStarted { sid, options, selection, needs_meta } = not_started;
        let mask = if needs_meta { options.events | EventMask::PROPERTY } else { options.events };
        let mut content = UpdateContent::new(layout.clone(), selection, needs_meta);
        let mut first = None;
        self.start_subscription(sid, request, |_, listener| {
            let started = subscribe(&**pv, listener, mask, |cursor, posts| content.started(cursor, posts));
            let (reading, cursor) = started?;
            first = reading;
            Some((MonitorContent { updates: ContentKind::Flat(content), long_queue: None }, cursor))
        });
        self.lengthen_queue(request, options.queue_size, pv.posts().n_posts_min(), flat_bytes_max(&pv.facts()));
        if let Some(reading) = first {
            let reading = with_meta(&**pv, reading, needs_meta);
            let marks = layout.whole(mask);
            // Sent, because the window is open.
            self.machine.update(request, Contents::Reading(&reading), marks, &BitSet::new());
            if let Some(subscription) = self.running_subscription(request)
                && let ContentKind::Flat(content) = &mut subscription.content.updates
            {
                content.has_sent();
            }
        }
    }

    fn start_structured(&mut self, request: RequestKey, not_started: NotStarted, pv: &Arc<dyn StructuredPv>) {
        let NotStarted { sid, options, selection, .. } = not_started;
        let mut first = None;
        self.start_subscription(sid, request, |_, listener| {
            let mut cursor = None;
            pv.with_value(&mut |value| {
                cursor = Some(pv.posts().subscribe(listener));
                first = Some(value);
            });
            Some((MonitorContent { updates: ContentKind::Structured(selection), long_queue: None }, cursor?))
        });
        let Some(value) = first else { return };
        let value = pv.first_update(value, options.queue_size);
        self.lengthen_queue(request, options.queue_size, pv.posts().n_posts_min(), value.n_bytes());
        self.machine.update(request, Contents::Structure(&value), value.changed(), &BitSet::new());
    }

    /// Makes the PV of a new subscription keep `queue_size` posts, each of at most `post_bytes`, if it keeps fewer and there
    /// is memory for them.
    fn lengthen_queue(&mut self, request: RequestKey, queue_size: usize, n_posts_min: usize, post_bytes: usize) {
        let longer = longer_queue(queue_size, n_posts_min, post_bytes);
        let Some(LongQueue { n_posts, n_bytes }) = longer.filter(|queue| self.may_hold(queue.n_bytes)) else { return };
        if let Some(subscription) = self.running_subscription(request) {
            let sid = subscription.sid;
            subscription.content.long_queue = Some(LongQueue { n_posts, n_bytes });
            self.protocol.long_queue_bytes += n_bytes;
            if let Some(channel) = self.channel(sid) {
                channel.pv.grow(n_posts);
            }
        }
    }

    /// Ends a subscription that the client may not read.
    fn refuse_subscription(&mut self, request: RequestKey) {
        self.machine.end_monitor(request, &RequestStatus::error(NO_READ_ACCESS));
    }

    /// The subscriptions that the client may not read any more.
    pub(super) fn all_unreadable_subscriptions(&self) -> Vec<RequestKey> {
        let not_started = self.protocol.not_started.iter();
        let not_started = not_started.filter(|(_, subscription)| !self.may_read_channel(subscription.sid));
        self.unreadable_subscriptions().chain(not_started.map(|(request, _)| *request)).collect()
    }

    /// Ends one of them: pvAccess has no message for rights, and a client that received nothing would take the last value
    /// for the current one.
    pub(super) fn end_unreadable(&mut self, request: RequestKey) {
        self.end_subscription(request);
        self.protocol.not_started.remove(&request);
        self.refuse_subscription(request);
    }
}

/// A queue of at most `queue_size` posts that is longer than `n_posts_min`, as far as its memory is within the limit.
fn longer_queue(queue_size: usize, n_posts_min: usize, post_bytes: usize) -> Option<LongQueue> {
    let post_bytes = post_bytes + limit::POST_BYTES;
    let n_posts = queue_size.min(limit::GROWN_RING_BYTES / post_bytes);
    let n_bytes = n_posts.saturating_sub(n_posts_min) * post_bytes;
    (n_bytes > 0).then_some(LongQueue { n_posts, n_bytes })
}

/// The most that the value of a flat PV refers to, in bytes, if its texts are as short as those of Channel Access.
fn flat_bytes_max(facts: &PvFacts) -> usize {
    let element_bytes = facts.kind.n_bytes().unwrap_or(STRING_BYTES);
    if facts.count_max > 1 { (facts.count_max as usize).saturating_mul(element_bytes) } else { 0 }
}

#[cfg(test)]
mod tests {
    use fodo_data::Kind;

    use super::*;

    #[test]
    fn a_longer_queue_has_as_many_posts_as_requested_or_as_fit_in_the_memory_of_a_ring() {
        let fifth = limit::GROWN_RING_BYTES / 5 - limit::POST_BYTES;
        for (queue_size, n_posts_min, post_bytes, expected) in [
            (10, 4, 0, Some((10, 6 * limit::POST_BYTES))),
            (10, 4, 100, Some((10, 6 * (100 + limit::POST_BYTES)))),
            (4, 4, 100, None),
            (3, 4, 100, None),
            (10, 4, fifth, Some((5, fifth + limit::POST_BYTES))),
            (10, 5, fifth, None),
            (10, 0, limit::GROWN_RING_BYTES, None),
        ] {
            let expected = expected.map(|(n_posts, n_bytes)| LongQueue { n_posts, n_bytes });

            assert_eq!(longer_queue(queue_size, n_posts_min, post_bytes), expected, "{queue_size} {n_posts_min}");
        }
    }

    #[test]
    fn only_the_elements_of_an_array_take_memory_of_their_own() {
        for (kind, element_bytes) in [
            (Kind::Bool, 1),
            (Kind::I8, 1),
            (Kind::U8, 1),
            (Kind::I16, 2),
            (Kind::U16, 2),
            (Kind::Enum, 2),
            (Kind::I32, 4),
            (Kind::U32, 4),
            (Kind::F32, 4),
            (Kind::I64, 8),
            (Kind::U64, 8),
            (Kind::F64, 8),
            (Kind::Text, 40),
        ] {
            let bytes = [1, 2, 100].map(|count_max| flat_bytes_max(&PvFacts { kind, count_max, is_read_only: true }));

            assert_eq!(bytes, [0, 2 * element_bytes, 100 * element_bytes], "{kind:?}");
        }
    }
}
