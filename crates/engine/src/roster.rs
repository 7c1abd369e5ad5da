//! A map with keys that are assigned in sequence.

use std::marker::PhantomData;

use crate::NumberHashMap;

/// Keys per page. A page with a single value costs a few hundred bytes; a million values cost little more than the
/// values themselves.
const PAGE: usize = 32;

/// A map with keys that this side assigns in sequence.
///
/// Neighbours share a page, so iterating in order is cache-friendly, the map grows without moving values, and empty
/// pages are freed.
#[derive(Debug)]
pub struct NumberMap<K, V> {
    pages: NumberHashMap<u32, NumberPage<V>>,
    n_values: usize,
    number: PhantomData<K>,
}

#[derive(Debug)]
struct NumberPage<V> {
    n_values: usize,
    slots: Box<[Option<V>; PAGE]>,
}

impl<V> Default for NumberPage<V> {
    fn default() -> NumberPage<V> {
        NumberPage { n_values: 0, slots: Box::new([const { None }; PAGE]) }
    }
}

impl<K, V> Default for NumberMap<K, V> {
    fn default() -> NumberMap<K, V> {
        NumberMap { pages: NumberHashMap::default(), n_values: 0, number: PhantomData }
    }
}

/// The page of a number, and its slot in the page.
#[inline]
fn place(number: u32) -> (u32, usize) {
    (number / PAGE as u32, number as usize % PAGE)
}

impl<K: Copy + Into<u32>, V> NumberMap<K, V> {
    /// Inserts a value and returns the previous one.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        let (page, slot) = place(key.into());
        let page = self.pages.entry(page).or_default();
        let before = page.slots.get_mut(slot)?.replace(value);
        page.n_values += usize::from(before.is_none());
        self.n_values += usize::from(before.is_none());
        before
    }

    /// The value of a number.
    pub fn get(&self, key: K) -> Option<&V> {
        let (page, slot) = place(key.into());
        self.pages.get(&page)?.slots.get(slot)?.as_ref()
    }

    /// The same as [`NumberMap::get`], mutable.
    pub fn get_mut(&mut self, key: K) -> Option<&mut V> {
        let (page, slot) = place(key.into());
        self.pages.get_mut(&page)?.slots.get_mut(slot)?.as_mut()
    }

    /// Whether the number has a value.
    pub fn contains(&self, key: K) -> bool {
        self.get(key).is_some()
    }

    /// Removes a value and returns it.
    pub fn remove(&mut self, key: K) -> Option<V> {
        let (number, slot) = place(key.into());
        let page = self.pages.get_mut(&number)?;
        let value = page.slots.get_mut(slot)?.take()?;
        page.n_values -= 1;
        self.n_values -= 1;
        if page.n_values == 0 {
            self.pages.remove(&number);
        }
        Some(value)
    }

    /// The number of values.
    pub fn len(&self) -> usize {
        self.n_values
    }

    /// Whether the map is empty.
    pub fn is_empty(&self) -> bool {
        self.n_values == 0
    }

    /// All values, in arbitrary order.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.pages.values().flat_map(|page| page.slots.iter().flatten())
    }

    /// The same as [`NumberMap::values`], by value.
    pub fn into_values(self) -> impl Iterator<Item = V> {
        self.pages.into_values().flat_map(|page| page.slots.into_iter().flatten())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::Cid;

    #[test]
    fn a_number_map_behaves_like_a_btree_map() {
        let (mut roster, mut map) = (NumberMap::default(), BTreeMap::new());
        let mut chance: u32 = 1;

        for step in 0..20_000 {
            chance = chance.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            // Numbers close to each other, some near the maximum, so that they repeat.
            let number = (chance >> 16) % 200 + if chance & 0x400 == 0 { u32::MAX - 200 } else { 0 };
            match chance & 0x800 == 0 {
                true => assert_eq!(roster.insert(Cid(number), step), map.insert(number, step)),
                false => assert_eq!(roster.remove(Cid(number)), map.remove(&number)),
            }
            assert_eq!((roster.len(), roster.get(Cid(number))), (map.len(), map.get(&number)));
        }

        let mut values: Vec<_> = roster.values().copied().collect();
        values.sort_unstable();
        let mut expected: Vec<_> = map.values().copied().collect();
        expected.sort_unstable();
        assert_eq!(values, expected);
    }

    #[test]
    fn an_emptied_number_map_frees_its_pages() {
        let mut roster = NumberMap::default();
        for number in 0..1000 {
            roster.insert(Cid(number), number);
        }

        for number in 0..1000 {
            assert_eq!(roster.remove(Cid(number)), Some(number));
        }

        assert!(roster.is_empty() && roster.pages.is_empty());
    }

    #[test]
    fn a_number_map_contains_what_was_inserted_across_page_boundaries() {
        const PAGE: u32 = super::PAGE as u32;
        let mut roster = NumberMap::default();
        assert!(roster.is_empty() && !roster.contains(Cid(0)));

        for number in [0, PAGE - 1, PAGE, u32::MAX] {
            assert_eq!(roster.insert(Cid(number), number), None);
        }
        if let Some(value) = roster.get_mut(Cid(PAGE)) {
            *value = 7;
        }

        let contained = [0, 1, PAGE - 1, PAGE, PAGE + 1, u32::MAX - 1, u32::MAX].map(|it| roster.contains(Cid(it)));
        assert_eq!(contained, [true, false, true, true, false, false, true]);
        assert_eq!((roster.len(), roster.is_empty(), roster.pages.len()), (4, false, 3));
        assert_eq!(roster.get_mut(Cid(PAGE + 1)), None);
        assert_eq!((roster.insert(Cid(PAGE), 8), roster.len()), (Some(7), 4));
        let mut values: Vec<u32> = roster.into_values().collect();
        values.sort_unstable();
        assert_eq!(values, [0, 8, PAGE - 1, u32::MAX]);
    }
}
