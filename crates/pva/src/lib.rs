//! pvAccess: frames, messages, type descriptions, values, requests and search, for both ends. No IO.
//!
//! A [`frame::Framer`] splits received bytes into messages. [`message`] decodes the numbers at the start of a message;
//! [`types`], [`value`] and [`request`] decode what follows them. Every decoder reads from a [`cursor::ByteReader`], in
//! the byte order of its message, and every encoder appends to a buffer of the caller. [`client::Circuit`] and
//! [`server::Circuit`] are the state machines of the two ends of a circuit.
//!
//! ```
//! use std::sync::Arc;
//!
//! use fodo_data::{BitSet, EventMask, Kind, NormativeLayout, Reading, normative_type};
//! use fodo_pva::cursor::{ByteOrder, ByteReader};
//! use fodo_pva::frame::{Frame, Framer, Sender};
//! use fodo_pva::message::{Answer, Subcommand};
//! use fodo_pva::types::TypeCache;
//! use fodo_pva::{Ioid, value};
//!
//! // A server sends an update of a double: 41 bytes.
//! let layout = NormativeLayout::of(Arc::new(normative_type(Kind::F64, false))).expect("it has a value");
//! let update = Answer::Monitor { ioid: Ioid(7), sub: Subcommand::EXECUTE };
//! let mut sent = Vec::new();
//! update.encode(ByteOrder::Little, &mut sent, |to| {
//!     value::encode_reading(&layout, layout.marks(EventMask::VALUE), &Reading::bare(1.5.into()), to);
//!     to.bit_set(&BitSet::new());
//! });
//! assert_eq!(sent.len(), 41);
//!
//! // A client receives it.
//! let mut framer = Framer::new(Sender::Server, 1 << 20);
//! let mut received = Reading::bare(0.0.into());
//! if let Some(Frame::Message(header, payload)) = framer.next(&mut &sent[..])? {
//!     let mut reader = ByteReader::new(payload, header.order);
//!     assert_eq!(Answer::decode(header.command, &mut reader), update);
//!     let changed = value::decode_reading(&layout, &mut received, &mut reader, &mut TypeCache::new());
//!     assert!(changed.contains(layout.value_bit()) && reader.finish().is_ok());
//! }
//! assert_eq!(received.value, 1.5.into());
//! # Ok::<(), fodo_pva::frame::FrameError>(())
//! ```
//!
//! Source of the wire format: the EPICS pvAccess protocol specification; where implementations agree against its text,
//! the implementations (pvxs 1.5, pvAccessCPP 7, Phoebus core-pva 5.0).
#![forbid(unsafe_code)]

pub mod beacon;
pub mod beacon_monitor;
pub mod client;
pub mod cursor;
pub mod frame;
pub mod guid;
pub mod limit;
pub mod message;
pub mod request;
pub mod responder;
pub mod search;
pub mod searcher;
pub mod status;
pub mod types;
pub mod validation;
pub mod value;

mod incoming_array;
mod outbox;
pub mod server;

pub use fodo_engine::{Cid, Ioid, Sid};

/// The version of the protocol in the headers of this implementation.
pub const PROTOCOL_VERSION: u8 = 2;
