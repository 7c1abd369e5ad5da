//! DBR types 0 to 38: what stands where in a payload.

use fodo_data::{ConvertError, Kind, Reading, Value};

/// A DBR type number; unknown ones survive and print as numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DbrType(pub u16);

/// How much stands around the value of types 0 to 34.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Level {
    /// The value alone (0 to 6).
    Plain,
    /// With alarm (7 to 13).
    Status,
    /// With alarm and time stamp (14 to 20).
    Time,
    /// With alarm, units, display and alarm limits, labels (21 to 27).
    Graphic,
    /// The same with control limits (28 to 34).
    Control,
}

impl DbrType {
    /// Alarm acknowledge, transient (write only).
    pub const PUT_ACKT: DbrType = DbrType(35);
    /// Alarm acknowledge, severity (write only).
    pub const PUT_ACKS: DbrType = DbrType(36);
    /// A string with alarm and acknowledge state.
    pub const STSACK_STRING: DbrType = DbrType(37);
    /// The record type's name.
    pub const CLASS_NAME: DbrType = DbrType(38);

    /// The type that carries elements of `kind` (widened where CA has no such kind) at `level`.
    pub fn of(kind: Kind, level: Level) -> DbrType {
        let _ = (kind, level);
        todo!()
    }

    /// The level; `None` above 34.
    pub fn level(self) -> Option<Level> {
        todo!()
    }

    /// The kind of an element on the wire (Text, I16, F32, Enum, U8, I32, F64); `None` above 38.
    pub fn kind(self) -> Option<Kind> {
        todo!()
    }

    /// Bytes of a payload with `count` elements, without padding; `None` when unknown or too many.
    pub fn payload_bytes(self, count: u32) -> Option<usize> {
        let _ = count;
        todo!()
    }

    /// Whether encoding this type from a `native` value needs [`Reading::meta`].
    pub fn needs_meta(self, native: Kind) -> bool {
        let _ = native;
        todo!()
    }
}

/// Appends the payload, padded to 8 bytes with zeros, and says how many elements it holds.
///
/// `count`: elements asked for; 0 for as many as there are; missing ones are filled with zeros.
pub fn encode(dbr: DbrType, count: u32, reading: &Reading, out: &mut Vec<u8>) -> Result<u32, ConvertError> {
    let _ = (dbr, count, reading, out);
    todo!()
}

/// Why a payload is not what its header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// No such type.
    UnknownType(DbrType),
    /// The payload is shorter than type and count say.
    Short,
}

/// The reading in a payload. `count` 1 gives a scalar, any other count an array.
pub fn decode(dbr: DbrType, count: u32, payload: &[u8]) -> Result<Reading, Malformed> {
    let _ = (dbr, count, payload);
    todo!()
}

/// The type that a put of `value` travels as: the kind's own, widened where CA has none.
pub fn put_type(value: &Value) -> DbrType {
    DbrType::of(value.kind(), Level::Plain)
}
