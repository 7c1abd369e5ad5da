//! What a check found.

use fodo_db::LoadError;

/// How much something matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weight {
    /// Nothing is wrong, and it is not as it will be.
    Note,
    /// It works, and probably not as it is meant.
    Warning,
    /// It does not load, or does nothing.
    Error,
}

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How much it matters.
    pub weight: Weight,
    /// What, and where.
    pub error: LoadError,
}
