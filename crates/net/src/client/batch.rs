//! Operations that are issued and waited for together. All operations of a batch on one circuit share one entry in the
//! circuit's table, one list of results and one wake-up.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;
use std::time::{Duration, Instant};

use fodo_ca::dbr::DbrType;
use fodo_ca::eca::Eca;
use fodo_data::{Meta, Reading};
use fodo_engine::{Cid, Ioid};
use fodo_lock::Mutex;

use super::channel::{Channel, ChannelCore, OtherRoute};
use super::circuit::{Circuit, Expected};
use super::operation::{Operation, OperationOutcome, OperationTask, Output, Waiter, converted, deadline_after};
use super::{Error, ErrorKind, Refusal, WrongReply};

/// Issues `n` operations at once and waits until the last one has ended or `timeout` has passed. The results are in the
/// order of the operations. `of`: the channel and the task of each.
pub(super) fn run<'a, T: Output>(
    n: usize,
    of: impl Fn(usize) -> (&'a Channel, &'a OperationTask),
    timeout: Duration,
) -> Vec<Result<T, Error>> {
    let deadline = deadline_after(timeout);
    let operation_at = |index: usize| {
        let (channel, task) = of(index);
        (&**channel.core(), task)
    };
    let (parts, alone) = issue_by_circuit(n, &operation_at);
    let alone: Vec<(usize, Operation<T>)> = alone
        .into_iter()
        .map(|index| {
            let (channel, task) = of(index);
            (index, channel.start_task(task.clone()))
        })
        .collect();

    let channel_at = |index: usize| of(index).0;
    if let ([part], true) = (&parts[..], alone.is_empty()) {
        let mut results = Vec::with_capacity(n);
        part.results(&channel_at, deadline, timeout, |_, result| results.push(result));
        return results;
    }
    let mut results: Vec<Option<Result<T, Error>>> = Vec::with_capacity(n);
    results.resize_with(n, || None);
    for part in &parts {
        part.results(&channel_at, deadline, timeout, |index, result| results[index] = Some(result));
    }
    for (index, operation) in alone {
        results[index] = Some(operation.wait_until(deadline, timeout));
    }
    results.into_iter().flatten().collect()
}

/// The operations issued on one circuit.
pub(super) struct CircuitBatch {
    circuit: Arc<Circuit>,
    /// The number of the first operation there.
    first: Ioid,
    /// The indices of these operations among all.
    indices: Vec<usize>,
    end: Arc<BatchEnd>,
}

/// How issuing a piece of a batch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PieceEnd {
    /// More can be issued.
    More,
    /// All operations were issued.
    AllIssued,
    /// The server does not read. The other operations wait for space individually, so that the caller reads replies
    /// meanwhile: the server may wait for that.
    QueueIsFull,
}

/// Issues what can be issued at once. Returns that by circuit, and the indices that must be started individually.
pub(super) fn issue_by_circuit<'a>(
    n: usize,
    operation_at: &impl Fn(usize) -> (&'a ChannelCore, &'a OperationTask),
) -> (Vec<CircuitBatch>, Vec<usize>) {
    let (mut parts, mut alone) = (Vec::new(), Vec::new());
    let Some(circuit) = (0..n).find_map(|index| operation_at(index).0.circuit()) else {
        return (parts, (0..n).collect());
    };
    // Usually there is one circuit: all are tried there, and only those on other circuits are sorted.
    let mut others: Vec<(Arc<Circuit>, Vec<usize>)> = Vec::new();
    let part = CircuitBatch::issue(circuit, 0..n, operation_at, |index, other| match other {
        OtherRoute::OnCircuit(circuit) => match others.iter_mut().rev().find(|(of, _)| Arc::ptr_eq(of, &circuit)) {
            Some((_, indices)) => indices.push(index),
            None => others.push((circuit, vec![index])),
        },
        OtherRoute::Individually => alone.push(index),
    });
    parts.push(part);
    for (circuit, indices) in others {
        parts.push(CircuitBatch::issue(circuit, indices.into_iter(), operation_at, |index, _| alone.push(index)));
    }
    (parts, alone)
}

impl CircuitBatch {
    fn issue<'a>(
        circuit: Arc<Circuit>,
        mut operations: impl ExactSizeIterator<Item = usize>,
        operation_at: &impl Fn(usize) -> (&'a ChannelCore, &'a OperationTask),
        mut reroute: impl FnMut(usize, OtherRoute),
    ) -> CircuitBatch {
        let end = BatchEnd::for_this_thread();
        let first = circuit.open_batch(operations.len(), &end);
        let mut indices = Vec::with_capacity(operations.len());
        let mut piece = PieceEnd::More;
        while piece == PieceEnd::More {
            piece = circuit.issue_more(first, &mut operations, operation_at, &mut indices, &mut reroute);
        }
        operations.for_each(|index| reroute(index, OtherRoute::Individually));
        CircuitBatch { circuit, first, indices, end }
    }

    /// Drives the circuit until all operations have ended or the deadline has passed; passes on their results, each with
    /// the index of its operation.
    fn results<'a, T: Output>(
        &self,
        channel_at: &impl Fn(usize) -> &'a Channel,
        deadline: Instant,
        timeout: Duration,
        mut each: impl FnMut(usize, Result<T, Error>),
    ) {
        self.wait_until(deadline);
        self.take_results(channel_at, timeout, &mut each);
    }

    /// Drives the circuit until all operations have ended or the deadline has passed. Returns whether they have ended.
    pub(super) fn wait_until(&self, deadline: Instant) -> bool {
        while !self.end.is_set() && Instant::now() < deadline {
            self.circuit.drive(deadline, &|| self.end.is_set());
        }
        self.end.is_set()
    }

    /// The same for the current thread, which may not be the one that has issued the operations.
    pub(super) fn wait_here_until(&self, deadline: Instant) -> bool {
        self.end.is_awaited_by(Waiter::Thread(std::thread::current())) && self.wait_until(deadline) || self.end.is_set()
    }

    /// Whether all operations have ended; otherwise the reactor drives the circuit, and the waker is woken.
    pub(super) fn poll_end(&self, waker: &Waker) -> bool {
        let is_pending = self.end.is_awaited_by(Waiter::Future(waker.clone()));
        if is_pending {
            self.circuit.attend();
        }
        !is_pending
    }

    /// Gives up the operations; later replies are ignored.
    pub(super) fn cancel(&self) {
        drop(self.circuit.take_batch(self.first));
    }

    /// Passes on the results, each with the index of its operation; operations without one have timed out.
    pub(super) fn take_results<'a, T: Output>(
        &self,
        channel_at: &impl Fn(usize) -> &'a Channel,
        timeout: Duration,
        each: &mut impl FnMut(usize, Result<T, Error>),
    ) {
        let Some(batch) = self.circuit.take_batch(self.first) else { return };
        self.indices.iter().zip(batch.members).for_each(|(&index, member)| {
            let channel = || channel_at(index).core();
            let result = match member.progress {
                Progress::Ended(Ok(outcome)) => Ok(outcome),
                Progress::Ended(Err(failure)) => Err(failure.error(channel(), self.circuit.server())),
                Progress::Issued(_) => Err(channel().timed_out(timeout)),
            };
            each(index, converted(result));
        });
    }
}

/// Whether all operations of a batch have ended, and what waits for that.
pub(super) struct BatchEnd {
    is_set: AtomicBool,
    waiter: Mutex<Waiter>,
}

impl BatchEnd {
    /// The end for which the current thread waits.
    pub(super) fn for_this_thread() -> Arc<BatchEnd> {
        let waiter = Mutex::new(Waiter::Thread(std::thread::current()));
        Arc::new(BatchEnd { is_set: AtomicBool::new(false), waiter })
    }

    /// From now on this waiter is woken at the end. Returns false if the end has been reached.
    fn is_awaited_by(&self, waiter: Waiter) -> bool {
        let mut current = self.waiter.lock();
        let is_pending = !self.is_set();
        if is_pending {
            *current = waiter;
        }
        is_pending
    }

    /// The end; returns the waiter to wake after releasing all locks, the first time.
    fn set(&self) -> Option<Waiter> {
        let mut waiter = self.waiter.lock();
        (!self.is_set.swap(true, Ordering::AcqRel)).then(|| std::mem::take(&mut *waiter))
    }

    fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Acquire)
    }
}

/// Why an operation failed on a circuit. The caller adds the channel's name.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    Refused(Refusal),
    WrongReply(WrongReply),
    /// The request is invalid: what is wrong, and what to do. In memory of its own, because every result of an operation has
    /// the size of a failure.
    Misuse(Box<(String, &'static str)>),
    Disconnected,
    Closed,
}

impl Failure {
    /// The request is invalid: what is wrong, and what to do.
    #[cold]
    pub(crate) fn misuse(reason: impl Into<String>, advice: &'static str) -> Failure {
        Failure::Misuse(Box::new((reason.into(), advice)))
    }

    /// The type of the PV cannot hold the value, for this reason.
    pub(crate) fn unsendable(reason: impl ToString) -> Failure {
        Failure::misuse(reason.to_string(), "send a value that the type of the PV can hold")
    }

    /// The same as a refusal, for a subscription.
    pub(super) fn into_refusal(self) -> Refusal {
        match self {
            Failure::Refused(refusal) => refusal,
            Failure::Misuse(misuse) => Refusal::Reported { text: format!("{}; {}", misuse.0, misuse.1) },
            Failure::WrongReply(reply) => Refusal::Reported { text: reply.to_string() },
            Failure::Disconnected | Failure::Closed => Refusal::Channel { text: String::new() },
        }
    }

    pub(super) fn error(self, channel: &ChannelCore, server: SocketAddr) -> Error {
        let kind = match self {
            Failure::Refused(refusal) => ErrorKind::Refused { server, refusal },
            Failure::WrongReply(reply) => ErrorKind::WrongReply { server, reply },
            Failure::Misuse(misuse) => ErrorKind::Misuse { reason: misuse.0, advice: misuse.1 },
            Failure::Disconnected => ErrorKind::Disconnected { server },
            Failure::Closed => ErrorKind::ContextClosed,
        };
        Error::new(channel.name(), kind)
    }
}

/// What ends an operation, except the value of a get ([`finish_get`]).
pub(super) enum PutOrFailure {
    /// WRITE_NOTIFY: ends a put.
    Written(Result<(), Eca>),
    /// Any failure; ends a get or a put.
    Failure(Failure),
}

impl PutOrFailure {
    /// The result of an operation. `expected`: what a get waits for, `None` for a put. Returns `None` for a reply of
    /// the other kind: it is a server's mistake, and the right reply may still be received.
    pub(super) fn end(self, expected: Option<&Expected>) -> Option<Result<OperationOutcome, Failure>> {
        match (self, expected) {
            (PutOrFailure::Written(Ok(())), None) => Some(Ok(OperationOutcome::Written)),
            (PutOrFailure::Written(Err(status)), None) => Some(Err(Failure::Refused(status.into()))),
            (PutOrFailure::Written(_), Some(_)) => None,
            (PutOrFailure::Failure(failure), _) => Some(Err(failure)),
        }
    }
}

/// The result of a get after READ_NOTIFY; `meta`: units, limits and labels received before the value.
#[inline(always)]
pub(super) fn finish_get(
    expected: &Expected,
    meta: &mut Option<Arc<Meta>>,
    dbr: DbrType,
    result: Result<Reading, Eca>,
) -> Result<OperationOutcome, Failure> {
    let mut reading = match result {
        Ok(reading) => reading,
        Err(status) => return Err(Failure::Refused(status.into())),
    };
    if let Err(reply) = expected.check(dbr, &mut reading.value) {
        return Err(Failure::WrongReply(reply));
    }
    if meta.is_some() {
        reading.meta = meta.take();
    }
    Ok(OperationOutcome::Reading(reading))
}

/// The operations of a batch on one circuit, which keeps them until their results are taken. Their numbers are
/// consecutive.
pub(super) struct Batch {
    numbers: Range<u32>,
    members: Vec<Member>,
    n_left: usize,
    /// Whether all operations of the batch have been issued.
    is_issued: bool,
    end: Arc<BatchEnd>,
}

struct Member {
    cid: Cid,
    /// The expected reply to a get; `None` for a put.
    expected: Option<Expected>,
    progress: Progress,
}

/// The state of an operation; the comment of each says what it waits for.
enum Progress {
    /// For the server's reply. Holds the result of the first of two requests.
    Issued(Option<Arc<Meta>>),
    /// For its caller to take the result.
    Ended(Result<OperationOutcome, Failure>),
}

impl Batch {
    /// A batch of at most as many operations as there are numbers.
    pub(super) fn new(numbers: Range<u32>, end: &Arc<BatchEnd>) -> Batch {
        let members = Vec::with_capacity(numbers.len());
        Batch { numbers, members, n_left: 0, is_issued: false, end: end.clone() }
    }

    pub(super) fn numbers(&self) -> &Range<u32> {
        &self.numbers
    }

    /// The number of the next operation.
    pub(super) fn next(&self) -> Ioid {
        Ioid(self.numbers.start + self.members.len() as u32)
    }

    /// The request of the next operation was issued.
    pub(super) fn issued(&mut self, cid: Cid, expected: Option<Expected>) {
        let progress = Progress::Issued(None);
        self.members.push(Member { cid, expected, progress });
        self.n_left += 1;
    }

    /// All operations of the batch were issued; returns what to wake after releasing all locks.
    pub(super) fn all_issued(&mut self) -> Option<Waiter> {
        self.is_issued = true;
        self.take_waiter()
    }

    /// What a get in progress expects, and where units, limits and labels are stored that are received before its value.
    pub(super) fn awaited_meta(&mut self, ioid: Ioid) -> Option<(&Expected, &mut Option<Arc<Meta>>)> {
        match self.member(ioid)? {
            Member { progress: Progress::Issued(meta), expected: Some(expected), .. } => Some((&*expected, meta)),
            _ => None,
        }
    }

    /// Ends a get; returns what to wake after releasing all locks.
    #[inline(always)]
    pub(super) fn end_get(&mut self, ioid: Ioid, dbr: DbrType, result: Result<Reading, Eca>) -> Option<Waiter> {
        let member = self.member(ioid)?;
        let (Progress::Issued(meta), Some(expected)) = (&mut member.progress, &member.expected) else { return None };
        let ended = finish_get(expected, meta, dbr, result);
        member.progress = Progress::Ended(ended);
        self.n_left -= 1;
        self.take_waiter()
    }

    /// Ends an operation if it waits for such a reply; returns what to wake after releasing all locks.
    pub(super) fn end(&mut self, ioid: Ioid, reply: PutOrFailure) -> Option<Waiter> {
        let ended = reply.end(self.member(ioid)?.expected.as_ref())?;
        self.end_with(ioid, ended)
    }

    /// Ends an operation with its result; returns what to wake after releasing all locks.
    #[inline(always)]
    pub(super) fn end_with(&mut self, ioid: Ioid, ended: Result<OperationOutcome, Failure>) -> Option<Waiter> {
        let member = self.member(ioid)?;
        let Progress::Issued(_) = member.progress else { return None };
        member.progress = Progress::Ended(ended);
        self.n_left -= 1;
        self.take_waiter()
    }

    /// Ends all issued operations, or those of one channel; returns what to wake.
    pub(super) fn end_all(&mut self, only: Option<Cid>, failure: &Failure) -> Option<Waiter> {
        for member in &mut self.members {
            let is_lost = only.is_none_or(|cid| cid == member.cid);
            if is_lost && matches!(member.progress, Progress::Issued(_)) {
                member.progress = Progress::Ended(Err(failure.clone()));
                self.n_left -= 1;
            }
        }
        self.take_waiter()
    }

    #[inline]
    fn member(&mut self, ioid: Ioid) -> Option<&mut Member> {
        self.members.get_mut(ioid.0.checked_sub(self.numbers.start)? as usize)
    }

    /// What to wake, if all have ended just now.
    fn take_waiter(&self) -> Option<Waiter> {
        let has_ended = self.is_issued && self.n_left == 0;
        if has_ended { self.end.set() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use fodo_ca::dbr::DbrType;
    use fodo_data::{Kind, Value};
    use fodo_engine::Sid;

    use super::*;
    use crate::client::circuit::ServerChannel;

    const SERVER_CHANNEL: ServerChannel = ServerChannel { sid: Sid(1), kind: Kind::F64, count: 1 };

    /// A batch of a get of channel 1, a put of channel 2 and a get of channel 3, with the numbers from 100 on.
    fn batch() -> Batch {
        let mut batch = Batch::new(100..110, &BatchEnd::for_this_thread());
        for (cid, task, number) in [
            (1, OperationTask::Get(Default::default()), 100),
            (2, OperationTask::Put(Value::from(1.0)), 101),
            (3, OperationTask::Get(Default::default()), 102),
        ] {
            assert_eq!(batch.next(), Ioid(number));
            batch.issued(Cid(cid), task.expected(SERVER_CHANNEL));
        }
        batch
    }

    /// What a server sends.
    enum Sent {
        Value(DbrType, Result<Reading, Eca>),
        Other(PutOrFailure),
    }

    fn end(batch: &mut Batch, ioid: Ioid, sent: Sent) -> Option<Waiter> {
        match sent {
            Sent::Value(dbr, result) => batch.end_get(ioid, dbr, result),
            Sent::Other(reply) => batch.end(ioid, reply),
        }
    }

    fn reading(number: f64) -> Sent {
        Sent::Value(DbrType(20), Ok(Reading::bare(Value::from(number))))
    }

    fn written() -> Sent {
        Sent::Other(PutOrFailure::Written(Ok(())))
    }

    /// The result of each, as short text.
    fn ended(batch: Batch) -> Vec<String> {
        let members = batch.members.into_iter();
        members
            .map(|member| match member.progress {
                Progress::Issued(_) => "nothing".to_owned(),
                Progress::Ended(Ok(OperationOutcome::Reading(reading))) => format!("{:?}", reading.value),
                Progress::Ended(Ok(outcome)) => format!("{outcome:?}"),
                Progress::Ended(Err(failure)) => format!("{failure:?}"),
            })
            .collect()
    }

    #[test]
    fn the_caller_is_woken_once_when_all_are_issued_and_all_have_ended() {
        let mut batch = batch();

        assert!(end(&mut batch, Ioid(102), reading(3.0)).is_none());
        assert!(end(&mut batch, Ioid(101), written()).is_none());
        assert!(batch.all_issued().is_none(), "one is still in progress");
        assert!(!batch.end.is_set());
        assert!(end(&mut batch, Ioid(100), reading(1.0)).is_some());
        assert!(batch.end.is_set() && batch.take_waiter().is_none());
    }

    #[test]
    fn replies_before_all_operations_are_issued_do_not_wake_the_caller() {
        let mut batch = batch();
        for (number, reply) in [(100, reading(1.0)), (101, written()), (102, reading(3.0))] {
            assert!(end(&mut batch, Ioid(number), reply).is_none());
        }

        assert!(batch.all_issued().is_some());
    }

    #[test]
    fn a_reply_counts_once_and_only_for_an_operation_of_its_kind() {
        let mut batch = batch();

        for (number, reply) in [
            (99, reading(0.0)),
            (103, reading(0.0)),
            (100, written()),
            (101, reading(0.0)),
            (100, reading(1.0)),
            (100, reading(2.0)),
            (102, Sent::Other(PutOrFailure::Failure(Failure::Disconnected))),
        ] {
            assert!(end(&mut batch, Ioid(number), reply).is_none());
        }

        assert_eq!(batch.n_left, 1);
        assert_eq!(ended(batch), [format!("{:?}", Value::from(1.0)), "nothing".into(), "Disconnected".into()]);
    }

    #[test]
    fn a_lost_channel_ends_its_own_operations_and_a_lost_circuit_all_in_progress() {
        let mut batch = batch();
        assert!(batch.all_issued().is_none());
        end(&mut batch, Ioid(100), reading(1.0));

        assert!(batch.end_all(Some(Cid(2)), &Failure::Closed).is_none());
        assert!(batch.end_all(Some(Cid(1)), &Failure::Closed).is_none(), "it has ended already");
        assert!(batch.end_all(None, &Failure::Disconnected).is_some());

        assert_eq!(ended(batch), [format!("{:?}", Value::from(1.0)), "Closed".into(), "Disconnected".into()]);
    }

    #[test]
    fn units_and_limits_received_first_are_returned_with_the_value() {
        let meta = Arc::new(Meta { units: "mm".into(), ..Meta::default() });
        let mut batch = batch();

        *batch.awaited_meta(Ioid(102)).unwrap().1 = Some(meta.clone());
        assert!(batch.awaited_meta(Ioid(99)).is_none() && batch.awaited_meta(Ioid(101)).is_none(), "not a get");
        end(&mut batch, Ioid(102), reading(3.0));
        end(&mut batch, Ioid(100), reading(1.0));

        let members = batch.members.into_iter();
        let metas: Vec<Option<Arc<Meta>>> = members
            .map(|member| match member.progress {
                Progress::Ended(Ok(OperationOutcome::Reading(reading))) => reading.meta,
                _ => None,
            })
            .collect();
        assert_eq!(metas, [None, None, Some(meta)]);
    }

    #[test]
    fn a_reply_of_another_type_and_a_refusal_end_their_operation() {
        let mut batch = batch();

        end(&mut batch, Ioid(100), Sent::Value(DbrType(19), Ok(Reading::bare(Value::from(1)))));
        end(&mut batch, Ioid(101), Sent::Other(PutOrFailure::Written(Err(Eca::PUTFAIL))));
        end(&mut batch, Ioid(102), Sent::Value(DbrType(20), Err(Eca::GETFAIL)));

        let ended = ended(batch);
        assert!(
            ended[0].starts_with("WrongReply") && ended[1..].iter().all(|end| end.starts_with("Refused")),
            "{ended:?}"
        );
    }
}
