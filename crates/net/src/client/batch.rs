//! Operations that are asked and waited for together. Those on one circuit cost one lock of it, and have one place for what
//! they give.

use std::sync::{Arc, Mutex};
use std::thread::Thread;
use std::time::{Duration, Instant};

use fodo_ca::Ioid;

use super::Error;
use super::channel::{Channel, ChannelCore};
use super::circuit::Circuit;
use super::operation::{Given, Operation, Outcome, Task, Waiter, deadline_after, given};
use crate::sync::lock;

/// Asks for all of them at once and waits until the last has ended or `timeout` has passed; the results are in their order.
pub(super) fn run<T: Given>(tasks: Vec<(Channel, Task)>, timeout: Duration) -> Vec<Result<T, Error>> {
    let deadline = deadline_after(timeout);
    let mut results: Vec<Option<Result<T, Error>>> = tasks.iter().map(|_| None).collect();
    let (parts, mut alone) = divide(&tasks);
    for part in &parts {
        alone.extend(part.circuit.ask_all(part));
    }
    let alone: Vec<(usize, Operation<T>)> = alone
        .into_iter()
        .filter_map(|index| tasks.get(index).map(|(channel, task)| (index, channel.start_task(task.clone()))))
        .collect();

    for part in parts {
        part.wait(deadline);
        for (member, result) in part.members.iter().zip(part.take(timeout)) {
            results[member.index] = result.map(given);
        }
    }
    for (index, operation) in alone {
        results[index] = Some(operation.wait_until(deadline, timeout));
    }
    results.into_iter().flatten().collect()
}

/// Those whose channel is active, by circuit; and the indices of the others.
fn divide(tasks: &[(Channel, Task)]) -> (Vec<Arc<Part>>, Vec<usize>) {
    let mut parts: Vec<(Arc<Circuit>, Vec<Member>)> = Vec::new();
    let mut alone = Vec::new();
    for (index, (channel, task)) in tasks.iter().enumerate() {
        let core = channel.core();
        let is_alone = core.on_circuit(|circuit| {
            // Neighbours are mostly on one circuit.
            let known = parts.iter().rposition(|(of, _)| Arc::ptr_eq(of, circuit));
            let at = known.unwrap_or_else(|| {
                parts.push((circuit.clone(), Vec::new()));
                parts.len() - 1
            });
            parts[at].1.push(Member { index, channel: core.clone(), task: task.clone() });
        });
        if is_alone.is_none() {
            alone.push(index);
        }
    }
    let parts = parts.into_iter().map(|(circuit, members)| {
        let progress = members.iter().map(|_| Progress::Unasked).collect();
        let state = Mutex::new(State { progress, n_left: 0, waiter: None });
        Arc::new(Part { circuit, members, state })
    });
    (parts.collect(), alone)
}

/// The operations of a batch on one circuit.
pub(super) struct Part {
    circuit: Arc<Circuit>,
    members: Vec<Member>,
    state: Mutex<State>,
}

/// One of them.
pub(super) struct Member {
    /// Its place in the batch.
    pub(super) index: usize,
    pub(super) channel: Arc<ChannelCore>,
    pub(super) task: Task,
}

struct State {
    progress: Vec<Progress>,
    n_left: usize,
    /// Who waits for all of them.
    waiter: Option<Thread>,
}

/// Where an operation stands; the comment says what it waits for.
enum Progress {
    /// For nothing here: its channel was lost before it was asked.
    Unasked,
    /// For the server's answer.
    Issued(Ioid),
    /// For its caller.
    Ended(Result<Outcome, Error>),
}

impl Part {
    pub(super) fn members(&self) -> &[Member] {
        &self.members
    }

    /// The request of a member is on its way.
    pub(super) fn issued(&self, number: usize, ioid: Ioid) {
        let mut state = lock(&self.state);
        state.progress[number] = Progress::Issued(ioid);
        state.n_left += 1;
    }

    /// A member ends here; gives whom to wake once no lock is held.
    pub(super) fn end(&self, number: usize, result: Result<Outcome, Error>) -> Waiter {
        let mut state = lock(&self.state);
        if !matches!(state.progress[number], Progress::Issued(_)) {
            return Waiter::Nobody;
        }
        state.progress[number] = Progress::Ended(result);
        state.n_left -= 1;
        match state.n_left {
            0 => state.waiter.take().map_or(Waiter::Nobody, Waiter::Thread),
            _ => Waiter::Nobody,
        }
    }

    fn has_ended(&self) -> bool {
        lock(&self.state).n_left == 0
    }

    /// Drives the circuit until all have ended or the moment comes.
    fn wait(&self, deadline: Instant) {
        while !self.has_ended() && Instant::now() < deadline {
            lock(&self.state).waiter = Some(std::thread::current());
            self.circuit.drive(deadline, &|| self.has_ended());
        }
    }

    /// What each gave; nothing for what was not asked. What has not ended is cancelled.
    fn take(&self, timeout: Duration) -> Vec<Option<Result<Outcome, Error>>> {
        let progress = std::mem::take(&mut lock(&self.state).progress);
        let results = progress.into_iter().zip(&self.members).map(|(progress, member)| match progress {
            Progress::Unasked => None,
            Progress::Issued(ioid) => {
                self.circuit.forget_operation(ioid);
                Some(Err(member.channel.timed_out(timeout)))
            }
            Progress::Ended(result) => Some(result),
        });
        results.collect()
    }
}
