//! The handshakes of clients with TLS. None of them delays another client: a reactor continues each when its socket is ready.

use std::io;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Instant;

use fodo_data::Now;
use rustls::ServerConfig;

use super::ServerError;
use super::quota::CircuitQuota;
use crate::config::PvaServerConfig;
use crate::limit;
use crate::tls::{self, HandshakeProgress, Keychain, TlsStream};

/// What the handshakes of a server need.
#[derive(Clone, Debug)]
pub(super) struct TlsAcceptor {
    keychain: Keychain,
    config: Arc<ServerConfig>,
    is_only: bool,
}

impl TlsAcceptor {
    /// The acceptor of a server; `None` if it does not use TLS. Fails if the keychain has no private key.
    pub(super) fn of(config: &PvaServerConfig) -> Result<Option<TlsAcceptor>, ServerError> {
        let Some(keychain) = config.tls.keychain() else { return Ok(None) };
        let server_config = keychain.server_config(config.client_certificates).map_err(ServerError::Keychain)?;
        Ok(Some(TlsAcceptor { keychain: keychain.clone(), config: server_config, is_only: config.tls.is_only() }))
    }

    /// Whether plain circuits of pvAccess are refused.
    pub(super) fn is_only(&self) -> bool {
        self.is_only
    }

    /// Starts a handshake. Bytes that were only peeked are still in the socket, so nothing else is passed on.
    pub(super) fn start(
        &self,
        stream: Arc<TcpStream>,
        mut quota: CircuitQuota,
        now: Now,
    ) -> io::Result<ClientHandshake> {
        if quota.held_bytes_max() < limit::TLS_CIRCUIT_BYTES {
            return Err(io::Error::other("the clients of its host use too much memory"));
        }
        quota.set(limit::CIRCUIT_BYTES + limit::TLS_CIRCUIT_BYTES, 0);
        let tls = TlsStream::server(&self.keychain, self.config.clone())?;
        let until = now.monotonic + limit::TLS_HANDSHAKE;
        Ok(ClientHandshake { stream, tls: Box::new(tls), quota, until, peer_has_ended: false })
    }
}

/// A client whose handshake is in progress.
#[derive(Debug)]
pub(super) struct ClientHandshake {
    pub(super) stream: Arc<TcpStream>,
    pub(super) tls: Box<TlsStream>,
    pub(super) quota: CircuitQuota,
    /// When it fails.
    until: Instant,
    /// The client has shut down its sending side.
    pub(super) peer_has_ended: bool,
}

/// What a turn of a handshake has reached.
#[derive(Debug)]
pub(super) enum HandshakeTurn {
    /// It waits for the client, until this time.
    Waiting(Instant),
    /// The client is accepted.
    Complete,
    /// The client is rejected, or its connection has ended; why.
    Failed(String),
}

impl ClientHandshake {
    /// Continues it as far as possible.
    pub(super) fn turn(&mut self, now: Now) -> HandshakeTurn {
        match self.tls.handshake(&self.stream) {
            Ok(HandshakeProgress::Complete) => HandshakeTurn::Complete,
            Ok(HandshakeProgress::Pending) if now.monotonic < self.until => HandshakeTurn::Waiting(self.until),
            Ok(HandshakeProgress::Pending) => {
                HandshakeTurn::Failed(format!("it takes longer than {} s", limit::TLS_HANDSHAKE.as_secs()))
            }
            Err(error) => HandshakeTurn::Failed(reason(&error)),
        }
    }
}

fn reason(error: &io::Error) -> String {
    match (tls::failure(error), error.kind()) {
        (Some(reason), _) => reason,
        (None, io::ErrorKind::UnexpectedEof) => "it closed the connection".into(),
        (None, _) => error.to_string(),
    }
}
