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

/// The longest name of a channel, for clients and servers alike: rsrv closes a circuit, with all its channels, on which a longer
/// one is requested.
pub const NAME_BYTES: usize = 511;

/// Who the user is and on which host; rsrv closes circuits that send longer ones.
pub const IDENTITY_BYTES: usize = 512;

/// A payload that is no array: names, complaints with their text.
pub const SMALL_PAYLOAD_BYTES: u32 = 16 * 1024;

/// Zeros that stand in an answer in place of a value that cannot be had; rsrv sends any number.
pub const REFUSAL_BYTES: usize = 1024;

/// Bytes of searches in one datagram; the field's programs use 1024 to fit every network.
pub const SEARCH_BYTES: usize = 1024;

/// Bytes of answers in one datagram.
pub const ANSWER_BYTES: usize = 1400;

/// What a text takes beside its entry in an array: one of 39 bytes, in an allocation of its own.
pub const TEXT_BYTES: usize = 64;

/// How much of a large message has to arrive in [`MESSAGE`]: a line of 9600 baud is as fast.
pub const PROGRESS_BYTES: usize = 64 * 1024;

/// How long a small message may take from its first byte to its last, and a large one for each [`PROGRESS_BYTES`].
/// A client that trickles is closed; a stalled network is not, since TCP resumes within this.
pub const MESSAGE: Duration = Duration::from_secs(60);

/// How long a server may take to answer an echo; libca waits as long.
pub const ECHO_ANSWER: Duration = Duration::from_secs(5);

/// What the channels and subscriptions of one circuit may cost, unless its host says otherwise: a million of each fit.
pub const HELD_BYTES: usize = 1024 * 1024 * 1024;

/// What a channel costs, here and where it is served, as was measured; the PV is there without it.
pub const CHANNEL_BYTES: usize = 128;

/// What a subscription costs, likewise, with the watch on a PV that nobody else of its circuit listens to.
pub const SUBSCRIPTION_BYTES: usize = 768;

/// How long a server may be silent while channels wait for its confirmation, before their names are searched for elsewhere
/// as well: longer than an IOC that starts is busy. The search costs one datagram, and the circuit stays open.
pub const CREATE_ANSWER: Duration = Duration::from_secs(2);

/// The shortest time between two searches for a name, and the first wait for an answer.
pub const SEARCH_PERIOD_MIN: Duration = Duration::from_millis(32);

/// The longest time between two searches for a name that nobody claims.
pub const SEARCH_PERIOD_MAX: Duration = Duration::from_secs(300);

/// From where on periods vary much: nobody waits for a name that has been absent for so long.
pub const SEARCH_PERIOD_LONG: Duration = Duration::from_secs(60);

/// Datagrams of searches that are sent before any is answered; more would be lost in the servers' sockets.
pub const SEARCH_BURST: usize = 64;

/// How long none is answered before more are sent all the same: servers that do not have the names say nothing.
pub const SEARCH_PAUSE: Duration = Duration::from_millis(2);

/// Moments of searches are whole multiples of this, so that names share datagrams.
pub const SEARCH_GRID: Duration = Duration::from_millis(16);

/// The first searches for the channels of a lost server are spread over this: the clients of that
/// server do not shout at once, and nobody waits for long.
pub const LOST_SPREAD: Duration = Duration::from_millis(50);

/// From here on the period of a name whose server was lost grows by a quarter with each search instead of doubling: a server
/// that restarts elsewhere is found soon, for twenty searches per name in its first minute.
pub const LOST_PERIOD: Duration = Duration::from_secs(1);

/// Likewise the searches for all names after a reason to ask for them out of turn.
pub const BOOST_SPREAD: Duration = Duration::from_millis(100);

/// The pause until the search after such a reason, which doubles again: the first may be lost, or come
/// before a server that has just started listens. libca waits for 8 s.
pub const BOOST_PERIOD: Duration = Duration::from_secs(1);

/// The shortest and the longest pause between two such reasons that are heeded: whatever beacons
/// are forged, a hundred thousand names cost no more than some hundred datagrams per second.
pub const BOOST_PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));

/// The first and the longest time between two beacons of a server.
pub const BEACON_PERIODS: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(15));

/// Servers whose beacons a client remembers: more than any plant has, and little memory.
pub const BEACON_SERVERS: usize = 16 * 1024;

/// Numbers of beacons that tell of a start: those of the first seconds.
pub const BEACONS_OF_START: u32 = 8;

/// A server that was not heard for this long is news when it is: two of the field's longest periods.
pub const BEACON_SILENCE: Duration = Duration::from_secs(30);

/// How late one way of a beacon may be behind another. A server needs longer to start again.
pub const BEACON_DETOUR: Duration = Duration::from_millis(100);

/// Clients of a repeater: far above the programs of a host.
pub const REPEATER_CLIENTS: usize = 1024;

/// How often a repeater looks which of its clients are still there; each look tries a port.
pub const REPEATER_LOOK: Duration = Duration::from_secs(10);

/// The same while there is no room for more.
pub const REPEATER_LOOK_SOONER: Duration = Duration::from_secs(1);

/// Names that a bystander keeps of the traffic it hears: more than people look at, and some ten MB.
pub const TRAFFIC_NAMES: usize = 64 * 1024;

/// Clients, and servers, that it keeps of each name.
pub const TRAFFIC_CLIENTS: usize = 64;

/// How long a bystander waits for somebody to answer for a name: some six searches, so that one that is lost
/// makes no dead name.
pub const TRAFFIC_ANSWER: Duration = Duration::from_secs(2);

/// How long what it has found out about a name holds, before it asks again when clients do.
pub const TRAFFIC_ASK_AGAIN: Duration = Duration::from_secs(60);

/// How late one way of a search may be behind another. Clients ask again after 32 ms at the soonest.
pub const TRAFFIC_DETOUR: Duration = Duration::from_millis(20);

/// For so long the searches of a source count together; who has had its share waits no longer than that.
pub const SEARCH_SHARE: Duration = Duration::from_millis(250);

/// Bytes of searches of one source in that time: a quarter of a million names at once, which nobody asks for more often.
pub const SEARCH_SOURCE_BYTES: usize = 10 * 1024 * 1024;

/// The same of all sources together. A server that answers so many has a core busy with half of it.
pub const SEARCH_ALL_BYTES: usize = 16 * 1024 * 1024;

/// What each source has when these are used up, however many there are: a full datagram.
pub const SEARCH_LEAST_BYTES: usize = 1472;

/// Sources that are told apart; later ones of the same time share what one has. More than a plant has hosts.
pub const SEARCH_SOURCES: usize = 4096;

/// What is shown of something that is no name.
pub const SHOWN_BYTES: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    /// A limit that loses a factor would let things through, or refuse them, that its reason speaks of.
    #[test]
    fn limits_have_room_for_what_their_reasons_name() {
        let million = 1_000_000;
        for (what, limit, least) in [
            ("a complaint that quotes a request and its name", SMALL_PAYLOAD_BYTES as usize, 4 * NAME_BYTES),
            ("every small payload in one message", BULK_BYTES, SMALL_PAYLOAD_BYTES as usize),
            ("two of the least bulk arrays in a piece", PIECE_BYTES, 2 * BULK_BYTES),
            ("a million elements", ROOM_ELEMENTS, million),
            ("a million channels with a subscription each", HELD_BYTES, million * (CHANNEL_BYTES + SUBSCRIPTION_BYTES)),
            ("more servers than any plant has", BEACON_SERVERS, 10_000),
            ("more names than people look at", TRAFFIC_NAMES, 50_000),
            ("a quarter of a million searches of 40 bytes", SEARCH_SOURCE_BYTES, 250_000 * 40),
            ("half as much again of all sources", SEARCH_ALL_BYTES, SEARCH_SOURCE_BYTES * 3 / 2),
            ("a datagram of every source that is told apart", SEARCH_LEAST_BYTES, SEARCH_BYTES),
        ] {
            assert!(limit >= least, "{limit} has no room for {what}, {least}");
        }
    }
}
