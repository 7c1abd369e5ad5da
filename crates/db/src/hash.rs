//! Maps whose keys only this program creates: names of loaded records, and field numbers.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::reference::{FieldRef, Name};

/// A map with fields as keys.
pub type FieldMap<V> = HashMap<FieldRef, V, BuildHasherDefault<TrustedKeyHasher>>;

/// A map with record numbers as keys.
pub(crate) type RecordMap<V> = HashMap<u32, V, BuildHasherDefault<TrustedKeyHasher>>;

/// A map with record names as keys.
pub(crate) type NameMap<V> = HashMap<Name, V, BuildHasherDefault<TrustedKeyHasher>>;

/// A fast hash for keys that only this program creates. A client only looks them up, so it cannot provoke collisions.
/// A search or a new channel needs two or three lookups, and the standard library's hash takes three times as long.
#[derive(Clone, Copy, Debug, Default)]
pub struct TrustedKeyHasher(u64);

impl TrustedKeyHasher {
    fn add(&mut self, word: u64) {
        // Any odd number with as many ones as zeros and no pattern will do; this one is the square root of two.
        const MIXER: u64 = 0x6a09_e667_f3bc_c909;
        let product = u128::from(self.0.rotate_left(5) ^ word ^ MIXER) * u128::from(MIXER);
        self.0 = product as u64 ^ (product >> 64) as u64;
    }
}

impl Hasher for TrustedKeyHasher {
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
        let hasher = BuildHasherDefault::<TrustedKeyHasher>::default();
        keys.map(|key| hasher.hash_one(key) & 0xffff).collect::<HashSet<u64>>().len()
    }

    #[test]
    fn hashes_of_similar_names_and_fields_are_uniformly_distributed() {
        // Of 65536 random keys in 65536 buckets, a share of 1 - 1/e is expected to be the first in its bucket.
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
