//! The messages of RecSync. All numbers are big-endian; texts are UTF-8.
//!
//! Source: recsync, `server/recceiver/protocol/announce.py` and `messages.py`, and how `recast.py` takes them.

use crate::limit;
use std::net::Ipv4Addr;

/// The start of every message: "RC".
const MAGIC: u16 = 0x5243;

const SERVER_GREETING: u16 = 0x8001;
const SERVER_PING: u16 = 0x8002;
const GREETING: u16 = 0x0001;
const PONG: u16 = 0x0002;
const ADD_RECORD: u16 = 0x0003;
const DONE: u16 = 0x0005;
const ADD_INFO: u16 = 0x0006;

/// Bytes before the body of a message: magic, number, length.
pub const HEADER_BYTES: usize = 8;

/// A server's announcement: where it accepts records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// Its address; `None` if it is the sender of the datagram.
    pub address: Option<Ipv4Addr>,
    pub port: u16,
    /// A key that the client must send back in its greeting.
    pub key: u32,
}

/// The record number that stands for the IOC as a whole.
pub const WHOLE: u32 = 0;

/// A message of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FromServer {
    Greeting,
    Ping {
        nonce: u32,
    },
    /// A message that is ignored.
    Other,
}

/// The bytes are not a valid message of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidMessage;

/// Decodes a datagram; `None` if it is not an announcement, or of another version.
pub fn announcement(datagram: &[u8]) -> Option<Announcement> {
    let [m0, m1, v0, v1, a0, a1, a2, a3, p0, p1, _, _, k0, k1, k2, k3, ..] = *datagram else { return None };
    let port = u16::from_be_bytes([p0, p1]);
    if u16::from_be_bytes([m0, m1]) != MAGIC || [v0, v1] != [0, 0] || port == 0 {
        return None;
    }
    let address = Ipv4Addr::new(a0, a1, a2, a3);
    let address = (!address.is_broadcast()).then_some(address);
    Some(Announcement { address, port, key: u32::from_be_bytes([k0, k1, k2, k3]) })
}

/// Decodes the first message that a server has sent; returns it with its length, `None` while it is incomplete.
pub fn from_server(received: &[u8]) -> Result<Option<(FromServer, usize)>, InvalidMessage> {
    let [m0, m1, n0, n1, l0, l1, l2, l3, body @ ..] = received else { return Ok(None) };
    let length = u32::from_be_bytes([*l0, *l1, *l2, *l3]) as usize;
    if u16::from_be_bytes([*m0, *m1]) != MAGIC || length > limit::RECCASTER_BODY_BYTES {
        return Err(InvalidMessage);
    }
    let Some(body) = body.get(..length) else { return Ok(None) };
    let message = match (u16::from_be_bytes([*n0, *n1]), body) {
        (SERVER_GREETING, _) => FromServer::Greeting,
        (SERVER_PING, &[n0, n1, n2, n3, ..]) => FromServer::Ping { nonce: u32::from_be_bytes([n0, n1, n2, n3]) },
        (SERVER_PING, _) => return Err(InvalidMessage),
        _ => FromServer::Other,
    };
    Ok(Some((message, HEADER_BYTES + length)))
}

/// The client's greeting: version 0, client type 0.
pub fn greeting(key: u32, out: &mut Vec<u8>) {
    message(GREETING, &[&[0; 4], &key.to_be_bytes()], out);
}

/// The reply to a ping.
pub fn pong(nonce: u32, out: &mut Vec<u8>) {
    message(PONG, &[&nonce.to_be_bytes()], out);
}

/// A record; `id` is its unique number, above 0. A record whose names are too long for the message is omitted.
pub fn record(id: u32, record_type: &str, name: &str, out: &mut Vec<u8>) {
    add(id, 0, record_type, name, out);
}

/// An alias of a record that was sent before.
pub fn alias(id: u32, name: &str, out: &mut Vec<u8>) {
    add(id, 1, "", name, out);
}

/// A property of a record, or with [`WHOLE`] of the IOC. A property that is empty or too long for the message is
/// omitted.
pub fn info(id: u32, name: &str, value: &str, out: &mut Vec<u8>) {
    let (Ok(name_bytes), Ok(value_bytes)) = (u8::try_from(name.len()), u16::try_from(value.len())) else { return };
    if name_bytes > 0 && value_bytes > 0 {
        let lengths = [&[name_bytes, 0][..], &value_bytes.to_be_bytes()].concat();
        message(ADD_INFO, &[&id.to_be_bytes(), &lengths, name.as_bytes(), value.as_bytes()], out);
    }
}

/// All records were sent.
pub fn done(out: &mut Vec<u8>) {
    message(DONE, &[&[0; 4]], out);
}

fn add(id: u32, kind: u8, record_type: &str, name: &str, out: &mut Vec<u8>) {
    let (Ok(type_bytes), Ok(name_bytes)) = (u8::try_from(record_type.len()), u16::try_from(name.len())) else { return };
    let lengths = [&[kind, type_bytes][..], &name_bytes.to_be_bytes()].concat();
    message(ADD_RECORD, &[&id.to_be_bytes(), &lengths, record_type.as_bytes(), name.as_bytes()], out);
}

fn message(number: u16, body: &[&[u8]], out: &mut Vec<u8>) {
    let length: usize = body.iter().map(|part| part.len()).sum();
    out.extend(MAGIC.to_be_bytes());
    out.extend(number.to_be_bytes());
    // The parts have lengths of at most 16 bits.
    out.extend((length as u32).to_be_bytes());
    body.iter().for_each(|part| out.extend(*part));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut out = Vec::new();
        write(&mut out);
        out
    }

    #[test]
    fn an_announcement_without_an_address_means_its_sender() {
        let direct = b"RC\0\0\xff\xff\xff\xff\x4e\x20\0\0\x12\x34\x56\x78";
        let by_proxy = b"RC\0\0\x0a\x01\x02\x03\x4e\x20\0\0\0\0\0\x07 and more";

        assert_eq!(announcement(direct), Some(Announcement { address: None, port: 20000, key: 0x1234_5678 }));
        let address = Some(Ipv4Addr::new(10, 1, 2, 3));
        assert_eq!(announcement(by_proxy), Some(Announcement { address, port: 20000, key: 7 }));
    }

    #[test]
    fn announcements_that_are_invalid_or_of_another_version_are_ignored() {
        let good = *b"RC\0\0\xff\xff\xff\xff\x4e\x20\0\0\x12\x34\x56\x78";
        let with = |index: usize, byte: u8| {
            let mut datagram = good;
            datagram[index] = byte;
            announcement(&datagram)
        };

        assert_eq!((with(0, b'X'), with(3, 1)), (None, None));
        assert_eq!(announcement(b"RC\0\0\xff\xff\xff\xff\0\0\0\0\x12\x34\x56\x78"), None, "no port");
        (0..good.len()).for_each(|n| assert_eq!(announcement(&good[..n]), None));
    }

    #[test]
    fn server_messages_are_parsed_one_by_one_when_complete() {
        let bytes = b"RC\x80\x01\0\0\0\x01\0RC\x80\x02\0\0\0\x04\xde\xad\xbe\xefRC\x80\x77\0\0\0\x02xy";

        assert_eq!(from_server(bytes), Ok(Some((FromServer::Greeting, 9))));
        assert_eq!(from_server(&bytes[9..]), Ok(Some((FromServer::Ping { nonce: 0xdead_beef }, 12))));
        assert_eq!(from_server(&bytes[21..]), Ok(Some((FromServer::Other, 10))));
        (9..20).for_each(|end| assert_eq!(from_server(&bytes[9..end]), Ok(None)));
    }

    #[test]
    fn a_message_that_is_too_long_or_invalid_is_rejected_at_once() {
        assert_eq!(from_server(b"RC\x80\x02\xff\xff\xff\xff"), Err(InvalidMessage));
        assert_eq!(from_server(b"HTTP/1.1"), Err(InvalidMessage));
        assert_eq!(from_server(b"RC\x80\x02\0\0\0\x02xy"), Err(InvalidMessage), "a ping without a number");
    }

    /// The expected bytes are those that recsync's own `messages.py` encodes.
    #[test]
    fn recsync_messages_match_the_reference_encoding() {
        assert_eq!(written(|out| greeting(0x1234_5678, out)), b"RC\0\x01\0\0\0\x08\0\0\0\0\x12\x34\x56\x78");
        assert_eq!(written(|out| pong(7, out)), b"RC\0\x02\0\0\0\x04\0\0\0\x07");
        assert_eq!(written(|out| record(1, "ai", "x:gap", out)), b"RC\0\x03\0\0\0\x0f\0\0\0\x01\0\x02\0\x05aix:gap");
        assert_eq!(written(|out| alias(1, "x:g", out)), b"RC\0\x03\0\0\0\x0b\0\0\0\x01\x01\0\0\x03x:g");
        assert_eq!(written(|out| info(1, "k", "yes", out)), b"RC\0\x06\0\0\0\x0c\0\0\0\x01\x01\0\0\x03kyes");
        assert_eq!(written(done), b"RC\0\x05\0\0\0\x04\0\0\0\0");
    }

    #[test]
    fn empty_and_overlong_texts_are_omitted() {
        assert!(written(|out| info(1, "", "yes", out)).is_empty());
        assert!(written(|out| info(1, "k", "", out)).is_empty());
        assert!(written(|out| info(1, &"k".repeat(256), "yes", out)).is_empty());
        assert!(written(|out| info(1, "k", &"y".repeat(65536), out)).is_empty());
        assert!(written(|out| record(1, &"t".repeat(256), "x", out)).is_empty());
    }
}
