//! Search over UDP and TCP: requests, responses, and the tag of forwarded requests.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use fodo_data::Text;
use fodo_engine::search::Transport;

use crate::cursor::{ByteReader, ByteWriter};
use crate::guid::Guid;
use crate::{Cid, PROTOCOL_VERSION};

/// The UDP port of searches and beacons.
pub const BROADCAST_PORT: u16 = 5076;
/// The TCP port of the first server on a host.
pub const SERVER_PORT: u16 = 5075;
/// The TCP port of TLS of the first server on a host.
pub const TLS_PORT: u16 = 5076;
/// The multicast group of forwarded searches; every server joins it on the loopback interface.
pub const LOCAL_GROUP: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 128);
/// The name of the transport of this implementation.
pub const TCP: &str = "tcp";
/// The name of the transport with TLS.
pub const TLS: &str = "tls";

/// The transport with this name.
pub fn transport(name: &Text) -> Option<Transport> {
    match name.as_bytes() {
        b"tcp" => Some(Transport::Tcp),
        b"tls" => Some(Transport::Tls),
        _ => None,
    }
}

/// The name of a transport: [`TCP`] or [`TLS`].
pub const fn transport_name(transport: Transport) -> &'static str {
    match transport {
        Transport::Tcp => TCP,
        Transport::Tls => TLS,
    }
}

/// The names of transports, for a search.
pub fn transport_names(transports: &[Transport]) -> Vec<Text> {
    transports.iter().map(|transport| transport_name(*transport).into()).collect()
}

/// The flags of a search.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SearchFlags(pub u8);

impl SearchFlags {
    /// A server replies even if it has none of the channels.
    pub const MUST_REPLY: SearchFlags = SearchFlags(0x01);
    /// Servers reply to the source port of the datagram and ignore the port in the request, so that replies pass
    /// address translation; ignored in forwarded requests. Version 3 of the protocol; older servers ignore it.
    pub const REPLY_TO_SOURCE: SearchFlags = SearchFlags(0x02);
    /// The datagram was sent to one host. Of several servers on it only one receives it, and forwards it.
    pub const UNICAST: SearchFlags = SearchFlags(0x80);

    /// Whether all bits of `other` are set.
    pub const fn contains(self, other: SearchFlags) -> bool {
        self.0 & other.0 == other.0
    }

    /// All bits of both.
    pub const fn with(self, other: SearchFlags) -> SearchFlags {
        SearchFlags(self.0 | other.0)
    }

    /// The bits that `other` does not have.
    pub const fn without(self, other: SearchFlags) -> SearchFlags {
        SearchFlags(self.0 & !other.0)
    }
}

/// A name that is searched for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SearchedChannel<'a> {
    /// The client's number for the channel.
    pub cid: Cid,
    /// The name.
    pub name: &'a [u8],
}

impl fmt::Debug for SearchedChannel<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.cid, String::from_utf8_lossy(self.name))
    }
}

/// A search for channels; without channels, and with [`SearchFlags::MUST_REPLY`], for all servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchRequest<'a> {
    /// A number that the responses repeat.
    pub sequence: u32,
    /// How to reply.
    pub flags: SearchFlags,
    /// Where to reply to; unspecified: the source of the datagram.
    pub address: Ipv6Addr,
    /// The UDP port to reply to.
    pub port: u16,
    /// The transports that the client can use.
    pub protocols: Vec<Text>,
    /// The names.
    pub channels: Vec<SearchedChannel<'a>>,
}

/// The reply to a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchResponse {
    /// The server.
    pub guid: Guid,
    /// The number of the request.
    pub sequence: u32,
    /// The server's address; unspecified: the source of the reply.
    pub address: Ipv6Addr,
    /// The server's TCP port.
    pub port: u16,
    /// The transport.
    pub protocol: Text,
    /// Whether the server has these channels; `false` in a reply that the request demanded.
    pub is_found: bool,
    /// The client's numbers.
    pub cids: Vec<Cid>,
}

/// Precedes a search in a datagram that a server forwards to the other servers of its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OriginTag {
    /// The destination address of the datagram that is forwarded. A server ignores what was not sent to one of its own
    /// addresses, and never forwards it again.
    pub destination: Ipv6Addr,
}

/// An address as it is sent: IPv4 addresses mapped to IPv6.
pub fn wire_address(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

/// The address in a message; `None` if it is unspecified: the sender's.
pub fn specified(address: Ipv6Addr) -> Option<IpAddr> {
    let address = address.to_ipv4_mapped().map_or(IpAddr::V6(address), IpAddr::V4);
    (!address.is_unspecified()).then_some(address)
}

/// The address and port in a message from `source`, whose address replaces an unspecified one. A link-local address is
/// one of the network from which the message came.
pub fn endpoint(address: Ipv6Addr, port: u16, source: SocketAddr) -> SocketAddr {
    let mut endpoint = source;
    endpoint.set_port(port);
    if let Some(address) = specified(address) {
        match (&mut endpoint, address) {
            (SocketAddr::V6(endpoint), IpAddr::V6(address)) if address.is_unicast_link_local() => {
                endpoint.set_ip(address);
            }
            _ => endpoint = SocketAddr::new(address, port),
        }
    }
    endpoint
}

impl<'a> SearchRequest<'a> {
    /// Decodes a search.
    pub fn decode(reader: &mut ByteReader<'a>) -> SearchRequest<'a> {
        let sequence = reader.u32();
        let flags = SearchFlags(reader.u8());
        reader.take(3);
        let address = Ipv6Addr::from(reader.array::<16>());
        let port = reader.u16();
        let n_protocols = reader.count(1);
        let protocols = (0..n_protocols).map_while(|_| Some(reader.text()).filter(|_| !reader.has_failed())).collect();
        let n_channels = reader.u16();
        let channel = |reader: &mut ByteReader<'a>| {
            let channel = SearchedChannel { cid: Cid(reader.u32()), name: reader.text_bytes() };
            (!reader.has_failed()).then_some(channel)
        };
        let channels = (0..n_channels).map_while(|_| channel(reader)).collect();
        SearchRequest { sequence, flags, address, port, protocols, channels }
    }

    /// Encodes the payload; at most 65535 channels.
    pub fn encode(&self, to: &mut ByteWriter) {
        to.u32(self.sequence);
        to.u8(self.flags.0);
        to.bytes(&[0; 3]);
        to.bytes(&self.address.octets());
        to.u16(self.port);
        to.size(self.protocols.len());
        self.protocols.iter().for_each(|protocol| to.text(protocol.as_bytes()));
        to.u16(self.channels.len() as u16);
        for channel in &self.channels {
            to.u32(channel.cid.0);
            to.text(channel.name);
        }
    }

    /// Where to send the response to a request from `source`. `is_forwarded`: it came after an [`OriginTag`].
    pub fn reply_to(&self, source: SocketAddr, is_forwarded: bool) -> SocketAddr {
        if self.flags.contains(SearchFlags::REPLY_TO_SOURCE) && !is_forwarded {
            return source;
        }
        endpoint(self.address, self.port, source)
    }

    /// The request as a server forwards it: with the address of its source, and no longer as unicast.
    pub fn forwarded(&self, source: SocketAddr) -> SearchRequest<'a> {
        let reply_to = self.reply_to(source, false);
        SearchRequest {
            flags: self.flags.without(SearchFlags::UNICAST),
            address: wire_address(reply_to.ip()),
            port: reply_to.port(),
            ..self.clone()
        }
    }

    /// Whether the client can use a transport. A search without transports, as of `pvlist`, accepts all of them.
    pub fn accepts(&self, protocol: &str) -> bool {
        self.protocols.is_empty() || self.protocols.iter().any(|offered| offered.as_bytes() == protocol.as_bytes())
    }
}

impl SearchResponse {
    /// Decodes a response.
    pub fn decode(reader: &mut ByteReader) -> SearchResponse {
        let guid = Guid(reader.array());
        let sequence = reader.u32();
        let address = Ipv6Addr::from(reader.array::<16>());
        let (port, protocol, is_found) = (reader.u16(), reader.text(), reader.bool());
        let n_cids = reader.u16();
        let cid = |reader: &mut ByteReader| Some(Cid(reader.u32())).filter(|_| !reader.has_failed());
        let cids = (0..n_cids).map_while(|_| cid(reader)).collect();
        SearchResponse { guid, sequence, address, port, protocol, is_found, cids }
    }

    /// Encodes the payload; at most 65535 channels.
    pub fn encode(&self, to: &mut ByteWriter) {
        to.bytes(&self.guid.0);
        to.u32(self.sequence);
        to.bytes(&self.address.octets());
        to.u16(self.port);
        to.text(self.protocol.as_bytes());
        to.bool(self.is_found);
        to.u16(self.cids.len() as u16);
        self.cids.iter().for_each(|cid| to.u32(cid.0));
    }

    /// The address of the server in a response from `source`.
    pub fn server(&self, source: SocketAddr) -> SocketAddr {
        endpoint(self.address, self.port, source)
    }
}

impl OriginTag {
    /// Decodes a tag.
    pub fn decode(reader: &mut ByteReader) -> OriginTag {
        OriginTag { destination: Ipv6Addr::from(reader.array::<16>()) }
    }

    /// Encodes the payload.
    pub fn encode(&self, to: &mut ByteWriter) {
        to.bytes(&self.destination.octets());
    }
}

/// The version to declare in the header of a search with these flags.
pub const fn version_of(flags: SearchFlags) -> u8 {
    if flags.contains(SearchFlags::REPLY_TO_SOURCE) { 3 } else { PROTOCOL_VERSION }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cursor::ByteOrder;

    fn request(flags: SearchFlags, address: IpAddr) -> SearchRequest<'static> {
        SearchRequest {
            sequence: 7,
            flags,
            address: wire_address(address),
            port: 4000,
            protocols: vec!["tcp".into(), "tls".into()],
            channels: vec![SearchedChannel { cid: Cid(1), name: b"a" }, SearchedChannel { cid: Cid(2), name: b"bc" }],
        }
    }

    const ANY: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 5));
    const GATEWAY: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 9));

    #[test]
    fn a_search_and_its_response_round_trip_in_both_orders() {
        let response = SearchResponse {
            guid: Guid::from_bits(1, 2),
            sequence: 7,
            address: Ipv6Addr::UNSPECIFIED,
            port: SERVER_PORT,
            protocol: TCP.into(),
            is_found: true,
            cids: vec![Cid(1), Cid(2)],
        };
        for order in [ByteOrder::Little, ByteOrder::Big] {
            let (mut search_bytes, mut response_bytes) = (Vec::new(), Vec::new());
            let search = request(SearchFlags::UNICAST, CLIENT);
            search.encode(&mut ByteWriter::new(&mut search_bytes, order));
            response.encode(&mut ByteWriter::new(&mut response_bytes, order));

            assert_eq!(SearchRequest::decode(&mut ByteReader::new(&search_bytes, order)), search);
            assert_eq!(SearchResponse::decode(&mut ByteReader::new(&response_bytes, order)), response);
        }
    }

    #[test]
    fn a_response_is_sent_to_the_address_in_the_request_or_to_the_source() {
        let source = SocketAddr::new(GATEWAY, 999);

        assert_eq!(request(SearchFlags(0), CLIENT).reply_to(source, false), SocketAddr::new(CLIENT, 4000));
        assert_eq!(request(SearchFlags(0), ANY).reply_to(source, false), SocketAddr::new(GATEWAY, 4000));
        let nowhere = request(SearchFlags(0), IpAddr::V6(Ipv6Addr::UNSPECIFIED));
        assert_eq!(nowhere.reply_to(source, false), SocketAddr::new(GATEWAY, 4000));
        let translated = request(SearchFlags::REPLY_TO_SOURCE, CLIENT);
        assert_eq!(translated.reply_to(source, false), source);
        assert_eq!(translated.reply_to(source, true), SocketAddr::new(CLIENT, 4000));
        assert_eq!((version_of(translated.flags), version_of(SearchFlags(0))), (3, 2));
    }

    #[test]
    fn a_forwarded_search_names_its_source_and_is_not_forwarded_again() {
        let flags = SearchFlags::UNICAST.with(SearchFlags::MUST_REPLY);
        let forwarded = request(flags, ANY).forwarded(SocketAddr::new(CLIENT, 999));

        assert_eq!((forwarded.flags, flags.with(flags)), (SearchFlags::MUST_REPLY, flags));
        assert_eq!(forwarded.reply_to(SocketAddr::new(GATEWAY, 1), true), SocketAddr::new(CLIENT, 4000));
        let translated = request(SearchFlags::REPLY_TO_SOURCE, ANY).forwarded(SocketAddr::new(CLIENT, 999));
        assert_eq!(translated.reply_to(SocketAddr::new(GATEWAY, 1), true), SocketAddr::new(CLIENT, 999));
        let mut bytes = Vec::new();
        let tag = OriginTag { destination: wire_address(CLIENT) };
        tag.encode(&mut ByteWriter::new(&mut bytes, ByteOrder::Big));
        assert_eq!(bytes[10..], [0xff, 0xff, 10, 0, 0, 5]);
        assert_eq!(OriginTag::decode(&mut ByteReader::new(&bytes, ByteOrder::Big)), tag);
    }

    #[test]
    fn a_search_that_claims_more_names_than_its_bytes_is_malformed() {
        let mut bytes = Vec::new();
        request(SearchFlags(0), ANY).encode(&mut ByteWriter::new(&mut bytes, ByteOrder::Big));
        for n_bytes in 0..bytes.len() {
            let mut reader = ByteReader::new(&bytes[..n_bytes], ByteOrder::Big);

            SearchRequest::decode(&mut reader);

            assert!(reader.has_failed(), "{n_bytes}");
        }
        assert!(request(SearchFlags(0), ANY).accepts(TLS) && !request(SearchFlags(0), ANY).accepts("udp"));
    }
}
