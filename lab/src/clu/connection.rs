//! The client of Fodo in study 004.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddrV4;
use std::time::{Duration, Instant};

use fodo_clu::client::{Answer, CluRequest, RequestOutcome, SubmitError};
use fodo_net::clu::{CluConnection, CluConnectionConfig, CluOperation};

use super::closed::RequestLoop;
use super::tally::{RequestAccount, RequestEnd, RequestTally};
use super::wire;

/// The request of the study. Unlike [`CluRequest::CheckAlive`] it is sent once, as by the client of the study, so that a lost
/// datagram is a timeout.
pub const REQUEST: CluRequest<'static> = CluRequest::Execute(wire::SCRIPT);

/// Opens a connection that sends nothing by itself.
pub fn open(server: SocketAddrV4, n_in_flight: usize, timeout: Duration) -> io::Result<CluConnection> {
    let mut config = CluConnectionConfig::new(server.into(), wire::key());
    config.in_flight_max = n_in_flight;
    config.timeout = timeout;
    config.checks_availability = false;
    CluConnection::open(config)
}

/// How a request ended, by its outcome.
pub fn end_of(outcome: &RequestOutcome) -> RequestEnd {
    match outcome {
        RequestOutcome::Answered(Answer::Text(text)) if text.as_bytes() == wire::SERIAL.as_bytes() => {
            RequestEnd::Answered
        }
        RequestOutcome::Answered(_) | RequestOutcome::Nil | RequestOutcome::Wrong(_) | RequestOutcome::Cancelled => {
            RequestEnd::Wrong
        }
        RequestOutcome::Refused => RequestEnd::Refused,
        RequestOutcome::TimedOut { .. } => RequestEnd::TimedOut,
    }
}

/// An error for a request that no queue explains.
pub fn refused(why: SubmitError) -> io::Error {
    io::Error::other(why.to_string())
}

impl RequestLoop for CluConnection {
    fn run(&mut self, n_in_flight: usize, until: Instant, tally: &mut RequestTally) -> io::Result<()> {
        let mut pending: VecDeque<(Instant, CluOperation)> = VecDeque::with_capacity(n_in_flight);
        loop {
            let mut now = Instant::now();
            while pending.len() < n_in_flight && now < until {
                pending.push_back((now, self.start(REQUEST).map_err(refused)?));
                tally.account.sent += 1;
                now = Instant::now();
            }
            let Some((started, operation)) = pending.pop_front() else { return Ok(()) };
            let end = end_of(&operation.wait());
            let now = Instant::now();
            tally.ended(end, now - started, now < until);
        }
    }
    fn verify(&self, account: &RequestAccount) -> io::Result<()> {
        let counts = self.counts();
        let RequestAccount { sent, answered, wrong, refused, timed_out, .. } = *account;
        let replied = counts.answered + counts.nil + counts.wrong;
        let is_same = (counts.submitted, replied, counts.refused, counts.timed_out, counts.pending)
            == (sent, answered + wrong, refused, timed_out, 0);
        if is_same && counts.is_balanced() {
            return Ok(());
        }
        Err(io::Error::other(format!("the client has counted {counts:?}, not {account:?}")))
    }
}
