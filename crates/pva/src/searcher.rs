//! Name search over UDP: the client's searcher.

use std::collections::HashMap;
use std::net::{Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use fodo_data::Now;
use fodo_engine::Cid;
pub use fodo_engine::search::{Claim, NameSearcher, Transport};
use fodo_engine::search::{HasName, SearchSchedule, is_endpoint};

use crate::cursor::{ByteOrder, ByteReader, ByteWriter};
use crate::frame::{self, HEADER_BYTES, Header, Sender};
use crate::guid::Guid;
use crate::limit;
use crate::message::{Answer, Request};
use crate::search::{self, SearchFlags, SearchRequest, SearchResponse, SearchedChannel};

/// All searches have this byte order, as those of pvxs.
const ORDER: ByteOrder = ByteOrder::Big;
/// The offset of the flags in a datagram: after the header and the sequence number.
const FLAGS_OFFSET: usize = HEADER_BYTES + 4;
/// The size of the number of names, which precedes the names.
const COUNT_BYTES: usize = 2;

/// Who receives a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// One host. Of several servers on it only one receives the datagram; the searches ask it to forward them to the
    /// others.
    Host,
    /// All servers at a broadcast address or of a multicast group.
    Group,
}

/// A datagram of searches, for every address of the search list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    bytes: Vec<u8>,
}

impl Datagram {
    /// The bytes to send to an address that reaches one host or a group: at most [`limit::SEARCH_BYTES`].
    pub fn bytes_to(&mut self, reach: Reach) -> &[u8] {
        if let Some(flags) = self.bytes.get_mut(FLAGS_OFFSET) {
            *flags = match reach {
                Reach::Host => SearchFlags::UNICAST.0,
                Reach::Group => SearchFlags::default().0,
            };
        }
        &self.bytes
    }

    /// The names that are searched for, for a circuit to a name server.
    pub fn channels(&self) -> Vec<SearchedChannel<'_>> {
        let payload = self.bytes.get(HEADER_BYTES..).unwrap_or_default();
        SearchRequest::decode(&mut ByteReader::new(payload, ORDER)).channels
    }
}

/// The names being searched for.
///
/// A name is searched for immediately, then with periods that double from 32 ms to 300 s, or to the maximum set with
/// [`NameSearcher::set_period_max`]; the same as over Channel Access. Names that are due are packed into full datagrams.
/// The number of datagrams is limited by the replies and by the time since the last ones.
///
/// `N`: the owner of the name, so that a client that searches for a million names need not store them twice.
///
/// ```
/// use fodo_data::Now;
/// use fodo_engine::Cid;
/// use fodo_pva::searcher::{NameSearcher, Reach, Searcher};
///
/// let now = Now::for_test();
/// // Replies arrive at port 40000.
/// let mut searcher = Searcher::new(1, 40000);
/// searcher.add(Cid(7), "pump:speed", now);
///
/// let mut datagrams = Vec::new();
/// searcher.tick(now, &mut datagrams);
/// assert_eq!(datagrams[0].channels()[0].name, b"pump:speed");
/// assert!(datagrams[0].bytes_to(Reach::Group).ends_with(b"pump:speed"));
/// ```
#[derive(Debug)]
pub struct Searcher<N = Arc<str>> {
    schedule: SearchSchedule<N>,
    reply_port: u16,
    /// The transports that the client can use.
    transports: Vec<Transport>,
    /// The sequence numbers before the first datagram, and of the last one. The first depends on the seed, so that
    /// replies to another program that used the port before are recognized.
    sequence_before: u32,
    sequence: u32,
    /// Which server replied from where, to recognize a server with several addresses.
    guids: HashMap<SocketAddr, Guid>,
}

impl Searcher {
    /// Creates a searcher without names. `seed` varies the jitter and the sequence numbers between processes;
    /// `reply_port`: the UDP port of the socket that sends the datagrams, at which replies are received.
    pub fn new(seed: u64, reply_port: u16) -> Searcher {
        Searcher::of(seed, reply_port)
    }

    /// Starts searching for a name; the first datagram is due immediately ([`NameSearcher::tick`]).
    pub fn add(&mut self, cid: Cid, name: &str, now: Now) {
        self.add_after(cid, name.into(), Duration::ZERO, now.monotonic);
    }
}

impl<N: HasName> Searcher<N> {
    /// The same as [`Searcher::new`], for any owner of names.
    pub fn of(seed: u64, reply_port: u16) -> Searcher<N> {
        let sequence = (seed ^ seed >> 32) as u32;
        Searcher {
            schedule: SearchSchedule::new(seed),
            reply_port,
            transports: vec![Transport::Tcp],
            sequence_before: sequence,
            sequence,
            guids: HashMap::new(),
        }
    }

    /// Sets the transports that the client can use, in the order of preference; plain TCP by default. Responses for others
    /// are ignored.
    pub fn set_transports(&mut self, transports: &[Transport]) {
        self.transports = transports.to_vec();
    }

    /// Processes a datagram and removes claimed names. Names that were not being searched for are reported with
    /// `is_first` false. Responses are ignored if they are not found, for a transport that this client cannot use, or for a
    /// datagram that this searcher has not sent.
    pub fn handle(&mut self, from: SocketAddr, bytes: &[u8], now: Now, claims: &mut Vec<Claim>) {
        let mut is_answered = false;
        for (header, payload) in frame::datagram(bytes).map_while(Result::ok) {
            let Some((response, transport)) = found(&header, payload) else { continue };
            let n_behind = self.sequence.wrapping_sub(response.sequence);
            let server = response.server(from);
            let is_unusable = !is_endpoint(server) || !self.transports.contains(&transport);
            if n_behind >= self.sequence.wrapping_sub(self.sequence_before) || is_unusable {
                continue;
            }
            self.record_server(server, response.guid);
            let n_before = claims.len();
            for cid in response.cids {
                is_answered |= self.claimed(cid, server, claims);
            }
            claims.iter_mut().skip(n_before).for_each(|claim| claim.transport = transport);
        }
        if is_answered {
            self.schedule.answered(now.monotonic);
        }
    }

    /// Whether one server replied from both addresses.
    pub fn is_one_server(&self, one: SocketAddr, other: SocketAddr) -> bool {
        one == other || self.guids.get(&one).is_some_and(|guid| self.guids.get(&other) == Some(guid))
    }

    fn record_server(&mut self, server: SocketAddr, guid: Guid) {
        if self.guids.len() >= limit::SEARCH_SERVERS && !self.guids.contains_key(&server) {
            self.guids.clear();
        }
        self.guids.insert(server, guid);
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

    /// No server has a name above [`limit::NAME_BYTES`].
    fn is_possible(name: &N) -> bool {
        name.name().len() <= limit::NAME_BYTES
    }

    fn send_due_searches(&mut self, now: Now, out: &mut Vec<Datagram>) {
        let n_most = self.schedule.n_datagrams_max();
        if n_most == 0 {
            return;
        }
        let n_before = out.len();
        let mut packet: Option<Packet> = None;
        while let Some((cid, owner)) = self.schedule.next_due(now.monotonic) {
            let name = owner.name().as_bytes();
            if let Some(full) = packet.take_if(|packet| !packet.has_space(name)) {
                out.push(full.finish());
                if out.len() - n_before == n_most {
                    self.schedule.put_back(cid);
                    break;
                }
            }
            let started = packet.get_or_insert_with(|| {
                self.sequence = self.sequence.wrapping_add(1);
                Packet::new(self.sequence, self.reply_port, &self.transports)
            });
            started.push(SearchedChannel { cid, name });
            self.schedule.searched(cid, now.monotonic);
        }
        out.extend(packet.map(Packet::finish));
        self.schedule.sent(out.len() - n_before, now.monotonic);
    }
}

/// The response in a message, if it claims names, and its transport.
fn found(header: &Header, payload: &[u8]) -> Option<(SearchResponse, Transport)> {
    if header.is_control || header.from != Sender::Server || header.command != (Answer::SearchResponse {}).command() {
        return None;
    }
    let mut reader = ByteReader::new(payload, header.order);
    let response = SearchResponse::decode(&mut reader);
    let transport = search::transport(&response.protocol)?;
    (response.is_found && !reader.has_failed()).then_some((response, transport))
}

/// A datagram that is being filled.
struct Packet {
    bytes: Vec<u8>,
    /// The offset of the number of names.
    count_offset: usize,
    n_names: u16,
}

impl Packet {
    /// Starts a datagram. The reply address is unspecified: servers reply to the source of the datagram.
    fn new(sequence: u32, reply_port: u16, transports: &[Transport]) -> Packet {
        let request = SearchRequest {
            sequence,
            flags: SearchFlags::default(),
            address: Ipv6Addr::UNSPECIFIED,
            port: reply_port,
            protocols: search::transport_names(transports),
            channels: Vec::new(),
        };
        let mut bytes = Vec::with_capacity(limit::SEARCH_BYTES);
        frame::encode(&mut bytes, Sender::Client, ORDER, (Request::Search {}).command(), |to| request.encode(to));
        Packet { count_offset: bytes.len() - COUNT_BYTES, bytes, n_names: 0 }
    }

    fn has_space(&self, name: &[u8]) -> bool {
        let size_bytes = if name.len() < 254 { 1 } else { 5 };
        self.bytes.len() + 4 + size_bytes + name.len() <= limit::SEARCH_BYTES
    }

    fn push(&mut self, channel: SearchedChannel) {
        let mut writer = ByteWriter::new(&mut self.bytes, ORDER);
        writer.u32(channel.cid.0);
        writer.text(channel.name);
        self.n_names += 1;
    }

    /// Sets the sizes that are known only now.
    fn finish(mut self) -> Datagram {
        let header = Header::of(Sender::Client, ORDER, (Request::Search {}).command(), self.bytes.len() - HEADER_BYTES);
        self.bytes[..HEADER_BYTES].copy_from_slice(&header.encode());
        let mut count = Vec::with_capacity(COUNT_BYTES);
        ByteWriter::new(&mut count, ORDER).u16(self.n_names);
        self.bytes[self.count_offset..][..COUNT_BYTES].copy_from_slice(&count);
        Datagram { bytes: self.bytes }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use fodo_engine::limit::{SEARCH_BURST, SEARCH_PAUSE};

    use super::*;

    const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 5076);
    const PORT: u16 = 40_000;
    /// The seed of all searchers; also their sequence number before the first datagram.
    const SEED: u64 = 6;

    fn searching(names: &[(u32, &str)], now: Now) -> (Searcher, Vec<Datagram>) {
        let (mut searcher, mut out) = (Searcher::new(SEED, PORT), Vec::new());
        names.iter().for_each(|(cid, name)| searcher.add(Cid(*cid), name, now));
        searcher.tick(now, &mut out);
        (searcher, out)
    }

    /// The search in a datagram, as a server decodes it.
    fn decoded(bytes: &[u8]) -> SearchRequest<'_> {
        let messages: Vec<_> = frame::datagram(bytes).map(Result::unwrap).collect();
        let [(header, payload)] = messages[..] else { panic!("{} messages", messages.len()) };
        assert_eq!((header.version, header.from, header.command), (2, Sender::Client, 3));
        let mut reader = ByteReader::new(payload, header.order);
        let request = SearchRequest::decode(&mut reader);
        assert_eq!((reader.finish(), reader.n_left()), (Ok(()), 0));
        request
    }

    /// The first response of a server to the first datagram: it has the channels 7 and 8.
    fn response() -> SearchResponse {
        SearchResponse {
            guid: Guid::from_bits(1, 1),
            sequence: SEED as u32 + 1,
            address: Ipv6Addr::UNSPECIFIED,
            port: 5075,
            protocol: search::TCP.into(),
            is_found: true,
            cids: vec![Cid(7), Cid(8)],
        }
    }

    fn encoded(response: &SearchResponse, order: ByteOrder) -> Vec<u8> {
        let mut bytes = Vec::new();
        (Answer::SearchResponse {}).encode(order, &mut bytes, |to| response.encode(to));
        bytes
    }

    fn claims_in(searcher: &mut Searcher, from: SocketAddr, response: &SearchResponse) -> Vec<Claim> {
        let mut claims = Vec::new();
        searcher.handle(from, &encoded(response, ByteOrder::Big), Now::for_test(), &mut claims);
        claims
    }

    fn claim(cid: u32, server: &str, is_first: bool) -> Claim {
        Claim { cid: Cid(cid), server: server.parse().unwrap(), transport: Transport::Tcp, plain: None, is_first }
    }

    #[test]
    fn names_are_searched_at_once_with_the_bytes_of_pvxs() {
        let (_, mut out) = searching(&[(0x1234_5678, "T:enum")], Now::for_test());

        let mut expected = vec![0xca, 2, 0x80, 3, 0, 0, 0, 0x2c, 0, 0, 0, 7, 0x80, 0, 0, 0];
        expected.extend_from_slice(&[0; 16]);
        expected.extend_from_slice(&PORT.to_be_bytes());
        expected.extend_from_slice(b"\x01\x03tcp\x00\x01\x12\x34\x56\x78\x06T:enum");
        assert_eq!(out.len(), 1);
        assert_eq!(out[0].bytes_to(Reach::Host), expected);
        expected[FLAGS_OFFSET] = 0;
        assert_eq!(out[0].bytes_to(Reach::Group), expected);
    }

    #[test]
    fn a_search_names_its_port_and_lets_servers_reply_to_its_source() {
        let (_, mut out) = searching(&[(7, "x:y")], Now::for_test());

        let request = decoded(out[0].bytes_to(Reach::Host));

        let source: SocketAddr = "10.0.0.5:1".parse().unwrap();
        assert_eq!(request.reply_to(source, false), SocketAddr::new(source.ip(), PORT));
        assert_eq!(request.flags, SearchFlags::UNICAST);
        assert!(request.accepts(search::TCP) && !request.accepts(search::TLS));
        assert_eq!(request.channels, [SearchedChannel { cid: Cid(7), name: b"x:y" }]);
        assert_eq!(out[0].channels(), [SearchedChannel { cid: Cid(7), name: b"x:y" }]);
        assert_eq!(decoded(out[0].bytes_to(Reach::Group)).flags, SearchFlags(0));
    }

    #[test]
    fn searches_fill_their_datagrams_which_are_numbered() {
        let now = Now::for_test();
        let longest = "y".repeat(limit::NAME_BYTES);
        let names: Vec<String> = (0..300).map(|index| format!("x:{index:05}")).collect();
        let mut names: Vec<(u32, &str)> = (0..).zip(names.iter().map(String::as_str)).collect();
        names.push((300, &longest));

        let (_, mut out) = searching(&names, now);

        // 41 bytes before the names, 12 for each short one, 1033 for the long one.
        let sizes: Vec<usize> = out.iter().map(|datagram| datagram.bytes.len()).collect();
        assert_eq!(sizes, [41 + 113 * 12, 41 + 113 * 12, 41 + 74 * 12, 41 + 1033]);
        assert!(sizes.iter().all(|size| *size <= limit::SEARCH_BYTES));
        let requests: Vec<SearchRequest> =
            out.iter_mut().map(|datagram| decoded(datagram.bytes_to(Reach::Group))).collect();
        assert_eq!(requests.iter().map(|request| request.sequence).collect::<Vec<_>>(), [7, 8, 9, 10]);
        let searched: Vec<u32> =
            requests.iter().flat_map(|request| &request.channels).map(|channel| channel.cid.0).collect();
        assert_eq!(searched, (0..=300).collect::<Vec<_>>());
    }

    #[test]
    fn names_are_packed_until_the_next_one_does_not_fit() {
        // A name takes 4 bytes for its number, and 1 or from 254 bytes on 5 for its size.
        for (lengths, sizes) in [
            (vec![253, 253, 253, 253, 253, 64], vec![1400]),
            (vec![253, 253, 253, 253, 253, 65], vec![41 + 5 * 258, 41 + 70]),
            (vec![253, 253, 253, 253, 59, 254], vec![1400]),
            (vec![253, 253, 253, 253, 60, 254], vec![41 + 4 * 258 + 65, 41 + 263]),
        ] {
            let names: Vec<String> = lengths.iter().map(|length| "x".repeat(*length)).collect();
            let names: Vec<(u32, &str)> = (0..).zip(names.iter().map(String::as_str)).collect();

            let (_, out) = searching(&names, Now::for_test());

            let found: Vec<usize> = out.iter().map(|datagram| datagram.bytes.len()).collect();
            assert_eq!(found, sizes, "{lengths:?}");
        }
    }

    #[test]
    fn all_bits_of_the_seed_choose_the_first_sequence_number() {
        for (seed, sequence) in [(6, 7), (u64::MAX, 1), (1 << 32 | 3, 3), (u64::from(u32::MAX) << 32, 0)] {
            let (mut searcher, mut out) = (Searcher::new(seed, PORT), Vec::new());
            searcher.add(Cid(1), "x", Now::for_test());
            searcher.tick(Now::for_test(), &mut out);

            assert_eq!(decoded(out[0].bytes_to(Reach::Group)).sequence, sequence, "{seed:x}");
        }
    }

    #[test]
    fn a_lost_name_is_searched_soon_and_a_boost_searches_for_all_names() {
        let start = Now::for_test();
        let (mut searcher, mut out) = (Searcher::new(SEED, PORT), Vec::new());
        searcher.add_lost(Cid(7), "x".repeat(limit::NAME_BYTES).into(), start);
        let lost_until = start + fodo_engine::limit::LOST_SPREAD + fodo_engine::limit::SEARCH_GRID;
        assert!(searcher.deadline().is_some_and(|at| at <= lost_until.monotonic));
        searcher.tick(lost_until, &mut out);
        assert_eq!((searcher.n_names(), out.len()), (1, 1));

        let hour = start + Duration::from_secs(3600);
        let mut now = start;
        while let Some(next) = searcher.deadline().filter(|next| *next < hour.monotonic) {
            now = start + next.duration_since(start.monotonic);
            searcher.tick(now, &mut out);
        }
        searcher.boost(now);

        let boosted_until = now + fodo_engine::limit::BOOST_SPREAD + fodo_engine::limit::SEARCH_GRID;
        assert!(searcher.deadline().is_some_and(|at| at <= boosted_until.monotonic));
    }

    #[test]
    fn the_time_between_two_searches_has_the_maximum_that_was_set() {
        let start = Now::for_test();
        let (mut searcher, mut out) = (Searcher::new(SEED, PORT), Vec::new());
        searcher.set_period_max(Duration::from_secs(1));
        searcher.add(Cid(7), "x", start);

        let minute = start + Duration::from_secs(60);
        while let Some(next) = searcher.deadline().filter(|next| *next < minute.monotonic) {
            searcher.tick(start + next.duration_since(start.monotonic), &mut out);
        }

        assert!(out.len() > 40, "{}", out.len());
    }

    #[test]
    fn a_name_above_the_limit_is_never_searched() {
        let now = Now::for_test();
        let (mut searcher, out) = searching(&[(7, &"x".repeat(limit::NAME_BYTES + 1))], now);
        searcher.add_lost(Cid(8), "x".repeat(limit::NAME_BYTES + 1).into(), now);

        assert_eq!((searcher.n_names(), searcher.deadline(), out.len()), (0, None, 0));
        searcher.remove(Cid(7));
    }

    #[test]
    fn a_response_claims_its_names_for_its_source_or_for_the_address_in_it() {
        for order in [ByteOrder::Little, ByteOrder::Big] {
            for (address, port, server) in [
                (Ipv6Addr::UNSPECIFIED, 5075, Some("10.0.0.1:5075")),
                (Ipv4Addr::UNSPECIFIED.to_ipv6_mapped(), 6075, Some("10.0.0.1:6075")),
                (Ipv4Addr::new(10, 0, 0, 9).to_ipv6_mapped(), 5075, Some("10.0.0.9:5075")),
                (Ipv4Addr::new(10, 0, 0, 9).to_ipv6_mapped(), 0, None),
                (Ipv4Addr::new(224, 0, 0, 1).to_ipv6_mapped(), 5075, None),
                (Ipv4Addr::BROADCAST.to_ipv6_mapped(), 5075, None),
            ] {
                let now = Now::for_test();
                let (mut searcher, _) = searching(&[(7, "x"), (8, "y"), (9, "z")], now);
                let mut claims = Vec::new();

                searcher.handle(
                    SERVER,
                    &encoded(&SearchResponse { address, port, ..response() }, order),
                    now,
                    &mut claims,
                );

                let expected = server.map(|server| [7, 8].map(|cid| claim(cid, server, true)));
                assert_eq!(claims, expected.into_iter().flatten().collect::<Vec<_>>(), "{address} {port}");
                assert_eq!(searcher.n_names(), if server.is_some() { 1 } else { 3 });
            }
        }
    }

    #[test]
    fn responses_of_a_second_server_and_late_ones_are_not_the_first() {
        let now = Now::for_test();
        let (mut searcher, _) = searching(&[(7, "x"), (8, "y")], now);
        let other = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)), 5076);
        let of_other = SearchResponse { guid: Guid::from_bits(2, 2), cids: vec![Cid(8)], ..response() };

        let of_first = SearchResponse { cids: vec![Cid(7)], ..response() };
        assert_eq!(claims_in(&mut searcher, SERVER, &of_first), [claim(7, "10.0.0.1:5075", true)]);
        assert_eq!(claims_in(&mut searcher, other, &of_other), [claim(8, "10.0.0.2:5075", true)]);
        assert_eq!(claims_in(&mut searcher, SERVER, &of_first), [claim(7, "10.0.0.1:5075", false)]);
        let both = [claim(7, "10.0.0.2:5075", false), claim(8, "10.0.0.2:5075", false)];
        assert_eq!(claims_in(&mut searcher, other, &SearchResponse { cids: vec![Cid(7), Cid(8)], ..of_other }), both);
    }

    #[test]
    fn responses_that_claim_nothing_over_tcp_are_ignored() {
        let now = Now::for_test();
        let (mut searcher, _) = searching(&[(7, "x"), (8, "y")], now);

        for ignored in [
            SearchResponse { is_found: false, ..response() },
            SearchResponse { protocol: search::TLS.into(), ..response() },
            SearchResponse { protocol: "".into(), ..response() },
        ] {
            assert_eq!(claims_in(&mut searcher, SERVER, &ignored), []);
        }
        let (mut claims, mut from_client) = (Vec::new(), encoded(&response(), ByteOrder::Big));
        from_client[2] &= !0x40;
        searcher.handle(SERVER, &from_client, now, &mut claims);
        let whole = encoded(&response(), ByteOrder::Big);
        (0..whole.len()).for_each(|n_bytes| searcher.handle(SERVER, &whole[..n_bytes], now, &mut claims));

        assert_eq!((claims.len(), searcher.n_names()), (0, 2));
    }

    #[test]
    fn a_response_to_a_datagram_that_was_never_sent_is_ignored() {
        let now = Now::for_test();
        let (mut searcher, _) = searching(&[(7, "x"), (8, "y")], now);
        let numbered = |sequence| SearchResponse { sequence, ..response() };

        assert_eq!(claims_in(&mut searcher, SERVER, &numbered(SEED as u32)), [], "the one before the first");
        assert_eq!(claims_in(&mut searcher, SERVER, &numbered(SEED as u32 + 2)), [], "the next one");
        assert_eq!(claims_in(&mut searcher, SERVER, &numbered(SEED as u32 + 1)).len(), 2);
        assert_eq!(claims_in(&mut Searcher::new(SEED, PORT), SERVER, &numbered(SEED as u32)), []);
    }

    #[test]
    fn a_response_for_a_transport_that_was_not_offered_is_ignored() {
        let tls = SearchResponse { protocol: search::TLS.into(), ..response() };
        for (transports, names, accepted) in [
            (&[Transport::Tcp][..], &["tcp"][..], [true, false]),
            (&[Transport::Tls, Transport::Tcp], &["tls", "tcp"], [true, true]),
            (&[Transport::Tls], &["tls"], [false, true]),
        ] {
            let claimed = [response(), tls.clone()].map(|response| {
                let (mut searcher, mut out) = (Searcher::new(SEED, PORT), Vec::new());
                searcher.set_transports(transports);
                searcher.add(Cid(7), "x", Now::for_test());
                searcher.tick(Now::for_test(), &mut out);
                let offered = decoded(out[0].bytes_to(Reach::Group)).protocols;
                assert_eq!(offered.iter().map(ToString::to_string).collect::<Vec<_>>(), names);
                let claims = claims_in(&mut searcher, SERVER, &response);
                let transport = search::transport(&response.protocol).unwrap();
                assert!(claims.iter().all(|claim| claim.transport == transport), "{claims:?}");
                !claims.is_empty()
            });

            assert_eq!(claimed, accepted, "{transports:?}");
        }
    }

    #[test]
    fn a_server_with_two_addresses_is_recognized_by_its_identity() {
        let (mut searcher, _) = searching(&[(7, "x"), (8, "y")], Now::for_test());
        let [one, second, other] =
            ["10.0.0.1:5075", "192.0.2.1:5075", "10.0.0.2:5075"].map(|text| text.parse::<SocketAddr>().unwrap());

        claims_in(&mut searcher, one, &response());
        claims_in(&mut searcher, second, &response());
        claims_in(&mut searcher, other, &SearchResponse { guid: Guid::from_bits(2, 2), ..response() });

        assert!(searcher.is_one_server(one, second) && searcher.is_one_server(second, one));
        assert!(!searcher.is_one_server(one, other) && searcher.is_one_server(other, other));
        let unknown: SocketAddr = "10.0.0.3:5075".parse().unwrap();
        assert!(!searcher.is_one_server(unknown, one) && !searcher.is_one_server(one, unknown));
        assert!(!searcher.is_one_server(unknown, "10.0.0.4:5075".parse().unwrap()));
    }

    #[test]
    fn the_table_of_identities_is_bounded() {
        let (mut searcher, _) = searching(&[(7, "x")], Now::for_test());

        for index in 0..limit::SEARCH_SERVERS as u32 + 10 {
            let from = SocketAddr::new(IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + index)), 5076);
            claims_in(&mut searcher, from, &SearchResponse { cids: Vec::new(), ..response() });
        }

        assert_eq!(searcher.guids.len(), 10);
    }

    #[test]
    fn a_response_releases_one_datagram_and_a_full_burst_waits_for_it_or_for_the_pause() {
        let start = Now::for_test();
        let (mut searcher, mut out) = (Searcher::new(SEED, PORT), Vec::new());
        (0..100_000).for_each(|cid| searcher.add(Cid(cid), &format!("absent:{cid:06}"), start));
        let answered_at = start + SEARCH_PAUSE / 2;

        searcher.tick(start, &mut out);
        assert_eq!((out.len(), searcher.deadline()), (SEARCH_BURST, Some(start.monotonic + SEARCH_PAUSE)));
        searcher.send_due_searches(answered_at, &mut out);
        assert_eq!(out.len(), SEARCH_BURST);
        let answer = encoded(&response(), ByteOrder::Big);
        searcher.handle(SERVER, &answer, answered_at, &mut Vec::new());
        searcher.tick(answered_at, &mut out);
        assert_eq!(out.len(), SEARCH_BURST + 1);
        searcher.tick(answered_at + SEARCH_PAUSE, &mut out);
        assert_eq!(out.len(), 2 * SEARCH_BURST + 1);
    }

    #[test]
    fn a_removed_name_is_not_searched_and_no_names_means_no_deadline() {
        let now = Now::for_test();
        let mut searcher = Searcher::new(SEED, PORT);
        let mut out = Vec::new();
        assert_eq!(searcher.deadline(), None);
        searcher.add(Cid(1), "x", now);
        searcher.add(Cid(2), "y", now);

        searcher.remove(Cid(1));
        searcher.tick(now, &mut out);

        assert_eq!(out[0].channels(), [SearchedChannel { cid: Cid(2), name: b"y" }]);
        assert!(searcher.claimed(Cid(2), SERVER, &mut Vec::new()));
        assert!(!searcher.claimed(Cid(2), SERVER, &mut Vec::new()));
        assert_eq!(searcher.n_names(), 0);
    }
}
