//! Selects the searches that are replied to when there are too many.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Instant;

use fodo_data::Now;

use crate::limit;

/// The address by which limits count a client: of IPv4 its own, of IPv6 the network of 64 bits that it is in, because one host
/// can use all addresses of such a network.
///
/// ```
/// use fodo_engine::shares::counted_address;
///
/// let counted = |text: &str| counted_address(text.parse().unwrap()).to_string();
/// assert_eq!(counted("2001:db8::1:2:3:4"), "2001:db8::");
/// assert_eq!(counted("192.0.2.7"), "192.0.2.7");
/// assert_eq!(counted("::ffff:192.0.2.7"), "192.0.2.7", "an address of IPv4 as IPv6 writes it");
/// ```
pub fn counted_address(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
    }
}

/// Limits how many searches from each source a server processes.
///
/// A source is a [`counted_address`]. Time is divided into spans. In each span every source has a share, and all sources
/// together have a total. When the total is used up, every source still has an equal part of it, and one datagram at least.
/// A source that floods the server therefore costs others only the time to drop its datagrams.
#[derive(Debug)]
pub struct SearchShares {
    source_bytes_max: usize,
    all_bytes_max: usize,
    since: Option<Instant>,
    used_bytes: usize,
    used_by_source: HashMap<IpAddr, usize>,
    /// Bytes used by sources that are not counted separately because the table is full.
    used_by_others: usize,
}

impl SearchShares {
    /// Creates limits in bytes for one source and for all sources together, in [`limit::SEARCH_SHARE`].
    pub fn new(source_bytes_max: usize, all_bytes_max: usize) -> SearchShares {
        SearchShares {
            source_bytes_max,
            all_bytes_max,
            since: None,
            used_bytes: 0,
            used_by_source: HashMap::new(),
            used_by_others: 0,
        }
    }

    /// Whether to process a datagram of this size. Rejected datagrams do not count against their source.
    pub fn admits(&mut self, source: IpAddr, n_bytes: usize, now: Now) -> bool {
        let source = counted_address(source);
        let is_over = |since: Instant| now.monotonic.saturating_duration_since(since) >= limit::SEARCH_SHARE;
        if self.since.is_none_or(is_over) {
            self.since = Some(now.monotonic);
            self.used_bytes = 0;
            self.used_by_source.clear();
            self.used_by_others = 0;
        }
        let is_known = self.used_by_source.contains_key(&source);
        let has_place = is_known || self.used_by_source.len() < limit::SEARCH_SOURCES;
        let n_sources = self.used_by_source.len() + usize::from(!is_known);
        let used = match has_place {
            true => self.used_by_source.entry(source).or_default(),
            false => &mut self.used_by_others,
        };
        let is_scarce = self.used_bytes + n_bytes > self.all_bytes_max;
        let part = (self.all_bytes_max / n_sources).max(limit::SEARCH_LEAST_BYTES);
        let share = if is_scarce { part.min(self.source_bytes_max) } else { self.source_bytes_max };
        if *used + n_bytes > share {
            return false;
        }
        *used += n_bytes;
        self.used_bytes += n_bytes;
        true
    }
}

impl Default for SearchShares {
    fn default() -> SearchShares {
        SearchShares::new(limit::SEARCH_SOURCE_BYTES, limit::SEARCH_ALL_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATAGRAM: usize = 1024;

    fn source(number: u32) -> IpAddr {
        IpAddr::from((0x0a00_0000 + number).to_be_bytes())
    }

    /// How many datagrams of each source are admitted, if `demands` gives the number from each and they arrive in turn.
    fn admitted(shares: &mut SearchShares, demands: &[(u32, usize)], now: Now) -> Vec<usize> {
        let n_rounds = demands.iter().map(|(_, n)| *n).max().unwrap_or(0);
        let mut admitted = vec![0; demands.len()];
        for round in 0..n_rounds {
            for (used, (number, n)) in admitted.iter_mut().zip(demands) {
                *used += usize::from(round < *n && shares.admits(source(*number), DATAGRAM, now));
            }
        }
        admitted
    }

    // Row 5 of docs/reference/faults.md.
    #[test]
    fn a_flooding_source_is_limited_to_its_share_and_other_sources_are_unaffected() {
        let mut shares = SearchShares::new(100 * DATAGRAM, 1000 * DATAGRAM);

        let admitted = admitted(&mut shares, &[(1, 100_000), (2, 100), (3, 1)], Now::for_test());

        assert_eq!(admitted, [100, 100, 1]);
    }

    // Row 5 of docs/reference/faults.md.
    #[test]
    fn a_late_source_gets_an_equal_share_after_the_total_is_used_up() {
        let mut shares = SearchShares::new(100 * DATAGRAM, 1000 * DATAGRAM);
        let now = Now::for_test();
        let flood: Vec<(u32, usize)> = (0..20).map(|number| (number, 100_000)).collect();
        let by_flood: usize = admitted(&mut shares, &flood, now).iter().sum();

        let late = admitted(&mut shares, &[(20, 100_000)], now);

        assert!((1000..=1100).contains(&by_flood), "{by_flood}");
        assert_eq!(late, [1000 / 21]);
    }

    // Row 5 of docs/reference/faults.md.
    #[test]
    fn the_addresses_of_a_network_of_ipv6_have_one_share_and_another_network_has_its_own() {
        let mut shares = SearchShares::new(100 * DATAGRAM, 1000 * DATAGRAM);
        let now = Now::for_test();
        let mut n_admitted = |network: u128| {
            let addresses = (0..1000).map(|host| IpAddr::V6(Ipv6Addr::from_bits((network << 64) | (host << 40))));
            addresses.filter(|&address| shares.admits(address, DATAGRAM, now)).count()
        };

        assert_eq!([0x2001_0db8 << 32, (0x2001_0db8 << 32) + 1].map(&mut n_admitted), [100, 100]);
    }

    // Row 5 of docs/reference/faults.md.
    #[test]
    fn searches_from_a_million_forged_sources_use_bounded_work_and_memory() {
        let mut shares = SearchShares::default();
        let now = Now::for_test();

        let n_admitted = (0..1_000_000).filter(|number| shares.admits(source(*number), DATAGRAM, now)).count();

        // The total, and one datagram for each source in the table.
        assert!(n_admitted * DATAGRAM <= limit::SEARCH_ALL_BYTES + limit::SEARCH_SOURCES * limit::SEARCH_LEAST_BYTES);
        assert!(shares.used_by_source.len() <= limit::SEARCH_SOURCES);
    }

    // Row 5 of docs/reference/faults.md.
    #[test]
    fn a_source_that_used_up_its_share_is_admitted_in_the_next_period() {
        let mut shares = SearchShares::new(100 * DATAGRAM, 1000 * DATAGRAM);
        let now = Now::for_test();
        admitted(&mut shares, &[(1, 100_000)], now);

        assert!(!shares.admits(source(1), DATAGRAM, now + limit::SEARCH_SHARE.mul_f64(0.99)));
        assert!(shares.admits(source(1), DATAGRAM, now + limit::SEARCH_SHARE));
    }

    #[test]
    fn a_source_may_use_its_share_to_the_last_byte() {
        let now = Now::for_test();
        let mut shares = SearchShares::new(100, 1000);

        assert!(shares.admits(source(1), 99, now));
        assert!(!shares.admits(source(1), 2, now), "one byte too much");
        assert!(shares.admits(source(1), 1, now), "what is rejected does not count");
        assert!(!shares.admits(source(1), 1, now));
    }

    #[test]
    fn a_share_is_reduced_from_the_first_byte_beyond_the_total() {
        const LEAST: usize = limit::SEARCH_LEAST_BYTES;
        for (n_bytes, is_admitted) in [(9 * LEAST, true), (9 * LEAST + 1, false), (5 * LEAST, true)] {
            let now = Now::for_test();
            let mut shares = SearchShares::new(10 * LEAST, 10 * LEAST);
            assert!(shares.admits(source(1), LEAST, now));

            assert_eq!(shares.admits(source(2), n_bytes, now), is_admitted, "{n_bytes}");
        }

        let now = Now::for_test();
        let mut shares = SearchShares::new(100, 1000);
        let n_full = (0..12).filter(|number| shares.admits(source(*number), 100, now)).count();
        assert_eq!(n_full, 12, "the least share is limited by that of a source");
        assert!(!shares.admits(source(12), 101, now));
    }

    #[test]
    fn sources_beyond_the_table_share_one_allowance_in_each_period() {
        let now = Now::for_test();
        let mut shares = SearchShares::new(100, usize::MAX);
        let n_sources = limit::SEARCH_SOURCES as u32;
        for now in [now, now + limit::SEARCH_SHARE] {
            assert!((0..n_sources).all(|number| shares.admits(source(number), 60, now)));

            assert!(shares.admits(source(n_sources), 60, now));
            assert!(!shares.admits(source(n_sources + 1), 60, now));
            assert!(shares.admits(source(n_sources + 2), 40, now));
            assert!(shares.admits(source(0), 40, now), "a source in the table has its own share");
        }
    }

    #[test]
    fn the_default_shares_are_the_limits() {
        let now = Now::for_test();

        for (n_bytes, is_admitted) in [(limit::SEARCH_SOURCE_BYTES, true), (limit::SEARCH_SOURCE_BYTES + 1, false)] {
            assert_eq!(SearchShares::default().admits(source(1), n_bytes, now), is_admitted);
        }
    }
}
