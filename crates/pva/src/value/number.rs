//! Numbers with alarm and time stamp, transferred in one step. All other readings are transferred node by node.

use fodo_data::{Alarm, BitSet, Kind, NormativeLayout, Reading, Scalar, Severity, Status, TimeStamp, Value};

use crate::cursor::{ByteOrder, ByteWriter};

/// The number of bytes that [`number_into`] may use.
pub(crate) const NUMBER_BYTES: usize = 48;

/// A number that was decoded in one step, with its time stamp.
#[derive(Clone, Debug)]
pub(super) struct DecodedNumber {
    value: Scalar,
    /// The severity of an alarm without a status; `None` if the alarm was not received.
    severity: Option<Severity>,
    time: TimeStamp,
    user_tag: i32,
    /// The nodes that were received.
    pub(super) bits: u64,
    /// How many bytes were decoded.
    pub(super) n_bytes: usize,
}

impl DecodedNumber {
    /// A reading of only what was received.
    #[inline]
    pub(super) fn into_reading(self) -> Reading {
        let DecodedNumber { value, severity, time, user_tag, .. } = self;
        let alarm = Alarm { severity: severity.unwrap_or_default(), status: Status::NO_ALARM };
        Reading { value: Value::Scalar(value), alarm, time, user_tag, message: None, meta: None }
    }

    /// Replaces what was received in a reading.
    #[inline]
    pub(super) fn store(self, into: &mut Reading) {
        if let Some(severity) = self.severity {
            into.alarm = Alarm { severity, status: Status::NO_ALARM };
            into.message = None;
        }
        (into.time, into.user_tag) = (self.time, self.user_tag);
        into.value = Value::Scalar(self.value);
    }
}

/// Decodes a number without an alarm, its time stamp and their bits in one step; `None` for everything else, and if
/// bytes are missing.
///
/// Nearly all updates are such numbers, and nearly all servers send them in little-endian order.
#[inline(always)]
pub(super) fn decode_number(layout: &NormativeLayout, bytes: &[u8], order: ByteOrder) -> Option<DecodedNumber> {
    let nodes = layout.number_nodes().filter(|_| order == ByteOrder::Little)?;
    let n_bits = usize::from(*bytes.first()?);
    if !(1..=8).contains(&n_bits) {
        return None;
    }
    let word = |at: usize| bytes.get(at..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
    let bits = word(1)? & u64::MAX >> (64 - 8 * n_bits);
    let has_alarm = bits == nodes.with_alarm;
    if !has_alarm && bits != nodes.without_alarm {
        return None;
    }
    // The time stamp follows, so that there are always 8 bytes.
    let at = 1 + n_bits;
    let (value, n_value) = number_from(nodes.kind, word(at)?)?;
    let (mut at, mut severity) = (at + n_value, None);
    if has_alarm {
        let severity_and_status = word(at)?;
        // Otherwise there is a status or a text.
        if severity_and_status > 3 || *bytes.get(at + 8)? != 0 {
            return None;
        }
        severity = Some(Severity::from_code(severity_and_status as u16));
        at += 9;
    }
    let (seconds, nanos_and_tag) = (word(at)?, word(at + 8)?);
    let nanos = u32::try_from(nanos_and_tag as i32).unwrap_or(0);
    let time = TimeStamp { unix_s: seconds.cast_signed(), nanos };
    Some(DecodedNumber { value, severity, time, user_tag: (nanos_and_tag >> 32) as i32, bits, n_bytes: at + 16 })
}

/// Encodes a number without an alarm, its time stamp and their bits in one step, in little-endian order. Returns the
/// number of bytes; `None` for everything else. `bits`: the nodes to send.
#[inline(always)]
pub(crate) fn number_into(
    bytes: &mut [u8; NUMBER_BYTES],
    layout: &NormativeLayout,
    bits: u64,
    reading: &Reading,
) -> Option<usize> {
    let nodes = layout.number_nodes()?;
    let Value::Scalar(scalar) = &reading.value else { return None };
    let has_alarm = bits == nodes.with_alarm;
    if !has_alarm && bits != nodes.without_alarm || scalar.kind() != nodes.kind {
        return None;
    }
    if has_alarm && (reading.alarm.status != Status::NO_ALARM || reading.message.is_some()) {
        return None;
    }
    let nanos = i32::try_from(reading.time.nanos).ok()?.cast_unsigned();
    let (value, n_value) = number_bytes(scalar)?;
    // What follows overwrites the last of 8 bytes where there are fewer.
    let mut put =
        |at: usize, word: u64| bytes.get_mut(at..)?.first_chunk_mut().map(|place| *place = word.to_le_bytes());
    let n_bits = 8 - bits.leading_zeros() as usize / 8;
    put(0, n_bits as u64)?;
    put(1, bits)?;
    let mut at = 1 + n_bits;
    put(at, value)?;
    at += n_value;
    if has_alarm {
        // The severity; then no status and no text.
        put(at, reading.alarm.severity.code().into())?;
        put(at + 8, 0)?;
        at += 9;
    }
    put(at, reading.time.unix_s.cast_unsigned())?;
    put(at + 8, u64::from(nanos) + (u64::from(reading.user_tag.cast_unsigned()) << 32))?;
    Some(at + 16)
}

/// Encodes a number without an alarm, its time stamp and their bits in one step; `None` for everything else.
#[inline]
pub(super) fn encode_number(
    layout: &NormativeLayout,
    bits: &BitSet,
    reading: &Reading,
    to: &mut ByteWriter,
) -> Option<()> {
    if to.order() != ByteOrder::Little || bits.n_words() != 1 {
        return None;
    }
    let mut bytes = [0; NUMBER_BYTES];
    let n_bytes = number_into(&mut bytes, layout, bits.word(0), reading)?;
    to.first_bytes(&bytes, n_bytes);
    Some(())
}

/// The number of a kind in the first of these bytes, in little-endian order, and its size.
#[inline]
fn number_from(kind: Kind, bytes: u64) -> Option<(Scalar, usize)> {
    Some(match kind {
        Kind::F64 => (Scalar::F64(f64::from_bits(bytes)), 8),
        Kind::I64 => (Scalar::I64(bytes.cast_signed()), 8),
        Kind::U64 => (Scalar::U64(bytes), 8),
        Kind::F32 => (Scalar::F32(f32::from_bits(bytes as u32)), 4),
        Kind::I32 => (Scalar::I32(bytes as i32), 4),
        Kind::U32 => (Scalar::U32(bytes as u32), 4),
        Kind::I16 => (Scalar::I16(bytes as i16), 2),
        Kind::U16 => (Scalar::U16(bytes as u16), 2),
        Kind::I8 => (Scalar::I8(bytes as i8), 1),
        Kind::U8 => (Scalar::U8(bytes as u8), 1),
        Kind::Bool => (Scalar::Bool(bytes as u8 != 0), 1),
        Kind::Enum | Kind::Text => return None,
    })
}

/// The bytes of a number in little-endian order, followed by zeros, and its size.
#[inline(always)]
fn number_bytes(scalar: &Scalar) -> Option<(u64, usize)> {
    Some(match *scalar {
        Scalar::F64(number) => (number.to_bits(), 8),
        Scalar::I64(number) => (number.cast_unsigned(), 8),
        Scalar::U64(number) => (number, 8),
        Scalar::F32(number) => (number.to_bits().into(), 4),
        Scalar::I32(number) => (number.cast_unsigned().into(), 4),
        Scalar::U32(number) => (number.into(), 4),
        Scalar::I16(number) => (number.cast_unsigned().into(), 2),
        Scalar::U16(number) => (number.into(), 2),
        Scalar::I8(number) => (number.cast_unsigned().into(), 1),
        Scalar::U8(number) => (number.into(), 1),
        Scalar::Bool(is_true) => (is_true.into(), 1),
        Scalar::Enum(_) | Scalar::Text(_) => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fodo_data::{EventMask, normative_type};

    use super::super::{decode_parts, encode_parts};
    use super::*;
    use crate::cursor::ByteReader;
    use crate::types::TypeCache;

    const EVERYTHING: EventMask = EventMask(15);

    fn layout(kind: Kind) -> NormativeLayout {
        NormativeLayout::of(Arc::new(normative_type(kind, false))).unwrap()
    }

    fn numbers() -> [Value; 11] {
        [
            true.into(),
            (-3_i8).into(),
            200_u8.into(),
            (-300_i16).into(),
            60_000_u16.into(),
            (-70_000_i32).into(),
            4_000_000_000_u32.into(),
            (-5_000_000_000_i64).into(),
            (1_u64 << 63).into(),
            (-1.5_f32).into(),
            f64::MIN_POSITIVE.into(),
        ]
    }

    /// Readings with and without what is not transferred in one step.
    fn readings(value: Value) -> Vec<(Reading, bool)> {
        let time = TimeStamp { unix_s: -7, nanos: 999_999_999 };
        let plain = Reading { time, user_tag: -1, ..Reading::bare(value) };
        let alarm = |severity, status| Alarm { severity, status };
        vec![
            (Reading { alarm: alarm(Severity::Minor, Status::NO_ALARM), ..plain.clone() }, true),
            (Reading { alarm: alarm(Severity::Invalid, Status::NO_ALARM), ..plain.clone() }, true),
            (Reading { alarm: alarm(Severity::Major, Status::HIHI), ..plain.clone() }, false),
            (Reading { message: Some(Arc::new("dry".into())), ..plain.clone() }, false),
            (plain, true),
        ]
    }

    #[test]
    fn a_number_is_encoded_and_decoded_in_one_step_with_the_same_result_as_node_by_node() {
        for (value, mask) in
            numbers().into_iter().flat_map(|value| [(value.clone(), EventMask::VALUE), (value, EventMask::ALARM)])
        {
            let layout = layout(value.kind());
            let bits = layout.marks(mask);
            for (reading, is_plain) in readings(value) {
                let is_at_once = is_plain || mask == EventMask::VALUE;
                let (mut at_once, mut in_parts) = (Vec::new(), Vec::new());
                encode_parts(&layout, bits, &reading, &mut ByteWriter::new(&mut in_parts, ByteOrder::Little));

                let encoded =
                    encode_number(&layout, bits, &reading, &mut ByteWriter::new(&mut at_once, ByteOrder::Little));

                assert_eq!(encoded.is_some(), is_at_once);
                assert_eq!(at_once, if is_at_once { in_parts.clone() } else { Vec::new() });

                let start = Reading { message: Some(Arc::new("before".into())), ..Reading::bare(0.into()) };
                let (mut decoded, mut expected) = (start.clone(), start);
                let mut reader = ByteReader::new(&in_parts, ByteOrder::Little);
                decode_parts(&layout, &mut expected, &mut reader, &mut TypeCache::new());
                let found = decode_number(&layout, &in_parts, ByteOrder::Little);

                let extent = found.as_ref().map(|number| (number.bits, number.n_bytes));
                assert_eq!(extent, is_at_once.then(|| (bits.word(0), in_parts.len())));
                if let Some(number) = found {
                    let mut bare = Reading::bare(0.into());
                    number.clone().store(&mut bare);
                    assert_eq!(number.clone().into_reading(), bare);
                    number.store(&mut decoded);
                    assert_eq!(decoded, expected);
                }
                for end in 0..in_parts.len() {
                    assert!(decode_number(&layout, &in_parts[..end], ByteOrder::Little).is_none());
                }
            }
        }
    }

    #[test]
    fn bits_of_another_size_and_an_unknown_severity_are_decoded_node_by_node() {
        let layout = layout(Kind::U8);
        let number = Reading::bare(7_u8.into());
        let mut bytes = Vec::new();
        encode_parts(
            &layout,
            layout.marks(EventMask::ALARM),
            &number,
            &mut ByteWriter::new(&mut bytes, ByteOrder::Little),
        );
        let found = |bytes: &[u8]| decode_number(&layout, bytes, ByteOrder::Little).is_some();
        let changed = |at: usize, byte: u8| {
            let mut changed = bytes.clone();
            changed[at] = byte;
            found(&changed)
        };
        let (n_bits, severity) = (usize::from(bytes[0]), 1 + usize::from(bytes[0]) + 1);

        assert!(found(&bytes));
        assert_eq!([0, 9, 255].map(|n| changed(0, n)), [false; 3]);
        assert_eq!([0, 3, 4].map(|code| changed(severity, code)), [true, true, false]);
        let mut longest = bytes.clone();
        longest.splice(1 + n_bits..1 + n_bits, vec![0; 8 - n_bits]);
        longest[0] = 8;
        assert!(found(&longest));
    }

    #[test]
    fn another_order_kind_or_choice_of_nodes_is_transferred_node_by_node() {
        let layout = layout(Kind::F64);
        let encoded = |mask, reading: &Reading, order| {
            encode_number(&layout, layout.marks(mask), reading, &mut ByteWriter::new(&mut Vec::new(), order)).is_some()
        };
        let number = Reading::bare(1.5.into());

        assert!(encoded(EventMask::VALUE, &number, ByteOrder::Little));
        assert!(!encoded(EventMask::VALUE, &number, ByteOrder::Big));
        assert!(!encoded(EVERYTHING, &number, ByteOrder::Little));
        assert!(!encoded(EventMask::VALUE, &Reading::bare(1.into()), ByteOrder::Little));
        assert!(!encoded(EventMask::VALUE, &Reading::bare(vec![1.5].into()), ByteOrder::Little));
        let late = Reading { time: TimeStamp { unix_s: 0, nanos: u32::MAX }, ..number };
        assert!(!encoded(EventMask::VALUE, &late, ByteOrder::Little));
    }
}
