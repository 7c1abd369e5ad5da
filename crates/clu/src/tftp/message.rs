//! The packets of TFTP.

/// Size of the content of all blocks but the last.
pub(super) const BLOCK_BYTES: usize = 512;

/// Maximum length of the name of a file and of a mode, and of the text of an error: a request has one datagram.
const TEXT_BYTES_MAX: usize = 512;

/// A packet.
///
/// ```
/// use fodo_clu::tftp::{TftpMode, TftpPacket};
///
/// let mut packet = Vec::new();
/// TftpPacket::Read { path: b"a:\\MAIN.LUA", mode: Some(TftpMode::Octet) }.encode(&mut packet);
/// assert_eq!(packet, b"\0\x01a:\\MAIN.LUA\0octet\0");
/// assert!(matches!(TftpPacket::decode(b"\0\x04\0\x07"), Some(TftpPacket::Acknowledge { block: 7 })));
/// assert_eq!(TftpPacket::decode(b"\0\x04\0"), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TftpPacket<'a> {
    /// Requests to read a file.
    Read {
        /// The name of the file.
        path: &'a [u8],
        /// `None` for a mode that is not supported.
        mode: Option<TftpMode>,
    },
    /// Requests to write a file.
    Write {
        /// The name of the file.
        path: &'a [u8],
        /// `None` for a mode that is not supported.
        mode: Option<TftpMode>,
    },
    /// A block; the last one is shorter than 512 bytes.
    Block {
        /// The number of the block, from 1; 0 follows 65535.
        block: u16,
        /// At most 512 bytes.
        content: &'a [u8],
    },
    /// Acknowledges a block, and with the number 0 a request to write.
    Acknowledge {
        /// The number of the block.
        block: u16,
    },
    /// Ends a transfer.
    Error {
        /// Why.
        code: TftpErrorCode,
        /// Why in words.
        text: &'a [u8],
    },
}

/// How a file is transferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TftpMode {
    /// Without changes.
    Octet,
    /// As a text whose lines end with CR and LF.
    Netascii,
}

impl TftpMode {
    fn text(self) -> &'static str {
        match self {
            TftpMode::Octet => "octet",
            TftpMode::Netascii => "netascii",
        }
    }

    fn parse(text: &[u8]) -> Option<TftpMode> {
        [TftpMode::Octet, TftpMode::Netascii].into_iter().find(|mode| text.eq_ignore_ascii_case(mode.text().as_bytes()))
    }
}

/// The reason of an error; unknown numbers are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TftpErrorCode(pub u16);

impl TftpErrorCode {
    /// See the text.
    pub const NOT_DEFINED: TftpErrorCode = TftpErrorCode(0);
    /// The file does not exist.
    pub const NOT_FOUND: TftpErrorCode = TftpErrorCode(1);
    /// The file must not be read or written.
    pub const ACCESS_VIOLATION: TftpErrorCode = TftpErrorCode(2);
    /// The file is too large.
    pub const DISK_FULL: TftpErrorCode = TftpErrorCode(3);
    /// The packet is not valid.
    pub const ILLEGAL: TftpErrorCode = TftpErrorCode(4);
    /// The packet was sent from an address or a port that has no transfer.
    pub const UNKNOWN_TRANSFER: TftpErrorCode = TftpErrorCode(5);
}

impl<'a> TftpPacket<'a> {
    /// Decodes a packet; `None` if it is invalid. Options after the mode of a request are ignored, as by RFC 1350.
    pub fn decode(packet: &'a [u8]) -> Option<TftpPacket<'a>> {
        let (kind, rest) = number(packet)?;
        Some(match kind {
            1 | 2 => {
                let (path, rest) = text(rest)?;
                let (mode, _) = text(rest)?;
                let mode = TftpMode::parse(mode);
                if kind == 1 { TftpPacket::Read { path, mode } } else { TftpPacket::Write { path, mode } }
            }
            3 => {
                let (block, content) = number(rest)?;
                if content.len() > BLOCK_BYTES {
                    return None;
                }
                TftpPacket::Block { block, content }
            }
            4 => TftpPacket::Acknowledge { block: number(rest)?.0 },
            5 => {
                let (code, rest) = number(rest)?;
                // Some programs do not end the text with a zero.
                let text = text(rest).map_or(&rest[..rest.len().min(TEXT_BYTES_MAX)], |(text, _)| text);
                TftpPacket::Error { code: TftpErrorCode(code), text }
            }
            _ => return None,
        })
    }

    /// Appends the packet to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut put = |number: u16| out.extend_from_slice(&number.to_be_bytes());
        match self {
            TftpPacket::Read { path, mode } | TftpPacket::Write { path, mode } => {
                put(if matches!(self, TftpPacket::Read { .. }) { 1 } else { 2 });
                out.extend_from_slice(path);
                out.push(0);
                out.extend_from_slice(mode.map_or("", TftpMode::text).as_bytes());
                out.push(0);
            }
            TftpPacket::Block { block, content } => {
                put(3);
                put(*block);
                out.extend_from_slice(content);
            }
            TftpPacket::Acknowledge { block } => {
                put(4);
                put(*block);
            }
            TftpPacket::Error { code, text } => {
                put(5);
                put(code.0);
                out.extend_from_slice(text);
                out.push(0);
            }
        }
    }
}

/// The number at the start, and what follows it.
fn number(bytes: &[u8]) -> Option<(u16, &[u8])> {
    let (number, rest) = bytes.split_first_chunk()?;
    Some((u16::from_be_bytes(*number), rest))
}

/// The text at the start, without the zero after it, and what follows.
fn text(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().take(TEXT_BYTES_MAX + 1).position(|byte| *byte == 0)?;
    Some((&bytes[..end], &bytes[end + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_decoded_as_they_were_encoded() {
        let packets = [
            TftpPacket::Read { path: b"a:\\OM.LUA", mode: Some(TftpMode::Netascii) },
            TftpPacket::Write { path: b"", mode: Some(TftpMode::Octet) },
            TftpPacket::Write { path: b"x", mode: None },
            TftpPacket::Block { block: 65535, content: &[7; 512] },
            TftpPacket::Block { block: 1, content: b"" },
            TftpPacket::Acknowledge { block: 258 },
            TftpPacket::Error { code: TftpErrorCode::UNKNOWN_TRANSFER, text: b"no transfer" },
        ];
        for packet in packets {
            let mut bytes = Vec::new();
            packet.encode(&mut bytes);
            assert_eq!(TftpPacket::decode(&bytes), Some(packet));
        }
    }

    #[test]
    fn invalid_packets_are_rejected_and_tolerable_ones_are_not() {
        let too_long = [&b"\0\x03\0\x01"[..], &[0; 513]].concat();
        let endless = [&b"\0\x01"[..], &[b'x'; 513]].concat();
        for invalid in
            [&b""[..], b"\0", b"\0\x07\0\0", b"\0\x01file", b"\0\x01file\0octet", b"\0\x03\0", &too_long, &endless]
        {
            assert_eq!(TftpPacket::decode(invalid), None, "{invalid:?}");
        }
        let with_option = TftpPacket::decode(b"\0\x01f\0OcTeT\0blksize\x001024\0");
        assert_eq!(with_option, Some(TftpPacket::Read { path: b"f", mode: Some(TftpMode::Octet) }));
        let without_end = TftpPacket::decode(b"\0\x05\0\x01gone");
        assert_eq!(without_end, Some(TftpPacket::Error { code: TftpErrorCode::NOT_FOUND, text: b"gone" }));
    }
}
