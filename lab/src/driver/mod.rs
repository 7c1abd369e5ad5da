//! Drivers: one process per client under test, which does the timed calls itself.
//!
//! # The protocol
//!
//! The laboratory writes one JSON object per line to the driver's standard input and reads one per line
//! from its standard output; other lines there are ignored, and standard error is free for messages. A
//! driver answers every request, in order, and ends when its input does. Times are nanoseconds of a
//! monotonic clock around the one blocking call that is measured, nothing else.
//!
//! | request | what the driver does | answer |
//! |---|---|---|
//! | `{"open":{"pv":"name","n_channels":1000}}` | connects `n_channels` channels of their own to one PV, and gives up those of the last `open` | `{"opened":{"version":"...","n_channels":1000,"element_count_max":1}}` |
//! | `{"get_scalars":{"n":1000,"n_warm_up":100}}` | `n` blocking gets of one double with time, one after another, the next one on the next channel; checks each value | `{"scalars":{"latencies_ns":[...],"first":1.0,"last":2.0}}` |
//! | `{"move_array":{"n_elements":10000,"salt":7,"n_gets":20}}` | `n_gets` times: puts the [`pattern`] untimed, waits until the server has it, gets it once, timed; compares every element | `{"array":{"latencies_ns":[...],"n_elements":10000}}` |
//! | any of them | cannot | `{"failed":{...}}`, a [`Failure`] |
//!
//! A further driver is a program, in any language, that does this. One in this crate implements
//! [`Driver`] and leaves the protocol and the checks to [`serve`].

mod conversation;
pub mod fodo;
pub mod libca;
pub mod raw;

use std::io::{BufRead, Write};
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::limit::ELEMENTS_MAX;

pub use conversation::{Client, Conversation};

/// What a driver is asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ask {
    /// Connect channels to a PV.
    Open {
        /// The PV's name.
        pv: String,
        /// How many channels of their own.
        n_channels: usize,
    },
    /// Get one double many times.
    GetScalars {
        /// How many timed gets.
        n: usize,
        /// How many gets before, not timed.
        n_warm_up: usize,
    },
    /// Put and get an array of 32-bit integers.
    MoveArray {
        /// Its length.
        n_elements: usize,
        /// What makes this repetition's elements differ from the last one's.
        salt: u32,
        /// How often to put and get it.
        n_gets: usize,
    },
}

/// What a driver answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The channels are connected.
    Opened(Opened),
    /// The gets were done and their values are right.
    Scalars(Scalars),
    /// The array went there and came back right.
    Array(Moved),
    /// Why not.
    Failed(Failure),
}

/// Channels that are connected.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Opened {
    /// The client's version, as it tells it.
    pub version: String,
    /// How many channels are connected.
    pub n_channels: usize,
    /// How many elements the PV can hold.
    pub element_count_max: usize,
}

/// Timed gets of a scalar.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scalars {
    /// The time of each, in order.
    pub latencies_ns: Vec<u64>,
    /// The first value.
    pub first: f64,
    /// The last value.
    pub last: f64,
}

/// Timed gets of an array.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Moved {
    /// The time of each, in order.
    pub latencies_ns: Vec<u64>,
    /// How many elements came, all of them as they were put.
    pub n_elements: usize,
}

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

/// A client under test. Each call blocks until it is done or has failed.
pub trait Driver {
    /// The client's version, as it tells it.
    fn version(&self) -> String;

    /// Connects `n_channels` channels to `pv`, in place of those there were. Returns its largest count.
    fn open(&mut self, pv: &str, n_channels: usize) -> Result<usize, Failure>;

    /// One double with its time stamp, by the blocking get of this client. This call is timed.
    fn get_scalar(&mut self, channel_index: usize) -> Result<f64, Failure>;

    /// Puts an array and comes back when the server has it. Forgets the elements got before.
    fn put_array(&mut self, elements: &[i32]) -> Result<(), Failure>;

    /// Gets `n_elements` and keeps them. This call is timed.
    fn get_array(&mut self, n_elements: usize) -> Result<(), Failure>;

    /// The elements got last; any unpacking that no user of this client would pay for belongs here.
    fn elements(&mut self) -> &[i32];
}

/// Answers requests until there are none.
pub fn serve(mut driver: impl Driver, input: impl BufRead, mut output: impl Write) -> std::io::Result<()> {
    let mut n_channels = 0;
    for line in input.lines() {
        let answer = answer(&mut driver, &line?, &mut n_channels).unwrap_or_else(Answer::Failed);
        let mut text = serde_json::to_string(&answer)?;
        text.push('\n');
        output.write_all(text.as_bytes())?;
        output.flush()?;
    }
    Ok(())
}

fn answer(driver: &mut impl Driver, line: &str, n_channels: &mut usize) -> Result<Answer, Failure> {
    match serde_json::from_str(line).map_err(|_| Failure::Protocol { line: line.into() })? {
        Ask::Open { pv, n_channels: n } => {
            let element_count_max = driver.open(&pv, n)?;
            *n_channels = n;
            Ok(Answer::Opened(Opened { version: driver.version(), n_channels: n, element_count_max }))
        }
        Ask::GetScalars { n, n_warm_up } => get_scalars(driver, *n_channels, n, n_warm_up).map(Answer::Scalars),
        Ask::MoveArray { n_elements, .. } if n_elements > ELEMENTS_MAX => {
            Err(Failure::WrongCount { n: n_elements, expected: ELEMENTS_MAX })
        }
        Ask::MoveArray { n_elements, salt, n_gets } => move_array(driver, n_elements, salt, n_gets).map(Answer::Array),
    }
}

fn get_scalars(driver: &mut impl Driver, n_channels: usize, n: usize, n_warm_up: usize) -> Result<Scalars, Failure> {
    for index in 0..n_warm_up {
        driver.get_scalar(index % n_channels.max(1))?;
    }
    let mut latencies_ns = Vec::with_capacity(n);
    let mut first = None;
    let mut last = f64::NEG_INFINITY;
    for index in 0..n {
        let start = Instant::now();
        let value = driver.get_scalar(index % n_channels.max(1))?;
        latencies_ns.push(start.elapsed().as_nanos() as u64);
        if !value.is_finite() || value < last {
            return Err(Failure::WrongValue { value, expected: format!("a counter at {last} or beyond") });
        }
        first.get_or_insert(value);
        last = value;
    }
    Ok(Scalars { latencies_ns, first: first.unwrap_or(0.0), last: last.max(first.unwrap_or(0.0)) })
}

fn move_array(driver: &mut impl Driver, n_elements: usize, salt: u32, n_gets: usize) -> Result<Moved, Failure> {
    let mut latencies_ns = Vec::with_capacity(n_gets);
    for round in 0..n_gets {
        let put = pattern(n_elements, salt.wrapping_add(round as u32));
        driver.put_array(&put)?;
        let start = Instant::now();
        driver.get_array(n_elements)?;
        latencies_ns.push(start.elapsed().as_nanos() as u64);
        compare(driver.elements(), &put)?;
    }
    Ok(Moved { latencies_ns, n_elements })
}

fn compare(came: &[i32], put: &[i32]) -> Result<(), Failure> {
    if came.len() != put.len() {
        return Err(Failure::WrongCount { n: came.len(), expected: put.len() });
    }
    // Slices compare at the speed of memory; only a difference is worth the slower search.
    if came == put {
        return Ok(());
    }
    match came.iter().zip(put).enumerate().find(|(_, (came, put))| came != put) {
        Some((index, (value, expected))) => Err(Failure::WrongElement { index, value: *value, expected: *expected }),
        None => Ok(()),
    }
}

/// Elements that differ by index and by repetition: (index * 2654435761) xor salt, in 32 bits.
pub fn pattern(n_elements: usize, salt: u32) -> Vec<i32> {
    (0..n_elements as u32).map(|index| (index.wrapping_mul(2_654_435_761) ^ salt) as i32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// A driver whose server is its own memory, and may be told to cheat.
    #[derive(Default)]
    struct Double {
        held: Vec<i32>,
        got: Vec<i32>,
        counter: f64,
        step: f64,
        spoiled_index: Option<usize>,
        n_lost: usize,
        delay: Duration,
    }

    impl Driver for Double {
        fn version(&self) -> String {
            "double".into()
        }

        fn open(&mut self, _pv: &str, _n_channels: usize) -> Result<usize, Failure> {
            Ok(1)
        }

        fn get_scalar(&mut self, _channel_index: usize) -> Result<f64, Failure> {
            let start = Instant::now();
            while start.elapsed() < self.delay {
                std::hint::spin_loop();
            }
            self.counter += self.step;
            Ok(self.counter)
        }

        fn put_array(&mut self, elements: &[i32]) -> Result<(), Failure> {
            self.held = elements.to_vec();
            Ok(())
        }

        fn get_array(&mut self, n_elements: usize) -> Result<(), Failure> {
            self.got = self.held[..n_elements - self.n_lost].to_vec();
            if let Some(index) = self.spoiled_index {
                self.got[index] ^= 1;
            }
            Ok(())
        }

        fn elements(&mut self) -> &[i32] {
            &self.got
        }
    }

    fn answers(driver: Double, asks: &[Ask]) -> Vec<Answer> {
        let input: String = asks.iter().map(|ask| serde_json::to_string(ask).unwrap() + "\n").collect();
        let mut output = Vec::new();
        serve(driver, input.as_bytes(), &mut output).unwrap();
        String::from_utf8(output).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    const GET: Ask = Ask::GetScalars { n: 3, n_warm_up: 1 };
    const MOVE: Ask = Ask::MoveArray { n_elements: 1000, salt: 5, n_gets: 2 };

    #[test]
    fn an_honest_driver_is_given_its_times() {
        let double = Double { step: 1.0, ..Double::default() };

        let answers = answers(double, &[Ask::Open { pv: "x".into(), n_channels: 2 }, GET, MOVE]);

        let [Answer::Opened(_), Answer::Scalars(scalars), Answer::Array(moved)] = &answers[..] else {
            panic!("{answers:?}")
        };
        assert_eq!((scalars.latencies_ns.len(), scalars.first, scalars.last), (3, 2.0, 4.0));
        assert_eq!((moved.latencies_ns.len(), moved.n_elements), (2, 1000));
    }

    #[test]
    fn a_planted_delay_is_in_every_time_and_what_comes_between_gets_is_in_none() {
        let delay = Duration::from_micros(300);
        let double = Double { step: 1.0, delay, ..Double::default() };

        let start = Instant::now();
        let answers = answers(double, &[GET]);
        let all_ns = start.elapsed().as_nanos() as u64;

        let [Answer::Scalars(scalars)] = &answers[..] else { panic!("{answers:?}") };
        assert!(scalars.latencies_ns.iter().all(|ns| *ns >= delay.as_nanos() as u64), "{scalars:?}");
        assert!(scalars.latencies_ns.iter().sum::<u64>() + delay.as_nanos() as u64 <= all_ns, "{scalars:?}");
    }

    #[test]
    fn a_counter_that_goes_back_is_found_out() {
        let double = Double { step: -1.0, ..Double::default() };

        let answers = answers(double, &[GET]);

        assert!(matches!(answers[..], [Answer::Failed(Failure::WrongValue { .. })]), "{answers:?}");
    }

    #[test]
    fn one_spoiled_element_is_found_out() {
        let double = Double { spoiled_index: Some(999), ..Double::default() };

        let answers = answers(double, &[MOVE]);

        assert!(matches!(answers[..], [Answer::Failed(Failure::WrongElement { index: 999, .. })]), "{answers:?}");
    }

    #[test]
    fn one_missing_element_is_found_out() {
        let double = Double { n_lost: 1, ..Double::default() };

        let answers = answers(double, &[MOVE]);

        assert_eq!(answers, [Answer::Failed(Failure::WrongCount { n: 999, expected: 1000 })]);
    }

    #[test]
    fn a_get_that_returns_the_last_repetitions_array_is_found_out() {
        let (put, stale) = (pattern(10, 2), pattern(10, 1));

        assert!(matches!(compare(&stale, &put), Err(Failure::WrongElement { index: 0, .. })));
    }

    #[test]
    fn requests_are_written_as_the_page_above_says() {
        let open = serde_json::to_string(&Ask::Open { pv: "name".into(), n_channels: 1000 }).unwrap();

        assert_eq!(open, r#"{"open":{"pv":"name","n_channels":1000}}"#);
        assert_eq!(serde_json::to_string(&GET).unwrap(), r#"{"get_scalars":{"n":3,"n_warm_up":1}}"#);
    }
}
