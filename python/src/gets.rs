//! Gets of many PVs, which are waited for as one operation.
//!
//! They are issued in parts: values of Python are made of one part while the server replies to the next ones.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{self, Poll, ready};
use std::time::{Duration, Instant};

use fodo_net::many::{self, ManyGets};
use fodo_net::{Channel, Error, ErrorKind, LoopReader, Operation, PvRequest, Reading, Request, Structure};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

use crate::operation::{EndedWith, NamedChannel, is_of_a_structure};
use crate::{error, limit, operation, reading};

/// Gets in progress, of values or, for PVs that are structures, of structures.
pub struct ListedGets {
    targets: Arc<[NamedChannel]>,
    /// The gets of values.
    parts: VecDeque<GetPart>,
    /// Those whose PVs were not connected, each with its index. Each ends by itself: the others do not wait for an absent PV.
    alone: VecDeque<(usize, Operation<Reading>)>,
    /// Those of structures, each with the index of its PV.
    structures: VecDeque<(usize, Operation<Structure>)>,
    /// What has ended and is no object of Python yet.
    ended: Vec<EndedGets>,
    /// Whether each of `alone` has been polled: from then on its end wakes the event loop.
    has_polled_alone: bool,
    /// By the index of the PV.
    values: Vec<Option<Py<PyAny>>>,
    has_failed: bool,
}

/// Gets that end together, with the indices of their PVs.
struct GetPart {
    gets: ManyGets,
    indices: Vec<usize>,
}

enum EndedGets {
    /// The indices of the PVs, and their results.
    Part((Vec<usize>, Vec<Result<Reading, Error>>)),
    Alone(usize, Result<Reading, Error>),
    Structure(usize, Result<Structure, Error>),
}

impl ListedGets {
    pub fn start(targets: Arc<[NamedChannel]>, request: Request) -> ListedGets {
        let is_structure = |index: usize| targets[index].is_structure.load(Ordering::Relaxed);
        let (structures, values): (Vec<usize>, Vec<usize>) = (0..targets.len()).partition(|&index| is_structure(index));
        let n_together = values.len().div_ceil(limit::GET_PARTS).max(limit::GET_PART);
        let mut alone = VecDeque::new();
        let part = |indices: &[usize]| {
            let channels = indices.iter().map(|&index| targets[index].channel.clone()).collect();
            let mut gets = many::start_get(channels, request);
            let mut is_alone = vec![false; indices.len()];
            for (position, operation) in gets.take_alone() {
                is_alone[position] = true;
                alone.push_back((indices[position], operation));
            }
            let together = indices.iter().zip(is_alone).filter(|(_, is_alone)| !is_alone);
            GetPart { gets, indices: together.map(|(&index, _)| index).collect() }
        };
        let parts = values.chunks(n_together).map(part).collect();
        let structures = structures.into_iter().map(|index| (index, structure(&targets[index].channel))).collect();
        let mut values = Vec::new();
        values.resize_with(targets.len(), || None);
        let (ended, has_polled_alone, has_failed) = (Vec::new(), false, false);
        ListedGets { targets, parts, alone, structures, ended, has_polled_alone, values, has_failed }
    }

    fn have_ended(&self) -> bool {
        self.parts.is_empty() && self.alone.is_empty() && self.structures.is_empty()
    }

    /// Waits until something has ended, for at most `pause`; returns whether it has. It may also return false earlier.
    fn wait_for_next(&mut self, pause: Duration) -> bool {
        if let Some(part) = self.parts.front_mut() {
            let has_ended = part.gets.wait_at_most(pause);
            if has_ended {
                self.end_part(Duration::ZERO, true);
            }
            return has_ended;
        }
        let n_alone = self.alone.len();
        if let Some((index, mut operation)) = self.alone.pop_front() {
            match operation.wait_at_most(pause.min(limit::ALONE_PERIOD)) {
                Some(end) => self.end_alone(index, end, true),
                None => {
                    self.alone.push_back((index, operation));
                    // With thousands of PVs, this look takes longer than a wait that does not block.
                    if !pause.is_zero() {
                        self.end_others(n_alone - 1);
                    }
                }
            }
            return self.alone.len() < n_alone;
        }
        let Some((index, operation)) = self.structures.front_mut() else { return true };
        let Some(end) = operation.wait_at_most(pause) else { return false };
        self.ended.push(EndedGets::Structure(*index, end));
        self.structures.pop_front();
        true
    }

    /// Waits until all have ended, for at most `pause`; returns whether they have.
    pub fn wait_at_most(&mut self, pause: Duration) -> bool {
        let deadline = Instant::now().checked_add(pause);
        while !self.have_ended() {
            let left = deadline.map_or(pause, |deadline| deadline.saturating_duration_since(Instant::now()));
            if !self.wait_for_next(left) {
                return false;
            }
        }
        true
    }

    /// Polls in the event loop of `by`. `context` has the same waker each time.
    pub fn poll(&mut self, by: &LoopReader, context: &mut task::Context<'_>) -> Poll<()> {
        // All of them, so that each circuit is read.
        let ended: Vec<bool> = self.parts.iter_mut().map(|part| part.gets.poll_end(context).is_ready()).collect();
        ended.into_iter().take_while(|has_ended| *has_ended).for_each(|_| self.end_part(Duration::ZERO, true));
        let has_polled = std::mem::replace(&mut self.has_polled_alone, true);
        for (position, (index, mut operation)) in std::mem::take(&mut self.alone).into_iter().enumerate() {
            // The first one is always polled, so that the loop reads its circuit.
            if has_polled && position > 0 && !operation.has_ended() {
                self.alone.push_back((index, operation));
                continue;
            }
            match operation.poll_in(by, context) {
                Poll::Ready(end) => self.end_alone(index, end, true),
                Poll::Pending => self.alone.push_back((index, operation)),
            }
        }
        if !self.parts.is_empty() || !self.alone.is_empty() {
            return Poll::Pending;
        }
        while let Some((index, operation)) = self.structures.front_mut() {
            let end = ready!(operation.poll_in(by, context));
            self.ended.push(EndedGets::Structure(*index, end));
            self.structures.pop_front();
        }
        Poll::Ready(())
    }

    /// Takes the results of the first part. A PV that turns out to be a structure is read as such if `repeats`.
    fn end_part(&mut self, waited: Duration, repeats: bool) {
        let Some(GetPart { gets, indices }) = self.parts.pop_front() else { return };
        let results = gets.finish(waited);
        let is_structure = |end: &Result<Reading, Error>| end.as_ref().is_err_and(is_of_other_type);
        let found = indices.iter().zip(&results).filter(|(_, end)| is_structure(end)).map(|(&index, _)| index);
        let found: Vec<usize> = found.collect();
        for &index in &found {
            let target = &self.targets[index];
            target.is_structure.store(true, Ordering::Relaxed);
            if repeats {
                self.structures.push_back((index, structure(&target.channel)));
            }
        }
        let ends = match repeats && !found.is_empty() {
            true => indices.into_iter().zip(results).filter(|(_, end)| !is_structure(end)).unzip(),
            false => (indices, results),
        };
        self.ended.push(EndedGets::Part(ends));
    }

    /// Takes the result of a get by itself. A PV that turns out to be a structure is read as such if `repeats`.
    fn end_alone(&mut self, index: usize, end: Result<Reading, Error>, repeats: bool) {
        if !end.as_ref().is_err_and(is_of_other_type) {
            return self.ended.push(EndedGets::Alone(index, end));
        }
        let target = &self.targets[index];
        target.is_structure.store(true, Ordering::Relaxed);
        match repeats {
            true => self.structures.push_back((index, structure(&target.channel))),
            false => self.ended.push(EndedGets::Alone(index, end)),
        }
    }

    /// Takes the results of those of the first `n` gets by themselves that have ended, without waiting.
    fn end_others(&mut self, n: usize) {
        for _ in 0..n {
            let Some((index, mut operation)) = self.alone.pop_front() else { return };
            if !operation.has_ended() {
                self.alone.push_back((index, operation));
                continue;
            }
            match operation.wait_at_most(Duration::ZERO) {
                Some(end) => self.end_alone(index, end, true),
                None => self.alone.push_back((index, operation)),
            }
        }
    }

    /// Makes the values of what has ended.
    fn convert(&mut self, py: Python<'_>) -> PyResult<()> {
        for ended in std::mem::take(&mut self.ended) {
            match ended {
                EndedGets::Part((indices, results)) => {
                    for (index, end) in indices.into_iter().zip(results) {
                        self.convert_one(py, index, end)?;
                    }
                }
                EndedGets::Alone(index, end) => self.convert_one(py, index, end)?,
                EndedGets::Structure(index, end) => {
                    self.has_failed |= end.is_err();
                    let value = operation::result(py, &self.targets[index], end.map(EndedWith::Structure))?;
                    self.values[index] = Some(value.unbind());
                }
            }
        }
        Ok(())
    }

    fn convert_one(&mut self, py: Python<'_>, index: usize, end: Result<Reading, Error>) -> PyResult<()> {
        let name = &self.targets[index].name;
        let value = match end {
            Ok(reading) => reading::value(py, name, reading),
            Err(error) => {
                self.has_failed = true;
                error::exception(py, name, &error)
            }
        };
        let value = value.or_else(|failure| error::not_converted(py, name, &failure))?;
        self.values[index] = Some(value.unbind());
        Ok(())
    }

    /// Waits until the deadline, and makes values meanwhile. Returns the same as [`ListedGets::into_python`].
    pub fn wait(
        mut self,
        py: Python<'_>,
        deadline: Option<Instant>,
        timeout: Duration,
    ) -> PyResult<Bound<'_, PyTuple>> {
        while !self.have_ended() {
            // What has ended needs no other thread.
            if !self.wait_for_next(Duration::ZERO) {
                let left =
                    deadline.map_or(Duration::MAX, |deadline| deadline.saturating_duration_since(Instant::now()));
                let has_ended = py.detach(|| self.wait_for_next(left.min(limit::SIGNAL_PERIOD)));
                py.check_signals()?;
                if !has_ended && left.is_zero() {
                    break;
                }
            }
            self.convert(py)?;
        }
        self.into_python(py, timeout)
    }

    /// Ends the wait after this time. Returns a list with a value or an exception for each PV, and whether there is an
    /// exception.
    pub fn into_python(mut self, py: Python<'_>, waited: Duration) -> PyResult<Bound<'_, PyTuple>> {
        while !self.parts.is_empty() {
            self.end_part(waited, false);
        }
        for (index, operation) in std::mem::take(&mut self.alone) {
            self.end_alone(index, operation.finish(waited), false);
        }
        for (index, operation) in std::mem::take(&mut self.structures) {
            self.ended.push(EndedGets::Structure(index, operation.finish(waited)));
        }
        self.convert(py)?;
        let values = PyList::new(py, std::mem::take(&mut self.values))?;
        (values, self.has_failed).into_pyobject(py)
    }
}

/// Whether a get failed because the PV must be read as a structure.
fn is_of_other_type(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::WrongReply { reply, .. } if is_of_a_structure(reply))
}

fn structure(channel: &Channel) -> Operation<Structure> {
    channel.start_get_structure(PvRequest::default())
}
