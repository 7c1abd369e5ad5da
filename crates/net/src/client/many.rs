//! Many operations with one deadline: what came is given, and what did not says how far it got.
//!
//! Every operation is under way before the first is waited for, so all of them together cost a round trip, as long as
//! the circuits carry them.

use std::time::{Duration, Instant};

use fodo_data::{Reading, Value};

use super::operation::{Given, Operation, deadline_after};
use super::{Channel, Context, Error, Request};

/// Waits for operations that run already; the results are in their order. What has not ended within `timeout` is
/// cancelled.
pub fn wait<T: Given>(operations: impl IntoIterator<Item = Operation<T>>, timeout: Duration) -> Vec<Result<T, Error>> {
    let deadline = deadline_after(timeout);
    let mut results = Vec::new();
    for operation in operations {
        let left = deadline.saturating_duration_since(Instant::now());
        results.push(operation.wait(left).map_err(|error| waited(error, timeout)));
    }
    results
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
    let getting: Vec<Operation<Reading>> = channels.iter().map(|channel| channel.start_get(request)).collect();
    wait(getting, timeout)
}

/// Puts to each its own value, and waits until processing is complete everywhere.
pub fn put(puts: impl IntoIterator<Item = (Channel, Value)>, timeout: Duration) -> Vec<Result<(), Error>> {
    let putting: Vec<Operation<()>> = puts.into_iter().map(|(channel, value)| channel.start_put(value)).collect();
    wait(putting, timeout)
}

/// An error that tells the whole time that was waited.
fn waited(mut error: Error, timeout: Duration) -> Error {
    if let Error::NotFound { after, .. } | Error::NoAnswer { after, .. } = &mut error {
        *after = timeout;
    }
    error
}
