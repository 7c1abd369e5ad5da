use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fodo_data::EventMask;
use fodo_engine::ring::{Cursor, Post, Ring};
use fodo_lock::{Mutex, Rank};

use super::reactor::{CircuitKey, Inbox, ReactorMessage};

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
#[derive(Debug)]
pub struct Posts {
    state: Mutex<PostsState>,
}

#[derive(Debug)]
struct PostsState {
    ring: Ring,
    listeners: Vec<ListenerMasks>,
}

/// A listener with the distinct masks of its subscriptions and the count of each; nearly always one mask.
#[derive(Debug)]
struct ListenerMasks {
    listener: Arc<PostListener>,
    masks: Vec<(EventMask, u64)>,
}

/// One circuit's listener on one PV.
#[derive(Debug)]
pub(super) struct PostListener {
    inbox: Arc<Inbox>,
    circuit: CircuitKey,
    watch: usize,
    is_notified: AtomicBool,
}

impl Posts {
    /// Keeps the last `n_posts` posts.
    pub fn new(n_posts: usize) -> Posts {
        Posts { state: Mutex::ranked(Rank::Posts, PostsState { ring: Ring::new(n_posts), listeners: Vec::new() }) }
    }

    /// Stores a change in the ring and notifies the circuits that listen. Never blocks on a client.
    pub fn post(&self, post: Post) {
        let mut state = self.state.lock();
        let mask = post.mask;
        state.ring.push(post);
        for ListenerMasks { listener, masks } in &state.listeners {
            let n_updates = masks.iter().filter(|(subscribed, _)| mask.meets(*subscribed)).map(|(_, n)| n).sum();
            listener.inbox.updates.posted.fetch_add(n_updates, Ordering::Relaxed);
            listener.notify();
        }
    }

    /// Whether any circuit listens; if not, nothing needs to be posted.
    pub fn has_listeners(&self) -> bool {
        !self.state.lock().listeners.is_empty()
    }

    /// Runs `work` on the ring, while nothing can be posted.
    pub(super) fn with_ring<T>(&self, work: impl FnOnce(&Ring) -> T) -> T {
        work(&self.state.lock().ring)
    }

    pub(super) fn listen(&self, listener: Arc<PostListener>) {
        self.state.lock().listeners.push(ListenerMasks { listener, masks: Vec::new() });
    }

    /// Starts a subscription to subsequent posts.
    pub(super) fn subscribe(&self, listener: &Arc<PostListener>, mask: EventMask) -> Cursor {
        let mut state = self.state.lock();
        if let Some(masks) = state.masks(listener) {
            match masks.iter_mut().find(|(known, _)| *known == mask) {
                Some((_, n)) => *n += 1,
                None => masks.push((mask, 1)),
            }
        }
        state.ring.cursor(mask)
    }

    /// Ends a subscription; the posts that waited for it are counted as dropped.
    pub(super) fn unsubscribe(&self, listener: &Arc<PostListener>, cursor: &Cursor) {
        let mut state = self.state.lock();
        let n_waiting = state.ring.n_waiting(cursor);
        listener.inbox.updates.dropped.fetch_add(n_waiting, Ordering::Relaxed);
        if let Some(masks) = state.masks(listener) {
            masks.iter_mut().filter(|(mask, _)| *mask == cursor.mask()).for_each(|(_, n)| *n -= 1);
        }
    }

    /// Removes a listener whose subscriptions have ended.
    pub(super) fn unlisten(&self, listener: &Arc<PostListener>) {
        self.state.lock().listeners.retain(|known| !Arc::ptr_eq(&known.listener, listener));
    }
}

impl PostsState {
    fn masks(&mut self, listener: &Arc<PostListener>) -> Option<&mut Vec<(EventMask, u64)>> {
        let known = self.listeners.iter_mut().find(|known| Arc::ptr_eq(&known.listener, listener))?;
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
    pub(super) fn start_reading(&self) {
        self.is_notified.store(false, Ordering::Release);
    }
}
