use crate::{Severity, Text};

/// A pair of limits in engineering units.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limits {
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

/// What a value means: units, precision, limits, the names of states. Changes rarely.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Meta {
    /// Engineering units; empty when there are none.
    pub units: Text,
    /// Digits after the decimal point to show.
    pub precision: i16,
    /// Digits after the decimal point of numbers as texts, where these are not as many as `precision` says.
    pub text_digits: Option<i16>,
    /// What a display should span (HOPR, LOPR).
    pub display: Limits,
    /// Where a major alarm starts (HIHI, LOLO).
    pub alarm: Limits,
    /// Where a minor alarm starts (HIGH, LOW).
    pub warning: Limits,
    /// What a put may set (DRVH, DRVL where the record has them).
    pub control: Limits,
    /// The names of an enum's states, in order; empty for other kinds.
    pub labels: Vec<Text>,
    /// What a state without a label is called; `None`: by its number.
    pub unlabelled: Option<Text>,
    /// The state of alarm acknowledgement; only when it was asked for.
    pub acknowledge: Option<Acknowledge>,
}

/// The state of alarm acknowledgement of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acknowledge {
    /// Whether an alarm that has gone by itself still wants to be acknowledged (ACKT).
    pub transient: bool,
    /// The highest severity not yet acknowledged (ACKS).
    pub severity: Severity,
}
