//! What a client counts.

use super::RequestOutcome;

/// What a client did. `submitted` is the sum of the six outcomes and `pending`; `received` is the sum of the eight kinds of
/// datagrams after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientCounts {
    /// Requests of the caller and of the client itself.
    pub submitted: u64,
    /// Requests that were answered.
    pub answered: u64,
    /// Requests whose value is `nil`.
    pub nil: u64,
    /// Requests whose reply has another form than required.
    pub wrong: u64,
    /// Requests that the CLU refused.
    pub refused: u64,
    /// Requests without a reply.
    pub timed_out: u64,
    /// Requests that the caller cancelled.
    pub cancelled: u64,
    /// Requests that wait or are in flight.
    pub pending: u64,
    /// Datagrams sent.
    pub datagrams_sent: u64,
    /// Datagrams that were sent again, which `datagrams_sent` contains.
    pub resent: u64,
    /// Datagrams received.
    pub received: u64,
    /// Replies that ended a request.
    pub replies: u64,
    /// Reports of subscriptions.
    pub reports: u64,
    /// Replies to requests that had timed out or been cancelled.
    pub late: u64,
    /// Further replies to requests that had been sent several times.
    pub repeated: u64,
    /// Replies and reports that belong to no request and no subscription of this client.
    pub unmatched: u64,
    /// Datagrams from another address.
    pub foreign: u64,
    /// Datagrams that the key does not decrypt.
    pub undecryptable: u64,
    /// Datagrams that are not a reply, and reports with another number of values than the subscription has.
    pub malformed: u64,
}

impl ClientCounts {
    /// Whether both sums are correct, as always.
    pub fn is_balanced(&self) -> bool {
        let outcomes = self.answered + self.nil + self.wrong + self.refused + self.timed_out + self.cancelled;
        let matched = self.replies + self.reports + self.late + self.repeated;
        let dropped = self.unmatched + self.foreign + self.undecryptable + self.malformed;
        self.submitted == outcomes + self.pending && self.received == matched + dropped
    }

    pub(super) fn ended(&mut self, outcome: &RequestOutcome) {
        let count = match outcome {
            RequestOutcome::Answered(_) => &mut self.answered,
            RequestOutcome::Nil => &mut self.nil,
            RequestOutcome::Wrong(_) => &mut self.wrong,
            RequestOutcome::Refused => &mut self.refused,
            RequestOutcome::TimedOut { .. } => &mut self.timed_out,
            RequestOutcome::Cancelled => &mut self.cancelled,
        };
        *count += 1;
    }
}
