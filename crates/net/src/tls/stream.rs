//! Reading and writing encrypted streams without blocking, with the calls of [`crate::stream`].

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, Connection, ServerConfig, ServerConnection};

use super::reason::{self, TlsError};
use super::{Keychain, TlsPeer};
use crate::limit;
use crate::stream::{self, Outgoing, WriteOutcome};

/// The encryption of a stream: what it must remember beside the socket.
#[derive(Debug)]
pub(crate) struct TlsStream {
    connection: Connection,
    keychain: Keychain,
    /// Encrypted bytes from the socket; those in `unread` are not decrypted yet.
    received: Vec<u8>,
    unread: Range<usize>,
    /// How many of the outgoing bytes are encrypted and not all written. They stay in the outbox until they are.
    n_encrypted: usize,
    /// Why the stream has ended, after bytes that were read first.
    failure: Option<io::Error>,
}

/// How far a handshake is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandshakeProgress {
    /// It waits for the peer.
    Pending,
    /// The peer is accepted, and bytes can be exchanged.
    Complete,
}

impl TlsStream {
    /// The client's side of a stream to this server.
    pub(crate) fn client(keychain: &Keychain, server: SocketAddr) -> io::Result<TlsStream> {
        let name = ServerName::IpAddress(server.ip().into());
        let connection = ClientConnection::new(keychain.client_config(), name).map_err(TlsError)?;
        Ok(TlsStream::new(connection.into(), keychain))
    }

    /// The server's side of a stream. `config`: that of the keychain.
    pub(crate) fn server(keychain: &Keychain, config: Arc<ServerConfig>) -> io::Result<TlsStream> {
        let connection = ServerConnection::new(config).map_err(TlsError)?;
        Ok(TlsStream::new(connection.into(), keychain))
    }

    fn new(connection: Connection, keychain: &Keychain) -> TlsStream {
        let received = vec![0; limit::TLS_RECEIVE_BYTES];
        TlsStream { connection, keychain: keychain.clone(), received, unread: 0..0, n_encrypted: 0, failure: None }
    }

    /// Continues the handshake as far as possible. Fails if the connection has ended or the peer is rejected.
    pub(crate) fn handshake(&mut self, stream: &TcpStream) -> io::Result<HandshakeProgress> {
        loop {
            let is_written = self.write_encrypted(stream)?;
            if !self.connection.is_handshaking() {
                return Ok(HandshakeProgress::Complete);
            }
            if !is_written || !self.fill(stream)? {
                return Ok(HandshakeProgress::Pending);
            }
            self.decrypt(stream)?;
        }
    }

    /// The same for a client, until this deadline. Fails with the reason, as it follows the name of the server and a colon.
    pub(crate) fn handshake_until(
        &mut self,
        stream: &TcpStream,
        until: Instant,
        now: Instant,
    ) -> Result<HandshakeProgress, String> {
        match self.handshake(stream) {
            Ok(HandshakeProgress::Pending) if now >= until => {
                Err(format!("it does not reply within {} s", limit::TLS_HANDSHAKE.as_secs()))
            }
            Ok(progress) => Ok(progress),
            Err(error) => Err(reason::failure(&error).unwrap_or_else(|| format!("the connection ended: {error}"))),
        }
    }

    /// Whether this side has presented a certificate that the peer can use.
    pub(crate) fn has_own_certificate(&self) -> bool {
        self.keychain.identity().is_some()
    }

    /// The identity of the peer, once the handshake is complete; `None` if it has no certificate.
    pub(crate) fn peer(&self) -> Option<TlsPeer> {
        Some(self.keychain.identity_of(self.connection.peer_certificates()?))
    }

    /// Whether bytes, or an error, wait here that are no longer in the socket.
    pub(crate) fn has_received(&mut self) -> bool {
        let has_decrypted = self.connection.reader().into_first_chunk().is_ok_and(|chunk| !chunk.is_empty());
        has_decrypted || !self.unread.is_empty() || self.failure.is_some()
    }

    /// The same as [`stream::read`]. If it fills only a part of `buffer` and [`TlsStream::has_received`] is false afterwards, no
    /// byte waited in the socket.
    pub(crate) fn read(&mut self, stream: &TcpStream, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        let mut n_read = 0;
        match self.read_into(stream, buffer, &mut n_read) {
            Ok(()) => Ok((n_read > 0).then_some(n_read)),
            Err(error) if n_read == 0 => Err(error),
            Err(error) => {
                // The bytes before it are handled first.
                self.failure = Some(error);
                Ok(Some(n_read))
            }
        }
    }

    fn read_into(&mut self, stream: &TcpStream, buffer: &mut [u8], n_read: &mut usize) -> io::Result<()> {
        let mut is_drained = false;
        // Many small records cost much time for few bytes, so those of the socket are limited as well.
        let mut n_filled = 0;
        loop {
            *n_read += self.take_decrypted(buffer.get_mut(*n_read..).unwrap_or_default())?;
            if *n_read == buffer.len() {
                return Ok(());
            }
            if self.unread.is_empty() {
                if (*n_read > 0 && is_drained) || !self.fill(stream)? {
                    return Ok(());
                }
                is_drained = self.unread.len() < self.received.len();
                n_filled += self.unread.len();
                if n_filled > 2 * buffer.len() {
                    return Ok(());
                }
            }
            self.decrypt(stream)?;
        }
    }

    /// The same as [`stream::flush_up_to`].
    pub(crate) fn flush_up_to(
        &mut self,
        stream: &TcpStream,
        outgoing: &mut impl Outgoing,
        n_budget: &mut usize,
    ) -> io::Result<WriteOutcome> {
        loop {
            if !self.write_encrypted(stream)? {
                return Ok(WriteOutcome::SocketIsFull);
            }
            let n_sent = std::mem::take(&mut self.n_encrypted);
            if n_sent > 0 {
                outgoing.sent(n_sent);
            }
            let ready = outgoing.ready();
            if ready.is_empty() {
                return Ok(WriteOutcome::All);
            }
            if *n_budget == 0 {
                return Ok(WriteOutcome::Enough);
            }
            self.n_encrypted = self.connection.writer().write(ready)?;
            *n_budget = n_budget.saturating_sub(self.n_encrypted);
        }
    }

    /// The same as [`stream::flush`].
    pub(crate) fn flush(&mut self, stream: &TcpStream, outgoing: &mut impl Outgoing) -> io::Result<WriteOutcome> {
        let mut no_limit = usize::MAX;
        self.flush_up_to(stream, outgoing, &mut no_limit)
    }

    /// Reports the end of the stream to the peer, if the socket accepts that at once.
    pub(crate) fn close(&mut self, stream: &TcpStream) {
        self.connection.send_close_notify();
        // The connection is closed in any case.
        let _ = self.write_encrypted(stream);
    }

    /// Writes encrypted bytes; returns whether all are written.
    fn write_encrypted(&mut self, mut stream: &TcpStream) -> io::Result<bool> {
        while self.connection.wants_write() {
            match self.connection.write_tls(&mut stream) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Reads encrypted bytes, if there are none unread; returns whether there are any now.
    fn fill(&mut self, stream: &TcpStream) -> io::Result<bool> {
        if self.unread.is_empty()
            && let Some(n) = stream::read(stream, &mut self.received)?
        {
            self.unread = 0..n;
        }
        Ok(!self.unread.is_empty())
    }

    /// Passes some of the unread bytes to the connection. If it fails, the peer receives the reason.
    fn decrypt(&mut self, stream: &TcpStream) -> io::Result<()> {
        let mut unread = self.received.get(self.unread.clone()).unwrap_or_default();
        let n_before = unread.len();
        self.connection.read_tls(&mut unread)?;
        self.unread.start += n_before - unread.len();
        let Err(error) = self.connection.process_new_packets() else { return Ok(()) };
        // The connection is closed in any case.
        let _ = self.write_encrypted(stream);
        Err(TlsError(error).into())
    }

    /// Takes decrypted bytes. Fails if the peer has ended the stream and all its bytes are taken.
    fn take_decrypted(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut n_taken = 0;
        while n_taken < buffer.len() {
            match self.connection.reader().read(&mut buffer[n_taken..]) {
                Ok(0) if n_taken == 0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(0) => {
                    // The bytes before the end are handled first.
                    self.failure = Some(io::ErrorKind::UnexpectedEof.into());
                    break;
                }
                Ok(n) => n_taken += n,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(n_taken)
    }
}
