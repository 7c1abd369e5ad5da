//! The findings of a check.

use fodo_db::LoadError;

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weight {
    /// Not an error, but different from the final system, such as a simulated record.
    Note,
    /// It works, but probably not as intended.
    Warning,
    /// It does not load or has no effect.
    Error,
}

/// A problem found by a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The severity.
    pub weight: Weight,
    /// The message and its position.
    pub error: LoadError,
}
