//! Measures one task with one driver: request, check, times per operation.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::{COUNTER_PV, Kind, Request, Task};
use crate::driver::{Answer, Answered, Ask, Conversation, Failure};
use crate::limit::{GETS_MAX, GETS_MIN};
use crate::statistics::median_ns;
use crate::warm_up::{Bounds, WarmUp, warm_up};

/// PV that keeps a circuit open while channels are created and closed.
const KEEPING_PV: &str = "ca:test:db_ok";

/// A waveform of ten million 32-bit integers.
const ARRAY_PV: &str = "ca:test:rawdata";

/// The measurement of a task.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Nanoseconds per operation.
    pub ns: f64,
    /// Nanoseconds per created object, where that is measured separately.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_ns: Option<f64>,
    /// Number of operations.
    pub n_operations: usize,
    /// Individual times, if each operation is timed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub latencies_ns: Vec<u64>,
    /// The answer to a yes-or-no question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered: Option<Answered>,
    /// How the client was warmed up for it; `None` for a cold measurement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warm_up: Option<WarmUp>,
}

/// A conversation, and which channels its driver has open.
#[derive(Debug)]
pub struct Interview {
    conversation: Conversation,
    opened: Option<(&'static str, usize, usize)>,
    bounds: Bounds,
    /// The kinds of work for which this process is warmed up.
    warmed: HashMap<Kind, WarmUp>,
}

impl Interview {
    /// An interview whose driver has no open channel.
    pub fn new(conversation: Conversation, bounds: Bounds) -> Interview {
        Interview { conversation, opened: None, bounds, warmed: HashMap::new() }
    }

    /// Performs the task, after a warm-up if it has one. `salt` makes this repetition's arrays differ from others.
    pub fn measure(&mut self, task: &Task, salt: u32) -> Result<Measured, Failure> {
        let warm_up = self.warm_up(task)?;
        Ok(Measured { warm_up, ..self.perform(task, salt)? })
    }

    /// Warms this process up for the task's kind of work, once.
    fn warm_up(&mut self, task: &Task) -> Result<Option<WarmUp>, Failure> {
        let Some(round) = task.warm_up_round() else { return Ok(None) };
        let kind = task.kind();
        if let Some(known) = self.warmed.get(&kind) {
            return Ok(Some(*known));
        }
        // An array's elements differ between repetitions, so they do within a warm-up as well.
        let mut salt = 0;
        let warmed = warm_up(self.bounds, || {
            salt += 1;
            self.perform(&round, salt).map(|measured| measured.ns)
        })?;
        self.warmed.insert(kind, warmed);
        Ok(Some(warmed))
    }

    fn perform(&mut self, task: &Task, salt: u32) -> Result<Measured, Failure> {
        let deadline = Instant::now() + Duration::from_secs_f64(task.cap_s);
        match task.request {
            Request::GetScalars => {
                let n_gets = if task.is_cold { 1 } else { task.point.clamp(GETS_MIN, GETS_MAX) };
                self.get_scalars(task.point, n_gets, deadline)
            }
            Request::MoveArray => self.move_array(task.point, salt, deadline),
            _ => self.batch(task, deadline),
        }
    }

    fn ask(&mut self, ask: &Ask, deadline: Instant) -> Result<Answer, Failure> {
        self.conversation.ask_within(ask, deadline.saturating_duration_since(Instant::now()))
    }

    /// Opens channels unless they are open. Returns the PV's maximum element count.
    fn open(&mut self, pv: &'static str, n_channels: usize, deadline: Instant) -> Result<usize, Failure> {
        if let Some((_, _, n_elements)) = self.opened.filter(|(name, n, _)| (*name, *n) == (pv, n_channels)) {
            return Ok(n_elements);
        }
        match self.ask(&Ask::Open { pv: pv.into(), n_channels }, deadline)? {
            Answer::Opened(opened) if opened.n_channels == n_channels => {
                self.opened = Some((pv, n_channels, opened.element_count_max));
                Ok(opened.element_count_max)
            }
            Answer::Opened(opened) if opened.n_channels < n_channels => Err(Failure::Operation {
                what: "get_scalars".into(),
                why: format!(
                    "{} channels instead of {n_channels}: the client shares channels of the same name",
                    opened.n_channels
                ),
            }),
            Answer::Opened(opened) => Err(Failure::WrongCount { n: opened.n_channels, expected: n_channels }),
            other => Err(Failure::Protocol { line: format!("{other:?}") }),
        }
    }

    fn batch(&mut self, task: &Task, deadline: Instant) -> Result<Measured, Failure> {
        self.open(KEEPING_PV, 1, deadline)?;
        let Some(ask) = task.ask() else { return Err(Failure::cannot("a batch")) };
        match self.ask(&ask, deadline)? {
            Answer::Timed(timed) if timed.n != task.point => {
                Err(Failure::WrongCount { n: timed.n, expected: task.point })
            }
            Answer::Timed(timed) => {
                let each = |ns: u64| ns as f64 / task.point.max(1) as f64;
                let created_ns = timed.created_ns.map(each);
                Ok(Measured { ns: each(timed.ns), created_ns, n_operations: task.point, ..Measured::default() })
            }
            Answer::Answered(answered) => {
                Ok(Measured { n_operations: 1, answered: Some(answered), ..Measured::default() })
            }
            other => Err(Failure::Protocol { line: format!("{other:?}") }),
        }
    }

    fn get_scalars(&mut self, n: usize, n_gets: usize, deadline: Instant) -> Result<Measured, Failure> {
        self.open(COUNTER_PV, n, deadline)?;
        match self.ask(&Ask::GetScalars { n: n_gets }, deadline)? {
            Answer::Scalars(scalars) => of_latencies(scalars.latencies_ns, n_gets),
            other => Err(Failure::Protocol { line: format!("{other:?}") }),
        }
    }

    fn move_array(&mut self, n_elements: usize, salt: u32, deadline: Instant) -> Result<Measured, Failure> {
        let element_count_max = self.open(ARRAY_PV, 1, deadline)?;
        if element_count_max < n_elements {
            return Err(Failure::WrongCount { n: element_count_max, expected: n_elements });
        }
        // Small arrays take so little time that a single get would be mostly noise.
        let n_gets = match n_elements {
            0..=50_000 => 20,
            50_001..=500_000 => 10,
            500_001..=2_000_000 => 5,
            _ => 1,
        };
        match self.ask(&Ask::MoveArray { n_elements, salt, n_gets }, deadline)? {
            Answer::Array(moved) if moved.n_elements != n_elements => {
                Err(Failure::WrongCount { n: moved.n_elements, expected: n_elements })
            }
            Answer::Array(moved) => of_latencies(moved.latencies_ns, n_gets),
            other => Err(Failure::Protocol { line: format!("{other:?}") }),
        }
    }
}

fn of_latencies(latencies_ns: Vec<u64>, n: usize) -> Result<Measured, Failure> {
    match median_ns(&latencies_ns) {
        Some(ns) if latencies_ns.len() == n => {
            Ok(Measured { ns, n_operations: n, latencies_ns, ..Measured::default() })
        }
        _ => Err(Failure::WrongCount { n: latencies_ns.len(), expected: n }),
    }
}
