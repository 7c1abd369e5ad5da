//! Every bound of this crate, with its reason.

use std::time::Duration;

/// From here on an array is sent from its shared snapshot and received into its destination,
/// instead of as one message in memory. Below it, one more copy is cheaper than the bookkeeping.
pub const BULK_BYTES: usize = 64 * 1024;

/// Bytes of an array that are encoded at a time: they stay in the second-level cache until the
/// socket has taken them.
pub const PIECE_BYTES: usize = 128 * 1024;

/// Elements for which room is made before any of them has arrived.
pub const ROOM_ELEMENTS: usize = 1024 * 1024;

/// The longest name a channel may have on a circuit; rsrv closes circuits that send longer ones.
pub const NAME_BYTES: usize = 1024;

/// A payload that is no array: names, complaints with their text.
pub const SMALL_PAYLOAD_BYTES: u32 = 16 * 1024;

/// Zeros that stand in an answer in place of a value that cannot be had; rsrv sends any number.
pub const REFUSAL_BYTES: usize = 1024;

/// Bytes of searches in one datagram; the field's programs use 1024 to fit every network.
pub const SEARCH_BYTES: usize = 1024;

/// Bytes of answers in one datagram.
pub const ANSWER_BYTES: usize = 1400;

/// How long a small message may take from its first byte to its last, and a large one between two pieces.
/// A client that trickles is closed; a stalled network is not, since TCP resumes within this.
pub const MESSAGE: Duration = Duration::from_secs(60);

/// How long a server may take to answer an echo; libca waits as long.
pub const ECHO_ANSWER: Duration = Duration::from_secs(5);

/// Channels of one circuit. Far above what a client opens, far below what fills the memory.
pub const CHANNELS: usize = 4 * 1024 * 1024;

/// Subscriptions of one circuit, likewise.
pub const SUBSCRIPTIONS: usize = 4 * 1024 * 1024;

/// The shortest time between two searches for a name, and the first wait for an answer.
pub const SEARCH_PERIOD_MIN: Duration = Duration::from_millis(32);

/// The longest time between two searches for a name that nobody claims.
pub const SEARCH_PERIOD_MAX: Duration = Duration::from_secs(300);

/// Datagrams of searches sent at once at most; more would be lost in the servers' sockets.
pub const SEARCH_BURST: usize = 64;

/// The pause between two bursts of searches.
pub const SEARCH_PAUSE: Duration = Duration::from_millis(2);

/// The first and the longest time between two beacons of a server.
pub const BEACON_PERIODS: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(15));
