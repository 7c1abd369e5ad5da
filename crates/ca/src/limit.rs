//! Every bound of this crate, with its reason.

use std::time::Duration;

/// Payload size from which an array is sent from its shared snapshot and decoded into its destination as it arrives,
/// instead of as one message in memory. Below this size one more copy is cheaper than the bookkeeping.
pub const BULK_BYTES: usize = 64 * 1024;

/// The maximum number of elements for which memory is allocated before any of them has arrived.
pub const RESERVED_ELEMENTS_MAX: usize = 1024 * 1024;

/// Maximum length of a channel name, for clients and servers. If a longer name is requested, rsrv closes the circuit
/// with all its channels.
pub const NAME_BYTES: usize = 511;

/// Maximum length of a user or host name; rsrv closes circuits that send longer ones.
pub const IDENTITY_BYTES: usize = 512;

/// Maximum size of a payload that is not an array, such as a name or an error text.
pub const SMALL_PAYLOAD_BYTES: u32 = 16 * 1024;

/// Maximum number of zero bytes sent in a reply in place of a value that is not available; rsrv has no limit.
pub const REFUSAL_BYTES: usize = 1024;

/// Maximum size of a datagram of searches; EPICS clients use 1024 bytes, which pass every network.
pub const SEARCH_BYTES: usize = 1024;

/// Maximum size of a datagram of search replies.
pub const ANSWER_BYTES: usize = 1400;

/// Memory of a text in addition to its entry in an array: a text of 39 bytes in its own allocation.
pub const TEXT_BYTES: usize = 64;

/// How much of a large message must arrive within [`MESSAGE_TIMEOUT`]; a 9600 baud line is as fast.
pub const MESSAGE_PROGRESS_BYTES: usize = 64 * 1024;

/// The maximum time from the first byte of a small message to its last, and for each [`MESSAGE_PROGRESS_BYTES`] of a large one.
/// The server closes the circuit of a client that trickles bytes. A stalled network does not trigger this, because TCP
/// resumes within this time.
pub const MESSAGE_TIMEOUT: Duration = Duration::from_secs(60);

/// The maximum time for a server to reply to an echo; the same as in libca.
pub const ECHO_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum memory for the channels and subscriptions of one circuit, unless the caller sets another limit; enough
/// for a million of each.
pub const HELD_BYTES: usize = 1024 * 1024 * 1024;

/// Measured memory of a channel, in this crate and in the server, without its PV.
pub const CHANNEL_BYTES: usize = 128;

/// Measured memory of a subscription, in this crate and in the server, with its listener on a PV that has no other
/// listener in its circuit.
pub const SUBSCRIPTION_BYTES: usize = 768;

/// How long a server may be silent while channels wait for its confirmation, before the client also searches for their
/// names elsewhere. This is longer than an IOC is busy when it starts. The search costs one datagram, and the circuit
/// stays open.
pub const CREATE_TIMEOUT: Duration = Duration::from_secs(2);

/// The first and the longest period between two beacons of a server.
pub const BEACON_PERIODS: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(15));

/// Maximum number of servers whose beacons a client remembers: more than any site has, and little memory.
pub const BEACON_SERVERS: usize = 16 * 1024;

/// A beacon with a sequence number below this one indicates a server start: the beacons of its first seconds.
pub const BEACONS_OF_START: u32 = 8;

/// A beacon after a silence of at least this time is an anomaly: two of the longest standard periods.
pub const BEACON_SILENCE: Duration = Duration::from_secs(30);

/// The maximum delay between copies of a beacon that arrive by different routes. A server needs longer to restart.
pub const BEACON_DUPLICATE_DELAY: Duration = Duration::from_millis(100);

/// Maximum number of clients of a repeater: far more than the client programs of a host.
pub const REPEATER_CLIENTS: usize = 1024;

/// How often a repeater checks which of its clients still exist; each check tries to bind a port.
pub const REPEATER_CHECK_PERIOD: Duration = Duration::from_secs(10);

/// How often a full repeater checks.
pub const REPEATER_CHECK_PERIOD_FULL: Duration = Duration::from_secs(1);

/// Maximum number of names that a traffic monitor keeps: more than a person looks at, and about 10 MB.
pub const TRAFFIC_NAMES: usize = 64 * 1024;

/// Maximum number of clients, and of servers, that a traffic monitor keeps for each name.
pub const TRAFFIC_CLIENTS: usize = 64;

/// How long a traffic monitor waits for replies about a name: about six searches, so that a single lost datagram does
/// not make a name dead.
pub const TRAFFIC_REPLY: Duration = Duration::from_secs(2);

/// How long a traffic monitor's result for a name is valid. After this time it searches again when a client does.
pub const TRAFFIC_SEARCH_AGAIN: Duration = Duration::from_secs(60);

/// The maximum delay between copies of a search that arrive by different routes. Clients search again after 32 ms at
/// the earliest.
pub const TRAFFIC_DUPLICATE_DELAY: Duration = Duration::from_millis(20);

/// How many bytes of an invalid name are shown.
pub const SHOWN_NAME_BYTES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    /// A limit that loses a factor would reject what its reason promises to allow, or allow too much.
    #[test]
    fn limits_have_room_for_what_their_reasons_name() {
        let million = 1_000_000;
        for (what, limit, least) in [
            ("an error reply that contains a request and its name", SMALL_PAYLOAD_BYTES as usize, 4 * NAME_BYTES),
            ("every small payload in one message", BULK_BYTES, SMALL_PAYLOAD_BYTES as usize),
            ("two of the least bulk arrays in a piece", fodo_engine::limit::PIECE_BYTES, 2 * BULK_BYTES),
            ("a million elements", RESERVED_ELEMENTS_MAX, million),
            ("three quarters of what 9600 baud transfer in a minute", MESSAGE_PROGRESS_BYTES, 45 * 9600 / 8),
            ("a million channels with a subscription each", HELD_BYTES, million * (CHANNEL_BYTES + SUBSCRIPTION_BYTES)),
            ("more servers than any plant has", BEACON_SERVERS, 10_000),
            ("more names than a person looks at", TRAFFIC_NAMES, 50_000),
            ("a datagram from every source", fodo_engine::limit::SEARCH_LEAST_BYTES, SEARCH_BYTES),
        ] {
            assert!(limit >= least, "{limit} is too small for {what}, {least}");
        }
    }
}
