//! Maps by what this side alone gives out: names of records, which are loaded, and fields, which are counted.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::FieldRef;
use crate::core::Name;

/// A map by fields.
pub type ByField<V> = HashMap<FieldRef, V, BuildHasherDefault<OwnHasher>>;

/// A map by names of records.
pub(crate) type ByName<V> = HashMap<Name, V, BuildHasherDefault<OwnHasher>>;

/// Hashes keys of this side. A peer only looks them up, so it cannot choose which of them collide; a search or a
/// channel looks up two or three, and the hash of the standard library takes three times as long.
#[derive(Clone, Copy, Debug, Default)]
pub struct OwnHasher(u64);

impl OwnHasher {
    fn add(&mut self, word: u64) {
        // Any odd number with as many ones as zeros, in no pattern, does: the square root of two here.
        const MIXER: u64 = 0x6a09_e667_f3bc_c909;
        let product = u128::from(self.0.rotate_left(5) ^ word ^ MIXER) * u128::from(MIXER);
        self.0 = product as u64 ^ (product >> 64) as u64;
    }
}

impl Hasher for OwnHasher {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|word| self.add(u64::from_le_bytes(*word)));
        if !rest.is_empty() {
            self.add(rest.iter().fold(rest.len() as u64, |word, byte| word << 8 | u64::from(*byte)));
        }
    }

    fn write_u16(&mut self, number: u16) {
        self.add(u64::from(number));
    }

    fn write_u32(&mut self, number: u32) {
        self.add(u64::from(number));
    }

    fn write_usize(&mut self, number: usize) {
        self.add(number as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::hash::{BuildHasher, Hash};

    use super::*;

    fn n_places(keys: impl Iterator<Item = impl Hash>) -> usize {
        let hasher = BuildHasherDefault::<OwnHasher>::default();
        keys.map(|key| hasher.hash_one(key) & 0xffff).collect::<HashSet<u64>>().len()
    }

    #[test]
    fn names_and_fields_that_differ_little_are_spread_as_by_chance() {
        // Of 65536 keys in as many places a share of 1 - 1/e are alone or first.
        let by_chance = 41_000..42_000;

        let names =
            n_places((0..1 << 16).map(|number| format!("SR{:02}-PS:CORR{:03}:I", number / 1000, number % 1000)));
        let records = n_places((0..1 << 16).map(|record| FieldRef { record, field: 40 }));
        let fields = n_places((0..1 << 16).map(|number| FieldRef { record: number / 64, field: (number % 64) as u16 }));

        for n_places in [names, records, fields] {
            assert!(by_chance.contains(&n_places), "{n_places}");
        }
    }
}
