//! Value types: scalars, arrays, enums, alarms, time stamps and limits.
//!
//! All other crates use these types. This crate does no IO and contains no protocol.
#![forbid(unsafe_code)]

mod alarm;
mod convert;
mod meta;
mod reading;
mod text;
mod time;
mod value;

pub use alarm::{Alarm, Severity, Status};
pub use convert::{
    ConvertError, format_f32, format_f64, integer_at_start, number_at_start, parse_f64, parse_i64, parse_u64,
};
pub use meta::{Acknowledge, Limits, Meta};
pub use reading::{EventMask, Reading};
pub use text::{LABEL_BYTES, STRING_BYTES, STRING_BYTES_MAX, Text};
pub use time::{EPICS_EPOCH_UNIX_S, Now, TimeStamp};
pub use value::{Array, Kind, Scalar, Value};
