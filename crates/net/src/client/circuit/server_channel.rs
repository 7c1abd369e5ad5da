//! The server's identity of a channel, and the DBR types used in its requests.

use fodo_ca::dbr::{self, AttributeLevel, DbrType};
use fodo_data::{Array, Kind, STRING_BYTES_MAX, Scalar, Text, Value};
use fodo_engine::Sid;

use super::super::{Detail, Failure, Request, WrongReply};

/// The server's number, the element type and the element count of an active channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ServerChannel {
    pub(crate) sid: Sid,
    pub(crate) kind: Kind,
    /// With pvAccess 0 if it is not limited.
    pub(crate) count: u32,
}

// A process may have a million channels.
const _: () = assert!(size_of::<ServerChannel>() == 12);

/// What the reply of a server of Channel Access to a get, or its update, must match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::client) struct Expected {
    pub(super) dbr: DbrType,
    /// 0: any number of elements.
    pub(super) count_max: u32,
    /// Whether the channel has several elements. Its values are always arrays, even when one element was received.
    is_array: bool,
}

impl Expected {
    /// Checks a value, and converts it to an array if the channel has several elements. Fails if it is not what was
    /// requested.
    ///
    /// An array may be shorter than requested: rsrv pads it, caproto does not.
    #[inline(always)]
    pub(in crate::client) fn check(&self, dbr: DbrType, value: &mut Value) -> Result<(), WrongReply> {
        match value {
            Value::Scalar(_) if dbr == self.dbr && !self.is_array => Ok(()),
            _ => self.check_further(dbr, value),
        }
    }

    /// Checks the type of the reply with units, limits and labels, which [`Detail::Full`] requests before the value.
    pub(in crate::client) fn check_meta(&self, dbr: DbrType) -> Result<(), WrongReply> {
        let requested = self.dbr.kind().map(meta_type);
        match requested {
            Some(requested) if dbr != requested => Err(WrongReply::Type { requested, received: dbr }),
            _ => Ok(()),
        }
    }

    /// Checks everything except a scalar as requested.
    #[inline(never)]
    fn check_further(&self, dbr: DbrType, value: &mut Value) -> Result<(), WrongReply> {
        if dbr != self.dbr {
            return Err(WrongReply::Type { requested: self.dbr, received: dbr });
        }
        match value {
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

impl ServerChannel {
    /// The expected reply to a request.
    #[inline]
    pub(in crate::client) fn expected(&self, request: &Request) -> Expected {
        let (dbr, count_max) = self.request_type(request);
        Expected { dbr, count_max, is_array: self.count != 1 }
    }

    /// The DBR type and count of a request.
    #[inline]
    pub(super) fn request_type(&self, request: &Request) -> (DbrType, u32) {
        let kind = request.kind.unwrap_or(self.kind);
        let level = match request.detail {
            Detail::Value => AttributeLevel::Plain,
            Detail::Alarm => AttributeLevel::Status,
            Detail::Time | Detail::Full => AttributeLevel::Time,
            Detail::Graphic => AttributeLevel::Graphic,
            Detail::Control => AttributeLevel::Control,
            Detail::AcknowledgeState => return (DbrType::STSACK_STRING, 1),
            Detail::ClassName => return (DbrType::CLASS_NAME, 1),
        };
        let count = match self.count {
            1 => 1,
            count_max => request.count.min(count_max),
        };
        (DbrType::of(kind, level), count)
    }

    /// The DBR type with which a value is put.
    ///
    /// A text that is too long for a string is sent as characters if the channel has them. A shorter text is sent as a
    /// string, which the server converts to characters there. Fails for a text that would be
    /// truncated.
    pub(super) fn put_type(&self, value: &Value) -> Result<DbrType, Failure> {
        let n_bytes = match value {
            Value::Scalar(Scalar::Text(text)) => text.len(),
            Value::Array(Array::Text(texts)) => texts.iter().map(Text::len).max().unwrap_or(0),
            _ => 0,
        };
        match n_bytes {
            0..=STRING_BYTES_MAX => Ok(dbr::put_type(value)),
            _ if self.kind == Kind::U8 && self.count > 1 => Ok(DbrType::of(Kind::U8, AttributeLevel::Plain)),
            _ => Err(Failure::misuse(
                format!("the string has {n_bytes} bytes, but the type allows at most {STRING_BYTES_MAX}"),
                "append $ to the field name to write it as characters",
            )),
        }
    }

    /// The type that contains what [`Detail::Full`] adds to alarm and time stamp; requested with one element.
    pub(super) fn description(&self, request: &Request) -> Option<DbrType> {
        let kind = request.kind.unwrap_or(self.kind);
        (request.detail == Detail::Full).then(|| meta_type(kind))
    }
}

/// The type with units, limits and labels of such elements.
fn meta_type(kind: Kind) -> DbrType {
    DbrType::of(kind, AttributeLevel::Control)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server_channel(kind: Kind, count: u32) -> ServerChannel {
        ServerChannel { sid: Sid(1), kind, count }
    }

    #[test]
    fn a_request_has_the_type_and_count_required_by_its_detail() {
        let request = |detail| Request { detail, ..Request::default() };
        for (detail, dbr, description) in [
            (Detail::Value, 6, None),
            (Detail::Alarm, 13, None),
            (Detail::Time, 20, None),
            (Detail::Full, 20, Some(34)),
            (Detail::Graphic, 27, None),
            (Detail::Control, 34, None),
            (Detail::AcknowledgeState, 37, None),
            (Detail::ClassName, 38, None),
        ] {
            let of_one = server_channel(Kind::F64, 1).request_type(&request(detail));
            assert_eq!(of_one, (DbrType(dbr), 1), "{detail:?}");
            assert_eq!(
                server_channel(Kind::F64, 1).description(&request(detail)),
                description.map(DbrType),
                "{detail:?}"
            );
        }
        assert_eq!(
            server_channel(Kind::F64, 9).request_type(&request(Detail::ClassName)).1,
            1,
            "one name of many elements"
        );
    }

    #[test]
    fn a_request_with_explicit_type_and_count_is_limited_to_the_array_size() {
        let request = |count| Request { kind: Some(Kind::I32), detail: Detail::Full, count };

        assert_eq!(server_channel(Kind::F64, 9).request_type(&request(5)), (DbrType(19), 5));
        assert_eq!(server_channel(Kind::F64, 9).request_type(&request(50)), (DbrType(19), 9));
        assert_eq!(server_channel(Kind::F64, 9).request_type(&request(0)), (DbrType(19), 0), "as many as there are");
        assert_eq!(server_channel(Kind::F64, 1).request_type(&request(0)), (DbrType(19), 1));
        assert_eq!(server_channel(Kind::F64, 9).description(&request(5)), Some(DbrType(33)));
    }

    #[test]
    fn a_put_text_over_39_bytes_needs_a_character_array() {
        let fits = Value::from("x".repeat(STRING_BYTES_MAX).as_str());
        let long = Value::from("x".repeat(STRING_BYTES_MAX + 1).as_str());
        let texts = Value::Array(Array::Text(vec![Text::from("a"), Text::from("b".repeat(40).as_str())].into()));
        let characters = server_channel(Kind::U8, 100);

        assert_eq!(characters.put_type(&fits).ok(), Some(DbrType(0)));
        assert_eq!(characters.put_type(&long).ok(), Some(DbrType(4)));
        for (server_channel, value) in [
            (server_channel(Kind::Text, 1), &long),
            (server_channel(Kind::U8, 1), &long),
            (server_channel(Kind::Text, 9), &texts),
        ] {
            let Err(Failure::Misuse(misuse)) = server_channel.put_type(value) else { panic!("{value:?}") };
            let reason = misuse.0;
            assert!(reason.contains("40 bytes") && reason.contains("at most 39"), "{reason}");
        }
        assert_eq!(server_channel(Kind::F64, 1).put_type(&Value::from(1.5)).ok(), Some(DbrType(6)));
    }

    #[test]
    fn a_reply_has_the_requested_type_and_no_more_elements_than_requested() {
        let checked = |server_channel: ServerChannel, count, dbr, mut value: Value| {
            let request = Request { detail: Detail::Value, count, ..Request::default() };
            server_channel.expected(&request).check(DbrType(dbr), &mut value).map(|()| value)
        };
        let (one, many) = (server_channel(Kind::F64, 1), server_channel(Kind::F64, 9));
        let three = Value::from(vec![1.0, 2.0, 3.0]);
        let wrong_type = |received| WrongReply::Type { requested: DbrType(6), received: DbrType(received) };

        assert_eq!(checked(one, 0, 6, Value::from(1.5)), Ok(Value::from(1.5)));
        assert_eq!(checked(many, 0, 6, Value::from(1.5)), Ok(Value::from(vec![1.5])), "an array even of one element");
        assert_eq!(checked(many, 0, 6, three.clone()), Ok(three.clone()));
        assert_eq!(checked(many, 3, 6, three.clone()), Ok(three.clone()));
        assert_eq!(checked(many, 2, 6, three.clone()), Err(WrongReply::Count { requested: 2, received: 3 }));
        assert_eq!(checked(one, 0, 6, three.clone()), Err(WrongReply::Count { requested: 1, received: 3 }));
        assert_eq!(checked(one, 0, 5, Value::from(1)), Err(wrong_type(5)));
        assert_eq!(checked(many, 0, 13, three), Err(wrong_type(13)));
    }
}
