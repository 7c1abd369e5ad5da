//! Batches of channels, and the measured time of a batch.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::DriverFailure;

/// A set of channels, by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectedChannels {
    /// The name of each channel. `{}` or `{:06}` in it is replaced by the channel's number, counted from 0; a name with
    /// a number belongs to a PV whose value is that number.
    pub pattern: String,
    /// Number of channels.
    pub n: usize,
    /// Whether the channels share one PV.
    pub variant: Variant,
}

/// Whether the channels of a batch share one PV.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Variant {
    /// All channels have the name of number 0.
    Equal,
    /// Each channel has its own PV.
    Distinct,
    /// The question does not distinguish the two.
    None,
}

impl Variant {
    /// The name in result files.
    pub fn text(self) -> &'static str {
        match self {
            Variant::Equal => "equal",
            Variant::Distinct => "distinct",
            Variant::None => "none",
        }
    }
}

impl ConnectedChannels {
    /// The names, in the order of the channels.
    pub fn names(&self) -> Vec<String> {
        (0..self.n).map(|index| self.name(index)).collect()
    }

    /// The value that a get from the channel must return; `None` for a PV whose value changes.
    pub fn expected(&self, index: usize) -> Option<f64> {
        self.placeholder().map(|_| self.number(index) as f64)
    }

    /// Checks that `value` is what the server has for the channel.
    pub fn check(&self, index: usize, value: f64) -> Result<(), DriverFailure> {
        match self.expected(index) {
            Some(expected) if value != expected => {
                Err(DriverFailure::WrongValue { value, expected: format!("{expected} of {}", self.name(index)) })
            }
            None if !value.is_finite() => Err(DriverFailure::WrongValue { value, expected: "a number".into() }),
            _ => Ok(()),
        }
    }

    fn name(&self, index: usize) -> String {
        match self.placeholder() {
            Some((before, width, after)) => format!("{before}{:0width$}{after}", self.number(index)),
            None => self.pattern.clone(),
        }
    }

    fn number(&self, index: usize) -> usize {
        if self.variant == Variant::Distinct { index } else { 0 }
    }

    /// The text before the number, the number's width, the text after it.
    fn placeholder(&self) -> Option<(&str, usize, &str)> {
        let (before, rest) = self.pattern.split_once('{')?;
        let (format, after) = rest.split_once('}')?;
        let width = format.trim_start_matches(':').trim_start_matches('0').parse().unwrap_or(0);
        Some((before, width, after))
    }
}

/// The measured time of a piece of work, and how much of the work is verified.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timed {
    /// Total time.
    pub ns: u64,
    /// Time to create the objects alone, where it is measured separately.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_ns: Option<u64>,
    /// Time to close what was created, where it is of interest; not part of `ns`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub close_ns: Option<u64>,
    /// How many passed the check.
    pub n: usize,
    /// A note on how this client does the work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl Timed {
    /// Time from `start` until now, for `n` verified objects.
    pub fn since(start: Instant, n: usize) -> Timed {
        Timed { ns: ns(start.elapsed()), n, ..Timed::default() }
    }
}

/// A duration in nanoseconds.
pub fn ns(duration: Duration) -> u64 {
    duration.as_nanos() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(pattern: &str, variant: Variant) -> ConnectedChannels {
        ConnectedChannels { pattern: pattern.into(), n: 3, variant }
    }

    #[test]
    fn distinct_channels_are_numbered_from_zero_with_the_pattern_width() {
        let names = batch("lab:{:06}.VAL", Variant::Distinct).names();

        assert_eq!(names, ["lab:000000.VAL", "lab:000001.VAL", "lab:000002.VAL"]);
        assert_eq!(batch("x{}", Variant::Distinct).names(), ["x0", "x1", "x2"]);
    }

    #[test]
    fn equal_channels_all_have_the_name_with_number_zero() {
        assert_eq!(batch("lab:{:02}", Variant::Equal).names(), ["lab:00"; 3]);
        assert_eq!(batch("counter", Variant::Equal).names(), ["counter"; 3]);
    }

    #[test]
    fn numbered_channels_expect_their_number_and_others_any_number() {
        let numbered = batch("lab:{:06}", Variant::Distinct);

        assert_eq!(numbered.check(2, 2.0), Ok(()));
        assert!(matches!(numbered.check(2, 1.0), Err(DriverFailure::WrongValue { .. })));
        assert_eq!(batch("counter", Variant::Equal).check(2, 77.0), Ok(()));
        assert!(batch("counter", Variant::Equal).check(2, f64::NAN).is_err());
    }
}
