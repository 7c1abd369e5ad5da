//! Limits how many datagrams a server accepts from one address, with a token bucket for each.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::limit;

/// How many datagrams a server accepts from one address. The source of a datagram can be forged, so a flood can also stop
/// the requests of the address that it claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FloodLimits {
    /// Datagrams in a second; 0 stands for 1.
    pub requests_per_s: u32,
    /// Datagrams in a second that the key of the project does not decrypt; 0 stands for 1. Discoveries are among them.
    pub strangers_per_s: u32,
}

impl Default for FloodLimits {
    fn default() -> FloodLimits {
        FloodLimits { requests_per_s: limit::REQUESTS_PER_S_DEFAULT, strangers_per_s: limit::STRANGERS_PER_S_DEFAULT }
    }
}

/// The buckets of each address that has recently sent datagrams.
pub(super) struct FloodGuard {
    requests: TokenRate,
    strangers: TokenRate,
    sources: HashMap<IpAddr, SourceBuckets>,
    /// For all addresses for which there is no space.
    others: SourceBuckets,
    /// When full buckets may be removed again; it takes a look at all of them.
    next_cleaning: Option<Instant>,
}

/// When the bucket is full again; `None` when it is.
type FullAt = Option<Instant>;

#[derive(Clone, Copy, Default)]
struct SourceBuckets {
    requests: FullAt,
    strangers: FullAt,
}

/// A token each `period`, and space for the tokens of `burst`.
#[derive(Clone, Copy)]
struct TokenRate {
    period: Duration,
    burst: Duration,
}

impl TokenRate {
    fn new(per_s: u32) -> TokenRate {
        let period = Duration::from_secs(1) / per_s.max(1);
        TokenRate { period, burst: limit::FLOOD_BURST.max(period) }
    }

    /// Removes a token; false if there is none.
    fn take(self, full_at: &mut FullAt, now: Instant) -> bool {
        let after = full_at.map_or(now, |at| at.max(now)) + self.period;
        if after - now > self.burst {
            return false;
        }
        *full_at = Some(after);
        true
    }
}

impl FloodGuard {
    pub(super) fn new(limits: FloodLimits) -> FloodGuard {
        FloodGuard {
            requests: TokenRate::new(limits.requests_per_s),
            strangers: TokenRate::new(limits.strangers_per_s),
            sources: HashMap::new(),
            others: SourceBuckets::default(),
            next_cleaning: None,
        }
    }

    /// Whether a datagram is accepted. Call it before any key is tried.
    pub(super) fn admits_request(&mut self, from: IpAddr, now: Instant) -> bool {
        let rate = self.requests;
        rate.take(&mut self.buckets(from, now).requests, now)
    }

    /// Whether a datagram is accepted that the key of the project does not decrypt.
    pub(super) fn admits_stranger(&mut self, from: IpAddr, now: Instant) -> bool {
        let rate = self.strangers;
        rate.take(&mut self.buckets(from, now).strangers, now)
    }

    pub(super) fn n_sources(&self) -> usize {
        self.sources.len()
    }

    fn buckets(&mut self, from: IpAddr, now: Instant) -> &mut SourceBuckets {
        if self.sources.len() >= limit::FLOOD_SOURCES_MAX && !self.sources.contains_key(&from) {
            if self.next_cleaning.is_none_or(|at| at <= now) {
                self.next_cleaning = Some(now + limit::FLOOD_BURST);
                let is_full = |at: FullAt| at.is_none_or(|at| at <= now);
                self.sources.retain(|_, buckets| !is_full(buckets.requests) || !is_full(buckets.strangers));
            }
            if self.sources.len() >= limit::FLOOD_SOURCES_MAX {
                return &mut self.others;
            }
        }
        self.sources.entry(from).or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use fodo_data::Now;

    use super::*;

    fn address(number: u32) -> IpAddr {
        Ipv4Addr::from(0x0a00_0000 + number).into()
    }

    #[test]
    fn an_address_has_a_burst_and_then_its_rate() {
        let start = Now::for_test().monotonic;
        let mut guard = FloodGuard::new(FloodLimits { requests_per_s: 10, strangers_per_s: 1 });
        let mut admitted = |at: Duration| (0..100).filter(|_| guard.admits_request(address(1), start + at)).count();

        assert_eq!(admitted(Duration::ZERO), 10);
        assert_eq!(admitted(Duration::from_millis(350)), 3);
        assert_eq!(admitted(Duration::from_secs(60)), 10);
    }

    #[test]
    fn addresses_and_kinds_of_datagrams_do_not_share_a_bucket() {
        let start = Now::for_test().monotonic;
        let mut guard = FloodGuard::new(FloodLimits { requests_per_s: 1, strangers_per_s: 1 });

        assert!(guard.admits_request(address(1), start));
        assert!(!guard.admits_request(address(1), start));
        assert!(guard.admits_stranger(address(1), start));
        assert!(guard.admits_request(address(2), start));
    }

    #[test]
    fn memory_for_addresses_is_bounded_and_the_rest_share_one_bucket() {
        let start = Now::for_test().monotonic;
        let mut guard = FloodGuard::new(FloodLimits { requests_per_s: 1, strangers_per_s: 1 });
        let n_known = limit::FLOOD_SOURCES_MAX as u32;

        let n_admitted = (0..2 * n_known).filter(|number| guard.admits_request(address(*number), start)).count();
        assert_eq!(n_admitted, limit::FLOOD_SOURCES_MAX + 1);
        assert_eq!(guard.n_sources(), limit::FLOOD_SOURCES_MAX);

        assert!(guard.admits_request(address(3 * n_known), start + Duration::from_secs(5)));
        assert_eq!(guard.n_sources(), 1);
    }
}
