//! The result of a request.

use std::fmt;

use fodo_data::Text;

use crate::cursor::{ByteReader, ByteWriter};

/// How a request ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StatusLevel {
    /// It was successful.
    #[default]
    Ok = 0,
    /// It was successful, with a warning.
    Warning = 1,
    /// It failed.
    Error = 2,
    /// It failed, and so will every other one.
    Fatal = 3,
}

/// The result of a request, with a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestStatus {
    /// How the request ended.
    pub level: StatusLevel,
    /// What went wrong; empty for a success.
    pub message: Text,
    /// Where in the server it went wrong; usually empty.
    pub call_stack: Text,
}

/// A success without any text.
pub(crate) const PLAIN_OK: u8 = 0xff;

impl RequestStatus {
    /// Success.
    pub const OK: RequestStatus =
        RequestStatus { level: StatusLevel::Ok, message: Text::EMPTY, call_stack: Text::EMPTY };

    /// A failure.
    pub fn error(message: impl Into<Text>) -> RequestStatus {
        RequestStatus { level: StatusLevel::Error, message: message.into(), call_stack: Text::EMPTY }
    }

    /// Whether the reply contains a result: success, perhaps with a warning.
    pub fn is_success(&self) -> bool {
        self.level <= StatusLevel::Warning
    }

    /// Decodes a status.
    pub fn decode(reader: &mut ByteReader) -> RequestStatus {
        let offset = reader.offset();
        let level = match reader.u8() {
            PLAIN_OK => return RequestStatus::OK,
            0 => StatusLevel::Ok,
            1 => StatusLevel::Warning,
            2 => StatusLevel::Error,
            3 => StatusLevel::Fatal,
            _ => {
                reader.fail_at(offset, "a status of type 0 to 3 or 255");
                StatusLevel::Fatal
            }
        };
        RequestStatus { level, message: reader.text(), call_stack: reader.text() }
    }

    /// Encodes the status; one byte for a success without text.
    pub fn encode(&self, to: &mut ByteWriter) {
        if *self == RequestStatus::OK {
            return to.u8(PLAIN_OK);
        }
        to.u8(self.level as u8);
        to.text(self.message.as_bytes());
        to.text(self.call_stack.as_bytes());
    }
}

impl fmt::Display for RequestStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.level {
            StatusLevel::Ok => f.write_str("OK")?,
            StatusLevel::Warning => f.write_str("WARNING")?,
            StatusLevel::Error => f.write_str("ERROR")?,
            StatusLevel::Fatal => f.write_str("FATAL")?,
        }
        if self.message.is_empty() { Ok(()) } else { write!(f, " {:?}", self.message) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cursor::ByteOrder;

    #[test]
    fn a_status_round_trips_and_plain_success_takes_one_byte() {
        for (status, bytes) in [
            (RequestStatus::OK, b"\xff".to_vec()),
            (RequestStatus::error("no"), b"\x02\x02no\x00".to_vec()),
            (RequestStatus { level: StatusLevel::Ok, ..RequestStatus::error("so") }, b"\x00\x02so\x00".to_vec()),
            (RequestStatus { level: StatusLevel::Warning, ..RequestStatus::OK }, b"\x01\x00\x00".to_vec()),
            (RequestStatus { level: StatusLevel::Fatal, ..RequestStatus::OK }, b"\x03\x00\x00".to_vec()),
        ] {
            let mut out = Vec::new();
            status.encode(&mut ByteWriter::new(&mut out, ByteOrder::Big));

            assert_eq!(out, bytes);
            assert_eq!(RequestStatus::decode(&mut ByteReader::new(&out, ByteOrder::Big)), status);
        }
        for (level, is_success, text) in [
            (StatusLevel::Ok, true, "OK"),
            (StatusLevel::Warning, true, "WARNING"),
            (StatusLevel::Error, false, "ERROR"),
            (StatusLevel::Fatal, false, "FATAL"),
        ] {
            let status = RequestStatus { level, ..RequestStatus::OK };
            assert_eq!((status.is_success(), status.to_string().as_str()), (is_success, text));
        }
        let mut reader = ByteReader::new(b"\x04\x00\x00", ByteOrder::Big);
        assert!(!RequestStatus::decode(&mut reader).is_success() && reader.has_failed());
    }
}
