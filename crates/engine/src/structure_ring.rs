//! The latest posts of one structured PV. A cursor that falls behind receives the union of the changes that it missed,
//! and learns which nodes have changed more than once.

use std::collections::VecDeque;
use std::sync::Arc;

use fodo_data::{BitSet, EventMask, Structure};

use crate::ring::{Cursor, PostRing};

/// The latest posts of one structured PV.
///
/// ```
/// use std::sync::Arc;
///
/// use fodo_data::{Kind, Structure, StructureBuilder};
/// use fodo_engine::ring::PostRing;
/// use fodo_engine::structure_ring::StructureRing;
///
/// let mut build = StructureBuilder::new("");
/// let kind = Arc::new(build.scalar("x", Kind::F64).scalar("y", Kind::F64).finish());
/// let value = Arc::new(Structure::new(kind));
/// let mut ring = StructureRing::new(2, 1 << 20);
/// let mut cursor = ring.cursor();
/// for node in [1, 1, 2, 1] {
///     ring.push(value.clone(), [node].into_iter().collect());
/// }
///
/// // Of the first two posts only the marks are left.
/// let update = ring.next(&mut cursor).expect("four posts wait");
/// assert!(update.changed.iter().eq([1, 2]) && update.overrun.iter().eq([1]));
/// let update = ring.next(&mut cursor).expect("one post waits");
/// assert!(update.changed.iter().eq([1]) && update.overrun.is_empty());
/// assert_eq!((cursor.merged, ring.n_waiting(&cursor)), (2, 0));
/// ```
#[derive(Debug)]
pub struct StructureRing {
    posts: VecDeque<KeptPost>,
    /// The number of posts that are kept in any case.
    n_posts_min: usize,
    n_posts_max: usize,
    /// Above this memory only `n_posts_min` posts are kept.
    n_bytes_max: usize,
    n_bytes: usize,
    /// The number of posts so far, which is the number of the newest.
    n_posted: u64,
    /// For each node the numbers of the two latest posts that changed it and are no longer kept; 0 for none.
    dropped_changes: Vec<[u64; 2]>,
}

#[derive(Debug)]
struct KeptPost {
    value: Arc<Structure>,
    /// The leaves that this post changed.
    changed: BitSet,
    n_bytes: usize,
}

/// What a cursor receives. [`StructureRing`] has an example.
#[derive(Clone, Debug, PartialEq)]
pub struct StructureUpdate {
    /// The whole value.
    pub value: Arc<Structure>,
    /// The number of its post.
    pub number: u64,
    /// The nodes that have changed since the previous update of this cursor; none of them is a structure.
    pub changed: BitSet,
    /// Those that have changed more than once.
    pub overrun: BitSet,
}

impl PostRing for StructureRing {
    fn n_posts_min(&self) -> usize {
        self.n_posts_min
    }

    fn resize(&mut self, n_posts: usize) {
        self.n_posts_max = n_posts.max(self.n_posts_min);
        while self.posts.len() > self.n_posts_max {
            self.drop_oldest();
        }
        self.posts.shrink_to(self.n_posts_max);
    }

    #[inline]
    fn n_waiting(&self, cursor: &Cursor) -> u64 {
        self.n_posted - cursor.n_accounted()
    }
}

impl StructureRing {
    /// Creates a ring for `n_posts` posts, at least one. It may grow as long as its posts need at most `n_bytes_max`.
    pub fn new(n_posts: usize, n_bytes_max: usize) -> StructureRing {
        let n_posts = n_posts.max(1);
        StructureRing {
            posts: VecDeque::new(),
            n_posts_min: n_posts,
            n_posts_max: n_posts,
            n_bytes_max,
            n_bytes: 0,
            n_posted: 0,
            dropped_changes: Vec::new(),
        }
    }

    /// Adds a post. `value`: the whole value. `changed`: the nodes that this post changed; a structure stands for its
    /// members.
    pub fn push(&mut self, value: Arc<Structure>, changed: BitSet) {
        let (changed, n_bytes) = (value.kind().leaves(&changed), value.n_bytes());
        while self.posts.len() >= self.n_posts_max
            || (self.posts.len() >= self.n_posts_min && self.n_bytes + n_bytes > self.n_bytes_max)
        {
            self.drop_oldest();
        }
        self.n_bytes += n_bytes;
        self.n_posted += 1;
        self.posts.push_back(KeptPost { value, changed, n_bytes });
    }

    fn drop_oldest(&mut self) {
        let number = self.oldest();
        let Some(oldest) = self.posts.pop_front() else { return };
        self.n_bytes -= oldest.n_bytes;
        let n_nodes = oldest.value.kind().nodes().len();
        if self.dropped_changes.len() < n_nodes {
            self.dropped_changes.resize(n_nodes, [0; 2]);
        }
        for bit in oldest.changed.iter() {
            let [latest, second] = &mut self.dropped_changes[bit];
            *second = std::mem::replace(latest, number);
        }
    }

    /// The number of the oldest post that is kept.
    fn oldest(&self) -> u64 {
        self.n_posted + 1 - self.posts.len() as u64
    }

    /// Creates a cursor after the newest post.
    pub fn cursor(&self) -> Cursor {
        Cursor::after(EventMask(15), self.n_posted)
    }

    /// Returns the oldest post after the cursor, with the changes of those before it that are no longer kept, and
    /// advances the cursor.
    pub fn next(&self, cursor: &mut Cursor) -> Option<StructureUpdate> {
        if self.n_waiting(cursor) == 0 {
            return None;
        }
        let (before, oldest) = (cursor.n_accounted(), self.oldest());
        let number = oldest.max(before + 1);
        let post = self.posts.get((number - oldest) as usize)?;
        let (mut changed, mut overrun) = (post.changed.clone(), BitSet::new());
        if number > before + 1 {
            for (bit, [latest, second]) in self.dropped_changes.iter().enumerate() {
                if *latest > before {
                    if *second > before || changed.contains(bit) {
                        overrun.insert(bit);
                    }
                    changed.insert(bit);
                }
            }
        }
        cursor.advance(number);
        Some(StructureUpdate { value: post.value.clone(), number, changed, overrun })
    }
}

#[cfg(test)]
mod tests {
    use fodo_data::{Kind, StructureBuilder};

    use super::*;

    const N_MEMBERS: usize = 70;

    /// A value with an array of `n_bytes` and many other members.
    fn value(n_bytes: usize) -> Arc<Structure> {
        let mut build = StructureBuilder::new("");
        build.array("array", Kind::U8).open("rest", "");
        for member in 0..N_MEMBERS {
            build.scalar(&format!("x{member}"), Kind::F64);
        }
        let mut value = Structure::new(Arc::new(build.finish()));
        value.set("array", vec![0_u8; n_bytes]).unwrap();
        Arc::new(value)
    }

    fn random_below(state: &mut u64, below: u64) -> u64 {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*state >> 33) % below
    }

    /// Compares with a ring that keeps everything.
    #[test]
    fn the_changes_of_every_update_are_those_of_all_posts_since_the_previous_one() {
        let value = value(0);
        for seed in 1..100_u64 {
            let mut state = seed;
            let mut ring = StructureRing::new(1 + random_below(&mut state, 4) as usize, 1 << 30);
            let mut cursors = [ring.cursor(), ring.cursor(), ring.cursor()];
            let mut n_received = [0; 3];
            let mut posted: Vec<BitSet> = Vec::new();
            for _ in 0..60 {
                let n_bits = 1 + random_below(&mut state, 3);
                let bits: BitSet =
                    (0..n_bits).map(|_| 3 + random_below(&mut state, N_MEMBERS as u64) as usize).collect();
                posted.push(bits.clone());
                ring.push(value.clone(), bits);
                if random_below(&mut state, 20) == 0 {
                    ring.resize(6);
                } else if random_below(&mut state, 20) == 0 {
                    ring.resize(0);
                }
                for (index, cursor) in cursors.iter_mut().enumerate() {
                    for _ in 0..random_below(&mut state, 2 + index as u64) {
                        let before = cursor.n_accounted() as usize;
                        let Some(update) = ring.next(cursor) else { break };
                        let since = &posted[before..update.number as usize];
                        let times = |bit: usize| since.iter().filter(|bits| bits.contains(bit)).count();
                        let of = |n: usize| (0..100).filter(|bit| times(*bit) >= n).collect::<BitSet>();
                        assert_eq!((update.changed, update.overrun), (of(1), of(2)), "seed {seed}");
                        n_received[index] += 1;
                    }
                }
            }
            for (cursor, n_received) in cursors.iter().zip(n_received) {
                assert_eq!(n_received + cursor.merged + ring.n_waiting(cursor), 60, "seed {seed}");
            }
        }
    }

    #[test]
    fn the_mark_of_a_structure_stands_for_its_members() {
        let mut ring = StructureRing::new(1, 1 << 30);
        let mut cursor = ring.cursor();

        for bit in [0, 5] {
            ring.push(value(0), [bit].into_iter().collect());
        }

        let update = ring.next(&mut cursor).unwrap();
        assert_eq!((update.changed.len(), update.overrun), (N_MEMBERS + 1, [5].into_iter().collect()));
    }

    #[test]
    fn a_ring_grows_within_its_memory_and_shrinks_again() {
        let mut ring = StructureRing::new(2, 10 * value(10_000).n_bytes());
        let push = |ring: &mut StructureRing, n_posts, n_bytes| {
            let value = value(n_bytes);
            (0..n_posts).for_each(|_| ring.push(value.clone(), [1].into_iter().collect()));
            ring.posts.len()
        };

        assert_eq!(push(&mut ring, 5, 10_000), 2);
        ring.resize(100);
        assert_eq!(push(&mut ring, 200, 10_000), 10);
        let n_small = (ring.n_bytes_max / value(0).n_bytes()).min(100);
        assert_eq!(push(&mut ring, 200, 0), n_small);
        assert_eq!(push(&mut ring, 1, 1_000_000), 2);
        ring.resize(0);
        assert_eq!((push(&mut ring, 5, 0), ring.n_posts_min()), (2, 2));
    }
}
