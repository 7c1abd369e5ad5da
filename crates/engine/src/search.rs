//! The pace of searches: when to search for which name again, and how much to send at once.

mod name;
mod report;
mod searcher;

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

pub use self::name::HasName;
use self::name::SearchedName;
pub use self::report::{Anomaly, Claim, ClaimedServer, Transport};
pub use self::searcher::{NameSearcher, is_endpoint};
use crate::{Cid, NumberMap, limit};

/// The names being searched for, and when to search for each of them again.
///
/// A name is searched for immediately, then with periods that double from 32 ms to 300 s, or to the maximum set with
/// [`SearchSchedule::set_period_max`]. The number of datagrams is limited by the replies and by the time since the last
/// ones, so that a hundred thousand names do not overload servers.
///
/// To search, the caller takes each name from [`SearchSchedule::next_due`], adds it to a datagram and reports this with
/// [`SearchSchedule::searched`]. It sends at most [`SearchSchedule::n_datagrams_max`] datagrams and reports how many
/// with [`SearchSchedule::sent`].
///
/// `N`: the owner of the name, so that a client that searches for a million names need not store them twice.
#[derive(Debug)]
pub struct SearchSchedule<N> {
    names: NumberMap<Cid, SearchedName<N>>,
    /// Names by the time of their next search. Entries of names that were removed or rescheduled are skipped.
    due: BTreeMap<Instant, VecDeque<Cid>>,
    jitter: u64,
    /// Datagrams that may still be in the receive buffers of servers: sent since the last pause, and not replied to.
    n_unanswered: usize,
    /// When these datagrams count as read, with or without replies, if nothing is sent or received before.
    pause_until: Option<Instant>,
    /// The first time seen, the origin of the time grid.
    origin: Option<Instant>,
    period_max: Duration,
    boost: BoostState,
}

/// How often all names may be searched for at once; the comment says what is awaited.
#[derive(Clone, Copy, Debug)]
enum BoostState {
    /// The next reason for a boost.
    Ready,
    /// The end of the pause after a boost. The pause doubles with each boost that follows soon.
    Resting { until: Instant, pause: Duration },
    /// The same, with the next boost already requested.
    Requested { until: Instant, pause: Duration },
}

impl<N> SearchSchedule<N> {
    /// Creates a schedule without names. `seed` varies the jitter between processes.
    pub fn new(seed: u64) -> SearchSchedule<N> {
        SearchSchedule {
            names: NumberMap::default(),
            due: BTreeMap::new(),
            jitter: seed | 1,
            n_unanswered: 0,
            pause_until: None,
            origin: None,
            period_max: limit::SEARCH_PERIOD_MAX,
            boost: BoostState::Ready,
        }
    }

    /// Sets the maximum time between two searches for a name.
    pub fn set_period_max(&mut self, period_max: Duration) {
        self.period_max = period_max.max(limit::SEARCH_PERIOD_MIN);
    }

    /// Starts searching for a name after a pause, for example when a server claims a name that it does not serve. Later
    /// periods start at the pause.
    pub fn add_after(&mut self, cid: Cid, name: N, pause: Duration, now: Instant) {
        let at = now + pause;
        self.names.insert(cid, SearchedName::new(name, at, pause.max(limit::SEARCH_PERIOD_MIN)));
        self.due.entry(at).or_default().push_back(cid);
    }

    /// Starts searching for a name whose server was lost: soon, in the same datagrams as other names of that server,
    /// but not in step with other clients. Later periods grow slowly, so that the name is found within about a quarter
    /// of the time for which no server had it.
    pub fn add_lost(&mut self, cid: Cid, name: N, now: Instant) {
        let at = self.soon(now, limit::LOST_SPREAD);
        let mut name = SearchedName::new(name, at, limit::SEARCH_PERIOD_MIN);
        name.is_lost = true;
        self.names.insert(cid, name);
        self.due.entry(at).or_default().push_back(cid);
    }

    /// A time within `spread` from now, on a grid so that neighbours share datagrams.
    fn soon(&mut self, now: Instant, spread: Duration) -> Instant {
        let origin = *self.origin.get_or_insert(now);
        on_grid(origin, now + spread.mul_f64(self.chance()), limit::SEARCH_GRID)
    }

    /// A random number from 0 to 1.
    fn chance(&mut self) -> f64 {
        self.jitter = self.jitter.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.jitter >> 40) as f64 / (1 << 24) as f64
    }

    /// Requests a search for all names, because names may now be found that were not found before: a server has
    /// started, or a network has come up. The searches are sent within [`limit::BOOST_SPREAD`], or later if the
    /// previous boost was recent.
    pub fn boost(&mut self, now: Instant) {
        match self.boost {
            BoostState::Ready => self.boost_now(now, limit::BOOST_PAUSES.0),
            BoostState::Resting { until, pause } => self.boost = BoostState::Requested { until, pause },
            BoostState::Requested { .. } => {}
        }
    }

    fn boost_now(&mut self, now: Instant, pause: Duration) {
        self.boost = BoostState::Resting { until: now + pause, pause };
        let late: Vec<Cid> = self.due.range(now + limit::BOOST_SPREAD..).flat_map(|(_, cids)| cids).copied().collect();
        // The rest of the list is due before that anyway.
        drop(self.due.split_off(&(now + limit::BOOST_SPREAD)));
        for cid in late {
            if self.names.get(cid).is_none_or(|name| name.at < now + limit::BOOST_SPREAD) {
                continue;
            }
            let at = self.soon(now, limit::BOOST_SPREAD);
            if let Some(name) = self.names.get_mut(cid) {
                name.at = at;
                name.set_period(name.period().min(limit::BOOST_PERIOD));
            }
            self.due.entry(at).or_default().push_back(cid);
        }
    }

    fn tick_boost(&mut self, now: Instant) {
        match self.boost {
            BoostState::Requested { until, pause } if until <= now => {
                self.boost_now(now, (pause * 2).min(limit::BOOST_PAUSES.1));
            }
            // No boost was requested for another pause.
            BoostState::Resting { until, pause } if until + pause <= now => self.boost = BoostState::Ready,
            _ => {}
        }
    }

    /// Stops searching for a name; returns whether it was being searched for.
    pub fn remove(&mut self, cid: Cid) -> bool {
        self.names.remove(cid).is_some()
    }

    /// The number of names being searched for.
    pub fn n_names(&self) -> usize {
        self.names.len()
    }

    /// A server has read one datagram, so another may be sent.
    pub fn answered(&mut self, now: Instant) {
        self.n_unanswered = self.n_unanswered.saturating_sub(1);
        self.pause_until = Some(now + limit::SEARCH_PAUSE);
    }

    /// Performs actions that are due at `now`. Call it after processing all received datagrams.
    pub fn tick(&mut self, now: Instant) {
        self.tick_boost(now);
        if self.pause_until.is_some_and(|until| until <= now) {
            (self.n_unanswered, self.pause_until) = (0, None);
        }
    }

    /// How many datagrams may be sent now.
    pub fn n_datagrams_max(&self) -> usize {
        limit::SEARCH_BURST.saturating_sub(self.n_unanswered)
    }

    /// Removes the next name that is due from the schedule. The caller passes it to [`SearchSchedule::searched`] or to
    /// [`SearchSchedule::put_back`].
    pub fn next_due(&mut self, now: Instant) -> Option<(Cid, &N)> {
        self.origin.get_or_insert(now);
        let cid = self.pop_due(now)?;
        Some((cid, &self.names.get(cid)?.owner))
    }

    /// Returns a name for which no datagram is left; it is the next one.
    pub fn put_back(&mut self, cid: Cid) {
        if let Some(name) = self.names.get(cid) {
            self.due.entry(name.at).or_default().push_front(cid);
        }
    }

    /// Schedules the next search for a name that has just been searched for.
    pub fn searched(&mut self, cid: Cid, now: Instant) {
        let origin = *self.origin.get_or_insert(now);
        // Adds up to a quarter, so that names of a lost server do not get back in step. Long periods may also shrink to
        // two fifths; otherwise names that started together would be searched for in waves for a quarter of an hour.
        let chance = self.chance();
        let Some(name) = self.names.get_mut(cid) else { return };
        let period = name.period();
        let ahead = match period {
            period if period < limit::SEARCH_PERIOD_LONG => period + (period / 4).mul_f64(chance),
            period => (period / 5) * 2 + period.mul_f64(0.85 * chance),
        };
        // The grid is coarser for longer periods, so that names due at about the same time share datagrams.
        name.at = on_grid(origin, now + ahead, (period / 32).max(limit::SEARCH_GRID));
        let next = match name.is_lost && period >= limit::LOST_PERIOD {
            true => period + period / 4,
            false => period * 2,
        };
        name.set_period(next.min(self.period_max));
        self.due.entry(name.at).or_default().push_back(cid);
    }

    /// Reports how many datagrams were sent.
    pub fn sent(&mut self, n_datagrams: usize, now: Instant) {
        self.n_unanswered += n_datagrams;
        if n_datagrams > 0 {
            self.pause_until = Some(now + limit::SEARCH_PAUSE);
        }
    }

    /// The latest time to search again and to call [`SearchSchedule::tick`].
    pub fn deadline(&self) -> Option<Instant> {
        let due = *self.due.first_key_value()?.0;
        let is_full = self.n_unanswered >= limit::SEARCH_BURST;
        let due = self.pause_until.filter(|_| is_full).map_or(due, |until| until.max(due));
        Some(match self.boost {
            BoostState::Requested { until, .. } => due.min(until),
            _ => due,
        })
    }

    /// The next name that is due.
    fn pop_due(&mut self, now: Instant) -> Option<Cid> {
        loop {
            let mut first = self.due.first_entry()?;
            if *first.key() > now {
                return None;
            }
            let at = *first.key();
            let cid = first.get_mut().pop_front();
            if first.get().is_empty() {
                first.remove();
            }
            if let Some(cid) = cid
                && self.names.get(cid).is_some_and(|name| name.at == at)
            {
                return Some(cid);
            }
        }
    }
}

/// The first time at or after `at` that is a whole number of steps after the origin.
fn on_grid(origin: Instant, at: Instant, step: Duration) -> Instant {
    let step_ms = (step.as_millis() as u64).max(1);
    let since_origin_ms = at.saturating_duration_since(origin).as_millis() as u64;
    origin + Duration::from_millis(since_origin_ms.div_ceil(step_ms) * step_ms)
}

#[cfg(test)]
mod tests {
    use fodo_data::Now;

    use super::*;

    const NAMES_PER_DATAGRAM: usize = 40;

    /// Searches for the names that are due, in as many datagrams as may be sent, and returns their numbers.
    fn send(schedule: &mut SearchSchedule<()>, now: Instant) -> Vec<u32> {
        let n_names_max = schedule.n_datagrams_max() * NAMES_PER_DATAGRAM;
        let mut searched = Vec::new();
        while let Some((cid, _)) = schedule.next_due(now) {
            if searched.len() == n_names_max {
                schedule.put_back(cid);
                break;
            }
            schedule.searched(cid, now);
            searched.push(cid.0);
        }
        schedule.sent(searched.len().div_ceil(NAMES_PER_DATAGRAM), now);
        searched
    }

    /// Searches and returns the time of the next search.
    fn tick(schedule: &mut SearchSchedule<()>, now: Instant) -> Instant {
        schedule.tick(now);
        send(schedule, now);
        schedule.deadline().expect("a name is searched for until it is found")
    }

    /// The times of all searches until `until`, and the number of each name.
    fn searches(schedule: &mut SearchSchedule<()>, mut now: Instant, until: Instant) -> Vec<(Duration, u32)> {
        let (start, mut seen) = (now, Vec::new());
        while now < until {
            schedule.tick(now);
            seen.extend(send(schedule, now).into_iter().map(|cid| (now - start, cid)));
            let Some(next) = schedule.deadline() else { break };
            now += next.saturating_duration_since(now).max(Duration::from_micros(1));
        }
        seen
    }

    /// The times of the searches for one absent name, during `time` after its start.
    fn search_times(seed: u64, time: Duration) -> Vec<Duration> {
        let start = Now::for_test().monotonic;
        let mut schedule = SearchSchedule::new(seed);
        schedule.add_after(Cid(1), (), Duration::ZERO, start);
        searches(&mut schedule, start, start + time).into_iter().map(|(at, _)| at).collect()
    }

    #[test]
    fn a_lost_name_is_searched_within_a_third_of_its_time_offline() {
        for seed in 1..20 {
            let start = Now::for_test().monotonic;
            let mut schedule = SearchSchedule::new(seed);
            schedule.add_lost(Cid(1), (), start);
            let (mut now, mut n_searches) = (start, 0);

            while now < start + Duration::from_secs(300) {
                schedule.tick(now);
                n_searches += send(&mut schedule, now).len();
                let next = schedule.deadline().expect("a name is searched for until it is found");
                let away = now - start;
                assert!(next - now < away / 3 + limit::LOST_PERIOD * 2, "{:?} after {away:?}", next - now);
                now += (next - now).max(Duration::from_micros(1));
            }

            assert!(n_searches < 40, "{n_searches} searches in five minutes");
        }
    }

    #[test]
    fn the_periods_between_searches_double_from_32_ms_to_300_s() {
        let times = search_times(8, Duration::from_secs(7200));

        let mut period = limit::SEARCH_PERIOD_MIN;
        assert_eq!(times[0], Duration::ZERO);
        for pair in times.windows(2) {
            let gap = pair[1] - pair[0];
            let least = if period < limit::SEARCH_PERIOD_LONG { period } else { period * 2 / 5 };
            let most = period * 5 / 4 + limit::SEARCH_GRID.max(period / 32);
            assert!((least..=most).contains(&gap), "{gap:?} is not a period of {period:?}");
            period = (period * 2).min(limit::SEARCH_PERIOD_MAX);
        }
        assert_eq!(period, limit::SEARCH_PERIOD_MAX);
    }

    #[test]
    fn clients_that_start_together_do_not_search_in_step() {
        let clients: Vec<Vec<Duration>> =
            (0..100).map(|seed| search_times(seed * 977, Duration::from_secs(3600))).collect();
        let range_of_gap = |index: usize| {
            let gaps = clients.iter().map(|times| (times[index + 1] - times[index]).as_secs_f64());
            (gaps.clone().fold(f64::MAX, f64::min), gaps.fold(0.0, f64::max))
        };

        // The ninth period is 8.192 s, the sixteenth is the longest.
        let (least, most) = range_of_gap(8);
        assert!(least < 8.8 && most > 9.7, "{least} to {most}");
        let (least, most) = range_of_gap(15);
        assert!(least < 150.0 && most > 340.0, "{least} to {most}");
    }

    #[test]
    fn a_full_burst_waits_for_a_reply_or_for_the_pause() {
        let start = Now::for_test().monotonic;
        let mut schedule = SearchSchedule::new(10);
        (0..10_000).for_each(|cid| schedule.add_after(Cid(cid), (), Duration::ZERO, start));
        let n_burst = (limit::SEARCH_BURST * NAMES_PER_DATAGRAM) as u32;
        let n_answered = n_burst + NAMES_PER_DATAGRAM as u32;
        let answered_at = start + limit::SEARCH_PAUSE / 2;

        assert_eq!(send(&mut schedule, start), (0..n_burst).collect::<Vec<_>>());
        assert_eq!((schedule.n_datagrams_max(), schedule.deadline()), (0, Some(start + limit::SEARCH_PAUSE)));
        schedule.answered(answered_at);
        assert_eq!(send(&mut schedule, answered_at), (n_burst..n_answered).collect::<Vec<_>>());
        assert_eq!(tick(&mut schedule, start + limit::SEARCH_PAUSE), answered_at + limit::SEARCH_PAUSE);
        schedule.tick(answered_at + limit::SEARCH_PAUSE);
        let after_the_pause = send(&mut schedule, answered_at + limit::SEARCH_PAUSE);

        assert_eq!(after_the_pause, (n_answered..n_answered + n_burst).collect::<Vec<_>>());
    }

    #[test]
    fn a_removed_name_is_not_due_and_no_names_mean_no_deadline() {
        let start = Now::for_test().monotonic;
        let mut schedule = SearchSchedule::new(13);
        assert_eq!(schedule.deadline(), None);
        (1..=2).for_each(|cid| schedule.add_after(Cid(cid), (), Duration::ZERO, start));

        assert_eq!((schedule.remove(Cid(1)), schedule.remove(Cid(1))), (true, false));

        assert_eq!((schedule.n_names(), send(&mut schedule, start)), (1, vec![2]));
    }

    #[test]
    fn a_name_added_with_a_pause_is_searched_after_it_and_then_at_longer_periods() {
        let start = Now::for_test().monotonic;
        let mut schedule = SearchSchedule::new(14);
        let pause = Duration::from_secs(8);
        schedule.add_after(Cid(1), (), pause, start);

        let times: Vec<Duration> =
            searches(&mut schedule, start, start + pause * 3).into_iter().map(|(at, _)| at).collect();

        assert_eq!((times.len(), times[0]), (2, pause));
        assert!((pause * 2..=pause * 2 + pause / 4 + pause / 32).contains(&times[1]), "{times:?}");
    }

    #[test]
    fn the_maximum_search_period_is_respected_and_at_least_the_minimum() {
        for (period_max, expected) in [(Duration::ZERO, 50..=100), (limit::SEARCH_PERIOD_MIN * 4, 10..=30)] {
            let start = Now::for_test().monotonic;
            let mut schedule = SearchSchedule::new(15);
            schedule.set_period_max(period_max);
            schedule.add_after(Cid(1), (), Duration::ZERO, start);

            let n_searches = searches(&mut schedule, start, start + limit::SEARCH_PERIOD_MIN * 100).len();

            assert!(expected.contains(&n_searches), "{n_searches}");
        }
    }

    #[test]
    fn a_boost_advances_late_names_and_does_not_delay_names_due_soon() {
        let start = Now::for_test().monotonic;
        let mut schedule = SearchSchedule::new(16);
        schedule.add_after(Cid(1), (), Duration::ZERO, start);
        let quiet = start + Duration::from_secs(3600);
        searches(&mut schedule, start, quiet);
        schedule.add_after(Cid(2), (), limit::BOOST_SPREAD / 2, quiet);

        schedule.boost(quiet);

        let seen = searches(&mut schedule, quiet, quiet + limit::BOOST_SPREAD + limit::SEARCH_GRID);
        assert!(seen.contains(&(limit::BOOST_SPREAD / 2, 2)), "{seen:?}");
        assert!(seen.iter().any(|(_, cid)| *cid == 1), "{seen:?}");
        let next = schedule.deadline().unwrap() - quiet;
        assert!(next < limit::BOOST_PERIOD * 2, "the boosted name is searched again after {next:?}");
    }

    #[test]
    fn repeated_boosts_wait_for_doubling_pauses_that_reset_after_a_quiet_time() {
        let start = Now::for_test().monotonic;
        let mut schedule = SearchSchedule::new(17);
        schedule.add_after(Cid(1), (), Duration::ZERO, start);
        let at = |seconds: f64| start + Duration::from_secs(3600) + Duration::from_secs_f64(seconds);
        searches(&mut schedule, start, at(0.0));
        schedule.boost(at(0.0));
        searches(&mut schedule, at(0.0), at(0.5));

        for (reason_s, heeded_s) in [(0.5, 1.0), (1.5, 3.0), (3.5, 7.0)] {
            schedule.boost(at(reason_s));
            schedule.boost(at(reason_s));
            searches(&mut schedule, at(reason_s), at(heeded_s - 0.01));
            assert_eq!(tick(&mut schedule, at(heeded_s - 0.01)), at(heeded_s));
            let next = tick(&mut schedule, at(heeded_s));
            assert!(next <= at(heeded_s) + limit::BOOST_SPREAD + limit::SEARCH_GRID);
            searches(&mut schedule, at(heeded_s), at(heeded_s + 0.5));
        }
        // The pause that began at 7 s ends at 15 s, followed by a quiet time of the same length.
        searches(&mut schedule, at(7.5), at(23.0));
        tick(&mut schedule, at(23.0));
        schedule.boost(at(23.1));
        let next = tick(&mut schedule, at(23.1));
        assert!(next <= at(23.1) + limit::BOOST_SPREAD + limit::SEARCH_GRID);
        schedule.boost(at(23.6));
        searches(&mut schedule, at(23.1), at(24.09));
        assert_eq!(tick(&mut schedule, at(24.09)), at(24.1));
    }

    /// A schedule with one name, of which the next period is this, and its number.
    fn with_period(seed: u64, period: Duration, now: Instant) -> (SearchSchedule<()>, Cid) {
        let mut schedule = SearchSchedule::new(seed);
        schedule.add_after(Cid(1), (), Duration::ZERO, now);
        schedule.names.get_mut(Cid(1)).unwrap().set_period(period);
        (schedule, Cid(1))
    }

    #[test]
    fn a_burst_has_a_maximum_of_datagrams_and_each_reply_permits_one_more() {
        let start = Now::for_test().monotonic;
        let mut schedule = SearchSchedule::<()>::new(18);
        schedule.sent(0, start);
        assert_eq!((schedule.n_datagrams_max(), schedule.pause_until), (limit::SEARCH_BURST, None));

        schedule.sent(limit::SEARCH_BURST - 1, start);
        assert_eq!(schedule.n_datagrams_max(), 1);
        schedule.sent(1, start);
        assert_eq!(schedule.n_datagrams_max(), 0);
        schedule.sent(1, start);
        assert_eq!(schedule.n_datagrams_max(), 0);
        schedule.answered(start);
        schedule.answered(start);
        assert_eq!(schedule.n_datagrams_max(), 1);

        schedule.tick(start + (limit::SEARCH_PAUSE - Duration::from_nanos(1)));
        assert_eq!(schedule.n_datagrams_max(), 1);
        schedule.tick(start + limit::SEARCH_PAUSE);
        assert_eq!((schedule.n_datagrams_max(), schedule.pause_until), (limit::SEARCH_BURST, None));
    }

    #[test]
    fn only_a_full_burst_delays_the_next_search() {
        let start = Now::for_test().monotonic;
        let mut schedule = SearchSchedule::new(19);
        schedule.add_after(Cid(1), (), Duration::ZERO, start);

        schedule.sent(limit::SEARCH_BURST - 1, start);
        assert_eq!(schedule.deadline(), Some(start));
        schedule.sent(1, start);
        assert_eq!(schedule.deadline(), Some(start + limit::SEARCH_PAUSE));
        schedule.remove(Cid(1));
        assert_eq!(schedule.next_due(start).map(|(cid, ())| cid), None);
        schedule.add_after(Cid(2), (), limit::SEARCH_PAUSE * 2, start);
        assert_eq!(schedule.deadline(), Some(start + limit::SEARCH_PAUSE * 2));
    }

    #[test]
    fn names_are_due_in_the_order_of_their_times_and_one_that_is_put_back_is_the_next() {
        let start = Now::for_test().monotonic;
        let mut schedule = SearchSchedule::new(20);
        let at = |ms| start + Duration::from_millis(ms);
        for (cid, name, ms) in [(1, "late", 20), (2, "first", 10), (3, "second", 10)] {
            schedule.add_after(Cid(cid), name, Duration::from_millis(ms), start);
        }
        assert_eq!(schedule.next_due(at(9)), None);

        assert_eq!(schedule.next_due(at(10)), Some((Cid(2), &"first")));
        schedule.put_back(Cid(2));
        schedule.put_back(Cid(99));
        assert_eq!(schedule.next_due(at(10)), Some((Cid(2), &"first")));
        assert_eq!(schedule.next_due(at(10)), Some((Cid(3), &"second")));
        assert_eq!(schedule.next_due(at(19)), None);
        assert_eq!(schedule.next_due(at(20)), Some((Cid(1), &"late")));
        assert_eq!((schedule.n_names(), schedule.deadline()), (3, None));
    }

    #[test]
    fn a_name_of_a_lost_server_doubles_its_period_only_below_a_second() {
        let start = Now::for_test().monotonic;
        let millisecond = Duration::from_millis(1);
        let below = limit::LOST_PERIOD - millisecond;
        for (is_lost, period, next) in [
            (true, below, below * 2),
            (true, limit::LOST_PERIOD, limit::LOST_PERIOD * 5 / 4),
            (false, limit::LOST_PERIOD, limit::LOST_PERIOD * 2),
        ] {
            let (mut schedule, cid) = with_period(21, period, start);
            schedule.names.get_mut(cid).unwrap().is_lost = is_lost;

            schedule.searched(cid, start);

            assert_eq!(schedule.names.get(cid).unwrap().period(), next, "{is_lost} {period:?}");
        }
    }

    #[test]
    fn periods_of_a_minute_and_longer_vary_widely_and_shorter_ones_only_grow() {
        let start = Now::for_test().monotonic;
        let ahead = |period: Duration| {
            let times = (0..500).map(|seed| {
                let (mut schedule, cid) = with_period(seed * 977, period, start);
                schedule.searched(cid, start);
                (schedule.names.get(cid).unwrap().at - start).as_secs_f64() / period.as_secs_f64()
            });
            let times: Vec<f64> = times.collect();
            (times.iter().copied().fold(f64::MAX, f64::min), times.iter().copied().fold(0.0, f64::max))
        };

        let (least, most) = ahead(limit::SEARCH_PERIOD_LONG - Duration::from_millis(1));
        assert!((1.0..1.06).contains(&least) && (1.22..1.29).contains(&most), "{least} to {most}");
        let (least, most) = ahead(limit::SEARCH_PERIOD_LONG);
        assert!((0.4..0.46).contains(&least) && (1.22..1.29).contains(&most), "{least} to {most}");
    }

    #[test]
    fn a_boost_keeps_every_name_including_one_due_at_the_end_of_its_spread() {
        let start = Now::for_test().monotonic;
        let nanosecond = Duration::from_nanos(1);
        let mut schedule = SearchSchedule::new(22);
        let pauses = [limit::BOOST_SPREAD - nanosecond, limit::BOOST_SPREAD, limit::BOOST_SPREAD + nanosecond];
        for (cid, pause) in (1..).zip(pauses) {
            schedule.add_after(Cid(cid), (), pause, start);
        }

        schedule.boost(start);

        let seen = searches(&mut schedule, start, start + limit::BOOST_SPREAD + limit::SEARCH_GRID);
        assert!(seen.contains(&(pauses[0], 1)), "{seen:?}");
        for cid in 1..=3 {
            assert!(seen.iter().any(|(_, searched)| *searched == cid), "{cid}: {seen:?}");
        }
    }

    #[test]
    fn the_pauses_between_boosts_double_from_a_second_up_to_five_minutes() {
        let mut now = Now::for_test().monotonic;
        let mut schedule = SearchSchedule::new(23);
        schedule.add_after(Cid(1), (), Duration::from_secs(3600), now);
        schedule.boost(now);

        let pauses: Vec<u64> = (0..11)
            .map(|_| {
                let BoostState::Resting { until, pause } = schedule.boost else { panic!("no pause") };
                assert_eq!(until, now + pause);
                schedule.boost(now);
                now = until;
                schedule.tick(now - Duration::from_nanos(1));
                assert!(matches!(schedule.boost, BoostState::Requested { .. }));
                schedule.tick(now);
                pause.as_secs()
            })
            .collect();

        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
    }

    #[test]
    fn a_requested_boost_is_a_deadline_unless_a_name_is_due_before() {
        let start = Now::for_test().monotonic;
        let mut schedule = SearchSchedule::new(24);
        schedule.boost(start);
        schedule.add_after(Cid(1), (), Duration::from_secs(10), start);
        assert_eq!(schedule.deadline(), Some(start + Duration::from_secs(10)));

        schedule.boost(start);
        assert_eq!(schedule.deadline(), Some(start + limit::BOOST_PAUSES.0));
        schedule.add_after(Cid(2), (), limit::BOOST_PAUSES.0 / 2, start);
        assert_eq!(schedule.deadline(), Some(start + limit::BOOST_PAUSES.0 / 2));
    }

    #[test]
    fn times_on_the_grid_are_whole_steps_after_the_origin() {
        let origin = Now::for_test().monotonic;
        let ms = Duration::from_millis;

        for (at, step, expected) in [(0, 16, 0), (1, 16, 16), (16, 16, 16), (17, 16, 32), (17, 0, 17)] {
            assert_eq!(
                on_grid(origin, origin + ms(at), ms(step)) - origin,
                ms(expected),
                "{at} ms, steps of {step} ms"
            );
        }
        assert_eq!(on_grid(origin + ms(5), origin, ms(16)), origin + ms(5), "the origin is the first");
    }
}
