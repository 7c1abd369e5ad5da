//! How the subscriptions to one PV receive its posts.

use std::sync::Arc;

use fodo_data::{BitSet, EventMask, Meta, NormativeLayout, Reading};
use fodo_engine::ring::{Cursor, Post, PostRing, Ring};
use fodo_pva::server::{Circuit as Machine, Contents, FieldSelection, RequestKey};
use slab::Slab;

use super::PvAccess;
use super::monitor::ContentKind;
use super::pv::PvaPv;
use super::read::meta_of;
use crate::limit;
use crate::server::circuit::{Watch, WatchSubscription, slots};
use crate::server::{Posts, UpdateCounts};

/// Every kind of change.
const EVERYTHING: EventMask = EventMask(15);

/// The kinds of change of a record that change its value and its time stamp.
const CURRENT: EventMask = EventMask::VALUE.with(EventMask::LOG).with(EventMask::ALARM);

/// What the updates of a subscription contain.
pub(super) struct UpdateContent {
    layout: Arc<NormativeLayout>,
    selection: FieldSelection,
    /// Whether the client requested metadata.
    needs_meta: bool,
    /// The next update is the first one, which contains everything.
    is_first: bool,
    /// As of the previous update.
    changes: ChangeCounts,
}

/// How often each part of a PV has changed so far, in the posts for one subscription.
#[derive(Clone, Copy, Debug, Default)]
struct ChangeCounts {
    /// The value and the time stamp.
    current: u64,
    alarm: u64,
    meta: u64,
}

impl ChangeCounts {
    /// `posted`: the number of posts that match a mask. `mask`: that of the subscription.
    fn new(mask: EventMask, posted: impl Fn(EventMask) -> u64) -> ChangeCounts {
        let common = |kinds: EventMask| posted(EventMask(kinds.0 & mask.0));
        ChangeCounts { current: common(CURRENT), alarm: common(EventMask::ALARM), meta: common(EventMask::PROPERTY) }
    }

    /// The parts that have changed since an earlier update, and those that have changed more than once, as kinds of
    /// change.
    fn since(&self, before: &ChangeCounts) -> (EventMask, EventMask) {
        let (mut changed, mut overrun) = (EventMask::NONE, EventMask::NONE);
        for (kind, n_changes) in [
            (EventMask::VALUE, self.current - before.current),
            (EventMask::ALARM, self.alarm - before.alarm),
            (EventMask::PROPERTY, self.meta - before.meta),
        ] {
            if n_changes > 0 {
                changed |= kind;
            }
            if n_changes > 1 {
                overrun |= kind;
            }
        }
        (changed, overrun)
    }
}

/// The kinds of change that an update reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Changes {
    /// What has changed since the previous update.
    changed: EventMask,
    /// What has changed more than once, so that the client misses values.
    overrun: EventMask,
    /// Whether this is the first update, which contains the metadata that never changes, too.
    is_first: bool,
}

impl UpdateContent {
    pub(super) fn new(layout: Arc<NormativeLayout>, selection: FieldSelection, needs_meta: bool) -> UpdateContent {
        UpdateContent { layout, selection, needs_meta, is_first: true, changes: ChangeCounts::default() }
    }

    /// The subscription receives the posts after this one.
    pub(super) fn started(&mut self, cursor: &Cursor, posts: &Posts) {
        self.changes = posts.with_ring(|ring| ChangeCounts::new(cursor.mask(), |mask| ring.posted(mask)));
    }

    /// The first update is sent.
    pub(super) fn has_sent(&mut self) {
        self.is_first = false;
    }

    /// What the update for a post reports.
    fn next_changes(&mut self, ring: &Ring, post: &Post, mask: EventMask) -> Changes {
        let now = ChangeCounts::new(mask, |mask| ring.posted_until(post, mask));
        let before = std::mem::replace(&mut self.changes, now);
        match std::mem::take(&mut self.is_first) {
            true => Changes { changed: mask | EventMask::PROPERTY, overrun: EventMask::NONE, is_first: true },
            false => {
                let (changed, overrun) = now.since(&before);
                Changes { changed, overrun, is_first: false }
            }
        }
    }
}

/// Updates that are encoded once for all subscriptions to one PV that have the same selection.
#[derive(Default)]
pub(super) struct SharedUpdates {
    updates: Vec<SharedUpdate>,
    /// How many of them are of the posts that are sent now; the others keep their memory.
    n_used: usize,
}

struct SharedUpdate {
    /// The number of the post.
    post: u64,
    changes: Changes,
    selection: FieldSelection,
    /// Whether there is something to send.
    has_contents: bool,
    contents: Vec<u8>,
}

impl SharedUpdates {
    /// Sends an update that another subscription may have sent already. Returns whether there was something to send.
    fn send(
        &mut self,
        machine: &mut Machine,
        request: RequestKey,
        content: &UpdateContent,
        update: &PostUpdate<'_>,
    ) -> bool {
        let PostUpdate { number, changes, .. } = *update;
        let is_same = |known: &SharedUpdate| {
            known.post == number && known.changes == changes && known.selection == content.selection
        };
        let known = self.updates[..self.n_used].iter().position(is_same);
        let index = match known {
            Some(index) => index,
            None if self.n_used == limit::SHARED_UPDATES => return update.send(machine, request, content),
            None => self.add(machine, request, content, update),
        };
        match self.updates.get(index) {
            Some(SharedUpdate { has_contents: true, contents, .. }) => machine.update_encoded(request, contents),
            _ => false,
        }
    }

    /// Encodes an update and returns its index.
    fn add(
        &mut self,
        machine: &Machine,
        request: RequestKey,
        content: &UpdateContent,
        update: &PostUpdate<'_>,
    ) -> usize {
        let PostUpdate { number, changes, .. } = *update;
        let mut contents = match self.updates.get_mut(self.n_used) {
            Some(unused) => std::mem::take(&mut unused.contents),
            None => Vec::new(),
        };
        contents.clear();
        let (marks, overrun) = update.nodes(content);
        let has_contents =
            machine.encode_update(request, Contents::Reading(update.reading), marks, overrun, &mut contents);
        let selection = content.selection.clone();
        let encoded = SharedUpdate { post: number, changes, selection, has_contents, contents };
        match self.updates.get_mut(self.n_used) {
            Some(unused) => *unused = encoded,
            None => self.updates.push(encoded),
        }
        self.n_used += 1;
        self.n_used - 1
    }

    /// Forgets all updates.
    fn clear(&mut self) {
        for update in &mut self.updates[..self.n_used] {
            if update.contents.capacity() > limit::LOCKED_UPDATE_BYTES {
                update.contents = Vec::new();
            }
        }
        self.n_used = 0;
    }
}

/// An update of one subscription.
struct PostUpdate<'a> {
    reading: &'a Reading,
    /// The number of the post, if other subscriptions may receive the same update.
    number: u64,
    changes: Changes,
}

impl PostUpdate<'_> {
    /// The nodes that have changed, and those that have changed more than once.
    fn nodes<'l>(&self, content: &'l UpdateContent) -> (&'l BitSet, &'l BitSet) {
        let Changes { changed, overrun, is_first } = self.changes;
        let marks = if is_first { content.layout.whole(changed) } else { content.layout.marks(changed) };
        (marks, content.layout.marks(overrun))
    }

    fn send(&self, machine: &mut Machine, request: RequestKey, content: &UpdateContent) -> bool {
        let (marks, overrun) = self.nodes(content);
        machine.update(request, Contents::Reading(self.reading), marks, overrun)
    }
}

/// Why updates cannot be sent further under the lock of the ring.
enum Pause {
    /// All are sent that can be.
    Done,
    /// The circuit's buffer is full: the slot whose turn it is.
    Full(usize),
    /// The update for this slot needs metadata that includes this number of posts of metadata.
    NeedsMeta { slot: usize, n_posts: u64 },
    /// The update for this slot is large.
    Large { slot: usize, reading: Reading, number: u64, changes: Changes },
}

/// The metadata of a PV, and how many posts of metadata it includes at least.
type KnownMeta = Option<(Arc<Meta>, u64)>;

/// Sends pending updates to a watch's subscriptions; returns false if the circuit's buffer is full.
///
/// Subscriptions whose window is closed are passed over: the client's acknowledgement causes another call.
pub(super) fn send_watch(
    watch: &mut Watch<PvAccess>,
    machine: &mut Machine,
    shared: &mut SharedUpdates,
    queue_bytes_max: usize,
    counts: &mut UpdateCounts,
) -> bool {
    watch.listener.start_reading();
    let Watch { pv: PvaPv::Flat { pv, .. }, subscriptions, n_slots, first_slot, .. } = watch else { return true };
    let mut meta = None;
    let is_shared = subscriptions.len() > 1;
    shared.clear();
    loop {
        let pause = pv.posts().with_ring(|ring| {
            let slots = slots(*first_slot, *n_slots);
            let mut sender = UpdateSender { ring, machine, shared, is_shared, meta: &meta, queue_bytes_max, counts };
            sender.send(slots, subscriptions)
        });
        match pause {
            Pause::Done => return true,
            Pause::Full(slot) => {
                // The following subscriptions are served first next time.
                *first_slot = (slot + 1) % (*n_slots).max(1);
                return false;
            }
            // Queried while the ring is not locked: a source may post while it holds a lock that this needs.
            Pause::NeedsMeta { slot, n_posts } => {
                meta = Some((meta_of(&**pv), n_posts));
                *first_slot = slot;
            }
            Pause::Large { slot, mut reading, number, changes } => {
                // Those before it have been served.
                *first_slot = slot;
                let Some(WatchSubscription { key, content, .. }) = subscriptions.get(slot) else { continue };
                let ContentKind::Flat(content) = &content.updates else { continue };
                add_meta(&mut reading, changes, content, &meta);
                let update = PostUpdate { reading: &reading, number, changes };
                counts.sent += u64::from(send_update(machine, shared, is_shared, *key, content, &update));
            }
        }
    }
}

/// Whether an update contains metadata.
fn contains_meta(changes: Changes, content: &UpdateContent) -> bool {
    content.needs_meta && changes.changed.meets(EventMask::PROPERTY)
}

fn add_meta(reading: &mut Reading, changes: Changes, content: &UpdateContent, meta: &KnownMeta) {
    if contains_meta(changes, content)
        && let Some((meta, _)) = meta
    {
        reading.meta = Some(meta.clone());
    }
}

/// Returns whether there was something to send.
#[inline(always)]
fn send_update(
    machine: &mut Machine,
    shared: &mut SharedUpdates,
    is_shared: bool,
    request: RequestKey,
    content: &UpdateContent,
    update: &PostUpdate<'_>,
) -> bool {
    // A larger array is sent from its own memory.
    if is_shared && update.reading.value.n_bytes() < fodo_pva::limit::BULK_BYTES {
        shared.send(machine, request, content, update)
    } else {
        update.send(machine, request, content)
    }
}

/// Sends updates while the ring is locked.
struct UpdateSender<'a> {
    ring: &'a Ring,
    machine: &'a mut Machine,
    shared: &'a mut SharedUpdates,
    is_shared: bool,
    meta: &'a KnownMeta,
    queue_bytes_max: usize,
    counts: &'a mut UpdateCounts,
}

impl UpdateSender<'_> {
    fn send(
        &mut self,
        slots: impl Iterator<Item = usize>,
        subscriptions: &mut Slab<WatchSubscription<PvAccess>>,
    ) -> Pause {
        for slot in slots {
            let Some(subscription) = subscriptions.get_mut(slot) else { continue };
            while self.ring.n_waiting(&subscription.cursor) > 0 && self.machine.may_update(subscription.key) {
                if let Some(pause) = self.send_next(slot, subscription) {
                    return pause;
                }
            }
        }
        Pause::Done
    }

    /// Sends the next update of a subscription.
    fn send_next(&mut self, slot: usize, subscription: &mut WatchSubscription<PvAccess>) -> Option<Pause> {
        let WatchSubscription { key, content, cursor, .. } = subscription;
        let ContentKind::Flat(content) = &mut content.updates else { return None };
        if self.machine.pending_bytes() >= self.queue_bytes_max {
            return Some(Pause::Full(slot));
        }
        let mut after = cursor.clone();
        let post = self.ring.next(&mut after)?;
        if content.needs_meta && (content.is_first || post.mask.meets(EventMask::PROPERTY)) {
            let n_posts = self.ring.posted_until(post, EventMask::PROPERTY);
            if self.meta.as_ref().is_none_or(|(_, n_included)| *n_included < n_posts) {
                return Some(Pause::NeedsMeta { slot, n_posts: self.ring.posted(EventMask::PROPERTY) });
            }
        }
        self.counts.merged += after.merged - cursor.merged;
        *cursor = after;
        let changes = content.next_changes(self.ring, post, cursor.mask());
        let number = if self.is_shared { self.ring.posted_until(post, EVERYTHING) } else { 0 };
        if post.reading.value.n_bytes() > limit::LOCKED_UPDATE_BYTES {
            return Some(Pause::Large { slot, reading: post.reading.clone(), number, changes });
        }
        let mut with_meta = None;
        if contains_meta(changes, content) {
            add_meta(with_meta.insert(post.reading.clone()), changes, content, self.meta);
        }
        let update = PostUpdate { reading: with_meta.as_ref().unwrap_or(&post.reading), number, changes };
        let is_sent = send_update(self.machine, self.shared, self.is_shared, *key, content, &update);
        self.counts.sent += u64::from(is_sent);
        None
    }
}

#[cfg(test)]
mod tests {
    use fodo_data::normative_type;

    use super::*;

    #[test]
    fn the_changes_of_an_update_are_counted_by_the_kinds_of_the_subscription() {
        // As many posts match a mask as its number.
        let counted = |mask: u8| ChangeCounts::new(EventMask(mask), |mask| u64::from(mask.0));
        let counts = |counts: ChangeCounts| (counts.current, counts.alarm, counts.meta);

        assert_eq!(counts(counted(15)), (1 + 2 + 4, 4, 8));
        assert_eq!(counts(counted(1)), (1, 0, 0));
        assert_eq!(counts(counted(2 | 8)), (2, 0, 8));
    }

    #[test]
    fn a_part_is_overrun_if_it_has_changed_twice_since_the_previous_update() {
        let before = ChangeCounts { current: 5, alarm: 5, meta: 5 };
        for (now, changed, overrun) in [
            ((5, 5, 5), 0, 0),
            ((6, 5, 5), EventMask::VALUE.0, 0),
            ((7, 6, 5), EventMask::VALUE.0 | EventMask::ALARM.0, EventMask::VALUE.0),
            ((8, 5, 7), EventMask::VALUE.0 | EventMask::PROPERTY.0, EventMask::VALUE.0 | EventMask::PROPERTY.0),
        ] {
            let (current, alarm, meta) = now;
            let now = ChangeCounts { current, alarm, meta };

            assert_eq!(now.since(&before), (EventMask(changed), EventMask(overrun)), "{now:?}");
        }
    }

    #[test]
    fn metadata_is_sent_to_those_who_requested_it_when_it_has_changed() {
        let layout = Arc::new(NormativeLayout::of(Arc::new(normative_type(fodo_data::Kind::F64, false))).unwrap());
        let (value, everything) = (EventMask::VALUE, EventMask(15));
        for (needs_meta, changed, expected) in
            [(true, everything, true), (true, value, false), (false, everything, false), (false, value, false)]
        {
            let content = UpdateContent::new(layout.clone(), FieldSelection::default(), needs_meta);
            let changes = Changes { changed, overrun: EventMask::NONE, is_first: false };
            let mut reading = Reading::bare(1.5.into());

            add_meta(&mut reading, changes, &content, &Some((Arc::default(), 1)));

            assert_eq!(contains_meta(changes, &content), expected);
            assert_eq!(reading.meta.is_some(), expected);
        }
    }
}
