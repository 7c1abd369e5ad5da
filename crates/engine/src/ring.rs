//! The latest posts of one PV, and cursors on them. Memory per subscription is constant, and a cursor that falls behind
//! counts exactly the merged posts.

use std::collections::VecDeque;

use fodo_data::{EventMask, Reading};

/// One change of a PV.
#[derive(Clone, Debug, PartialEq)]
pub struct Post {
    /// What changed.
    pub mask: EventMask,
    /// The value at the time of the post.
    pub reading: Reading,
}

/// Subscription masks have four bits.
const N_MASKS: usize = 16;

/// Indexed by the mask of a post and the mask of a subscription: 1 if they intersect.
const INTERSECTING: [[u64; N_MASKS]; N_MASKS] = {
    let mut intersecting = [[0; N_MASKS]; N_MASKS];
    let mut index = 0;
    while index < N_MASKS * N_MASKS {
        let (posted, subscribed) = (index / N_MASKS, index % N_MASKS);
        intersecting[posted][subscribed] = (posted & subscribed != 0) as u64;
        index += 1;
    }
    intersecting
};

/// The latest posts of one PV.
#[derive(Debug)]
pub struct Ring {
    posts: VecDeque<Post>,
    n_posts_max: usize,
    /// The number of posts so far that match each mask.
    n_posted: [u64; N_MASKS],
}

/// The position of one subscription.
#[derive(Clone, Debug)]
pub struct Cursor {
    mask: EventMask,
    /// The number of matching posts that were taken or merged since the ring was created.
    n_accounted: u64,
    /// The number of matching posts that were replaced by later ones before they were taken.
    pub merged: u64,
}

impl Cursor {
    /// The mask of posts that the cursor selects.
    pub fn mask(&self) -> EventMask {
        self.mask
    }
}

impl Ring {
    /// Creates a ring for `n_posts` posts, at least one.
    pub fn new(n_posts: usize) -> Ring {
        Ring { posts: VecDeque::new(), n_posts_max: n_posts.max(1), n_posted: [0; N_MASKS] }
    }

    /// Adds a post; if the ring is full, the oldest is dropped.
    ///
    /// The mask of the dropped post is merged into the next post, so that the newest value always reaches every
    /// subscription. The reading is that of the later post, whatever its mask.
    pub fn push(&mut self, mut post: Post) {
        let intersecting = &INTERSECTING[usize::from(post.mask.0) % N_MASKS];
        self.n_posted.iter_mut().zip(intersecting).for_each(|(n_posted, meets)| *n_posted += meets);
        if self.posts.len() == self.n_posts_max
            && let Some(oldest) = self.posts.pop_front()
        {
            self.posts.front_mut().unwrap_or(&mut post).mask |= oldest.mask;
        }
        self.posts.push_back(post);
    }

    #[inline]
    fn posted(&self, mask: EventMask) -> u64 {
        self.n_posted[usize::from(mask.0) % N_MASKS]
    }

    /// Creates a cursor after the newest post.
    pub fn cursor(&self, mask: EventMask) -> Cursor {
        Cursor { mask, n_accounted: self.posted(mask), merged: 0 }
    }

    /// The number of matching posts after the cursor, including posts dropped from the ring.
    #[inline]
    pub fn n_waiting(&self, cursor: &Cursor) -> u64 {
        self.posted(cursor.mask) - cursor.n_accounted
    }

    /// Returns the oldest matching post after the cursor, and advances the cursor.
    #[inline]
    pub fn next(&self, cursor: &mut Cursor) -> Option<&Post> {
        let n_waiting = self.n_waiting(cursor);
        if n_waiting == 0 {
            return None;
        }
        if n_waiting == 1 {
            // The common case: the cursor lacks only the newest post, and nothing can be merged into it.
            let newest = self.posts.iter().rev().find(|post| post.mask.meets(cursor.mask))?;
            cursor.n_accounted += 1;
            return Some(newest);
        }
        let intersecting = self.posts.iter().rev().filter(|post| post.mask.meets(cursor.mask));
        let (n_present, post) = (1..=n_waiting).zip(intersecting).last()?;
        let n_merged = n_waiting - n_present;
        cursor.merged += n_merged;
        cursor.n_accounted += n_merged + 1;
        Some(post)
    }
}

#[cfg(test)]
mod tests {
    use fodo_data::Value;

    use super::*;

    fn post(mask: u8, value: i32) -> Post {
        Post { mask: EventMask(mask), reading: Reading::bare(Value::from(value)) }
    }

    fn value_of(post: &Post) -> i32 {
        post.reading.value.first().unwrap().to_f64().unwrap() as i32
    }

    #[test]
    fn two_posts_before_one_read_are_both_delivered() {
        let mut ring = Ring::new(8);
        let mut cursor = ring.cursor(EventMask::VALUE);

        ring.push(post(1, 1));
        ring.push(post(1, 0));

        assert_eq!(ring.next(&mut cursor), Some(&post(1, 1)));
        assert_eq!(ring.next(&mut cursor), Some(&post(1, 0)));
        assert_eq!(ring.next(&mut cursor), None);
        assert_eq!(cursor.merged, 0);
    }

    #[test]
    fn updates_read_plus_updates_merged_equal_updates_posted() {
        for seed in 1..200_u64 {
            let mut state = seed;
            let mut random = |below: u64| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) % below
            };
            let mut ring = Ring::new(1 + random(8) as usize);
            let mask = EventMask(1 + random(15) as u8);
            let mut cursor = ring.cursor(mask);
            let (mut posted, mut delivered) = (Vec::new(), Vec::new());

            for value in 0..100 {
                let next = post(1 + random(15) as u8, value);
                posted.extend(next.mask.meets(mask).then_some(value));
                ring.push(next);
                for _ in 0..random(3) {
                    delivered.extend(ring.next(&mut cursor).map(value_of));
                }
            }
            delivered.extend(std::iter::from_fn(|| ring.next(&mut cursor)).map(value_of));

            assert_eq!(delivered.len() as u64 + cursor.merged, posted.len() as u64, "seed {seed}");
            assert!(delivered.is_sorted() && delivered.last() >= posted.last(), "seed {seed}");
        }
    }
}
