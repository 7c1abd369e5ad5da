//! The encoding of values, results and events between Java and this library, version 1; the other side is `Codec.java`.
//!
//! Native byte order, unaligned; `str` is a u32 number of bytes and UTF-8.
//!
//! ```text
//! replies:
//!  0 NOTHING   1 ERROR u8 class, str pv, str reason, str server   2 HANDLE i64   3 PENDING i64
//!  4 READING   u8 severity, u16 status, i64 unix s (i64::MIN: no time), u32 nanos, i32 user tag, str message, value,
//!              u8 has_meta [meta]
//!  5 STRUCTURE value of tag 4
//!  6 INFO      str protocol, str server, u8 kind, u32 count_max, u8 may_read, u8 may_write, str tls peer
//!  7 TEXT str  8 LIST u32 n, n x (u32 bytes, reply)   9 READY   10 CLOSED   11 COUNTS
//! events:
//! 20 UPDATE and a reply READING or STRUCTURE   21 CONNECTED and the body of INFO   22 RIGHTS and the body of INFO
//! 23 MERGED u64   24 UNRESPONSIVE   25 RESPONSIVE   26 DISCONNECTED   27 REFUSED and the body of ERROR
//! 28 WRONG_REPLY and the body of ERROR   29 CLOSED
//! meta: u16 parts, str units, i16 precision, f64 x 8 (display, alarm, warning, control; low and high of each),
//!       str description, u8 form, u32 n, n x str label
//! value:
//!  0 EMPTY   1 SCALAR u8 kind, payload   2 ARRAY u8 kind, u32 count, elements
//!  3 BLOCK_ARRAY u8 kind, i64 count, i64 address, i64 owner; for packed arrays from 4096 bytes on
//!  4 STRUCTURE str id, u32 n, n x (str name, u8 changed, value)   5 STRUCTURE_ARRAY str id, u32 n, n x value
//!  6 UNION i32 selector, str member, value   7 UNION_ARRAY u32 n, n x UNION   8 ANY value   9 ANY_ARRAY u32 n, n x value
//! ```

mod reader;
mod writer;

use fodo_net::Kind;

pub use reader::{InputReader, InvalidInput};
pub use writer::ReplyWriter;

/// The version of the encoding.
pub const VERSION: i32 = 1;

/// From this number of bytes on, an array stays in its own memory.
const BLOCK_BYTES_MIN: usize = 4096;

/// The tags of replies.
#[derive(Clone, Copy)]
#[repr(u8)]
pub enum ReplyTag {
    Nothing = 0,
    Error = 1,
    Handle = 2,
    Pending = 3,
    Reading = 4,
    Structure = 5,
    Info = 6,
    Text = 7,
    List = 8,
    Ready = 9,
    Closed = 10,
    Counts = 11,
}

/// The tags of events.
#[derive(Clone, Copy)]
#[repr(u8)]
pub enum EventTag {
    Update = 20,
    Connected = 21,
    Rights = 22,
    Merged = 23,
    Unresponsive = 24,
    Responsive = 25,
    Disconnected = 26,
    Refused = 27,
    WrongReply = 28,
    Closed = 29,
}

/// The tags of values.
mod tag {
    pub const EMPTY: u8 = 0;
    pub const SCALAR: u8 = 1;
    pub const ARRAY: u8 = 2;
    pub const BLOCK_ARRAY: u8 = 3;
    pub const STRUCTURE: u8 = 4;
    pub const STRUCTURE_ARRAY: u8 = 5;
    pub const UNION: u8 = 6;
    pub const UNION_ARRAY: u8 = 7;
    pub const ANY: u8 = 8;
    pub const ANY_ARRAY: u8 = 9;
}

/// The kinds, by their numbers.
const KINDS: [Kind; 13] = [
    Kind::Bool,
    Kind::I8,
    Kind::U8,
    Kind::I16,
    Kind::U16,
    Kind::I32,
    Kind::U32,
    Kind::I64,
    Kind::U64,
    Kind::F32,
    Kind::F64,
    Kind::Text,
    Kind::Enum,
];

fn kind_code(kind: Kind) -> u8 {
    KINDS.iter().position(|known| *known == kind).unwrap_or_default() as u8
}

/// Defines something for each kind whose elements are numbers of a fixed size.
macro_rules! for_packed_kinds {
    ($macro:ident) => {
        $macro!(I8 i8, U8 u8, I16 i16, U16 u16, I32 i32, U32 u32, I64 i64, U64 u64, F32 f32, F64 f64, Enum u16)
    };
}
use for_packed_kinds;
