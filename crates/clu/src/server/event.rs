//! What a server requests from its caller, and what it sends.

use std::net::SocketAddr;
use std::sync::Arc;

use super::{FetchId, ServerSocket};
use crate::OutgoingDatagrams;
use crate::cipher::CipherKey;
use crate::command::Session;

/// What the caller must do.
#[derive(Debug)]
pub enum ServerEvent<I> {
    /// Evaluate an expression of Lua, then call [`CluServer::answer`](super::CluServer::answer).
    Execute {
        /// For the value.
        reply: UnansweredRequest,
        /// The expression.
        script: String,
    },
    /// Read the values of a subscription, then call [`CluServer::fetched`](super::CluServer::fetched) or
    /// [`CluServer::not_fetched`](super::CluServer::not_fetched).
    Fetch {
        /// For the values.
        fetch: FetchId,
        /// What to read, as registered.
        items: Arc<[I]>,
    },
    /// Stop all objects, start the scripts again, then confirm.
    Reset {
        /// For the confirmation.
        reply: UnansweredRequest,
    },
    /// Start the TFTP server for the address of the client, then confirm.
    StartTftp {
        /// For the confirmation.
        reply: UnansweredRequest,
    },
    /// Stop the TFTP server, then confirm.
    StopTftp {
        /// For the confirmation.
        reply: UnansweredRequest,
    },
    /// Write the measurements to their file, start the TFTP server for the address of the client, then confirm.
    Measure {
        /// For the confirmation.
        reply: UnansweredRequest,
        /// The field after the session of the request.
        parameter: String,
    },
    /// Store a new key of the project, then confirm. The confirmation puts the key into effect, so that a key that could
    /// not be stored is refused and the old one stays valid.
    SetKey {
        /// For the confirmation, which is encrypted with the new key.
        reply: UnansweredRequest,
        /// The key.
        key: Arc<CipherKey>,
    },
}

/// A request that has no reply yet.
#[derive(Debug)]
pub struct UnansweredRequest {
    pub(super) to: SocketAddr,
    pub(super) socket: ServerSocket,
    pub(super) key: Arc<CipherKey>,
    pub(super) kind: ReplyKind,
}

impl UnansweredRequest {
    /// The client.
    pub fn client(&self) -> SocketAddr {
        self.to
    }

    /// The session of the request; [`Session::UPDATE`] for requests that have none.
    pub fn session(&self) -> Session {
        match self.kind {
            ReplyKind::Value(session) | ReplyKind::Measured(session) => session,
            ReplyKind::Accepted | ReplyKind::Reset | ReplyKind::KeySet(_) => Session::UPDATE,
        }
    }
}

/// The form of a reply to a request that succeeded.
#[derive(Debug)]
pub(super) enum ReplyKind {
    Value(Session),
    Accepted,
    Reset,
    Measured(Session),
    /// With this key, which then becomes the key of the project.
    KeySet(Arc<CipherKey>),
}

/// The outputs of a server; the caller empties all of them and reuses the memory.
#[derive(Debug)]
pub struct ServerOutput<I> {
    /// What to send from the unicast socket.
    pub datagrams: OutgoingDatagrams,
    /// What to send from the broadcast socket, to one client each.
    pub broadcast_replies: OutgoingDatagrams,
    /// What to do, in order.
    pub events: Vec<ServerEvent<I>>,
}

impl<I> Default for ServerOutput<I> {
    fn default() -> ServerOutput<I> {
        ServerOutput {
            datagrams: OutgoingDatagrams::default(),
            broadcast_replies: OutgoingDatagrams::default(),
            events: Vec::new(),
        }
    }
}

impl<I> ServerOutput<I> {
    pub(super) fn socket(&mut self, socket: ServerSocket) -> &mut OutgoingDatagrams {
        match socket {
            ServerSocket::Unicast => &mut self.datagrams,
            ServerSocket::Broadcast => &mut self.broadcast_replies,
        }
    }
}
