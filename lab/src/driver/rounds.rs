//! Rounds of study 003: what a driver repeats, how long each round takes, and the checks of what it receives.
//!
//! The records count from 0 to [`COUNTER_LAST`] and begin again, so a client that knows the value before knows the next one.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::{ConnectedChannels, DriverFailure};
use crate::limit::{ROUNDS_MAX, ROUNDS_MIN};

/// The last value of a counter, and the last index at which an array begins; the next one is 0.
pub const COUNTER_LAST: u16 = 999;

/// Records that are processed and read in each round, all in flight together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessGets {
    /// The records.
    #[serde(flatten)]
    pub records: ConnectedChannels,
    /// The number of elements of each record; 0 for counters.
    pub n_elements: usize,
    /// How a record is processed.
    pub way: ProcessWay,
    /// How long rounds are repeated.
    #[serde(flatten)]
    pub spans: RoundSpans,
}

/// How a client processes a record and reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProcessWay {
    /// A get with the option `record[process=true]`.
    OneOperation,
    /// A put to PROC with completion, and a get that does not wait for it.
    PutThenGet,
}

/// An event, and the counters that it processes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventRounds {
    /// The counters to which the client subscribes.
    #[serde(flatten)]
    pub records: ConnectedChannels,
    /// The PV to which a put posts the event.
    pub event: String,
    /// How long rounds are repeated.
    #[serde(flatten)]
    pub spans: RoundSpans,
}

/// How long rounds are repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoundSpans {
    /// Rounds that start in this time are not reported; there is at least one.
    pub warm_up_ms: u64,
    /// How long the rounds are repeated that are reported.
    pub duration_ms: u64,
}

impl RoundSpans {
    /// Repeats `round`, which returns the time that it has measured; returns these times without the warm-up.
    pub fn repeat(self, mut round: impl FnMut() -> Result<Duration, DriverFailure>) -> Result<Vec<u64>, DriverFailure> {
        let (warm_up, duration) = (Duration::from_millis(self.warm_up_ms), Duration::from_millis(self.duration_ms));
        let start = Instant::now();
        round()?;
        while start.elapsed() < warm_up {
            round()?;
        }
        let (start, mut rounds_ns) = (Instant::now(), Vec::new());
        while rounds_ns.len() < ROUNDS_MIN || (start.elapsed() < duration && rounds_ns.len() < ROUNDS_MAX) {
            rounds_ns.push(round()?.as_nanos() as u64);
        }
        Ok(rounds_ns)
    }
}

/// The result of rounds; every value was right.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RoundTimes {
    /// The time of each round, without the warm-up.
    pub rounds_ns: Vec<u64>,
    /// Number of records in each round.
    pub n: usize,
    /// Rounds of an event, with the warm-up: each counter was processed so often.
    #[serde(default)]
    pub n_events: u64,
    /// The updates of all counters since the first event.
    #[serde(default)]
    pub updates: CycleSums,
}

/// Sums over the updates of counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CycleSums {
    /// Updates received.
    pub received: u64,
    /// Values skipped between an update and the next.
    pub missing: u64,
    /// Updates with the value of the update before.
    pub duplicates: u64,
    /// Updates with a value of up to half a cycle before.
    pub out_of_order: u64,
    /// Values that a counter never has.
    pub wrong: u64,
    /// Updates that the client has replaced by a newer one, as it reports.
    pub merged: u64,
}

impl CycleSums {
    /// Adds the sums of another counter.
    pub fn add(&mut self, other: CycleSums) {
        self.received += other.received;
        self.missing += other.missing;
        self.duplicates += other.duplicates;
        self.out_of_order += other.out_of_order;
        self.wrong += other.wrong;
        self.merged += other.merged;
    }
}

/// The updates of one counter.
#[derive(Clone, Copy, Debug, Default)]
pub struct CycleTally {
    last: Option<u16>,
    sums: CycleSums,
}

impl CycleTally {
    /// Adds an update. The first one is the value before the first event; it only sets where counting starts.
    pub fn add(&mut self, value: f64) {
        const CYCLE: u16 = COUNTER_LAST + 1;
        let number = (value.fract() == 0.0 && (0.0..f64::from(CYCLE)).contains(&value)).then_some(value as u16);
        let Some(number) = number else {
            self.sums.wrong += 1;
            return;
        };
        let Some(last) = self.last else {
            self.last = Some(number);
            return;
        };
        self.sums.received += 1;
        match (number + CYCLE - last) % CYCLE {
            0 => self.sums.duplicates += 1,
            step if step <= CYCLE / 2 => {
                self.sums.missing += u64::from(step - 1);
                self.last = Some(number);
            }
            _ => self.sums.out_of_order += 1,
        }
    }

    /// The newest value; `None` before the first update.
    pub fn last(&self) -> Option<u16> {
        self.last
    }

    /// The sums since the first update.
    pub fn sums(&self) -> CycleSums {
        self.sums
    }
}

/// The value of a counter after the next event.
pub fn next_of(number: u16) -> u16 {
    if number < COUNTER_LAST { number + 1 } else { 0 }
}

/// Checks the values of each round: every record was processed once since the round before.
#[derive(Debug)]
pub struct RoundCheck {
    n_elements: usize,
    last: Vec<Option<f64>>,
}

impl RoundCheck {
    /// For these records.
    pub fn new(gets: &ProcessGets) -> RoundCheck {
        RoundCheck { n_elements: gets.n_elements, last: vec![None; gets.records.n] }
    }

    /// Checks the value of a counter.
    pub fn number(&mut self, index: usize, value: f64) -> Result<(), DriverFailure> {
        let Some(last) = self.last.get_mut(index) else {
            return Err(DriverFailure::WrongCount { n: index + 1, expected: self.last.len() });
        };
        let end = f64::from(COUNTER_LAST);
        let expected = match *last {
            Some(last) if last < end => last + 1.0,
            Some(_) => 0.0,
            // The first round sets where counting starts.
            None => value,
        };
        if value != expected || !(0.0..=end).contains(&value) || value.fract() != 0.0 {
            return Err(DriverFailure::WrongValue { value, expected: format!("{expected} of record {index}") });
        }
        *last = Some(value);
        Ok(())
    }

    /// Checks every element of an array: each is larger by one than the element before.
    pub fn array(&mut self, index: usize, elements: &[f64]) -> Result<(), DriverFailure> {
        if elements.len() != self.n_elements {
            return Err(DriverFailure::WrongCount { n: elements.len(), expected: self.n_elements });
        }
        let first = elements.first().copied().unwrap_or_default();
        let mut numbered = elements.iter().zip(0_u32..);
        match numbered.find(|(element, place)| **element != first + f64::from(*place)) {
            Some((value, place)) => {
                let expected = format!("{} at {place} of record {index}", first + f64::from(place));
                Err(DriverFailure::WrongValue { value: *value, expected })
            }
            None => self.number(index, first),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::{DriverRequest, Variant};

    fn gets(n: usize, n_elements: usize) -> ProcessGets {
        ProcessGets {
            records: ConnectedChannels { pattern: "nsls2:passive{:05}".into(), n, variant: Variant::Distinct },
            n_elements,
            way: ProcessWay::PutThenGet,
            spans: RoundSpans { warm_up_ms: 0, duration_ms: 0 },
        }
    }

    fn sums(values: &[f64]) -> CycleSums {
        let mut tally = CycleTally::default();
        values.iter().for_each(|value| tally.add(*value));
        tally.sums()
    }

    #[test]
    fn the_updates_of_a_counter_are_a_sequence_that_begins_again_after_999() {
        assert_eq!(sums(&[997.0, 998.0, 999.0, 0.0, 1.0]), CycleSums { received: 4, ..CycleSums::default() });
        assert_eq!((next_of(998), next_of(999)), (999, 0));
    }

    #[test]
    fn skipped_repeated_late_and_impossible_updates_of_a_counter_are_distinguished() {
        let of = |values: &[f64]| {
            let CycleSums { received, missing, duplicates, out_of_order, wrong, .. } = sums(values);
            (received, missing, duplicates, out_of_order, wrong)
        };

        assert_eq!(of(&[998.0, 1.0]), (1, 2, 0, 0, 0));
        assert_eq!(of(&[5.0, 5.0]), (1, 0, 1, 0, 0));
        assert_eq!(of(&[5.0, 7.0, 6.0, 8.0]), (3, 1, 0, 1, 0));
        assert_eq!(of(&[5.0, 1000.0, 5.5, f64::NAN, 6.0]), (1, 0, 0, 0, 3));
    }

    #[test]
    fn a_record_that_was_not_processed_or_twice_is_detected() {
        let mut check = RoundCheck::new(&gets(2, 0));

        assert_eq!(check.number(1, 998.0), Ok(()));
        assert_eq!(check.number(1, 999.0), Ok(()));
        assert_eq!(check.number(1, 0.0), Ok(()));
        assert!(matches!(check.number(1, 0.0), Err(DriverFailure::WrongValue { .. })));
        assert!(matches!(check.number(1, 2.0), Err(DriverFailure::WrongValue { .. })));
        assert!(matches!(check.number(0, 1000.0), Err(DriverFailure::WrongValue { .. })));
    }

    #[test]
    fn an_array_with_one_wrong_or_missing_element_is_detected() {
        let mut check = RoundCheck::new(&gets(1, 3));

        assert_eq!(check.array(0, &[7.0, 8.0, 9.0]), Ok(()));
        assert_eq!(check.array(0, &[8.0, 9.0]), Err(DriverFailure::WrongCount { n: 2, expected: 3 }));
        assert!(matches!(check.array(0, &[8.0, 9.0, 11.0]), Err(DriverFailure::WrongValue { .. })));
        assert!(matches!(check.array(0, &[7.0, 8.0, 9.0]), Err(DriverFailure::WrongValue { .. })));
        assert_eq!(check.array(0, &[8.0, 9.0, 10.0]), Ok(()));
    }

    #[test]
    fn the_warm_up_is_not_reported_and_some_rounds_always_are() {
        let mut n_rounds = 0;

        let rounds_ns = RoundSpans { warm_up_ms: 0, duration_ms: 0 }
            .repeat(|| {
                n_rounds += 1;
                Ok(Duration::from_nanos(n_rounds))
            })
            .unwrap();

        assert_eq!(rounds_ns.len(), ROUNDS_MIN);
        assert_eq!(rounds_ns.first(), Some(&2));
    }

    #[test]
    fn requests_of_rounds_are_flat_objects_of_texts_and_numbers() {
        let request = serde_json::to_string(&DriverRequest::ProcessGets(gets(10, 0))).unwrap();

        let expected = r#"{"process_gets":{"pattern":"nsls2:passive{:05}","n":10,"variant":"distinct","n_elements":0,"#;
        assert_eq!(request, format!("{expected}\"way\":\"put_then_get\",\"warm_up_ms\":0,\"duration_ms\":0}}}}"));
        assert_eq!(serde_json::from_str::<DriverRequest>(&request).unwrap(), DriverRequest::ProcessGets(gets(10, 0)));
    }
}
