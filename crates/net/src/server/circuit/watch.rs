//! A circuit's subscriptions to one PV.

use std::sync::Arc;

use fodo_data::{EventMask, Reading};
use fodo_engine::Sid;
use fodo_engine::ring::Cursor;
use slab::Slab;

use super::protocol::CircuitProtocol;
use crate::server::Pv;
use crate::server::posts::{PostListener, Posts};

/// One PV to which this circuit has subscriptions.
pub(crate) struct Watch<P: CircuitProtocol> {
    pub(crate) pv: P::Pv,
    pub(crate) listener: Arc<PostListener>,
    /// Distinguishes it from earlier and later watches with the same index.
    pub(super) number: u64,
    pub(super) is_unsent: bool,
    pub(crate) subscriptions: Slab<WatchSubscription<P>>,
    /// The largest number of slots used so far.
    pub(crate) n_slots: usize,
    /// The slot that is served first.
    pub(crate) first_slot: usize,
}

pub(crate) struct WatchSubscription<P: CircuitProtocol> {
    pub(crate) key: P::SubscriptionKey,
    pub(crate) sid: Sid,
    pub(crate) content: P::Content,
    pub(crate) cursor: Cursor,
}

/// The slots of a watch in the order in which they are served.
#[inline]
pub(crate) fn slots(first_slot: usize, n_slots: usize) -> impl Iterator<Item = usize> {
    (first_slot..first_slot + n_slots).map(move |slot| if slot < n_slots { slot } else { slot - n_slots })
}

/// Starts a subscription to the posts of a flat PV. Returns its first reading, if there is something to send yet, and its
/// position. `started`: called with the position, while nothing can be posted.
pub(crate) fn subscribe(
    pv: &dyn Pv,
    listener: &Arc<PostListener>,
    mask: EventMask,
    mut started: impl FnMut(&Cursor, &Posts),
) -> Option<(Option<Reading>, Cursor)> {
    let mut first = None;
    pv.with_reading(&mut |reading| {
        let reading = pv.first_update(reading, mask);
        let cursor = pv.posts().subscribe(listener, mask);
        started(&cursor, pv.posts());
        first = Some((reading, cursor));
    });
    first
}
