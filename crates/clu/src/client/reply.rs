//! What a client does with received datagrams.

use std::net::SocketAddr;

use fodo_data::{Now, Text};

use super::requests::{FurtherReply, ReplyForm};
use super::{Answer, ClientOutput, CluClient, RequestOutcome};
use crate::cipher::{self, CipherKey};
use crate::command::{Reply, Serial, Session};
use crate::value::{self, ClientReport};

/// Why a datagram contains no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NoReply {
    Undecryptable,
    Malformed,
}

fn decode<'a>(key: &CipherKey, datagram: &[u8], buffer: &'a mut Vec<u8>) -> Result<Reply<'a>, NoReply> {
    let command = key.decrypt(datagram, buffer).ok_or(NoReply::Undecryptable)?;
    Reply::decode(command).ok_or(NoReply::Malformed)
}

impl CluClient {
    /// Processes a datagram. What is no reply to a request in flight and no report of a subscription is dropped and
    /// counted ([`CluClient::counts`]).
    pub fn received(&mut self, from: SocketAddr, datagram: &[u8], now: Now, out: &mut ClientOutput) {
        self.counts.received += 1;
        if !self.is_from_clu(from) {
            self.counts.foreign += 1;
            return;
        }
        if !cipher::is_whole_blocks(datagram) {
            self.counts.undecryptable += 1;
            return;
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        self.received_from_clu(datagram, &mut buffer, now, out);
        self.buffer = buffer;
        self.send_waiting(now, out);
    }

    fn is_from_clu(&self, from: SocketAddr) -> bool {
        if from.ip() == self.config.clu.ip() {
            return true;
        }
        let expected = self.requests.exclusive().and_then(|index| self.requests.expected(index));
        matches!(expected, Some(ReplyForm::AddressSet(_, address)) if from.ip() == *address)
    }

    fn received_from_clu(&mut self, datagram: &[u8], buffer: &mut Vec<u8>, now: Now, out: &mut ClientOutput) {
        let flaw = match decode(&self.config.key, datagram, buffer) {
            Ok(reply) => return self.replied(reply, now, out),
            Err(flaw) => flaw,
        };
        if let Some(key) = self.requests.new_key()
            && let Ok(Reply::Accepted {}) = decode(&key, datagram, buffer)
        {
            self.config.key = key;
            self.counts.replies += 1;
            if let Some(index) = self.requests.exclusive() {
                self.end(index, RequestOutcome::Answered(Answer::Accepted), now, out);
            }
            return;
        }
        match flaw {
            NoReply::Undecryptable => self.counts.undecryptable += 1,
            NoReply::Malformed => self.counts.malformed += 1,
        }
    }

    fn replied(&mut self, reply: Reply<'_>, now: Now, out: &mut ClientOutput) {
        match reply {
            Reply::Executed { session, value, .. } => self.executed(session, value, now, out),
            Reply::Refused {} => {
                // It contains no session: with several requests in flight it can belong to any of them.
                let index = self.requests.exclusive().or_else(|| self.requests.only_in_flight());
                self.ended_by_reply(index, RequestOutcome::Refused, now, out);
            }
            Reply::Accepted {} | Reply::Reset { .. } | Reply::AddressSet { .. } => self.confirmed(reply, now, out),
            // Replies to requests that this client does not send, or that another function handles.
            Reply::Measured { .. } | Reply::Discovered { .. } => self.counts.unmatched += 1,
        }
    }

    /// Ends the request without a session if `reply` confirms it.
    fn confirmed(&mut self, reply: Reply<'_>, now: Now, out: &mut ClientOutput) {
        let index = self.requests.exclusive();
        let is_confirmed = match (index.and_then(|index| self.requests.expected(index)), reply) {
            (Some(ReplyForm::Accepted), Reply::Accepted {}) | (Some(ReplyForm::Reset), Reply::Reset { .. }) => true,
            (Some(ReplyForm::AddressSet(serial, address)), Reply::AddressSet { serial: confirmed, address: new }) => {
                let is_confirmed = (*serial, *address) == (confirmed, new);
                if is_confirmed {
                    self.config.clu.set_ip(new.into());
                }
                is_confirmed
            }
            // The CLU had this key already.
            (Some(ReplyForm::NewKey(key)), Reply::Accepted {}) => **key == self.config.key,
            _ => false,
        };
        let index = index.filter(|_| is_confirmed);
        self.ended_by_reply(index, RequestOutcome::Answered(Answer::Accepted), now, out);
    }

    fn executed(&mut self, session: Session, value: &[u8], now: Now, out: &mut ClientOutput) {
        if let Some(index) = self.requests.in_flight(session) {
            let outcome = self.outcome(index, value);
            return self.ended_by_reply(Some(index), outcome, now, out);
        }
        match self.requests.further_reply(session) {
            Some(FurtherReply::Late) => self.counts.late += 1,
            Some(FurtherReply::Repeated) => self.counts.repeated += 1,
            None => self.reported(value, now, out),
        }
    }

    /// Processes a report, whose session may be any number.
    fn reported(&mut self, value: &[u8], now: Now, out: &mut ClientOutput) {
        let report = ClientReport::parse(value);
        let Some((report, n_items)) =
            report.and_then(|report| Some((report, self.subscriptions.n_items(report.client_id)?)))
        else {
            self.counts.unmatched += 1;
            return;
        };
        match value::parse_list(report.list).filter(|values| values.len() == n_items) {
            Some(values) => {
                self.counts.reports += 1;
                self.update(report.client_id, values, now, out);
            }
            None => self.counts.malformed += 1,
        }
    }

    fn ended_by_reply(&mut self, index: Option<usize>, outcome: RequestOutcome, now: Now, out: &mut ClientOutput) {
        match index {
            Some(index) => {
                self.counts.replies += 1;
                self.end(index, outcome, now, out);
            }
            None => self.counts.unmatched += 1,
        }
    }

    /// How a request with a session ends with this value.
    fn outcome(&self, index: usize, value: &[u8]) -> RequestOutcome {
        if value == value::NIL {
            return RequestOutcome::Nil;
        }
        if value == value::REFUSED {
            return RequestOutcome::Refused;
        }
        let values = |list: Option<&[u8]>, n_items: usize| {
            let values = list.and_then(value::parse_list).filter(|values| values.len() == n_items);
            values.map(Answer::Values)
        };
        let answer = match self.requests.expected(index) {
            Some(ReplyForm::SignOfLife) if !self.is_sign_of_life(value) => None,
            Some(ReplyForm::Values(n_items)) => values(value::fetched_list(value), *n_items),
            Some(ReplyForm::Report(client_id)) => {
                let report = ClientReport::parse(value).filter(|report| report.client_id == *client_id);
                let n_items = self.subscriptions.n_items(*client_id).unwrap_or(0);
                values(report.map(|report| report.list), n_items)
            }
            _ => Some(Answer::Text(Text::from_bytes(value))),
        };
        answer.map_or_else(|| RequestOutcome::Wrong(Text::from_bytes(value)), RequestOutcome::Answered)
    }

    /// Whether a value of checkAlive can be that of this CLU: its serial number, or a text that contains none.
    fn is_sign_of_life(&self, value: &[u8]) -> bool {
        let Some(serial) = self.config.serial else { return true };
        let text = String::from_utf8_lossy(value);
        matches!(&*text, "true" | "emergency") || Serial::parse(&text) == Some(serial)
    }
}
