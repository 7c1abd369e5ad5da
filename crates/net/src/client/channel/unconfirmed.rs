//! Puts without a reply.

use std::time::Duration;

use fodo_data::Value;

use super::{Channel, ChannelCore, ChannelPhase};
use crate::client::Error;
use crate::client::operation::{Operation, OperationTask};

impl OperationTask {
    /// Whether it ends when its request is queued.
    #[inline]
    pub(in crate::client) fn has_no_reply(&self) -> bool {
        match self {
            OperationTask::PutUnconfirmed(_) => true,
            OperationTask::CheckedPut(put) => !put.is_confirmed,
            _ => false,
        }
    }
}

impl ChannelCore {
    /// Writes without a reply, if the channel is active and its circuit has space.
    fn write_now(&self, value: &Value) -> Option<Result<(), Error>> {
        let (circuit, server_channel) = {
            let state = self.state.lock();
            match &state.phase {
                ChannelPhase::Active(circuit, server_channel, _) if state.rights.write => {
                    (circuit.clone(), *server_channel)
                }
                _ => return None,
            }
        };
        circuit.write(self, server_channel, value)
    }
}

/// Writing without a reply.
impl Channel {
    /// Writes `value` without waiting for a reply; returns when the request is queued in the circuit. No round trip.
    ///
    /// Blocks, for at most [`ClientConfig::operation_timeout`](crate::ClientConfig::operation_timeout), while the
    /// channel is not connected, and while 256 KiB or more are queued because the server does not read. A put that could
    /// not be queued in that time fails.
    ///
    /// A put that closely follows another one may be sent together with later ones: a fifth of a millisecond later, or
    /// when its context is closed. A put that is still queued when the connection is lost is lost with it, and no call
    /// reports that unless it blocks just then. A refusal by the server is reported as
    /// [`Notice::PutRefused`](super::super::Notice::PutRefused).
    ///
    /// With pvAccess, a put is sent only after the server has replied to the previous put of the channel; puts that still
    /// wait for that when the context is closed are lost.
    ///
    /// # Examples
    ///
    /// ```
    /// # let (_server, context) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/demo/server.rs"));
    /// let gap = context.channel("demo:gap")?;
    /// for step in 0..10 {
    ///     gap.put_unconfirmed(12.5 + f64::from(step))?;
    /// }
    /// println!("{} bytes are still queued", gap.unsent_bytes());
    /// # Ok::<(), fodo_net::Error>(())
    /// ```
    pub fn put_unconfirmed(&self, value: impl Into<Value>) -> Result<(), Error> {
        self.put_unconfirmed_timeout(value, self.core().operation_timeout())
    }

    /// Like [`Channel::put_unconfirmed`], with its own timeout.
    pub fn put_unconfirmed_timeout(&self, value: impl Into<Value>, timeout: Duration) -> Result<(), Error> {
        let value = value.into();
        match self.core().write_now(&value) {
            Some(written) => written,
            None => self.start::<()>(OperationTask::PutUnconfirmed(value), false).wait_timeout(timeout),
        }
    }

    /// Starts a put without a reply. It ends when the request is queued in the circuit. While 256 KiB or more are queued
    /// there ([`Channel::unsent_bytes`]) it waits; if it is dropped before it has ended, it is never sent.
    ///
    /// # Examples
    ///
    /// ```
    /// # let (_server, context) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/demo/server.rs"));
    /// # pollster::block_on(async {
    /// context.channel("demo:gap")?.start_put_unconfirmed(12.5).await?;
    /// # Ok::<(), fodo_net::Error>(())
    /// # }).unwrap();
    /// ```
    pub fn start_put_unconfirmed(&self, value: impl Into<Value>) -> Operation<()> {
        self.start(OperationTask::PutUnconfirmed(value.into()), false)
    }

    /// Number of bytes of requests that wait in the channel's circuit because the server does not read them; 0 while
    /// the channel is not active. No round trip. See the example of [`Channel::put_unconfirmed`].
    pub fn unsent_bytes(&self) -> usize {
        let circuit = match &self.core().state.lock().phase {
            ChannelPhase::Active(circuit, ..) => circuit.clone(),
            _ => return 0,
        };
        circuit.unsent_bytes()
    }
}
