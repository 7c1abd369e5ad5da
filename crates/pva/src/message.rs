//! Application messages: one table row per command and direction generates type, encoder, decoder and display.
//!
//! A row contains the fields at the start of a message. What follows them depends on the operation: a type
//! ([`crate::types`]), values ([`crate::value`]) or both. Requests and replies share command numbers, but their fields
//! differ, so there are two tables.

use std::fmt;

use fodo_data::Text;

use crate::cursor::{ByteOrder, ByteReader, ByteWriter};
use crate::frame::{self, Sender};
use crate::status::RequestStatus;
use crate::{Cid, Ioid, Sid};

/// The operation that a message of a request or reply means; bits, some of which combine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Subcommand(pub u8);

impl Subcommand {
    /// Executes the operation; for a monitor an update.
    pub const EXECUTE: Subcommand = Subcommand(0x00);
    /// Stops the updates of a monitor; processes the record of an array operation, or requests its length.
    pub const STOP: Subcommand = Subcommand(0x04);
    /// Starts an operation: the request contains the pvRequest, the reply the type.
    pub const INIT: Subcommand = Subcommand(0x08);
    /// The last message of an operation, which ends with it.
    pub const DESTROY: Subcommand = Subcommand(0x10);
    /// Reads the value of a put, put-get or array.
    pub const GET: Subcommand = Subcommand(0x40);
    /// Starts the updates of a monitor.
    pub const START: Subcommand = Subcommand(0x44);
    /// Acknowledges updates of a monitor with flow control; reads back the put value of a put-get; sets the length of
    /// an array.
    pub const ACK: Subcommand = Subcommand(0x80);

    /// Whether all bits of `other` are set.
    pub const fn contains(self, other: Subcommand) -> bool {
        self.0 & other.0 == other.0
    }
}

impl fmt::Display for Subcommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:02x}", self.0)
    }
}

/// A channel that a client requests.
#[derive(Clone, PartialEq, Eq)]
pub struct NewChannel {
    /// The client's number for the channel.
    pub cid: Cid,
    /// The name of the PV.
    pub name: Text,
}

impl fmt::Debug for NewChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.cid, self.name)
    }
}

/// A message in the reference documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The command number.
    pub command: u8,
    /// The EPICS name.
    pub label: &'static str,
    /// The name and the type of each field at its start.
    pub fields: &'static [(&'static str, &'static str)],
    /// The purpose, line by line.
    pub purpose: &'static [&'static str],
}

/// A field at the start of a message.
trait WireField {
    fn read(reader: &mut ByteReader) -> Self;
    fn write(&self, to: &mut ByteWriter);
    /// As part of a line for people.
    fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result;
}

macro_rules! wire_fields {
    ($($type:ty: $show:literal, $read:expr, $write:expr;)*) => {$(
        impl WireField for $type {
            #[inline]
            fn read(reader: &mut ByteReader) -> $type {
                let read: fn(&mut ByteReader) -> $type = $read;
                read(reader)
            }

            #[inline]
            fn write(&self, to: &mut ByteWriter) {
                let write: fn(&$type, &mut ByteWriter) = $write;
                write(self, to);
            }

            fn show(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, $show, self)
            }
        }
    )*};
}

wire_fields! {
    u8: "{}", |from| from.u8(), |number, to| to.u8(*number);
    u16: "{}", |from| from.u16(), |number, to| to.u16(*number);
    u32: "{}", |from| from.u32(), |number, to| to.u32(*number);
    Cid: "{}", |from| Cid(from.u32()), |number, to| to.u32(number.0);
    Sid: "{}", |from| Sid(from.u32()), |number, to| to.u32(number.0);
    Ioid: "{}", |from| Ioid(from.u32()), |number, to| to.u32(number.0);
    Subcommand: "{}", |from| Subcommand(from.u8()), |sub, to| to.u8(sub.0);
    Text: "{:?}", |from| from.text(), |text, to| to.text(text.as_bytes());
    RequestStatus: "{}", RequestStatus::decode, |status, to| status.encode(to);
    NewChannel: "{:?}", |from| NewChannel { cid: Cid(from.u32()), name: from.text() }, |channel, to| {
        to.u32(channel.cid.0);
        to.text(channel.name.as_bytes());
    };
    Vec<Text>: "{:?}", |from| {
        let n_texts = from.count(1);
        (0..n_texts).map_while(|_| Some(from.text()).filter(|_| !from.has_failed())).collect()
    }, |texts, to| {
        to.size(texts.len());
        texts.iter().for_each(|text| to.text(text.as_bytes()));
    };
    // The only list whose count has always 16 bits.
    Vec<NewChannel>: "{:?}", |from| {
        let n_channels = from.u16();
        (0..n_channels).map_while(|_| Some(NewChannel::read(from)).filter(|_| !from.has_failed())).collect()
    }, |channels, to| {
        to.u16(channels.len() as u16);
        channels.iter().for_each(|channel| channel.write(to));
    };
}

macro_rules! messages {
    ($(#[$doc:meta])* $kind:ident from $sender:ident {
        $($(#[doc = $row:literal])* $code:literal $name:ident $label:literal { $($field:ident: $type:ty),* };)*
    }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[expect(missing_docs, reason = "the rows and the types of their fields document it")]
        pub enum $kind {
            $($(#[doc = $row])* $name { $($field: $type),* },)*
            /// Any other command.
            Unknown(u8),
        }

        impl $kind {
            /// Every known message, for the reference documentation.
            pub const ROWS: &'static [Row] = &[$(Row {
                command: $code,
                label: $label,
                fields: &[$((stringify!($field), stringify!($type))),*],
                purpose: &[$($row),*],
            }),*];

            /// Decodes the fields at the start of a payload; what follows them remains in the reader.
            #[inline]
            pub fn decode(command: u8, reader: &mut ByteReader) -> $kind {
                match command {
                    $($code => $kind::$name { $($field: <$type as WireField>::read(reader)),* },)*
                    command => $kind::Unknown(command),
                }
            }

            /// The command number.
            #[inline]
            pub fn command(&self) -> u8 {
                match self {
                    $($kind::$name { .. } => $code,)*
                    $kind::Unknown(command) => *command,
                }
            }

            /// Appends the message; `body` writes what follows its fields.
            #[inline]
            pub fn encode(&self, order: ByteOrder, out: &mut Vec<u8>, body: impl FnOnce(&mut ByteWriter)) {
                frame::encode(out, Sender::$sender, order, self.command(), |to| {
                    match self {
                        $($kind::$name { $($field),* } => {
                            $($field.write(to);)*
                        })*
                        $kind::Unknown(_) => {}
                    }
                    body(to);
                });
            }
        }

        impl fmt::Display for $kind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $($kind::$name { $($field),* } => {
                        f.write_str($label)?;
                        $(
                            f.write_str(concat!(" ", stringify!($field), "="))?;
                            WireField::show($field, f)?;
                        )*
                        Ok(())
                    })*
                    $kind::Unknown(command) => write!(f, "command {command}"),
                }
            }
        }
    };
}

/// The command of a get and of its reply. The most frequent messages are encoded and decoded without an enum.
pub(crate) const GET: u8 = 10;
/// The command of an update.
pub(crate) const MONITOR: u8 = 13;

messages! {
    /// Messages from clients.
    Request from Client {
        /// Chooses one of the server's methods of authentication. The body is what the method needs, a value with its
        /// type ([`crate::validation`]). `registry_size`: how many type ids the sender stores.
        1 ConnectionValidation "CONNECTION_VALIDATION" { buffer_bytes: u32, registry_size: u16, qos: u16, method: Text };
        /// Checks whether the server is alive. The server returns the body.
        2 Echo "ECHO" {};
        /// Searches for channels ([`crate::search`]).
        3 Search "SEARCH" {};
        /// The next step of an authentication; no method uses it.
        5 Authentication "AUTHNZ" {};
        /// Creates channels. Clients must create one per message: pvAccessCPP closes the circuit for more, Phoebus
        /// replies to the first only.
        7 CreateChannel "CREATE_CHANNEL" { channels: Vec<NewChannel> };
        /// Ends a channel.
        8 DestroyChannel "DESTROY_CHANNEL" { sid: Sid, cid: Cid };
        /// A get. The body of INIT is the pvRequest.
        10 Get "GET" { sid: Sid, ioid: Ioid, sub: Subcommand };
        /// A put. The body of INIT is the pvRequest, that of EXECUTE the changed nodes and their values.
        11 Put "PUT" { sid: Sid, ioid: Ioid, sub: Subcommand };
        /// A put followed by a get; the bodies are those of a put.
        12 PutGet "PUT_GET" { sid: Sid, ioid: Ioid, sub: Subcommand };
        /// A subscription. The body of INIT is the pvRequest, that of ACK the number of updates that may be sent.
        13 Monitor "MONITOR" { sid: Sid, ioid: Ioid, sub: Subcommand };
        /// Reads or writes a part of an array.
        14 Array "ARRAY" { sid: Sid, ioid: Ioid, sub: Subcommand };
        /// Ends an operation.
        15 DestroyRequest "DESTROY_REQUEST" { sid: Sid, ioid: Ioid };
        /// Processes a record. The body of INIT is the pvRequest.
        16 Process "PROCESS" { sid: Sid, ioid: Ioid, sub: Subcommand };
        /// Requests the type of a channel or of one of its fields, whose path is empty for the whole.
        17 GetField "GET_FIELD" { sid: Sid, ioid: Ioid, sub_field: Text };
        /// Calls a procedure. The body of INIT is the pvRequest, that of EXECUTE the argument with its type.
        20 Rpc "RPC" { sid: Sid, ioid: Ioid, sub: Subcommand };
        /// Interrupts the execution of an operation, which remains.
        21 CancelRequest "CANCEL_REQUEST" { sid: Sid, ioid: Ioid };
        /// Precedes a forwarded search ([`crate::search`]).
        22 OriginTag "ORIGIN_TAG" {};
    }
}

messages! {
    /// Messages from servers.
    Answer from Server {
        /// A beacon ([`crate::beacon`]).
        0 Beacon "BEACON" {};
        /// The methods of authentication that the server accepts, the preferred one last.
        1 ConnectionValidation "CONNECTION_VALIDATION" { buffer_bytes: u32, registry_size: u16, methods: Vec<Text> };
        /// The reply to an echo request, with its body.
        2 Echo "ECHO" {};
        /// The reply to a search ([`crate::search`]).
        4 SearchResponse "SEARCH_RESPONSE" {};
        /// The next step of an authentication; no method uses it.
        5 Authentication "AUTHNZ" {};
        /// The client's rights to a channel: 1 for put, 2 for put-get, 4 for RPC. Only Phoebus sends it, before the
        /// reply to CREATE_CHANNEL.
        6 AclChange "ACL_CHANGE" { cid: Cid, rights: u8 };
        /// The reply to CREATE_CHANNEL, one for each channel.
        7 CreateChannel "CREATE_CHANNEL" { cid: Cid, sid: Sid, status: RequestStatus };
        /// Confirms the end of a channel, or ends it.
        8 DestroyChannel "DESTROY_CHANNEL" { sid: Sid, cid: Cid };
        /// The result of the authentication.
        9 ConnectionValidated "CONNECTION_VALIDATED" { status: RequestStatus };
        /// The body of INIT is the type, that of EXECUTE the nodes and their values.
        10 Get "GET" { ioid: Ioid, sub: Subcommand, status: RequestStatus };
        /// The body of INIT is the type, that of GET the nodes and their values.
        11 Put "PUT" { ioid: Ioid, sub: Subcommand, status: RequestStatus };
        /// The body of INIT is the type of the put and that of the get, all others the nodes and their values.
        12 PutGet "PUT_GET" { ioid: Ioid, sub: Subcommand, status: RequestStatus };
        /// The body of INIT is a status and the type; that of an update the changed nodes, their values, and the nodes
        /// that changed more than once; that of the last message (DESTROY) a status, and perhaps an update.
        13 Monitor "MONITOR" { ioid: Ioid, sub: Subcommand };
        /// A part of an array, or its length.
        14 Array "ARRAY" { ioid: Ioid, sub: Subcommand, status: RequestStatus };
        /// A record was processed.
        16 Process "PROCESS" { ioid: Ioid, sub: Subcommand, status: RequestStatus };
        /// The body is the type.
        17 GetField "GET_FIELD" { ioid: Ioid, status: RequestStatus };
        /// A text for the log of the client: 0 for information, 1 warning, 2 error, 3 fatal. The operation continues.
        18 Message "MESSAGE" { ioid: Ioid, level: u8, text: Text };
        /// The body of EXECUTE is the result with its type.
        20 Rpc "RPC" { ioid: Ioid, sub: Subcommand, status: RequestStatus };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Frame, Framer};

    #[test]
    fn a_message_round_trips_in_both_orders_with_its_body() {
        let channels =
            vec![NewChannel { cid: Cid(7), name: "T:ao".into() }, NewChannel { cid: Cid(8), name: "T:bo".into() }];
        for order in [ByteOrder::Little, ByteOrder::Big] {
            let sent = Request::CreateChannel { channels: channels.clone() };
            let mut bytes = Vec::new();
            sent.encode(order, &mut bytes, |to| to.u16(0x1234));

            let mut framer = Framer::new(Sender::Client, 1000);
            let Ok(Some(Frame::Message(header, payload))) = framer.next(&mut &bytes[..]) else { unreachable!() };
            let mut reader = ByteReader::new(payload, header.order);

            assert_eq!(Request::decode(header.command, &mut reader), sent);
            assert_eq!((reader.u16(), reader.n_left(), reader.finish()), (0x1234, 0, Ok(())));
        }
    }

    #[test]
    fn a_list_that_claims_more_than_its_bytes_ends_at_them() {
        let mut reader = ByteReader::new(&[0xff, 0xff, 1, 0, 0, 0, 1, b'a'], ByteOrder::Little);

        let Request::CreateChannel { channels } = Request::decode(7, &mut reader) else { unreachable!() };

        assert_eq!(channels.len(), 1);
        assert!(reader.has_failed());
    }

    #[test]
    fn an_unknown_command_keeps_its_number() {
        let mut reader = ByteReader::new(b"abc", ByteOrder::Little);

        assert_eq!(Answer::decode(19, &mut reader), Answer::Unknown(19));
        assert_eq!(Answer::Unknown(19).to_string(), "command 19");
        assert_eq!((Answer::Unknown(19).command(), reader.n_left()), (19, 3));
        let get = Request::Get { sid: Sid(1), ioid: Ioid(2), sub: Subcommand::INIT };
        assert_eq!(get.command(), GET);
        assert_eq!(Answer::Get { ioid: Ioid(2), sub: Subcommand::INIT, status: RequestStatus::OK }.command(), GET);
        assert_eq!(Answer::Monitor { ioid: Ioid(2), sub: Subcommand::EXECUTE }.command(), MONITOR);
        assert_eq!(get.to_string(), "GET sid=1 ioid=2 sub=0x08");
    }
}
