//! Measures one task with one driver: request, check, times per operation.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::{COUNTER_PV, LabTask, MeasuredRequest, TaskKind};
use crate::driver::{DriverFailure, DriverProcess, DriverReply, DriverRequest, YesNoAnswer};
use crate::limit::{GETS_MAX, GETS_MIN};
use crate::statistics::median_ns;
use crate::warm_up::{WarmUp, WarmUpBounds, warm_up};

/// PV that keeps a circuit open while channels are created and closed.
const KEEPING_PV: &str = "ca:test:db_ok";

/// A waveform of ten million 32-bit integers.
const ARRAY_PV: &str = "ca:test:rawdata";

/// The measurement of a task.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TaskTimes {
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
    pub answered: Option<YesNoAnswer>,
    /// How the client was warmed up for it; `None` for a cold measurement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warm_up: Option<WarmUp>,
}

/// A conversation, and which channels its driver has open.
#[derive(Debug)]
pub struct DriverTaskRunner {
    conversation: DriverProcess,
    opened: Option<(&'static str, usize, usize)>,
    bounds: WarmUpBounds,
    /// The kinds of work for which this process is warmed up.
    warmed: HashMap<TaskKind, WarmUp>,
}

impl DriverTaskRunner {
    /// A runner whose driver has no open channel.
    pub fn new(conversation: DriverProcess, bounds: WarmUpBounds) -> DriverTaskRunner {
        DriverTaskRunner { conversation, opened: None, bounds, warmed: HashMap::new() }
    }

    /// Performs the task, after a warm-up if it has one. `salt` makes this repetition's arrays differ from others.
    pub fn measure(&mut self, task: &LabTask, salt: u32) -> Result<TaskTimes, DriverFailure> {
        let warm_up = self.warm_up(task)?;
        Ok(TaskTimes { warm_up, ..self.perform(task, salt)? })
    }

    /// Warms this process up for the task's kind of work, once.
    fn warm_up(&mut self, task: &LabTask) -> Result<Option<WarmUp>, DriverFailure> {
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

    fn perform(&mut self, task: &LabTask, salt: u32) -> Result<TaskTimes, DriverFailure> {
        let deadline = Instant::now() + Duration::from_secs_f64(task.cap_s);
        match task.request {
            MeasuredRequest::GetScalars => {
                let n_gets = if task.is_cold { 1 } else { task.point.clamp(GETS_MIN, GETS_MAX) };
                self.get_scalars(task.point, n_gets, deadline)
            }
            MeasuredRequest::MoveArray => self.move_array(task.point, salt, deadline),
            _ => self.batch(task, deadline),
        }
    }

    fn exchange(&mut self, request: &DriverRequest, deadline: Instant) -> Result<DriverReply, DriverFailure> {
        self.conversation.request(request, deadline.saturating_duration_since(Instant::now()))
    }

    /// Opens channels unless they are open. Returns the PV's maximum element count.
    fn open(&mut self, pv: &'static str, n_channels: usize, deadline: Instant) -> Result<usize, DriverFailure> {
        if let Some((_, _, n_elements)) = self.opened.filter(|(name, n, _)| (*name, *n) == (pv, n_channels)) {
            return Ok(n_elements);
        }
        match self.exchange(&DriverRequest::Open { pv: pv.into(), n_channels }, deadline)? {
            DriverReply::Opened(opened) if opened.n_channels == n_channels => {
                self.opened = Some((pv, n_channels, opened.element_count_max));
                Ok(opened.element_count_max)
            }
            DriverReply::Opened(opened) if opened.n_channels < n_channels => Err(DriverFailure::Operation {
                what: "get_scalars".into(),
                why: format!(
                    "{} channels instead of {n_channels}: the client shares channels of the same name",
                    opened.n_channels
                ),
            }),
            DriverReply::Opened(opened) => {
                Err(DriverFailure::WrongCount { n: opened.n_channels, expected: n_channels })
            }
            other => Err(DriverFailure::Protocol { line: format!("{other:?}") }),
        }
    }

    fn batch(&mut self, task: &LabTask, deadline: Instant) -> Result<TaskTimes, DriverFailure> {
        self.open(KEEPING_PV, 1, deadline)?;
        let Some(request) = task.driver_request() else { return Err(DriverFailure::cannot("a batch")) };
        match self.exchange(&request, deadline)? {
            DriverReply::Timed(timed) if timed.n != task.point => {
                Err(DriverFailure::WrongCount { n: timed.n, expected: task.point })
            }
            DriverReply::Timed(timed) => {
                let each = |ns: u64| ns as f64 / task.point.max(1) as f64;
                let created_ns = timed.created_ns.map(each);
                Ok(TaskTimes { ns: each(timed.ns), created_ns, n_operations: task.point, ..TaskTimes::default() })
            }
            DriverReply::Answered(answered) => {
                Ok(TaskTimes { n_operations: 1, answered: Some(answered), ..TaskTimes::default() })
            }
            other => Err(DriverFailure::Protocol { line: format!("{other:?}") }),
        }
    }

    fn get_scalars(&mut self, n: usize, n_gets: usize, deadline: Instant) -> Result<TaskTimes, DriverFailure> {
        self.open(COUNTER_PV, n, deadline)?;
        match self.exchange(&DriverRequest::GetScalars { n: n_gets }, deadline)? {
            DriverReply::Scalars(scalars) => of_latencies(scalars.latencies_ns, n_gets),
            other => Err(DriverFailure::Protocol { line: format!("{other:?}") }),
        }
    }

    fn move_array(&mut self, n_elements: usize, salt: u32, deadline: Instant) -> Result<TaskTimes, DriverFailure> {
        let element_count_max = self.open(ARRAY_PV, 1, deadline)?;
        if element_count_max < n_elements {
            return Err(DriverFailure::WrongCount { n: element_count_max, expected: n_elements });
        }
        // Small arrays take so little time that a single get would be mostly noise.
        let n_gets = match n_elements {
            0..=50_000 => 20,
            50_001..=500_000 => 10,
            500_001..=2_000_000 => 5,
            _ => 1,
        };
        match self.exchange(&DriverRequest::MoveArray { n_elements, salt, n_gets }, deadline)? {
            DriverReply::Array(moved) if moved.n_elements != n_elements => {
                Err(DriverFailure::WrongCount { n: moved.n_elements, expected: n_elements })
            }
            DriverReply::Array(moved) => of_latencies(moved.latencies_ns, n_gets),
            other => Err(DriverFailure::Protocol { line: format!("{other:?}") }),
        }
    }
}

fn of_latencies(latencies_ns: Vec<u64>, n: usize) -> Result<TaskTimes, DriverFailure> {
    match median_ns(&latencies_ns) {
        Some(ns) if latencies_ns.len() == n => {
            Ok(TaskTimes { ns, n_operations: n, latencies_ns, ..TaskTimes::default() })
        }
        _ => Err(DriverFailure::WrongCount { n: latencies_ns.len(), expected: n }),
    }
}
