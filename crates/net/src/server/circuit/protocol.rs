//! What a circuit needs of its protocol.

use std::hash::Hash;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fodo_data::Now;
use fodo_engine::ring::Cursor;
use fodo_engine::{Rights, Sid};
use fodo_pva::guid::Guid;

use super::watch::Watch;
use super::{Circuit, Put};
use crate::protocol::Protocol;
use crate::server::posts::PostListener;
use crate::server::{Peer, PutRefusal, ServedPv, Source, UpdateCounts};
use crate::stream::Outgoing;

/// Configuration of the machines of a server's circuits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CircuitConfig {
    /// Largest accepted payload, in bytes.
    pub(crate) payload_bytes_max: usize,
    /// How long replies and updates wait for more.
    pub(crate) flush_delay: Duration,
    /// The identity of the server in pvAccess.
    pub(crate) guid: Guid,
    /// The port of pvAccess by TLS.
    pub(crate) tls_port: Option<u16>,
}

/// The machine of a circuit, without what only its protocol has.
pub(crate) trait CircuitMachine: Outgoing {
    /// A request of the client.
    type Event;

    /// Processes received bytes.
    fn received(&mut self, bytes: &[u8], now: Now, events: &mut Vec<Self::Event>);

    /// Performs actions that are due at `now`.
    fn tick(&mut self, now: Now, events: &mut Vec<Self::Event>);

    /// The latest time to call [`CircuitMachine::tick`].
    fn deadline(&self) -> Option<Instant>;

    /// Restarts the timeout of an incomplete message, because the caller did not read for a while.
    fn resume(&mut self, now: Now);

    /// The number of bytes waiting to be sent.
    fn pending_bytes(&self) -> usize;

    /// Memory of everything that the client has created, in bytes.
    fn held_bytes(&self) -> usize;

    /// Sets the limit for [`CircuitMachine::held_bytes`].
    fn set_held_bytes_max(&mut self, bytes: usize);

    /// Sets by how much values may grow with the next [`CircuitMachine::received`].
    fn set_arriving_bytes_max(&mut self, bytes: usize);
}

/// Implements [`CircuitMachine`] by the methods with the same names.
macro_rules! circuit_machine {
    ($machine:ty, $event:ty) => {
        impl $crate::server::circuit::CircuitMachine for $machine {
            type Event = $event;

            #[inline]
            fn received(&mut self, bytes: &[u8], now: fodo_data::Now, events: &mut Vec<$event>) {
                self.received(bytes, now, events);
            }

            #[inline]
            fn tick(&mut self, now: fodo_data::Now, events: &mut Vec<$event>) {
                self.tick(now, events);
            }

            #[inline]
            fn deadline(&self) -> Option<std::time::Instant> {
                self.deadline()
            }

            #[inline]
            fn resume(&mut self, now: fodo_data::Now) {
                self.resume(now);
            }

            #[inline]
            fn pending_bytes(&self) -> usize {
                self.pending_bytes()
            }

            #[inline]
            fn held_bytes(&self) -> usize {
                self.held_bytes()
            }

            #[inline]
            fn set_held_bytes_max(&mut self, bytes: usize) {
                self.set_held_bytes_max(bytes);
            }

            #[inline]
            fn set_arriving_bytes_max(&mut self, bytes: usize) {
                self.set_arriving_bytes_max(bytes);
            }
        }
    };
}

pub(crate) use circuit_machine;

/// The events of the machine of a protocol.
pub(crate) type EventOf<P> = <<P as CircuitProtocol>::Machine as CircuitMachine>::Event;

/// What a circuit does in the way of its protocol, and what it keeps for that.
pub(crate) trait CircuitProtocol: Sized {
    const PROTOCOL: Protocol;

    type Machine: CircuitMachine;

    /// A PV as a channel holds it.
    type Pv: ChannelPv;

    /// Identifies a subscription of a circuit.
    type SubscriptionKey: Copy + Eq + Hash;

    /// What the updates of a subscription contain.
    type Content;

    /// What the reply to a put repeats.
    type PutReply;

    /// What a client receives if its put fails.
    type Status;

    /// The state of a new circuit.
    fn new() -> Self;

    /// The machine of a new circuit.
    fn machine(config: &CircuitConfig, now: Now) -> Self::Machine;

    /// Answers a request of the client. Breaks if no other request may be answered in this turn.
    fn answer(circuit: &mut Circuit<Self>, source: &dyn Source, event: EventOf<Self>, now: Now) -> ControlFlow<()>;

    /// Memory of the value in a request.
    fn value_bytes(event: &EventOf<Self>) -> usize;

    /// Whether the client wants updates now.
    fn may_update(machine: &Self::Machine) -> bool;

    /// The number of subscriptions that listen to no PV now.
    fn n_suspended(&self) -> usize;

    /// Memory that the client causes outside of the machine, in bytes.
    fn held_bytes(&self) -> usize;

    /// A running subscription to a PV has ended.
    fn subscription_ended(&mut self, pv: &Self::Pv, content: &Self::Content);

    /// Sends pending updates to a watch's subscriptions; returns false if the circuit's buffer is full.
    fn send_watch(
        &mut self,
        machine: &mut Self::Machine,
        watch: &mut Watch<Self>,
        queue_bytes_max: usize,
        counts: &mut UpdateCounts,
    ) -> bool;

    /// What the client is allowed to do with the PV of a channel, or whether that is read-only, has changed.
    fn rights_changed(machine: &mut Self::Machine, sid: Sid, is_read_only: bool, allowed: Rights);

    /// Closes a channel of a closed PV.
    fn close_channel(machine: &mut Self::Machine, sid: Sid, events: &mut Vec<EventOf<Self>>);

    /// The subscriptions whose read access has changed; the last one is handled first.
    fn changed_subscriptions(circuit: &Circuit<Self>) -> Vec<Self::SubscriptionKey>;

    /// Handles one of [`CircuitProtocol::changed_subscriptions`].
    fn change_subscription(circuit: &mut Circuit<Self>, key: Self::SubscriptionKey);

    /// The status for the client of a put that fails.
    fn put_status(failure: PutFailure<'_>) -> Self::Status;

    /// A put waits for the end of its processing, with the number of its completion.
    fn put_started(&mut self, reply: &Self::PutReply, put: u64);

    /// This put does not wait any more.
    fn put_ended(&mut self, reply: &Self::PutReply);

    /// Replies to a put.
    fn put_done(circuit: &mut Circuit<Self>, put: &Put<Self>, result: Result<(), Self::Status>);
}

/// A PV as the channels of a protocol hold it.
pub(crate) trait ChannelPv: Clone {
    /// What is reported when a channel is created.
    type Facts;

    /// The PV that a source has opened; `Err` contains the reason why this protocol does not serve it.
    fn accept(served: ServedPv) -> Result<(Self, Self::Facts), &'static str>;

    /// The address of the object: each circuit listens once to it.
    fn address(&self) -> usize;

    /// Whether every put is refused.
    fn is_read_only(&self) -> bool;

    /// The access rights of a client.
    fn rights(&self, by: &Peer) -> Rights;

    /// Whether the PV exists no longer.
    fn is_closed(&self) -> bool;

    /// Adds a listener to the posts.
    fn listen(&self, listener: Arc<PostListener>);

    /// Removes a listener whose subscriptions have ended.
    fn unlisten(&self, listener: &Arc<PostListener>);

    /// Ends a subscription of a listener.
    fn unsubscribe(&self, listener: &Arc<PostListener>, cursor: &Cursor);

    /// A circuit has started or stopped listening.
    fn listeners_changed(&self);

    /// The client of a put has disconnected.
    fn cancel_put(&self, put: u64);
}

/// Why a put fails.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PutFailure<'a> {
    /// The PV refuses it.
    Refused(&'a PutRefusal),
    /// The code of the PV panicked.
    Panicked,
    /// Too many puts are in progress, or they use too much memory.
    NoRoom,
}
