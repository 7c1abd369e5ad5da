//! What a database asks of where it runs: the environment, the local time.

use std::fmt;

use fodo_data::{Text, TimeStamp};

/// Answers what the database cannot know by itself. Asked while records are processed, so it must not wait.
pub trait Site: fmt::Debug + Send + Sync {
    /// An environment variable; `None` when it is not set.
    fn variable(&self, name: &str) -> Option<Text>;

    /// The time zone at a moment.
    fn zone(&self, at: TimeStamp) -> Zone;
}

/// A time zone at a moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Zone {
    /// Seconds that local time is ahead of UTC.
    pub offset_s: i32,
    /// Its short name, such as `CET`.
    pub name: String,
}

/// No environment, and UTC.
#[derive(Debug)]
pub(crate) struct Nowhere;

impl Site for Nowhere {
    fn variable(&self, _name: &str) -> Option<Text> {
        None
    }

    fn zone(&self, _at: TimeStamp) -> Zone {
        Zone { offset_s: 0, name: "UTC".into() }
    }
}
