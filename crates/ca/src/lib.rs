//! Channel Access: messages, DBR layouts, search and circuits, both ends. No IO.
//!
//! `search` and `circuit` are machines: bytes and the time go in, bytes and events come out, and
//! `deadline` says when to call again. `fodo-net` turns their crank with real sockets.
#![forbid(unsafe_code)]

pub mod client;
pub mod dbr;
pub mod eca;
pub mod limit;
pub mod message;
pub mod outbox;
pub mod ring;
pub mod search;
pub mod server;

/// The client's number for a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Cid(pub u32);

/// The server's number for a channel, unique within its circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Sid(pub u32);

/// The client's number for an operation in progress, unique within its circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ioid(pub u32);

/// The client's number for a subscription, unique within its circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SubscriptionId(pub u32);

/// What a client may do with a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rights {
    /// Reading and monitoring.
    pub read: bool,
    /// Writing.
    pub write: bool,
}
