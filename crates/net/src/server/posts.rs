use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fodo_data::{BitSet, EventMask, Structure};
use fodo_engine::ring::{Cursor, Post, PostRing, Ring};
use fodo_engine::structure_ring::StructureRing;
use fodo_lock::{Mutex, Rank};

use super::reactor::{CircuitKey, Inbox, ReactorMessage};
use crate::limit;

/// The latest posts of one PV, in a ring of the kind `R`, and the circuits that listen to it: [`Posts`] or
/// [`StructurePosts`].
#[derive(Debug)]
pub struct PvPosts<R> {
    state: Mutex<PostsState<R>>,
}

/// The latest posts of one PV and the circuits that listen to it.
///
/// A subscription is a cursor on the ring. A post costs each circuit one message, regardless of its number of
/// subscriptions, and none while the previous message is pending.
///
/// ```
/// use std::time::SystemTime;
///
/// use fodo_net::{EventMask, Post, Posts, Reading, Value};
///
/// let posts = Posts::new(8);
/// if posts.has_listeners() {
///     let reading = Reading { time: SystemTime::now().into(), ..Reading::bare(Value::from(21.7)) };
///     posts.post(Post { mask: EventMask::VALUE | EventMask::LOG, reading });
/// }
/// ```
///
/// [`Pv`](crate::Pv) has an example of a PV with posts.
pub type Posts = PvPosts<Ring>;

/// The latest posts of one structured PV and the circuits that listen to it.
///
/// The same as [`Posts`]. A subscription that falls behind receives the newest posts that are kept; the oldest of them
/// reports everything that has changed since the previous update, and what has changed more than once.
///
/// ```
/// use std::sync::Arc;
///
/// use fodo_net::{Kind, Structure, StructureBuilder, StructurePosts};
///
/// let mut build = StructureBuilder::new("motor_t");
/// let mut motor = Structure::new(Arc::new(build.scalar("position", Kind::F64).finish()));
/// let posts = StructurePosts::new(4);
/// if posts.has_listeners() {
///     motor.set("position", 12.5)?;
///     posts.post(Arc::new(motor.clone()), motor.changed().clone());
/// }
/// # Ok::<(), fodo_net::StructureError>(())
/// ```
pub type StructurePosts = PvPosts<StructureRing>;

#[derive(Debug)]
struct PostsState<R> {
    ring: R,
    listeners: Listeners,
    long_queues: LongQueues,
}

/// The lengths of the queues that clients requested and that are longer than usual, with the number of each.
#[derive(Debug, Default)]
struct LongQueues(BTreeMap<usize, usize>);

impl LongQueues {
    /// Adds a queue; returns the length of the longest.
    fn add(&mut self, n_posts: usize) -> usize {
        *self.0.entry(n_posts).or_default() += 1;
        self.longest()
    }

    /// Removes a queue; returns the length of the longest that is left, or 0.
    fn remove(&mut self, n_posts: usize) -> usize {
        if let Some(n) = self.0.get_mut(&n_posts) {
            *n -= 1;
            if *n == 0 {
                self.0.remove(&n_posts);
            }
        }
        self.longest()
    }

    fn longest(&self) -> usize {
        self.0.last_key_value().map_or(0, |(n_posts, _)| *n_posts)
    }
}

/// The circuits that listen to a PV.
#[derive(Debug, Default)]
struct Listeners(Vec<ListenerMasks>);

/// A listener with the distinct masks of its subscriptions and the count of each; nearly always one mask.
#[derive(Debug)]
struct ListenerMasks {
    listener: Arc<PostListener>,
    masks: Vec<(EventMask, u64)>,
}

/// One circuit's listener on one PV.
#[derive(Debug)]
pub(crate) struct PostListener {
    inbox: Arc<Inbox>,
    circuit: CircuitKey,
    watch: usize,
    is_notified: AtomicBool,
}

/// Every post of a structured PV is for every subscription.
const EVERY_POST: EventMask = EventMask(15);

impl Posts {
    /// Keeps the last `n_posts` posts, or more while a client requests a longer queue.
    pub fn new(n_posts: usize) -> Posts {
        PvPosts::of(Ring::new(n_posts))
    }

    /// Stores a change in the ring and notifies the circuits that listen. Never blocks on a client.
    pub fn post(&self, post: Post) {
        let mut state = self.state.lock();
        let mask = post.mask;
        state.ring.push(post);
        state.listeners.notify(mask);
    }

    /// Starts a subscription to subsequent posts.
    pub(crate) fn subscribe(&self, listener: &Arc<PostListener>, mask: EventMask) -> Cursor {
        let mut state = self.state.lock();
        state.listeners.subscribe(listener, mask);
        state.ring.cursor(mask)
    }
}

impl StructurePosts {
    /// Keeps the last `n_posts` posts, or more while a client requests a longer queue and there is memory for them.
    pub fn new(n_posts: usize) -> StructurePosts {
        PvPosts::of(StructureRing::new(n_posts, limit::GROWN_RING_BYTES))
    }

    /// Stores a change in the ring and notifies the circuits that listen. Never blocks on a client.
    ///
    /// `value`: the whole value after the change. `changed`: the nodes that changed; a structure stands for its members.
    /// Nothing is sent if there are none.
    pub fn post(&self, value: Arc<Structure>, changed: BitSet) {
        if changed.is_empty() {
            return;
        }
        let mut state = self.state.lock();
        state.ring.push(value, changed);
        state.listeners.notify(EVERY_POST);
    }

    /// Starts a subscription to subsequent posts.
    pub(crate) fn subscribe(&self, listener: &Arc<PostListener>) -> Cursor {
        let mut state = self.state.lock();
        state.listeners.subscribe(listener, EVERY_POST);
        state.ring.cursor()
    }
}

impl<R> PvPosts<R> {
    fn of(ring: R) -> PvPosts<R> {
        let (listeners, long_queues) = (Listeners::default(), LongQueues::default());
        PvPosts { state: Mutex::ranked(Rank::Posts, PostsState { ring, listeners, long_queues }) }
    }

    /// Whether any circuit listens; if not, nothing needs to be posted.
    pub fn has_listeners(&self) -> bool {
        !self.state.lock().listeners.0.is_empty()
    }

    /// Runs `work` on the ring, while nothing can be posted.
    pub(crate) fn with_ring<T>(&self, work: impl FnOnce(&R) -> T) -> T {
        work(&self.state.lock().ring)
    }

    pub(crate) fn listen(&self, listener: Arc<PostListener>) {
        self.state.lock().listeners.add(listener);
    }

    /// Removes a listener whose subscriptions have ended.
    pub(crate) fn unlisten(&self, listener: &Arc<PostListener>) {
        self.state.lock().listeners.remove(listener);
    }
}

impl<R: PostRing> PvPosts<R> {
    /// The number of posts that are kept in any case.
    pub(crate) fn n_posts_min(&self) -> usize {
        self.state.lock().ring.n_posts_min()
    }

    /// Keeps at least this number of posts until [`PvPosts::release`].
    pub(crate) fn grow(&self, n_posts: usize) {
        let mut state = self.state.lock();
        let n_posts = state.long_queues.add(n_posts);
        state.ring.resize(n_posts);
    }

    /// A subscription with a queue of this length has ended.
    pub(crate) fn release(&self, n_posts: usize) {
        let mut state = self.state.lock();
        let n_posts = state.long_queues.remove(n_posts);
        state.ring.resize(n_posts);
    }

    /// Ends a subscription; the posts that waited for it are counted as dropped.
    pub(crate) fn unsubscribe(&self, listener: &Arc<PostListener>, cursor: &Cursor) {
        let mut state = self.state.lock();
        let n_waiting = state.ring.n_waiting(cursor);
        state.listeners.unsubscribe(listener, cursor.mask(), n_waiting);
    }
}

impl Listeners {
    /// Notifies the circuits of a post with this mask.
    #[inline]
    fn notify(&self, mask: EventMask) {
        for ListenerMasks { listener, masks } in &self.0 {
            let n_updates = masks.iter().filter(|(subscribed, _)| mask.meets(*subscribed)).map(|(_, n)| n).sum();
            listener.inbox.updates.posted.fetch_add(n_updates, Ordering::Relaxed);
            listener.notify();
        }
    }

    fn add(&mut self, listener: Arc<PostListener>) {
        self.0.push(ListenerMasks { listener, masks: Vec::new() });
    }

    fn remove(&mut self, listener: &Arc<PostListener>) {
        self.0.retain(|known| !Arc::ptr_eq(&known.listener, listener));
    }

    fn subscribe(&mut self, listener: &Arc<PostListener>, mask: EventMask) {
        if let Some(masks) = self.masks(listener) {
            match masks.iter_mut().find(|(known, _)| *known == mask) {
                Some((_, n)) => *n += 1,
                None => masks.push((mask, 1)),
            }
        }
    }

    fn unsubscribe(&mut self, listener: &Arc<PostListener>, mask: EventMask, n_waiting: u64) {
        listener.inbox.updates.dropped.fetch_add(n_waiting, Ordering::Relaxed);
        if let Some(masks) = self.masks(listener) {
            masks.iter_mut().filter(|(known, _)| *known == mask).for_each(|(_, n)| *n -= 1);
        }
    }

    fn masks(&mut self, listener: &Arc<PostListener>) -> Option<&mut Vec<(EventMask, u64)>> {
        let known = self.0.iter_mut().find(|known| Arc::ptr_eq(&known.listener, listener))?;
        Some(&mut known.masks)
    }
}

impl PostListener {
    pub(super) fn new(inbox: Arc<Inbox>, circuit: CircuitKey, watch: usize) -> Arc<PostListener> {
        Arc::new(PostListener { inbox, circuit, watch, is_notified: AtomicBool::new(false) })
    }

    fn notify(&self) {
        if !self.is_notified.swap(true, Ordering::AcqRel) {
            self.inbox.push(ReactorMessage::Posted { circuit: self.circuit, watch: self.watch });
        }
    }

    /// The circuit is about to read the ring; the next post notifies it again.
    pub(crate) fn start_reading(&self) {
        self.is_notified.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_queue_is_known_after_others_have_ended() {
        let mut queues = LongQueues::default();

        assert_eq!([10, 100, 100, 20].map(|n_posts| queues.add(n_posts)), [10, 100, 100, 100]);
        assert_eq!([100, 100, 5, 20, 10].map(|n_posts| queues.remove(n_posts)), [100, 20, 20, 10, 0]);
    }
}
