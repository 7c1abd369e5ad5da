//! The server's side of search over UDP: replies to searches, forwards them to the other servers of its host, and
//! announces the server.
//!
//! ```
//! use std::net::Ipv4Addr;
//!
//! use fodo_data::Now;
//! use fodo_pva::frame;
//! use fodo_pva::guid::Guid;
//! use fodo_pva::responder::{Arrival, Recipient, Responder};
//! use fodo_pva::search::SERVER_PORT;
//!
//! let mut responder = Responder::new(Guid::from_bits(1, 2), SERVER_PORT, Now::for_test());
//! let mut datagrams = Vec::new();
//!
//! // A search for T:enum, as pvxs sends it.
//! let mut search = b"\xca\x02\x80\x03\0\0\0\x2cfind\0\0\0\0".to_vec();
//! search.extend([0; 16]);
//! search.extend(b"\xd2\xd9\x01\x03tcp\0\x01\x12\x34\x56\x78\x06T:enum");
//! let client = (Ipv4Addr::new(10, 0, 0, 5), 4000).into();
//! responder.handle(client, Arrival::Shared, &search, &mut |name| name == "T:enum", &mut datagrams);
//!
//! // The reply is sent to the port in the search.
//! let to = (Ipv4Addr::new(10, 0, 0, 5), 0xd2d9).into();
//! assert_eq!(datagrams[0].to, Recipient::Client { to, from: None });
//! assert_eq!(frame::datagram(&datagrams[0].bytes).count(), 1);
//! ```

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Instant;

use fodo_data::Now;

use crate::beacon::Beacon;
use crate::cursor::{ByteOrder, ByteReader, Malformed};
use crate::frame::{self, FrameError};
use crate::guid::Guid;
use crate::limit;
use crate::message::{Answer, Request};
use crate::search::{self, OriginTag, SearchFlags, SearchRequest, SearchResponse, SearchedChannel};

/// How a datagram was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// At an address of this host: of all servers on it, only this one received the datagram.
    Unicast {
        /// The address.
        destination: IpAddr,
    },
    /// As a broadcast or multicast, which the other servers of this host also receive; or in an unknown way.
    Shared,
    /// In the group of forwarded searches ([`search::LOCAL_GROUP`]).
    LocalGroup,
}

/// Where to send a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recipient {
    /// To a client.
    Client {
        /// The client's address.
        to: SocketAddr,
        /// The address of this host to send from: the one that the client searched, which it takes for the server's.
        /// `None`: the one at which the search was received.
        from: Option<IpAddr>,
    },
    /// To the other servers of this host, through [`search::LOCAL_GROUP`] on loopback.
    LocalGroup,
    /// To every beacon address.
    Beacons,
}

/// A datagram to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Where to send it.
    pub to: Recipient,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// What is invalid in a datagram; the messages before it are replied to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DatagramFlaw {
    /// A message has an invalid header, or the datagram ends within it. Later messages cannot be found.
    Frame(FrameError),
    /// A search cannot be decoded.
    Search(Malformed),
    /// A name is empty, too long or not UTF-8. Contains the start of the first such name.
    NoName(String),
}

/// Replies to searches and sends beacons.
///
/// If several servers of a host share the port of searches, a datagram to one address reaches only one of them. It
/// forwards the search to the others, with the address of the client and a tag with the address that the client
/// searched; they reply to the client and never forward the search again.
#[derive(Debug)]
pub struct Responder {
    guid: Guid,
    /// The ports of its circuits by plain TCP and by TLS; `None` if it has none.
    tcp_port: Option<u16>,
    tls_port: Option<u16>,
    /// The addresses it serves at; empty for all.
    interfaces: Vec<IpAddr>,
    /// Hosts whose searches are ignored.
    ignored: Vec<IpAddr>,
    beacon_sequence: u8,
    n_fast_beacons_left: u32,
    beacon_at: Instant,
}

/// A search, and how it was received.
struct ReceivedSearch<'a> {
    request: SearchRequest<'a>,
    order: ByteOrder,
    source: SocketAddr,
    arrival: Arrival,
    /// The address that the client searched, if another server forwarded the search.
    searched_address: Option<Ipv6Addr>,
}

impl Responder {
    /// Creates a responder for a server whose circuits are at `tcp_port`. `guid`: the identity of the server, which its
    /// circuits also send.
    pub fn new(guid: Guid, tcp_port: u16, now: Now) -> Responder {
        Responder {
            guid,
            tcp_port: Some(tcp_port),
            tls_port: None,
            interfaces: Vec::new(),
            ignored: Vec::new(),
            beacon_sequence: 0,
            n_fast_beacons_left: limit::FAST_BEACONS,
            beacon_at: now.monotonic,
        }
    }

    /// Sets the ports of circuits by plain TCP and by TLS; by default there is only the former. A client that accepts both
    /// transports receives that of TLS.
    pub fn set_ports(&mut self, tcp: Option<u16>, tls: Option<u16>) {
        (self.tcp_port, self.tls_port) = (tcp, tls);
    }

    /// The transport for a client, and its port.
    fn transport(&self, request: &SearchRequest<'_>) -> Option<(&'static str, u16)> {
        let tls = self.tls_port.filter(|_| request.accepts(search::TLS));
        let tcp = self.tcp_port.filter(|_| request.accepts(search::TCP));
        match (tls, tcp) {
            // A client that names no transport may not know TLS.
            (_, Some(port)) if request.protocols.is_empty() => Some((search::TCP, port)),
            (Some(port), _) => Some((search::TLS, port)),
            (None, Some(port)) => Some((search::TCP, port)),
            (None, None) => None,
        }
    }

    /// Replies to forwarded searches only if the client searched one of these addresses; if there are none, to all.
    pub fn set_interfaces(&mut self, interfaces: Vec<IpAddr>) {
        self.interfaces = interfaces;
    }

    /// Ignores the searches of these hosts, also forwarded ones.
    pub fn set_ignored(&mut self, ignored: Vec<IpAddr>) {
        self.ignored = ignored;
    }

    /// The identity of the server.
    pub fn guid(&self) -> Guid {
        self.guid
    }

    /// Processes a datagram, calls `serves` for every name in it and appends the replies and what must be forwarded.
    ///
    /// Each search has at most one reply, with at most 12 bytes more than the search, because its sender may be forged.
    /// It is sent in the byte order of the search. Returns what was invalid in the datagram.
    pub fn handle(
        &self,
        source: SocketAddr,
        arrival: Arrival,
        bytes: &[u8],
        serves: &mut dyn FnMut(&str) -> bool,
        out: &mut Vec<Datagram>,
    ) -> Option<DatagramFlaw> {
        if !is_client(source) || self.ignores(source) {
            return None;
        }
        let mut flaw = None;
        let mut searched_address = None;
        for frame in frame::datagram(bytes) {
            let (header, payload) = match frame {
                Ok(message) => message,
                Err(error) => return flaw.or(Some(DatagramFlaw::Frame(error))),
            };
            // pvxs and Phoebus do not check the direction either.
            let mut reader = ByteReader::new(payload, header.order);
            match Request::decode(header.command, &mut reader) {
                Request::OriginTag {} => {
                    let tag = OriginTag::decode(&mut reader);
                    let is_first = searched_address.is_none() && !reader.has_failed();
                    if !(is_first && self.accepts_forwarded(source, arrival, &tag)) {
                        return flaw;
                    }
                    searched_address = Some(tag.destination);
                }
                Request::Search {} => {
                    let request = SearchRequest::decode(&mut reader);
                    if let Err(error) = reader.finish() {
                        flaw.get_or_insert(DatagramFlaw::Search(error));
                        continue;
                    }
                    let search = ReceivedSearch { request, order: header.order, source, arrival, searched_address };
                    if let Some(invalid_name) = self.search(&search, serves, out) {
                        flaw.get_or_insert(DatagramFlaw::NoName(invalid_name));
                    }
                }
                _ => {}
            }
        }
        flaw
    }

    /// Replies to a search, or forwards it, or both. Returns the start of the first invalid name.
    fn search(
        &self,
        search: &ReceivedSearch<'_>,
        serves: &mut dyn FnMut(&str) -> bool,
        out: &mut Vec<Datagram>,
    ) -> Option<String> {
        let ReceivedSearch { request, order, source, arrival, searched_address } = search;
        // The group also receives searches that clients send to it. They are received at other sockets as well.
        if *arrival == Arrival::LocalGroup && searched_address.is_none() {
            return None;
        }
        let is_forwarded = searched_address.is_some();
        // The server that forwarded the search knows the client, and its own address is not the client's.
        if is_forwarded && search::specified(request.address).is_none() {
            return None;
        }
        let client = request.reply_to(*source, is_forwarded);
        if !is_client(client) || self.ignores(client) {
            return None;
        }
        if let Arrival::Unicast { destination } = arrival
            && request.flags.contains(SearchFlags::UNICAST)
        {
            out.push(forwarded(request, *order, *source, *destination));
        }
        let (protocol, port) = self.transport(request)?;
        let mut invalid_name = None;
        let mut cids = Vec::new();
        for channel in &request.channels {
            match name_of(channel) {
                Some(name) if serves(name) => cids.push(channel.cid),
                Some(_) => {}
                None => drop(invalid_name.get_or_insert_with(|| start_of(channel.name))),
            }
        }
        if !cids.is_empty() || request.flags.contains(SearchFlags::MUST_REPLY) {
            let response = SearchResponse {
                guid: self.guid,
                sequence: request.sequence,
                address: Ipv6Addr::UNSPECIFIED,
                port,
                protocol: protocol.into(),
                is_found: !cids.is_empty(),
                cids,
            };
            let mut bytes = Vec::new();
            Answer::SearchResponse {}.encode(*order, &mut bytes, |to| response.encode(to));
            let from = searched_address.and_then(search::specified);
            out.push(Datagram { to: Recipient::Client { to: client, from }, bytes });
        }
        invalid_name
    }

    /// Whether to reply to searches after this tag. Only servers of this host can send datagrams to the group from a
    /// loopback address.
    fn accepts_forwarded(&self, source: SocketAddr, arrival: Arrival, tag: &OriginTag) -> bool {
        let is_ours = || search::specified(tag.destination).is_some_and(|address| self.interfaces.contains(&address));
        arrival == Arrival::LocalGroup && source.ip().is_loopback() && (self.interfaces.is_empty() || is_ours())
    }

    fn ignores(&self, client: SocketAddr) -> bool {
        self.ignored.contains(&client.ip())
    }

    /// Emits a beacon for each transport if they are due.
    pub fn tick(&mut self, now: Now, out: &mut Vec<Datagram>) {
        if now.monotonic < self.beacon_at {
            return;
        }
        for (protocol, port) in [(search::TCP, self.tcp_port), (search::TLS, self.tls_port)] {
            let Some(port) = port else { continue };
            let beacon = Beacon {
                guid: self.guid,
                flags: 0,
                sequence: self.beacon_sequence,
                change_count: 0,
                address: Ipv6Addr::UNSPECIFIED,
                port,
                protocol: protocol.into(),
                status: None,
            };
            let mut bytes = Vec::new();
            // The same order as pvxs.
            Answer::Beacon {}.encode(ByteOrder::Big, &mut bytes, |to| beacon.encode(to));
            out.push(Datagram { to: Recipient::Beacons, bytes });
        }
        self.beacon_sequence = self.beacon_sequence.wrapping_add(1);
        let (fast, slow) = limit::BEACON_PERIODS;
        self.beacon_at = now.monotonic + if self.n_fast_beacons_left > 0 { fast } else { slow };
        self.n_fast_beacons_left = self.n_fast_beacons_left.saturating_sub(1);
    }

    /// When the next beacon is due.
    pub fn deadline(&self) -> Option<Instant> {
        Some(self.beacon_at)
    }
}

/// A search for the other servers of this host.
fn forwarded(request: &SearchRequest<'_>, order: ByteOrder, source: SocketAddr, searched: IpAddr) -> Datagram {
    let tag = OriginTag { destination: search::wire_address(searched) };
    let mut bytes = Vec::new();
    Request::OriginTag {}.encode(order, &mut bytes, |to| tag.encode(to));
    Request::Search {}.encode(order, &mut bytes, |to| request.forwarded(source).encode(to));
    Datagram { to: Recipient::LocalGroup, bytes }
}

/// Whether this can be the address of a client, to which one may reply.
fn is_client(address: SocketAddr) -> bool {
    fodo_engine::search::is_endpoint(address)
}

/// The name that is searched for, if it is valid.
fn name_of<'a>(channel: &SearchedChannel<'a>) -> Option<&'a str> {
    let name = std::str::from_utf8(channel.name).ok()?;
    (1..=limit::NAME_BYTES).contains(&name.len()).then_some(name)
}

/// The start of an invalid name, for display.
fn start_of(name: &[u8]) -> String {
    String::from_utf8_lossy(&name[..name.len().min(limit::SHOWN_NAME_BYTES_MAX)]).into_owned()
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use super::*;
    use crate::Cid;

    const CLIENT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 5)), 4000);
    const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 9));
    const RELAY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 5000);
    const ORDERS: [ByteOrder; 2] = [ByteOrder::Little, ByteOrder::Big];

    fn responder() -> Responder {
        Responder::new(Guid::from_bits(3, 4), 6075, Now::for_test())
    }

    /// A search whose reply goes to port 4001 of its source.
    fn request(flags: SearchFlags, names: &'static [&'static str]) -> SearchRequest<'static> {
        let channels =
            names.iter().zip(1..).map(|(name, cid)| SearchedChannel { cid: Cid(cid), name: name.as_bytes() });
        SearchRequest {
            sequence: 77,
            flags,
            address: Ipv6Addr::UNSPECIFIED,
            port: 4001,
            protocols: vec!["tls".into(), "tcp".into()],
            channels: channels.collect(),
        }
    }

    fn encoded(request: &SearchRequest<'_>, order: ByteOrder) -> Vec<u8> {
        let mut bytes = Vec::new();
        Request::Search {}.encode(order, &mut bytes, |to| request.encode(to));
        bytes
    }

    /// The bytes of a search that another server forwards, which was sent to `searched`.
    fn tagged(request: &SearchRequest<'_>, searched: IpAddr) -> Vec<u8> {
        forwarded(request, ByteOrder::Big, CLIENT, searched).bytes
    }

    /// Handles a datagram by a server that has all names that start with `x`.
    fn handled(responder: &Responder, source: SocketAddr, arrival: Arrival, bytes: &[u8]) -> (Vec<Datagram>, bool) {
        let mut out = Vec::new();
        let flaw = responder.handle(source, arrival, bytes, &mut |name| name.starts_with('x'), &mut out);
        (out, flaw.is_some())
    }

    /// The only reply, and where it is sent.
    fn reply(out: &[Datagram]) -> (Recipient, SearchResponse, ByteOrder) {
        let [Datagram { to, bytes }] = out else { panic!("{out:?}") };
        let (header, payload) = frame::datagram(bytes).next().unwrap().unwrap();
        let mut reader = ByteReader::new(payload, header.order);
        assert_eq!(
            (Answer::decode(header.command, &mut reader), header.from),
            (Answer::SearchResponse {}, frame::Sender::Server)
        );
        let response = SearchResponse::decode(&mut reader);
        assert_eq!((reader.finish(), reader.n_left()), (Ok(()), 0));
        (*to, response, header.order)
    }

    #[test]
    fn the_reply_names_the_served_channels_and_repeats_the_sequence_in_the_order_of_the_search() {
        for order in ORDERS {
            let search = encoded(&request(SearchFlags(0), &["x1", "y", "x2"]), order);

            let (out, has_flaw) = handled(&responder(), CLIENT, Arrival::Shared, &search);

            let (to, response, reply_order) = reply(&out);
            assert_eq!(to, Recipient::Client { to: SocketAddr::new(CLIENT.ip(), 4001), from: None });
            assert_eq!((response.sequence, response.port, response.guid), (77, 6075, Guid::from_bits(3, 4)));
            assert_eq!((response.address, response.protocol), (Ipv6Addr::UNSPECIFIED, "tcp".into()));
            assert_eq!((response.is_found, response.cids), (true, vec![Cid(1), Cid(3)]));
            assert_eq!((reply_order, has_flaw), (order, false));
        }
    }

    #[test]
    fn a_client_receives_the_port_of_the_transport_that_both_sides_have_tls_first() {
        let offered = |names: &[&str]| SearchRequest {
            protocols: names.iter().map(|name| (*name).into()).collect(),
            ..request(SearchFlags(0), &["x"])
        };
        let of = |tcp, tls, names: &[&str]| {
            let mut responder = responder();
            responder.set_ports(tcp, tls);
            let (out, _) = handled(&responder, CLIENT, Arrival::Shared, &encoded(&offered(names), ByteOrder::Big));
            (!out.is_empty()).then(|| reply(&out).1).map(|response| (response.protocol.to_string(), response.port))
        };
        let (tcp, tls) = (Some(("tcp".to_owned(), 1)), Some(("tls".to_owned(), 2)));

        assert_eq!([of(Some(1), Some(2), &["tcp", "tls"]), of(Some(1), Some(2), &["tls"])], [tls.clone(), tls.clone()]);
        assert_eq!([of(Some(1), Some(2), &["tcp"]), of(Some(1), Some(2), &[])], [tcp.clone(), tcp.clone()]);
        assert_eq!([of(Some(1), None, &["tls", "tcp"]), of(Some(1), None, &["tls"])], [tcp, None]);
        assert_eq!([of(None, Some(2), &["tcp"]), of(None, Some(2), &[])], [None, tls]);
    }

    #[test]
    fn each_transport_is_announced_by_a_beacon_of_its_own() {
        let mut responder = responder();
        responder.set_ports(Some(1), Some(2));
        let mut out = Vec::new();

        responder.tick(Now::for_test(), &mut out);

        let announced = out.iter().map(|datagram| {
            let (header, payload) = frame::datagram(&datagram.bytes).next().unwrap().unwrap();
            let beacon = Beacon::decode(&mut ByteReader::new(payload, header.order));
            (beacon.protocol.to_string(), beacon.port, beacon.sequence)
        });
        assert_eq!(announced.collect::<Vec<_>>(), [("tcp".to_owned(), 1, 0), ("tls".to_owned(), 2, 0)]);
    }

    #[test]
    fn a_reply_is_sent_to_the_address_in_the_search_or_to_its_source() {
        let other = Ipv4Addr::new(10, 0, 0, 6);
        let explicit = SearchRequest { address: search::wire_address(other.into()), ..request(SearchFlags(0), &["x"]) };
        let to_source = SearchRequest { flags: SearchFlags::REPLY_TO_SOURCE, ..explicit.clone() };

        for (search, expected) in [(explicit, SocketAddr::from((other, 4001))), (to_source, CLIENT)] {
            let (out, _) = handled(&responder(), CLIENT, Arrival::Shared, &encoded(&search, ByteOrder::Big));

            assert_eq!(reply(&out).0, Recipient::Client { to: expected, from: None });
        }
    }

    #[test]
    fn nothing_is_sent_to_addresses_that_are_not_one_host() {
        let nowhere = |address: [u8; 4], port| SearchRequest {
            address: search::wire_address(address.into()),
            port,
            ..request(SearchFlags::MUST_REPLY, &["x"])
        };

        for search in [nowhere([224, 0, 0, 128], 1), nowhere([255; 4], 1), nowhere([10, 0, 0, 1], 0)] {
            assert_eq!(
                handled(&responder(), CLIENT, Arrival::Shared, &encoded(&search, ByteOrder::Big)),
                (vec![], false)
            );
        }
        let group = SearchRequest { address: "ff02::1".parse().unwrap(), ..request(SearchFlags(0), &["x"]) };
        assert!(handled(&responder(), CLIENT, Arrival::Shared, &encoded(&group, ByteOrder::Big)).0.is_empty());
    }

    // Row 34 of docs/reference/faults.md.
    #[test]
    fn a_client_has_an_ipv4_address_in_both_forms_or_one_of_ipv6() {
        let to = |address| SearchRequest { address, ..request(SearchFlags(0), &["x"]) };
        let from = |source: &str, address: Ipv6Addr| {
            let bytes = encoded(&to(address), ByteOrder::Big);
            handled(&responder(), source.parse().unwrap(), Arrival::Shared, &bytes).0
        };
        let mapped = Ipv4Addr::new(10, 0, 0, 6).to_ipv6_mapped();

        let expected = |ip: [u8; 4]| Recipient::Client { to: SocketAddr::from((ip, 4001)), from: None };
        assert_eq!(reply(&from("10.0.0.5:4000", mapped)).0, expected([10, 0, 0, 6]));
        for unspecified in [Ipv6Addr::UNSPECIFIED, Ipv4Addr::UNSPECIFIED.to_ipv6_mapped()] {
            assert_eq!(reply(&from("10.0.0.5:4000", unspecified)).0, expected([10, 0, 0, 5]));
        }
        let expected = |to: &str| Recipient::Client { to: to.parse().unwrap(), from: None };
        let link_local = "fe80::1".parse().unwrap();
        // A link-local address belongs to the interface of the sender.
        for address in [Ipv6Addr::UNSPECIFIED, link_local] {
            assert_eq!(reply(&from("[fe80::1%2]:4000", address)).0, expected("[fe80::1%2]:4001"));
        }
        let global = "2001:db8::5".parse().unwrap();
        assert_eq!(reply(&from("[2001:db8::1]:4000", global)).0, expected("[2001:db8::5]:4001"));
    }

    #[test]
    fn a_search_that_finds_nothing_is_answered_only_on_demand() {
        let silent = encoded(&request(SearchFlags(0), &["y"]), ByteOrder::Little);
        let demanding = encoded(&request(SearchFlags::MUST_REPLY, &["y"]), ByteOrder::Little);
        let discovery = encoded(&request(SearchFlags::MUST_REPLY, &[]), ByteOrder::Little);

        assert!(handled(&responder(), CLIENT, Arrival::Shared, &silent).0.is_empty());
        for search in [demanding, discovery] {
            let (out, _) = handled(&responder(), CLIENT, Arrival::Shared, &search);
            let (_, response, _) = reply(&out);
            assert_eq!((response.is_found, response.cids, response.sequence), (false, vec![], 77));
        }
    }

    #[test]
    fn a_client_without_tcp_gets_no_reply_but_one_that_names_no_transport_does() {
        let tls = SearchRequest { protocols: vec!["tls".into()], ..request(SearchFlags::MUST_REPLY, &["x"]) };
        let any = SearchRequest { protocols: vec![], ..tls.clone() };

        assert_eq!(handled(&responder(), CLIENT, Arrival::Shared, &encoded(&tls, ByteOrder::Big)), (vec![], false));
        let (out, _) = handled(&responder(), CLIENT, Arrival::Shared, &encoded(&any, ByteOrder::Big));
        assert!(reply(&out).1.is_found);
    }

    #[test]
    fn malformed_searches_are_reported_and_the_messages_before_them_are_answered() {
        let good = encoded(&request(SearchFlags(0), &["x"]), ByteOrder::Big);
        let mut many_names = good.clone();
        many_names[8 + 35..][..2].copy_from_slice(&[0xff; 2]);
        for n_bytes in 1..good.len() {
            let (out, has_flaw) = handled(&responder(), CLIENT, Arrival::Shared, &good[..n_bytes]);
            assert!(out.is_empty() && has_flaw, "{n_bytes}");
        }

        for bad in [&many_names, &vec![0; 8], &vec![0xca, 0, 0, 3, 0, 0, 0, 0]] {
            assert_eq!(handled(&responder(), CLIENT, Arrival::Shared, bad), (vec![], true));
            let (out, has_flaw) = handled(&responder(), CLIENT, Arrival::Shared, &[&good, bad.as_slice()].concat());
            assert_eq!((reply(&out).1.cids, has_flaw), (vec![Cid(1)], true));
        }
        let mut out = Vec::new();
        let flaw = responder().handle(CLIENT, Arrival::Shared, &many_names, &mut |_| true, &mut out).unwrap();
        assert!(matches!(flaw, DatagramFlaw::Search(_)), "{flaw:?}");
    }

    #[test]
    fn a_count_of_protocols_beyond_the_datagram_is_harmless() {
        let good = encoded(&request(SearchFlags(0), &["x"]), ByteOrder::Big);
        let mut many = good[..8 + 26].to_vec();
        many.extend([254, 0x7f, 0xff, 0xff, 0xff]);
        let payload_bytes = many.len() as u8 - 8;
        many[7] = payload_bytes;

        assert_eq!(handled(&responder(), CLIENT, Arrival::Shared, &many), (vec![], true));
    }

    #[test]
    fn invalid_names_are_reported_and_the_others_are_answered() {
        let long = "x".repeat(limit::NAME_BYTES + 1);
        for (name, shown) in [(&b""[..], ""), (b"x\xff", "x\u{fffd}"), (long.as_bytes(), &long[..64])] {
            let mut search = request(SearchFlags(0), &["x"]);
            search.channels.push(SearchedChannel { cid: Cid(9), name });
            let mut out = Vec::new();

            let bytes = encoded(&search, ByteOrder::Little);
            let flaw = responder().handle(CLIENT, Arrival::Shared, &bytes, &mut |_| true, &mut out);

            assert_eq!(flaw, Some(DatagramFlaw::NoName(shown.into())));
            assert_eq!(reply(&out).1.cids, [Cid(1)]);
        }
        let longest = "x".repeat(limit::NAME_BYTES);
        let mut search = request(SearchFlags(0), &[]);
        search.channels.push(SearchedChannel { cid: Cid(9), name: longest.as_bytes() });
        let (out, has_flaw) = handled(&responder(), CLIENT, Arrival::Shared, &encoded(&search, ByteOrder::Little));
        assert_eq!((reply(&out).1.cids, has_flaw), (vec![Cid(9)], false));
    }

    #[test]
    fn beacons_and_replies_of_other_servers_are_not_flaws() {
        let mut out = Vec::new();
        responder().tick(Now::for_test(), &mut out);
        let beacon = out.remove(0).bytes;
        let (found, _) =
            handled(&responder(), CLIENT, Arrival::Shared, &encoded(&request(SearchFlags(0), &["x"]), ByteOrder::Big));

        for bytes in [&beacon, &found[0].bytes, &vec![]] {
            assert_eq!(handled(&responder(), CLIENT, Arrival::Shared, bytes), (vec![], false));
        }
    }

    #[test]
    fn a_unicast_search_is_answered_and_forwarded_to_the_other_servers_which_reply_to_the_client() {
        let unicast = Arrival::Unicast { destination: SERVER };
        for order in ORDERS {
            let search = encoded(&request(SearchFlags::UNICAST, &["x"]), order);
            let (out, _) = handled(&responder(), CLIENT, unicast, &search);

            let (forwards, replies): (Vec<_>, Vec<_>) =
                out.into_iter().partition(|one| one.to == Recipient::LocalGroup);
            let client = SocketAddr::new(CLIENT.ip(), 4001);
            assert_eq!(reply(&replies).0, Recipient::Client { to: client, from: None });
            let [forward] = forwards.as_slice() else { panic!("{forwards:?}") };
            let (again, has_flaw) = handled(&responder(), RELAY, Arrival::LocalGroup, &forward.bytes);
            let (to, response, _) = reply(&again);
            assert_eq!(to, Recipient::Client { to: client, from: Some(SERVER) });
            assert_eq!((response.sequence, has_flaw), (77, false));
        }
    }

    #[test]
    fn only_unicast_searches_with_the_flag_are_forwarded() {
        let plain = encoded(&request(SearchFlags(0), &["y"]), ByteOrder::Big);
        let flagged = encoded(&request(SearchFlags::UNICAST, &["y"]), ByteOrder::Big);
        let unicast = Arrival::Unicast { destination: SERVER };

        assert_eq!(handled(&responder(), CLIENT, unicast, &plain).0, []);
        assert_eq!(handled(&responder(), CLIENT, Arrival::Shared, &flagged).0, []);
        assert_eq!(handled(&responder(), CLIENT, unicast, &flagged).0.len(), 1, "also if this server has none of them");
        let tls = SearchRequest { protocols: vec!["tls".into()], ..request(SearchFlags::UNICAST, &["x"]) };
        let (out, _) = handled(&responder(), CLIENT, unicast, &encoded(&tls, ByteOrder::Big));
        assert!(matches!(out.as_slice(), [Datagram { to: Recipient::LocalGroup, .. }]), "others may have it");
    }

    #[test]
    fn a_forwarded_search_is_never_forwarded_again() {
        let mut search = request(SearchFlags::UNICAST, &["y"]);
        search.address = search::wire_address(CLIENT.ip());
        let tag = tagged(&search, SERVER)[..24].to_vec();
        let with_flag = [tag, encoded(&search, ByteOrder::Big)].concat();

        for arrival in [Arrival::LocalGroup, Arrival::Shared, Arrival::Unicast { destination: SERVER }] {
            assert_eq!(handled(&responder(), RELAY, arrival, &with_flag), (vec![], false), "{arrival:?}");
        }
    }

    #[test]
    fn a_tag_is_accepted_only_in_the_group_and_from_this_host() {
        let bytes = tagged(&request(SearchFlags(0), &["x"]), SERVER);
        let n_replies = |source, arrival, bytes: &[u8]| handled(&responder(), source, arrival, bytes).0.len();

        assert_eq!(n_replies(RELAY, Arrival::LocalGroup, &bytes), 1);
        assert_eq!(n_replies(CLIENT, Arrival::LocalGroup, &bytes), 0);
        assert_eq!(n_replies(RELAY, Arrival::Shared, &bytes), 0);
        assert_eq!(n_replies(RELAY, Arrival::Unicast { destination: SERVER }, &bytes), 0);
        let twice = [&bytes[..24], &bytes].concat();
        assert_eq!(n_replies(RELAY, Arrival::LocalGroup, &twice), 0, "with one tag only");
        assert_eq!(
            n_replies(RELAY, Arrival::LocalGroup, &bytes[24..]),
            0,
            "without a tag other sockets receive it too"
        );
        let anonymous = [&bytes[..24], &encoded(&request(SearchFlags(0), &["x"]), ByteOrder::Big)].concat();
        assert_eq!(n_replies(RELAY, Arrival::LocalGroup, &anonymous), 0, "and with the client's address");
    }

    #[test]
    fn a_server_of_some_interfaces_replies_to_forwarded_searches_of_these_only() {
        let mut responder = responder();
        let search = request(SearchFlags(0), &["x"]);
        let any = tagged(&search, Ipv4Addr::UNSPECIFIED.into());

        assert_eq!(handled(&responder, RELAY, Arrival::LocalGroup, &any).0.len(), 1, "Phoebus may send no address");
        responder.set_interfaces(vec![SERVER]);
        assert_eq!(handled(&responder, RELAY, Arrival::LocalGroup, &tagged(&search, SERVER)).0.len(), 1);
        for bytes in [any, tagged(&search, Ipv4Addr::LOCALHOST.into())] {
            assert_eq!(handled(&responder, RELAY, Arrival::LocalGroup, &bytes), (vec![], false));
        }
    }

    #[test]
    fn searches_of_ignored_hosts_are_ignored_also_if_they_are_forwarded() {
        let mut responder = responder();
        let search = request(SearchFlags::UNICAST, &["x"]);
        responder.set_ignored(vec![CLIENT.ip()]);

        let bytes = encoded(&search, ByteOrder::Big);
        assert_eq!(handled(&responder, CLIENT, Arrival::Unicast { destination: SERVER }, &bytes), (vec![], false));
        assert_eq!(handled(&responder, RELAY, Arrival::LocalGroup, &tagged(&search, SERVER)), (vec![], false));
    }

    #[test]
    fn a_reply_is_at_most_12_bytes_larger_than_its_search() {
        for names in [&["x"][..], &["x", "x", "x"], &[]] {
            let bytes = encoded(&request(SearchFlags::MUST_REPLY, names), ByteOrder::Big);
            let shortest = SearchRequest { protocols: vec![], ..request(SearchFlags::MUST_REPLY, names) };

            for bytes in [bytes, encoded(&shortest, ByteOrder::Big)] {
                let (out, _) = handled(&responder(), CLIENT, Arrival::Shared, &bytes);
                assert!(out[0].bytes.len() <= bytes.len() + 12, "{} {}", out[0].bytes.len(), bytes.len());
            }
        }
    }

    #[test]
    fn ten_beacons_follow_the_first_one_every_15_seconds_and_then_one_every_180_seconds() {
        let start = Now::for_test();
        let mut responder = responder();
        let mut sent_at = Vec::new();
        let mut beacons = Vec::new();

        while sent_at.len() < 13 {
            let at = responder.deadline().unwrap();
            let mut out = Vec::new();
            let after = at.duration_since(start.monotonic);
            if let Some(before) = after.checked_sub(Duration::from_nanos(1)) {
                responder.tick(start + before, &mut out);
                assert!(out.is_empty());
            }
            responder.tick(start + after, &mut out);
            sent_at.push(after.as_secs());
            beacons.append(&mut out);
        }

        let fast = (0..=10).map(|number| 15 * number);
        assert_eq!(sent_at, fast.chain([330, 510]).collect::<Vec<u64>>());
        assert_eq!((beacons.len(), responder.guid()), (13, Guid::from_bits(3, 4)));
        for (sequence, beacon) in (0..).zip(&beacons) {
            assert_eq!(beacon.to, Recipient::Beacons);
            let (header, payload) = frame::datagram(&beacon.bytes).next().unwrap().unwrap();
            let beacon = Beacon::decode(&mut ByteReader::new(payload, header.order));
            assert_eq!((beacon.guid, beacon.sequence, beacon.port), (Guid::from_bits(3, 4), sequence, 6075));
            assert_eq!((beacon.address, beacon.protocol, beacon.status), (Ipv6Addr::UNSPECIFIED, "tcp".into(), None));
        }
    }
}
