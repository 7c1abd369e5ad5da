//! Selects the searches that are replied to when there are too many.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Instant;

use fodo_data::Now;

use crate::limit;

/// Limits how many searches from each source a server processes.
///
/// Time is divided into spans. In each span every source has a share, and all sources together have a total. When the
/// total is used up, every source still has an equal part of it, and one datagram at least. A source that floods the
/// server therefore costs others only the time to drop its datagrams.
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
}
