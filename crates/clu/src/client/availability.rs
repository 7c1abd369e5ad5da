//! Whether the CLU answers, by checkAlive.

use std::time::{Duration, Instant};

use fodo_data::Now;

use super::requests::{NewRequest, ReplyForm, RequestPurpose, Resend};
use super::{Answer, ClientEvent, ClientOutput, CluClient, RequestOutcome};
use crate::command::Request;
use crate::limit;

/// The expression that each CLU evaluates.
pub(super) const CHECK_ALIVE: &[u8] = b"checkAlive()";

/// The value of checkAlive in a CLU whose own scripts failed.
const EMERGENCY: &[u8] = b"emergency";

/// Whether a CLU answers; each comment says what the client waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Availability {
    /// Waits for the first reply to checkAlive, or does not check.
    Unknown,
    /// The CLU answers. Waits for the next time to check.
    Available,
    /// The CLU answers, but its scripts do not run. Waits for the next time to check.
    Emergency,
    /// The CLU did not answer several times. Waits for any reply to checkAlive.
    Unavailable,
}

/// The times of checkAlive.
#[derive(Clone, Copy, Debug)]
pub(super) struct AliveCheck {
    availability: Availability,
    /// When checkAlive is sent; `None` while one is in flight.
    due_at: Option<Instant>,
    n_missed: u32,
    round_trip: Option<Duration>,
}

impl AliveCheck {
    pub(super) fn new(now: Instant) -> AliveCheck {
        AliveCheck { availability: Availability::Unknown, due_at: Some(now), n_missed: 0, round_trip: None }
    }

    pub(super) fn availability(&self) -> Availability {
        self.availability
    }

    pub(super) fn round_trip(&self) -> Option<Duration> {
        self.round_trip
    }

    /// The availability after a checkAlive with this outcome; `None` if it failed.
    fn after(outcome: &RequestOutcome) -> Option<Availability> {
        match outcome {
            RequestOutcome::Answered(Answer::Text(text)) if text.as_bytes() == EMERGENCY => {
                Some(Availability::Emergency)
            }
            RequestOutcome::Answered(_) => Some(Availability::Available),
            // The scripts that define checkAlive do not run.
            RequestOutcome::Nil => Some(Availability::Emergency),
            _ => None,
        }
    }
}

impl CluClient {
    /// Sends checkAlive if it is due. It waits for a request without a session, which may take the CLU some seconds.
    pub(super) fn check_alive(&mut self, now: Now, out: &mut ClientOutput) {
        if self.alive_deadline().is_none_or(|at| now.monotonic < at) {
            return;
        }
        let session = self.requests.new_session();
        let client = Some(self.config.own_address);
        let new = NewRequest {
            command: Request::Execute { client, session, script: CHECK_ALIVE },
            session,
            purpose: RequestPurpose::CheckAlive,
            expected: ReplyForm::SignOfLife,
            resend: Resend::Never,
            ends_at: now.monotonic + limit::CHECK_ALIVE_TIMEOUT,
        };
        if self.requests.send_at_once(new, now.monotonic, &self.config, &mut out.datagrams).is_ok() {
            self.alive.due_at = None;
            self.counts.submitted += 1;
            self.counts.datagrams_sent += 1;
        }
    }

    /// When checkAlive is due; `None` if something else must happen before.
    pub(super) fn alive_deadline(&self) -> Option<Instant> {
        let may_check = self.config.checks_availability && self.requests.exclusive().is_none();
        self.alive.due_at.filter(|_| may_check)
    }

    pub(super) fn alive_ended(
        &mut self,
        outcome: &RequestOutcome,
        sent_at: Option<Instant>,
        now: Now,
        out: &mut ClientOutput,
    ) {
        let sent_at = sent_at.unwrap_or(now.monotonic);
        let next_period = sent_at + limit::CHECK_ALIVE_PERIOD;
        let availability = AliveCheck::after(outcome);
        let due_at = match availability {
            Some(_) => {
                self.alive.n_missed = 0;
                self.alive.round_trip = Some(now.monotonic.saturating_duration_since(sent_at));
                next_period
            }
            None => {
                self.alive.n_missed = self.alive.n_missed.saturating_add(1);
                if self.alive.n_missed < limit::CHECK_ALIVE_MISSES { now.monotonic } else { next_period }
            }
        };
        self.alive.due_at = Some(due_at);
        self.wake_by(due_at);
        match availability {
            Some(availability) => self.set_availability(availability, now, out),
            None if self.alive.n_missed >= limit::CHECK_ALIVE_MISSES => {
                self.set_availability(Availability::Unavailable, now, out);
            }
            None => {}
        }
    }

    fn set_availability(&mut self, availability: Availability, now: Now, out: &mut ClientOutput) {
        if std::mem::replace(&mut self.alive.availability, availability) == availability {
            return;
        }
        out.events.push(ClientEvent::Availability(availability));
        if availability == Availability::Available {
            self.subscriptions.all_due(now.monotonic);
            self.wake_by(now.monotonic);
        }
    }
}
