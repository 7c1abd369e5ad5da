use crate::{Severity, Text};

/// A pair of limits in engineering units. [`Meta`] has an example.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limits {
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

/// Metadata of a value: units, precision, limits and state names. Changes rarely.
///
/// It only describes the value to clients: it raises no alarm and refuses no put. A record of an IOC applies its limits
/// itself; a program does so in its own code.
///
/// ```
/// use fodo_data::{Limits, Meta};
///
/// let gap = Meta {
///     units: "mm".into(),
///     precision: 3,
///     control: Limits { low: 0.0, high: 50.0 },
///     ..Meta::default()
/// };
/// assert!((gap.control.low..=gap.control.high).contains(&12.5));
///
/// let shutter = Meta { labels: vec!["Closed".into(), "Open".into()], ..Meta::default() };
/// assert_eq!(shutter.labels.len(), 2);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Meta {
    /// Engineering units; empty when there are none.
    pub units: Text,
    /// Digits to show after the decimal point.
    pub precision: i16,
    /// Digits after the decimal point when a number is converted to text, where this differs from `precision`.
    pub text_digits: Option<i16>,
    /// The display range (HOPR, LOPR).
    pub display: Limits,
    /// The limits beyond which a record raises a major alarm (HIHI, LOLO).
    pub alarm: Limits,
    /// The limits beyond which a record raises a minor alarm (HIGH, LOW).
    pub warning: Limits,
    /// The range to which a record limits puts (DRVH, DRVL where the record has them).
    pub control: Limits,
    /// The names of an enum's states, in order; empty for other kinds.
    pub labels: Vec<Text>,
    /// The text for a state without a label; `None`: the state's number.
    pub label_for_unlabelled: Option<Text>,
    /// The state of alarm acknowledgement; `None` unless requested.
    pub acknowledge: Option<Acknowledge>,
}

/// The state of alarm acknowledgement of a record.
///
/// ```
/// use fodo_data::{Acknowledge, Severity};
///
/// let state = Acknowledge { transient: true, severity: Severity::Major };
/// let must_be_acknowledged = state.severity > Severity::None;
/// assert!(must_be_acknowledged);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acknowledge {
    /// Whether an alarm must be acknowledged even after it has cleared (ACKT).
    pub transient: bool,
    /// The highest severity not yet acknowledged (ACKS).
    pub severity: Severity,
}
