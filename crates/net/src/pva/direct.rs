//! A circuit to one server at a known address, which the calling thread drives until its task has ended.

use std::collections::VecDeque;
use std::io;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use fodo_pva::client::{Circuit, Config, DisconnectReason, Event};
use rustix::event::{PollFd, PollFlags};

use crate::client::{host, user};
use crate::clock::now;
use crate::config::ClientConfig;
use crate::tls::{HandshakeProgress, TlsPeer, TlsStream};
use crate::{limit, socket, stream};

/// A circuit with its connection.
pub(super) struct DirectCircuit {
    stream: TcpStream,
    /// `None` with plain TCP.
    tls: Option<TlsStream>,
    is_secured: bool,
    circuit: Circuit,
    has_greeting: bool,
    /// Events that were not handled.
    events: VecDeque<Event>,
}

/// Why a task has no result.
#[derive(Debug)]
pub(super) enum DirectFailure {
    /// It has not ended in time.
    Timeout,
    /// The connection has ended, or the handshake of TLS has failed.
    Lost(io::Error),
    /// The server rejects this client, or has sent an invalid message.
    Closed(DisconnectReason),
}

impl From<io::Error> for DirectFailure {
    fn from(error: io::Error) -> DirectFailure {
        DirectFailure::Lost(error)
    }
}

impl DirectCircuit {
    /// A circuit on an established connection.
    pub(super) fn new(stream: TcpStream, tls: Option<TlsStream>, config: &ClientConfig) -> io::Result<DirectCircuit> {
        stream.set_nonblocking(true)?;
        let circuit = Circuit::new(&circuit_config(config), now());
        let is_secured = tls.is_none();
        Ok(DirectCircuit { stream, tls, is_secured, circuit, has_greeting: false, events: VecDeque::new() })
    }

    pub(super) fn circuit(&mut self) -> &mut Circuit {
        &mut self.circuit
    }

    /// Whether the handshake of TLS, if there is one, is complete.
    pub(super) fn is_secured(&self) -> bool {
        self.is_secured
    }

    /// Whether the server has sent anything.
    pub(super) fn has_greeting(&self) -> bool {
        self.has_greeting
    }

    /// The identity in the server's certificate.
    pub(super) fn tls_peer(&self) -> Option<TlsPeer> {
        self.tls.as_ref().and_then(TlsStream::peer)
    }

    /// Sends and receives until `handle` returns the result of the task.
    pub(super) fn until<T>(
        &mut self,
        end: Instant,
        mut handle: impl FnMut(&mut Circuit, Event) -> Option<T>,
    ) -> Result<T, DirectFailure> {
        let mut buffer = vec![0; limit::DIRECT_READ_BYTES];
        loop {
            while let Some(event) = self.events.pop_front() {
                if let Event::Closed(reason) = event {
                    return Err(DirectFailure::Closed(reason));
                }
                if let Some(result) = handle(&mut self.circuit, event) {
                    return Ok(result);
                }
            }
            let has_received = self.receive(&mut buffer)?;
            if Instant::now() >= end {
                return Err(DirectFailure::Timeout);
            }
            if has_received {
                continue;
            }
            let interest = match self.circuit.pending_bytes() {
                0 => PollFlags::IN,
                _ => PollFlags::IN | PollFlags::OUT,
            };
            wait(&mut [PollFd::new(&self.stream, interest)], end)?;
        }
    }

    /// Sends what can be sent and receives what has arrived; returns whether anything has.
    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<bool> {
        let read = match &mut self.tls {
            None => {
                stream::flush(&self.stream, &mut self.circuit)?;
                stream::read(&self.stream, buffer)?
            }
            Some(tls) => {
                if !self.is_secured {
                    self.is_secured = tls.handshake(&self.stream)? == HandshakeProgress::Complete;
                    if !self.is_secured {
                        return Ok(false);
                    }
                    if tls.has_own_certificate() {
                        self.circuit.use_certificate();
                    }
                }
                tls.flush(&self.stream, &mut self.circuit)?;
                tls.read(&self.stream, buffer)?
            }
        };
        let Some(n) = read else { return Ok(false) };
        self.has_greeting = true;
        let mut events = Vec::new();
        self.circuit.received(&buffer[..n], now(), &mut events);
        self.events.extend(events);
        Ok(true)
    }
}

fn circuit_config(config: &ClientConfig) -> Config {
    Config {
        priority: 0,
        user: user(config),
        host: host(),
        echo_after: config.pva.echo_after,
        payload_bytes_max: config.payload_bytes_max,
    }
}

/// Waits for one of these descriptors.
pub(super) fn wait(descriptors: &mut [PollFd<'_>], until: Instant) -> io::Result<()> {
    let left: Duration = until.saturating_duration_since(Instant::now());
    match socket::wait(descriptors, left) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
