//! Status codes of Channel Access (`ECA_*`).

/// A status code; unknown ones survive and print as numbers. To be completed as a table:
/// name, number, text, for every code of `caerr.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Eca(pub u32);

impl Eca {
    /// Success.
    pub const NORMAL: Eca = Eca(1);
    /// The value could not be read.
    pub const GETFAIL: Eca = Eca(152);
    /// No write access.
    pub const NOWTACCESS: Eca = Eca(376);
    /// The value could not be written.
    pub const PUTFAIL: Eca = Eca(160);
}

impl std::fmt::Display for Eca {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)
    }
}
