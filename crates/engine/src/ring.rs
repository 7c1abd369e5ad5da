//! The latest posts of one PV, and cursors on them. Memory per subscription is constant, and a cursor that falls behind
//! counts exactly the merged posts.

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
    /// In the order of posting from `oldest` on, and then from the start.
    posts: Vec<Post>,
    /// The index of the oldest post; 0 until the ring is full.
    oldest: usize,
    /// The number of posts that are kept in any case.
    n_posts_min: usize,
    n_posts_max: usize,
    /// The number of posts so far that match each mask.
    n_posted: [u64; N_MASKS],
}

/// What the rings of flat and of structured PVs have in common.
/// [`StructureRing`](crate::structure_ring::StructureRing) has an example.
pub trait PostRing {
    /// The number of posts that are kept in any case.
    fn n_posts_min(&self) -> usize;

    /// Keeps this number of posts from now on, at least those that are kept in any case, and while there is memory for
    /// them.
    fn resize(&mut self, n_posts: usize);

    /// The number of matching posts after the cursor, including those that are no longer kept.
    fn n_waiting(&self, cursor: &Cursor) -> u64;
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

    /// A cursor that has accounted for the first `n_accounted` matching posts.
    pub(crate) fn after(mask: EventMask, n_accounted: u64) -> Cursor {
        Cursor { mask, n_accounted, merged: 0 }
    }

    /// The number of matching posts that were taken or merged.
    pub(crate) fn n_accounted(&self) -> u64 {
        self.n_accounted
    }

    /// Takes the post with this number; those before it are merged into it.
    pub(crate) fn advance(&mut self, number: u64) {
        self.merged += number - 1 - self.n_accounted;
        self.n_accounted = number;
    }
}

impl PostRing for Ring {
    fn n_posts_min(&self) -> usize {
        self.n_posts_min
    }

    fn resize(&mut self, n_posts: usize) {
        self.posts.rotate_left(self.oldest);
        (self.oldest, self.n_posts_max) = (0, n_posts.max(self.n_posts_min));
        let n_dropped = self.posts.len().saturating_sub(self.n_posts_max);
        let dropped_mask = self.posts.drain(..n_dropped).fold(EventMask::NONE, |masks, post| masks | post.mask);
        if let Some(oldest) = self.posts.first_mut() {
            oldest.mask |= dropped_mask;
        }
        self.posts.shrink_to(self.n_posts_max);
    }

    #[inline]
    fn n_waiting(&self, cursor: &Cursor) -> u64 {
        self.posted(cursor.mask) - cursor.n_accounted
    }
}

impl Ring {
    /// Creates a ring for `n_posts` posts, at least one.
    pub fn new(n_posts: usize) -> Ring {
        let n_posts = n_posts.max(1);
        Ring { posts: Vec::new(), oldest: 0, n_posts_min: n_posts, n_posts_max: n_posts, n_posted: [0; N_MASKS] }
    }

    /// Adds a post; if the ring is full, the oldest is dropped.
    ///
    /// The mask of the dropped post is merged into the next post, so that the newest value always reaches every
    /// subscription. The reading is that of the later post, whatever its mask.
    pub fn push(&mut self, post: Post) {
        let intersecting = &INTERSECTING[usize::from(post.mask.0) % N_MASKS];
        self.n_posted.iter_mut().zip(intersecting).for_each(|(n_posted, meets)| *n_posted += meets);
        if self.posts.len() < self.n_posts_max {
            return self.posts.push(post);
        }
        let dropped_mask = self.posts[self.oldest].mask;
        self.posts[self.oldest] = post;
        self.oldest = if self.oldest + 1 < self.posts.len() { self.oldest + 1 } else { 0 };
        self.posts[self.oldest].mask |= dropped_mask;
    }

    #[inline]
    fn newest(&self) -> Option<&Post> {
        match self.oldest {
            0 => self.posts.last(),
            oldest => self.posts.get(oldest - 1),
        }
    }

    fn newest_first(&self) -> impl Iterator<Item = &Post> {
        let (later, earlier) = self.posts.split_at(self.oldest);
        later.iter().rev().chain(earlier.iter().rev())
    }

    /// The number of posts so far that match a mask.
    #[inline]
    pub fn posted(&self, mask: EventMask) -> u64 {
        self.n_posted[usize::from(mask.0) % N_MASKS]
    }

    /// The number of posts up to a post of this ring, including it, that match a mask.
    ///
    /// A subscription that compares the numbers of two posts knows how often something has changed in between, even if
    /// the ring has merged posts.
    #[inline]
    pub fn posted_until(&self, post: &Post, mask: EventMask) -> u64 {
        if self.newest().is_some_and(|newest| std::ptr::eq(newest, post)) {
            return self.posted(mask);
        }
        // The masks of posts are only merged into the oldest one, so later ones have theirs.
        let later = self.newest_first().take_while(|later| !std::ptr::eq(*later, post));
        self.posted(mask) - later.filter(|later| later.mask.meets(mask)).count() as u64
    }

    /// Creates a cursor after the newest post.
    pub fn cursor(&self, mask: EventMask) -> Cursor {
        Cursor { mask, n_accounted: self.posted(mask), merged: 0 }
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
            let newest = match self.newest()? {
                newest if newest.mask.meets(cursor.mask) => newest,
                _ => self.newest_first().find(|post| post.mask.meets(cursor.mask))?,
            };
            cursor.n_accounted += 1;
            return Some(newest);
        }
        let intersecting = self.newest_first().filter(|post| post.mask.meets(cursor.mask));
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
    fn the_number_of_changes_of_each_kind_is_known_although_posts_were_merged() {
        let mut ring = Ring::new(2);
        let mut cursor = ring.cursor(EventMask(5));
        for (mask, value) in [(1, 1), (4, 2), (1, 3), (5, 4), (8, 5), (1, 6)] {
            ring.push(post(mask, value));
        }

        let until = |post, masks: [u8; 4]| masks.map(|mask| ring.posted_until(post, EventMask(mask)));
        let oldest = ring.next(&mut cursor).unwrap();
        assert_eq!((value_of(oldest), cursor.merged), (5, 3), "it has the changes of the posts before it");
        assert_eq!(until(oldest, [1, 4, 5, 8]), [3, 2, 4, 1]);
        let newest = ring.next(&mut cursor).unwrap();
        assert_eq!((value_of(newest), cursor.merged), (6, 3));
        assert_eq!(until(newest, [1, 4, 5, 8]), [4, 2, 5, 1]);
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

    #[test]
    fn the_mask_of_a_dropped_post_is_merged_into_the_next_post() {
        for (n_posts, masks) in [(0, &[7][..]), (1, &[7]), (2, &[3, 4]), (3, &[1, 2, 4]), (4, &[1, 2, 4])] {
            let mut ring = Ring::new(n_posts);

            for (mask, value) in [(1, 1), (2, 2), (4, 3)] {
                ring.push(post(mask, value));
            }

            let mut held: Vec<u8> = ring.newest_first().map(|post| post.mask.0).collect();
            held.reverse();
            assert_eq!(held, masks, "a ring of {n_posts}");
            assert_eq!(ring.newest().map(value_of), Some(3));
        }
    }

    #[test]
    fn a_ring_grows_and_shrinks_without_losing_a_change() {
        let mut ring = Ring::new(2);
        let (mut values, mut alarms) = (ring.cursor(EventMask::VALUE), ring.cursor(EventMask::ALARM));
        ring.resize(5);
        for (mask, value) in [(4, 0), (1, 1), (1, 2), (1, 3), (1, 4)] {
            ring.push(post(mask, value));
        }
        assert_eq!((ring.next(&mut values).map(value_of), ring.n_posts_min()), (Some(1), 2));

        ring.resize(0);

        assert_eq!((ring.next(&mut values).map(value_of), values.merged), (Some(3), 1));
        assert_eq!(ring.next(&mut alarms).map(value_of), Some(3));
        ring.push(post(1, 5));
        assert_eq!(ring.posts.len(), 2);
    }

    #[test]
    fn a_cursor_counts_only_matching_posts_after_its_creation() {
        let mut ring = Ring::new(2);
        ring.push(post(1, 1));
        let mut values = ring.cursor(EventMask::VALUE);
        let mut alarms = ring.cursor(EventMask::ALARM);
        assert_eq!((values.mask(), alarms.mask()), (EventMask::VALUE, EventMask::ALARM));
        assert_eq!((ring.n_waiting(&values), ring.next(&mut values)), (0, None));

        (2..=6).for_each(|value| ring.push(post(EventMask::VALUE.0, value)));
        assert_eq!((ring.n_waiting(&values), ring.n_waiting(&alarms)), (5, 0));
        assert_eq!(ring.next(&mut alarms), None);
        assert_eq!((ring.next(&mut values).map(value_of), values.merged, ring.n_waiting(&values)), (Some(5), 3, 1));
        assert_eq!((ring.next(&mut values).map(value_of), values.merged, ring.n_waiting(&values)), (Some(6), 3, 0));
    }

    #[test]
    fn a_cursor_that_lacks_one_post_receives_it_behind_posts_that_do_not_match() {
        let mut ring = Ring::new(4);
        let mut alarms = ring.cursor(EventMask::ALARM);

        ring.push(post(EventMask::ALARM.0, 1));
        ring.push(post(EventMask::VALUE.0, 2));

        assert_eq!(ring.next(&mut alarms), Some(&post(EventMask::ALARM.0, 1)));
        assert_eq!((ring.next(&mut alarms), alarms.merged), (None, 0));
    }
}
