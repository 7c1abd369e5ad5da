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
pub mod search;
pub mod server;
pub mod shares;
mod subscriptions;
pub mod traffic;

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
