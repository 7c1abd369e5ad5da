//! Every bound of this crate, with its reason.

use std::time::Duration;

/// Bytes taken from a socket in one call: a whole burst of small replies, and little enough to
/// stay in the second-level cache while it is decoded.
pub const RECEIVE_BYTES: usize = 256 * 1024;

/// Connections that wait to be accepted, unless the system has a lower limit: all clients of a plant come back at once, and
/// who finds no place tries again after a second.
pub const BACKLOG: i32 = 4096;

/// Bytes that are decoded before what they say is handed on: the events of so many small messages stay in the caches.
pub const PIECE_BYTES: usize = 16 * 1024;

/// Bytes one circuit of a client may take in before the others of its reactor have their turn.
pub const TURN_BYTES: usize = 4 * 1024 * 1024;

/// Bytes that a server circuit may take in, and send, before the others of its reactor have their turn: a few hundred
/// microseconds, so that forty clients that send large arrays hold up a get for some ten milliseconds.
pub const SERVER_TURN_BYTES: usize = 512 * 1024;

/// How long a circuit that a blocking call has driven stays away from the reactor: long enough
/// for the next call of a loop, short enough that nobody sees an update wait.
pub const LEASE: Duration = Duration::from_millis(2);

/// How long a TCP connection may take to open before the name is looked for again.
pub const CONNECT: Duration = Duration::from_secs(5);

/// How long a name is not looked for after a server that claimed it could not be used: such a
/// server would claim it again at once.
pub const SEARCH_PAUSE: Duration = Duration::from_millis(32);

/// How long the claim of a server that could not be used is passed over, so that another server that has the name can claim
/// it: the round trip of a large network.
pub const OTHER_CLAIM: Duration = Duration::from_millis(100);

/// How often an operation is tried on the circuit of its channel while that changes circuits: each attempt needs a circuit to
/// be lost between two locks, so a few are more than ever happen.
pub const ISSUE_ATTEMPTS: usize = 8;

/// How long an operation that is awaited may take, unless its context says otherwise: the default of the client commands.
pub const OPERATION: Duration = Duration::from_secs(5);

/// Operations that are awaited before those that have ended are looked for among them.
pub const AWAITED_SWEEP: usize = 64;

/// How often that pause doubles while nothing changes: up to 16 s.
pub const SEARCH_PAUSE_DOUBLINGS: u32 = 9;

/// Bytes of requests that wait in a client circuit before puts without an answer wait as well.
pub const REQUEST_BYTES: usize = 256 * 1024;

/// How close puts without an answer follow one another to be sent together, and how long such a one waits at most: less than
/// anybody sees, and what a hundred of them take one by one.
pub const BURST: Duration = Duration::from_micros(200);

/// Bytes of a burst of puts that are sent without waiting for more: some two hundred.
pub const BURST_BYTES: usize = 8 * 1024;

/// Bytes of requests of single operations that are sent without waiting for more: some thirty gets. The server begins with these
/// while more are started; sending fewer would cost more than that brings.
pub const FLIGHT_BYTES: usize = 512;

/// Operations asked together that are sent before the next are asked: the server has work early, and others have the circuit
/// in between.
pub const BATCH_PIECE: usize = 256;

/// Bytes of updates that wait in a server circuit before later ones stay in the ring of posts.
pub const UPDATE_BYTES: usize = 256 * 1024;

/// Bytes of answers that wait before a server circuit answers no more, and then reads no more. Arrays count with their
/// size on the wire; most are shared snapshots, but those that were converted are the circuit's own.
pub const ANSWER_BYTES: usize = 1024 * 1024;

/// Requests are decoded in pieces of this size: those that then wait for room are few.
pub const REQUEST_PIECE_BYTES: usize = 2048;

/// How long a client that is closed may take to read what is still to be said to it.
pub const CLOSING: Duration = Duration::from_secs(5);

/// How long a client may take none of what is sent to it, or answer no probe, before the system ends its connection:
/// longer than a program is stopped or a network away for a minute, short enough that what waits for a client without
/// power is not kept for the quarter of an hour for which TCP tries. One that is idle, but there, is never ended.
pub const CLIENT_GONE: Duration = Duration::from_secs(120);

/// Server reactors: more bring nothing before the network is full.
pub const SERVER_THREADS: usize = 4;

/// Puts of one circuit that wait for the end of their processing; more are refused. Each costs some
/// hundred bytes here and in the source.
pub const PUTS: usize = 64 * 1024;

/// Bytes of searches that are answered from one socket before circuits have their turn: 64 of the field's full
/// datagrams, or a few thousand names, which take a millisecond or two.
pub const TURN_SEARCH_BYTES: usize = 64 * 1024;

/// Bytes of an answer to searches, or of a beacon, that are looked at: all that the programs of the field put into one.
pub const DATAGRAM_BYTES: usize = 8 * 1024;

/// Datagrams answered before circuits have their turn.
pub const TURN_DATAGRAMS: usize = 256;

/// The fewest and the most descriptors that clients leave to what the process opens itself: files of autosave and access
/// security, connections to other IOCs, a page that is read.
pub const RESERVED_DESCRIPTORS: (usize, usize) = (8, 256);

/// Clients that are accepted before circuits have their turn.
pub const TURN_ACCEPTS: usize = 64;

/// How long no client is accepted while many circuits that were closed to make room have not ended: a few turns of their
/// threads.
pub const EVICTION_PAUSE: Duration = Duration::from_millis(1);

/// How long a client may stay that has asked for nothing, not even said who it is: programs do so with their first bytes.
pub const SILENT_CLIENT: Duration = Duration::from_secs(60);

/// How long any other may stay without a channel after its last request. A client that only searches here, as libca does
/// with its name servers, searches at least every 375 s for what it cannot find, and it loses the first search of a new
/// circuit.
pub const UNUSED_CLIENT: Duration = Duration::from_secs(600);

/// How long no client is accepted after the system had no descriptor left for one.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// How long a diagnosis waits for a host to say that nobody listens there: a round trip of a large network.
pub const KNOCK: Duration = Duration::from_millis(100);

/// How long a diagnosis waits for further servers after the first claim. They answer the same datagram, so they are
/// late by what their loads differ.
pub const SECOND_CLAIM: Duration = Duration::from_millis(350);

/// Servers that a diagnosis visits: two are one too many already.
pub const CLAIMS: usize = 8;

/// The shortest that EPICS_CA_MAX_SEARCH_PERIOD sets, in libca as well: searches for ever at a
/// higher rate would load every server of a plant.
pub const SEARCH_PERIOD_SETTING_MIN: Duration = Duration::from_secs(60);

/// The smallest that EPICS_CA_MAX_ARRAY_BYTES sets, in libca as well: small messages always pass.
pub const ARRAY_SETTING_MIN_BYTES: usize = 16 * 1024;

/// Bytes of a payload beside an array of the longest that is allowed: no metadata takes more.
pub const METADATA_BYTES: usize = 1024;

/// How often the host's interfaces are looked at while names are looked for, and names of hosts
/// that could not be resolved.
pub const PLACES_LOOK: Duration = Duration::from_secs(15);

/// The same after a datagram could not be sent: the network has just changed.
pub const PLACES_LOOK_SOONER: Duration = Duration::from_secs(1);

/// How often the name of a host that was resolved is resolved again.
pub const RESOLVED_LOOK: Duration = Duration::from_secs(60);

/// Notices of a context that wait to be taken; later ones are counted and dropped.
pub const NOTICES: usize = 256;

/// The first and the longest pause before a name server that cannot be reached is tried again.
pub const NAME_SERVER_PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(15));

/// Bytes of searches that wait for a name server; beyond them they are as lost, and come again.
pub const NAME_SERVER_BYTES: usize = 64 * 1024;

/// How long the repeater has to confirm a client before it is asked again, and how often before
/// this process becomes the repeater.
pub const REGISTRATION: (Duration, u32) = (Duration::from_millis(200), 3);

/// How often a client registers again, since a repeater can be replaced by another.
pub const REGISTRATION_AGAIN: Duration = Duration::from_secs(60);

/// How long names that are looked for one right after another are held to share datagrams: a loop that makes channels
/// fills many in that time, and nobody who waits for one is held up.
pub const SEARCH_HOLD: Duration = Duration::from_micros(200);

/// The highest priority of a circuit. Source: Channel Access protocol specification, CA_PROTO_VERSION.
pub const PRIORITY_MAX: u8 = 99;

/// Bytes of a string of Channel Access, whose 40 bytes end with a NUL.
pub const STRING_BYTES: usize = 39;

/// Bytes of values that wait in the queue of one monitor, beside one that is larger alone: a second of images of a camera,
/// where counting updates alone would let a thousand of forty megabytes wait.
pub const MONITOR_QUEUE_BYTES: usize = 64 << 20;

/// Events of the connection that wait in the queue of one monitor: a server that comes and goes each second is told of for a
/// minute.
pub const CONNECTION_EVENTS: usize = 64;

/// Threads for callbacks at most: more than any machine has cores.
pub const CALLBACK_THREADS_MAX: usize = 1024;

/// How often a server's status is refreshed: as often as people look.
pub const STATUS_PERIOD: Duration = Duration::from_secs(1);

/// How long a reactor may take to tell of its circuits before it is left out.
pub const STATUS_ANSWER: Duration = Duration::from_millis(500);

/// Bytes of the status as JSON: a thousand clients and more, those with most to blame first.
pub const STATUS_BYTES: usize = 256 * 1024;

/// What is shown of a user's or a host's name.
pub const STATUS_NAME_CHARS: usize = 64;

/// Connections to a page at once: two programs that scrape, a person who looks, and some that have hung.
pub const PAGE_VISITS: usize = 16;

/// How long one may last, whatever its peer does: programs that scrape give up after ten seconds themselves.
pub const PAGE_VISIT: Duration = Duration::from_secs(10);

/// New ones that are accepted before the others are looked after.
pub const PAGE_ACCEPTS: usize = 16;

/// Bytes of a request: what browsers send of their own, several times.
pub const PAGE_REQUEST_BYTES: usize = 8 * 1024;

/// How long a page is handed out again before it is made anew, so that asking for it all the time costs the server little.
pub const PAGE_KEPT: Duration = Duration::from_millis(200);

/// Bytes of records that a RecCeiver is told at once: some two hundred records.
pub const RECCASTER_SLICE_BYTES: usize = 16 * 1024;

/// The pause after each slice: a hundred thousand records take some seconds, and one thread a fraction of them.
pub const RECCASTER_PAUSE: Duration = Duration::from_millis(10);

/// Bytes of a message body from a RecCeiver. The known ones have four; others are skipped.
pub const RECCASTER_BODY_BYTES: usize = 1024;

/// What may wait to be sent: a slice, and answers to more pings than an honest server sends in a day.
pub const RECCASTER_UNSENT_BYTES: usize = 256 * 1024;

/// How long announcements go unheard after a failure, times the number of failures in a row, as in recsync.
pub const RECCASTER_REST: Duration = Duration::from_secs(5);

/// The longest that anybody may have it wait for a RecCeiver: more would be never.
pub const RECCASTER_WAIT_MAX: Duration = Duration::from_secs(3600);

/// Failures in a row that are counted: then it tries every minute or so.
pub const RECCASTER_FAILURES_COUNTED: u32 = 10;

/// Datagrams that are looked at in one turn.
pub const RECCASTER_DATAGRAMS: usize = 64;

/// Bytes of a datagram that are looked at: an announcement has sixteen.
pub const RECCASTER_DATAGRAM_BYTES: usize = 64;

/// Posts that the status keeps of each of its PVs: who is late wants the last one.
pub const STATUS_POSTS: usize = 4;

/// How long the same text about the same host is not told again.
pub const LOG_PAUSE: Duration = Duration::from_secs(60);

/// Pairs of host and text that are remembered: more than a plant has clients in trouble at once.
pub const LOG_TEXTS: usize = 4096;

/// Channels or subscriptions of one circuit whose rights are looked at in one turn; each may ask the rules. A turn stays below a
/// millisecond or so, however many channels a client has.
pub const CHECKS: usize = 1024;

/// What all circuits of one host may cost together. One circuit may have half of it, which a million channels with a
/// million subscriptions fit into.
pub const HOST_BYTES: usize = 2048 * 1024 * 1024;

/// Circuits of one host: far above the programs that run on one, so that what is bounded is a fault or an attack.
pub const HOST_CIRCUITS: usize = 16 * 1024;

/// What a circuit costs before it has a channel: its buffers here, and those of the system that it uses as a rule.
pub const CIRCUIT_BYTES: usize = 16 * 1024;

/// Unicast searches handed on to the other servers of the host whose answers are known again: those of a second or so
/// of many clients; an answer that comes later is lost, and asked for again.
pub const RELAYED_SEARCHES: usize = 4096;

/// What a put in progress costs here and in the source.
pub const PUT_BYTES: usize = 256;

/// How often the system asks a peer that has said nothing whether it is there.
pub const PROBES: Duration = Duration::from_secs(15);

/// The longest silence that the system can be told of: it counts milliseconds in 31 bits.
#[cfg(target_os = "linux")]
pub const SILENCE_MAX: Duration = Duration::from_millis(i32::MAX as u64);

#[cfg(test)]
mod tests {
    use super::*;

    /// A limit that loses a factor would let things through, or refuse them, that its reason speaks of.
    #[test]
    fn limits_have_room_for_what_their_reasons_name() {
        let search_bytes = 40;
        for (what, limit, least) in [
            ("several pieces in a read", RECEIVE_BYTES, 4 * PIECE_BYTES),
            ("some hundred small messages in a piece", PIECE_BYTES, 500 * 24),
            ("several reads in a turn", TURN_BYTES, 4 * RECEIVE_BYTES),
            ("many bursts of puts before the next one waits", REQUEST_BYTES, 16 * BURST_BYTES),
            ("some two hundred puts of 40 bytes", BURST_BYTES, 200 * 40),
            ("thousands of updates", UPDATE_BYTES, 5_000 * 40),
            ("more answers than updates", ANSWER_BYTES, 2 * UPDATE_BYTES),
            ("tens of thousands of puts", PUTS, 50_000),
            ("64 full datagrams of searches", TURN_SEARCH_BYTES, 64 * 1024),
            ("the largest datagram of the field's programs", DATAGRAM_BYTES, 2 * 1472),
            ("the default of EPICS_CA_MAX_ARRAY_BYTES", ARRAY_SETTING_MIN_BYTES, 16_384),
            ("a thousand searches for a name server", NAME_SERVER_BYTES, 1000 * search_bytes),
            ("an image of forty megabytes", MONITOR_QUEUE_BYTES, 40_000_000),
            ("the status of a thousand clients", STATUS_BYTES, 1000 * 200),
            ("what browsers send, several times", PAGE_REQUEST_BYTES, 4 * 1500),
            ("some two hundred records of 60 bytes", RECCASTER_SLICE_BYTES, 200 * 60),
            ("several slices", RECCASTER_UNSENT_BYTES, 4 * RECCASTER_SLICE_BYTES),
            ("two circuits that hold as much as one may", HOST_BYTES, 2 * fodo_ca::limit::HELD_BYTES),
            ("more circuits than programs run on a host", HOST_CIRCUITS, 10_000),
            ("a piece of requests and the buffers of the system", CIRCUIT_BYTES, 4 * REQUEST_PIECE_BYTES),
        ] {
            assert!(limit >= least, "{limit} has no room for {what}, {least}");
        }
    }
}
