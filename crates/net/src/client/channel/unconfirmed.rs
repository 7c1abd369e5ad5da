//! Puts without an answer.

use std::time::Duration;

use fodo_data::Value;

use super::{Channel, ChannelCore, Phase};
use crate::client::Error;
use crate::client::operation::{Operation, Task};
use crate::sync::lock;

impl ChannelCore {
    /// Writes without an answer, if it is active.
    fn write_now(&self, value: &Value, timeout: Duration) -> Option<Result<(), Error>> {
        let (circuit, place) = {
            let state = lock(&self.state);
            match &state.phase {
                Phase::Active(circuit, place, _) if state.rights.write => (circuit.clone(), *place),
                _ => return None,
            }
        };
        let written = circuit.write(self, place, value, timeout)?;
        Some(written.map_err(|reason| Error::Misuse { pv: self.name.to_string(), reason }))
    }
}

impl Channel {
    /// Writes without an answer; ends when the request was handed to the circuit. No round trip. One that closely follows
    /// another may be sent together with those that follow it, a fifth of a millisecond later, or at the end of its context.
    pub fn put_unconfirmed(&self, value: impl Into<Value>, timeout: Duration) -> Result<(), Error> {
        let value = value.into();
        match self.core().write_now(&value, timeout) {
            Some(written) => written,
            None => self.start::<()>(Task::PutUnconfirmed(value), false).wait(timeout),
        }
    }

    /// Starts a put without an answer; it ends when the request was handed to the circuit, however much waits there
    /// ([`Channel::unsent_bytes`]).
    pub fn start_put_unconfirmed(&self, value: impl Into<Value>) -> Operation<()> {
        self.start(Task::PutUnconfirmed(value.into()), false)
    }

    /// Bytes of requests that wait in its circuit, since the server does not take them; 0 while it is not active. No
    /// round trip.
    pub fn unsent_bytes(&self) -> usize {
        let circuit = match &lock(&self.core().state).phase {
            Phase::Active(circuit, ..) => circuit.clone(),
            _ => return 0,
        };
        circuit.unsent_bytes()
    }
}
