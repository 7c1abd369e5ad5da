use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use fodo_ca::ring::{Cursor, Post, Ring};
use fodo_data::EventMask;

use super::reactor::{CircuitKey, Inbox, Message};
use crate::sync::lock;

/// The last posts of one PV and the circuits that listen.
///
/// Subscriptions are cursors on the ring: a post costs each circuit one message however many
/// subscriptions it has, and none while an earlier one has not been looked at.
#[derive(Debug)]
pub struct Posts {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    ring: Ring,
    listeners: Vec<Listening>,
}

/// A listener with the masks of its subscriptions and how many have each: nearly always one.
#[derive(Debug)]
struct Listening {
    listener: Arc<Listener>,
    masks: Vec<(EventMask, u64)>,
}

/// One circuit's watch on one PV.
#[derive(Debug)]
pub(super) struct Listener {
    inbox: Arc<Inbox>,
    circuit: CircuitKey,
    watch: usize,
    is_told: AtomicBool,
}

impl Posts {
    /// Room for the last `n_posts`.
    pub fn new(n_posts: usize) -> Posts {
        Posts { state: Mutex::new(State { ring: Ring::new(n_posts), listeners: Vec::new() }) }
    }

    /// A change: kept in the ring, and the circuits that listen are told. Never blocks on a client.
    pub fn push(&self, post: Post) {
        let mut state = lock(&self.state);
        let mask = post.mask;
        state.ring.push(post);
        for Listening { listener, masks } in &state.listeners {
            let n_updates = masks.iter().filter(|(wanted, _)| mask.meets(*wanted)).map(|(_, n)| n).sum();
            listener.inbox.updates.posted.fetch_add(n_updates, Ordering::Relaxed);
            listener.tell();
        }
    }

    /// Whether anybody listens; if not, nothing needs to be posted.
    pub fn has_listeners(&self) -> bool {
        !lock(&self.state).listeners.is_empty()
    }

    /// Works on the ring, while nothing is posted.
    pub(super) fn with_ring<T>(&self, work: impl FnOnce(&Ring) -> T) -> T {
        work(&lock(&self.state).ring)
    }

    pub(super) fn listen(&self, listener: Arc<Listener>) {
        lock(&self.state).listeners.push(Listening { listener, masks: Vec::new() });
    }

    /// A subscription begins: for what is posted from now on.
    pub(super) fn subscribe(&self, listener: &Arc<Listener>, mask: EventMask) -> Cursor {
        let mut state = lock(&self.state);
        if let Some(masks) = state.masks(listener) {
            match masks.iter_mut().find(|(known, _)| *known == mask) {
                Some((_, n)) => *n += 1,
                None => masks.push((mask, 1)),
            }
        }
        state.ring.cursor(mask)
    }

    /// A subscription ends; what waited for it is counted.
    pub(super) fn unsubscribe(&self, listener: &Arc<Listener>, cursor: &Cursor) {
        let mut state = lock(&self.state);
        let n_waiting = state.ring.n_waiting(cursor);
        listener.inbox.updates.dropped.fetch_add(n_waiting, Ordering::Relaxed);
        if let Some(masks) = state.masks(listener) {
            masks.iter_mut().filter(|(mask, _)| *mask == cursor.mask()).for_each(|(_, n)| *n -= 1);
        }
    }

    /// Its subscriptions have ended.
    pub(super) fn unlisten(&self, listener: &Arc<Listener>) {
        lock(&self.state).listeners.retain(|known| !Arc::ptr_eq(&known.listener, listener));
    }
}

impl State {
    fn masks(&mut self, listener: &Arc<Listener>) -> Option<&mut Vec<(EventMask, u64)>> {
        let known = self.listeners.iter_mut().find(|known| Arc::ptr_eq(&known.listener, listener))?;
        Some(&mut known.masks)
    }
}

impl Listener {
    pub(super) fn new(inbox: Arc<Inbox>, circuit: CircuitKey, watch: usize) -> Arc<Listener> {
        Arc::new(Listener { inbox, circuit, watch, is_told: AtomicBool::new(false) })
    }

    fn tell(&self) {
        if !self.is_told.swap(true, Ordering::AcqRel) {
            self.inbox.push(Message::Posted { circuit: self.circuit, watch: self.watch });
        }
    }

    /// The circuit will look now; the next post tells it again.
    pub(super) fn looks(&self) {
        self.is_told.store(false, Ordering::Release);
    }
}
