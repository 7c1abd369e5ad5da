//! Why a database rejects a put.

use std::fmt;

use fodo_data::ConvertError;

/// Why a put was rejected. No record was processed and nothing changed, unless the variant says otherwise.
#[derive(Clone, Debug, PartialEq)]
pub enum PutError {
    /// The field is read-only.
    ReadOnly,
    /// The record's DISP forbids puts.
    Disabled,
    /// The value cannot be converted to the field's kind.
    Convert(ConvertError),
    /// The record rejects the value, for the reason in the text. An invalid CALC stays in its field, as in Base.
    Rejected(&'static str),
    /// The value is written, but the record could not read its input or write its output when it was processed. Only
    /// puts without a [`PutId`] report this, as in Base.
    ProcessingFailed,
}

impl fmt::Display for PutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PutError::ReadOnly => write!(f, "the field is read-only"),
            PutError::Disabled => write!(f, "the record's DISP forbids puts"),
            PutError::Convert(error) => write!(f, "{error}"),
            PutError::Rejected(reason) => write!(f, "{reason}"),
            PutError::ProcessingFailed => {
                write!(f, "the value is written, but the record could not read its input or write its output")
            }
        }
    }
}

impl std::error::Error for PutError {}
