//! Many operations with one deadline: each ends with its result, or with the step that it did not reach.
//!
//! All operations are issued before the first is waited for, so together they cost one round trip, as far as the
//! circuits' capacity allows. Calls without a timeout of their own end after the
//! [`operation_timeout`](crate::ClientConfig::operation_timeout) of the context; if the channels have several contexts,
//! of the context of the first one. All of them block.
//!
//! # Examples
//!
//! ```
//! # let (_server, context) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/demo/server.rs"));
//! use fodo_net::{Error, Request, Value, many};
//!
//! // Each result can fail independently; here the first failure ends the whole.
//! let connected = many::connect(&context, &["demo:gap", "demo:temperature"]);
//! let channels = connected.into_iter().collect::<Result<Vec<_>, Error>>()?;
//!
//! for (channel, reading) in channels.iter().zip(many::get(&channels, Request::default())) {
//!     println!("{} {:?}", channel.name(), reading?.value);
//! }
//!
//! let results = many::put([(channels[0].clone(), Value::from(13.0))]);
//! assert_eq!(results, [Ok(())]);
//! # Ok::<(), fodo_net::Error>(())
//! ```

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{self, Poll, ready};
use std::time::{Duration, Instant};

use fodo_data::{Reading, Structure, Value};
use fodo_pva::request::PvRequest;

use super::batch::CircuitBatch;
use super::operation::{Operation, OperationTask, Output, StructuredTask, deadline_after};
use super::{Channel, Context, Error, Request, batch};

/// Waits for operations in progress; the results are in their order. Operations that have not ended in time are
/// dropped; [`Operation`] says what that means for a put.
///
/// # Examples
///
/// ```
/// # let (_server, context) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/demo/server.rs"));
/// use fodo_net::many;
///
/// let (gap, spectrum) = (context.channel("demo:gap")?, context.channel("demo:spectrum")?);
/// let facts = many::wait([gap.start_connect(), spectrum.start_connect()]);
/// assert!(facts.iter().all(Result::is_ok));
/// # Ok::<(), fodo_net::Error>(())
/// ```
pub fn wait<T: Output>(operations: impl IntoIterator<Item = Operation<T>>) -> Vec<Result<T, Error>> {
    let mut operations = operations.into_iter().peekable();
    let timeout = operations.peek().map(Operation::default_timeout).unwrap_or_default();
    wait_timeout(operations, timeout)
}

/// Like [`wait`], with its own timeout.
pub fn wait_timeout<T: Output>(
    operations: impl IntoIterator<Item = Operation<T>>,
    timeout: Duration,
) -> Vec<Result<T, Error>> {
    let deadline = deadline_after(timeout);
    operations.into_iter().map(|operation| operation.wait_until(deadline, timeout)).collect()
}

/// Connects to PVs; the results are in the order of `names`. The channel of a name that fails is closed, so that its
/// search ends. See the example of [`many`](self).
pub fn connect<N: AsRef<str>>(context: &Context, names: &[N]) -> Vec<Result<Channel, Error>> {
    connect_timeout(context, names, context.core.config.operation_timeout)
}

/// Like [`connect`], with its own timeout.
pub fn connect_timeout<N: AsRef<str>>(
    context: &Context,
    names: &[N],
    timeout: Duration,
) -> Vec<Result<Channel, Error>> {
    let channels: Vec<Result<Channel, Error>> = names.iter().map(|name| context.channel(name.as_ref())).collect();
    let connecting: Vec<Operation<_>> = channels.iter().flatten().map(Channel::start_connect).collect();
    let mut connected = wait_timeout(connecting, timeout).into_iter();
    let mut of = |channel: Channel| match connected.next() {
        Some(Err(error)) => Err(error),
        Some(Ok(_)) | None => Ok(channel),
    };
    channels.into_iter().map(|channel| channel.and_then(&mut of)).collect()
}

/// Reads all channels; the results are in their order. See the example of [`many`](self).
pub fn get(channels: &[Channel], request: Request) -> Vec<Result<Reading, Error>> {
    get_timeout(channels, request, default_timeout(channels.first()))
}

/// Like [`get`], with its own timeout.
pub fn get_timeout(channels: &[Channel], request: Request, timeout: Duration) -> Vec<Result<Reading, Error>> {
    let task = OperationTask::Get(request);
    batch::run(channels.len(), |index| (&channels[index], &task), timeout)
}

/// Starts to read all channels. See the example of [`ManyOperations`].
pub fn start_get(channels: Vec<Channel>, request: Request) -> ManyGets {
    let task = OperationTask::Get(request);
    ManyOperations::start(channels, |_| &task)
}

/// Reads from all channels what a pvRequest selects; the results are in their order. Only with pvAccess;
/// [`Channel::start_get_structure`] has the details.
///
/// # Examples
///
/// ```
/// # let (_server, context) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/demo/server.rs"));
/// use fodo_net::{PvRequest, Structure, many};
///
/// let channels = vec![context.channel("pva://demo:gap")?, context.channel("pva://demo:temperature")?];
/// // The option `record[process=true]` would process the records before.
/// let request = PvRequest::parse("field(value,alarm)").expect("a valid pvRequest");
///
/// let structures = many::get_structure(&channels, &request);
/// let value_of = |structure: &Structure| structure.get("value").cloned();
/// let values: Vec<_> = structures.iter().map(|structure| structure.as_ref().ok().and_then(value_of)).collect();
/// assert_eq!(values, [Some(12.5.into()), Some(21.5.into())]);
///
/// let later = many::start_get_structure(channels, request);
/// // Other work.
/// assert!(later.wait().iter().all(Result::is_ok));
/// # Ok::<(), fodo_net::Error>(())
/// ```
pub fn get_structure(channels: &[Channel], request: &PvRequest) -> Vec<Result<Structure, Error>> {
    get_structure_timeout(channels, request, default_timeout(channels.first()))
}

/// Like [`get_structure`], with its own timeout.
pub fn get_structure_timeout(
    channels: &[Channel],
    request: &PvRequest,
    timeout: Duration,
) -> Vec<Result<Structure, Error>> {
    let task = OperationTask::Structured(StructuredTask::Get(request.clone()).into());
    batch::run(channels.len(), |index| (&channels[index], &task), timeout)
}

/// Starts what [`get_structure`] does, which has an example. Does not block.
pub fn start_get_structure(channels: Vec<Channel>, request: PvRequest) -> ManyOperations<Structure> {
    let task = OperationTask::Structured(StructuredTask::Get(request).into());
    ManyOperations::start(channels, |_| &task)
}

/// Gets in progress that were started together.
pub type ManyGets = ManyOperations<Reading>;

/// Puts with completion in progress that were started together.
pub type ManyPuts = ManyOperations<()>;

/// Operations in progress that were started together, for programs that wait in periods or with an event loop.
///
/// Dropping it gives up all of them; [`Operation`] says what that means for a put.
///
/// # Examples
///
/// ```
/// # let (_server, context) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/demo/server.rs"));
/// use std::time::Duration;
///
/// use fodo_net::{Request, many};
///
/// let channels = vec![context.channel("demo:gap")?, context.channel("demo:temperature")?];
/// let mut gets = many::start_get(channels, Request::default());
/// let period = Duration::from_millis(50);
/// let mut waited = Duration::ZERO;
/// while !gets.wait_at_most(period) && waited < Duration::from_secs(5) {
///     // The program looks after other things here.
///     waited += period;
/// }
/// let values: Vec<_> = gets.finish(waited).into_iter().map(|result| result.unwrap().value).collect();
/// assert_eq!(values, [12.5.into(), 21.5.into()]);
/// # Ok::<(), fodo_net::Error>(())
/// ```
pub struct ManyOperations<T: Output> {
    channels: Vec<Channel>,
    /// Those that were issued together, by circuit.
    parts: Vec<CircuitBatch>,
    n_parts_ended: usize,
    /// The others that have not ended, such as those of channels that are not connected, each with its index.
    alone: VecDeque<(usize, Operation<T>)>,
    has_polled: bool,
    /// By index; of a part only after the end.
    results: Vec<Option<Result<T, Error>>>,
}

impl<T: Output> fmt::Debug for ManyOperations<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ManyOperations").field("n", &self.results.len()).finish_non_exhaustive()
    }
}

impl<T: Output> ManyOperations<T> {
    fn start<'a>(channels: Vec<Channel>, task_at: impl Fn(usize) -> &'a OperationTask) -> ManyOperations<T> {
        let n = channels.len();
        let (parts, alone) = batch::issue_by_circuit(n, &|index| (&**channels[index].core(), task_at(index)));
        let alone =
            alone.into_iter().map(|index| (index, channels[index].start_task(task_at(index).clone()))).collect();
        let mut results = Vec::with_capacity(n);
        results.resize_with(n, || None);
        ManyOperations { channels, parts, n_parts_ended: 0, alone, has_polled: false, results }
    }

    /// Waits until all have ended, or the
    /// [`operation_timeout`](crate::ClientConfig::operation_timeout) of the context of the first channel has passed; returns
    /// the results in the order of the channels. Blocks. See the examples of [`start_put`] and [`get_structure`].
    pub fn wait(self) -> Vec<Result<T, Error>> {
        let timeout = default_timeout(self.channels.first());
        self.wait_timeout(timeout)
    }

    /// Like [`ManyOperations::wait`], with its own timeout.
    pub fn wait_timeout(mut self, timeout: Duration) -> Vec<Result<T, Error>> {
        self.wait_at_most(timeout);
        self.finish(timeout)
    }

    /// Waits until all have ended, for at most `pause`; returns whether they have. Blocks.
    pub fn wait_at_most(&mut self, pause: Duration) -> bool {
        let deadline = deadline_after(pause);
        while let Some(part) = self.parts.get(self.n_parts_ended) {
            if !part.wait_here_until(deadline) {
                return false;
            }
            self.n_parts_ended += 1;
        }
        while let Some((index, operation)) = self.alone.front_mut() {
            let left = deadline.saturating_duration_since(Instant::now());
            let Some(result) = operation.wait_at_most(left) else { return false };
            self.results[*index] = Some(result);
            self.alone.pop_front();
        }
        true
    }

    /// Whether all have ended; otherwise the waker is woken when more of them have. It is called on a thread of the client
    /// and must not block. [`ManyOperations`] has an example.
    pub fn poll_end(&mut self, context: &mut task::Context<'_>) -> Poll<()> {
        // At first all, so that each circuit is read; then one after the other, since all must end.
        if !std::mem::replace(&mut self.has_polled, true) {
            self.parts.iter().for_each(|part| _ = part.poll_end(context.waker()));
            self.alone.retain_mut(|(index, operation)| match Pin::new(operation).poll(context) {
                Poll::Ready(result) => {
                    self.results[*index] = Some(result);
                    false
                }
                Poll::Pending => true,
            });
        }
        while let Some(part) = self.parts.get(self.n_parts_ended) {
            if !part.poll_end(context.waker()) {
                return Poll::Pending;
            }
            self.n_parts_ended += 1;
        }
        while let Some((index, operation)) = self.alone.front_mut() {
            self.results[*index] = Some(ready!(Pin::new(operation).poll(context)));
            self.alone.pop_front();
        }
        Poll::Ready(())
    }

    /// Takes the operations that were not issued together, such as those on channels that are not connected, each with the
    /// index of its channel. They end by themselves; the results of the others leave them out. Does not block.
    ///
    /// # Examples
    ///
    /// ```
    /// # let (_server, context) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/demo/server.rs"));
    /// use fodo_net::{Request, many};
    ///
    /// let (gap, absent) = (context.channel("demo:gap")?, context.channel("demo:absent")?);
    /// gap.connect()?;
    /// let mut gets = many::start_get(vec![gap, absent], Request::default());
    ///
    /// // What is read from `gap` need not wait for the search.
    /// let alone = gets.take_alone();
    /// assert_eq!(alone.iter().map(|(index, _)| *index).collect::<Vec<_>>(), [1]);
    /// assert_eq!(gets.wait().len(), 1);
    /// # Ok::<(), fodo_net::Error>(())
    /// ```
    pub fn take_alone(&mut self) -> Vec<(usize, Operation<T>)> {
        std::mem::take(&mut self.alone).into()
    }

    /// Ends the wait: returns the results in the order of the channels. An operation without one has timed out after
    /// `waited`, and its error names the step that was not reached. Does not block.
    pub fn finish(mut self, waited: Duration) -> Vec<Result<T, Error>> {
        let mut results = std::mem::take(&mut self.results);
        for (index, operation) in self.alone.drain(..) {
            results[index] = Some(operation.finish(waited));
        }
        for part in &self.parts {
            let channel_at = |index: usize| &self.channels[index];
            part.take_results(&channel_at, waited, &mut |index, result| results[index] = Some(result));
        }
        results.into_iter().flatten().collect()
    }
}

impl<T: Output> Drop for ManyOperations<T> {
    fn drop(&mut self) {
        self.parts.iter().for_each(CircuitBatch::cancel);
    }
}

/// Writes to each channel its own value, and waits until all servers have completed processing. See the example of
/// [`many`](self).
pub fn put(puts: impl IntoIterator<Item = (Channel, Value)>) -> Vec<Result<(), Error>> {
    let puts = tasks(puts);
    let timeout = default_timeout(puts.first().map(|(channel, _)| channel));
    put_tasks(&puts, timeout)
}

/// Like [`put`], with its own timeout.
pub fn put_timeout(puts: impl IntoIterator<Item = (Channel, Value)>, timeout: Duration) -> Vec<Result<(), Error>> {
    put_tasks(&tasks(puts), timeout)
}

/// Starts to write to each channel its own value. Does not block. On connected channels the values are queued at once, before
/// the request of any operation that is started later.
///
/// # Examples
///
/// ```
/// # let (_server, context) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/demo/server.rs"));
/// use fodo_net::{Request, Value, many};
///
/// let gap = context.channel("demo:gap")?;
/// gap.connect()?;
///
/// // The get follows the put in one round trip.
/// let puts = many::start_put([(gap.clone(), Value::from(13.0))]);
/// let readings = many::get(&[gap], Request::default());
/// assert_eq!(puts.wait(), [Ok(())]);
/// assert_eq!(readings[0].as_ref().map(|reading| &reading.value), Ok(&13.0.into()));
/// # Ok::<(), fodo_net::Error>(())
/// ```
pub fn start_put(puts: impl IntoIterator<Item = (Channel, Value)>) -> ManyPuts {
    let (channels, tasks): (Vec<Channel>, Vec<OperationTask>) = tasks(puts).into_iter().unzip();
    ManyOperations::start(channels, |index| &tasks[index])
}

fn tasks(puts: impl IntoIterator<Item = (Channel, Value)>) -> Vec<(Channel, OperationTask)> {
    puts.into_iter().map(|(channel, value)| (channel, OperationTask::Put(value))).collect()
}

fn put_tasks(puts: &[(Channel, OperationTask)], timeout: Duration) -> Vec<Result<(), Error>> {
    batch::run(puts.len(), |index| (&puts[index].0, &puts[index].1), timeout)
}

/// The default timeout of a channel's context; without a channel there is nothing to wait for.
fn default_timeout(channel: Option<&Channel>) -> Duration {
    channel.map(|channel| channel.core().operation_timeout()).unwrap_or_default()
}
