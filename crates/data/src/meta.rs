use crate::{Kind, Severity, Text};

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
    /// What the value is, for people; empty when there is no description.
    pub description: Text,
    /// How to show the value.
    pub form: DisplayForm,
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
    /// The names of an enum's states, in order; empty for other kinds. Channel Access transmits 16 of them; a get of a text has
    /// that of any state.
    pub labels: Vec<Text>,
    /// The text for a state without a label; `None`: the state's number.
    pub label_for_unlabelled: Option<Text>,
    /// The state of alarm acknowledgement; `None` unless requested.
    pub acknowledge: Option<AcknowledgeState>,
}

/// The parts of the metadata that a source has for a value. pvAccess sends only these; the others stay 0 or empty.
///
/// A record has the parts that its type and the type of its field provide: a waveform, for example, has no alarm limits.
///
/// ```
/// use fodo_data::{Kind, MetaParts};
///
/// let parts = MetaParts::of(Kind::I32, false);
/// assert!(parts.contains(MetaParts::ALARM) && !parts.contains(MetaParts::PRECISION));
/// assert_eq!(parts.with(MetaParts::PRECISION), MetaParts::of(Kind::F64, false));
/// assert_eq!(parts.without(MetaParts::ALARM), MetaParts::of(Kind::I32, true));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MetaParts(pub u8);

impl MetaParts {
    /// Engineering units.
    pub const UNITS: MetaParts = MetaParts(1);
    /// Digits after the decimal point.
    pub const PRECISION: MetaParts = MetaParts(1 << 1);
    /// The display range.
    pub const DISPLAY: MetaParts = MetaParts(1 << 2);
    /// The range to which puts are limited.
    pub const CONTROL: MetaParts = MetaParts(1 << 3);
    /// The limits of alarms and warnings.
    pub const ALARM: MetaParts = MetaParts(1 << 4);
    /// The names of the states.
    pub const CHOICES: MetaParts = MetaParts(1 << 5);
    /// How to show the value.
    pub const FORM: MetaParts = MetaParts(1 << 6);
    /// The number of combinations of all parts.
    pub const COMBINATIONS: usize = 1 << 7;

    /// The parts of a value unless its source knows better: everything that is meaningful for this kind, and no alarm
    /// limits for arrays.
    pub const fn of(kind: Kind, is_array: bool) -> MetaParts {
        let all = MetaParts(Self::COMBINATIONS as u8 - 1);
        let parts = match kind {
            Kind::F32 | Kind::F64 => all,
            Kind::Text if !is_array => all.without(Self::UNITS).without(Self::PRECISION),
            _ => all.without(Self::PRECISION),
        };
        if is_array { parts.without(Self::ALARM) } else { parts }
    }

    /// Whether all parts of `other` are included.
    pub const fn contains(self, other: MetaParts) -> bool {
        self.0 & other.0 == other.0
    }

    /// These parts and those of `other`.
    pub const fn with(self, other: MetaParts) -> MetaParts {
        MetaParts(self.0 | other.0)
    }

    /// These parts except those of `other`.
    pub const fn without(self, other: MetaParts) -> MetaParts {
        MetaParts(self.0 & !other.0)
    }
}

/// How to show a number or an array; the choices of `form` in the display metadata of pvAccess (`Q:form` of a record).
///
/// ```
/// use fodo_data::DisplayForm;
///
/// assert_eq!(DisplayForm::from_code(4), DisplayForm::Hex);
/// assert_eq!(DisplayForm::NAMES[DisplayForm::Hex.code() as usize], "Hex");
/// assert_eq!(DisplayForm::from_code(99), DisplayForm::Default);
/// assert_eq!(DisplayForm::from_name(b"Decimal"), Some(DisplayForm::Decimal));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DisplayForm {
    /// The same as the program shows other values.
    #[default]
    Default = 0,
    /// A character array as text.
    String = 1,
    /// An integer in base 2.
    Binary = 2,
    /// A number in fixed notation.
    Decimal = 3,
    /// An integer in base 16.
    Hex = 4,
    /// A number in scientific notation.
    Exponential = 5,
    /// A number in scientific notation with exponents that are multiples of 3.
    Engineering = 6,
}

impl DisplayForm {
    /// The names, in numerical order.
    pub const NAMES: [&'static str; 7] =
        ["Default", "String", "Binary", "Decimal", "Hex", "Exponential", "Engineering"];

    const ALL: [DisplayForm; 7] = [
        DisplayForm::Default,
        DisplayForm::String,
        DisplayForm::Binary,
        DisplayForm::Decimal,
        DisplayForm::Hex,
        DisplayForm::Exponential,
        DisplayForm::Engineering,
    ];

    /// Converts a wire number; unknown numbers become [`DisplayForm::Default`].
    pub fn from_code(code: i64) -> DisplayForm {
        usize::try_from(code).ok().and_then(|code| DisplayForm::ALL.get(code)).copied().unwrap_or_default()
    }

    /// Finds the form with this name.
    pub fn from_name(name: &[u8]) -> Option<DisplayForm> {
        DisplayForm::ALL.into_iter().find(|form| DisplayForm::NAMES[*form as usize].as_bytes() == name)
    }

    /// The wire number, 0 to 6.
    pub const fn code(self) -> i32 {
        self as i32
    }
}

/// The state of alarm acknowledgement of a record.
///
/// ```
/// use fodo_data::{AcknowledgeState, Severity};
///
/// let state = AcknowledgeState { transient: true, severity: Severity::Major };
/// let must_be_acknowledged = state.severity > Severity::None;
/// assert!(must_be_acknowledged);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcknowledgeState {
    /// Whether an alarm must be acknowledged even after it has cleared (ACKT).
    pub transient: bool,
    /// The highest severity not yet acknowledged (ACKS).
    pub severity: Severity,
}

/// A value for one of the two fields of alarm acknowledgement.
///
/// ```
/// use fodo_data::{AcknowledgePut, Severity};
///
/// // An operator has seen alarms up to MINOR.
/// let put = AcknowledgePut::Severity(Severity::Minor);
/// # assert_ne!(put, AcknowledgePut::Transient { is_required: true });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcknowledgePut {
    /// ACKT.
    Transient {
        /// Whether alarms that have cleared still need an acknowledgement.
        is_required: bool,
    },
    /// ACKS: alarms up to this severity are acknowledged.
    Severity(Severity),
}
