//! The numbers of channels, operations and subscriptions, and a map for them.

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
    /// The client's number for an operation in progress, unique within its circuit.
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

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::hash::{BuildHasher, BuildHasherDefault};

    use super::*;

    #[test]
    fn consecutive_ids_and_every_1024th_id_hash_without_collisions() {
        let place = |number| BuildHasherDefault::<NumberHasher>::default().hash_one(Cid(number)) & 0xfff;

        let row: HashSet<u64> = (0..4096).map(place).collect();
        let far: HashSet<u64> = (0..4096).map(|number| place(number * 1024)).collect();

        assert_eq!((row.len(), far.len()), (4096, 4096));
        assert_eq!(place(9) ^ place(8), 1);
    }
}
