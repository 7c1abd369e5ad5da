//! What a database exchanges with the program that embeds it: values for records whose DTYP is Program.

use std::fmt;

use fodo_data::{Alarm, Kind, Scalar, Severity, Status, Text, TimeStamp, Value};

use crate::error::PutError;

/// A value that the program sets, with its alarm and time stamp. See [`crate::Database::set_by_program`].
///
/// ```
/// use fodo_data::{Severity, Status, TimeStamp};
/// use fodo_db::ProgramValue;
///
/// let measured = ProgramValue::new(21.5)
///     .with_alarm(Severity::Major, Status::HW_LIMIT)
///     .with_message("the sensor is disconnected")
///     .at(TimeStamp::from_epics(1_000_000_000, 0));
/// assert_eq!(measured.value, Some(21.5.into()));
/// assert_eq!(ProgramValue::unchanged().value, None);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProgramValue {
    /// The value; `None`: the last one, with another alarm and time.
    pub value: Option<Value>,
    /// The alarm. A higher severity of the record's own limits replaces it.
    pub alarm: Alarm,
    /// The text for AMSG, at most 39 bytes of it; ignored without an alarm.
    pub message: Text,
    /// The time stamp; `None`: the present time. It is used while TSE is 0 or -2 and TSEL is empty.
    pub time: Option<TimeStamp>,
}

impl ProgramValue {
    /// A value without alarm, of the present time.
    pub fn new(value: impl Into<Value>) -> ProgramValue {
        ProgramValue { value: Some(value.into()), ..ProgramValue::default() }
    }

    /// The last value once more.
    pub fn unchanged() -> ProgramValue {
        ProgramValue::default()
    }

    /// The same with an alarm.
    pub fn with_alarm(self, severity: Severity, status: Status) -> ProgramValue {
        ProgramValue { alarm: Alarm { severity, status }, ..self }
    }

    /// The same with a text for AMSG.
    pub fn with_message(self, message: impl Into<Text>) -> ProgramValue {
        ProgramValue { message: message.into(), ..self }
    }

    /// The same with a time stamp.
    pub fn at(self, time: TimeStamp) -> ProgramValue {
        ProgramValue { time: Some(time), ..self }
    }
}

/// Identifies a value of an output that the program has received; see [`crate::Event::OutputReady`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OutputId(pub(crate) u64);

/// How the program has handled the value of an output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutputResult {
    /// It is written.
    Done,
    /// It is not written: the record keeps the value and has the alarm WRITE with severity INVALID.
    Refused {
        /// The text for AMSG, at most 39 bytes of it.
        message: Text,
    },
    /// It is not written: the record gets back the value that the program accepted or set last, without an alarm.
    Restored,
}

/// The direction in which a record with DTYP Program transfers its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramDirection {
    /// The program sets the value.
    Input,
    /// The program takes the value.
    Output,
}

/// Why the program cannot set a value. Nothing has changed.
#[derive(Clone, Debug, PartialEq)]
pub enum ProgramError {
    /// DTYP of the record is not Program.
    NotProgram,
    /// The value has more elements, or the text more bytes, than the record can store.
    TooLong {
        /// The length of the value.
        length: usize,
        /// The maximum.
        max: usize,
    },
    /// VAL would be another number: without the fraction, wrapped at an end of its range, or only the start of a text.
    OtherNumber {
        /// The position in an array.
        element: Option<usize>,
        /// What the program gave.
        given: Scalar,
        /// The type of VAL.
        kind: Kind,
    },
    /// The value cannot be converted to the type of VAL, or the record rejects it.
    Put(PutError),
}

impl fmt::Display for ProgramError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProgramError::NotProgram => write!(f, "the program can only set records whose DTYP is Program"),
            ProgramError::TooLong { length, max } => {
                write!(f, "the length of the value is {length}; the record can store {max}")
            }
            ProgramError::OtherNumber { element, given, kind } => {
                if let Some(index) = element {
                    write!(f, "element {index}: ")?;
                }
                match (kind, kind.integer_range()) {
                    // A byte is a character with or without a sign.
                    (Kind::I8, _) => write!(f, "expected an integer between {} and {}, not ", i8::MIN, u8::MAX)?,
                    (_, Some((low, high))) => write!(f, "expected an integer between {low} and {high}, not ")?,
                    (Kind::F32, None) => {
                        write!(f, "expected a number between {:e} and {:e}, not ", f32::MIN, f32::MAX)?
                    }
                    (_, None) => write!(f, "expected a number, not ")?,
                }
                match given {
                    Scalar::Text(text) => write!(f, "the text \"{text}\""),
                    Scalar::F64(number) => write!(f, "{number}"),
                    Scalar::F32(number) => write!(f, "{number}"),
                    integer => write!(f, "{}", integer.as_integer().unwrap_or_default()),
                }
            }
            ProgramError::Put(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ProgramError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_contains_both_lengths_or_the_reason_of_the_put() {
        let too_long = ProgramError::TooLong { length: 5, max: 3 };

        assert_eq!(too_long.to_string(), "the length of the value is 5; the record can store 3");
        assert_eq!(ProgramError::Put(PutError::ReadOnly).to_string(), "the field is read-only");
        assert!(ProgramError::NotProgram.to_string().ends_with("whose DTYP is Program"));
    }
}
