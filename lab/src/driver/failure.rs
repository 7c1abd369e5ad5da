//! Failures: why a measurement has no result.

use serde::{Deserialize, Serialize};

/// Why a measurement has no result; the variant indicates where to look.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DriverFailure {
    /// A program or library that is missing or cannot start.
    Unavailable {
        /// Its name.
        who: String,
        /// The system's error.
        why: String,
    },
    /// A process that ended.
    Ended {
        /// Its name.
        who: String,
        /// Its exit status.
        status: String,
        /// Its last output lines.
        last_lines: String,
    },
    /// A process that did not answer in time.
    Silent {
        /// Its name.
        who: String,
        /// The timeout in seconds.
        after_s: f64,
    },
    /// An operation of the client under test that failed.
    Operation {
        /// The operation.
        what: String,
        /// The client's error.
        why: String,
    },
    /// A scalar that differs from the server's value.
    WrongValue {
        /// The value received.
        value: f64,
        /// The value expected.
        expected: String,
    },
    /// An array with missing or extra elements.
    WrongCount {
        /// Elements received.
        n: usize,
        /// Elements expected.
        expected: usize,
    },
    /// An array element that differs from the one that was put.
    WrongElement {
        /// Its index.
        index: usize,
        /// The value received.
        value: i32,
        /// The value that was put.
        expected: i32,
    },
    /// A request or an answer that is invalid.
    Protocol {
        /// The line received.
        line: String,
    },
}

impl DriverFailure {
    /// The driver does not implement `what`.
    pub fn cannot(what: &str) -> DriverFailure {
        DriverFailure::Operation { what: what.into(), why: "this driver does not support it".into() }
    }

    /// The channel is not open.
    pub fn not_open() -> DriverFailure {
        DriverFailure::Operation { what: "use of a channel".into(), why: "the channel is not open".into() }
    }
}

impl std::fmt::Display for DriverFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            DriverFailure::Unavailable { who, why } => write!(f, "{who} cannot be started: {why}"),
            DriverFailure::Ended { who, status, last_lines } => write!(f, "{who} ended ({status}): {last_lines}"),
            DriverFailure::Silent { who, after_s } => write!(f, "{who} did not answer for {after_s} s"),
            DriverFailure::Operation { what, why } => write!(f, "{what} failed: {why}"),
            DriverFailure::WrongValue { value, expected } => {
                write!(f, "received the value {value}, expected {expected}")
            }
            DriverFailure::WrongCount { n, expected } => write!(f, "received {n} elements, expected {expected}"),
            DriverFailure::WrongElement { index, value, expected } => {
                write!(f, "element {index} is {value}, but {expected} was put")
            }
            DriverFailure::Protocol { line } => write!(f, "invalid line: {line}"),
        }
    }
}

impl std::error::Error for DriverFailure {}
