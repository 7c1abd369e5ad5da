//! Channel Access: messages, DBR layouts, search and circuits, both ends. No IO.
//!
//! `search`, `client` and `server` are state machines: the caller passes in received bytes and the time, and gets bytes
//! to send and events. `deadline` returns when to call again. `fodo-net` drives them with real sockets.
#![forbid(unsafe_code)]

pub mod beacon;
mod body;
pub mod client;
pub mod dbr;
pub mod eca;
mod frame;
pub mod limit;
pub mod message;
pub mod outbox;
pub mod repeater;
pub mod ring;
mod roster;
pub mod search;
pub mod server;
pub mod shares;
mod subscriptions;
pub mod traffic;

pub use roster::NumberMap;

macro_rules! numbers {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u32);

        impl From<u32> for $name {
            fn from(number: u32) -> $name {
                $name(number)
            }
        }

        impl From<$name> for u32 {
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
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u32(u32::from(byte)));
    }

    fn write_u32(&mut self, number: u32) {
        // The low bits select the position in the map; mixing in higher bits keeps every 1024th number from colliding.
        // The highest seven bits distinguish neighbours.
        self.0 = self.0.rotate_left(32) ^ u64::from(number ^ number >> 10) ^ u64::from(number) << 57;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// A map with keys that this side assigned in sequence.
pub type NumberHashMap<K, V> = std::collections::HashMap<K, V, std::hash::BuildHasherDefault<NumberHasher>>;

/// The access rights of a client to a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rights {
    /// May read and monitor.
    pub read: bool,
    /// May write.
    pub write: bool,
}

impl From<u32> for Rights {
    fn from(bits: u32) -> Rights {
        Rights { read: bits & 1 != 0, write: bits & 2 != 0 }
    }
}

impl From<Rights> for u32 {
    fn from(rights: Rights) -> u32 {
        u32::from(rights.read) | u32::from(rights.write) << 1
    }
}

impl std::fmt::Display for Rights {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match (self.read, self.write) {
            (true, true) => "read,write",
            (true, false) => "read",
            (false, true) => "write",
            (false, false) => "none",
        })
    }
}

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
