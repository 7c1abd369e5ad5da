//! Puts of values that the PV must store unchanged.

use fodo_data::Value;

use super::Channel;
use crate::client::operation::{Operation, OperationTask};
use crate::client::{Failure, ServerChannel};
use crate::{AcceptedValues, Protocol};

/// A put that fails if the PV would store another value; see [`AcceptedValues`].
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CheckedPut {
    value: Value,
    /// Whether the server confirms it.
    pub(crate) is_confirmed: bool,
}

impl CheckedPut {
    /// The value to send to this channel.
    pub(crate) fn accepted(&self, server_channel: ServerChannel, protocol: Protocol) -> Result<Value, Failure> {
        let ServerChannel { kind, count, .. } = server_channel;
        AcceptedValues::of_channel(kind, count, protocol).accept(self.value.clone()).map_err(Failure::unsendable)
    }

    pub(crate) fn n_bytes(&self) -> usize {
        self.value.n_bytes()
    }
}

/// Writing a value that the PV must store unchanged.
impl Channel {
    /// Like [`Channel::start_put`], or without `is_confirmed` like [`Channel::start_put_unconfirmed`], for a value that the
    /// PV must store unchanged. Fails with [`ErrorKind::Misuse`](crate::ErrorKind::Misuse) and sends nothing if
    /// [`AcceptedValues`](crate::AcceptedValues) rejects the value. That needs the type of the PV, so it is checked when the
    /// request is queued; puts to a channel that is not connected keep their order.
    ///
    /// ```
    /// # let (_server, context) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/demo/server.rs"));
    /// use fodo_net::ErrorKind;
    ///
    /// let error = context.channel("demo:gap")?.start_checked_put("wide", true).wait().unwrap_err();
    /// let ErrorKind::Misuse { reason, .. } = error.kind() else { panic!("{error}") };
    /// assert_eq!(reason, "expected a number, not the text \"wide\"");
    /// # Ok::<(), fodo_net::Error>(())
    /// ```
    pub fn start_checked_put(&self, value: impl Into<Value>, is_confirmed: bool) -> Operation<()> {
        self.start(OperationTask::CheckedPut(CheckedPut { value: value.into(), is_confirmed }), false)
    }
}
