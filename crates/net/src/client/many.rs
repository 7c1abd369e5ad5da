//! Many operations with one deadline: each ends with its result, or with the step that it did not reach.
//!
//! All operations are issued before the first is waited for, so together they cost one round trip, as far as the
//! circuits' capacity allows.

use std::time::Duration;

use fodo_data::{Reading, Value};

use super::operation::{Given, Operation, Task, deadline_after};
use super::{Channel, Context, Error, Request, batch};

/// Waits for operations in progress; the results are in their order. Operations that have not ended within `timeout`
/// are cancelled.
pub fn wait<T: Given>(operations: impl IntoIterator<Item = Operation<T>>, timeout: Duration) -> Vec<Result<T, Error>> {
    let deadline = deadline_after(timeout);
    operations.into_iter().map(|operation| operation.wait_until(deadline, timeout)).collect()
}

/// Connects to PVs; the results are in the order of `names`.
pub fn connect<N: AsRef<str>>(context: &Context, names: &[N], timeout: Duration) -> Vec<Result<Channel, Error>> {
    let channels: Vec<Result<Channel, Error>> = names.iter().map(|name| context.channel(name.as_ref())).collect();
    let connecting: Vec<Operation<_>> = channels.iter().flatten().map(Channel::start_connect).collect();
    let mut connected = wait(connecting, timeout).into_iter();
    let mut of = |channel: Channel| match connected.next() {
        Some(Err(error)) => Err(error),
        Some(Ok(_)) | None => Ok(channel),
    };
    channels.into_iter().map(|channel| channel.and_then(&mut of)).collect()
}

/// Reads all channels; the results are in their order.
pub fn get(channels: &[Channel], request: Request, timeout: Duration) -> Vec<Result<Reading, Error>> {
    let task = Task::Get(request);
    batch::run(channels.len(), |index| (&channels[index], &task), timeout)
}

/// Writes to each channel its own value, and waits until all servers have completed processing.
pub fn put(puts: impl IntoIterator<Item = (Channel, Value)>, timeout: Duration) -> Vec<Result<(), Error>> {
    let puts: Vec<(Channel, Task)> = puts.into_iter().map(|(channel, value)| (channel, Task::Put(value))).collect();
    batch::run(puts.len(), |index| (&puts[index].0, &puts[index].1), timeout)
}
