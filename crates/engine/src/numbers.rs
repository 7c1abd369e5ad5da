//! The numbers of channels, operations and subscriptions, and maps for them.

use std::hash::BuildHasher;

macro_rules! numbers {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u32);

        impl From<u32> for $name {
            #[inline]
            fn from(number: u32) -> $name {
                $name(number)
            }
        }

        impl From<$name> for u32 {
            #[inline]
            fn from(number: $name) -> u32 {
                number.0
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}

numbers! {
    /// The client's number for a channel.
    Cid;
    /// The server's number for a channel, unique within its circuit.
    Sid;
    /// The client's number for an operation, unique within its circuit.
    Ioid;
    /// The client's number for a subscription, unique within its circuit.
    SubscriptionId;
}

/// Hashes numbers that this side assigned itself, so that no peer can choose colliding ones.
///
/// Numbers are assigned in sequence and mostly used in that order, for example when a server sends updates of one PV
/// after another. Consecutive numbers are therefore stored next to each other in a map, and one cache line serves many
/// of them.
#[derive(Clone, Copy, Debug, Default)]
pub struct NumberHasher(u64);

impl std::hash::Hasher for NumberHasher {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u32(u32::from(byte)));
    }

    #[inline]
    fn write_u32(&mut self, number: u32) {
        // The low bits select the position in the map; mixing in higher bits keeps every 1024th number from colliding.
        // The highest seven bits distinguish neighbours.
        self.0 = self.0.rotate_left(32) ^ u64::from(number ^ number >> 10) ^ u64::from(number) << 57;
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

/// A map with keys that this side assigned in sequence.
pub type NumberHashMap<K, V> = std::collections::HashMap<K, V, std::hash::BuildHasherDefault<NumberHasher>>;

/// Hashes numbers that a peer assigned, with keys that it does not know: it cannot choose colliding ones.
///
/// [`PeerNumberHashMap`] uses it; the standard hash of a number takes eight times as many instructions.
#[derive(Clone, Copy, Debug)]
pub struct PeerNumberHasher {
    state: u64,
    key: u64,
}

impl Default for PeerNumberHasher {
    fn default() -> PeerNumberHasher {
        let random = std::hash::RandomState::new();
        // An even factor would lose bits.
        PeerNumberHasher { state: random.hash_one(0), key: random.hash_one(1) | 1 }
    }
}

impl BuildHasher for PeerNumberHasher {
    type Hasher = PeerNumberHasher;

    #[inline]
    fn build_hasher(&self) -> PeerNumberHasher {
        *self
    }
}

impl std::hash::Hasher for PeerNumberHasher {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u32(u32::from(byte)));
    }

    #[inline]
    fn write_u32(&mut self, number: u32) {
        // Both halves of the product: the lower one depends on the low bits of the number only.
        let product = u128::from(self.state ^ u64::from(number)) * u128::from(self.key);
        self.state = product as u64 ^ (product >> 64) as u64;
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.state
    }
}

/// A map with keys that a peer assigned.
pub type PeerNumberHashMap<K, V> = std::collections::HashMap<K, V, PeerNumberHasher>;

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::hash::BuildHasherDefault;

    use super::*;

    #[test]
    fn consecutive_ids_and_every_1024th_id_hash_without_collisions() {
        let place = |number| BuildHasherDefault::<NumberHasher>::default().hash_one(Cid(number)) & 0xfff;

        let row: HashSet<u64> = (0..4096).map(place).collect();
        let far: HashSet<u64> = (0..4096).map(|number| place(number * 1024)).collect();

        assert_eq!((row.len(), far.len()), (4096, 4096));
        assert_eq!(place(9) ^ place(8), 1);
    }

    #[test]
    fn a_number_converts_to_and_from_its_wire_form_and_prints_as_digits() {
        assert_eq!((Cid::from(7), Sid::from(8), Ioid::from(9)), (Cid(7), Sid(8), Ioid(9)));
        assert_eq!((u32::from(Sid(8)), u32::from(SubscriptionId(u32::MAX))), (8, u32::MAX));
        assert_eq!(format!("{} {:>4} {:?}", Cid(7), Ioid(9), Sid(8)), "7    9 Sid(8)");
    }

    #[test]
    fn numbers_of_a_peer_are_spread_whatever_bits_they_have_in_common() {
        let hasher = PeerNumberHasher { state: 0x243f_6a88_85a3_08d3, key: 0x1319_8a2e_0370_7345 };
        for shift in 0..=20 {
            let places: HashSet<u64> =
                (0..4096_u32).map(|number| hasher.hash_one(Cid(number << shift)) & 0xfff).collect();

            assert!(places.len() > 2000, "{} places for every {}th number", places.len(), 1 << shift);
        }
    }

    #[test]
    fn two_maps_hash_the_numbers_of_a_peer_differently() {
        let hashes = |hasher: PeerNumberHasher| [1, 2].map(|number| hasher.hash_one(Cid(number)));

        assert_ne!(hashes(PeerNumberHasher::default()), hashes(PeerNumberHasher::default()));
    }

    #[test]
    fn the_highest_seven_bits_of_a_hash_distinguish_neighbours() {
        let hash = |number| BuildHasherDefault::<NumberHasher>::default().hash_one(Cid(number));

        for number in [0, 1, 2, 126, 127, 128, 129] {
            assert_eq!(hash(number) >> 57, u64::from(number % 128), "{number}");
        }
        // Bit 10 is mixed into bit 0.
        assert_eq!((hash(0x400) & 0xffff_ffff, hash(0x401) & 0xffff_ffff), (0x401, 0x400));
    }

    #[test]
    fn the_hash_of_several_numbers_depends_on_each_and_on_their_order() {
        use std::hash::Hasher as _;
        let hash = |numbers: &[u32]| {
            let mut hasher = NumberHasher::default();
            numbers.iter().for_each(|number| hasher.write_u32(*number));
            hasher.finish()
        };
        let pairs: HashSet<u64> = (0..64).flat_map(|a| (0..64).map(move |b| hash(&[a, b]))).collect();
        let (mut forward, mut backward) = (NumberHasher::default(), NumberHasher::default());
        forward.write(&[1, 2]);
        backward.write(&[2, 1]);

        assert_eq!(pairs.len(), 64 * 64);
        // Equal bits of both numbers cancel out.
        assert_eq!(hash(&[1, 1 << 25]), 1 << 32 | 1 << 15);
        assert_eq!(hash(&[1 << 25, 1]), 1 << 47 | 1);
        assert_eq!((forward.finish(), backward.finish()), (hash(&[1, 2]), hash(&[2, 1])));
    }
}
