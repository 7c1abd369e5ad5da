//! The requests that wait or are in flight.

use std::collections::{HashMap, VecDeque};
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use slab::Slab;
use zeroize::Zeroizing;

use super::{CluClientConfig, RequestOutcome, SubmitError};
use crate::cipher::{CHALLENGE_BYTES, Challenge, CipherKey};
use crate::command::{Request, Serial, Session};
use crate::{OutgoingDatagrams, RandomSource, limit};

/// A request of a client; no two requests have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(u64);

/// In place of a session, for commands that have none. Such a command is sent alone.
pub(super) const NO_SESSION: Session = Session(0);

/// Who needs the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestPurpose {
    User(RequestId),
    CheckAlive,
    /// The registration with this client id.
    Register(u32),
    /// The end of a registration, whose reply is not needed.
    Destroy,
}

/// The form of the reply.
#[derive(Clone, Debug)]
pub(super) enum ReplyForm {
    Text,
    SignOfLife,
    Values(usize),
    /// A report with this client id.
    Report(u32),
    Accepted,
    Reset,
    AddressSet(Serial, Ipv4Addr),
    /// A confirmation, encrypted with this key.
    NewKey(Box<CipherKey>),
}

/// Whether a request may be sent again while there is no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Resend {
    Never,
    Safe,
}

/// A request to add.
pub(super) struct NewRequest<'a> {
    pub(super) command: Request<'a>,
    pub(super) session: Session,
    pub(super) purpose: RequestPurpose,
    pub(super) expected: ReplyForm,
    pub(super) resend: Resend,
    pub(super) ends_at: Instant,
}

struct ActiveRequest {
    /// Before encryption; may contain a key.
    command: Zeroizing<Vec<u8>>,
    session: Session,
    purpose: RequestPurpose,
    expected: ReplyForm,
    resend: Resend,
    ends_at: Instant,
    /// `None` while it is in the queue.
    sent: Option<Transmission>,
}

struct Transmission {
    at: Instant,
    /// When it is sent again, and the time to the resend after that.
    again: Option<(Instant, Duration)>,
    was_resent: bool,
}

/// What remains of a request.
pub(super) struct EndedRequest {
    pub(super) purpose: RequestPurpose,
    pub(super) sent_at: Option<Instant>,
    pub(super) is_exclusive: bool,
}

/// What further replies to an ended request are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FurtherReply {
    Late,
    Repeated,
}

/// How many buffers of ended requests are kept.
const SPARE_BUFFERS: usize = 64;

pub(super) struct Requests {
    random: RandomSource,
    in_flight_max: usize,
    pending: Slab<ActiveRequest>,
    by_session: HashMap<Session, usize>,
    /// Requests that were not sent, in order.
    queue: VecDeque<usize>,
    /// The request in flight that has no session.
    exclusive: Option<usize>,
    n_in_flight: usize,
    /// The newest ended requests to which a further reply is possible.
    ended: VecDeque<(Session, FurtherReply)>,
    n_ids: u64,
    spare: Vec<Zeroizing<Vec<u8>>>,
}

impl Requests {
    pub(super) fn new(random: RandomSource, in_flight_max: usize) -> Requests {
        Requests {
            random,
            in_flight_max,
            pending: Slab::new(),
            by_session: HashMap::new(),
            queue: VecDeque::new(),
            exclusive: None,
            n_in_flight: 0,
            ended: VecDeque::new(),
            n_ids: 0,
            spare: Vec::new(),
        }
    }

    pub(super) fn new_id(&mut self) -> RequestId {
        self.n_ids += 1;
        RequestId(self.n_ids)
    }

    pub(super) fn random_u32(&mut self) -> u32 {
        let mut bytes = [0; 4];
        (self.random)(&mut bytes);
        bytes.iter().fold(0, |number, byte| number << 8 | u32::from(*byte))
    }

    pub(super) fn challenge(&mut self) -> Challenge {
        let mut challenge = [0; CHALLENGE_BYTES];
        (self.random)(&mut challenge);
        challenge
    }

    /// A session that no request has, and none of the remembered ones had.
    pub(super) fn new_session(&mut self) -> Session {
        let mut session = Session(self.random_u32());
        while session == NO_SESSION || self.by_session.contains_key(&session) || self.further_reply(session).is_some() {
            session = Session(session.0.wrapping_add(1));
        }
        session
    }

    /// Adds a request to the end of the queue.
    pub(super) fn enqueue(&mut self, new: NewRequest<'_>) -> Result<(), SubmitError> {
        if self.pending.len() >= limit::REQUESTS_MAX {
            return Err(SubmitError::QueueFull);
        }
        let index = self.insert(new)?;
        self.queue.push_back(index);
        Ok(())
    }

    /// Adds a request with a session and sends it before those of the queue.
    pub(super) fn send_at_once(
        &mut self,
        new: NewRequest<'_>,
        now: Instant,
        config: &CluClientConfig,
        out: &mut OutgoingDatagrams,
    ) -> Result<(), SubmitError> {
        let index = self.insert(new)?;
        self.send(index, now, config, out);
        Ok(())
    }

    fn insert(&mut self, new: NewRequest<'_>) -> Result<usize, SubmitError> {
        let NewRequest { command, session, purpose, expected, resend, ends_at } = new;
        let mut bytes = self.spare.pop().unwrap_or_default();
        command.encode(&mut bytes);
        if bytes.len() > limit::COMMAND_BYTES_MAX {
            return Err(SubmitError::TooLong { bytes: bytes.len() });
        }
        let request = ActiveRequest { command: bytes, session, purpose, expected, resend, ends_at, sent: None };
        let index = self.pending.insert(request);
        if session != NO_SESSION {
            self.by_session.insert(session, index);
        }
        Ok(index)
    }

    /// Sends requests of the queue as far as possible. Returns how many, and when the first of them is due again.
    pub(super) fn send_waiting(
        &mut self,
        now: Instant,
        config: &CluClientConfig,
        out: &mut OutgoingDatagrams,
    ) -> (u64, Option<Instant>) {
        let (mut n_sent, mut first_due) = (0, None::<Instant>);
        while let Some(index) = self.queue.front().copied() {
            let is_exclusive = self.pending.get(index).is_some_and(|request| request.session == NO_SESSION);
            let n_most = if is_exclusive { 1 } else { self.in_flight_max };
            if self.exclusive.is_some() || self.n_in_flight >= n_most {
                break;
            }
            self.queue.pop_front();
            if is_exclusive {
                self.exclusive = Some(index);
            }
            if let Some(due) = self.send(index, now, config, out) {
                first_due = Some(first_due.map_or(due, |first| first.min(due)));
            }
            n_sent += 1;
        }
        (n_sent, first_due)
    }

    /// Sends a request for the first time. Returns when it is sent again.
    fn send(
        &mut self,
        index: usize,
        now: Instant,
        config: &CluClientConfig,
        out: &mut OutgoingDatagrams,
    ) -> Option<Instant> {
        let request = self.pending.get_mut(index)?;
        out.push(config.clu, |bytes| config.key.encrypt(&request.command, bytes));
        let again = (request.resend == Resend::Safe).then(|| (now + limit::RESEND_AFTER, 2 * limit::RESEND_AFTER));
        request.sent = Some(Transmission { at: now, again, was_resent: false });
        self.n_in_flight += 1;
        again.map(|(at, _)| at)
    }

    /// Sends again what is due. Returns the number of datagrams.
    pub(super) fn resend(&mut self, now: Instant, config: &CluClientConfig, out: &mut OutgoingDatagrams) -> u64 {
        let mut n_resent = 0;
        for (_, request) in &mut self.pending {
            let Some(sent) = &mut request.sent else { continue };
            let Some((_, delay)) = sent.again.filter(|(at, _)| *at <= now) else { continue };
            out.push(config.clu, |bytes| config.key.encrypt(&request.command, bytes));
            sent.again = Some((now + delay, 2 * delay));
            sent.was_resent = true;
            n_resent += 1;
        }
        n_resent
    }

    /// Removes a request, which must not be in the queue.
    pub(super) fn remove(&mut self, index: usize, outcome: &RequestOutcome) -> Option<EndedRequest> {
        let request = self.pending.try_remove(index)?;
        self.by_session.remove(&request.session);
        let is_exclusive = self.exclusive == Some(index);
        if is_exclusive {
            self.exclusive = None;
        }
        if let Some(sent) = &request.sent {
            self.n_in_flight -= 1;
            let is_unanswered = matches!(outcome, RequestOutcome::TimedOut { .. } | RequestOutcome::Cancelled);
            let further = if is_unanswered { FurtherReply::Late } else { FurtherReply::Repeated };
            if request.session != NO_SESSION && (is_unanswered || sent.was_resent) {
                self.ended.push_back((request.session, further));
            }
            if self.ended.len() > limit::ENDED_REQUESTS {
                self.ended.pop_front();
            }
        }
        let holds_key = matches!(request.expected, ReplyForm::NewKey(_));
        if !holds_key && self.spare.len() < SPARE_BUFFERS {
            let mut spare = request.command;
            spare.clear();
            self.spare.push(spare);
        }
        Some(EndedRequest { purpose: request.purpose, sent_at: request.sent.map(|sent| sent.at), is_exclusive })
    }

    /// Removes requests from the queue only.
    pub(super) fn remove_from_queue(&mut self, mut is_removed: impl FnMut(usize) -> bool) {
        self.queue.retain(|index| !is_removed(*index));
    }

    /// The requests that must have ended at `now`.
    pub(super) fn overdue(&self, now: Instant) -> Vec<usize> {
        self.pending.iter().filter(|(_, request)| request.ends_at <= now).map(|(index, _)| index).collect()
    }

    /// When a request ends or is sent again.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let next = |request: &ActiveRequest| {
            let again = request.sent.as_ref().and_then(|sent| sent.again).map(|(at, _)| at);
            again.map_or(request.ends_at, |at| at.min(request.ends_at))
        };
        self.pending.iter().map(|(_, request)| next(request)).min()
    }

    pub(super) fn len(&self) -> usize {
        self.pending.len()
    }

    pub(super) fn indices(&self) -> Vec<usize> {
        self.pending.iter().map(|(index, _)| index).collect()
    }

    pub(super) fn index_of(&self, id: RequestId) -> Option<usize> {
        self.pending.iter().find(|(_, request)| request.purpose == RequestPurpose::User(id)).map(|(index, _)| index)
    }

    /// The request in flight with this session.
    pub(super) fn in_flight(&self, session: Session) -> Option<usize> {
        self.by_session.get(&session).copied().filter(|index| self.was_sent(*index))
    }

    pub(super) fn was_sent(&self, index: usize) -> bool {
        self.pending.get(index).is_some_and(|request| request.sent.is_some())
    }

    pub(super) fn expected(&self, index: usize) -> Option<&ReplyForm> {
        self.pending.get(index).map(|request| &request.expected)
    }

    /// The request in flight without a session.
    pub(super) fn exclusive(&self) -> Option<usize> {
        self.exclusive
    }

    /// The key that a request in flight gives to the CLU.
    pub(super) fn new_key(&self) -> Option<CipherKey> {
        match self.expected(self.exclusive?)? {
            ReplyForm::NewKey(key) => Some(CipherKey::clone(key)),
            _ => None,
        }
    }

    /// The request in flight, if there is only one.
    pub(super) fn only_in_flight(&self) -> Option<usize> {
        let mut in_flight = self.pending.iter().filter(|(_, request)| request.sent.is_some());
        in_flight.next().map(|(index, _)| index).filter(|_| self.n_in_flight == 1)
    }

    pub(super) fn further_reply(&self, session: Session) -> Option<FurtherReply> {
        self.ended.iter().find(|(ended, _)| *ended == session).map(|(_, further)| *further)
    }
}
