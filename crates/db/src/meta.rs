//! The default units, precision and limits of fields.

use fodo_data::{Limits, Meta};

use crate::field::{Dbf, FieldInfo};

const NO_LIMITS: Limits = Limits { low: f64::NAN, high: f64::NAN };

/// The metadata of a field if its record type sets none: zeros, and NaN as alarm limits.
pub(crate) fn empty() -> Meta {
    Meta { alarm: NO_LIMITS, warning: NO_LIMITS, ..Meta::default() }
}

/// Sets the display and control limits to the range of the field's type.
///
/// Source: EPICS Base 7.0, recGblGetGraphicDouble and recGblGetControlDouble.
pub(crate) fn ranges(row: &FieldInfo, meta: &mut Meta) {
    let (low, high) = match row.dbf {
        Dbf::Char => (f64::from(i8::MIN), f64::from(i8::MAX)),
        Dbf::UChar => (0.0, f64::from(u8::MAX)),
        Dbf::Short => (f64::from(i16::MIN), f64::from(i16::MAX)),
        Dbf::Enum | Dbf::UShort => (0.0, f64::from(u16::MAX)),
        Dbf::Long => (f64::from(i32::MIN), f64::from(i32::MAX)),
        Dbf::ULong => (0.0, f64::from(u32::MAX)),
        Dbf::Int64 => (i64::MIN as f64, i64::MAX as f64),
        Dbf::UInt64 => (0.0, u64::MAX as f64),
        Dbf::Float => (-1e30, 1e30),
        Dbf::Double => (-1e300, 1e300),
        _ => return,
    };
    meta.display = Limits { low, high };
    meta.control = meta.display;
}

/// The precision of a field: for floating-point numbers the record's precision, or 15 if it is out of range; 0 for
/// integers.
///
/// Source: EPICS Base 7.0, recGblGetPrec.
pub(crate) fn precision(row: &FieldInfo, precision: i16) -> i16 {
    match row.dbf {
        Dbf::Float | Dbf::Double if !(0..=15).contains(&precision) => 15,
        Dbf::Char | Dbf::UChar | Dbf::Short | Dbf::UShort => 0,
        Dbf::Long | Dbf::ULong | Dbf::Int64 | Dbf::UInt64 => 0,
        _ => precision,
    }
}
