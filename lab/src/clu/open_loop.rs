//! Requests on schedule, whether or not the CLU keeps up. Latency counts from the scheduled time.
//!
//! The thread that starts the requests also reads the replies. With another thread for that, both would share the core of
//! the client, and each would wait for the other until the next period of the system's scheduler.

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use fodo_clu::client::{RequestOutcome, SubmitError};
use fodo_net::clu::{CluConnection, CluOperation};

use super::connection::{REQUEST, end_of, refused};
use super::tally::RequestTally;
use crate::limit::CLU_TIMEOUT;
use crate::load::usage::Usage;

/// A schedule of requests.
#[derive(Clone, Copy, Debug)]
pub struct OpenLoop {
    /// Requests per second.
    pub rate_hz: f64,
    /// Time for which requests are started.
    pub duration: Duration,
}

/// What an open loop did.
#[derive(Debug, Default)]
pub struct OpenOutcome {
    /// All requests.
    pub tally: RequestTally,
    /// Maximum delay of a request after its scheduled time.
    pub late_max: Duration,
    /// What this process used.
    pub usage: Usage,
}

/// An operation and when it was scheduled.
type ScheduledOperation = (Instant, CluOperation);

/// The operations in flight.
#[derive(Default)]
struct OperationsInFlight {
    /// In the order of their start, in which replies are expected.
    pending: VecDeque<ScheduledOperation>,
    /// Those without a reply whose successor has one. A lost reply must not delay the account of later ones.
    overtaken: Vec<ScheduledOperation>,
}

impl OperationsInFlight {
    fn is_empty(&self) -> bool {
        self.pending.is_empty() && self.overtaken.is_empty()
    }

    /// Waits until the oldest operation has ended, at most until `until`. Returns one operation that has ended.
    fn next_end(&mut self, until: Instant) -> Option<(Instant, RequestOutcome)> {
        if let Some((_, oldest)) = self.pending.front()
            && !oldest.wait_until(until)
        {
            let now = Instant::now();
            if self.pending.get(1).is_some_and(|(_, next)| next.wait_until(now)) {
                self.overtaken.extend(self.pending.pop_front());
            } else {
                return self.end_overtaken(now);
            }
        }
        let Some((due, operation)) = self.pending.pop_front() else { return self.end_overtaken(until) };
        Some((due, operation.wait()))
    }

    /// The same for the operations that were overtaken.
    fn end_overtaken(&mut self, until: Instant) -> Option<(Instant, RequestOutcome)> {
        let ended = self.overtaken.iter().position(|(_, operation)| operation.wait_until(until))?;
        let (due, operation) = self.overtaken.swap_remove(ended);
        Some((due, operation.wait()))
    }
}

impl OpenLoop {
    /// Starts all requests of the schedule and waits until each has ended.
    pub fn run(self, connection: &CluConnection) -> io::Result<OpenOutcome> {
        let before = Usage::of_this_process();
        let mut outcome = OpenOutcome::default();
        let mut operations = OperationsInFlight::default();
        let n_requests = (self.rate_hz * self.duration.as_secs_f64()).round().max(1.0) as u64;
        let start = Instant::now();
        let over = start + self.duration;
        let due_of = |number: u64| start + Duration::from_secs_f64(number as f64 / self.rate_hz);
        let mut number = 0;
        while number < n_requests || !operations.is_empty() {
            let mut due = due_of(number);
            let now = Instant::now();
            // Those that become due meanwhile follow after the replies.
            while number < n_requests && due <= now {
                outcome.late_max = outcome.late_max.max(Instant::now() - due);
                match connection.start(REQUEST) {
                    Ok(operation) => {
                        operations.pending.push_back((due, operation));
                        outcome.tally.account.sent += 1;
                    }
                    Err(SubmitError::QueueFull) => outcome.tally.account.not_sent += 1,
                    Err(why) => return Err(refused(why)),
                }
                number += 1;
                due = due_of(number);
            }
            let until = if number < n_requests { due } else { now + CLU_TIMEOUT };
            if operations.is_empty() {
                std::thread::sleep(until.saturating_duration_since(Instant::now()));
            }
            if let Some((due, ended)) = operations.next_end(until) {
                let now = Instant::now();
                outcome.tally.ended(end_of(&ended), now - due, now < over);
            }
        }
        outcome.usage = Usage::of_this_process().since(before);
        Ok(outcome)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr, UdpSocket};

    use fodo_clu::command::{Reply, Request};

    use super::super::{connection, wire};
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    /// A CLU that does not answer its first `n_lost` requests.
    fn clu(n_lost: usize) -> SocketAddr {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = socket.local_addr().unwrap();
        std::thread::spawn(move || {
            let (key, mut datagram, mut plain) = (wire::key(), [0; 2048], Vec::new());
            for number in 0.. {
                let (n_bytes, from) = socket.recv_from(&mut datagram).unwrap();
                let command = key.decrypt(&datagram[..n_bytes], &mut plain).and_then(Request::decode);
                let Some(Request::Execute { session, .. }) = command else { panic!("no request") };
                let (mut reply, mut encrypted) = (Vec::new(), Vec::new());
                Reply::Executed { clu: None, session, value: wire::SERIAL.as_bytes() }.encode(&mut reply);
                key.encrypt(&reply, &mut encrypted);
                if number >= n_lost {
                    socket.send_to(&encrypted, from).unwrap();
                }
            }
        });
        address
    }

    fn open(clu: SocketAddr, timeout: Duration) -> CluConnection {
        let SocketAddr::V4(clu) = clu else { panic!("an address of IPv4") };
        connection::open(clu, 16, timeout).unwrap()
    }

    #[test]
    fn a_lost_reply_does_not_delay_the_account_of_later_ones() {
        let connection = open(clu(1), LONG);
        let mut operations = OperationsInFlight::default();
        let start = Instant::now();
        let due: Vec<Instant> = (0..4).map(|number| start + Duration::from_nanos(number)).collect();
        for due in &due {
            operations.pending.push_back((*due, connection.start(REQUEST).unwrap()));
        }

        let mut ended = Vec::new();
        while ended.len() < 3 {
            assert!(start.elapsed() < LONG / 2, "{ended:?}");
            ended.extend(operations.next_end(Instant::now()).map(|(due, _)| due));
        }

        // Of replies that arrive meanwhile, a later one can be seen first.
        ended.sort_unstable();
        assert_eq!(ended, due[1..]);
        assert_eq!((operations.pending.len(), operations.overtaken.len()), (0, 1));
    }

    #[test]
    fn each_request_of_the_schedule_ends_once() {
        let connection = open(clu(2), Duration::from_millis(300));

        let done = OpenLoop { rate_hz: 1000.0, duration: Duration::from_millis(200) }.run(&connection).unwrap();

        let account = done.tally.account;
        assert_eq!((account.sent, account.answered, account.timed_out, account.not_sent), (200, 198, 2, 0));
        assert_eq!(account.unexplained(), 0);
        crate::clu::closed::RequestLoop::verify(&connection, &account).unwrap();
    }
}
