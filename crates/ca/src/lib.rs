//! Channel Access: messages, DBR layouts, search and circuits, both ends. No IO.
//!
//! `search`, `client` and `server` are machines: bytes and the time go in, bytes and events come
//! out, and `deadline` says when to call again. `fodo-net` turns their crank with real sockets.
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

pub use roster::Roster;

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

/// Hashes numbers that this side gave out itself, so that no peer chooses which of them collide.
///
/// They are given out one after the other and mostly used in that order, as a server sends the updates of one PV after the
/// other. So neighbours stand side by side in a map, and one cache line serves many of them.
#[derive(Clone, Copy, Debug, Default)]
pub struct NumberHasher(u64);

impl std::hash::Hasher for NumberHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u32(u32::from(byte)));
    }

    fn write_u32(&mut self, number: u32) {
        // The low bits say where in the map, and every 1024th number is not to have the same ones; the highest seven
        // bits tell neighbours apart.
        self.0 = self.0.rotate_left(32) ^ u64::from(number ^ number >> 10) ^ u64::from(number) << 57;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// A map from such numbers.
pub type Numbered<K, V> = std::collections::HashMap<K, V, std::hash::BuildHasherDefault<NumberHasher>>;

/// What a client may do with a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rights {
    /// Reading and monitoring.
    pub read: bool,
    /// Writing.
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
