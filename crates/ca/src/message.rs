//! Headers and messages: one table row per command gives struct, encoder, decoder and display.
//!
//! Requests and answers share numbers but not the meaning of their words, so there are two tables.

use std::fmt;

use crate::dbr::DbrType;
use crate::eca::Eca;
use crate::{Cid, Ioid, Rights, Sid, SubscriptionId};

/// The minor version spoken here; 13 brought arrays of the length they have.
pub const MINOR_VERSION: u16 = 13;

/// What stands before every payload: 16 bytes, or 24 when size or count need more than 16 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Which message.
    pub command: u16,
    /// Bytes of the payload, padding included.
    pub payload_bytes: u32,
    /// Mostly a DBR type.
    pub data_type: u16,
    /// Mostly a number of elements.
    pub count: u32,
    /// First word; its meaning depends on the command.
    pub p1: u32,
    /// Second word, likewise.
    pub p2: u32,
}

/// Bytes of the short form.
pub const HEADER_BYTES: usize = 16;
/// Bytes of the extended form.
pub const EXTENDED_BYTES: usize = 24;

impl Header {
    /// The header at the start of `bytes` and how many bytes it takes; `None` when some are missing.
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

    /// The least command that a message with this first byte can have.
    pub fn least_command(bytes: &[u8]) -> Option<u16> {
        Some(u16::from_be_bytes([*bytes.first()?, 0]))
    }

    /// Appends the form that fits: extended from 0xffff bytes or elements on, as rsrv does.
    #[inline]
    pub fn encode(&self, out: &mut Vec<u8>) {
        if self.payload_bytes < 0xffff && self.count < 0xffff {
            return out.extend_from_slice(&self.short());
        }
        out.extend_from_slice(&Header { payload_bytes: 0xffff, count: 0, ..*self }.short());
        out.extend_from_slice(&self.payload_bytes.to_be_bytes());
        out.extend_from_slice(&self.count.to_be_bytes());
    }

    /// The short form; size and count must fit it.
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

/// A message as the reference page shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its number.
    pub command: u16,
    /// Its name in the field.
    pub label: &'static str,
    /// What each field means, and the word of the header that holds it.
    pub fields: &'static [(&'static str, &'static str)],
    /// What it is for, line by line.
    pub purpose: &'static [&'static str],
}

macro_rules! messages {
    ($(#[$doc:meta])* $kind:ident {
        $($(#[doc = $row:literal])* $code:literal $name:ident $label:literal { $($field:ident: $type:ty = $slot:ident),* };)*
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[expect(missing_docs, reason = "the rows and the types of their fields say it")]
        pub enum $kind {
            $($(#[doc = $row])* $name { $($field: $type),* },)*
            /// Any other; survives as it came.
            Unknown(Header),
        }

        impl $kind {
            /// Every known one, for the reference page.
            pub const ROWS: &'static [Row] = &[$(Row {
                command: $code,
                label: $label,
                fields: &[$((stringify!($field), stringify!($slot))),*],
                purpose: &[$($row),*],
            }),*];

            /// What a header says.
            #[inline]
            pub fn from_header(header: &Header) -> $kind {
                match header.command {
                    $($code => $kind::$name { $($field: header.$slot.into()),* },)*
                    _ => $kind::Unknown(*header),
                }
            }

            /// The header of this message before a payload of `payload_bytes`.
            #[inline]
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

            /// Appends it without a payload.
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
    /// What clients send, on circuits and in datagrams.
    Request {
        /// First of all, and at the head of every datagram of searches.
        0 Version "VERSION" { priority: u16 = data_type, minor: u32 = count, sequence: u32 = p1 };
        /// A subscription; the payload holds its mask.
        1 EventAdd "EVENT_ADD" { dbr: DbrType = data_type, count: u32 = count, sid: Sid = p1, subscription: SubscriptionId = p2 };
        /// Its end.
        2 EventCancel "EVENT_CANCEL" { dbr: DbrType = data_type, count: u32 = count, sid: Sid = p1, subscription: SubscriptionId = p2 };
        /// The old get, without a status in its answer.
        3 Read "READ" { dbr: DbrType = data_type, count: u32 = count, sid: Sid = p1, ioid: Ioid = p2 };
        /// A put without an answer.
        4 Write "WRITE" { dbr: DbrType = data_type, count: u32 = count, sid: Sid = p1, ioid: Ioid = p2 };
        /// Who serves the name in the payload? `reply`: 5 silence means no, 10 say no.
        6 Search "SEARCH" { reply: u16 = data_type, minor: u32 = count, cid: Cid = p1, again: u32 = p2 };
        /// No more updates for now.
        8 EventsOff "EVENTS_OFF" {};
        /// Updates again.
        9 EventsOn "EVENTS_ON" {};
        /// Done with a burst of old reads.
        10 ReadSync "READ_SYNC" {};
        /// The channel is given up.
        12 ClearChannel "CLEAR_CHANNEL" { sid: Sid = p1, cid: Cid = p2 };
        /// A get.
        15 ReadNotify "READ_NOTIFY" { dbr: DbrType = data_type, count: u32 = count, sid: Sid = p1, ioid: Ioid = p2 };
        /// A channel to the name in the payload.
        18 CreateChan "CREATE_CHAN" { cid: Cid = p1, minor: u32 = p2 };
        /// A put that is answered when its processing has ended.
        19 WriteNotify "WRITE_NOTIFY" { dbr: DbrType = data_type, count: u32 = count, sid: Sid = p1, ioid: Ioid = p2 };
        /// Who the user is.
        20 ClientName "CLIENT_NAME" {};
        /// Which host he is on.
        21 HostName "HOST_NAME" {};
        /// Are you there?
        23 Echo "ECHO" {};
        /// Wants beacons from the repeater.
        24 RepeaterRegister "REPEATER_REGISTER" { address: u32 = p2 };
    }
}

messages! {
    /// What servers send, on circuits and in datagrams.
    Answer {
        /// First of all, and at the head of every datagram of answers.
        0 Version "VERSION" { valid: u16 = data_type, minor: u32 = count, sequence: u32 = p1 };
        /// An update; without payload the end of the subscription.
        1 EventAdd "EVENT_ADD" { dbr: DbrType = data_type, count: u32 = count, status: Eca = p1, subscription: SubscriptionId = p2 };
        /// To the old get.
        3 Read "READ" { dbr: DbrType = data_type, count: u32 = count, sid: Sid = p1, ioid: Ioid = p2 };
        /// The name is served at `port` of `address` (all ones: of whoever sent this).
        6 Search "SEARCH" { port: u16 = data_type, count: u32 = count, address: u32 = p1, cid: Cid = p2 };
        /// All old reads before the request of that name are answered.
        10 ReadSync "READ_SYNC" {};
        /// A complaint; the payload holds the request's header and a text.
        11 Error "ERROR" { cid: Cid = p1, status: Eca = p2 };
        /// The channel is given up.
        12 ClearChannel "CLEAR_CHANNEL" { sid: Sid = p1, cid: Cid = p2 };
        /// A beacon.
        13 RsrvIsUp "RSRV_IS_UP" { minor: u16 = data_type, port: u32 = count, beacon: u32 = p1, address: u32 = p2 };
        /// The name is not served, for those who want to be told.
        14 NotFound "NOT_FOUND" { reply: u16 = data_type, minor: u32 = count, cid: Cid = p1, again: u32 = p2 };
        /// To a get.
        15 ReadNotify "READ_NOTIFY" { dbr: DbrType = data_type, count: u32 = count, status: Eca = p1, ioid: Ioid = p2 };
        /// The repeater knows the client.
        17 RepeaterConfirm "REPEATER_CONFIRM" { address: u32 = p2 };
        /// The channel is there.
        18 CreateChan "CREATE_CHAN" { dbr: DbrType = data_type, count: u32 = count, cid: Cid = p1, sid: Sid = p2 };
        /// To a put that is answered.
        19 WriteNotify "WRITE_NOTIFY" { dbr: DbrType = data_type, count: u32 = count, status: Eca = p1, ioid: Ioid = p2 };
        /// What may be done with a channel.
        22 AccessRights "ACCESS_RIGHTS" { cid: Cid = p1, rights: Rights = p2 };
        /// Here.
        23 Echo "ECHO" {};
        /// No such channel.
        26 CreateChFail "CREATE_CH_FAIL" { cid: Cid = p1 };
        /// The channel is gone.
        27 ServerDisconn "SERVER_DISCONN" { cid: Cid = p1 };
    }
}

/// `n` rounded up to the next multiple of 8, as every payload is.
pub const fn padded(n: usize) -> usize {
    n.div_ceil(8) * 8
}

/// Appends a message whose payload is a text with its NUL, padded.
pub fn encode_text(out: &mut Vec<u8>, header: impl FnOnce(usize) -> Header, text: &[u8]) {
    let bytes = padded(text.len() + 1);
    header(bytes).encode(out);
    let end = out.len() + bytes;
    out.extend_from_slice(text);
    out.resize(end, 0);
}

/// Bytes of a subscription's payload.
pub const MASK_BYTES: usize = 16;

/// Appends the payload of a subscription: three numbers that nobody uses, the mask, padding.
pub fn encode_mask(out: &mut Vec<u8>, mask: u16) {
    out.extend_from_slice(&[0; 12]);
    out.extend_from_slice(&mask.to_be_bytes());
    out.extend_from_slice(&[0; 2]);
}

/// The mask of a subscription; 0, which is none, when the payload is too short.
pub fn mask(payload: &[u8]) -> u16 {
    payload.get(12..).and_then(|rest| rest.first_chunk()).map_or(0, |&mask| u16::from_be_bytes(mask))
}

/// Bytes of the payload of an answer to a search over UDP.
pub const FOUND_BYTES: usize = 8;

/// Appends the payload of an answer to a search over UDP: the server's minor version, padding.
pub fn encode_found(out: &mut Vec<u8>) {
    out.extend_from_slice(&MINOR_VERSION.to_be_bytes());
    out.extend_from_slice(&[0; 6]);
}

/// The text of a payload, up to its NUL; `None` without one.
pub fn text(payload: &[u8]) -> Option<&[u8]> {
    let end = payload.iter().position(|&byte| byte == 0)?;
    payload.get(..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_comes_back_as_it_was_sent_in_both_header_forms() {
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
    fn an_unknown_command_survives() {
        let header = Header { command: 99, payload_bytes: 0, data_type: 1, count: 2, p1: 3, p2: 4 };

        let message = Request::from_header(&header);

        assert_eq!(message.header(0), header);
        assert!(message.to_string().starts_with("command 99"));
    }
}
