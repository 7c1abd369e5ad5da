//! The machine of a client of one CLU: requests, subscriptions and availability.
//!
//! Each request ends exactly once, see [`RequestOutcome`]. Requests with a session are sent without waiting for each other, up
//! to the configured number; each of the others, such as [`CluRequest::Reset`], is sent alone, because a reply that
//! refuses a request does not contain which one.

mod availability;
mod counts;
mod discovery;
mod reply;
mod requests;
mod subscriptions;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use fodo_data::{Now, Scalar, Text};

pub use availability::Availability;
pub use counts::ClientCounts;
pub use discovery::{DiscoveredClu, Discovery, DiscoveryCounts, KeyMatch, broadcast_address_request};
pub use requests::RequestId;
pub use subscriptions::CluSubscription;

use crate::cipher::CipherKey;
use crate::command::{Request, SecretKey, Serial};
use crate::script::{self, CluItem, ReportTarget};
use crate::{OutgoingDatagrams, RandomSource, limit};
use availability::AliveCheck;
use requests::{NewRequest, ReplyForm, RequestPurpose, Requests, Resend};
use subscriptions::PagedSubscriptions;

/// What a client needs to know of itself and of its CLU.
#[derive(Clone, Debug)]
pub struct CluClientConfig {
    /// The key of the project.
    pub key: CipherKey,
    /// Where requests are sent. Replies may come from any port of this address.
    pub clu: SocketAddr,
    /// The client's address, as the CLU can reach it. Each request contains it, because some CLUs require it.
    pub own_address: Ipv4Addr,
    /// Where the CLU sends updates: usually `own_address` with the port of the socket that sends the requests.
    pub report_target: ReportTarget,
    /// The serial number. If it is known, a CLU with another one at the same address counts as unavailable.
    pub serial: Option<Serial>,
    /// How long a request waits for its reply, with the time before it was sent ([`limit::REQUEST_TIMEOUT`]).
    pub timeout: Duration,
    /// How many requests are sent before a reply ([`limit::IN_FLIGHT_DEFAULT`]), at most [`limit::IN_FLIGHT_MAX`].
    pub in_flight_max: usize,
    /// Whether the client sends checkAlive periodically. Without it, [`Availability`] stays unknown and subscriptions do not
    /// wait for the CLU to be available.
    pub checks_availability: bool,
}

impl CluClientConfig {
    /// A configuration with the default limits, for a socket with this port.
    pub fn new(key: CipherKey, clu: SocketAddr, own_address: Ipv4Addr, own_port: u16) -> CluClientConfig {
        CluClientConfig {
            key,
            clu,
            own_address,
            report_target: ReportTarget::Address(own_address, own_port),
            serial: None,
            timeout: limit::REQUEST_TIMEOUT,
            in_flight_max: limit::IN_FLIGHT_DEFAULT,
            checks_availability: true,
        }
    }
}

/// A request. The comment of each variant says whether it is sent again while there is no reply.
#[derive(Clone, Debug)]
pub enum CluRequest<'a> {
    /// Requests a sign of life; sent again.
    CheckAlive,
    /// Evaluates an expression of Lua, which may have effects; sent once.
    Execute(&'a str),
    /// Evaluates an expression of Lua without effects, or whose effects may happen several times; sent again.
    ExecuteRepeatedly(&'a str),
    /// Requests a value; sent again.
    Get(&'a CluItem),
    /// Changes a value; sent once.
    Set(&'a CluItem, &'a Scalar),
    /// Calls a method of an object; sent once.
    Call {
        /// The name of the object in Lua.
        object: &'a str,
        /// The index of the method.
        method: u32,
        /// The arguments.
        arguments: &'a [Scalar],
    },
    /// Requests several values; sent again.
    Fetch(&'a [CluItem]),
    /// Replaces the key of the CLU; sent once. After the confirmation this client uses the new key. If the request times
    /// out, the CLU may have either key: check with a client for each.
    SetKey(&'a CipherKey),
    /// Gives the CLU with this serial number another address; sent once. After the confirmation this client uses the new
    /// address.
    SetAddress {
        /// The serial number.
        serial: Serial,
        /// The new address, in a network of 24 bits.
        address: Ipv4Addr,
        /// The router of that network.
        gateway: Ipv4Addr,
    },
    /// Starts the scripts again; sent once.
    Reset,
    /// Starts the TFTP server; sent again.
    StartTftp,
    /// Stops the TFTP server; sent again.
    StopTftp,
}

/// How a request ended.
#[derive(Clone, Debug, PartialEq)]
pub enum RequestOutcome {
    /// The CLU answered.
    Answered(Answer),
    /// The value is `nil`, or the expression failed: a CLU does not distinguish them.
    Nil,
    /// The reply does not have the form that the request requires, or another CLU sent it.
    Wrong(Text),
    /// The CLU refused the request, or does not know it. A refusal without a session ends a request only if it is the only one
    /// in flight; otherwise the refused one times out.
    Refused,
    /// There was no reply in time.
    TimedOut {
        /// Whether the request was sent, so that it may have had effects.
        was_sent: bool,
    },
    /// The caller cancelled it.
    Cancelled,
}

/// The contents of a reply.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// The text of a value; [`crate::value::parse_value`] returns its type.
    Text(Text),
    /// The values of [`CluRequest::Fetch`], as many as were requested.
    Values(Vec<Option<Scalar>>),
    /// A confirmation.
    Accepted,
}

/// Why a request was not accepted. It was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubmitError {
    /// The command has more bytes than a CLU accepts, [`limit::COMMAND_BYTES_MAX`].
    TooLong {
        /// Its size.
        bytes: usize,
    },
    /// As many requests as [`limit::REQUESTS_MAX`] wait.
    QueueFull,
    /// As many registrations as [`limit::PAGES_MAX`] exist.
    TooManySubscriptions,
    /// The name of an object is not a name in Lua.
    InvalidName,
    /// The client was closed.
    Closed,
}

impl std::fmt::Display for SubmitError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SubmitError::TooLong { bytes } => {
                write!(f, "the command has {bytes} bytes; a CLU accepts at most {}", limit::COMMAND_BYTES_MAX)
            }
            SubmitError::QueueFull => write!(f, "{} requests to this CLU already wait", limit::REQUESTS_MAX),
            SubmitError::TooManySubscriptions => {
                write!(f, "the client has the maximum of {} registrations at this CLU", limit::PAGES_MAX)
            }
            SubmitError::InvalidName => f.write_str("the name of an object must be a name in Lua"),
            SubmitError::Closed => f.write_str("the connection to the CLU was closed"),
        }
    }
}

impl std::error::Error for SubmitError {}

/// What happened.
#[derive(Clone, Debug, PartialEq)]
pub enum ClientEvent {
    /// A request ended; it has no further events.
    Ended {
        /// The request.
        request: RequestId,
        /// How it ended.
        outcome: RequestOutcome,
    },
    /// The values of consecutive items of a subscription, whether or not they changed.
    Update {
        /// The subscription.
        subscription: CluSubscription,
        /// The index of the item of the first value.
        first: usize,
        /// The values; `None` is `nil`.
        values: Vec<Option<Scalar>>,
    },
    /// The CLU does not report an item of a subscription, although it is available: it does not know the item, the value is too
    /// long for a report, or registrations fail repeatedly. The last value is out of date. The item is registered again after
    /// 5 or 45 s.
    Missing {
        /// The subscription.
        subscription: CluSubscription,
        /// The index of the item.
        index: usize,
    },
    /// The availability changed.
    Availability(Availability),
}

/// The outputs of a client; the caller empties both and reuses the memory.
#[derive(Debug, Default)]
pub struct ClientOutput {
    /// What to send.
    pub datagrams: OutgoingDatagrams,
    /// What happened, in order.
    pub events: Vec<ClientEvent>,
}

/// The client of one CLU.
///
/// ```
/// use fodo_clu::cipher::CipherKey;
/// use fodo_clu::client::{Answer, ClientEvent, ClientOutput, CluClient, CluClientConfig, CluRequest, RequestOutcome};
/// use fodo_clu::command::{Reply, Request};
/// use fodo_data::Now;
///
/// let key = CipherKey::new([1; 16], [2; 16]);
/// let clu = ([10, 0, 0, 2], 1234).into();
/// let mut config = CluClientConfig::new(key.clone(), clu, [10, 0, 0, 1].into(), 4344);
/// config.checks_availability = false;
/// let now = Now::for_test();
/// let mut client = CluClient::new(config, Box::new(|bytes| bytes.fill(7)), now);
///
/// let mut out = ClientOutput::default();
/// let request = client.submit(CluRequest::Execute("1+1"), now, &mut out)?;
///
/// // The CLU decrypts the request and answers it.
/// let (_, datagram) = out.datagrams.iter().next().unwrap();
/// let mut buffer = Vec::new();
/// let Some(Request::Execute { session, script, .. }) = Request::decode(key.decrypt(datagram, &mut buffer).unwrap())
/// else {
///     panic!("not a request to execute");
/// };
/// assert_eq!(script, b"1+1");
/// let mut reply = Vec::new();
/// Reply::Executed { clu: None, session, value: b"2" }.encode(&mut reply);
/// let mut datagram = Vec::new();
/// key.encrypt(&reply, &mut datagram);
///
/// client.received(clu, &datagram, now, &mut out);
/// let outcome = RequestOutcome::Answered(Answer::Text("2".into()));
/// assert_eq!(out.events, [ClientEvent::Ended { request, outcome }]);
/// # Ok::<(), fodo_clu::client::SubmitError>(())
/// ```
pub struct CluClient {
    config: CluClientConfig,
    requests: Requests,
    subscriptions: PagedSubscriptions,
    alive: AliveCheck,
    counts: ClientCounts,
    /// When [`CluClient::tick`] has something to do, or earlier.
    wake_at: Option<Instant>,
    /// The memory of a decrypted datagram.
    buffer: Vec<u8>,
    /// The memory of a script.
    script: Vec<u8>,
    is_closed: bool,
}

impl CluClient {
    /// Creates a client. Its first checkAlive is due immediately ([`CluClient::tick`]).
    ///
    /// `random`: for the sessions of requests, which should not be predictable.
    pub fn new(config: CluClientConfig, random: RandomSource, now: Now) -> CluClient {
        CluClient {
            requests: Requests::new(random, config.in_flight_max.clamp(1, limit::IN_FLIGHT_MAX)),
            subscriptions: PagedSubscriptions::default(),
            alive: AliveCheck::new(now.monotonic),
            counts: ClientCounts::default(),
            wake_at: config.checks_availability.then_some(now.monotonic),
            buffer: Vec::new(),
            script: Vec::new(),
            is_closed: false,
            config,
        }
    }

    /// Starts a request; it ends with [`ClientEvent::Ended`].
    pub fn submit(
        &mut self,
        request: CluRequest<'_>,
        now: Now,
        out: &mut ClientOutput,
    ) -> Result<RequestId, SubmitError> {
        self.submit_timeout(request, self.config.timeout, now, out)
    }

    /// As [`CluClient::submit`], with another timeout than that of the configuration.
    pub fn submit_timeout(
        &mut self,
        request: CluRequest<'_>,
        timeout: Duration,
        now: Now,
        out: &mut ClientOutput,
    ) -> Result<RequestId, SubmitError> {
        if self.is_closed {
            return Err(SubmitError::Closed);
        }
        let mut script = std::mem::take(&mut self.script);
        script.clear();
        let ends_at = now.monotonic + timeout.min(limit::REQUEST_TIMEOUT_MAX);
        let submitted = self.submit_with(request, &mut script, ends_at, now, out);
        self.script = script;
        submitted
    }

    fn submit_with(
        &mut self,
        request: CluRequest<'_>,
        script: &mut Vec<u8>,
        ends_at: Instant,
        now: Now,
        out: &mut ClientOutput,
    ) -> Result<RequestId, SubmitError> {
        let client = Some(self.config.own_address);
        let sealed;
        // Without a command, the request is to execute the script.
        let (command, expected, resend) = match request {
            CluRequest::CheckAlive => {
                script.extend_from_slice(availability::CHECK_ALIVE);
                (None, ReplyForm::SignOfLife, Resend::Safe)
            }
            CluRequest::Execute(text) => {
                script.extend_from_slice(text.as_bytes());
                (None, ReplyForm::Text, Resend::Never)
            }
            CluRequest::ExecuteRepeatedly(text) => {
                script.extend_from_slice(text.as_bytes());
                (None, ReplyForm::Text, Resend::Safe)
            }
            CluRequest::Get(item) => {
                item.write_get(script);
                (None, ReplyForm::Text, Resend::Safe)
            }
            CluRequest::Set(item, value) => {
                item.write_set(value, script);
                (None, ReplyForm::Text, Resend::Never)
            }
            CluRequest::Call { object, method, arguments } => {
                script::write_call(object, method, arguments, script).ok_or(SubmitError::InvalidName)?;
                (None, ReplyForm::Text, Resend::Never)
            }
            CluRequest::Fetch(items) => {
                script::write_fetch(items, script);
                (None, ReplyForm::Values(items.len()), Resend::Safe)
            }
            CluRequest::SetKey(key) => {
                sealed = key.seal(&self.requests.challenge());
                let command = Request::SetKey { challenge: &sealed, iv: key.iv(), key: SecretKey(key.key()) };
                (Some(command), ReplyForm::NewKey(Box::new(key.clone())), Resend::Never)
            }
            CluRequest::SetAddress { serial, address, gateway } => {
                let command = Request::SetAddress { serial, address, gateway };
                (Some(command), ReplyForm::AddressSet(serial, address), Resend::Never)
            }
            CluRequest::Reset => (Some(Request::Reset { client }), ReplyForm::Reset, Resend::Never),
            CluRequest::StartTftp => (Some(Request::StartTftp {}), ReplyForm::Accepted, Resend::Safe),
            CluRequest::StopTftp => (Some(Request::StopTftp {}), ReplyForm::Accepted, Resend::Safe),
        };
        let id = self.requests.new_id();
        let (command, session) = match command {
            Some(command) => (command, requests::NO_SESSION),
            None => {
                let session = self.requests.new_session();
                (Request::Execute { client, session, script }, session)
            }
        };
        let new = NewRequest { command, session, purpose: RequestPurpose::User(id), expected, resend, ends_at };
        self.enqueue(new, now, out).map(|()| id)
    }

    fn enqueue(&mut self, new: NewRequest<'_>, now: Now, out: &mut ClientOutput) -> Result<(), SubmitError> {
        self.wake_by(new.ends_at);
        self.requests.enqueue(new)?;
        self.counts.submitted += 1;
        self.send_waiting(now, out);
        Ok(())
    }

    /// Ends a request with [`RequestOutcome::Cancelled`]. Its effects, if any, are not undone. Does nothing if it has ended.
    pub fn cancel(&mut self, request: RequestId, now: Now, out: &mut ClientOutput) {
        if let Some(index) = self.requests.index_of(request) {
            self.requests.remove_from_queue(|queued| queued == index);
            self.end(index, RequestOutcome::Cancelled, now, out);
            self.send_waiting(now, out);
        }
    }

    /// Subscribes to items. Their values are reported with [`ClientEvent::Update`], in pages.
    pub fn subscribe(
        &mut self,
        items: Vec<CluItem>,
        now: Now,
        out: &mut ClientOutput,
    ) -> Result<CluSubscription, SubmitError> {
        if self.is_closed {
            return Err(SubmitError::Closed);
        }
        let subscription = self.subscriptions.add(items, now.monotonic, &mut self.requests)?;
        self.wake_by(now.monotonic);
        self.tick(now, out);
        Ok(subscription)
    }

    /// Ends a subscription, also in the CLU. Does nothing if it has ended.
    pub fn unsubscribe(&mut self, subscription: CluSubscription, now: Now, out: &mut ClientOutput) {
        for client_id in self.subscriptions.remove(subscription) {
            self.destroy(client_id, now);
        }
        self.send_waiting(now, out);
    }

    /// Ends a registration in the CLU.
    fn destroy(&mut self, client_id: u32, now: Now) {
        let mut script = Vec::new();
        script::write_destroy(self.config.report_target, client_id, &mut script);
        // If the queue is full, the registration expires.
        let _ = self.submit_internal(&script, RequestPurpose::Destroy, ReplyForm::Text, Resend::Safe, now);
    }

    /// Adds a request of the client itself to the queue.
    fn submit_internal(
        &mut self,
        script: &[u8],
        purpose: RequestPurpose,
        expected: ReplyForm,
        resend: Resend,
        now: Now,
    ) -> Result<(), SubmitError> {
        let session = self.requests.new_session();
        let command = Request::Execute { client: Some(self.config.own_address), session, script };
        let ends_at = now.monotonic + self.config.timeout.min(limit::REQUEST_TIMEOUT_MAX);
        self.wake_by(ends_at);
        self.requests.enqueue(NewRequest { command, session, purpose, expected, resend, ends_at })?;
        self.counts.submitted += 1;
        Ok(())
    }

    /// Performs actions that are due at `now`.
    pub fn tick(&mut self, now: Now, out: &mut ClientOutput) {
        if self.wake_at.is_none_or(|at| now.monotonic < at) {
            return;
        }
        let overdue = self.requests.overdue(now.monotonic);
        self.requests.remove_from_queue(|queued| overdue.contains(&queued));
        for index in overdue {
            let was_sent = self.requests.was_sent(index);
            self.end(index, RequestOutcome::TimedOut { was_sent }, now, out);
        }
        let n_resent = self.requests.resend(now.monotonic, &self.config, &mut out.datagrams);
        self.counts.resent += n_resent;
        self.counts.datagrams_sent += n_resent;
        self.check_alive(now, out);
        self.register_due_pages(now);
        self.send_waiting(now, out);
        self.wake_at =
            [self.requests.deadline(), self.alive_deadline(), self.pages_deadline()].into_iter().flatten().min();
    }

    /// The latest time to call [`CluClient::tick`].
    pub fn deadline(&self) -> Option<Instant> {
        self.wake_at
    }

    /// Ends all requests as cancelled and all subscriptions, also in the CLU. The client does nothing afterwards.
    pub fn close(&mut self, now: Now, out: &mut ClientOutput) {
        let registered = self.subscriptions.clear();
        self.requests.remove_from_queue(|_| true);
        for index in self.requests.indices() {
            self.end(index, RequestOutcome::Cancelled, now, out);
        }
        for client_id in registered {
            let mut script = Vec::new();
            script::write_destroy(self.config.report_target, client_id, &mut script);
            let session = self.requests.new_session();
            let command = Request::Execute { client: Some(self.config.own_address), session, script: &script };
            let mut bytes = Vec::new();
            command.encode(&mut bytes);
            out.datagrams.push(self.config.clu, |datagram| self.config.key.encrypt(&bytes, datagram));
            self.counts.submitted += 1;
            self.counts.cancelled += 1;
            self.counts.datagrams_sent += 1;
        }
        self.config.checks_availability = false;
        self.wake_at = None;
        self.is_closed = true;
    }

    /// What happened so far, in numbers.
    pub fn counts(&self) -> ClientCounts {
        ClientCounts { pending: self.requests.len() as u64, ..self.counts }
    }

    /// Whether the CLU answers.
    pub fn availability(&self) -> Availability {
        self.alive.availability()
    }

    /// The time from the last checkAlive to its reply; `None` before the first reply.
    pub fn round_trip(&self) -> Option<Duration> {
        self.alive.round_trip()
    }

    /// The address of the CLU.
    pub fn clu(&self) -> SocketAddr {
        self.config.clu
    }

    /// Sends requests of the queue as far as replies are awaited for less than the configured number.
    fn send_waiting(&mut self, now: Now, out: &mut ClientOutput) {
        let (n_sent, wake_at) = self.requests.send_waiting(now.monotonic, &self.config, &mut out.datagrams);
        self.counts.datagrams_sent += n_sent;
        if let Some(at) = wake_at {
            self.wake_by(at);
        }
    }

    /// Ends a request, which must not be in the queue.
    fn end(&mut self, index: usize, outcome: RequestOutcome, now: Now, out: &mut ClientOutput) {
        let Some(ended) = self.requests.remove(index, &outcome) else { return };
        self.counts.ended(&outcome);
        if ended.is_exclusive {
            // checkAlive may have waited for it.
            self.wake_by(now.monotonic);
        }
        match ended.purpose {
            RequestPurpose::User(request) => out.events.push(ClientEvent::Ended { request, outcome }),
            RequestPurpose::CheckAlive => self.alive_ended(&outcome, ended.sent_at, now, out),
            RequestPurpose::Register(client_id) => self.register_ended(client_id, outcome, now, out),
            RequestPurpose::Destroy => {}
        }
    }

    fn wake_by(&mut self, at: Instant) {
        self.wake_at = Some(self.wake_at.map_or(at, |earlier| earlier.min(at)));
    }
}
