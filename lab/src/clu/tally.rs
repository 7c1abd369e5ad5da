//! How the requests of a client ended.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::load::tally::Latencies;

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestEnd {
    /// With the expected value.
    Answered,
    /// With another value.
    Wrong,
    /// The server refused it.
    Refused,
    /// Without a reply in time.
    TimedOut,
}

/// The account of all requests: each one that was sent ended in one way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestAccount {
    /// Requests that were sent.
    pub sent: u64,
    /// Answered with the expected value.
    pub answered: u64,
    /// Answered with another value.
    pub wrong: u64,
    /// Refused by the server.
    pub refused: u64,
    /// Without a reply in time.
    pub timed_out: u64,
    /// Requests that the client did not accept because too many waited; they were not sent.
    #[serde(default)]
    pub not_sent: u64,
    /// Replies to requests that had ended; they belong to no other number.
    #[serde(default)]
    pub late: u64,
}

impl RequestAccount {
    /// What was sent without the four ends; 0 if every request is accounted for.
    pub fn unexplained(&self) -> i64 {
        self.sent as i64 - (self.answered + self.wrong + self.refused + self.timed_out) as i64
    }

    /// Counts the end of a request.
    pub fn ended(&mut self, end: RequestEnd) {
        let count = match end {
            RequestEnd::Answered => &mut self.answered,
            RequestEnd::Wrong => &mut self.wrong,
            RequestEnd::Refused => &mut self.refused,
            RequestEnd::TimedOut => &mut self.timed_out,
        };
        *count += 1;
    }

    /// Adds another account.
    pub fn add(&mut self, other: &RequestAccount) {
        self.sent += other.sent;
        self.answered += other.answered;
        self.wrong += other.wrong;
        self.refused += other.refused;
        self.timed_out += other.timed_out;
        self.not_sent += other.not_sent;
        self.late += other.late;
    }
}

/// The requests of one client, or of several.
#[derive(Debug, Default)]
pub struct RequestTally {
    /// All requests.
    pub account: RequestAccount,
    /// Requests that were answered before the time was over: what the study counts.
    pub in_time: u64,
    /// From each request to its answer.
    pub latencies: Latencies,
}

impl RequestTally {
    /// Adds the end of a request.
    pub fn ended(&mut self, end: RequestEnd, latency: Duration, is_in_time: bool) {
        self.account.ended(end);
        if end == RequestEnd::Answered {
            self.latencies.add(latency);
            self.in_time += u64::from(is_in_time);
        }
    }

    /// Adds another tally.
    pub fn add(&mut self, other: &RequestTally) {
        self.account.add(&other.account);
        self.in_time += other.in_time;
        self.latencies.merge(&other.latencies);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_without_an_end_is_unexplained() {
        let mut tally = RequestTally::default();
        for (end, is_in_time) in [
            (RequestEnd::Answered, true),
            (RequestEnd::Answered, false),
            (RequestEnd::Wrong, true),
            (RequestEnd::Refused, true),
            (RequestEnd::TimedOut, true),
        ] {
            tally.account.sent += 1;
            tally.ended(end, Duration::from_micros(50), is_in_time);
        }
        assert_eq!((tally.account.unexplained(), tally.in_time, tally.account.answered), (0, 1, 2));
        assert_eq!(tally.latencies.counts().iter().map(|(_, n)| n).sum::<u64>(), 2);

        tally.account.sent += 1;
        assert_eq!(tally.account.unexplained(), 1);
        tally.account.answered += 2;
        assert_eq!(tally.account.unexplained(), -1);
    }

    #[test]
    fn the_sum_of_two_tallies_has_the_latencies_of_both() {
        let (mut one, mut other) = (RequestTally::default(), RequestTally::default());
        one.account.sent = 1;
        one.ended(RequestEnd::Answered, Duration::from_micros(10), true);
        other.account = RequestAccount { sent: 3, timed_out: 3, not_sent: 2, late: 1, ..RequestAccount::default() };

        one.add(&other);

        let expected =
            RequestAccount { sent: 4, answered: 1, timed_out: 3, not_sent: 2, late: 1, ..Default::default() };
        assert_eq!((one.account, one.in_time, one.latencies.counts().len()), (expected, 1, 1));
    }
}
