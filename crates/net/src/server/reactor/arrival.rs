//! New clients, until they have a circuit: their protocol is found out, and their handshake ends.

use std::io;

use fodo_data::Now;

use super::{AcceptedClient, CircuitKey, FIRST_CIRCUIT, ReactorMessage, ServedCircuit, ServerPart};
use crate::event_loop::{NextCall, Readiness};
use crate::limit;
use crate::log::Level;
use crate::protocol::CircuitKind;
use crate::server::circuit::Circuit;
use crate::server::first_bytes::{FirstBytes, PortProtocol, UndecidedClient};
use crate::server::tls_acceptor::{ClientHandshake, HandshakeTurn, TlsAcceptor};

impl ServerPart {
    /// Accepts an undecided client again when its protocol is known, or closes it.
    #[cold]
    pub(super) fn decide(&mut self, index: usize, now: Now) -> NextCall {
        let first_bytes = match self.circuits.get(index) {
            Some((_, ServedCircuit::Undecided(client))) => client.first_bytes(now),
            _ => return NextCall::OnReady,
        };
        if let FirstBytes::Awaited(until) = first_bytes {
            return NextCall::At(until);
        }
        let (_, ServedCircuit::Undecided(UndecidedClient { stream, quota, .. })) = self.circuits.remove(index) else {
            return NextCall::OnReady;
        };
        self.inbox.remove_socket(&stream);
        let close = |what: &str| self.log.write(Level::Warning, what, Some(quota.peer()), None, now);
        let (kind, is_assumed) = match first_bytes {
            FirstBytes::Of(kind) => (kind, false),
            FirstBytes::Silence if self.requires_tls() => {
                let silence = limit::TLS_HANDSHAKE.as_secs();
                close(&format!(
                    "a client is closed, because it was silent for {silence} s, and this server requires TLS"
                ));
                return NextCall::OnReady;
            }
            FirstBytes::Silence => (CircuitKind::Pva, true),
            FirstBytes::Unknown(first) => {
                close(&format!("a client is closed, because no protocol here starts with byte {first:#04x}"));
                return NextCall::OnReady;
            }
            FirstBytes::Awaited(_) | FirstBytes::Ended => return NextCall::OnReady,
        };
        if kind == CircuitKind::PvaTls && self.tls.is_none() {
            close("a client is closed, because it starts with TLS, which this server does not have");
            return NextCall::OnReady;
        }
        if kind == CircuitKind::Pva && self.requires_tls() {
            close("a client is closed, because it speaks pvAccess without TLS, which this server requires");
            return NextCall::OnReady;
        }
        let client = AcceptedClient { stream, port: PortProtocol::Only(kind), is_assumed, quota };
        self.inbox.push(ReactorMessage::Accepted(Box::new(client)));
        NextCall::OnReady
    }

    /// Whether clients of pvAccess must use TLS.
    fn requires_tls(&self) -> bool {
        self.tls.as_ref().is_some_and(TlsAcceptor::is_only)
    }

    /// A handshake has made progress: its circuit starts, or the client is closed.
    pub(super) fn after_handshake(&mut self, index: usize, turn: HandshakeTurn, now: Now) -> NextCall {
        let reason = match turn {
            HandshakeTurn::Waiting(until) => return NextCall::At(until),
            HandshakeTurn::Complete => None,
            HandshakeTurn::Failed(reason) => Some(reason),
        };
        let (generation, circuit) = self.circuits.remove(index);
        let ServedCircuit::Handshake(handshake) = circuit else { return NextCall::OnReady };
        let ClientHandshake { stream, tls, quota, peer_has_ended, .. } = *handshake;
        match reason {
            None => {
                let entry = self.circuits.vacant_entry();
                // The entry was freed just now, and the slab uses it first.
                debug_assert_eq!(entry.key(), index);
                let key = CircuitKey { index: entry.key(), generation };
                let (inbox, config, log) = (self.inbox.clone(), &self.config, self.log.clone());
                let mut circuit = Circuit::within_tls(stream, tls, key, inbox, config, quota, log, now);
                if peer_has_ended {
                    circuit.peer_has_ended();
                }
                entry.insert((generation, ServedCircuit::PvAccess(circuit)));
                NextCall::Soon
            }
            Some(reason) => {
                let what = format!("a client is closed, because its TLS handshake failed: {reason}");
                self.log.write(Level::Warning, &what, Some(quota.peer()), None, now);
                quota.count_refused();
                self.inbox.remove_socket(&stream);
                NextCall::OnReady
            }
        }
    }

    /// Adds a new client, of whose bytes none was taken from the socket; returns its index in the loop.
    pub(super) fn adopt(&mut self, accepted: AcceptedClient, now: Now) -> Option<usize> {
        let AcceptedClient { stream, port, is_assumed, quota } = accepted;
        let may_be_silent = if self.requires_tls() { limit::TLS_HANDSHAKE } else { limit::FIRST_BYTE };
        let entry = self.circuits.vacant_entry();
        let key = CircuitKey { index: entry.key(), generation: self.generation_next };
        self.generation_next += 1;
        let index = key.index + FIRST_CIRCUIT;
        if let Err(error) = self.inbox.handle.add_socket(index, &stream, Readiness::ReadableOrWritable) {
            let what = format!("a client is closed, because its socket cannot be watched: {error}");
            self.log.write(Level::Error, &what, stream.peer_addr().ok(), None, now);
            return None;
        }
        let (inbox, config, log) = (self.inbox.clone(), &self.config, self.log.clone());
        let mut circuit = match port {
            PortProtocol::FirstByte | PortProtocol::FirstByteOfPva => {
                ServedCircuit::Undecided(UndecidedClient::new(stream, port, quota, may_be_silent, now))
            }
            PortProtocol::Only(CircuitKind::Ca) => {
                ServedCircuit::ChannelAccess(Circuit::new(stream, key, inbox, config, quota, log, now))
            }
            PortProtocol::Only(CircuitKind::Pva) => {
                ServedCircuit::PvAccess(Circuit::new(stream, key, inbox, config, quota, log, now))
            }
            PortProtocol::Only(CircuitKind::PvaTls) => {
                let peer = quota.peer();
                let acceptor = self.tls.as_ref().ok_or_else(|| io::Error::other("TLS is not configured"));
                match acceptor.and_then(|acceptor| acceptor.start(stream.clone(), quota, now)) {
                    Ok(handshake) => ServedCircuit::Handshake(Box::new(handshake)),
                    Err(error) => {
                        let what = format!("a client is closed, because its TLS handshake cannot start: {error}");
                        log.write(Level::Error, &what, Some(peer), None, now);
                        self.inbox.remove_socket(&stream);
                        return None;
                    }
                }
            }
        };
        if let (true, ServedCircuit::PvAccess(circuit)) = (is_assumed, &mut circuit) {
            circuit.protocol_is_assumed();
        }
        entry.insert((key.generation, circuit));
        Some(index)
    }
}
