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

#[cfg(test)]
mod tests {
    use super::*;

    /// A limit that loses a factor would reject what its reason promises to allow.
    #[test]
    fn limits_have_room_for_what_their_reasons_name() {
        for (what, limit, least) in [
            ("a quarter of a million searches of 40 bytes", SEARCH_SOURCE_BYTES, 250_000 * 40),
            ("one and a half times that from all sources", SEARCH_ALL_BYTES, SEARCH_SOURCE_BYTES * 3 / 2),
        ] {
            assert!(limit >= least, "{limit} is too small for {what}, {least}");
        }
    }
}
