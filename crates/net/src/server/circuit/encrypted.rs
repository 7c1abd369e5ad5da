//! Circuits within TLS: how they start, and the identity in the client's certificate.

use std::io;
use std::net::TcpStream;
use std::sync::Arc;

use fodo_data::Now;
use fodo_pva::server::{Config, TunnelState};
use fodo_pva::validation;

use super::{Circuit, CircuitConfig, CircuitProtocol};
use crate::log::{Level, Log};
use crate::pva::circuit::PvAccess;
use crate::server::quota::CircuitQuota;
use crate::server::reactor::{CircuitKey, Inbox};
use crate::stream::{self, WriteOutcome};
use crate::tls::TlsStream;

impl<P: CircuitProtocol> Circuit<P> {
    /// The same as [`stream::flush_up_to`].
    #[inline]
    pub(super) fn flush_up_to(&mut self, n_budget: &mut usize) -> io::Result<WriteOutcome> {
        match &mut self.tls {
            None => stream::flush_up_to(&self.stream, &mut self.machine, n_budget),
            Some(tls) => tls.flush_up_to(&self.stream, &mut self.machine, n_budget),
        }
    }

    /// Whether bytes wait to be decoded that are no longer in the socket; only with TLS.
    #[inline]
    pub(super) fn has_received(&mut self) -> bool {
        self.tls.as_mut().is_some_and(|tls| tls.has_received())
    }

    /// The same as [`stream::read`].
    #[inline]
    pub(super) fn read_stream(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match &mut self.tls {
            None => stream::read(&self.stream, buffer),
            Some(tls) => tls.read(&self.stream, buffer),
        }
    }
}

impl Circuit<PvAccess> {
    /// The circuit of a client whose handshake is complete.
    #[expect(clippy::too_many_arguments, reason = "those of `Circuit::new`, and the encryption")]
    pub(in crate::server) fn within_tls(
        stream: Arc<TcpStream>,
        tls: Box<TlsStream>,
        key: CircuitKey,
        inbox: Arc<Inbox>,
        config: &CircuitConfig,
        quota: CircuitQuota,
        log: Arc<Log>,
        now: Now,
    ) -> Circuit<PvAccess> {
        let mut circuit = Circuit::<PvAccess>::new(stream, key, inbox, config, quota, log, now);
        let certificate = tls.peer();
        let what = match &certificate {
            Some(peer) => format!("a client uses TLS, with the certificate of {peer}"),
            None => "a client uses TLS without a certificate".into(),
        };
        circuit.log.write(Level::Info, &what, Some(circuit.peer.address), None, now);
        let &CircuitConfig { payload_bytes_max, guid, .. } = config;
        let state = TunnelState::Encrypted { has_certificate: certificate.is_some() };
        circuit.machine = fodo_pva::server::Circuit::within(state, &Config { payload_bytes_max, guid });
        circuit.peer.is_encrypted = true;
        circuit.tls = Some(tls);
        circuit
    }

    /// The client has selected the identity in its certificate. The machine offers that only if it has one.
    pub(crate) fn identified_by_certificate(&mut self, now: Now) {
        let Some(certificate) = self.tls.as_ref().and_then(|tls| tls.peer()) else { return };
        let host = self.peer.address.ip().to_string();
        self.identified(certificate.name, host, validation::X509, now);
        self.peer.authority = certificate.authority;
    }
}
