//! The machine of a circuit, which is that of its protocol.

use std::io;
use std::net::TcpStream;
use std::time::Instant;

use fodo_ca::client::Circuit as CaMachine;
use fodo_data::Now;
use fodo_engine::{Cid, Ioid, Sid};

use super::super::{Priority, circuit_config, pva_circuit_config};
use crate::config::ClientConfig;
use crate::protocol::Protocol;
use crate::pva::client::PvaMachine;
use crate::stream::{self, WriteOutcome};
use crate::tls::TlsStream;

/// The machine of a circuit. It is matched once for each piece of received bytes, and once for each request.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "Channel Access needs no further memory access; there are few circuits")]
pub(in crate::client) enum ClientMachine {
    Ca(CaMachine),
    Pva(Box<PvaMachine>),
}

impl ClientMachine {
    pub(in crate::client) fn new(protocol: Protocol, config: &ClientConfig, priority: Priority) -> ClientMachine {
        let now = crate::clock::now();
        match protocol {
            Protocol::Ca => ClientMachine::Ca(CaMachine::new(&circuit_config(config, priority), now)),
            Protocol::Pva => ClientMachine::Pva(Box::new(PvaMachine::new(&pva_circuit_config(config, priority), now))),
        }
    }

    /// Requests a channel.
    pub(super) fn create(&mut self, cid: Cid, name: &str, now: Now) {
        match self {
            ClientMachine::Ca(machine) => machine.create(cid, name, now),
            ClientMachine::Pva(machine) => machine.create(cid, name, now),
        }
    }

    /// Ends a channel. `sid`: the server's number, if the channel is active.
    pub(super) fn clear(&mut self, cid: Cid, sid: Option<Sid>) {
        match (self, sid) {
            (ClientMachine::Ca(machine), Some(sid)) => machine.clear(cid, sid),
            // The reply to the request for the channel ends it.
            (ClientMachine::Ca(_), None) => {}
            (ClientMachine::Pva(machine), _) => machine.clear(cid),
        }
    }

    /// The same, after the requests of the channel that are accepted and not sent.
    pub(super) fn clear_after_puts(&mut self, cid: Cid, sid: Option<Sid>) {
        match self {
            ClientMachine::Ca(_) => self.clear(cid, sid),
            ClientMachine::Pva(machine) => machine.clear_after_puts(cid),
        }
    }

    /// Whether channels that were cleared still have requests to send.
    pub(super) fn has_cleared_channels(&self) -> bool {
        match self {
            ClientMachine::Ca(_) => false,
            ClientMachine::Pva(machine) => machine.has_cleared_channels(),
        }
    }

    /// The reply to a request is no longer awaited. With pvAccess its caller keeps its place in the queue, unless it is
    /// a call.
    pub(super) fn forget(&mut self, ioid: Ioid) {
        match self {
            ClientMachine::Ca(_) => {}
            ClientMachine::Pva(machine) => machine.forget(ioid),
        }
    }

    /// Writes pending bytes until the socket accepts no more. Fails if the connection has ended.
    pub(super) fn flush(&mut self, stream: &TcpStream) -> io::Result<WriteOutcome> {
        match self {
            ClientMachine::Ca(machine) => stream::flush(stream, machine),
            ClientMachine::Pva(machine) => stream::flush(stream, &mut **machine),
        }
    }

    /// The same, encrypted.
    #[cold]
    pub(super) fn flush_encrypted(&mut self, tls: &mut TlsStream, stream: &TcpStream) -> io::Result<WriteOutcome> {
        match self {
            ClientMachine::Ca(machine) => tls.flush(stream, machine),
            ClientMachine::Pva(machine) => tls.flush(stream, &mut **machine),
        }
    }

    /// The circuit uses TLS, and this client has presented a certificate.
    pub(super) fn use_certificate(&mut self) {
        if let ClientMachine::Pva(machine) = self {
            machine.use_certificate();
        }
    }

    /// Whether bytes wait to be sent.
    #[inline]
    pub(super) fn has_pending_bytes(&self) -> bool {
        self.pending_bytes() > 0
    }

    /// The number of bytes that wait to be sent.
    #[inline]
    pub(super) fn pending_bytes(&self) -> usize {
        match self {
            ClientMachine::Ca(machine) => machine.pending_bytes(),
            ClientMachine::Pva(machine) => machine.pending_bytes(),
        }
    }

    /// The same, with what waits for replies before it can be sent.
    #[inline]
    pub(super) fn queued_bytes(&self) -> usize {
        match self {
            ClientMachine::Ca(machine) => machine.pending_bytes(),
            ClientMachine::Pva(machine) => machine.queued_bytes(),
        }
    }

    /// The time of the next tick.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match self {
            ClientMachine::Ca(machine) => machine.deadline(),
            ClientMachine::Pva(machine) => machine.deadline(),
        }
    }

    /// Queues bytes to be sent.
    #[cfg(test)]
    pub(super) fn queue(&mut self, bytes: &[u8]) {
        match self {
            ClientMachine::Ca(machine) => machine.search(bytes),
            ClientMachine::Pva(_) => unreachable!("tests with Channel Access use it"),
        }
    }
}
