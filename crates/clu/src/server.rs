//! The machine of a CLU: it answers the datagrams of clients and reports values to its subscribers.
//!
//! It does no IO and runs no Lua. Its caller passes in datagrams ([`CluServer::received`]) and carries out the
//! [`ServerEvent`]s. Each event that contains a [`UnansweredRequest`] must be ended exactly once, with [`CluServer::answer`],
//! [`CluServer::confirm`] or [`CluServer::refuse`].
//!
//! **Values.** The machine does not parse `SYSTEM:clientRegister`, because only Lua knows what its arguments are. The
//! caller runs the script and passes the registrations that it made together with its value. The items of a registration
//! have the caller's own type `I`: the machine stores them, and passes them back with [`ServerEvent::Fetch`] when their
//! values are due. The caller answers with the printed list ([`CluServer::fetched`]), and the machine sends it if it
//! differs from the last one.
//!
//! **What the protocol cannot promise.** A datagram has no counter: a recorded request can be sent again and is executed
//! again. Only a recorded request under a key that is no longer valid has no effect.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fodo_data::Now;
use zeroize::{Zeroize, Zeroizing};

mod counts;
mod event;
mod flood;
mod keys;
mod subscriptions;
mod text;

pub use counts::{CluServerCounts, DropReason};
pub use event::{ServerEvent, ServerOutput, UnansweredRequest};
pub use flood::FloodLimits;
pub use subscriptions::{FetchId, RegistrationChange};

use crate::RandomSource;
use crate::cipher::{self, CHALLENGE_BYTES, CipherKey, Pin};
use crate::command::{MacAddress, Reply, Request, Serial, Session};
use crate::limit;
use crate::value::{NIL, REFUSED};
use event::ReplyKind;
use flood::FloodGuard;
use keys::{KeyKind, Keys};
use subscriptions::ServerSubscriptions;
use text::{executed_bytes, send, tolerated};

/// What a CLU is, and what it permits.
#[derive(Clone, Debug)]
pub struct CluServerConfig {
    /// Its serial number.
    pub serial: Serial,
    /// Its hardware address, for discoveries.
    pub mac: MacAddress,
    /// Its address in replies and reports.
    pub address: Ipv4Addr,
    /// The key of its project.
    pub project_key: CipherKey,
    /// The PIN on its label. Without it, the machine never has a temporary key.
    pub pin: Option<Pin>,
    /// Whether discoveries and new keys are accepted.
    pub is_commissioning: bool,
    /// The minimum time between two reports of a subscription, from 100 ms to 10 s.
    pub report_interval: Duration,
    /// How many datagrams are accepted from one address.
    pub flood_limits: FloodLimits,
}

impl CluServerConfig {
    /// A CLU that accepts only its project key, with default limits. Its hardware address is a locally administered one
    /// that contains the serial number.
    pub fn new(serial: Serial, address: Ipv4Addr, project_key: CipherKey) -> CluServerConfig {
        let [a, b, c, d] = [24, 16, 8, 0].map(|shift| (serial.0 >> shift) as u8);
        CluServerConfig {
            serial,
            mac: MacAddress([2, 0, a, b, c, d]),
            address,
            project_key,
            pin: None,
            is_commissioning: false,
            report_interval: limit::REPORT_INTERVAL_DEFAULT,
            flood_limits: FloodLimits::default(),
        }
    }
}

/// The socket on which a datagram was received. Its reply is sent from the same socket, so from the port of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerSocket {
    /// Receives datagrams to the CLU's own address.
    Unicast,
    /// Receives broadcasts.
    Broadcast,
}

/// The server of one CLU. `I`: one value of a subscription, such as the feature of an object.
///
/// ```
/// use fodo_clu::cipher::CipherKey;
/// use fodo_clu::command::{Reply, Request, Serial, Session};
/// use fodo_clu::server::{CluServer, CluServerConfig, ServerEvent, ServerOutput, ServerSocket};
/// use fodo_data::Now;
///
/// let key = CipherKey::new([1; 16], [2; 16]);
/// let config = CluServerConfig::new(Serial(0x0d0a1b2c), [10, 0, 0, 2].into(), key.clone());
/// let mut server: CluServer<String> = CluServer::new(config, Box::new(|bytes| bytes.fill(7)));
///
/// let mut request = Vec::new();
/// Request::Execute { client: None, session: Session(0xabcd), script: b"checkAlive()" }.encode(&mut request);
/// let mut datagram = Vec::new();
/// key.encrypt(&request, &mut datagram);
/// let (client, now, mut out) = (([10, 0, 0, 1], 5000).into(), Now::for_test(), ServerOutput::default());
/// server.received(ServerSocket::Unicast, client, &datagram, now, &mut out);
///
/// // The caller evaluates the script.
/// let Some(ServerEvent::Execute { reply, script }) = out.events.pop() else { panic!("no script") };
/// assert_eq!(script, "checkAlive()");
/// server.answer(reply, b"0d0a1b2c", Vec::new(), now, &mut out);
///
/// let mut buffer = Vec::new();
/// let (to, reply) = out.datagrams.iter().next().unwrap();
/// assert_eq!(to, client);
/// assert_eq!(key.decrypt(reply, &mut buffer).unwrap(), b"resp:10.0.0.2:0000abcd:0d0a1b2c");
/// ```
pub struct CluServer<I> {
    config: CluServerConfig,
    keys: Keys,
    random: RandomSource,
    flood: FloodGuard,
    subscriptions: ServerSubscriptions<I>,
    is_resetting: bool,
    counts: CluServerCounts,
    /// The memory of a decrypted datagram; overwritten after it contained a key, and when it is dropped.
    buffer: Zeroizing<Vec<u8>>,
}

/// A request with what is needed to reply to it.
struct DecryptedRequest {
    from: SocketAddr,
    socket: ServerSocket,
    key: Arc<CipherKey>,
    key_kind: KeyKind,
}

impl DecryptedRequest {
    fn pending(self, kind: ReplyKind) -> UnansweredRequest {
        UnansweredRequest { to: self.from, socket: self.socket, key: self.key, kind }
    }
}

impl<I> CluServer<I> {
    /// Creates a server.
    ///
    /// `random`: for the initialisation vector of temporary keys.
    pub fn new(config: CluServerConfig, random: RandomSource) -> CluServer<I> {
        CluServer {
            keys: Keys::new(config.project_key.clone()),
            flood: FloodGuard::new(config.flood_limits),
            subscriptions: ServerSubscriptions::new(config.report_interval),
            is_resetting: false,
            counts: CluServerCounts::default(),
            buffer: Zeroizing::default(),
            random,
            config,
        }
    }

    /// Handles a datagram.
    pub fn received(
        &mut self,
        socket: ServerSocket,
        from: SocketAddr,
        datagram: &[u8],
        now: Now,
        out: &mut ServerOutput<I>,
    ) {
        self.counts.received += 1;
        let mut buffer = std::mem::take(&mut self.buffer);
        if let Err(reason) = self.handle(socket, from, datagram, now.monotonic, &mut buffer, out) {
            self.counts.dropped(reason);
        }
        self.buffer = buffer;
    }

    fn handle(
        &mut self,
        socket: ServerSocket,
        from: SocketAddr,
        datagram: &[u8],
        now: Instant,
        buffer: &mut Vec<u8>,
        out: &mut ServerOutput<I>,
    ) -> Result<(), DropReason> {
        if !cipher::is_whole_blocks(datagram) {
            return Err(DropReason::NotWholeBlocks);
        }
        if datagram.len() > limit::DATAGRAM_BYTES_MAX {
            return Err(DropReason::TooLong);
        }
        if !self.flood.admits_request(from.ip(), now) {
            return Err(DropReason::RequestFlood);
        }
        self.keys.expire(now);
        let mut found = self.keys.find(&[KeyKind::Project], datagram, buffer);
        if found.is_none() {
            // Whoever lacks the key of the project has fewer attempts.
            if !self.flood.admits_stranger(from.ip(), now) {
                return Err(DropReason::StrangerFlood);
            }
            found = self.keys.find(&[KeyKind::Temporary, KeyKind::Broadcast], datagram, buffer);
        }
        let (key_kind, key, n_message) = found.ok_or(DropReason::NoKeyFits)?;
        let incoming = DecryptedRequest { from, socket, key, key_kind };
        let message = buffer.get(..n_message).unwrap_or_default();
        let request = Request::decode(message).or_else(|| tolerated(message));
        let has_key = matches!(request, Some(Request::SetKey { .. }));
        let handled = if socket == ServerSocket::Broadcast || key_kind == KeyKind::Broadcast {
            self.handle_public(incoming, request, now, out)
        } else {
            self.handle_unicast(incoming, request, now, out)
        };
        if has_key {
            buffer.zeroize();
        }
        handled
    }

    /// Handles a request that may be for any CLU: it was broadcast, is encrypted with the key that all installations know, or
    /// names the CLU that it is for. Only discoveries and new addresses are answered, all others are for another CLU or an
    /// attempt.
    fn handle_public(
        &mut self,
        incoming: DecryptedRequest,
        request: Option<Request<'_>>,
        now: Instant,
        out: &mut ServerOutput<I>,
    ) -> Result<(), DropReason> {
        let is_public = incoming.key_kind == KeyKind::Broadcast;
        match request {
            Some(Request::Discover { challenge, iv, .. }) if is_public => {
                self.discover(incoming, challenge, iv, now, out)
            }
            Some(Request::SetAddress { serial, address, .. }) => {
                if is_public && !self.config.is_commissioning {
                    return Err(DropReason::CommissioningOff);
                }
                if (serial, address) == (self.config.serial, self.config.address) {
                    self.reply(&incoming, &Reply::AddressSet { serial, address }, out);
                    Ok(())
                } else if incoming.socket == ServerSocket::Broadcast || is_public {
                    Err(DropReason::OtherClu)
                } else {
                    self.refuse_incoming(&incoming, out);
                    Ok(())
                }
            }
            _ => Err(DropReason::NotForBroadcast),
        }
    }

    fn handle_unicast(
        &mut self,
        incoming: DecryptedRequest,
        request: Option<Request<'_>>,
        now: Instant,
        out: &mut ServerOutput<I>,
    ) -> Result<(), DropReason> {
        let is_project = incoming.key_kind == KeyKind::Project;
        let event = match request {
            Some(Request::SetAddress { .. }) => return self.handle_public(incoming, request, now, out),
            Some(Request::SetKey { iv, key, .. }) => {
                if !self.config.is_commissioning {
                    return Err(DropReason::CommissioningOff);
                }
                let key = Arc::new(CipherKey::new(*key.0, *iv));
                ServerEvent::SetKey { reply: incoming.pending(ReplyKind::KeySet(key.clone())), key }
            }
            Some(Request::Execute { session, script, .. }) => {
                let script = std::str::from_utf8(script).map_err(|_| DropReason::NotText)?;
                if !is_project && !script.trim().eq_ignore_ascii_case(CHECK_ALIVE) {
                    self.refuse_incoming(&incoming, out);
                    return Ok(());
                }
                let script = if is_project { script } else { CHECK_ALIVE };
                ServerEvent::Execute { reply: incoming.pending(ReplyKind::Value(session)), script: script.to_string() }
            }
            Some(Request::Reset { .. }) if is_project => {
                if self.is_resetting {
                    return Err(DropReason::ResetInProgress);
                }
                self.is_resetting = true;
                ServerEvent::Reset { reply: incoming.pending(ReplyKind::Reset) }
            }
            Some(Request::StartTftp {}) if is_project => {
                ServerEvent::StartTftp { reply: incoming.pending(ReplyKind::Accepted) }
            }
            Some(Request::StopTftp {}) if is_project => {
                ServerEvent::StopTftp { reply: incoming.pending(ReplyKind::Accepted) }
            }
            Some(Request::Measure { session, parameter, .. }) if is_project => {
                let parameter = String::from_utf8_lossy(parameter).into_owned();
                ServerEvent::Measure { reply: incoming.pending(ReplyKind::Measured(session)), parameter }
            }
            Some(Request::MeasurementsRead { session, result, .. }) if is_project => {
                let clu = Some(self.config.address);
                self.reply(&incoming, &Reply::Measured { clu, session, result }, out);
                return Ok(());
            }
            _ => {
                self.refuse_incoming(&incoming, out);
                return Ok(());
            }
        };
        self.counts.waiting += 1;
        out.events.push(event);
        Ok(())
    }

    /// Answers a discovery. The proof shows to a client that knows the PIN whether this CLU has the key of its project.
    fn discover(
        &mut self,
        incoming: DecryptedRequest,
        challenge: &cipher::SealedChallenge,
        iv: &cipher::Block,
        now: Instant,
        out: &mut ServerOutput<I>,
    ) -> Result<(), DropReason> {
        let Some(pin) = self.config.pin.as_ref().filter(|_| self.config.is_commissioning) else {
            return Err(DropReason::CommissioningOff);
        };
        let temporary = self.keys.temporary(pin, now, &mut self.random);
        let challenge = self.keys.project().open(challenge).unwrap_or_else(|| {
            let mut unknown = [0; CHALLENGE_BYTES];
            (self.random)(&mut unknown);
            unknown
        });
        let proof = temporary.seal(&cipher::hash(&challenge));
        let reply =
            Reply::Discovered { proof: &proof, iv: temporary.iv(), serial: self.config.serial, mac: self.config.mac };
        let key = Arc::new(incoming.key.with_iv(*iv));
        self.reply(&DecryptedRequest { key, ..incoming }, &reply, out);
        Ok(())
    }

    fn reply(&mut self, incoming: &DecryptedRequest, reply: &Reply<'_>, out: &mut ServerOutput<I>) {
        self.counts.answered += 1;
        send(out.socket(incoming.socket), incoming.from, &incoming.key, reply);
    }

    fn refuse_incoming(&mut self, incoming: &DecryptedRequest, out: &mut ServerOutput<I>) {
        self.counts.refused += 1;
        self.reply(incoming, &Reply::Refused {}, out);
    }

    /// Sends the value of a script, and enters the registrations that it made.
    ///
    /// `value`: the printed value. A value that is too long for a datagram, and the reply to a registration that exceeds
    /// a limit, are replaced by a text that starts with `error: `.
    pub fn answer(
        &mut self,
        reply: UnansweredRequest,
        value: &[u8],
        changes: Vec<RegistrationChange<I>>,
        now: Now,
        out: &mut ServerOutput<I>,
    ) {
        let ReplyKind::Value(session) = reply.kind else {
            debug_assert!(false, "only a script has a value");
            return self.confirm(reply, now, out);
        };
        self.is_answered();
        let n_value_max = limit::COMMAND_BYTES_MAX - executed_bytes(self.config.address);
        let is_too_long = value.len() > n_value_max;
        let mut refusal = is_too_long.then(|| {
            self.counts.values_too_long += 1;
            format!("error: the value has {} bytes, and a reply has space for {n_value_max}", value.len())
        });
        for change in changes {
            // The client learns that the registration has failed, and does not expect its reports.
            if is_too_long && matches!(change, RegistrationChange::Register { .. }) {
                continue;
            }
            match self.subscriptions.apply(change, reply.to, value, now.monotonic) {
                Ok(()) => {}
                Err(reason) => {
                    self.counts.registrations_refused += 1;
                    refusal = Some(format!("error: {reason}"));
                }
            }
        }
        let clu = Some(self.config.address);
        let value = refusal.as_deref().map_or(value, str::as_bytes);
        send(out.socket(reply.socket), reply.to, &reply.key, &Reply::Executed { clu, session, value });
    }

    /// Sends that a request was carried out.
    pub fn confirm(&mut self, reply: UnansweredRequest, now: Now, out: &mut ServerOutput<I>) {
        let clu = Some(self.config.address);
        let confirmation = match &reply.kind {
            ReplyKind::Value(_) => return self.answer(reply, NIL, Vec::new(), now, out),
            ReplyKind::Accepted => Reply::Accepted {},
            ReplyKind::Reset => {
                self.is_resetting = false;
                self.keys.end_temporary();
                Reply::Reset { clu }
            }
            ReplyKind::Measured(session) => Reply::Measured { clu, session: *session, result: b"ok" },
            ReplyKind::KeySet(key) => {
                self.keys.set_project(key.clone());
                self.counts.keys_set += 1;
                self.is_answered();
                return send(out.socket(reply.socket), reply.to, key, &Reply::Accepted {});
            }
        };
        self.is_answered();
        send(out.socket(reply.socket), reply.to, &reply.key, &confirmation);
    }

    /// Sends that a request could not be carried out, for example because a queue is full. The refusal of a script under the
    /// key of the project contains the session, see [`REFUSED`].
    pub fn refuse(&mut self, reply: UnansweredRequest, out: &mut ServerOutput<I>) {
        if matches!(reply.kind, ReplyKind::Reset) {
            self.is_resetting = false;
        }
        self.is_answered();
        self.counts.refused += 1;
        let refusal = match reply.kind {
            // Earlier requests of this client may still be answered, so the refusal names its session.
            ReplyKind::Value(session) if *reply.key == *self.keys.project() => {
                Reply::Executed { clu: Some(self.config.address), session, value: REFUSED }
            }
            _ => Reply::Refused {},
        };
        send(out.socket(reply.socket), reply.to, &reply.key, &refusal);
    }

    fn is_answered(&mut self) {
        self.counts.waiting = self.counts.waiting.saturating_sub(1);
        self.counts.answered += 1;
    }

    /// Accepts the values of a subscription, and reports them if they have changed.
    ///
    /// `list`: the printed list, `{27,"on"}`.
    pub fn fetched(&mut self, fetch: FetchId, list: &[u8], now: Now, out: &mut ServerOutput<I>) {
        let Some((to, client_id)) = self.subscriptions.fetched(fetch, list, now.monotonic, &mut self.counts) else {
            return;
        };
        let value = [format!("clientReport:{client_id}:").as_bytes(), list].concat();
        let clu = Some(self.config.address);
        if value.len() + executed_bytes(self.config.address) > limit::COMMAND_BYTES_MAX {
            self.counts.reports_too_long += 1;
            return;
        }
        self.counts.reports += 1;
        let report = Reply::Executed { clu, session: Session::UPDATE, value: &value };
        send(&mut out.datagrams, to, self.keys.project(), &report);
    }

    /// Notifies the server that the values of a subscription cannot be read now, for example because a queue is full. It fetches
    /// them again after an interval.
    pub fn not_fetched(&mut self, fetch: FetchId, now: Now) {
        self.subscriptions.not_fetched(fetch, now.monotonic, &mut self.counts);
    }

    /// Notifies the server that values may have changed, so that it fetches those of subscriptions whose interval has
    /// passed, instead of at the end of the next one. Without this call, it fetches the values once in each interval.
    pub fn values_changed(&mut self, now: Now, out: &mut ServerOutput<I>) {
        self.subscriptions.values_changed(now.monotonic);
        self.tick(now, out);
    }

    /// Does what is due.
    pub fn tick(&mut self, now: Now, out: &mut ServerOutput<I>) {
        self.keys.expire(now.monotonic);
        self.subscriptions.tick(now.monotonic, &mut self.counts, |fetch, items| {
            out.events.push(ServerEvent::Fetch { fetch, items });
        });
    }

    /// When to call [`CluServer::tick`] at the latest.
    pub fn deadline(&self) -> Option<Instant> {
        [self.keys.deadline(), self.subscriptions.deadline()].into_iter().flatten().min()
    }

    /// The key of the project, for peers of this CLU.
    pub fn project_key(&self) -> &CipherKey {
        self.keys.project()
    }

    /// The number of subscriptions.
    pub fn n_subscriptions(&self) -> usize {
        self.subscriptions.len()
    }

    /// The number of addresses for which the flood limits have a state; at most [`limit::FLOOD_SOURCES_MAX`].
    pub fn n_sources(&self) -> usize {
        self.flood.n_sources()
    }

    /// What happened since the start.
    pub fn counts(&self) -> &CluServerCounts {
        &self.counts
    }
}

/// The expression that clients without the key of the project may evaluate.
const CHECK_ALIVE: &str = "checkAlive()";
