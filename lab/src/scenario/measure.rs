//! One task with one driver: asked, checked, and told as times per operation.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::{COUNTER_PV, Kind, Request, Task};
use crate::driver::{Answer, Answered, Ask, Conversation, Failure};
use crate::limit::{GETS_MAX, GETS_MIN};
use crate::statistics::median_ns;
use crate::warm_up::{Bounds, WarmUp, warm_up};

/// What keeps a circuit open while channels come and go.
const KEEPING_PV: &str = "ca:test:db_ok";

/// A waveform of ten million 32-bit integers.
const ARRAY_PV: &str = "ca:test:rawdata";

/// What a task took.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Nanoseconds per operation.
    pub ns: f64,
    /// Nanoseconds per object made, where that is told apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_ns: Option<f64>,
    /// How many operations.
    pub n_operations: usize,
    /// Single times, where each was taken.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub latencies_ns: Vec<u64>,
    /// Yes or no.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered: Option<Answered>,
    /// How the client was warmed up for it; `None` where it was to be cold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warm_up: Option<WarmUp>,
}

/// A conversation and what its driver has open.
#[derive(Debug)]
pub struct Interview {
    conversation: Conversation,
    opened: Option<(&'static str, usize, usize)>,
    bounds: Bounds,
    /// What this process has been warmed up for.
    warmed: HashMap<Kind, WarmUp>,
}

impl Interview {
    /// With a driver that has nothing open.
    pub fn new(conversation: Conversation, bounds: Bounds) -> Interview {
        Interview { conversation, opened: None, bounds, warmed: HashMap::new() }
    }

    /// Does the task, after a warm-up where there is one. `salt` makes this repetition's arrays differ from others.
    pub fn measure(&mut self, task: &Task, salt: u32) -> Result<Measured, Failure> {
        let warm_up = self.warm_up(task)?;
        Ok(Measured { warm_up, ..self.perform(task, salt)? })
    }

    /// Warms this process up for the kind of work that the task is, once.
    fn warm_up(&mut self, task: &Task) -> Result<Option<WarmUp>, Failure> {
        let Some(round) = task.warm_up_round() else { return Ok(None) };
        let kind = task.kind();
        if let Some(known) = self.warmed.get(&kind) {
            return Ok(Some(*known));
        }
        // The elements of an array differ from one repetition to the next, so they do within a warm-up.
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

    /// Returns how many elements the PV can hold.
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
                why: format!("{} channels in place of {n_channels}: it shares them by name", opened.n_channels),
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
        // Small ones take so little time that one would be mostly noise.
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
