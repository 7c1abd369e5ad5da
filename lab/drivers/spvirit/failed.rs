//! Failures.

use serde_json::{Value, json};
use spvirit_client::PvGetError;

/// Why a request has no result.
#[derive(Debug)]
pub enum Failed {
    /// As the protocol describes it: the value of `failed`.
    Described(Value),
    /// An error of spvirit or of the system.
    Unexpected(String),
}

impl Failed {
    /// This client has no call for it.
    pub fn unable(what: &str, why: &str) -> Failed {
        Failed::Described(json!({"operation": {"what": what, "why": why}}))
    }

    pub fn wrong_value(value: f64, expected: impl ToString) -> Failed {
        // JSON has no NaN.
        let value = if value.is_finite() { value } else { -1.0 };
        Failed::Described(json!({"wrong_value": {"value": value, "expected": expected.to_string()}}))
    }

    pub fn wrong_count(n: usize, expected: usize) -> Failed {
        Failed::Described(json!({"wrong_count": {"n": n, "expected": expected}}))
    }

    /// The value of `failed`. An unexpected error names the whole request, see `of_failure` of `lab/src/lines.rs`.
    pub fn described(self, line: &str) -> Value {
        match self {
            Failed::Described(why) => why,
            Failed::Unexpected(why) => json!({"operation": {"what": line, "why": why}}),
        }
    }
}

impl From<PvGetError> for Failed {
    fn from(why: PvGetError) -> Failed {
        Failed::Unexpected(why.to_string())
    }
}

impl From<std::io::Error> for Failed {
    fn from(why: std::io::Error) -> Failed {
        Failed::Unexpected(why.to_string())
    }
}
