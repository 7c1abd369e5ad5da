//! Where a channel is, and the types that its requests travel with.

use fodo_ca::Sid;
use fodo_ca::dbr::{self, DbrType, Level};
use fodo_data::{Array, Kind, Scalar, Text, Value};

use super::super::{Detail, Request};
use crate::limit;

/// Where an active channel is, and what its elements are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::client) struct Place {
    pub(in crate::client) sid: Sid,
    pub(in crate::client) kind: Kind,
    pub(in crate::client) count: u32,
}

impl Place {
    /// Whether it has many elements. Such a channel always gives arrays, whatever came this time.
    pub(in crate::client) fn is_array(&self) -> bool {
        self.count != 1
    }

    /// The type and count that a request travels with.
    #[inline]
    pub(super) fn asked(&self, request: &Request) -> (DbrType, u32) {
        let kind = request.kind.unwrap_or(self.kind);
        let level = match request.detail {
            Detail::Value => Level::Plain,
            Detail::Alarm => Level::Status,
            Detail::Time | Detail::Full => Level::Time,
            Detail::Graphic => Level::Graphic,
            Detail::Control => Level::Control,
            Detail::Acknowledge => return (DbrType::STSACK_STRING, 1),
            Detail::ClassName => return (DbrType::CLASS_NAME, 1),
        };
        let count = match self.count {
            1 => 1,
            count_max => request.count.min(count_max),
        };
        (DbrType::of(kind, level), count)
    }

    /// The type that a value is put with. A text that is too long for a string is one of characters where the channel has
    /// them; a shorter one is a string, which the server reads as a number there, as it always did. Fails, with the
    /// reason, for a text that would have to be cut.
    pub(super) fn put_type(&self, value: &Value) -> Result<DbrType, String> {
        let n_bytes = match value {
            Value::Scalar(Scalar::Text(text)) => text.len(),
            Value::Array(Array::Text(texts)) => texts.iter().map(Text::len).max().unwrap_or(0),
            _ => 0,
        };
        match n_bytes {
            0..=limit::STRING_BYTES => Ok(dbr::put_type(value)),
            _ if self.kind == Kind::U8 && self.count > 1 => Ok(DbrType::of(Kind::U8, Level::Plain)),
            _ => Err(format!(
                "a string of {n_bytes} bytes, where a string has at most {}: put to the field as characters, its name with a $ \
                 behind",
                limit::STRING_BYTES
            )),
        }
    }

    /// The type that has what [`Detail::Full`] wants beside alarm and time stamp, with the first element.
    pub(super) fn description(&self, request: &Request) -> Option<DbrType> {
        let kind = request.kind.unwrap_or(self.kind);
        (request.detail == Detail::Full).then(|| DbrType::of(kind, Level::Control))
    }
}

/// What a channel of many elements gives.
pub(in crate::client) fn as_array(value: &mut Value) {
    if let Value::Scalar(scalar) = value {
        *value = Value::Array(scalar.clone().into());
    }
}
