//! The channels of a circuit, the identity of its client, and searches.

use fodo_data::Text;

use super::event::{ChannelType, CloseReason, Event, PendingReply, PendingSearch, Reply};
use super::{Circuit, NO_SUCH_CHANNEL, ORDER, ServerState, TunnelState};
use crate::cursor::ByteReader;
use crate::message::{Answer, NewChannel, Request, Subcommand};
use crate::search::{self, SearchFlags, SearchRequest};
use crate::status::{RequestStatus, StatusLevel};
use crate::validation::{self, Credentials};
use crate::{Cid, Ioid, Sid, limit};

/// The number of a channel that was not created.
const NO_CHANNEL: Sid = Sid(u32::MAX);

impl Circuit {
    /// Sets whether the client may write a channel. If not, the value of a put is dropped as it arrives; a put that has arrived
    /// completely becomes an event in any case. At first it may.
    pub fn set_may_write(&mut self, sid: Sid, may_write: bool) {
        if let Some(channel) = self.inner.channels.get_mut(sid.0 as usize) {
            channel.may_write = may_write;
        }
    }
}

impl ServerState {
    /// Whether a request writes a channel that the client may not write.
    pub(super) fn is_denied(&self, request: &Request) -> bool {
        let (Request::Put { sid, sub, .. } | Request::PutGet { sid, sub, .. }) = request else { return false };
        let is_write = !sub.contains(Subcommand::GET) && !sub.contains(Subcommand::ACK);
        is_write && self.channels.get(sid.0 as usize).is_some_and(|channel| !channel.may_write)
    }

    /// Processes a client's identity. The first valid one is final: rights depend on it.
    pub(super) fn validate(&mut self, registry_size: u16, method: &Text, reader: &mut ByteReader) {
        let credentials = Credentials::decode(method, reader, &mut self.types);
        if reader.has_failed() {
            return self.close(CloseReason::Malformed("the credentials cannot be decoded"));
        }
        let status = if self.is_validated {
            RequestStatus::error("the client is already validated")
        } else {
            self.registry_size = registry_size;
            self.identify(&credentials)
        };
        self.outbox.push(|bytes| Answer::ConnectionValidated { status }.encode(ORDER, bytes, |_| {}));
    }

    /// A client whose method is rejected may continue without an identity, the same as with pvxs.
    fn identify(&mut self, credentials: &Credentials) -> RequestStatus {
        let (user, host, method) = match credentials {
            Credentials::Anonymous => (&Text::EMPTY, &Text::EMPTY, validation::ANONYMOUS),
            Credentials::Ca { user, host } => (user, host, validation::CA),
            Credentials::Other { method, .. }
                if method.as_bytes() == validation::X509.as_bytes()
                    && self.tls == (TunnelState::Encrypted { has_certificate: true }) =>
            {
                (&Text::EMPTY, &Text::EMPTY, validation::X509)
            }
            Credentials::Other { .. } => return RequestStatus::error("the server does not offer this method"),
        };
        if user.len().max(host.len()) > limit::IDENTITY_BYTES {
            return RequestStatus::error("the user or host name is longer than 512 bytes");
        }
        self.is_validated = true;
        let (user, host) = (user.to_str().into_owned(), host.to_str().into_owned());
        self.events.push(Event::Identity { user, host, method });
        RequestStatus::OK
    }

    /// Passes on the names that may exist. Names after a fault are missing.
    pub(super) fn search(&mut self, reader: &mut ByteReader) {
        let request = SearchRequest::decode(reader);
        // As over UDP, a client that names no transport may not know TLS.
        let tls_port = self.tls_port.filter(|_| !request.protocols.is_empty() && request.accepts(search::TLS));
        let is_for_us = tls_port.is_some() || request.accepts(self.tls.transport());
        let channels = request.channels.iter().filter(|_| is_for_us);
        let names = channels.filter_map(|channel| Some((channel.cid, valid_name(channel.name)?))).collect();
        let must_reply = request.flags.contains(SearchFlags::MUST_REPLY);
        let search = PendingSearch { sequence: request.sequence, must_reply, tls_port };
        self.events.push(Event::Search { search, names });
    }

    pub(super) fn create(&mut self, channels: Vec<NewChannel>) {
        for (n_before, NewChannel { cid, name }) in channels.into_iter().enumerate() {
            if !self.has_room_for((n_before + 1) * limit::CHANNEL_BYTES) {
                self.refuse_channel(cid, "too many channels and operations for this client or its host");
                return self.exceed();
            }
            match valid_name(name.as_bytes()) {
                Some(name) => self.events.push(Event::Create { cid, name }),
                None => self.refuse_channel(cid, "the name is empty, too long or not UTF-8"),
            }
        }
    }

    pub(super) fn refuse_channel(&mut self, cid: Cid, text: &str) {
        let status = RequestStatus { level: StatusLevel::Fatal, ..RequestStatus::error(text) };
        let answer = Answer::CreateChannel { cid, sid: NO_CHANNEL, status };
        self.outbox.push(|bytes| answer.encode(ORDER, bytes, |_| {}));
    }

    /// Destroys a channel. The reply is the same if it does not exist: nothing else ends the client's wait.
    pub(super) fn clear(&mut self, sid: Sid, cid: Cid) {
        let channel = self.channels.get_mut(sid.0 as usize).filter(|channel| !channel.is_cleared);
        let exists = channel.map(|channel| channel.is_cleared = true).is_some();
        if exists {
            self.cleared.push(sid);
            let ServerState { operations, events, .. } = self;
            operations.remove_channel(sid, |request| events.push(Event::Cancel { sid, request }));
        }
        self.outbox.push(|bytes| Answer::DestroyChannel { sid, cid }.encode(ORDER, bytes, |_| {}));
        if exists {
            self.events.push(Event::Clear { sid });
        }
    }

    /// Replies to GET_FIELD.
    pub(super) fn describe(&mut self, sid: Sid, ioid: Ioid, path: &Text) {
        let status = match self.channel(sid).map(ChannelType::kind) {
            None => NO_SUCH_CHANNEL.into(),
            Some(kind) => match kind.node(&path.to_str()) {
                Some(bit) => {
                    let reply = PendingReply::Field { ioid, kind: kind.clone(), bit };
                    return self.events.push(Event::Reply(Reply(reply)));
                }
                None => format!("the PV has no field {path}"),
            },
        };
        let answer = Answer::GetField { ioid, status: RequestStatus::error(status) };
        self.outbox.push(|bytes| answer.encode(ORDER, bytes, |_| {}));
    }
}

/// A name that a PV may have; `None` if it is empty, too long or not UTF-8.
fn valid_name(name: &[u8]) -> Option<String> {
    let name = std::str::from_utf8(name).ok()?;
    (!name.is_empty() && name.len() <= limit::NAME_BYTES).then(|| name.to_owned())
}
