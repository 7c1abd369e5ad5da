//! The host environment that a database needs: environment variables, the local time zone.

use std::fmt;

use fodo_data::{Text, TimeStamp};

/// Access to the host environment. Called while records are processed, so it must not block.
pub trait Site: fmt::Debug + Send + Sync {
    /// An environment variable; `None` when it is not set.
    fn variable(&self, name: &str) -> Option<Text>;

    /// The time zone at a given time.
    fn zone(&self, at: TimeStamp) -> Zone;
}

/// A time zone at a given time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Zone {
    /// Local time minus UTC, in seconds.
    pub offset_s: i32,
    /// Its short name, such as `CET`.
    pub name: String,
}

/// No environment, and UTC.
#[derive(Debug)]
pub(crate) struct DefaultSite;

impl Site for DefaultSite {
    fn variable(&self, _name: &str) -> Option<Text> {
        None
    }

    fn zone(&self, _at: TimeStamp) -> Zone {
        Zone { offset_s: 0, name: "UTC".into() }
    }
}
