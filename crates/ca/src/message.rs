//! Headers and messages: one table row per command generates struct, encoder, decoder and display.
//!
//! Requests and replies share command numbers, but their words differ, so there are two tables.

use std::fmt;

use fodo_engine::{Cid, Ioid, Rights, Sid, SubscriptionId};

use crate::dbr::DbrType;
use crate::eca::Eca;

/// The minor version of this implementation; version 13 added arrays of variable length.
pub const MINOR_VERSION: u16 = 13;

/// The header of every message: 16 bytes, or 24 if size or count need more than 16 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The command number.
    pub command: u16,
    /// Size of the payload in bytes, including padding.
    pub payload_bytes: u32,
    /// For most commands a DBR type.
    pub data_type: u16,
    /// For most commands an element count.
    pub count: u32,
    /// First word; its meaning depends on the command.
    pub p1: u32,
    /// Second word; its meaning depends on the command.
    pub p2: u32,
}

/// Size of the short form.
pub const HEADER_BYTES: usize = 16;
/// Size of the extended form.
pub const EXTENDED_BYTES: usize = 24;

impl Header {
    /// Decodes the header at the start of `bytes` and returns it with its size; `None` if bytes are missing.
    #[inline]
    pub fn decode(bytes: &[u8]) -> Option<(Header, usize)> {
        let (short, rest) = bytes.split_first_chunk::<HEADER_BYTES>()?;
        let [c0, c1, s0, s1, t0, t1, n0, n1, a0, a1, a2, a3, b0, b1, b2, b3] = *short;
        let mut header = Header {
            command: u16::from_be_bytes([c0, c1]),
            payload_bytes: u32::from(u16::from_be_bytes([s0, s1])),
            data_type: u16::from_be_bytes([t0, t1]),
            count: u32::from(u16::from_be_bytes([n0, n1])),
            p1: u32::from_be_bytes([a0, a1, a2, a3]),
            p2: u32::from_be_bytes([b0, b1, b2, b3]),
        };
        if header.payload_bytes != 0xffff {
            return Some((header, HEADER_BYTES));
        }
        let [s0, s1, s2, s3, n0, n1, n2, n3] = *rest.first_chunk::<8>()?;
        header.payload_bytes = u32::from_be_bytes([s0, s1, s2, s3]);
        header.count = u32::from_be_bytes([n0, n1, n2, n3]);
        Some((header, EXTENDED_BYTES))
    }

    /// The lowest command number of a message with this first byte.
    pub fn least_command(bytes: &[u8]) -> Option<u16> {
        Some(u16::from_be_bytes([*bytes.first()?, 0]))
    }

    /// Appends the shortest form that fits: extended from 0xffff bytes or elements on, the same as rsrv.
    #[inline]
    pub fn encode(&self, out: &mut Vec<u8>) {
        if self.payload_bytes < 0xffff && self.count < 0xffff {
            return out.extend_from_slice(&self.short());
        }
        out.extend_from_slice(&Header { payload_bytes: 0xffff, count: 0, ..*self }.short());
        out.extend_from_slice(&self.payload_bytes.to_be_bytes());
        out.extend_from_slice(&self.count.to_be_bytes());
    }

    /// The short form; size and count must each be below 0xffff.
    #[inline]
    pub fn short(&self) -> [u8; HEADER_BYTES] {
        let [c0, c1] = self.command.to_be_bytes();
        let [s0, s1] = u16::to_be_bytes(self.payload_bytes as u16);
        let [t0, t1] = self.data_type.to_be_bytes();
        let [n0, n1] = u16::to_be_bytes(self.count as u16);
        let [a0, a1, a2, a3] = self.p1.to_be_bytes();
        let [b0, b1, b2, b3] = self.p2.to_be_bytes();
        [c0, c1, s0, s1, t0, t1, n0, n1, a0, a1, a2, a3, b0, b1, b2, b3]
    }
}

/// A message in the reference documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The command number.
    pub command: u16,
    /// The EPICS name.
    pub label: &'static str,
    /// The name of each field, and the header word that contains it.
    pub fields: &'static [(&'static str, &'static str)],
    /// The purpose, line by line.
    pub purpose: &'static [&'static str],
}

macro_rules! messages {
    ($(#[$doc:meta])* $kind:ident {
        $($(#[doc = $row:literal])* $code:literal $name:ident $label:literal { $($field:ident: $type:ty = $slot:ident),* };)*
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[expect(missing_docs, reason = "the rows and the types of their fields document it")]
        pub enum $kind {
            $($(#[doc = $row])* $name { $($field: $type),* },)*
            /// Any other command, unchanged.
            Unknown(Header),
        }

        impl $kind {
            /// Every known message, for the reference documentation.
            pub const ROWS: &'static [Row] = &[$(Row {
                command: $code,
                label: $label,
                fields: &[$((stringify!($field), stringify!($slot))),*],
                purpose: &[$($row),*],
            }),*];

            /// Decodes a header.
            #[inline]
            pub fn from_header(header: &Header) -> $kind {
                match header.command {
                    $($code => $kind::$name { $($field: header.$slot.into()),* },)*
                    _ => $kind::Unknown(*header),
                }
            }

            /// Encodes the header of this message for a payload of `payload_bytes`.
            // Callers know the variant: only its fields are left.
            #[inline(always)]
            pub fn header(&self, payload_bytes: usize) -> Header {
                let payload_bytes = u32::try_from(payload_bytes).unwrap_or(u32::MAX);
                let blank = |command| Header { command, payload_bytes, data_type: 0, count: 0, p1: 0, p2: 0 };
                match *self {
                    $($kind::$name { $($field),* } => {
                        Header { $($slot: $field.into(),)* ..blank($code) }
                    })*
                    $kind::Unknown(header) => header,
                }
            }

            /// Appends the message without a payload.
            #[inline]
            pub fn encode(&self, out: &mut Vec<u8>) {
                self.header(0).encode(out);
            }
        }

        impl fmt::Display for $kind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $($kind::$name { $($field),* } => {
                        f.write_str($label)?;
                        $(write!(f, concat!(" ", stringify!($field), "={}"), $field)?;)*
                        Ok(())
                    })*
                    $kind::Unknown(header) => write!(f, "command {} {header:?}", header.command),
                }
            }
        }
    };
}

messages! {
    /// Messages from clients, in circuits and datagrams.
    Request {
        /// Starts every circuit and every search datagram.
        0 Version "VERSION" { priority: u16 = data_type, minor: u32 = count, sequence: u32 = p1 };
        /// Starts a subscription; the payload contains its mask.
        1 EventAdd "EVENT_ADD" { dbr: DbrType = data_type, count: u32 = count, sid: Sid = p1, subscription: SubscriptionId = p2 };
        /// Ends a subscription.
        2 EventCancel "EVENT_CANCEL" { dbr: DbrType = data_type, count: u32 = count, sid: Sid = p1, subscription: SubscriptionId = p2 };
        /// The old get, whose reply has no status.
        3 Read "READ" { dbr: DbrType = data_type, count: u32 = count, sid: Sid = p1, ioid: Ioid = p2 };
        /// A put without a reply.
        4 Write "WRITE" { dbr: DbrType = data_type, count: u32 = count, sid: Sid = p1, ioid: Ioid = p2 };
        /// Searches for the server of the name in the payload. `reply`: 5 for no reply if the name is unknown, 10 for
        /// NOT_FOUND.
        6 Search "SEARCH" { reply: u16 = data_type, minor: u32 = count, cid: Cid = p1, again: u32 = p2 };
        /// Suspends updates.
        8 EventsOff "EVENTS_OFF" {};
        /// Resumes updates.
        9 EventsOn "EVENTS_ON" {};
        /// Ends a series of old gets.
        10 ReadSync "READ_SYNC" {};
        /// Clears a channel.
        12 ClearChannel "CLEAR_CHANNEL" { sid: Sid = p1, cid: Cid = p2 };
        /// A get.
        15 ReadNotify "READ_NOTIFY" { dbr: DbrType = data_type, count: u32 = count, sid: Sid = p1, ioid: Ioid = p2 };
        /// Creates a channel for the name in the payload.
        18 CreateChan "CREATE_CHAN" { cid: Cid = p1, minor: u32 = p2 };
        /// A put whose reply is sent when record processing has completed.
        19 WriteNotify "WRITE_NOTIFY" { dbr: DbrType = data_type, count: u32 = count, sid: Sid = p1, ioid: Ioid = p2 };
        /// The name of the user.
        20 ClientName "CLIENT_NAME" {};
        /// The name of the user's host.
        21 HostName "HOST_NAME" {};
        /// Checks whether the server is alive.
        23 Echo "ECHO" {};
        /// Registers with the repeater to receive beacons.
        24 RepeaterRegister "REPEATER_REGISTER" { address: u32 = p2 };
    }
}

messages! {
    /// Messages from servers, in circuits and datagrams.
    Answer {
        /// Starts every circuit and every datagram of search replies.
        0 Version "VERSION" { valid: u16 = data_type, minor: u32 = count, sequence: u32 = p1 };
        /// An update; without payload, confirms the end of the subscription.
        1 EventAdd "EVENT_ADD" { dbr: DbrType = data_type, count: u32 = count, status: Eca = p1, subscription: SubscriptionId = p2 };
        /// The reply to the old get.
        3 Read "READ" { dbr: DbrType = data_type, count: u32 = count, sid: Sid = p1, ioid: Ioid = p2 };
        /// The name is served at `port` of `address` (all ones: the sender's address).
        6 Search "SEARCH" { port: u16 = data_type, count: u32 = count, address: u32 = p1, cid: Cid = p2 };
        /// All old gets before the READ_SYNC request have been replied to.
        10 ReadSync "READ_SYNC" {};
        /// An error; the payload contains the request's header and a text.
        11 Error "ERROR" { cid: Cid = p1, status: Eca = p2 };
        /// Confirms that the channel was cleared.
        12 ClearChannel "CLEAR_CHANNEL" { sid: Sid = p1, cid: Cid = p2 };
        /// A beacon.
        13 RsrvIsUp "RSRV_IS_UP" { minor: u16 = data_type, port: u32 = count, beacon: u32 = p1, address: u32 = p2 };
        /// The name is not served; sent only if the search requested it.
        14 NotFound "NOT_FOUND" { reply: u16 = data_type, minor: u32 = count, cid: Cid = p1, again: u32 = p2 };
        /// The reply to a get.
        15 ReadNotify "READ_NOTIFY" { dbr: DbrType = data_type, count: u32 = count, status: Eca = p1, ioid: Ioid = p2 };
        /// The repeater has registered the client.
        17 RepeaterConfirm "REPEATER_CONFIRM" { address: u32 = p2 };
        /// Confirms the channel.
        18 CreateChan "CREATE_CHAN" { dbr: DbrType = data_type, count: u32 = count, cid: Cid = p1, sid: Sid = p2 };
        /// The reply to a put with completion.
        19 WriteNotify "WRITE_NOTIFY" { dbr: DbrType = data_type, count: u32 = count, status: Eca = p1, ioid: Ioid = p2 };
        /// The access rights to a channel.
        22 AccessRights "ACCESS_RIGHTS" { cid: Cid = p1, rights: Rights = p2 };
        /// The reply to an echo request.
        23 Echo "ECHO" {};
        /// The channel does not exist.
        26 CreateChFail "CREATE_CH_FAIL" { cid: Cid = p1 };
        /// The server removed the channel.
        27 ServerDisconn "SERVER_DISCONN" { cid: Cid = p1 };
    }
}

/// `n` rounded up to the next multiple of 8, the padding of every payload.
pub const fn padded(n: usize) -> usize {
    n.div_ceil(8) * 8
}

/// Appends a message with a NUL-terminated, padded text as payload.
pub fn encode_text(out: &mut Vec<u8>, header: impl FnOnce(usize) -> Header, text: &[u8]) {
    let bytes = padded(text.len() + 1);
    header(bytes).encode(out);
    let end = out.len() + bytes;
    out.extend_from_slice(text);
    out.resize(end, 0);
}

/// Size of a subscription's payload.
pub const MASK_BYTES: usize = 16;

/// Appends the payload of a subscription: three unused numbers, the mask, padding.
pub fn encode_mask(out: &mut Vec<u8>, mask: u16) {
    out.extend_from_slice(&[0; 12]);
    out.extend_from_slice(&mask.to_be_bytes());
    out.extend_from_slice(&[0; 2]);
}

/// The mask of a subscription; 0, which is invalid, if the payload is too short.
pub fn mask(payload: &[u8]) -> u16 {
    payload.get(12..).and_then(|rest| rest.first_chunk()).map_or(0, |&mask| u16::from_be_bytes(mask))
}

/// Size of the payload of a search reply over UDP.
pub const FOUND_BYTES: usize = 8;

/// Appends the payload of a search reply over UDP: the server's minor version, padding.
pub fn encode_found(out: &mut Vec<u8>) {
    out.extend_from_slice(&MINOR_VERSION.to_be_bytes());
    out.extend_from_slice(&[0; 6]);
}

/// The text of a payload, up to its NUL; `None` without a NUL.
pub fn text(payload: &[u8]) -> Option<&[u8]> {
    let end = payload.iter().position(|&byte| byte == 0)?;
    payload.get(..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_round_trips_with_short_and_extended_headers() {
        for count in [1, 0xfffe, 0xffff, 10_000_000] {
            let sent = Request::ReadNotify { dbr: DbrType(20), count, sid: Sid(7), ioid: Ioid(0xdead_beef) };
            let mut bytes = Vec::new();
            sent.encode(&mut bytes);

            let (header, n) = Header::decode(&bytes).unwrap();

            assert_eq!(n, bytes.len());
            assert_eq!(Request::from_header(&header), sent);
        }
    }

    #[test]
    fn an_unknown_command_round_trips() {
        let header = Header { command: 99, payload_bytes: 0, data_type: 1, count: 2, p1: 3, p2: 4 };

        let message = Request::from_header(&header);

        assert_eq!(message.header(0), header);
        assert!(message.to_string().starts_with("command 99"));
    }

    #[test]
    fn a_header_is_extended_from_0xffff_bytes_or_elements_on() {
        for (payload_bytes, count, n_bytes) in [
            (0xfffe, 0xfffe, HEADER_BYTES),
            (0xffff, 1, EXTENDED_BYTES),
            (8, 0xffff, EXTENDED_BYTES),
            (u32::MAX, u32::MAX, EXTENDED_BYTES),
        ] {
            let header = Header { command: 0x1234, payload_bytes, data_type: 0x5678, count, p1: 0x9abc_def0, p2: 7 };
            let mut bytes = Vec::new();

            header.encode(&mut bytes);

            assert_eq!(bytes.len(), n_bytes, "{payload_bytes} {count}");
            assert_eq!(Header::decode(&bytes), Some((header, n_bytes)));
            assert_eq!(Header::decode(&bytes[..n_bytes - 1]), None);
            assert_eq!((Header::least_command(&bytes), Header::least_command(&[])), (Some(0x1200), None));
        }
    }

    #[test]
    fn a_text_is_terminated_and_padded_to_a_multiple_of_eight() {
        for (text, n_bytes) in [("", 8), ("1234567", 8), ("12345678", 16)] {
            let mut bytes = vec![99];

            encode_text(&mut bytes, |size| Request::HostName {}.header(size), text.as_bytes());

            let payload = &bytes[1 + HEADER_BYTES..];
            assert_eq!((bytes[0], payload.len(), super::text(payload)), (99, n_bytes, Some(text.as_bytes())));
        }
        assert_eq!((super::text(b"no end"), super::text(b"")), (None, None));
    }

    #[test]
    fn the_mask_of_a_subscription_needs_fourteen_bytes() {
        let mut payload = Vec::new();
        encode_mask(&mut payload, 0x0105);

        assert_eq!((payload.len(), mask(&payload), mask(&payload[..14])), (MASK_BYTES, 0x0105, 0x0105));
        assert_eq!((mask(&payload[..13]), mask(&payload[..11])), (0, 0));
    }

    #[test]
    fn a_message_is_displayed_with_its_name_and_fields() {
        let request = Request::ClearChannel { sid: Sid(7), cid: Cid(8) };
        let answer = Answer::AccessRights { cid: Cid(8), rights: Rights { read: true, write: false } };
        let mut found = Vec::new();
        encode_found(&mut found);

        assert_eq!(request.to_string(), "CLEAR_CHANNEL sid=7 cid=8");
        assert_eq!(answer.to_string(), "ACCESS_RIGHTS cid=8 rights=read");
        assert_eq!(found, [0, 13, 0, 0, 0, 0, 0, 0]);
    }
}
