//! Checksums, and conversions between numbers and bytes, in the language with texts.
//!
//! Non-printable characters are C escapes in the arguments and in the results.
//! Source: synApps calc, documentation of the scalcout record, "String Functions/Operators".

use super::Checksum;
use super::format::{escaped, unescaped};
use super::text::TextValue;

impl Checksum {
    /// The checksum of a text, alone or appended to the text.
    pub(super) fn apply(self, text: &[u8], is_appended: bool) -> Vec<u8> {
        let mut bytes = unescaped(text);
        let checksum = match self {
            Checksum::Crc16 => crc16(&bytes).to_vec(),
            Checksum::Lrc => vec![bytes.iter().fold(0, |sum: u8, byte| sum.wrapping_add(*byte)).wrapping_neg()],
            Checksum::Xor8 => vec![bytes.iter().fold(0, |xor, byte| xor ^ byte)],
        };
        if !is_appended {
            bytes.clear();
        }
        bytes.extend(checksum);
        escaped(&bytes)
    }
}

/// CRC-16 of Modbus/RTU, low byte first, as it is transmitted.
fn crc16(bytes: &[u8]) -> [u8; 2] {
    const POLYNOMIAL: u16 = 0xa001;
    let mut crc = u16::MAX;
    for byte in bytes {
        crc ^= u16::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 0 { crc >> 1 } else { crc >> 1 ^ POLYNOMIAL };
        }
    }
    [(crc & 0xff) as u8, (crc >> 8) as u8]
}

/// The binary format of a number. The first byte is the most significant, as in the documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BinaryFormat {
    /// An integer: number of bytes, and whether it is signed.
    Whole(usize, bool),
    Float,
    Double,
}

impl BinaryFormat {
    fn n_bytes(self) -> usize {
        match self {
            BinaryFormat::Whole(n_bytes, _) => n_bytes,
            BinaryFormat::Float => 4,
            BinaryFormat::Double => 8,
        }
    }

    fn number(self, bytes: &[u8]) -> Option<f64> {
        let bits = bytes.get(..self.n_bytes())?.iter().fold(0_u64, |bits, byte| bits << 8 | u64::from(*byte));
        Some(match self {
            BinaryFormat::Whole(n_bytes, true) => {
                let n_above = 64 - 8 * n_bytes as u32;
                ((bits << n_above) as i64 >> n_above) as f64
            }
            BinaryFormat::Whole(_, false) => bits as f64,
            BinaryFormat::Float => f64::from(f32::from_bits(bits as u32)),
            BinaryFormat::Double => f64::from_bits(bits),
        })
    }

    fn bytes(self, number: f64) -> Vec<u8> {
        let bits = match self {
            BinaryFormat::Whole(..) => number as i64 as u64,
            BinaryFormat::Float => u64::from((number as f32).to_bits()),
            BinaryFormat::Double => number.to_bits(),
        };
        (0..self.n_bytes()).rev().map(|place| (bits >> (8 * place)) as u8).collect()
    }
}

/// Parses a conversion after `%`. Returns the format, whether the value is skipped (`*`), and the rest.
fn layout(format: &[u8]) -> Option<(BinaryFormat, bool, &[u8])> {
    let skipped = format.strip_prefix(b"*");
    let rest = skipped.unwrap_or(format);
    let (size, rest) = match rest {
        [size @ (b'h' | b'l'), rest @ ..] => (*size, rest),
        rest => (0, rest),
    };
    let (kind, rest) = rest.split_first()?;
    let n_bytes = if size == b'h' { 2 } else { 4 };
    let layout = match kind {
        b'd' | b'i' => BinaryFormat::Whole(n_bytes, true),
        b'o' | b'u' | b'x' | b'X' => BinaryFormat::Whole(n_bytes, false),
        b'e' | b'E' | b'f' | b'g' | b'G' if size == b'l' => BinaryFormat::Double,
        b'e' | b'E' | b'f' | b'g' | b'G' => BinaryFormat::Float,
        b'c' => BinaryFormat::Whole(1, true),
        _ => return None,
    };
    Some((layout, skipped.is_some(), rest))
}

/// READ: converts the bytes of a text to a number. `None`: too few bytes, or no conversion in the format.
pub(super) fn read(text: &[u8], format: &[u8]) -> Option<TextValue> {
    let bytes = unescaped(text);
    let (mut bytes, mut format) = (bytes.as_slice(), format);
    loop {
        let start = format.iter().position(|byte| *byte == b'%')? + 1;
        let (layout, is_skipped, rest) = layout(format.get(start..)?)?;
        if !is_skipped {
            return layout.number(bytes).map(TextValue::Number);
        }
        bytes = bytes.get(layout.n_bytes()..)?;
        format = rest;
    }
}

/// WRITE: converts a number to bytes, as a text. `None`: no conversion in the format.
pub(super) fn write(format: &[u8], number: f64) -> Option<Vec<u8>> {
    let start = format.iter().position(|byte| *byte == b'%')? + 1;
    let (layout, is_skipped, _) = layout(format.get(start..)?)?;
    (!is_skipped).then(|| escaped(&layout.bytes(number)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The input for the check values in published catalogues of checksums.
    const CHECK: &[u8] = b"123456789";

    fn text(bytes: Vec<u8>) -> String {
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn checksums_have_their_published_check_values() {
        // CRC-16/MODBUS: 0x4b37.
        assert_eq!(crc16(CHECK), [0x37, 0x4b]);
        // 0x31 + .. + 0x39 is 0x1dd; 0x23, '#', makes the low byte 0. Their exclusive or is '1'.
        assert_eq!(text(Checksum::Lrc.apply(CHECK, false)), "#");
        assert_eq!(text(Checksum::Xor8.apply(CHECK, false)), "1");
    }

    #[test]
    fn checksums_are_as_in_the_documentation_of_scalcout() {
        // The documentation writes \x40\x21, which are printable characters.
        assert_eq!(text(Checksum::Crc16.apply(b"\\x01\\x03", false)), "@!");
        assert_eq!(text(Checksum::Crc16.apply(b"\\x01\\x03", true)), "\\x01\\x03@!");
        assert_eq!(text(Checksum::Lrc.apply(b"\\x01\\x03", false)), "\\xfc");
        assert_eq!(text(Checksum::Lrc.apply(b"\\x01\\x03", true)), "\\x01\\x03\\xfc");
        assert_eq!(text(Checksum::Xor8.apply(b"\\x01\\x03", false)), "\\x02");
        assert_eq!(text(Checksum::Xor8.apply(b"\\x01\\x03", true)), "\\x01\\x03\\x02");
    }

    #[test]
    fn binary_formats_read_numbers_from_bytes() {
        let read = |text: &str, format: &str| match read(text.as_bytes(), format.as_bytes()) {
            Some(TextValue::Number(number)) => number,
            other => panic!("{other:?}"),
        };

        assert_eq!(read("\\x01\\x02", "%hu"), 258.0);
        assert_eq!(read("\\x01\\x02\\x03", "%*c%hu"), 515.0);
        assert_eq!(read("\\xff\\xfe", "%hd"), -2.0);
        assert_eq!(read("\\xff\\xff\\xff\\xff", "%d"), -1.0);
        assert_eq!(read("\\xff\\xff\\xff\\xff", "%x"), 4_294_967_295.0);
        assert_eq!(read("\\x80", "%c"), -128.0);
        // 1.0 in IEEE 754.
        assert_eq!(read("?\\x80\\x00\\x00", "%f"), 1.0);
        assert_eq!(read("?\\xf0\\x00\\x00\\x00\\x00\\x00\\x00", "%lf"), 1.0);
    }

    #[test]
    fn binary_formats_write_numbers_as_bytes_and_reject_invalid_formats() {
        let write = |format: &str, number| write(format.as_bytes(), number).map(text);

        assert_eq!(write("%hd", 1250.0), Some("\\x04\\xe2".into()));
        assert_eq!(write("%d", -2.0), Some("\\xff\\xff\\xff\\xfe".into()));
        assert_eq!(write("%c", 65.0), Some("A".into()));
        assert_eq!(write("%f", 1.0), Some("?\\x80\\x00\\x00".into()));
        assert_eq!(write("%s", 1.0), None);
        assert_eq!(write("none", 1.0), None);
        assert_eq!(read(b"\\x01", b"%hu"), None);
        assert_eq!(read(b"\\x01", b"%*"), None);
    }
}
