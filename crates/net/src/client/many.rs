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

use std::time::Duration;

use fodo_data::{Reading, Value};

use super::operation::{Operation, OperationTask, Output, deadline_after};
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
