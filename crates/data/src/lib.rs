//! Value types: scalars, arrays, structures, enums, alarms, time stamps and limits.
//!
//! All other crates use these types. This crate does no IO and contains no protocol.
//!
//! A [`Reading`] is what a client receives: a [`Value`] with its [`Alarm`], its [`TimeStamp`] and, if requested, its
//! [`Meta`]. A [`Value`] is one [`Scalar`] or an [`Array`], of one [`Kind`]. A [`Structure`] has a value for every node
//! of its [`StructureType`].
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
mod bit_set;
mod convert;
mod meta;
mod normative;
mod normative_types;
mod number_nodes;
mod reading;
mod structure;
mod structure_type;
mod text;
mod time;
mod value;

pub use alarm::{Alarm, Severity, Status};
pub use bit_set::BitSet;
pub use convert::{
    ConvertError, format_f32, format_f64, integer_at_start, number_at_start, parse_f64, parse_i64, parse_u64,
};
pub use meta::{AcknowledgePut, AcknowledgeState, DisplayForm, Limits, Meta, MetaParts};
pub use normative::{NormativeLayout, Part, Role};
pub use normative_types::{
    ChannelsContent, FieldStructure, FieldType, ImageAttribute, ImageContent, ImageDimension, NormativeBuilder,
    NormativeContent, NormativeError, NormativeField, NormativeReader, NormativeType, TableColumn, TableContent,
    normative_type,
};
pub use number_nodes::NumberNodes;
pub use reading::{EventMask, Reading};
pub use structure::{NodeValue, Structure, StructureError, UnionValue};
pub use structure_type::{ArraySize, Node, NodeKind, StructureBuilder, StructureType, UnionMember, UnionType};
pub use text::{LABEL_BYTES, STRING_BYTES, STRING_BYTES_MAX, Text};
pub use time::{EPICS_EPOCH_UNIX_S, Now, TimeStamp};
pub use value::{Array, Kind, Scalar, Value};
