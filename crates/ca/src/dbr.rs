//! DBR types 0 to 38: the layout of their payloads.

mod short;

use std::fmt;
use std::sync::Arc;

use fodo_data::{
    AcknowledgeState, Alarm, Array, ConvertError, Kind, LABEL_BYTES, Limits, Meta, Reading, STRING_BYTES, Scalar,
    Severity, Status, Text, TimeStamp, Value,
};

pub(crate) use self::short::decode_short;
use crate::message::padded;

/// A DBR type number; unknown numbers are kept and printed as numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DbrType(pub u16);

/// The metadata around the value in types 0 to 34.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AttributeLevel {
    /// The value alone (0 to 6).
    Plain,
    /// With alarm (7 to 13).
    Status,
    /// With alarm and time stamp (14 to 20).
    Time,
    /// With alarm, units, display limits, alarm limits and labels (21 to 27).
    Graphic,
    /// The same as `Graphic`, with control limits (28 to 34).
    Control,
}

const LEVELS: [(AttributeLevel, &str); 5] = [
    (AttributeLevel::Plain, ""),
    (AttributeLevel::Status, "STS_"),
    (AttributeLevel::Time, "TIME_"),
    (AttributeLevel::Graphic, "GR_"),
    (AttributeLevel::Control, "CTRL_"),
];

/// A basic type: name, kind, bytes per element, and the offset of the value at each level.
struct Basic {
    name: &'static str,
    kind: Kind,
    bytes: usize,
    offsets: [usize; 5],
}

const fn basic(name: &'static str, kind: Kind, bytes: usize, offsets: [usize; 5]) -> Basic {
    Basic { name, kind, bytes, offsets }
}

const BASICS: [Basic; 7] = [
    basic("STRING", Kind::Text, 40, [0, 4, 12, 4, 4]),
    basic("SHORT", Kind::I16, 2, [0, 4, 14, 24, 28]),
    basic("FLOAT", Kind::F32, 4, [0, 4, 12, 40, 48]),
    basic("ENUM", Kind::Enum, 2, [0, 4, 14, 422, 422]),
    basic("CHAR", Kind::U8, 1, [0, 5, 15, 19, 21]),
    basic("LONG", Kind::I32, 4, [0, 4, 12, 36, 44]),
    basic("DOUBLE", Kind::F64, 8, [0, 8, 16, 64, 80]),
];

/// Types above 34: name, kind, bytes per element, offset of the value.
const SPECIALS: [(&str, Kind, usize, usize); 4] = [
    ("PUT_ACKT", Kind::Enum, 2, 0),
    ("PUT_ACKS", Kind::Enum, 2, 0),
    ("STSACK_STRING", Kind::Text, 40, 8),
    ("CLASS_NAME", Kind::Text, 40, 0),
];

/// The properties of one type.
#[derive(Clone, Copy)]
struct TypeInfo {
    prefix: &'static str,
    name: &'static str,
    kind: Kind,
    level: Option<AttributeLevel>,
    /// The offset of the value in the payload.
    offset: usize,
    /// Bytes per element.
    bytes: usize,
    /// A bit mask of the kinds of values that need metadata to be converted to this type.
    needing_meta: u16,
}

/// Every type by number, computed at compile time because every value looks up its row.
const ROWS: [TypeInfo; 39] = {
    let blank = TypeInfo { prefix: "", name: "", kind: Kind::Text, level: None, offset: 0, bytes: 0, needing_meta: 0 };
    let mut rows = [blank; 39];
    let mut number = 0;
    while number < rows.len() {
        rows[number] = if number < 35 {
            let (basic, (level, prefix)) = (&BASICS[number % 7], LEVELS[number / 7]);
            let (offset, bytes) = (basic.offsets[number / 7], basic.bytes);
            let needing_meta = needing_meta(basic.kind, level);
            TypeInfo { prefix, name: basic.name, kind: basic.kind, level: Some(level), offset, bytes, needing_meta }
        } else {
            let (name, kind, bytes, offset) = SPECIALS[number - 35];
            // None of these types is only a value.
            let needing_meta = u16::MAX;
            TypeInfo { prefix: "", name, kind, level: None, offset, bytes, needing_meta }
        };
        number += 1;
    }
    rows
};

const fn needing_meta(kind: Kind, level: AttributeLevel) -> u16 {
    match (level, kind) {
        (AttributeLevel::Graphic | AttributeLevel::Control, _) => u16::MAX,
        // Conversion to text needs the precision and the state names.
        (_, Kind::Text) => 1 << Kind::F32 as u16 | 1 << Kind::F64 as u16 | 1 << Kind::Enum as u16,
        (_, Kind::Enum) => 1 << Kind::Text as u16,
        _ => 0,
    }
}

/// Maximum number of states in an enum's payload, and bytes of each label.
const LABELS: (usize, usize) = (16, LABEL_BYTES);
/// Size of the units in bytes.
const UNITS: usize = 8;

impl DbrType {
    /// A floating point number of 64 bits with alarm and time stamp.
    pub const TIME_DOUBLE: DbrType = DbrType(20);
    /// Alarm acknowledge, transient (write only).
    pub const PUT_ACKT: DbrType = DbrType(35);
    /// Alarm acknowledge, severity (write only).
    pub const PUT_ACKS: DbrType = DbrType(36);
    /// A string with alarm and acknowledgement state.
    pub const STSACK_STRING: DbrType = DbrType(37);
    /// The name of the record type.
    pub const CLASS_NAME: DbrType = DbrType(38);

    /// The type for elements of `kind` (widened where CA has no such kind) at `level`.
    pub fn of(kind: Kind, level: AttributeLevel) -> DbrType {
        let basic = match kind {
            Kind::Text => 0,
            Kind::I16 => 1,
            Kind::F32 => 2,
            Kind::Enum => 3,
            Kind::Bool | Kind::I8 | Kind::U8 => 4,
            Kind::U16 | Kind::I32 => 5,
            Kind::U32 | Kind::I64 | Kind::U64 | Kind::F64 => 6,
        };
        DbrType(level as u16 * 7 + basic)
    }

    #[inline]
    fn row(self) -> Option<&'static TypeInfo> {
        ROWS.get(usize::from(self.0))
    }

    /// The level; `None` above 34.
    #[inline]
    pub fn level(self) -> Option<AttributeLevel> {
        self.row()?.level
    }

    /// The kind of an element on the wire (Text, I16, F32, Enum, U8, I32, F64); `None` above 38.
    #[inline]
    pub fn kind(self) -> Option<Kind> {
        Some(self.row()?.kind)
    }

    /// The offset of the value and the bytes per element; `None` above 38.
    #[inline]
    pub fn layout(self) -> Option<(usize, usize)> {
        self.row().map(|row| (row.offset, row.bytes))
    }

    /// Size of a payload with `count` elements in bytes, without padding; `None` if the type is unknown or the count is
    /// too large.
    #[inline]
    pub fn payload_bytes(self, count: u32) -> Option<usize> {
        let (offset, bytes) = self.layout()?;
        bytes.checked_mul(count as usize)?.checked_add(offset).filter(|&bytes| bytes <= u32::MAX as usize - 8)
    }

    /// Whether [`DbrType::needs_meta`] is true for at least one kind of value.
    #[inline]
    pub fn may_need_meta(self) -> bool {
        self.row().is_some_and(|row| row.needing_meta != 0)
    }

    /// Whether encoding this type from a `native` value needs more than value, alarm and time: [`Reading::meta`], or
    /// the record type for CLASS_NAME.
    #[inline]
    pub fn needs_meta(self, native: Kind) -> bool {
        self.row().is_some_and(|row| row.needing_meta >> native as u16 & 1 != 0)
    }
}

impl From<u16> for DbrType {
    fn from(number: u16) -> DbrType {
        DbrType(number)
    }
}

impl From<DbrType> for u16 {
    fn from(dbr: DbrType) -> u16 {
        dbr.0
    }
}

impl fmt::Display for DbrType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.row() {
            Some(row) => write!(f, "DBR_{}{}", row.prefix, row.name),
            None => write!(f, "{}", self.0),
        }
    }
}

/// Appends everything before the value: alarm, time stamp and metadata.
pub fn encode_head(dbr: DbrType, reading: &Reading, out: &mut Vec<u8>) {
    let Some((offset, _)) = dbr.layout() else { return };
    let start = out.len();
    let end = start + offset;
    if offset > 0 {
        out.extend_from_slice(&alarm(reading));
    }
    match dbr.level() {
        Some(AttributeLevel::Time) => out.extend_from_slice(&time(reading)),
        Some(AttributeLevel::Graphic | AttributeLevel::Control) => {
            let empty = Meta::default();
            encode_meta(dbr, reading.meta.as_deref().unwrap_or(&empty), out);
        }
        None if dbr == DbrType::STSACK_STRING => {
            let acknowledge = reading.meta.as_ref().and_then(|meta| meta.acknowledge);
            let (transient, severity) =
                acknowledge.map_or((0, 0), |state| (u16::from(state.transient), state.severity.code()));
            out.extend_from_slice(&transient.to_be_bytes());
            out.extend_from_slice(&severity.to_be_bytes());
        }
        _ => {}
    }
    out.resize(end, 0);
}

#[inline]
fn alarm(reading: &Reading) -> [u8; 4] {
    let Alarm { status, severity } = reading.alarm;
    (u32::from(status.0) << 16 | u32::from(severity.code())).to_be_bytes()
}

#[inline]
fn time(reading: &Reading) -> [u8; 8] {
    (u64::from(reading.time.epics_seconds()) << 32 | u64::from(reading.time.nanos)).to_be_bytes()
}

fn encode_meta(dbr: DbrType, meta: &Meta, out: &mut Vec<u8>) {
    let kind = dbr.kind();
    match kind {
        Some(Kind::Text) | None => return,
        Some(Kind::Enum) => return encode_labels(&meta.labels, out),
        Some(Kind::F32 | Kind::F64) => {
            out.extend_from_slice(&meta.precision.to_be_bytes());
            out.extend_from_slice(&[0; 2]);
        }
        Some(_) => {}
    }
    put_text(&meta.units, UNITS, out);
    let (display, alarm, warning, control) = (meta.display, meta.alarm, meta.warning, meta.control);
    let shown = [display.high, display.low, alarm.high, warning.high, warning.low, alarm.low];
    let controlled = [control.high, control.low];
    let n_controlled = if dbr.level() == Some(AttributeLevel::Control) { 2 } else { 0 };
    for &limit in shown.iter().chain(&controlled[..n_controlled]) {
        // Base converts integer limits through 32 bits, and non-finite limits to 0.
        let whole = || Scalar::F64(if limit.is_finite() { limit } else { 0.0 });
        let converted = match kind {
            Some(Kind::F32) => Scalar::F64(limit).to_kind(Kind::F32, None),
            Some(kind @ (Kind::I16 | Kind::I32)) => whole().to_kind(kind, None),
            Some(Kind::U8) => whole().to_kind(Kind::I8, None),
            _ => Ok(Scalar::F64(limit)),
        };
        // Conversion of a number never fails.
        converted.iter().for_each(|limit| put_scalar(limit, out));
    }
}

/// Appends the labels; the end of the head follows the space for those that are missing.
fn encode_labels(labels: &[Text], out: &mut Vec<u8>) {
    let labels = &labels[..labels.len().min(LABELS.0)];
    out.extend_from_slice(&(labels.len() as u16).to_be_bytes());
    labels.iter().for_each(|label| put_text(label, LABELS.1, out));
}

/// Appends a text in a field of `bytes`, truncated so that a NUL follows it.
fn put_text(text: &Text, bytes: usize, out: &mut Vec<u8>) {
    let end = out.len() + bytes;
    out.extend_from_slice(&text.as_bytes()[..text.len().min(bytes - 1)]);
    out.resize(end, 0);
}

/// Appends one element; `kind` is the element's own.
fn put_scalar(scalar: &Scalar, out: &mut Vec<u8>) {
    match scalar {
        Scalar::Bool(n) => out.push(u8::from(*n)),
        Scalar::I8(n) => out.push(*n as u8),
        Scalar::U8(n) => out.push(*n),
        Scalar::I16(n) => out.extend_from_slice(&n.to_be_bytes()),
        Scalar::U16(n) | Scalar::Enum(n) => out.extend_from_slice(&n.to_be_bytes()),
        Scalar::I32(n) => out.extend_from_slice(&n.to_be_bytes()),
        Scalar::U32(n) => out.extend_from_slice(&n.to_be_bytes()),
        Scalar::I64(n) => out.extend_from_slice(&n.to_be_bytes()),
        Scalar::U64(n) => out.extend_from_slice(&n.to_be_bytes()),
        Scalar::F32(n) => out.extend_from_slice(&n.to_be_bytes()),
        Scalar::F64(n) => out.extend_from_slice(&n.to_be_bytes()),
        Scalar::Text(text) => put_text(text, STRING_BYTES, out),
    }
}

/// Appends a range of elements of an array.
pub fn put_elements(array: &Array, range: std::ops::Range<usize>, out: &mut Vec<u8>) {
    macro_rules! swap {
        ($elements:expr, $bytes:literal) => {{
            let elements = &$elements[range];
            let start = out.len();
            out.resize(start + elements.len() * $bytes, 0);
            for (place, element) in out[start..].chunks_exact_mut($bytes).zip(elements) {
                place.copy_from_slice(&element.to_be_bytes());
            }
        }};
    }
    match array {
        Array::Bool(elements) => out.extend(elements[range].iter().map(|&n| u8::from(n))),
        Array::I8(elements) => out.extend(elements[range].iter().map(|&n| n as u8)),
        Array::U8(elements) => out.extend_from_slice(&elements[range]),
        Array::I16(elements) => swap!(elements, 2),
        Array::U16(elements) | Array::Enum(elements) => swap!(elements, 2),
        Array::I32(elements) => swap!(elements, 4),
        Array::U32(elements) => swap!(elements, 4),
        Array::F32(elements) => swap!(elements, 4),
        Array::I64(elements) => swap!(elements, 8),
        Array::U64(elements) => swap!(elements, 8),
        Array::F64(elements) => swap!(elements, 8),
        Array::Text(elements) => elements[range].iter().for_each(|text| put_text(text, STRING_BYTES, out)),
    }
}

/// A value converted to the kind of its wire type, ready to be sent.
pub enum WireValue {
    /// One element.
    Scalar(Scalar),
    /// Elements, shared with other owners.
    Array(Array),
}

impl WireValue {
    /// The number of elements.
    pub fn n_elements(&self) -> usize {
        match self {
            WireValue::Scalar(_) => 1,
            WireValue::Array(array) => array.len(),
        }
    }
}

/// Converts the value of a reading for `dbr`; an array that already has the right kind is not copied.
pub fn wire(dbr: DbrType, reading: &Reading) -> Result<WireValue, ConvertError> {
    let Some(kind) = dbr.kind() else { return Err(ConvertError::Empty) };
    let meta = reading.meta.as_deref();
    let kind = element_kind(&reading.value, kind, meta)?;
    Ok(match &reading.value {
        Value::Scalar(scalar) => WireValue::Scalar(scalar.to_kind(kind, meta)?),
        Value::Array(array) => WireValue::Array(array.to_kind(kind, meta)?),
    })
}

/// The kind to which elements are converted to be sent as `to`.
///
/// Source: EPICS Base 7.0, dbConvert and dbFastLinkConvert: characters are signed, a single text cannot be converted to
/// an enum, and an enum cannot be converted to text if no state has a name.
fn element_kind(value: &Value, to: Kind, meta: Option<&Meta>) -> Result<Kind, ConvertError> {
    let has_names = || meta.is_some_and(|meta| !meta.labels.is_empty() || meta.label_for_unlabelled.is_some());
    match (value.kind(), to) {
        (Kind::Text | Kind::I8, Kind::U8) => Ok(Kind::I8),
        (Kind::Text, Kind::Enum) if value.len() == 1 => Err(ConvertError::NoSuchState(Text::EMPTY)),
        (Kind::Text, Kind::Enum) => Ok(Kind::U16),
        (Kind::Enum, Kind::Text) if !value.is_empty() && !has_names() => Err(ConvertError::NoSuchState(Text::EMPTY)),
        _ => Ok(to),
    }
}

/// Appends the payload, padded to 8 bytes with zeros, and returns the number of elements in it.
///
/// `count`: the requested number of elements; 0 for as many as available. Missing elements are filled with zeros.
pub fn encode(dbr: DbrType, count: u32, reading: &Reading, out: &mut Vec<u8>) -> Result<u32, ConvertError> {
    let wire = wire(dbr, reading)?;
    Ok(encode_wire(dbr, count, reading, &wire, out))
}

/// The same as [`encode`], for a value that is already in its wire kind.
pub fn encode_wire(dbr: DbrType, count: u32, reading: &Reading, wire: &WireValue, out: &mut Vec<u8>) -> u32 {
    let n_sent = if count == 0 { wire.n_elements() as u32 } else { count };
    let start = out.len();
    let end = start + padded(dbr.payload_bytes(n_sent).unwrap_or(0));
    encode_head(dbr, reading, out);
    match wire {
        WireValue::Scalar(scalar) => put_scalar(scalar, out),
        WireValue::Array(array) => put_elements(array, 0..array.len().min(n_sent as usize), out),
    }
    out.resize(end, 0);
    n_sent
}

/// The size of the largest payload that [`put_short`] creates.
pub const SHORT_BYTES: usize = 24;

/// Writes a single number, with at most alarm and time stamp, into a payload of zeros, and returns how many bytes to
/// send. Returns `None` for all other values.
///
/// Nearly all values sent are single numbers; this takes a fifth of the time of encoding field by field.
#[inline(always)]
pub fn encode_short(dbr: DbrType, count: u32, reading: &Reading, payload: &mut [u8; SHORT_BYTES]) -> Option<usize> {
    let row = dbr.row()?;
    let Value::Scalar(scalar) = &reading.value else { return None };
    if count > 1 || scalar.kind() != row.kind {
        return None;
    }
    // The number's bytes are first; the bytes after them are padding.
    let number = match scalar {
        Scalar::F64(n) => n.to_bits(),
        Scalar::I32(n) => u64::from(n.cast_unsigned()) << 32,
        Scalar::F32(n) => u64::from(n.to_bits()) << 32,
        Scalar::I16(n) => u64::from(n.cast_unsigned()) << 48,
        Scalar::Enum(n) => u64::from(*n) << 48,
        Scalar::U8(n) => u64::from(*n) << 56,
        _ => return None,
    };
    match row.level? {
        AttributeLevel::Plain => {}
        AttributeLevel::Status => payload[..4].copy_from_slice(&alarm(reading)),
        AttributeLevel::Time => {
            payload[..4].copy_from_slice(&alarm(reading));
            payload[4..12].copy_from_slice(&time(reading));
        }
        AttributeLevel::Graphic | AttributeLevel::Control => return None,
    }
    payload.get_mut(row.offset..)?.first_chunk_mut().map(|place| *place = number.to_be_bytes())?;
    Some(padded(row.offset + row.bytes))
}

/// Why a payload does not match its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MalformedPayload {
    /// No such type.
    UnknownType(DbrType),
    /// The payload is shorter than type and count require.
    Short,
}

impl fmt::Display for MalformedPayload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MalformedPayload::UnknownType(dbr) => write!(f, "unknown DBR type {dbr}"),
            MalformedPayload::Short => write!(f, "the payload is shorter than its type and count require"),
        }
    }
}

impl std::error::Error for MalformedPayload {}

/// Reads numbers from the front of a payload.
struct PayloadReader<'a>(&'a [u8]);

impl PayloadReader<'_> {
    #[inline]
    fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*head)
    }

    #[inline]
    fn u16(&mut self) -> Option<u16> {
        self.bytes().map(u16::from_be_bytes)
    }

    #[inline]
    fn u32(&mut self) -> Option<u32> {
        self.bytes().map(u32::from_be_bytes)
    }

    #[inline]
    fn u64(&mut self) -> Option<u64> {
        self.bytes().map(u64::from_be_bytes)
    }

    fn text<const N: usize>(&mut self) -> Option<Text> {
        self.bytes::<N>().map(|bytes| Text::from_bytes(&bytes))
    }

    fn number(&mut self, kind: Kind) -> Option<f64> {
        match kind {
            Kind::I16 => self.bytes().map(i16::from_be_bytes).map(f64::from),
            Kind::U8 => self.bytes().map(u8::from_be_bytes).map(f64::from),
            Kind::I32 => self.bytes().map(i32::from_be_bytes).map(f64::from),
            Kind::F32 => self.bytes().map(f32::from_be_bytes).map(f64::from),
            _ => self.bytes().map(f64::from_be_bytes),
        }
    }
}

/// Decodes everything before the value into a reading with the given `value`.
pub fn decode_head(dbr: DbrType, head: &[u8], value: Value) -> Result<Reading, MalformedPayload> {
    let row = dbr.row().ok_or(MalformedPayload::UnknownType(dbr))?;
    let (alarm, time, meta) = take_head(row, &mut PayloadReader(head)).ok_or(MalformedPayload::Short)?;
    Ok(Reading { alarm, time, meta, ..Reading::bare(value) })
}

fn take_head(row: &TypeInfo, take: &mut PayloadReader) -> Option<(Alarm, TimeStamp, Option<Arc<Meta>>)> {
    let (mut alarm, mut time, mut meta) = (Alarm::default(), TimeStamp::NEVER, None);
    if row.offset == 0 {
        return Some((alarm, time, meta));
    }
    alarm = take_alarm(take.u32()?);
    match row.level {
        Some(AttributeLevel::Time) => time = take_time(take.u64()?),
        Some(level @ (AttributeLevel::Graphic | AttributeLevel::Control)) if row.kind != Kind::Text => {
            meta = Some(take_meta(row.kind, level, take)?.into());
        }
        None => {
            let transient = take.u16()? != 0;
            let acknowledge = AcknowledgeState { transient, severity: Severity::from_code(take.u16()?) };
            meta = Some(Meta { acknowledge: Some(acknowledge), ..Meta::default() }.into());
        }
        _ => {}
    }
    Some((alarm, time, meta))
}

#[inline(always)]
fn take_alarm(status_and_severity: u32) -> Alarm {
    let status = Status((status_and_severity >> 16) as u16);
    Alarm { status, severity: Severity::from_code(status_and_severity as u16) }
}

#[inline(always)]
fn take_time(seconds_and_nanos: u64) -> TimeStamp {
    TimeStamp::from_epics((seconds_and_nanos >> 32) as u32, seconds_and_nanos as u32)
}

#[cold]
fn take_meta(kind: Kind, level: AttributeLevel, take: &mut PayloadReader) -> Option<Meta> {
    let mut meta = Meta::default();
    if kind == Kind::Enum {
        let n_labels = usize::from(take.u16()?).min(LABELS.0);
        for _ in 0..n_labels {
            meta.labels.push(take.text::<LABEL_BYTES>()?);
        }
        return Some(meta);
    }
    if matches!(kind, Kind::F32 | Kind::F64) {
        meta.precision = take.u16()? as i16;
        take.u16()?;
    }
    meta.units = take.text::<UNITS>()?;
    let mut limit = || take.number(kind);
    meta.display.high = limit()?;
    meta.display.low = limit()?;
    meta.alarm.high = limit()?;
    meta.warning.high = limit()?;
    meta.warning.low = limit()?;
    meta.alarm.low = limit()?;
    if level == AttributeLevel::Control {
        let high = limit()?;
        meta.control = Limits { high, low: limit()? };
    }
    Some(meta)
}

/// Decodes a payload. `count` 1 gives a scalar, any other count an array.
pub fn decode(dbr: DbrType, count: u32, payload: &[u8]) -> Result<Reading, MalformedPayload> {
    let row = dbr.row().ok_or(MalformedPayload::UnknownType(dbr))?;
    let (head, body) = payload.split_at_checked(row.offset).ok_or(MalformedPayload::Short)?;
    let (alarm, time, meta) = take_head(row, &mut PayloadReader(head)).ok_or(MalformedPayload::Short)?;
    let value = match (row.kind, count) {
        // Servers truncate a single string after its NUL.
        (Kind::Text, 1) => Value::Scalar(Scalar::Text(Text::from_bytes(&body[..body.len().min(STRING_BYTES)]))),
        (kind, 1) => Value::Scalar(crate::body::scalar(kind, body).ok_or(MalformedPayload::Short)?),
        (kind, count) => {
            let needed = (count as usize).checked_mul(row.bytes).ok_or(MalformedPayload::Short)?;
            let body = body.get(..needed).ok_or(MalformedPayload::Short)?;
            let mut elements = crate::body::DecodedElements::new(kind);
            elements.append(body);
            elements.into_value()
        }
    };
    Ok(Reading { alarm, time, meta, ..Reading::bare(value) })
}

/// The type for a put of `value`: that of its kind, widened where CA has none.
pub fn put_type(value: &Value) -> DbrType {
    DbrType::of(value.kind(), AttributeLevel::Plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(value: Value) -> Reading {
        let limits = |low: f64, high: f64| Limits { low, high };
        Reading {
            alarm: Alarm { status: Status::HIGH, severity: Severity::Minor },
            time: TimeStamp::from_epics(1_000_000, 500),
            meta: Some(
                Meta {
                    units: "mm".into(),
                    precision: 3,
                    display: limits(-10.0, 10.0),
                    alarm: limits(-9.0, 9.0),
                    warning: limits(-8.0, 8.0),
                    control: limits(-7.0, 7.0),
                    labels: vec!["OFF".into(), "ON".into()],
                    acknowledge: Some(AcknowledgeState { transient: true, severity: Severity::Major }),
                    ..Meta::default()
                }
                .into(),
            ),
            ..Reading::bare(value)
        }
    }

    #[test]
    fn the_value_of_an_enum_follows_the_space_of_sixteen_labels() {
        let mut payload = Vec::new();

        encode(DbrType(24), 1, &described(Value::Scalar(Scalar::Enum(1))), &mut payload).unwrap();

        let (head, value) = payload.split_at(6 + 16 * 26);
        assert_eq!((&head[4..10], &head[32..35], &value[..2]), (&b"\0\x02OFF\0"[..], &b"ON\0"[..], &[0, 1][..]));
    }

    #[test]
    fn an_enum_without_names_has_no_text_unless_it_is_empty() {
        let as_text = |value| encode(DbrType(0), 0, &Reading::bare(value), &mut Vec::new());

        assert!(matches!(as_text(Value::Scalar(Scalar::Enum(1))), Err(ConvertError::NoSuchState(_))));
        assert_eq!(as_text(Value::Array(Array::empty(Kind::Enum))), Ok(0));
    }

    #[test]
    fn every_dbr_type_round_trips_with_the_expected_payload_size() {
        let reading = described(Value::Scalar(Scalar::Enum(1)));
        for number in 0..=38 {
            let dbr = DbrType(number);
            let mut payload = Vec::new();

            let count = encode(dbr, 1, &reading, &mut payload).unwrap();
            let back = decode(dbr, count, &payload).unwrap();

            assert_eq!(payload.len(), padded(dbr.payload_bytes(1).unwrap()), "{dbr}");
            let text = back.value.first().unwrap().to_text(None).to_string();
            let expected = if dbr.kind() == Some(Kind::Text) { "ON" } else { "1" };
            assert_eq!(text, expected, "{dbr}");
            let mut again = Vec::new();
            encode(dbr, 1, &back, &mut again).unwrap();
            assert_eq!(again, payload, "{dbr}");
        }
    }

    #[test]
    fn a_single_number_is_decoded_in_one_step_or_field_by_field_with_the_same_result() {
        let payload: Vec<u8> = (1..=100).collect();
        let mut n_short = 0;
        for (number, n_bytes) in (0..=39).flat_map(|number| (0..=100).map(move |n_bytes| (number, n_bytes))) {
            let (dbr, payload) = (DbrType(number), &payload[..n_bytes]);

            let Some(short) = decode_short(dbr, 1, payload) else { continue };

            assert_eq!(Ok(short), decode(dbr, 1, payload), "{dbr}, {n_bytes} bytes");
            n_short += 1;
        }
        // The six types of numbers at three levels, from the size of each up to 100 bytes.
        let sizes = (0..21).filter(|number| number % 7 != 0).map(|number| DbrType(number).payload_bytes(1).unwrap());
        assert_eq!(n_short, sizes.map(|n_bytes| 101 - n_bytes).sum::<usize>());
        assert_eq!(decode_short(DbrType(20), 2, &payload), None);
    }

    #[test]
    fn payload_sizes_match_the_c_structures() {
        let sizes = [
            40, 2, 4, 2, 1, 4, 8, 44, 6, 8, 6, 6, 8, 16, 52, 16, 16, 16, 16, 16, 24, 44, 26, 44, 424, 20, 40, 72, 44,
            30, 52, 424, 22, 48, 88, 2, 2, 48, 40,
        ];
        for (number, size) in sizes.into_iter().enumerate() {
            assert_eq!(DbrType(number as u16).payload_bytes(1), Some(size), "type {number}");
        }
    }

    #[test]
    fn types_with_limits_or_with_text_and_enum_values_may_need_metadata() {
        let needing: Vec<u16> = (0..=39).filter(|&number| DbrType(number).may_need_meta()).collect();

        let text_and_enum = [0, 3, 7, 10, 14, 17];
        assert_eq!(needing, text_and_enum.into_iter().chain(21..=38).collect::<Vec<u16>>());
    }

    #[test]
    fn encoding_pads_missing_elements_with_zeros_and_omits_surplus_ones() {
        let reading = Reading::bare(Value::from(vec![1i16, 2, 3]));
        let (mut longer, mut shorter) = (Vec::new(), Vec::new());

        assert_eq!(encode(DbrType(1), 6, &reading, &mut longer), Ok(6));
        assert_eq!(encode(DbrType(1), 2, &reading, &mut shorter), Ok(2));

        assert_eq!(longer, [0, 1, 0, 2, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(shorter, [0, 1, 0, 2, 0, 0, 0, 0]);
    }

    #[test]
    fn decoding_rejects_a_truncated_payload_and_an_unknown_type() {
        assert_eq!(decode(DbrType(6), 2, &[0; 8]), Err(MalformedPayload::Short));
        assert_eq!(decode(DbrType(6), u32::MAX, &[0; 8]), Err(MalformedPayload::Short));
        assert_eq!(decode(DbrType(99), 1, &[0; 8]), Err(MalformedPayload::UnknownType(DbrType(99))));
    }

    #[test]
    fn metadata_is_needed_for_limits_and_for_conversions_between_numbers_texts_and_states() {
        use Kind::{Enum, F32, F64, I8, I16, I32, I64, Text, U8, U16, U32, U64};
        const KINDS: [Kind; 12] = [Text, I8, U8, I16, U16, Enum, I32, U32, I64, U64, F32, F64];
        let needing = |dbr: DbrType| KINDS.into_iter().filter(|kind| dbr.needs_meta(*kind)).collect::<Vec<Kind>>();

        for level in [AttributeLevel::Plain, AttributeLevel::Status, AttributeLevel::Time] {
            assert_eq!(needing(DbrType::of(Text, level)), [Enum, F32, F64]);
            assert_eq!(needing(DbrType::of(Enum, level)), [Text]);
            assert_eq!(needing(DbrType::of(F64, level)), []);
        }
        for level in [AttributeLevel::Graphic, AttributeLevel::Control] {
            assert_eq!(needing(DbrType::of(I16, level)), KINDS);
        }
        assert_eq!(needing(DbrType::CLASS_NAME), KINDS);
        assert_eq!(needing(DbrType(39)), []);
    }

    #[test]
    fn payload_sizes_are_limited_to_what_a_header_can_hold_with_padding() {
        let largest = u32::MAX - 8;

        assert_eq!(DbrType(4).payload_bytes(largest), Some(largest as usize));
        assert_eq!(DbrType(4).payload_bytes(largest + 1), None);
        assert_eq!(DbrType(6).payload_bytes(largest / 8), Some(largest as usize / 8 * 8));
        assert_eq!(DbrType(6).payload_bytes(largest / 8 + 1), None);
        assert_eq!(DbrType(39).payload_bytes(1), None);
    }

    #[test]
    fn each_kind_has_the_type_that_holds_it_and_each_type_its_name() {
        let basics = [Kind::Text, Kind::I16, Kind::F32, Kind::Enum, Kind::U8, Kind::I32, Kind::F64];
        for (number, kind) in (0..).zip(basics) {
            assert_eq!(DbrType::of(kind, AttributeLevel::Plain), DbrType(number));
            assert_eq!(DbrType::of(kind, AttributeLevel::Control), DbrType(28 + number));
            assert_eq!(DbrType(28 + number).kind(), Some(kind));
        }
        for (kind, wider) in [
            (Kind::I8, Kind::U8),
            (Kind::U16, Kind::I32),
            (Kind::U32, Kind::F64),
            (Kind::I64, Kind::F64),
            (Kind::U64, Kind::F64),
        ] {
            assert_eq!(DbrType::of(kind, AttributeLevel::Time), DbrType::of(wider, AttributeLevel::Time), "{kind:?}");
        }
        let names = [6, 20, 34, 38, 39].map(|number| DbrType(number).to_string());
        assert_eq!(names, ["DBR_DOUBLE", "DBR_TIME_DOUBLE", "DBR_CTRL_DOUBLE", "DBR_CLASS_NAME", "39"]);
        assert_eq!((DbrType(39).level(), DbrType(39).kind(), DbrType(39).layout()), (None, None, None));
    }

    #[test]
    fn a_flaw_of_a_payload_names_the_unknown_type() {
        let unknown = MalformedPayload::UnknownType(DbrType(99));

        assert_eq!(unknown.to_string(), "unknown DBR type 99");
        assert_eq!(MalformedPayload::Short.to_string(), "the payload is shorter than its type and count require");
    }
}
