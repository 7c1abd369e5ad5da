//! Escapes in strings, as the EPICS tools print and read them.

use std::fmt::Write as _;

/// Escapes quotes, backslashes and everything except printable ASCII, for example as `\n` or `\x7f`.
pub fn escaped(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for &byte in bytes {
        match byte {
            0 => text.push_str("\\0"),
            0x07 => text.push_str("\\a"),
            0x08 => text.push_str("\\b"),
            0x0b => text.push_str("\\v"),
            0x0c => text.push_str("\\f"),
            b'\n' => text.push_str("\\n"),
            b'\r' => text.push_str("\\r"),
            b'\t' => text.push_str("\\t"),
            b'\\' | b'\'' | b'"' => text.extend(['\\', char::from(byte)]),
            b' '..=b'~' => text.push(char::from(byte)),
            _ => {
                // Writing to a String cannot fail.
                let _ = write!(text, "\\x{byte:02x}");
            }
        }
    }
    text
}

/// Decodes the escapes of a text into at most `bytes_max` bytes.
///
/// `\x` takes one or two digits. `\0` is the only octal escape, as observed with EPICS Base 7.0.10. A backslash before
/// any other character is dropped.
pub fn raw(text: &str, bytes_max: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text.bytes().peekable();
    while let Some(byte) = rest.next() {
        if bytes.len() >= bytes_max {
            break;
        }
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        let Some(letter) = rest.next() else { break };
        match letter {
            b'0' => bytes.push(0),
            b'a' => bytes.push(0x07),
            b'b' => bytes.push(0x08),
            b'f' => bytes.push(0x0c),
            b'n' => bytes.push(b'\n'),
            b'r' => bytes.push(b'\r'),
            b't' => bytes.push(b'\t'),
            b'v' => bytes.push(0x0b),
            b'x' => {
                let digit = |rest: &mut std::iter::Peekable<std::str::Bytes<'_>>| {
                    rest.next_if(u8::is_ascii_hexdigit).and_then(|digit| char::from(digit).to_digit(16))
                };
                if let Some(high) = digit(&mut rest) {
                    let number = digit(&mut rest).map_or(high, |low| high * 16 + low);
                    bytes.push(u8::try_from(number).unwrap_or_default());
                }
            }
            other => bytes.push(other),
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unprintable_characters_are_escaped() {
        assert_eq!(escaped(b"it's \"q\" \\ t\tu\x7f\xe9"), "it\\'s \\\"q\\\" \\\\ t\\tu\\x7f\\xe9");
        assert_eq!(escaped(b"\x01\x07\x08\x0b\x0c\r\n"), "\\x01\\a\\b\\v\\f\\r\\n");
    }

    #[test]
    fn escapes_are_parsed_like_epics_base() {
        assert_eq!(raw("a\\nb\\q", 39), b"a\nbq");
        assert_eq!(raw("\\x41\\x4\\x414\\xzz\\x", 39), b"A\x04A4zz");
        assert_eq!(raw("\\101\\0612\\0a", 39), b"101\x00612\0a");
        assert_eq!(raw("end\\", 39), b"end");
        assert_eq!(raw(&"a".repeat(50), 39).len(), 39);
    }

    #[test]
    fn control_characters_are_escaped_by_letter_or_number() {
        assert_eq!(
            escaped(b"\0\x07\x08\x0b\x0c\n\r\t\\'\"a~\x1f\xff"),
            "\\0\\a\\b\\v\\f\\n\\r\\t\\\\\\'\\\"a~\\x1f\\xff"
        );
    }
}
