//! Where a channel is, and the types that its requests travel with.

use fodo_ca::Sid;
use fodo_ca::dbr::{self, DbrType, Level};
use fodo_data::{Array, Kind, Scalar, Text, Value};

use super::super::{Detail, Request, WrongReply};
use crate::limit;

/// Where an active channel is, and what its elements are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::client) struct Place {
    pub(in crate::client) sid: Sid,
    pub(in crate::client) kind: Kind,
    pub(in crate::client) count: u32,
}

/// What the reply to a get, or an update, has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::client) struct Expected {
    dbr: DbrType,
    /// 0: any number of elements.
    count_max: u32,
    /// Whether the channel has many elements. Such a channel always gives arrays, whatever came this time.
    is_array: bool,
}

impl Expected {
    /// Makes the value an array where the channel has many elements. Fails when it is not what was requested.
    ///
    /// An array may be shorter than requested: rsrv pads it, caproto does not.
    #[inline]
    pub(in crate::client) fn check(&self, dbr: DbrType, value: &mut Value) -> Result<(), WrongReply> {
        if dbr != self.dbr {
            return Err(WrongReply::Type { requested: self.dbr, received: dbr });
        }
        match value {
            Value::Scalar(_) if !self.is_array => Ok(()),
            Value::Scalar(scalar) => {
                *value = Value::Array(scalar.clone().into());
                Ok(())
            }
            Value::Array(array) if self.is_array && (self.count_max == 0 || array.len() <= self.count_max as usize) => {
                Ok(())
            }
            Value::Array(array) => Err(WrongReply::Count { requested: self.count_max, received: array.len() }),
        }
    }
}

impl Place {
    /// What the reply to a request is expected to be.
    #[inline]
    pub(in crate::client) fn expected(&self, request: &Request) -> Expected {
        let (dbr, count_max) = self.asked(request);
        Expected { dbr, count_max, is_array: self.count != 1 }
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
