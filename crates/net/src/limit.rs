//! All limits of this crate, with their reasons.

use std::time::Duration;

/// Bytes read from a socket in one call: a whole burst of small replies, and few enough to stay in the second-level
/// cache while they are decoded.
pub const RECEIVE_BYTES: usize = 256 * 1024;

/// Bytes that are received of a datagram to a CLU: one block more than its machine accepts, so that it counts longer ones.
pub const CLU_DATAGRAM_BYTES: usize = fodo_clu::limit::DATAGRAM_BYTES_MAX + fodo_clu::cipher::BLOCK_BYTES;

/// Datagrams to a CLU that are received or sent at once. Their replies wait for each other, so that more would delay the
/// first ones by more than half a millisecond.
pub const CLU_BATCH_DATAGRAMS: usize = 64;

/// Size of the receive buffer of a CLU's sockets: some thousand short requests, those of a moment in which it does not read.
pub const CLU_RECEIVE_BUFFER_BYTES: usize = 4 * 1024 * 1024;

/// How long the scripts of a CLU may be busy until the thread of its sockets receives and answers the datagrams of other
/// clients. It looks at the scripts once in this time while there are requests, which costs a thousandth of a core.
pub const CLU_BUSY_PERIOD: Duration = Duration::from_millis(5);

/// The longest time that the thread of a CLU's sockets waits when nothing is due: it only bounds the argument of poll(2).
pub const CLU_TURN_MAX: Duration = Duration::from_secs(3600);

/// How long a server of a CLU waits until the system accepts a datagram. The queue of a slow network interface is shorter.
pub const CLU_SEND_WAIT: Duration = Duration::from_millis(10);

/// Connections that wait to be accepted, unless the system has a lower limit. All clients of a plant reconnect at once;
/// a client that finds the backlog full tries again after a second.
pub const BACKLOG: i32 = 4096;

/// How often a server tries to get any port that is free on all its interfaces: the system rarely selects one that is in
/// use on another of them.
pub const PORT_ATTEMPTS: usize = 8;

/// Bytes that are decoded before their events are handled: the events of a piece of small messages stay in the caches.
pub const DECODE_PIECE_BYTES: usize = 16 * 1024;

/// Socket events that a loop takes from the system at once; the others follow after the turns that these cause.
pub const TURN_EVENTS: usize = 1024;

/// Bytes that one client circuit may read before the others of its reactor have their turn.
pub const TURN_BYTES: usize = 4 * 1024 * 1024;

/// Bytes that a server circuit may read, and send, before the others of its reactor have their turn. That takes a few
/// hundred microseconds, so forty clients that send large arrays delay a get by about ten milliseconds.
pub const SERVER_TURN_BYTES: usize = 512 * 1024;

/// How long a circuit that a blocking call has driven stays away from the reactor: long enough for the next call of a
/// loop, short enough that a waiting update is not noticed.
pub const READER_LEASE: Duration = Duration::from_millis(2);

/// The same for the socket of a CLU, at least; the reactor takes it back within twice this time. A report that waits as long is
/// not noticed, because CLUs report at most ten times a second.
pub const CLU_READER_LEASE: Duration = Duration::from_millis(10);

/// The shortest time for which a blocked caller reads the socket of a CLU: a timeout of 0 would be none.
pub const CLU_RECEIVE_TIMEOUT_MIN: Duration = Duration::from_millis(1);

/// The longest time for which a blocked caller reads the socket of a CLU without looking at the clock.
pub const CLU_RECEIVE_TIMEOUT_MAX: Duration = Duration::from_secs(10);

/// A blocked caller whose deadline is nearer than this waits exactly until then; otherwise it may look at the clock before.
pub const CLU_RECEIVE_TIMEOUT_EXACT: Duration = Duration::from_millis(20);

/// Calls of listeners of a CLU that wait: the updates of all registrations that a client may have. More are merged.
pub const CLU_DELIVERIES: usize = fodo_clu::limit::PAGES_MAX;

/// How long an event loop reads a circuit after it began to await an operation there: long enough for operations that
/// follow one another, short enough that a busy loop delays no other consumer noticeably. The next operation extends it if
/// the loop has read meanwhile. The reactor looks once in this time.
pub const LOOP_LEASE: Duration = Duration::from_millis(2);

/// Circuits that an event loop of the program reads in one turn; the others follow in the next one.
pub const LOOP_EVENTS: usize = 64;

/// How long a TCP connection may take to open before the name is searched for again.
pub const CONNECT: Duration = Duration::from_secs(5);

/// How long a handshake of TLS may take, on either side: several round trips of a slow network, and few enough seconds that a
/// peer which never answers is noticed.
pub const TLS_HANDSHAKE: Duration = Duration::from_secs(5);

/// Encrypted bytes read from a socket in one call: two records of the largest size.
pub const TLS_RECEIVE_BYTES: usize = 32 * 1024;

/// The largest keychain file: hundreds of certificates.
pub const KEYCHAIN_BYTES: u64 = 1024 * 1024;

/// Rounds of key derivation in a keychain file, all derivations together: three (certificates, key, checksum) of the 600 000 that
/// OWASP recommends for PBKDF2 with SHA-256, and a second of time. keytool writes 10 000 each and openssl 2048.
pub const KEYCHAIN_ROUNDS: u64 = 2_000_000;

/// Certificates of a chain that are compared when the names of its authorities are listed.
pub const CHAIN_CERTIFICATES: usize = 16;

/// The pause before searching again for a name whose server claimed it but could not be used: such a server would claim
/// it again at once.
pub const SEARCH_PAUSE: Duration = Duration::from_millis(32);

/// How often that pause doubles while nothing changes: up to 16 s.
pub const SEARCH_PAUSE_DOUBLINGS: u32 = 9;

/// How long the claim of a server that could not be used is ignored, so that another server with the name can claim it:
/// the round trip of a large network.
pub const OTHER_CLAIM: Duration = Duration::from_millis(100);

/// How often issuing an operation, or requesting a channel, is retried while a circuit closes. Each retry needs a circuit
/// to be lost between two locks, so a few are more than ever occur.
pub const ISSUE_ATTEMPTS: usize = 8;

/// The default timeout of an operation; the same as the default of the command-line clients.
pub const OPERATION: Duration = Duration::from_secs(5);

/// Number of awaited operations from which ended ones are removed.
pub const AWAITED_SWEEP: usize = 64;

/// Bytes of requests queued in a client circuit from which operations wait for space, as tasks that are not encoded:
/// thousands of gets, so that a fast server is always busy. The last one queued may be larger, such as an image. A
/// blocking call waits within its timeout, and reads replies meanwhile.
pub const REQUEST_BYTES: usize = 256 * 1024;

/// Bytes of requests queued in a client circuit, in addition to the largest one, from which it is closed: the server
/// reads nothing. All requests but those of operations are queued up to here, because one cannot wait for them: a
/// million channels with two subscriptions each are created and ended with fewer.
pub const UNREAD_BYTES: usize = 256 * 1024 * 1024;

/// The longest pause until a client circuit tries again to send what its socket did not accept, while a caller reads
/// that does not know of these bytes. The first pause is [`READER_LEASE`]; a server that reads nothing costs no time.
pub const RETRY_PAUSE_MAX: Duration = Duration::from_millis(128);

/// Requests without a waiting caller that follow one another within this time are a burst, and are sent together. A loop
/// that puts takes a microsecond each time; one that waits for an update in between takes longer than this.
pub const BURST_GAP: Duration = Duration::from_micros(20);

/// The longest time that a request of a burst waits. It is too short to notice, and as long as a hundred puts take one by
/// one.
pub const BURST: Duration = Duration::from_micros(200);

/// Bytes of a burst of requests that are sent without waiting for more: about two hundred puts.
pub const BURST_BYTES: usize = 8 * 1024;

/// Bytes that are sent without waiting for more, whatever the flush delay is: a dozen full segments.
pub const FLUSH_BYTES: usize = 16 * 1024;

/// Bytes of requests of individual operations that are sent without waiting for more: about thirty gets. The server
/// starts with these while more are issued; sending fewer at once would cost more than it gains.
pub const FLIGHT_BYTES: usize = 512;

/// Operations of a batch that are issued and sent before the next ones: the server has work early, and other callers
/// can use the circuit in between.
pub const BATCH_PIECE: usize = 256;

/// Updates of a monitor with flow control that a client of pvAccess acknowledges at once, if the window has twice as many:
/// QSRV1 never has more on their way.
pub const PVA_ACKNOWLEDGED: u32 = 2;

/// Memory of large arrays that a client's circuit keeps for the next ones, after the program has dropped them: ten images of
/// eight megabytes.
pub const SPARE_ARRAYS_BYTES: usize = 96 * 1024 * 1024;

/// The smallest array of which the memory is kept: allocators keep smaller blocks themselves. They return a few arrays of
/// 80 kB that are dropped together to the system.
pub const SPARE_ARRAY_BYTES_MIN: usize = 32 * 1024;

/// How many of the oldest kept arrays are tried for the next one. A program that still has all of these has most others too.
pub const SPARE_ARRAYS_TRIED: usize = 32;

/// How long it is kept after the last large array has arrived: longer than the period of most detectors.
pub const SPARE_ARRAYS_TIME: Duration = Duration::from_secs(1);

/// What a put without completion takes in memory, besides its value, while it waits for the reply to the one before it.
/// A few thousand of them count as a full queue.
pub const QUEUED_PUT_BYTES: usize = 64;

/// Requests of one channel that wait until the puts before them are sent; as many as an operation of pvAccess may have.
pub const HELD_REQUESTS: usize = fodo_pva::limit::EXECUTIONS_MAX;

/// Operations on structures that a client's channel keeps open, with different pvRequests; also calls at one time, above
/// which they wait for each other. A program has a few, and a server keeps the type of each.
pub const STRUCTURED_OPERATIONS: usize = 16;

/// Bytes of updates queued in a server circuit from which later ones stay in the ring of posts.
pub const UPDATE_BYTES: usize = 256 * 1024;

/// Bytes of a value from which a server circuit of pvAccess encodes its update while the PV can post the next one: fewer
/// are copied in about a microsecond.
pub const LOCKED_UPDATE_BYTES: usize = 4 * 1024;

/// Updates of one PV that a server circuit of pvAccess keeps encoded for its other subscriptions to that PV: as many as a
/// PV keeps posts, with two selections.
pub const SHARED_UPDATES: usize = 2 * SCALAR_POSTS;

/// Bytes of queued replies from which a server circuit stops answering, and then stops reading. Arrays count with their
/// size on the wire; most are shared snapshots, but converted ones are the circuit's own.
pub const ANSWER_BYTES: usize = 1024 * 1024;

/// Requests are decoded in pieces of this size, so that few decoded requests have to wait for buffer space.
pub const REQUEST_PIECE_BYTES: usize = 2048;

/// How long a client that is being closed may take to read the remaining data.
pub const CLOSING: Duration = Duration::from_secs(5);

/// How long a client may receive none of the data sent to it, or not answer a probe, before the system closes its
/// connection. That is longer than a program is stopped or a network interrupted for a minute. It is shorter than the
/// quarter of an hour for which TCP retries, so that data for a client without power is not kept that long. A client
/// that is idle but alive is never closed.
pub const CLIENT_GONE: Duration = Duration::from_secs(120);

/// Server reactors: more of them gain nothing before the network is saturated.
pub const SERVER_THREADS: usize = 4;

/// Puts of one circuit that wait for the end of their processing; more are refused. Each uses a few hundred bytes here
/// and in the source.
pub const PUTS: usize = 64 * 1024;

/// Bytes of searches that are answered from one socket before circuits have their turn: 64 full datagrams, or a few
/// thousand names, which take a millisecond or two.
pub const TURN_SEARCH_BYTES: usize = 64 * 1024;

/// Names in searches over TCP that one circuit of pvAccess looks up before the others of its reactor have their turn: they
/// take about a millisecond. One message can contain 65 535 names. Channel Access has one name in each message, so that the
/// bytes of a turn limit them.
pub const TURN_LOOKUPS: usize = 4 * 1024;

/// Bytes read of a datagram with search replies or a beacon: as much as any known program puts into one.
pub const DATAGRAM_BYTES: usize = 8 * 1024;

/// Servers that a search for all servers remembers: as many as pvxs tracks.
pub const FOUND_SERVERS: usize = 20_000;

/// Addresses that a search for all servers remembers of one server: more interfaces than a host has.
pub const SERVER_ADDRESSES: usize = 64;

/// Times that a search for all servers is sent, because datagrams may be lost; the same as pvlist.
pub const DISCOVERY_SEARCHES: u32 = 3;

/// Time between them; the same as pvlist.
pub const DISCOVERY_PERIOD: Duration = Duration::from_millis(250);

/// The longest time of a call to a server at a known address.
pub const DIRECT_CALL_MAX: Duration = Duration::from_secs(24 * 3600);

/// Bytes read at once by such a call: the buffer exists only for the call.
pub const DIRECT_READ_BYTES: usize = 64 * 1024;

/// Datagrams handled before circuits have their turn.
pub const TURN_DATAGRAMS: usize = 256;

/// The minimum and maximum number of descriptors reserved for what the process itself opens: files of autosave and
/// access security, connections to other IOCs, connections to its status page.
pub const RESERVED_DESCRIPTORS: (usize, usize) = (8, 256);

/// Clients accepted before circuits have their turn.
pub const TURN_ACCEPTS: usize = 64;

/// How long no client is accepted while many circuits that were closed to make room have not ended: a few turns of
/// their threads.
pub const EVICTION_PAUSE: Duration = Duration::from_millis(1);

/// How long a client of a port for all protocols may take to send its first byte, before it is taken for a client of
/// pvAccess. Programs send it with the connection; the rest is for a busy client host. A connection over pvAccess takes
/// this much longer. A server that requires TLS has no such clients, and waits for [`TLS_HANDSHAKE`].
pub const FIRST_BYTE: Duration = Duration::from_millis(50);

/// How long a client may stay that has sent no request and no identity: programs send their identity with the first
/// bytes.
pub const SILENT_CLIENT: Duration = Duration::from_secs(60);

/// How long any other client may stay without a channel after its last request. A client that only searches here, as
/// libca does with its name servers, searches at least every 375 s for names that it cannot find, and it loses the
/// first search of a new circuit.
pub const UNUSED_CLIENT: Duration = Duration::from_secs(600);

/// How long no client is accepted after the system had no descriptor left for one.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// How long a diagnosis waits for a host to report that no program listens: a round trip of a large network.
pub const PROBE_WAIT: Duration = Duration::from_millis(100);

/// How long a diagnosis waits for further servers after the first claim. They answer the same datagram, so they are
/// late only by the difference of their loads.
pub const SECOND_CLAIM: Duration = Duration::from_millis(350);

/// Servers that a diagnosis connects to: already two are one too many.
pub const CLAIMS: usize = 8;

/// The shortest and the longest silence after which a client of pvAccess sends an echo request, the same as in pvxs.
/// Servers close a circuit without a request for 40 s.
pub const PVA_ECHO_PERIODS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(15));

/// The minimum of EPICS_CA_MAX_SEARCH_PERIOD, the same as in libca: permanent searches at a higher rate would load
/// every server of a plant.
pub const SEARCH_PERIOD_SETTING_MIN: Duration = Duration::from_secs(60);

/// The minimum of EPICS_CA_MAX_ARRAY_BYTES, the same as in libca: small messages always pass.
pub const ARRAY_SETTING_MIN_BYTES: usize = 16 * 1024;

/// Bytes of a payload in addition to the longest allowed array: no metadata takes more.
pub const METADATA_BYTES: usize = 1024;

/// How often the host's interfaces are checked while names are searched for, and host names that could not be resolved
/// are retried.
pub const ADDRESS_REFRESH: Duration = Duration::from_secs(15);

/// The same after a datagram could not be sent: the network has probably just changed.
pub const ADDRESS_REFRESH_SOON: Duration = Duration::from_secs(1);

/// How often a resolved host name is resolved again.
pub const NAME_REFRESH: Duration = Duration::from_secs(60);

/// Notices of a context that wait to be taken; later ones are dropped and counted.
pub const NOTICES: usize = 256;

/// The first and the longest pause before reconnecting to a name server that cannot be reached.
pub const NAME_SERVER_PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(15));

/// Bytes of searches that wait for a name server; beyond them searches are dropped, and repeated later.
pub const NAME_SERVER_BYTES: usize = 64 * 1024;

/// How long the repeater has to confirm a client before the client registers again, and after how many attempts this
/// process becomes the repeater.
pub const REGISTRATION: (Duration, u32) = (Duration::from_millis(200), 3);

/// How often a client registers again, since a repeater can be replaced by another one.
pub const REGISTRATION_AGAIN: Duration = Duration::from_secs(60);

/// How long names searched for in quick succession are collected to share datagrams. A loop that creates channels fills
/// many datagrams in that time, and a caller that waits for a name is not delayed.
pub const SEARCH_HOLD: Duration = Duration::from_micros(200);

/// The highest priority of a circuit. Source: Channel Access protocol specification, CA_PROTO_VERSION.
pub const PRIORITY_MAX: u8 = 99;

/// Bytes of values in the queue of one monitor, or one value if that is larger: a second of camera images. A limit on
/// the number of updates alone would permit a thousand images of forty megabytes.
pub const MONITOR_QUEUE_BYTES: usize = 64 << 20;

/// Connection events in the queue of one monitor: a minute of events of a server that connects and disconnects every
/// second.
pub const CONNECTION_EVENTS: usize = 64;

/// Rows that wait in a monitor group, unless its options contain another number: an eighth of a second of a fan-out of
/// eight million updates per second, in 32 MiB.
pub const GROUP_ROWS: usize = 1 << 20;

/// How often a process may descend from others by forks, and still have a client of its own: far deeper than pools of
/// workers fork.
pub const FORKS: usize = 64;

/// Maximum number of callback threads: more than any machine has cores.
pub const CALLBACK_THREADS_MAX: usize = 1024;

/// How often a server's status is refreshed: as often as people look.
pub const STATUS_PERIOD: Duration = Duration::from_secs(1);

/// How long a reactor may take to report its circuits before it is omitted.
pub const STATUS_ANSWER: Duration = Duration::from_millis(500);

/// Bytes of the status as JSON: more than a thousand clients, those that keep most data waiting first.
pub const STATUS_BYTES: usize = 256 * 1024;

/// Characters shown of a user's or host's name.
pub const STATUS_NAME_CHARS: usize = 64;

/// Memory of the posts of one PV above which its ring does not grow for a client that requests a longer queue: four
/// images of 16 MB.
pub const GROWN_RING_BYTES: usize = 64 << 20;

/// The same as [`SCALAR_POSTS`] for a PV of structures, whose clients rely on a queue of four if they request none.
pub const STRUCTURE_POSTS: usize = fodo_pva::limit::QUEUE_SIZE;

/// Memory of a post in a ring, without what its value refers to.
pub const POST_BYTES: usize = 96;

/// Calls of procedures of one circuit whose results are outstanding; more are refused. Each holds its argument in the
/// source.
pub const CALLS: usize = 4 * 1024;

/// Posts kept for the subscriptions of a `SharedPv`, so that short pulses are not lost when the server is briefly busy.
pub const SCALAR_POSTS: usize = 8;

/// The same for an array; fewer, because each post keeps its elements in memory.
pub const ARRAY_POSTS: usize = 2;

/// How long the same text about the same host is not logged again.
pub const LOG_PAUSE: Duration = Duration::from_secs(60);

/// Pairs of host and text that are remembered: more than a plant has clients in trouble at once.
pub const LOG_TEXTS: usize = 4096;

/// Channels or subscriptions of one circuit whose rights are checked in one turn; each may evaluate the access rules. A
/// turn stays below about a millisecond, however many channels a client has.
pub const CHECKS: usize = 1024;

/// Bytes that all circuits of one host may use together. One circuit may use half of them, enough for a million
/// channels with a million subscriptions.
pub const HOST_BYTES: usize = 2048 * 1024 * 1024;

/// Circuits of one host: far above the number of programs on a host, so that only a fault or an attack reaches it.
pub const HOST_CIRCUITS: usize = 16 * 1024;

/// Bytes that a circuit uses before it has a channel: its buffers here, and those of the system that it usually needs.
pub const CIRCUIT_BYTES: usize = 16 * 1024;

/// Memory of TLS for one circuit: received and decrypted bytes, and what waits to be sent.
pub const TLS_CIRCUIT_BYTES: usize = 128 * 1024;

/// Handshakes that continue in one pass of a server's loop: a signature takes a millisecond, and other clients wait meanwhile.
pub const PASS_HANDSHAKES: usize = 8;

/// Unicast searches forwarded to the other servers of the host whose replies can still be matched: those of many
/// clients in about a second. A later reply is lost, and the client searches again.
pub const RELAYED_SEARCHES: usize = 4096;

/// Bytes that a put in progress uses here and in the source.
pub const PUT_BYTES: usize = 256;

/// How often the system probes a silent peer.
pub const PROBES: Duration = Duration::from_secs(15);

/// The longest silence that can be configured in the system: it counts milliseconds in 31 bits.
#[cfg(target_os = "linux")]
pub const SILENCE_MAX: Duration = Duration::from_millis(i32::MAX as u64);

#[cfg(test)]
mod tests {
    use super::*;

    /// A limit that loses a factor would admit, or refuse, what its reason mentions.
    #[test]
    fn limits_have_room_for_what_their_reasons_name() {
        let search_bytes = 40;
        for (what, limit, least) in [
            ("several pieces in a read", RECEIVE_BYTES, 4 * DECODE_PIECE_BYTES),
            ("some hundred small messages in a piece", DECODE_PIECE_BYTES, 500 * 24),
            ("several reads in a turn", TURN_BYTES, 4 * RECEIVE_BYTES),
            ("several pieces of replies in a turn of a server", SERVER_TURN_BYTES, 4 * fodo_engine::limit::PIECE_BYTES),
            ("five hundred numbers while the PV is locked", LOCKED_UPDATE_BYTES, 500 * 8),
            ("every post of a PV for two selections", SHARED_UPDATES, 2 * SCALAR_POSTS),
            ("many bursts of puts before the next one waits", REQUEST_BYTES, 16 * BURST_BYTES),
            ("a million channels with two subscriptions, created and ended", UNREAD_BYTES, 1_000_000 * 160),
            ("some two hundred puts of 40 bytes", BURST_BYTES, 200 * 40),
            ("thousands of updates", UPDATE_BYTES, 5_000 * 40),
            ("more answers than updates", ANSWER_BYTES, 2 * UPDATE_BYTES),
            ("tens of thousands of puts", PUTS, 50_000),
            ("thousands of calls", CALLS, 4_000),
            ("four images of 16 MB", GROWN_RING_BYTES, 4 * 16_000_000),
            ("64 full datagrams of searches", TURN_SEARCH_BYTES, 64 * 1024),
            ("the largest datagram of the field's programs", DATAGRAM_BYTES, 2 * 1472),
            ("the default of EPICS_CA_MAX_ARRAY_BYTES", ARRAY_SETTING_MIN_BYTES, 16_384),
            ("a thousand searches for a name server", NAME_SERVER_BYTES, 1000 * search_bytes),
            ("the names of a thousand PVs in one read", DIRECT_READ_BYTES, 1000 * 40),
            ("a call that runs over a working day", DIRECT_CALL_MAX.as_secs() as usize, 10 * 3600),
            ("an image of forty megabytes", MONITOR_QUEUE_BYTES, 40_000_000),
            ("ten images of eight megabytes", SPARE_ARRAYS_BYTES, 80_000_000),
            ("a hundred milliseconds of a fan-out", GROUP_ROWS, 800_000),
            ("the status of a thousand clients", STATUS_BYTES, 1000 * 200),
            ("two circuits that hold as much as one may", HOST_BYTES, 2 * fodo_ca::limit::HELD_BYTES),
            ("more circuits than programs run on a host", HOST_CIRCUITS, 10_000),
            ("a piece of requests and the buffers of the system", CIRCUIT_BYTES, 4 * REQUEST_PIECE_BYTES),
        ] {
            assert!(limit >= least, "{limit} has no room for {what}, {least}");
        }
    }
}
