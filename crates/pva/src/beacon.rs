//! Beacons: the datagrams by which servers announce themselves.

use std::net::{Ipv6Addr, SocketAddr};

use fodo_data::{Structure, Text};

use crate::cursor::{ByteReader, ByteWriter};
use crate::guid::Guid;
use crate::search;
use crate::types::TypeCache;
use crate::value;

/// The announcement of a server.
#[derive(Clone, Debug, PartialEq)]
pub struct Beacon {
    /// The server.
    pub guid: Guid,
    /// Unused.
    pub flags: u8,
    /// Counts the beacons of the server; wraps.
    pub sequence: u8,
    /// Counts the changes of the server's list of channels; wraps.
    pub change_count: u16,
    /// The server's address; unspecified: the source of the datagram.
    pub address: Ipv6Addr,
    /// The server's TCP port.
    pub port: u16,
    /// The transport.
    pub protocol: Text,
    /// The status of the server; no known server sends one.
    pub status: Option<Structure>,
}

impl Beacon {
    /// Decodes a beacon.
    pub fn decode(reader: &mut ByteReader) -> Beacon {
        Beacon {
            guid: Guid(reader.array()),
            flags: reader.u8(),
            sequence: reader.u8(),
            change_count: reader.u16(),
            address: Ipv6Addr::from(reader.array::<16>()),
            port: reader.u16(),
            protocol: reader.text(),
            // A datagram has no circuit that could store types.
            status: value::decode_any(reader, &mut TypeCache::new()),
        }
    }

    /// Encodes the payload.
    pub fn encode(&self, to: &mut ByteWriter) {
        to.bytes(&self.guid.0);
        to.u8(self.flags);
        to.u8(self.sequence);
        to.u16(self.change_count);
        to.bytes(&self.address.octets());
        to.u16(self.port);
        to.text(self.protocol.as_bytes());
        value::encode_any(self.status.as_ref(), None, to);
    }

    /// The address of the server in a beacon from `source`.
    pub fn server(&self, source: SocketAddr) -> SocketAddr {
        search::endpoint(self.address, self.port, source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cursor::ByteOrder;

    #[test]
    fn a_beacon_round_trips_and_names_its_server() {
        let beacon = Beacon {
            guid: Guid::from_bits(3, 4),
            flags: 0,
            sequence: 255,
            change_count: 300,
            address: Ipv6Addr::UNSPECIFIED,
            port: search::SERVER_PORT,
            protocol: search::TCP.into(),
            status: Some(Structure::single(1.5.into())),
        };
        for order in [ByteOrder::Little, ByteOrder::Big] {
            let mut bytes = Vec::new();
            beacon.encode(&mut ByteWriter::new(&mut bytes, order));
            let mut reader = ByteReader::new(&bytes, order);

            assert_eq!(Beacon::decode(&mut reader), beacon);
            assert_eq!(reader.finish(), Ok(()));
        }
        assert_eq!(beacon.server(([10, 0, 0, 1], 5076).into()), ([10, 0, 0, 1], search::SERVER_PORT).into());
    }
}
