//! Every bound of this crate, with its reason.

use std::time::Duration;

/// The time span over which the searches of a source are counted; a source that used up its share waits at most this
/// long.
pub const SEARCH_SHARE: Duration = Duration::from_millis(250);

/// Maximum bytes of searches from one source in [`SEARCH_SHARE`]: a quarter of a million names, more than any client
/// searches for at once.
pub const SEARCH_SOURCE_BYTES: usize = 10 * 1024 * 1024;

/// Maximum bytes of searches from all sources in [`SEARCH_SHARE`]. Replying to this many keeps half a core busy.
pub const SEARCH_ALL_BYTES: usize = 16 * 1024 * 1024;

/// The share of each source when the total is used up, however many sources there are: one full datagram.
pub const SEARCH_LEAST_BYTES: usize = 1472;

/// Maximum number of sources counted separately; further sources in the same time span share one allowance. More than a
/// site has hosts.
pub const SEARCH_SOURCES: usize = 4096;

/// Size of the pieces in which an array is encoded. One piece stays in the second-level cache until the socket has
/// taken it.
pub const PIECE_BYTES: usize = 128 * 1024;

/// The minimum time between two searches for a name, and the first wait for a reply.
pub const SEARCH_PERIOD_MIN: Duration = Duration::from_millis(32);

/// The maximum time between two searches for a name that no server claims.
pub const SEARCH_PERIOD_MAX: Duration = Duration::from_secs(300);

/// The search period from which on periods vary widely: a name that has been absent this long is not urgent.
pub const SEARCH_PERIOD_LONG: Duration = Duration::from_secs(60);

/// Maximum number of search datagrams sent before any reply arrives; more would be lost in the receive buffers of
/// servers.
pub const SEARCH_BURST: usize = 64;

/// How long to wait for replies before sending more datagrams anyway: servers that do not have the names send no reply.
pub const SEARCH_PAUSE: Duration = Duration::from_millis(2);

/// Search times are rounded to whole multiples of this, so that names share datagrams.
pub const SEARCH_GRID: Duration = Duration::from_millis(16);

/// The first searches for the channels of a lost server are spread over this time, so that its clients do not all
/// search at the same moment, and no client waits for long.
pub const LOST_SPREAD: Duration = Duration::from_millis(50);

/// From this period on, the search period of a name whose server was lost grows by a quarter with each search instead
/// of doubling. A server that restarts elsewhere is found soon, at a cost of twenty searches per name in the first
/// minute.
pub const LOST_PERIOD: Duration = Duration::from_secs(1);

/// After a search boost, the searches for all names are spread over this time.
pub const BOOST_SPREAD: Duration = Duration::from_millis(100);

/// The period after a boosted search, which doubles again from there: the boosted search may be lost, or arrive before
/// a server that has just started listens. libca waits for 8 s.
pub const BOOST_PERIOD: Duration = Duration::from_secs(1);

/// The minimum and maximum pause between two search boosts. Even with forged beacons, a hundred thousand names cost no
/// more than a few hundred datagrams per second.
pub const BOOST_PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));

#[cfg(test)]
mod tests {
    use super::*;

    /// A limit that loses a factor would reject what its reason promises to allow.
    #[test]
    fn limits_have_room_for_what_their_reasons_name() {
        for (what, limit, least) in [
            ("a quarter of a million searches of 40 bytes", SEARCH_SOURCE_BYTES, 250_000 * 40),
            ("a hundred replies of a kilobyte in a piece", PIECE_BYTES, 100 * 1024),
            ("one and a half times that from all sources", SEARCH_ALL_BYTES, SEARCH_SOURCE_BYTES * 3 / 2),
        ] {
            assert!(limit >= least, "{limit} is too small for {what}, {least}");
        }
    }
}
