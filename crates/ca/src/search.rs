//! Name search over UDP: the client's searcher, the server's responder, and beacons.

mod name;

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fodo_data::Now;
use fodo_engine::{Cid, NumberMap};

pub use self::name::HasName;
use self::name::SearchedName;
use crate::message::{self, Answer, Header, MINOR_VERSION, Request};
use crate::limit;

/// A datagram to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// The destination; `None` for every address of the search list.
    pub to: Option<SocketAddr>,
    /// At most 1024 bytes of searches, or one datagram of replies.
    pub bytes: Vec<u8>,
}

impl Datagram {
    /// The searches without the datagram's VERSION, for a circuit to a name server.
    pub fn searches(&self) -> &[u8] {
        self.bytes.get(message::HEADER_BYTES..).unwrap_or_default()
    }
}

/// A server claims a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The client's number for the name.
    pub cid: Cid,
    /// The server's TCP address.
    pub server: SocketAddr,
    /// Whether the name was being searched for. If not, the reply is late or a duplicate, or a second server has the
    /// name.
    pub is_first: bool,
}

/// A server that does not have the name sends no reply.
const DONT_REPLY: u16 = 5;
/// A server that does not have the name sends NOT_FOUND, except over UDP.
pub(crate) const DO_REPLY: u16 = 10;
/// In place of an address: the sender's address.
const THE_SENDER: u32 = u32::MAX;

/// The client's side: the names being searched for.
///
/// A name is searched for immediately, then with periods that double from 32 ms to 300 s, or to the maximum set with
/// [`Searcher::set_period_max`]. Names that are due are packed into full datagrams. The number of datagrams is limited
/// by what servers reply to or have time for, so that a hundred thousand names do not overload them.
///
/// `N`: the owner of the name, so that a client that searches for a million names need not store them twice.
#[derive(Debug)]
pub struct Searcher<N = Arc<str>> {
    names: NumberMap<Cid, SearchedName<N>>,
    /// Names by the time of their next search. Entries of names that were removed or rescheduled are skipped.
    due: BTreeMap<Instant, VecDeque<Cid>>,
    sequence: u32,
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

impl Searcher {
    /// Creates a searcher without names. `seed` varies the jitter between processes.
    pub fn new(seed: u64) -> Searcher {
        Searcher::of(seed)
    }

    /// Starts searching for a name; the first datagram is due immediately ([`Searcher::tick`]).
    pub fn add(&mut self, cid: Cid, name: &str, now: Now) {
        self.add_after(cid, name.into(), Duration::ZERO, now.monotonic);
    }
}

impl<N: HasName> Searcher<N> {
    /// The same as [`Searcher::new`], for any owner of names.
    pub fn of(seed: u64) -> Searcher<N> {
        Searcher {
            names: NumberMap::default(),
            due: BTreeMap::new(),
            sequence: 0,
            jitter: seed | 1,
            n_unanswered: 0,
            pause_until: None,
            origin: None,
            period_max: limit::SEARCH_PERIOD_MAX,
            boost: BoostState::Ready,
        }
    }

    /// Sets the maximum time between two searches for a name (EPICS_CA_MAX_SEARCH_PERIOD).
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
    pub fn add_lost(&mut self, cid: Cid, name: N, now: Now) {
        let at = self.soon(now.monotonic, limit::LOST_SPREAD);
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
    pub fn boost(&mut self, now: Now) {
        match self.boost {
            BoostState::Ready => self.boost_now(now.monotonic, limit::BOOST_PAUSES.0),
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

    /// Stops searching for a name; unknown numbers are ignored.
    pub fn remove(&mut self, cid: Cid) {
        self.names.remove(cid);
    }

    /// The number of names being searched for.
    pub fn n_names(&self) -> usize {
        self.names.len()
    }

    /// Processes a datagram and removes claimed names. Names that were not being searched for are reported with
    /// `is_first` false.
    pub fn handle(&mut self, from: SocketAddr, bytes: &[u8], now: Now, claims: &mut Vec<Claim>) {
        let mut is_answered = false;
        each_message(bytes, |header, _| {
            let Answer::Search { port, address, cid, .. } = Answer::from_header(header) else { return };
            let ip = explicit_ip(address).unwrap_or(from.ip());
            is_answered |= self.claimed(cid, SocketAddr::new(ip, port), claims);
        });
        if is_answered {
            // A server has read one datagram, so another may be sent.
            self.n_unanswered = self.n_unanswered.saturating_sub(1);
            self.pause_until = Some(now.monotonic + limit::SEARCH_PAUSE);
        }
    }

    /// Records that a server claims a name; returns whether the name was being searched for.
    pub fn claimed(&mut self, cid: Cid, server: SocketAddr, claims: &mut Vec<Claim>) -> bool {
        if !is_endpoint(server) {
            return false;
        }
        let is_first = self.names.remove(cid).is_some();
        claims.push(Claim { cid, server, is_first });
        is_first
    }

    /// Performs actions that are due at `now`. Call it after processing all received datagrams.
    pub fn tick(&mut self, now: Now, out: &mut Vec<Datagram>) {
        self.tick_boost(now.monotonic);
        if self.pause_until.is_some_and(|until| until <= now.monotonic) {
            (self.n_unanswered, self.pause_until) = (0, None);
        }
        self.send_due_searches(now, out);
    }

    /// Searches for names that are due, as far as the limit on datagrams in transit allows. There may be unprocessed
    /// replies, so this does not interpret silence.
    pub fn send_due_searches(&mut self, now: Now, out: &mut Vec<Datagram>) {
        let n_most = limit::SEARCH_BURST.saturating_sub(self.n_unanswered);
        if n_most == 0 {
            return;
        }
        let origin = *self.origin.get_or_insert(now.monotonic);
        let n_before = out.len();
        let mut packet = Vec::new();
        while let Some(cid) = self.pop_due(now.monotonic) {
            let Some(name) = self.names.get(cid) else { continue };
            let n_message = message::HEADER_BYTES + message::padded(name.owner.name().len() + 1);
            if packet.len() + n_message > limit::SEARCH_BYTES && !packet.is_empty() {
                out.push(Datagram { to: None, bytes: std::mem::take(&mut packet) });
                if out.len() - n_before == n_most {
                    self.due.entry(name.at).or_default().push_front(cid);
                    break;
                }
            }
            if packet.is_empty() {
                self.sequence = self.sequence.wrapping_add(1);
                let version =
                    Request::Version { priority: 1, minor: u32::from(MINOR_VERSION), sequence: self.sequence };
                version.encode(&mut packet);
            }
            let request = Request::Search { reply: DONT_REPLY, minor: u32::from(MINOR_VERSION), cid, again: cid.0 };
            message::encode_text(&mut packet, |size| request.header(size), name.owner.name().as_bytes());
            self.reschedule(cid, now.monotonic, origin);
        }
        if !packet.is_empty() {
            out.push(Datagram { to: None, bytes: packet });
        }
        let n_sent = out.len() - n_before;
        self.n_unanswered += n_sent;
        if n_sent > 0 {
            self.pause_until = Some(now.monotonic + limit::SEARCH_PAUSE);
        }
    }

    /// Schedules the next search for a name that has just been searched for.
    fn reschedule(&mut self, cid: Cid, now: Instant, origin: Instant) {
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

    /// The latest time to call [`Searcher::tick`].
    pub fn deadline(&self) -> Option<Instant> {
        let due = *self.due.first_key_value()?.0;
        let is_full = self.n_unanswered >= limit::SEARCH_BURST;
        let due = self.pause_until.filter(|_| is_full).map_or(due, |until| until.max(due));
        Some(match self.boost {
            BoostState::Requested { until, .. } => due.min(until),
            _ => due,
        })
    }
}

/// The first time at or after `at` that is a whole number of steps after the origin.
fn on_grid(origin: Instant, at: Instant, step: Duration) -> Instant {
    let step_ms = (step.as_millis() as u64).max(1);
    let since_origin_ms = at.saturating_duration_since(origin).as_millis() as u64;
    origin + Duration::from_millis(since_origin_ms.div_ceil(step_ms) * step_ms)
}

/// The address in a reply or beacon; `None` for the sender's address.
pub(crate) fn explicit_ip(address: u32) -> Option<IpAddr> {
    (address != THE_SENDER && address != 0).then(|| IpAddr::V4(Ipv4Addr::from_bits(address)))
}

/// Whether this can be the address of a single server.
pub(crate) fn is_endpoint(address: SocketAddr) -> bool {
    let ip = address.ip();
    let is_unicast = !ip.is_multicast() && !ip.is_unspecified() && ip != IpAddr::V4(Ipv4Addr::BROADCAST);
    is_unicast && address.port() != 0
}

/// Calls `work` with every message of a datagram, up to the first incomplete one. Returns whether all are complete.
pub(crate) fn each_message(bytes: &[u8], mut work: impl FnMut(&Header, &[u8])) -> bool {
    let mut rest = bytes;
    while let Some((header, n_header)) = Header::decode(rest) {
        let end = n_header.checked_add(header.payload_bytes as usize);
        let Some((payload, next)) = end.and_then(|end| Some((rest.get(n_header..end)?, rest.get(end..)?))) else {
            return false;
        };
        work(&header, payload);
        rest = next;
    }
    rest.is_empty()
}

/// What is invalid in a datagram of searches; the valid part is replied to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DatagramFlaw {
    /// The datagram ends within a message, or is empty.
    Cut,
    /// The payload size of a message is not a multiple of 8 bytes.
    Misaligned,
    /// A name is invalid: not NUL-terminated, empty, too long or not UTF-8. Contains the start of the first such name.
    NoName(String),
}

/// The server's side: replies to searches and sends beacons.
#[derive(Debug)]
pub struct Responder {
    tcp_port: u16,
    beacon: u32,
    beacon_period: Duration,
    beacon_period_max: Duration,
    beacon_at: Instant,
}

/// The sequence number of a datagram with searches or replies to searches; `None` for other datagrams.
pub fn sequence(bytes: &[u8]) -> Option<u32> {
    let (header, _) = Header::decode(bytes)?;
    match Request::from_header(&header) {
        Request::Version { sequence, .. } => Some(sequence),
        _ => None,
    }
}

/// Changes the sequence number of such a datagram and returns the previous one.
pub fn renumber(bytes: &mut [u8], sequence: u32) -> Option<u32> {
    let before = self::sequence(bytes)?;
    let (header, n_header) = Header::decode(bytes)?;
    let mut renumbered = Vec::new();
    Header { p1: sequence, ..header }.encode(&mut renumbered);
    bytes.get_mut(..n_header)?.copy_from_slice(renumbered.get(..n_header)?);
    Some(before)
}

impl Responder {
    /// Creates a responder for a server whose circuits are at `tcp_port`.
    pub fn new(tcp_port: u16, now: Now) -> Responder {
        let (beacon_period, beacon_period_max) = limit::BEACON_PERIODS;
        Responder { tcp_port, beacon: 0, beacon_period, beacon_period_max, beacon_at: now.monotonic }
    }

    /// Sets the maximum time between two beacons (EPICS_CAS_BEACON_PERIOD).
    pub fn set_beacon_period_max(&mut self, period_max: Duration) {
        self.beacon_period_max = period_max.max(limit::BEACON_PERIODS.0);
    }

    /// Processes a datagram, calls `serves` for every name in it and appends the replies.
    ///
    /// A datagram that does not start with VERSION is ignored, and so is everything from the first message whose
    /// payload size is not a multiple of 8 bytes, the same as by rsrv. The replies never have more bytes than the
    /// datagram, because its sender may be forged: names for which no bytes are left are not replied to, and their
    /// client searches again. Returns what was invalid in the datagram.
    pub fn handle(
        &mut self,
        from: SocketAddr,
        bytes: &[u8],
        serves: &mut dyn FnMut(&str) -> bool,
        out: &mut Vec<Datagram>,
    ) -> Option<DatagramFlaw> {
        if !is_endpoint(from) {
            return None;
        }
        let mut version = None;
        let mut answers = Answers { to: from, packet: Vec::new(), bytes_left: bytes.len() };
        let (mut no_name, mut is_aligned) = (None, true);
        let is_whole = each_message(bytes, |header, payload| {
            is_aligned &= payload.len().is_multiple_of(8);
            if !is_aligned {
                return;
            }
            match (Request::from_header(header), version) {
                (Request::Version { minor, sequence, .. }, None) if minor >= 4 => version = Some(sequence),
                (Request::Search { cid, .. }, Some(sequence)) => {
                    let name = message::text(payload).filter(|name| (1..=limit::NAME_BYTES).contains(&name.len()));
                    let Some(name) = name.and_then(|name| std::str::from_utf8(name).ok()) else {
                        no_name.get_or_insert_with(|| start_of(payload));
                        return;
                    };
                    if serves(name) {
                        answers.push(sequence, self.tcp_port, cid, out);
                    }
                }
                _ => {}
            }
        });
        answers.finish(out);
        match no_name {
            _ if !is_aligned => Some(DatagramFlaw::Misaligned),
            Some(name) => Some(DatagramFlaw::NoName(name)),
            None => (!is_whole || bytes.is_empty()).then_some(DatagramFlaw::Cut),
        }
    }

    /// Emits a beacon if one is due (destination `None`: every beacon address).
    pub fn tick(&mut self, now: Now, out: &mut Vec<Datagram>) {
        if now.monotonic < self.beacon_at {
            return;
        }
        let beacon =
            Answer::RsrvIsUp { minor: MINOR_VERSION, port: u32::from(self.tcp_port), beacon: self.beacon, address: 0 };
        let mut bytes = Vec::new();
        beacon.encode(&mut bytes);
        out.push(Datagram { to: None, bytes });
        self.beacon = self.beacon.wrapping_add(1);
        self.beacon_at = now.monotonic + self.beacon_period;
        self.beacon_period = (self.beacon_period * 2).min(self.beacon_period_max);
    }

    /// When the next beacon is due.
    pub fn deadline(&self) -> Option<Instant> {
        Some(self.beacon_at)
    }
}

/// The replies to one datagram of searches.
struct Answers {
    to: SocketAddr,
    /// The datagram being filled.
    packet: Vec<u8>,
    /// How many more bytes of replies the size of the request allows.
    bytes_left: usize,
}

impl Answers {
    /// Adds the reply that the name with this number is served at `port`, if the size of the request allows it.
    fn push(&mut self, sequence: u32, port: u16, cid: Cid, out: &mut Vec<Datagram>) {
        const FOUND_BYTES: usize = message::HEADER_BYTES + message::FOUND_BYTES;
        let is_full = self.packet.len() + FOUND_BYTES > limit::ANSWER_BYTES;
        let is_first = self.packet.is_empty() || is_full;
        let n_bytes = FOUND_BYTES + if is_first { message::HEADER_BYTES } else { 0 };
        let Some(bytes_left) = self.bytes_left.checked_sub(n_bytes) else { return };
        self.bytes_left = bytes_left;
        if is_full {
            out.push(Datagram { to: Some(self.to), bytes: std::mem::take(&mut self.packet) });
        }
        if is_first {
            Answer::Version { valid: 1, minor: u32::from(MINOR_VERSION), sequence }.encode(&mut self.packet);
        }
        let found = Answer::Search { port, count: 0, address: THE_SENDER, cid };
        found.header(message::FOUND_BYTES).encode(&mut self.packet);
        message::encode_found(&mut self.packet);
    }

    fn finish(self, out: &mut Vec<Datagram>) {
        if !self.packet.is_empty() {
            out.push(Datagram { to: Some(self.to), bytes: self.packet });
        }
    }
}

/// The start of an invalid name, for display.
fn start_of(payload: &[u8]) -> String {
    let start = &payload[..payload.len().min(limit::SHOWN_NAME_BYTES_MAX)];
    String::from_utf8_lossy(start).trim_end_matches('\0').to_owned()
}

#[cfg(test)]
fn n_messages(bytes: &[u8]) -> usize {
    let mut n = 0;
    each_message(bytes, |_, _| n += 1);
    n
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 40_000);
    const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 5064);

    #[test]
    fn a_name_is_searched_at_once_and_found_with_one_reply() {
        let now = Now::for_test();
        let mut searcher = Searcher::new(1);
        let mut responder = Responder::new(6000, now);
        let (mut searches, mut answers, mut claims) = (Vec::new(), Vec::new(), Vec::new());
        searcher.add(Cid(7), "x:y", now);

        searcher.tick(now, &mut searches);
        responder.handle(CLIENT, &searches[0].bytes, &mut |name| name == "x:y", &mut answers);
        searcher.handle(SERVER, &answers[0].bytes, now, &mut claims);

        assert_eq!(claims, [Claim { cid: Cid(7), server: SocketAddr::new(SERVER.ip(), 6000), is_first: true }]);
        assert_eq!(searcher.n_names(), 0);
    }

    #[test]
    fn a_lost_name_is_searched_within_a_third_of_its_time_offline() {
        for seed in 1..20 {
            let start = Now::for_test();
            let mut searcher = Searcher::new(seed);
            searcher.add_lost(Cid(1), "lost".into(), start);
            let (mut now, mut out, mut n_searches) = (start, Vec::new(), 0);

            while now.monotonic < start.monotonic + Duration::from_secs(300) {
                searcher.tick(now, &mut out);
                n_searches += out.drain(..).count();
                let next = searcher.deadline().expect("a name is searched for until it is found");
                let away = now.monotonic - start.monotonic;
                assert!(
                    next - now.monotonic < away / 3 + limit::LOST_PERIOD * 2,
                    "{:?} after {away:?}",
                    next - now.monotonic
                );
                now = now + (next - now.monotonic).max(Duration::from_micros(1));
            }

            assert!(n_searches < 40, "{n_searches} searches in five minutes");
        }
    }

    // Row 56 of docs/reference/faults.md.
    #[test]
    fn searches_for_100000_absent_names_send_fewer_than_20_datagrams_per_second() {
        let start = Now::for_test();
        let mut searcher = Searcher::new(3);
        for cid in 0..100_000 {
            searcher.add(Cid(cid), &format!("absent:{cid:06}"), start);
        }
        let (mut now, mut out, mut in_minutes) = (start, Vec::new(), [0; 20]);

        while now.monotonic < start.monotonic + Duration::from_secs(1200) {
            searcher.tick(now, &mut out);
            let minute = (now.monotonic - start.monotonic).as_secs() / 60;
            in_minutes[minute as usize] += out.drain(..).count();
            let next = searcher.deadline().expect("names are searched for until they are found");
            now = now + (next - now.monotonic).max(Duration::from_micros(1));
        }

        // In every minute, not only on average.
        assert!(in_minutes[10..].iter().all(|n| n / 60 < 20), "datagrams in each minute: {in_minutes:?}");
    }

    #[test]
    fn the_next_search_burst_waits_until_received_replies_are_read() {
        let start = Now::for_test();
        let later = start + Duration::from_secs(1);
        let mut searcher = Searcher::new(4);
        (0..100_000).for_each(|cid| searcher.add(Cid(cid), &format!("absent:{cid:06}"), start));
        let n_sent = |send: &mut dyn FnMut(&mut Vec<Datagram>)| {
            let mut out = Vec::new();
            send(&mut out);
            out.len()
        };

        let at_first = n_sent(&mut |out| searcher.send_due_searches(start, out));
        let unread = n_sent(&mut |out| searcher.send_due_searches(later, out));
        let read = n_sent(&mut |out| searcher.tick(later, out));

        assert_eq!((at_first, unread, read), (limit::SEARCH_BURST, 0, limit::SEARCH_BURST));
    }

    /// All searches until `until`, with their times and numbers of names.
    fn searches(searcher: &mut Searcher, mut now: Now, until: Now) -> Vec<(Duration, usize)> {
        let (start, mut out, mut seen) = (now, Vec::new(), Vec::new());
        while now.monotonic < until.monotonic {
            searcher.tick(now, &mut out);
            seen.extend(out.drain(..).map(|datagram| {
                let n_names = n_messages(&datagram.bytes) - 1;
                (now.monotonic - start.monotonic, n_names)
            }));
            let Some(next) = searcher.deadline() else { break };
            now = now + (next.saturating_duration_since(now.monotonic)).max(Duration::from_micros(1));
        }
        seen
    }

    // Row 55 of docs/reference/faults.md.
    #[test]
    fn names_of_a_lost_server_are_searched_soon_in_full_staggered_datagrams() {
        let start = Now::for_test();
        let mut searcher = Searcher::new(5);
        (0..2000).for_each(|cid| searcher.add_lost(Cid(cid), format!("lost:{cid:06}").into(), start));

        let seen = searches(&mut searcher, start, start + limit::LOST_SPREAD + limit::SEARCH_GRID);

        assert!(seen.len() < 2000 / 10, "{} datagrams for 2000 names", seen.len());
        assert!(seen.iter().map(|(_, n_names)| n_names).sum::<usize>() >= 2000, "all within the spread");
        let at_once = seen.iter().filter(|(at, _)| at.is_zero()).map(|(_, n_names)| n_names).sum::<usize>();
        assert!(at_once < 1000, "{at_once} at the same time as other clients");
    }

    #[test]
    fn a_configured_maximum_search_period_is_respected() {
        let start = Now::for_test();
        let mut searcher = Searcher::new(6);
        searcher.set_period_max(Duration::from_secs(60));
        searcher.add(Cid(1), "absent", start);

        let seen = searches(&mut searcher, start, start + Duration::from_secs(3600));

        let late: Vec<Duration> = seen.windows(2).map(|pair| pair[1].0 - pair[0].0).rev().take(20).collect();
        assert!(late.iter().all(|gap| (24..=80).contains(&gap.as_secs())), "{late:?}");
    }

    // Row 9 of docs/reference/faults.md.
    #[test]
    fn one_boost_searches_all_names_at_once_and_repeated_boosts_are_damped() {
        let start = Now::for_test();
        let mut searcher = Searcher::new(7);
        (0..20_000).for_each(|cid| searcher.add(Cid(cid), &format!("absent:{cid:06}"), start));
        let quiet = start + Duration::from_secs(3600);
        searches(&mut searcher, start, quiet);

        searcher.boost(quiet);
        let at_once = searches(&mut searcher, quiet, quiet + limit::BOOST_SPREAD * 4);
        let (mut now, mut n_sent) = (quiet + Duration::from_secs(1), 0);
        for _ in 0..3600 {
            searcher.boost(now);
            n_sent += searches(&mut searcher, now, now + Duration::from_secs(1)).len();
            now = now + Duration::from_secs(1);
        }

        assert!(at_once.iter().map(|(_, n_names)| n_names).sum::<usize>() >= 20_000, "{}", at_once.len());
        assert!(n_sent / 3600 < 30, "{} datagrams per second", n_sent / 3600);
    }

    #[test]
    fn a_search_without_version_or_name_gets_no_reply() {
        let now = Now::for_test();
        let mut responder = Responder::new(6000, now);
        let mut bare = Vec::new();
        let search = Request::Search { reply: 5, minor: 13, cid: Cid(1), again: 1 };
        message::encode_text(&mut bare, |size| search.header(size), b"x");
        let mut unnamed = Vec::new();
        Request::Version { priority: 1, minor: 13, sequence: 1 }.encode(&mut unnamed);
        search.header(8).encode(&mut unnamed);
        unnamed.extend_from_slice(&[0; 8]);
        let mut answers = Vec::new();

        responder.handle(CLIENT, &bare, &mut |_| true, &mut answers);
        responder.handle(CLIENT, &unnamed, &mut |_| true, &mut answers);
        responder.handle(CLIENT, &[0, 6, 255, 255, 0, 5], &mut |_| true, &mut answers);

        assert_eq!(answers, []);
    }

    /// The times of the searches for one absent name, during `time` after its start.
    fn search_times(seed: u64, time: Duration) -> Vec<Duration> {
        let start = Now::for_test();
        let mut searcher = Searcher::new(seed);
        searcher.add(Cid(1), "absent", start);
        searches(&mut searcher, start, start + time).into_iter().map(|(at, _)| at).collect()
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
    fn searches_fill_their_datagrams_and_an_oversized_name_gets_its_own() {
        let now = Now::for_test();
        let mut searcher = Searcher::new(9);
        // 24 bytes each, so that 42 fill what VERSION leaves of a datagram.
        (0..50).for_each(|cid| searcher.add(Cid(cid), &format!("x:{cid:05}"), now));
        searcher.add(Cid(50), &"y".repeat(limit::SEARCH_BYTES), now);
        searcher.add(Cid(51), "z", now);
        let mut out = Vec::new();

        searcher.tick(now, &mut out);

        let sizes: Vec<usize> = out.iter().map(|datagram| datagram.bytes.len()).collect();
        assert_eq!(sizes, [limit::SEARCH_BYTES, 16 + 8 * 24, 16 + 16 + limit::SEARCH_BYTES + 8, 16 + 24]);
        let sequences: Vec<Option<u32>> = out.iter().map(|datagram| sequence(&datagram.bytes)).collect();
        assert_eq!(sequences, [Some(1), Some(2), Some(3), Some(4)]);
        assert_eq!(out[3].searches(), &out[3].bytes[16..]);
    }

    #[test]
    fn a_search_reply_releases_one_datagram_and_restarts_the_pause() {
        let start = Now::for_test();
        let mut searcher = Searcher::new(10);
        (0..100_000).for_each(|cid| searcher.add(Cid(cid), &format!("absent:{cid:06}"), start));
        let (mut out, mut claims) = (Vec::new(), Vec::new());
        let mut answer = Vec::new();
        Answer::Search { port: 5064, count: 0, address: THE_SENDER, cid: Cid(0) }.encode(&mut answer);
        let answered_at = start + limit::SEARCH_PAUSE / 2;

        searcher.tick(start, &mut out);
        assert_eq!(searcher.deadline(), Some(start.monotonic + limit::SEARCH_PAUSE));
        out.clear();
        searcher.handle(SERVER, &answer, answered_at, &mut claims);
        searcher.tick(answered_at, &mut out);
        assert_eq!(out.len(), 1);
        assert_eq!(searcher.deadline(), Some(answered_at.monotonic + limit::SEARCH_PAUSE));
        searcher.tick(start + limit::SEARCH_PAUSE, &mut out);
        assert_eq!(out.len(), 1);
        searcher.tick(answered_at + limit::SEARCH_PAUSE, &mut out);
        assert_eq!(out.len(), 1 + limit::SEARCH_BURST);
    }

    #[test]
    fn a_datagram_without_search_replies_releases_no_search() {
        let start = Now::for_test();
        let mut searcher = Searcher::new(11);
        (0..100_000).for_each(|cid| searcher.add(Cid(cid), &format!("absent:{cid:06}"), start));
        let (mut out, mut claims, mut version) = (Vec::new(), Vec::new(), Vec::new());
        Answer::Version { valid: 1, minor: 13, sequence: 1 }.encode(&mut version);

        searcher.tick(start, &mut out);
        searcher.handle(SERVER, &version, start, &mut claims);
        searcher.tick(start, &mut out);

        assert_eq!((out.len(), claims.len()), (limit::SEARCH_BURST, 0));
    }

    #[test]
    fn a_search_reply_must_give_a_unicast_server_address_or_mean_its_sender() {
        let now = Now::for_test();
        for (address, port, server) in [
            (0x0a00_0001, 6000, Some("10.0.0.1:6000")),
            (0, 6000, Some("127.0.0.1:6000")),
            (THE_SENDER, 6000, Some("127.0.0.1:6000")),
            (THE_SENDER, 0, None),
            (0xe000_0001, 6000, None),
        ] {
            let mut searcher = Searcher::new(12);
            let (mut answer, mut claims) = (Vec::new(), Vec::new());
            searcher.add(Cid(1), "x", now);
            Answer::Search { port, count: 0, address, cid: Cid(1) }.encode(&mut answer);

            searcher.handle(SERVER, &answer, now, &mut claims);

            let found: Vec<String> = claims.iter().map(|claim| claim.server.to_string()).collect();
            assert_eq!(found, Vec::from_iter(server), "{address:#x} {port}");
            assert_eq!(searcher.n_names(), usize::from(server.is_none()), "{address:#x} {port}");
        }
    }

    #[test]
    fn a_removed_name_is_not_searched_and_no_names_means_no_deadline() {
        let now = Now::for_test();
        let mut searcher = Searcher::new(13);
        let mut out = Vec::new();
        assert_eq!(searcher.deadline(), None);
        searcher.add(Cid(1), "x", now);
        searcher.add(Cid(2), "y", now);

        searcher.remove(Cid(1));
        searcher.tick(now, &mut out);

        assert_eq!((searcher.n_names(), out.len(), n_messages(&out[0].bytes)), (1, 1, 2));
        assert!(searcher.claimed(Cid(2), SERVER, &mut Vec::new()));
        assert!(!searcher.claimed(Cid(1), SERVER, &mut Vec::new()));
    }

    #[test]
    fn a_name_added_with_a_pause_is_searched_after_it_and_then_at_longer_periods() {
        let start = Now::for_test();
        let mut searcher = Searcher::new(14);
        let pause = Duration::from_secs(8);
        searcher.add_after(Cid(1), "x".into(), pause, start.monotonic);

        let times: Vec<Duration> =
            searches(&mut searcher, start, start + pause * 3).into_iter().map(|(at, _)| at).collect();

        assert_eq!((times.len(), times[0]), (2, pause));
        assert!((pause * 2..=pause * 2 + pause / 4 + pause / 32).contains(&times[1]), "{times:?}");
    }

    #[test]
    fn the_maximum_search_period_is_at_least_the_minimum() {
        let start = Now::for_test();
        let mut searcher = Searcher::new(15);
        searcher.set_period_max(Duration::ZERO);
        searcher.add(Cid(1), "x", start);

        let n_searches = searches(&mut searcher, start, start + limit::SEARCH_PERIOD_MIN * 100).len();

        assert!((50..=100).contains(&n_searches), "{n_searches}");
    }

    #[test]
    fn a_boost_advances_late_names_and_does_not_delay_names_due_soon() {
        let start = Now::for_test();
        let mut searcher = Searcher::new(16);
        searcher.add(Cid(1), "late", start);
        let quiet = start + Duration::from_secs(3600);
        searches(&mut searcher, start, quiet);
        let soon = quiet + limit::BOOST_SPREAD / 2;
        searcher.add_after(Cid(2), "soon".into(), limit::BOOST_SPREAD / 2, quiet.monotonic);

        searcher.boost(quiet);

        let seen = searches(&mut searcher, quiet, quiet + limit::BOOST_SPREAD + limit::SEARCH_GRID);
        assert!(seen.iter().any(|(at, _)| *at == soon.monotonic - quiet.monotonic), "{seen:?}");
        assert!(seen.iter().map(|(_, n_names)| n_names).sum::<usize>() >= 2, "{seen:?}");
        let next = searcher.deadline().unwrap() - quiet.monotonic;
        assert!(next < limit::BOOST_PERIOD * 2, "the boosted name is searched again after {next:?}");
    }

    #[test]
    fn repeated_boosts_wait_for_doubling_pauses_that_reset_after_a_quiet_time() {
        let start = Now::for_test();
        let mut searcher = Searcher::new(17);
        searcher.add(Cid(1), "absent", start);
        let at = |seconds: f64| start + Duration::from_secs(3600) + Duration::from_secs_f64(seconds);
        searches(&mut searcher, start, at(0.0));
        let tick = |searcher: &mut Searcher, now: Now| {
            searcher.tick(now, &mut Vec::new());
            searcher.deadline().unwrap()
        };
        searcher.boost(at(0.0));
        searches(&mut searcher, at(0.0), at(0.5));

        for (reason_s, heeded_s) in [(0.5, 1.0), (1.5, 3.0), (3.5, 7.0)] {
            searcher.boost(at(reason_s));
            searcher.boost(at(reason_s));
            searches(&mut searcher, at(reason_s), at(heeded_s - 0.01));
            assert_eq!(tick(&mut searcher, at(heeded_s - 0.01)), at(heeded_s).monotonic);
            let next = tick(&mut searcher, at(heeded_s));
            assert!(next <= (at(heeded_s) + limit::BOOST_SPREAD + limit::SEARCH_GRID).monotonic);
            searches(&mut searcher, at(heeded_s), at(heeded_s + 0.5));
        }
        // The pause that began at 7 s ends at 15 s, followed by a quiet time of the same length.
        searches(&mut searcher, at(7.5), at(23.0));
        tick(&mut searcher, at(23.0));
        searcher.boost(at(23.1));
        let next = tick(&mut searcher, at(23.1));
        assert!(next <= (at(23.1) + limit::BOOST_SPREAD + limit::SEARCH_GRID).monotonic);
        searcher.boost(at(23.6));
        searches(&mut searcher, at(23.1), at(24.09));
        assert_eq!(tick(&mut searcher, at(24.09)), at(24.1).monotonic);
    }

    /// A datagram from a client of this minor version, with searches for these names.
    fn searching(minor: u32, names: &[&str]) -> Vec<u8> {
        let mut bytes = Vec::new();
        Request::Version { priority: 1, minor, sequence: 77 }.encode(&mut bytes);
        for (cid, name) in names.iter().enumerate() {
            let search = Request::Search { reply: DONT_REPLY, minor, cid: Cid(cid as u32), again: 0 };
            message::encode_text(&mut bytes, |size| search.header(size), name.as_bytes());
        }
        bytes
    }

    #[test]
    fn a_search_for_a_name_longer_than_the_limit_is_rejected() {
        let longest = "x".repeat(limit::NAME_BYTES);
        let longer = "x".repeat(limit::NAME_BYTES + 1);
        let mut answers = Vec::new();
        let mut responder = Responder::new(6000, Now::for_test());

        let flaw_of_longest = responder.handle(CLIENT, &searching(13, &[&longest]), &mut |_| true, &mut answers);
        let flaw_of_longer = responder.handle(CLIENT, &searching(13, &[&longer]), &mut |_| true, &mut answers);

        assert_eq!((flaw_of_longest, answers.len()), (None, 1));
        assert_eq!(flaw_of_longer, Some(DatagramFlaw::NoName("x".repeat(limit::SHOWN_NAME_BYTES_MAX))));
    }

    #[test]
    fn clients_before_version_4_4_get_no_search_reply() {
        let mut responder = Responder::new(6000, Now::for_test());
        for (minor, n_answers) in [(3, 0), (4, 1), (13, 1)] {
            let mut answers = Vec::new();
            responder.handle(CLIENT, &searching(minor, &["x"]), &mut |_| true, &mut answers);
            assert_eq!(answers.len(), n_answers, "4.{minor}");
        }
    }

    #[test]
    fn search_replies_fill_datagrams_and_repeat_the_sequence_number() {
        let names = vec!["x"; 100];
        let mut answers = Vec::new();

        Responder::new(6000, Now::for_test()).handle(CLIENT, &searching(13, &names), &mut |_| true, &mut answers);

        // 16 bytes of VERSION, and 24 for each reply; in total no more than the request has.
        let sizes: Vec<usize> = answers.iter().map(|datagram| datagram.bytes.len()).collect();
        assert_eq!(sizes, [16 + 57 * 24, 16 + 42 * 24]);
        assert!(answers.iter().all(|datagram| datagram.to == Some(CLIENT)));
        assert!(answers.iter().all(|datagram| sequence(&datagram.bytes) == Some(77)));
    }

    #[test]
    fn empty_and_truncated_datagrams_are_reported_as_flawed() {
        let mut responder = Responder::new(6000, Now::for_test());
        let whole = searching(13, &["x"]);
        let mut flaw = |bytes: &[u8]| responder.handle(CLIENT, bytes, &mut |_| false, &mut Vec::new());

        assert_eq!(flaw(&whole), None);
        assert_eq!(flaw(&[]), Some(DatagramFlaw::Cut));
        assert_eq!(flaw(&whole[..whole.len() - 1]), Some(DatagramFlaw::Cut));
    }

    #[test]
    fn replacing_a_sequence_number_returns_the_previous_one() {
        let mut bytes = searching(13, &["x"]);

        assert_eq!(renumber(&mut bytes, 5), Some(77));

        assert_eq!(sequence(&bytes), Some(5));
        assert_eq!(&bytes[16..], &searching(13, &["x"])[16..]);
        assert_eq!(renumber(&mut bytes[16..], 6), None, "the datagram does not start with VERSION");
    }

    #[test]
    fn beacons_are_numbered_and_their_periods_double_up_to_the_maximum() {
        let start = Now::for_test();
        for period_max in [Duration::from_secs(15), Duration::from_millis(100), Duration::ZERO] {
            let mut responder = Responder::new(6000, start);
            responder.set_beacon_period_max(period_max);
            let (mut now, mut period, mut out) = (start, limit::BEACON_PERIODS.0, Vec::new());

            for number in 0..12 {
                responder.tick(now, &mut out);
                responder.tick(now, &mut out);
                assert_eq!(responder.deadline(), Some((now + period).monotonic), "beacon {number} of {period_max:?}");
                now = now + period;
                period = (period * 2).min(period_max.max(limit::BEACON_PERIODS.0));
            }

            let beacons: Vec<Answer> =
                out.iter().map(|beacon| Answer::from_header(&Header::decode(&beacon.bytes).unwrap().0)).collect();
            let expected = |beacon| Answer::RsrvIsUp { minor: MINOR_VERSION, port: 6000, beacon, address: 0 };
            assert_eq!(beacons, (0..12).map(expected).collect::<Vec<_>>());
        }
    }
}
