//! A map that assigns the keys of its values.

use std::marker::PhantomData;

/// A map whose keys are consecutive numbers, starting at 0 and wrapping at a power of two.
///
/// A value is stored at the index given by the low bits of its number. A number whose slot is taken is skipped. So a
/// lookup is a single array access, and consecutive values are adjacent in memory. There are at least twice as many
/// slots as values.
#[derive(Debug)]
pub struct IdMap<K, V> {
    slots: Vec<Option<(u32, V)>>,
    n_values: usize,
    next: u32,
    /// The largest number; one less than a power of two.
    last: u32,
    key: PhantomData<K>,
}

/// Number of slots that are kept when the map is empty; allocated with the first value.
const SLOTS_MIN: usize = 8;

impl<K: Copy + From<u32> + Into<u32>, V> IdMap<K, V> {
    /// Creates a map with numbers of this many bits, 1 to 32.
    pub fn new(n_bits: u32) -> IdMap<K, V> {
        let last = u32::MAX >> (u32::BITS - n_bits);
        IdMap { slots: Vec::new(), n_values: 0, next: 0, last, key: PhantomData }
    }

    /// Inserts a value; returns its number.
    pub fn insert(&mut self, value: V) -> K {
        if self.n_values * 2 >= self.slots.len() {
            self.grow((self.slots.len() * 2).max(SLOTS_MIN));
        }
        loop {
            let number = self.next;
            self.next = self.next.wrapping_add(1) & self.last;
            let slot = self.slot(number);
            if let Some(free @ None) = self.slots.get_mut(slot) {
                *free = Some((number, value));
                self.n_values += 1;
                return number.into();
            }
        }
    }

    /// Moves all values to a table of this many slots, a power of two.
    fn grow(&mut self, n_slots: usize) {
        let before = std::mem::take(&mut self.slots);
        self.slots.resize_with(n_slots, || None);
        for (number, value) in before.into_iter().flatten() {
            let slot = self.slot(number);
            self.slots[slot] = Some((number, value));
        }
    }

    #[inline]
    fn slot(&self, number: u32) -> usize {
        number as usize & self.slots.len().wrapping_sub(1)
    }

    /// The value of a number.
    #[inline]
    pub fn get(&self, key: K) -> Option<&V> {
        let number = key.into();
        match self.slots.get(self.slot(number)) {
            Some(Some((of, value))) if *of == number => Some(value),
            _ => None,
        }
    }

    /// The same as [`IdMap::get`], mutable.
    #[inline]
    pub fn get_mut(&mut self, key: K) -> Option<&mut V> {
        let number = key.into();
        let slot = self.slot(number);
        match self.slots.get_mut(slot) {
            Some(Some((of, value))) if *of == number => Some(value),
            _ => None,
        }
    }

    /// Removes a value and returns it.
    pub fn remove(&mut self, key: K) -> Option<V> {
        self.get(key)?;
        let slot = self.slot(key.into());
        let (_, value) = self.slots.get_mut(slot)?.take()?;
        self.n_values -= 1;
        if self.n_values == 0 && self.slots.len() > SLOTS_MIN * 1024 {
            self.slots = Vec::new();
        }
        Some(value)
    }

    /// Removes and returns the values for which the predicate is true.
    pub fn extract(&mut self, mut is_it: impl FnMut(&V) -> bool) -> Vec<V> {
        let taken = self.slots.iter_mut().filter_map(|slot| slot.take_if(|(_, value)| is_it(value)));
        let values: Vec<V> = taken.map(|(_, value)| value).collect();
        self.n_values -= values.len();
        values
    }

    /// Removes and returns all values.
    pub fn take_all(&mut self) -> Vec<V> {
        self.n_values = 0;
        std::mem::take(&mut self.slots).into_iter().flatten().map(|(_, value)| value).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ioid;

    #[test]
    fn ids_are_consecutive_and_skip_occupied_slots() {
        let mut numbering: IdMap<Ioid, char> = IdMap::new(4);
        let first = numbering.insert('a');

        let others: Vec<u32> = (0..20)
            .map(|_| {
                let number = numbering.insert('b');
                assert_eq!(numbering.remove(number), Some('b'));
                number.0
            })
            .collect();

        assert_eq!(others, [1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13, 14, 15, 1, 2, 3, 4, 5, 6]);
        assert_eq!((numbering.get(first), numbering.get(Ioid(8))), (Some(&'a'), None));
    }

    #[test]
    fn values_keep_their_ids_while_the_map_grows() {
        let mut numbering: IdMap<Ioid, u32> = IdMap::new(31);

        let numbers: Vec<Ioid> = (0..1000).map(|value| numbering.insert(value)).collect();
        let odd = numbering.extract(|value| value % 2 == 1);

        assert_eq!(odd.len(), 500);
        for (value, number) in (0..1000).zip(numbers) {
            assert_eq!(numbering.remove(number), (value % 2 == 0).then_some(value));
        }
        assert!(numbering.take_all().is_empty());
    }

    #[test]
    fn an_id_finds_only_its_own_value() {
        let mut numbering: IdMap<Ioid, char> = IdMap::new(31);
        let (a, b) = (numbering.insert('a'), numbering.insert('b'));

        if let Some(value) = numbering.get_mut(a) {
            *value = 'c';
        }

        assert_eq!((numbering.get(a), numbering.get(b)), (Some(&'c'), Some(&'b')));
        // Has the same slot as `a`, which can hold only one value.
        let other = Ioid(a.0 + 1024);
        assert_eq!(numbering.get(other), None);
        assert_eq!(numbering.get_mut(other), None);
        assert_eq!(numbering.remove(other), None);
        assert_eq!((numbering.remove(a), numbering.remove(a)), (Some('c'), None));
    }

    #[test]
    fn slots_of_removed_values_are_reused() {
        let mut numbering: IdMap<Ioid, u32> = IdMap::new(31);
        let _numbers: Vec<Ioid> = (0..4).map(|value| numbering.insert(value)).collect();
        let n_slots = numbering.slots.len();

        for round in 0..1000 {
            assert_eq!(numbering.extract(|_| true).len(), 4, "round {round}");
            let _numbers: Vec<Ioid> = (0..4).map(|value| numbering.insert(value)).collect();
        }
        assert_eq!(numbering.slots.len(), n_slots);
        for round in 0..1000 {
            assert_eq!(numbering.take_all().len(), 4, "round {round}");
            let _numbers: Vec<Ioid> = (0..4).map(|value| numbering.insert(value)).collect();
        }

        assert_eq!(numbering.slots.len(), n_slots);
    }

    #[test]
    fn the_memory_of_many_values_is_freed_when_they_are_removed() {
        let mut numbering: IdMap<Ioid, u32> = IdMap::new(31);
        let few: Vec<Ioid> = (0..4).map(|value| numbering.insert(value)).collect();
        assert!(few.into_iter().all(|number| numbering.remove(number).is_some()));
        assert_eq!(numbering.slots.len(), SLOTS_MIN, "few are not worth it");

        let many: Vec<Ioid> = (0..100_000).map(|value| numbering.insert(value)).collect();
        assert!(many.into_iter().all(|number| numbering.remove(number).is_some()));

        assert_eq!(numbering.slots.capacity(), 0);
    }

    #[test]
    fn there_are_at_least_twice_as_many_slots_as_values_and_no_more_than_needed() {
        let mut numbering: IdMap<Ioid, usize> = IdMap::new(31);
        assert_eq!(numbering.slots.capacity(), 0);

        for n_values in 1..=200 {
            let _number = numbering.insert(n_values);

            assert_eq!(numbering.slots.len(), (2 * n_values).next_power_of_two().max(SLOTS_MIN), "{n_values}");
        }
    }

    #[test]
    fn an_emptied_map_keeps_eight_thousand_slots_and_frees_more() {
        for (n_values, n_kept) in [(SLOTS_MIN * 512, SLOTS_MIN * 1024), (SLOTS_MIN * 512 + 1, 0)] {
            let mut numbering: IdMap<Ioid, usize> = IdMap::new(31);
            let numbers: Vec<Ioid> = (0..n_values).map(|value| numbering.insert(value)).collect();
            let (last, others) = numbers.split_last().unwrap();

            assert!(others.iter().all(|number| numbering.remove(*number).is_some()));
            assert!(numbering.slots.len() >= 2 * n_values, "not while it has a value");
            assert_eq!(numbering.remove(*last), Some(n_values - 1));

            assert_eq!(numbering.slots.len(), n_kept);
        }
    }

    #[test]
    fn the_numbers_wrap_after_the_number_of_bits() {
        for (n_bits, last) in [(1, 1), (4, 15), (31, u32::MAX / 2), (32, u32::MAX)] {
            let mut numbering: IdMap<Ioid, char> = IdMap::new(n_bits);
            numbering.next = last;

            let numbers = ['a', 'b'].map(|value| numbering.insert(value).0);

            assert_eq!(numbers, [last, 0], "{n_bits} bits");
        }
    }

    #[test]
    fn extracted_values_are_removed_and_the_others_are_all_that_is_left() {
        let mut numbering: IdMap<Ioid, u32> = IdMap::new(31);
        let numbers: Vec<Ioid> = (0..10).map(|value| numbering.insert(value)).collect();

        assert_eq!(numbering.extract(|value| *value < 3), [0, 1, 2]);
        assert_eq!((numbering.get(numbers[2]), numbering.get(numbers[3])), (None, Some(&3)));
        assert_eq!(numbering.take_all(), [3, 4, 5, 6, 7, 8, 9]);
        assert_eq!((numbering.get(numbers[3]), numbering.n_values), (None, 0));
    }
}
