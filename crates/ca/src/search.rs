//! Name search over UDP: the client's searcher, the server's responder, and beacons.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fodo_data::Now;
use fodo_engine::Cid;
pub use fodo_engine::search::{Claim, NameSearcher};
use fodo_engine::search::{HasName, SearchSchedule, is_endpoint};

use crate::limit;
use crate::message::{self, Answer, Header, MINOR_VERSION, Request};

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

/// A server that does not have the name sends no reply.
const DONT_REPLY: u16 = 5;
/// A server that does not have the name sends NOT_FOUND, except over UDP.
pub(crate) const DO_REPLY: u16 = 10;
/// In place of an address: the sender's address.
const THE_SENDER: u32 = u32::MAX;

/// The client's side: the names being searched for.
///
/// A name is searched for immediately, then with periods that double from 32 ms to 300 s, or to the maximum set with
/// [`NameSearcher::set_period_max`]. Names that are due are packed into full datagrams. The number of datagrams is
/// limited by what servers reply to or have time for, so that a hundred thousand names do not overload them.
///
/// `N`: the owner of the name, so that a client that searches for a million names need not store them twice.
#[derive(Debug)]
pub struct Searcher<N = Arc<str>> {
    schedule: SearchSchedule<N>,
    sequence: u32,
}

impl Searcher {
    /// Creates a searcher without names. `seed` varies the jitter between processes.
    pub fn new(seed: u64) -> Searcher {
        Searcher::of(seed)
    }

    /// Starts searching for a name; the first datagram is due immediately ([`NameSearcher::tick`]).
    pub fn add(&mut self, cid: Cid, name: &str, now: Now) {
        self.add_after(cid, name.into(), Duration::ZERO, now.monotonic);
    }
}

impl<N: HasName> Searcher<N> {
    /// The same as [`Searcher::new`], for any owner of names.
    pub fn of(seed: u64) -> Searcher<N> {
        Searcher { schedule: SearchSchedule::new(seed), sequence: 0 }
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
            self.schedule.answered(now.monotonic);
        }
    }
}

impl<N: HasName> NameSearcher<N> for Searcher<N> {
    type Datagram = Datagram;

    fn schedule(&self) -> &SearchSchedule<N> {
        &self.schedule
    }

    fn schedule_mut(&mut self) -> &mut SearchSchedule<N> {
        &mut self.schedule
    }

    fn send_due_searches(&mut self, now: Now, out: &mut Vec<Datagram>) {
        let n_most = self.schedule.n_datagrams_max();
        if n_most == 0 {
            return;
        }
        let n_before = out.len();
        let mut packet = Vec::new();
        while let Some((cid, owner)) = self.schedule.next_due(now.monotonic) {
            let name = owner.name();
            let n_message = message::HEADER_BYTES + message::padded(name.len() + 1);
            if packet.len() + n_message > limit::SEARCH_BYTES && !packet.is_empty() {
                out.push(Datagram { to: None, bytes: std::mem::take(&mut packet) });
                if out.len() - n_before == n_most {
                    self.schedule.put_back(cid);
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
            message::encode_text(&mut packet, |size| request.header(size), name.as_bytes());
            self.schedule.searched(cid, now.monotonic);
        }
        if !packet.is_empty() {
            out.push(Datagram { to: None, bytes: packet });
        }
        self.schedule.sent(out.len() - n_before, now.monotonic);
    }
}

/// The address in a reply or beacon; `None` for the sender's address.
pub(crate) fn explicit_ip(address: u32) -> Option<IpAddr> {
    (address != THE_SENDER && address != 0).then(|| IpAddr::V4(Ipv4Addr::from_bits(address)))
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
    use fodo_engine::limit::{BOOST_SPREAD, LOST_SPREAD, SEARCH_BURST, SEARCH_GRID, SEARCH_PAUSE};

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

        assert_eq!(
            claims,
            [Claim {
                cid: Cid(7),
                server: SocketAddr::new(SERVER.ip(), 6000),
                transport: Default::default(),
                plain: None,
                is_first: true
            }]
        );
        assert_eq!(searcher.n_names(), 0);
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

        assert_eq!((at_first, unread, read), (SEARCH_BURST, 0, SEARCH_BURST));
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

        let seen = searches(&mut searcher, start, start + LOST_SPREAD + SEARCH_GRID);

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
        let at_once = searches(&mut searcher, quiet, quiet + BOOST_SPREAD * 4);
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
        let answered_at = start + SEARCH_PAUSE / 2;

        searcher.tick(start, &mut out);
        assert_eq!(searcher.deadline(), Some(start.monotonic + SEARCH_PAUSE));
        out.clear();
        searcher.handle(SERVER, &answer, answered_at, &mut claims);
        searcher.tick(answered_at, &mut out);
        assert_eq!(out.len(), 1);
        assert_eq!(searcher.deadline(), Some(answered_at.monotonic + SEARCH_PAUSE));
        searcher.tick(start + SEARCH_PAUSE, &mut out);
        assert_eq!(out.len(), 1);
        searcher.tick(answered_at + SEARCH_PAUSE, &mut out);
        assert_eq!(out.len(), 1 + SEARCH_BURST);
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

        assert_eq!((out.len(), claims.len()), (SEARCH_BURST, 0));
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
