use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use fodo_ca::ring::{Post, Ring};

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
    listeners: Vec<Arc<Listener>>,
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
        state.ring.push(post);
        state.listeners.iter().for_each(|listener| listener.tell());
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
        lock(&self.state).listeners.push(listener);
    }

    pub(super) fn unlisten(&self, listener: &Arc<Listener>) {
        lock(&self.state).listeners.retain(|known| !Arc::ptr_eq(known, listener));
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
