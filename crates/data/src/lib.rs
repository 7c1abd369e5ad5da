//! Value types: scalars, arrays, enums, alarms, time stamps and limits.
//!
//! All other crates use these types. This crate does no IO and contains no protocol.
//!
//! A [`Reading`] is what a client receives: a [`Value`] with its [`Alarm`], its [`TimeStamp`] and, if requested, its
//! [`Meta`]. A [`Value`] is one [`Scalar`] or an [`Array`], of one [`Kind`].
//!
//! ```
//! use fodo_data::{Alarm, Kind, Meta, Reading, Severity, Status, Value};
//!
//! let mut reading = Reading::bare(Value::from(21.4567));
//! assert_eq!((reading.value.kind(), reading.value.len()), (Kind::F64, 1));
//! assert_eq!(reading.value.to_f64(), Ok(21.4567));
//!
//! reading.alarm = Alarm { severity: Severity::Minor, status: Status::HIGH };
//! assert!(reading.alarm.severity < Severity::Invalid);
//!
//! // The text that an operator sees, with the record's precision and units.
//! let meta = Meta { units: "degC".into(), precision: 1, ..Meta::default() };
//! let text = reading.value.first().map(|scalar| scalar.to_text(Some(&meta)));
//! assert_eq!(format!("{} {}", text.unwrap_or_default(), meta.units), "21.5 degC");
//! ```
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
