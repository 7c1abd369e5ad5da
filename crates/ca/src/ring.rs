//! The last posts of one PV, and cursors on them: memory is constant per subscription, and a
//! cursor that falls off the ring counts exactly what was merged.

use fodo_data::{EventMask, Reading};

/// One change of a PV.
#[derive(Clone, Debug, PartialEq)]
pub struct Post {
    /// What changed.
    pub mask: EventMask,
    /// The value as it was then.
    pub reading: Reading,
}

/// The last n posts of one PV.
#[derive(Debug)]
pub struct Ring {}

/// Where one subscription stands.
#[derive(Clone, Debug)]
pub struct Cursor {
    /// Posts that met the mask and were replaced by later ones before they were taken.
    pub merged: u64,
}

impl Ring {
    /// A ring of `n_posts`; 8 for scalars and 2 for arrays are the defaults of `limit`.
    pub fn new(n_posts: usize) -> Ring {
        let _ = n_posts;
        todo!()
    }

    /// Adds a post; the oldest falls off when the ring is full.
    pub fn push(&mut self, post: Post) {
        let _ = post;
        todo!()
    }

    /// A cursor behind the newest post.
    pub fn cursor(&self, mask: EventMask) -> Cursor {
        let _ = mask;
        todo!()
    }

    /// The oldest post that meets the cursor's mask and that it has not had; moves it on.
    pub fn next(&self, cursor: &mut Cursor) -> Option<&Post> {
        let _ = cursor;
        todo!()
    }

    /// Skips to the newest post (flow control); what is skipped counts as merged.
    pub fn next_newest(&self, cursor: &mut Cursor) -> Option<&Post> {
        let _ = cursor;
        todo!()
    }
}
