use std::ops::Range;

/// A set of bits: the nodes of a structure that changed, or that a client selects.
///
/// Sets of bits below 64 cost no allocation.
///
/// ```
/// use fodo_data::BitSet;
///
/// let mut changed: BitSet = [1, 7, 8, 9].into_iter().collect();
/// changed.insert(3);
/// assert!(changed.iter().eq([1, 3, 7, 8, 9]));
/// assert_eq!(changed.next_from(4), Some(7));
///
/// let mut selected = BitSet::new();
/// selected.insert_range(7..10);
/// selected.remove(9);
/// changed.intersect_with(&selected);
/// assert!(changed.contains(8) && !changed.contains(9));
/// assert_eq!((changed.n_words(), changed.word(0)), (1, 0b1_1000_0000));
///
/// changed.set_word(1, 1);
/// changed.union_with(&selected);
/// assert!(changed.iter().eq([7, 8, 64]));
/// changed.truncate(8);
/// assert_eq!(changed.len(), 1);
/// changed.clear();
/// assert!(changed.is_empty());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct BitSet {
    /// Bits 0 to 63.
    first: u64,
    /// Bits from 64 on, 64 per word; the last word is never 0, so that equal sets have equal words.
    rest: Vec<u64>,
}

/// Bits per word.
const WORD: usize = 64;

impl BitSet {
    /// Creates a set without bits.
    pub const fn new() -> BitSet {
        BitSet { first: 0, rest: Vec::new() }
    }

    /// Whether the set contains no bit.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.first == 0 && self.rest.is_empty()
    }

    /// The number of bits in the set.
    pub fn len(&self) -> usize {
        (0..self.n_words()).map(|index| self.word(index).count_ones() as usize).sum()
    }

    /// Whether the set contains `bit`.
    #[inline]
    pub fn contains(&self, bit: usize) -> bool {
        self.word(bit / WORD) >> (bit % WORD) & 1 != 0
    }

    /// Adds a bit.
    #[inline]
    pub fn insert(&mut self, bit: usize) {
        self.set_word(bit / WORD, self.word(bit / WORD) | 1 << (bit % WORD));
    }

    /// Adds every bit of a range.
    pub fn insert_range(&mut self, bits: Range<usize>) {
        bits.for_each(|bit| self.insert(bit));
    }

    /// Removes a bit.
    pub fn remove(&mut self, bit: usize) {
        self.set_word(bit / WORD, self.word(bit / WORD) & !(1 << (bit % WORD)));
    }

    /// Removes every bit; keeps the memory.
    pub fn clear(&mut self) {
        self.first = 0;
        self.rest.clear();
    }

    /// Removes the bits from `end` on.
    pub fn truncate(&mut self, end: usize) {
        let n_words = self.n_words();
        for index in end / WORD..n_words {
            let kept = if index == end / WORD { (1 << (end % WORD)) - 1 } else { 0 };
            self.set_word(index, self.word(index) & kept);
        }
    }

    /// Adds every bit of `other`.
    pub fn union_with(&mut self, other: &BitSet) {
        (0..other.n_words()).for_each(|index| self.set_word(index, self.word(index) | other.word(index)));
    }

    /// Keeps only the bits that `other` contains as well.
    pub fn intersect_with(&mut self, other: &BitSet) {
        (0..self.n_words()).rev().for_each(|index| self.set_word(index, self.word(index) & other.word(index)));
    }

    /// The lowest bit of the set from `bit` on.
    #[inline]
    pub fn next_from(&self, bit: usize) -> Option<usize> {
        let mut index = bit / WORD;
        let mut word = self.word(index) & u64::MAX << (bit % WORD);
        while word == 0 {
            index += 1;
            if index >= self.n_words() {
                return None;
            }
            word = self.word(index);
        }
        Some(index * WORD + word.trailing_zeros() as usize)
    }

    /// The bits in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        let mut next = 0;
        std::iter::from_fn(move || {
            let bit = self.next_from(next)?;
            next = bit + 1;
            Some(bit)
        })
    }

    /// The number of 64-bit words that contain all bits.
    #[inline]
    pub fn n_words(&self) -> usize {
        if self.rest.is_empty() { usize::from(self.first != 0) } else { 1 + self.rest.len() }
    }

    /// 64 bits, the lowest of which is bit `64 * index`.
    #[inline]
    pub fn word(&self, index: usize) -> u64 {
        match index.checked_sub(1) {
            None => self.first,
            Some(index) => self.rest.get(index).copied().unwrap_or(0),
        }
    }

    /// Replaces 64 bits, the lowest of which is bit `64 * index`.
    #[inline]
    pub fn set_word(&mut self, index: usize, word: u64) {
        let Some(index) = index.checked_sub(1) else {
            self.first = word;
            return;
        };
        if index >= self.rest.len() {
            if word == 0 {
                return;
            }
            self.rest.resize(index + 1, 0);
        }
        self.rest[index] = word;
        while self.rest.last() == Some(&0) {
            self.rest.pop();
        }
    }
}

impl FromIterator<usize> for BitSet {
    fn from_iter<I: IntoIterator<Item = usize>>(bits: I) -> BitSet {
        let mut set = BitSet::new();
        bits.into_iter().for_each(|bit| set.insert(bit));
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(bits: &[usize]) -> BitSet {
        bits.iter().copied().collect()
    }

    #[test]
    fn a_bit_set_returns_its_bits_in_order() {
        let bits = [0, 1, 63, 64, 127, 128, 1000];
        let mut set = set(&bits);

        assert!(set.iter().eq(bits));
        assert_eq!((set.len(), set.n_words()), (7, 16));
        assert_eq!((set.next_from(2), set.next_from(129), set.next_from(1001)), (Some(63), Some(1000), None));
        assert!(set.contains(127) && !set.contains(126) && !set.contains(5000));
        set.remove(1000);
        assert_eq!(set.n_words(), 3);
    }

    #[test]
    fn equal_sets_are_equal_whatever_was_removed_before() {
        let mut grown = set(&[3, 200]);
        grown.remove(200);
        grown.remove(300);

        assert_eq!(grown, set(&[3]));
        grown.clear();
        assert!(grown.is_empty() && grown.n_words() == 0);
    }

    #[test]
    fn sets_unite_intersect_and_truncate() {
        let mut both = set(&[1, 70]);
        both.union_with(&set(&[2, 300]));
        assert_eq!(both, set(&[1, 2, 70, 300]));

        let mut common = both.clone();
        common.intersect_with(&set(&[2, 70]));
        assert_eq!(common, set(&[2, 70]));

        both.truncate(70);
        assert_eq!(both, set(&[1, 2]));
        both.truncate(2);
        assert_eq!(both, set(&[1]));
        let mut range = BitSet::new();
        range.insert_range(62..66);
        assert!(range.iter().eq(62..66));
    }
}
