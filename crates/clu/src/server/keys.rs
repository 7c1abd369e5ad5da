//! The keys that a server accepts.

use std::sync::Arc;
use std::time::Instant;

use crate::RandomSource;
use crate::cipher::{CipherKey, Pin};
use crate::limit;

/// A key by its purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyKind {
    /// The key of the project.
    Project,
    /// The key from the PIN, after a discovery.
    Temporary,
    /// The key that all installations know.
    Broadcast,
}

pub(super) struct Keys {
    project: Arc<CipherKey>,
    /// With the time at which it ends.
    temporary: Option<(Arc<CipherKey>, Instant)>,
    broadcast: Arc<CipherKey>,
}

impl Keys {
    pub(super) fn new(project: CipherKey) -> Keys {
        Keys { project: Arc::new(project), temporary: None, broadcast: Arc::new(CipherKey::broadcast()) }
    }

    pub(super) fn project(&self) -> &CipherKey {
        &self.project
    }

    /// Replaces the key of the project, which ends the temporary one.
    pub(super) fn set_project(&mut self, key: Arc<CipherKey>) {
        self.project = key;
        self.temporary = None;
    }

    pub(super) fn end_temporary(&mut self) {
        self.temporary = None;
    }

    /// Ends the temporary key when its time is over.
    pub(super) fn expire(&mut self, now: Instant) {
        if self.deadline().is_some_and(|ends_at| ends_at <= now) {
            self.temporary = None;
        }
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.temporary.as_ref().map(|(_, ends_at)| *ends_at)
    }

    /// The temporary key. A later discovery gets the same one and does not prolong it, so that two clients that discover
    /// at the same time can both use it, and its time is bounded.
    pub(super) fn temporary(&mut self, pin: &Pin, now: Instant, random: &mut RandomSource) -> Arc<CipherKey> {
        if let Some((key, _)) = &self.temporary {
            return key.clone();
        }
        let mut iv = [0; 16];
        random(&mut iv);
        let key = Arc::new(CipherKey::initial(pin, iv));
        self.temporary = Some((key.clone(), now + limit::TEMPORARY_KEY_TIME));
        key
    }

    /// Decrypts a datagram with the first of `kinds` that results in a command, and returns the length of the command in
    /// `buffer`.
    ///
    /// Another key results in a valid padding for one datagram in 256, but not also in a keyword.
    pub(super) fn find(
        &self,
        kinds: &[KeyKind],
        datagram: &[u8],
        buffer: &mut Vec<u8>,
    ) -> Option<(KeyKind, Arc<CipherKey>, usize)> {
        kinds.iter().find_map(|kind| {
            let key = match kind {
                KeyKind::Project => Some(&self.project),
                KeyKind::Temporary => self.temporary.as_ref().map(|(key, _)| key),
                KeyKind::Broadcast => Some(&self.broadcast),
            }?;
            let message = key.decrypt(datagram, buffer)?;
            has_keyword(message).then(|| (*kind, key.clone(), message.len()))
        })
    }
}

/// Where the keyword of commands with binary fields starts.
const BINARY_FIELDS_BYTES: usize = 50;

/// Whether a message has the start of a keyword at one of the places where commands have it. It may be an unknown one.
fn has_keyword(message: &[u8]) -> bool {
    let starts = |bytes: &[u8]| bytes.starts_with(b"req") || bytes.starts_with(b"meas_");
    starts(message.trim_ascii_start()) || message.get(BINARY_FIELDS_BYTES..).is_some_and(starts)
}
