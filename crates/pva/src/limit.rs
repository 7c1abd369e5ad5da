//! Every bound of this crate, with its reason.

use std::time::Duration;

/// How deep types may be nested: structures within structures, and values within variant unions. The same as in pvxs,
/// which rejects deeper ones; the deepest known type, NTNDArray, has 4 levels.
pub const DEPTH_MAX: u32 = 20;

/// Maximum number of nodes of all types in one message. A group PV of 1000 complete NTScalars has 34000.
pub const TYPE_NODES_MAX: usize = 64 * 1024;

/// Maximum number of nodes of all types that one peer may store with ids. At 48 bytes each this is 12 MB.
pub const CACHED_NODES_MAX: usize = 256 * 1024;

/// Maximum size of the names in all types that one peer may store with ids.
pub const CACHED_NAME_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Maximum number of types sent with ids to one peer. More than a server has different types; further types are sent in
/// full.
pub const SENT_IDS_MAX: u16 = 1024;

/// Maximum size of an array whose type fixes its size: such an array takes memory and bytes even if it is never set. No
/// known program uses one.
pub const FIXED_ELEMENTS_MAX: u32 = 64 * 1024;

/// How many nodes and elements the values of one message may have in addition to one for each of its bytes. Structures
/// without members take memory but no bytes.
pub const VALUE_NODES_SPARE: usize = 64 * 1024;

/// The maximum number of texts, structures or unions for which memory is allocated before any of them is decoded: their
/// memory is larger than their bytes.
pub const RESERVED_ELEMENTS_MAX: usize = 4 * 1024;

/// Maximum memory of the structures, unions and arrays of texts in the values of one message. Decoded, they can take 64
/// times the bytes of the message. The limit permits an array of ten million texts of 64 characters. A server accepts less
/// from hosts that use much memory already.
pub const DECODED_BYTES_MAX: usize = 1024 * 1024 * 1024;

/// Memory of a text in addition to its characters: the counters of its owners.
pub const TEXT_HEADER_BYTES: usize = 16;

/// Size of the segments for a caller that sends a message in segments: one segment stays in the second-level cache until
/// the socket has taken it. Only control messages may be sent between the segments of a message. The circuits send each
/// message in one piece.
pub const SEGMENT_BYTES: usize = 128 * 1024;

/// Memory that a receiver keeps for its next segmented or incomplete message. A larger buffer is freed after use.
pub const KEPT_BYTES: usize = 64 * 1024;

/// Maximum length of the text of a pvRequest; the longest in use select about a hundred fields.
pub const REQUEST_TEXT_BYTES: usize = 64 * 1024;

/// Maximum size of a message that is sent. Implementations read sizes and counts as signed numbers.
pub const SENT_MESSAGE_BYTES_MAX: usize = i32::MAX as usize;

/// Memory that a client's circuit keeps for what it sends next: a batch of fifty thousand gets.
pub const KEPT_OUTBOX_BYTES: usize = 1024 * 1024;

/// Maximum number of operations that are open at once on a client's circuit: four for each of a million channels.
pub const OPERATIONS_MAX: usize = 4 * 1024 * 1024;

/// Maximum number of unfinished requests of one operation. It executes them one after another: at 100 us each, this many
/// take 1.6 s.
pub const EXECUTIONS_MAX: usize = 16 * 1024;

/// Maximum memory for the types of all open operations of a client's circuit, each different type counted once: about
/// ten thousand group PVs of ten NTScalars each, all of them different.
pub const OPEN_TYPE_BYTES_MAX: usize = 256 * 1024 * 1024;

/// The number of types of operations from which a client's circuit drops those without an open operation. A server of
/// records has about thirty.
pub const KEPT_LAYOUTS: usize = 256;

/// Size of the queue of a subscription if the pvRequest does not contain another one; the same as in pvxs.
pub const QUEUE_SIZE: usize = 4;

/// The receive buffer that is announced; the same as pvxs. pvAccessCPP splits its messages by it.
pub const ANNOUNCED_BUFFER_BYTES: u32 = 64 * 1024;

/// How many type ids are announced to be stored; the same as pvxs. What is stored is limited by [`CACHED_NODES_MAX`].
pub const ANNOUNCED_TYPE_IDS: u16 = 0x7fff;

/// The maximum time for a server to reply to an echo request before it counts as unresponsive; the same as for Channel
/// Access. pvxs closes the circuit instead, after 40 s of silence.
pub const ECHO_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a server may be silent while channels wait for its confirmation, before the client also searches for their
/// names elsewhere; the same as for Channel Access. Phoebus does not reply for channels that it does not have, and QSRV1
/// does not greet a client before others have been accepted.
pub const CREATE_TIMEOUT: Duration = Duration::from_secs(2);

/// Maximum size of a pvRequest in a message: its text, and for each name in it a type and a value.
pub const PV_REQUEST_BYTES: usize = 4 * REQUEST_TEXT_BYTES;

/// Size from which an array is sent from its shared snapshot instead of a copy. Below this size one more copy is cheaper
/// than the bookkeeping.
pub const BULK_BYTES: usize = 64 * 1024;

/// Maximum size of a message without a value, such as a search, an echo or the start of an operation. The largest known
/// are searches of thousands of names.
pub const REQUEST_BYTES: usize = 1024 * 1024;

/// Maximum size of a datagram of searches, the same as in pvxs: with the headers of UDP it passes every network.
pub const SEARCH_BYTES: usize = 1400;

/// Maximum number of addresses of servers of which a client remembers the identity: more than reply to a client between
/// two restarts of a plant. It only distinguishes several servers from several addresses of one.
pub const SEARCH_SERVERS: usize = 16 * 1024;

/// Maximum number of addresses of servers whose beacons a client remembers: more than any site has, and little memory.
pub const BEACON_SERVERS: usize = 16 * 1024;

/// A beacon with a sequence number below this one indicates a server start: the beacons of its first two minutes.
pub const BEACONS_OF_START: u8 = 8;

/// A beacon after a silence of at least this time is an anomaly: two of the longest standard periods. pvxs forgets a
/// server after this time.
pub const BEACON_SILENCE: Duration = Duration::from_secs(360);

/// Maximum length of a channel's name, with its filters.
pub const NAME_BYTES: usize = 1024;

/// Maximum length of a user or host name; the same as in Channel Access.
pub const IDENTITY_BYTES: usize = 512;

/// Maximum size of the queue of a subscription.
pub const QUEUE_SIZE_MAX: usize = 1024;

/// How much of a large message must arrive within [`MESSAGE_TIMEOUT`]; a 9600 baud line is as fast.
pub const MESSAGE_PROGRESS_BYTES: usize = 64 * 1024;

/// The maximum time from the first byte of a small message to its last, and for each [`MESSAGE_PROGRESS_BYTES`] of a large
/// one. The server closes the circuit of a client that trickles bytes. A stalled network does not trigger this, because
/// TCP resumes within this time.
pub const MESSAGE_TIMEOUT: Duration = Duration::from_secs(60);

/// Maximum memory for the channels, operations and types of one circuit, unless the caller sets another limit; enough
/// for a million channels with an operation each.
pub const HELD_BYTES: usize = 1024 * 1024 * 1024;

/// Estimated memory of a name that is searched for over TCP and waits for its turn. Only short names are many, because a
/// search has at most [`REQUEST_BYTES`].
pub const SEARCHED_NAME_BYTES: usize = 64;

/// Estimated memory of a channel, in this crate and in the server, without its PV.
pub const CHANNEL_BYTES: usize = 160;

/// Estimated memory of an operation or subscription, in this crate and in the server, with its listener on a PV that has
/// no other listener in its circuit.
pub const OPERATION_BYTES: usize = 832;

/// The periods of a server's beacons: of the first ones, and of the others; the same as in pvxs. Clients forget a server
/// after twice the longer one.
pub const BEACON_PERIODS: (Duration, Duration) = (Duration::from_secs(15), Duration::from_secs(180));

/// How many of the shorter periods follow the first beacon, so that clients notice a new server also if datagrams are
/// lost; the same as in pvxs.
pub const FAST_BEACONS: u32 = 10;

/// Bytes shown of an invalid name.
pub const SHOWN_NAME_BYTES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    /// A limit that loses a factor would reject what its reason promises to allow.
    #[test]
    fn limits_have_room_for_what_their_reasons_name() {
        for (what, limit, least) in [
            ("a group of 1000 NTScalars", TYPE_NODES_MAX, 1000 * 34),
            ("four of the largest types in the cache", CACHED_NODES_MAX, 4 * TYPE_NODES_MAX),
            ("16 bytes for each cached name", CACHED_NAME_BYTES_MAX, 16 * CACHED_NODES_MAX),
            ("a hundred fields with paths of 500 characters", REQUEST_TEXT_BYTES, 100 * 500),
            ("a batch of fifty thousand gets", KEPT_OUTBOX_BYTES, 50_000 * 17),
            ("four operations of a million channels", OPERATIONS_MAX, 4 * 1_000_000),
            ("ten thousand groups of ten NTScalars", OPEN_TYPE_BYTES_MAX, 10_000 * 10 * 35 * 64),
            ("two of the least bulk arrays in a piece", fodo_engine::limit::PIECE_BYTES, 2 * BULK_BYTES),
            ("ten thousand names of fifty characters in a search", REQUEST_BYTES, 10_000 * (50 + 5)),
            ("the longest name in a search", SEARCH_BYTES, NAME_BYTES + 64),
            ("more servers than any plant has", BEACON_SERVERS, 10_000),
            ("a reply from every server with beacons", SEARCH_SERVERS, BEACON_SERVERS),
            ("the longest pvRequest", REQUEST_BYTES, PV_REQUEST_BYTES),
            ("an array of all channels of a large device", FIXED_ELEMENTS_MAX as usize, 10_000),
            ("the members of a group of 1000 NTScalars, all of them empty", VALUE_NODES_SPARE, 1000 * 34),
            ("the choices of a few hundred enumerations", RESERVED_ELEMENTS_MAX, 256 * 16),
            ("ten million texts of 64 characters", DECODED_BYTES_MAX, 10_000_000 * (64 + 16 + TEXT_HEADER_BYTES)),
            ("two of the least bulk arrays in a segment", SEGMENT_BYTES, 2 * BULK_BYTES),
            ("the buffer of the next small messages", KEPT_BYTES, 1000 * 40),
            ("ten thousand puts in a row", EXECUTIONS_MAX, 10_000),
            ("a message of as many bytes as are sent as a copy", ANNOUNCED_BUFFER_BYTES as usize, BULK_BYTES),
            ("what 9600 baud transfer in a minute", 60 * 9600 / 8, MESSAGE_PROGRESS_BYTES),
            ("three quarters of what 9600 baud transfer", MESSAGE_PROGRESS_BYTES, 45 * 9600 / 8),
            ("a million channels with an operation each", HELD_BYTES, 1_000_000 * (CHANNEL_BYTES + OPERATION_BYTES)),
        ] {
            assert!(limit >= least, "{limit} is too small for {what}, {least}");
        }
    }
}
