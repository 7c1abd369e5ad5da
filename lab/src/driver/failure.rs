//! Why there is no number.

use serde::{Deserialize, Serialize};

/// Why there is no number; the variant says where to look.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Failure {
    /// A program or library that is not there or cannot start.
    Unavailable {
        /// Which.
        who: String,
        /// What the system says.
        why: String,
    },
    /// A process that ended.
    Ended {
        /// Which.
        who: String,
        /// Its exit status.
        status: String,
        /// Its last lines.
        said: String,
    },
    /// A process that did not answer.
    Silent {
        /// Which.
        who: String,
        /// After so many seconds.
        after_s: f64,
    },
    /// An operation of the client under test that did not succeed.
    Operation {
        /// Which.
        what: String,
        /// What the client says.
        why: String,
    },
    /// A scalar that cannot be what the server had.
    WrongValue {
        /// The value.
        value: f64,
        /// What it had to be.
        expected: String,
    },
    /// Elements that are missing or too many.
    WrongCount {
        /// How many came.
        n: usize,
        /// How many had to.
        expected: usize,
    },
    /// An element that is not what was put.
    WrongElement {
        /// Its index.
        index: usize,
        /// Its value.
        value: i32,
        /// What was put.
        expected: i32,
    },
    /// A request or an answer that makes no sense.
    Protocol {
        /// What was received.
        line: String,
    },
}

impl Failure {
    /// Of a driver that has no way to do what it is asked.
    pub fn cannot(what: &str) -> Failure {
        Failure::Operation { what: what.into(), why: "this driver has no way to do it".into() }
    }

    /// Of something that is not there.
    pub fn not_open() -> Failure {
        Failure::Operation { what: "use of a channel".into(), why: "it is not open".into() }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Unavailable { who, why } => write!(f, "{who} cannot be started: {why}"),
            Failure::Ended { who, status, said } => write!(f, "{who} ended ({status}): {said}"),
            Failure::Silent { who, after_s } => write!(f, "{who} did not answer for {after_s} s"),
            Failure::Operation { what, why } => write!(f, "{what} failed: {why}"),
            Failure::WrongValue { value, expected } => write!(f, "the value {value} came, expected {expected}"),
            Failure::WrongCount { n, expected } => write!(f, "{n} elements came, expected {expected}"),
            Failure::WrongElement { index, value, expected } => {
                write!(f, "element {index} came as {value}, {expected} was put")
            }
            Failure::Protocol { line } => write!(f, "not understood: {line}"),
        }
    }
}

impl std::error::Error for Failure {}
