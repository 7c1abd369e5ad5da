//! Many operations with one deadline: what came is given, and what did not says how far it got.
//!
//! Every operation is under way before the first is waited for, so all of them together cost a round trip, as long as
//! the circuits carry them.

use std::time::Duration;

use fodo_data::{Reading, Value};

use super::operation::{Given, Operation, Task, deadline_after};
use super::{Channel, Context, Error, Request, batch};

/// Waits for operations that run already; the results are in their order. What has not ended within `timeout` is
/// cancelled.
pub fn wait<T: Given>(operations: impl IntoIterator<Item = Operation<T>>, timeout: Duration) -> Vec<Result<T, Error>> {
    let deadline = deadline_after(timeout);
    operations.into_iter().map(|operation| operation.wait_until(deadline, timeout)).collect()
}

/// Connects to PVs; the channels are in the order of `names`.
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

/// Gets from all of them.
pub fn get(channels: &[Channel], request: Request, timeout: Duration) -> Vec<Result<Reading, Error>> {
    let task = Task::Get(request);
    batch::run(channels.len(), |index| (&channels[index], &task), timeout)
}

/// Puts to each its own value, and waits until processing is complete everywhere.
pub fn put(puts: impl IntoIterator<Item = (Channel, Value)>, timeout: Duration) -> Vec<Result<(), Error>> {
    let puts: Vec<(Channel, Task)> = puts.into_iter().map(|(channel, value)| (channel, Task::Put(value))).collect();
    batch::run(puts.len(), |index| (&puts[index].0, &puts[index].1), timeout)
}
