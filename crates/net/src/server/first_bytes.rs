//! One port for clients of all protocols: the first byte of a client shows its protocol, and silence shows pvAccess.
//!
//! Clients of Channel Access send their version, and clients of TLS their greeting, as soon as they are connected. A
//! client of pvAccess waits for the server, but not if it uses TLS: a server that requires TLS waits for the first byte
//! instead.

use std::io;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fodo_data::Now;

use super::quota::CircuitQuota;
use crate::protocol::CircuitKind;

/// The protocol of the clients of a listening socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PortProtocol {
    /// This one.
    Only(CircuitKind),
    /// Any, as the first byte of each client shows.
    FirstByte,
    /// pvAccess, by plain TCP or within TLS, as the first byte of each client shows.
    FirstByteOfPva,
}

/// A client of a port for several protocols whose protocol is not known yet.
#[derive(Debug)]
pub(super) struct UndecidedClient {
    pub(super) stream: Arc<TcpStream>,
    pub(super) quota: CircuitQuota,
    port: PortProtocol,
    silent_until: Instant,
}

/// What an undecided client has sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FirstBytes {
    /// Nothing, and it may send something until this time.
    Awaited(Instant),
    /// Nothing until then. It is a client of pvAccess, which waits for the server, unless TLS is required.
    Silence,
    /// The start of a message of this protocol, or of the greeting of TLS.
    Of(CircuitKind),
    /// The first byte is of no protocol that is served.
    Unknown(u8),
    /// It has disconnected.
    Ended,
}

impl UndecidedClient {
    /// `may_be_silent`: for how long.
    pub(super) fn new(
        stream: Arc<TcpStream>,
        port: PortProtocol,
        quota: CircuitQuota,
        may_be_silent: Duration,
        now: Now,
    ) -> UndecidedClient {
        UndecidedClient { stream, quota, port, silent_until: now.monotonic + may_be_silent }
    }

    /// What it has sent. The bytes stay in the socket, for its circuit.
    pub(super) fn first_bytes(&self, now: Now) -> FirstBytes {
        let mut first = [0];
        match self.stream.peek(&mut first) {
            Ok(0) => FirstBytes::Ended,
            Ok(_) => FirstBytes::shown_by(first[0], self.port),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => FirstBytes::Awaited(now.monotonic),
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => FirstBytes::Ended,
            Err(_) if now.monotonic < self.silent_until => FirstBytes::Awaited(self.silent_until),
            Err(_) => FirstBytes::Silence,
        }
    }
}

impl FirstBytes {
    /// The protocol whose messages start with this byte, if the port has it.
    fn shown_by(first: u8, port: PortProtocol) -> FirstBytes {
        match first {
            // The high byte of a command; the highest command is 27.
            0x00 if port == PortProtocol::FirstByte => FirstBytes::Of(CircuitKind::Ca),
            // The record type of a handshake.
            0x16 => FirstBytes::Of(CircuitKind::PvaTls),
            fodo_pva::frame::MAGIC => FirstBytes::Of(CircuitKind::Pva),
            other => FirstBytes::Unknown(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_byte_of_a_client_shows_its_protocol() {
        let firsts = [0xca, 0x16, 0x00, b'G'];
        let shown = |port| firsts.map(|first| FirstBytes::shown_by(first, port));

        let [plain, tls, ca] = [CircuitKind::Pva, CircuitKind::PvaTls, CircuitKind::Ca].map(FirstBytes::Of);
        let [zero, other] = [0, b'G'].map(FirstBytes::Unknown);
        assert_eq!(shown(PortProtocol::FirstByte), [plain, tls, ca, other]);
        assert_eq!(shown(PortProtocol::FirstByteOfPva), [plain, tls, zero, other]);
    }
}
