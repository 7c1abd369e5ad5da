//! Payloads that are a single number.

use fodo_data::{Alarm, Reading, TimeStamp, Value};

use super::{AttributeLevel, DbrType, take_alarm, take_time};

/// Decodes a single number, with at most alarm and time stamp. Returns `None` for all other payloads.
///
/// Nearly all values received are single numbers; [`super::decode`] decodes all payloads.
#[inline(always)]
pub(crate) fn decode_short(dbr: DbrType, count: u32, payload: &[u8]) -> Option<Reading> {
    let row = dbr.row()?;
    if count != 1 {
        return None;
    }
    let (head, body) = payload.split_at_checked(row.offset)?;
    let (alarm, time) = match row.level? {
        AttributeLevel::Plain => (Alarm::default(), TimeStamp::NEVER),
        AttributeLevel::Status => (take_alarm(u32::from_be_bytes(*head.first_chunk()?)), TimeStamp::NEVER),
        AttributeLevel::Time => {
            let (alarm, time) = head.split_first_chunk()?;
            (take_alarm(u32::from_be_bytes(*alarm)), take_time(u64::from_be_bytes(*time.first_chunk()?)))
        }
        AttributeLevel::Graphic | AttributeLevel::Control => return None,
    };
    let value = Value::Scalar(crate::body::scalar(row.kind, body)?);
    Some(Reading { alarm, time, ..Reading::bare(value) })
}
