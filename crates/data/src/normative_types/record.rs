//! The normative types of pvAccess for scalars, arrays and enums.

use crate::{Kind, StructureBuilder, StructureType};

/// The type that QSRV2 serves for a PV whose elements have this kind: NTScalar, NTScalarArray or NTEnum.
///
/// Source: pvxs 1.5.3 (`nt.cpp`); the recordings of `fodo-pva` contain the types.
///
/// ```
/// use fodo_data::{Kind, normative_type};
///
/// let text = normative_type(Kind::Text, false);
/// assert_eq!(text.id().to_str(), "epics:nt/NTScalar:1.0");
/// assert_eq!(text.node("display.units"), Some(12));
/// ```
pub fn normative_type(kind: Kind, is_array: bool) -> StructureType {
    let is_enum = kind == Kind::Enum && !is_array;
    // Arrays of states have no labels; they are arrays of numbers.
    let kind = if kind == Kind::Enum { Kind::U16 } else { kind };
    let is_number = !matches!(kind, Kind::Text | Kind::Bool);
    let mut build = StructureBuilder::new(match (is_enum, is_array) {
        (true, _) => "epics:nt/NTEnum:1.0",
        (_, true) => "epics:nt/NTScalarArray:1.0",
        _ => "epics:nt/NTScalar:1.0",
    });
    match (is_enum, is_array) {
        (true, _) => build.open("value", "enum_t").scalar("index", Kind::I32).array("choices", Kind::Text).close(),
        (_, true) => build.array("value", kind),
        _ => build.scalar("value", kind),
    };
    build.open("alarm", "alarm_t").scalar("severity", Kind::I32).scalar("status", Kind::I32);
    build.scalar("message", Kind::Text).close();
    build.open("timeStamp", "time_t").scalar("secondsPastEpoch", Kind::I64).scalar("nanoseconds", Kind::I32);
    build.scalar("userTag", Kind::I32).close();
    build.open("display", "");
    if is_enum {
        build.scalar("description", Kind::Text);
    } else if !is_number {
        build.scalar("description", Kind::Text).scalar("units", Kind::Text);
    } else {
        build.scalar("limitLow", kind).scalar("limitHigh", kind).scalar("description", Kind::Text);
        build.scalar("units", Kind::Text).scalar("precision", Kind::I32);
        build.open("form", "enum_t").scalar("index", Kind::I32).array("choices", Kind::Text).close().close();
        build.open("control", "").scalar("limitLow", kind).scalar("limitHigh", kind).scalar("minStep", kind).close();
        build.open("valueAlarm", "").scalar("active", Kind::Bool);
        for limit in ["lowAlarmLimit", "lowWarningLimit", "highWarningLimit", "highAlarmLimit"] {
            build.scalar(limit, kind);
        }
        for severity in ["lowAlarmSeverity", "lowWarningSeverity", "highWarningSeverity", "highAlarmSeverity"] {
            build.scalar(severity, Kind::I32);
        }
        build.scalar("hysteresis", Kind::F64);
    }
    build.finish()
}
