//! The closed loop of study 004: threads with a client each, and a request after the end of the one before.

use std::io;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use super::tally::{RequestAccount, RequestTally};
use crate::load::usage::Usage;

/// A client that repeats requests.
pub trait RequestLoop {
    /// Keeps `n_in_flight` requests in flight until `until`, then waits for the end of each.
    fn run(&mut self, n_in_flight: usize, until: Instant, tally: &mut RequestTally) -> io::Result<()>;

    /// Compares the account of all requests since the client was opened with what the client has counted, if it counts.
    fn verify(&self, _account: &RequestAccount) -> io::Result<()> {
        Ok(())
    }
}

/// The size of a closed loop.
#[derive(Clone, Copy, Debug)]
pub struct ClosedLoop {
    /// Threads, each with a client of its own.
    pub n_threads: usize,
    /// Requests in flight of each client.
    pub n_in_flight: usize,
    /// Time before the requests that count.
    pub warm_up: Duration,
    /// Time of the requests that count.
    pub duration: Duration,
}

/// What a closed loop did.
#[derive(Debug, Default)]
pub struct LoopOutcome {
    /// The requests that count.
    pub tally: RequestTally,
    /// Requests before them.
    pub n_warm_up: u64,
    /// What this process used for all requests.
    pub usage: Usage,
}

impl ClosedLoop {
    /// Runs the loop with the clients that `open` opens, one in each thread.
    pub fn run<L: RequestLoop>(self, open: impl Fn() -> io::Result<L> + Sync) -> io::Result<LoopOutcome> {
        // CPU time of a thread that has ended is not reported, so threads wait at the end until it is read.
        let (start, end, exit) = (self.barrier(), self.barrier(), self.barrier());
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..self.n_threads)
                .map(|_| {
                    scope.spawn(|| {
                        let client = open();
                        start.wait();
                        let done = client.and_then(|mut client| self.repeat(&mut client).map(|done| (done, client)));
                        end.wait();
                        exit.wait();
                        done.map(|(done, _client)| done)
                    })
                })
                .collect();
            start.wait();
            let before = Usage::of_this_process();
            end.wait();
            let usage = Usage::of_this_process().since(before);
            exit.wait();
            let mut outcome = LoopOutcome { usage, ..LoopOutcome::default() };
            for thread in threads {
                let done = thread.join().map_err(|_| io::Error::other("a client's thread panicked"))?;
                let (tally, n_warm_up) = done?;
                outcome.tally.add(&tally);
                outcome.n_warm_up += n_warm_up;
            }
            Ok(outcome)
        })
    }

    /// With the calling thread.
    fn barrier(self) -> Barrier {
        Barrier::new(self.n_threads + 1)
    }

    fn repeat(self, client: &mut impl RequestLoop) -> io::Result<(RequestTally, u64)> {
        let mut before = RequestTally::default();
        client.run(self.n_in_flight, Instant::now() + self.warm_up, &mut before)?;
        let mut tally = RequestTally::default();
        client.run(self.n_in_flight, Instant::now() + self.duration, &mut tally)?;
        let n_warm_up = before.account.sent;
        before.account.add(&tally.account);
        client.verify(&before.account)?;
        Ok((tally, n_warm_up))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::super::tally::RequestEnd;
    use super::*;

    /// Answers three requests in the warm-up and five later; every second client fails to open if `fails`.
    struct CountedLoop(u64);

    impl RequestLoop for CountedLoop {
        fn run(&mut self, n_in_flight: usize, _until: Instant, tally: &mut RequestTally) -> io::Result<()> {
            assert_eq!(n_in_flight, 2);
            tally.account.sent += self.0;
            for _ in 0..self.0 {
                tally.ended(RequestEnd::Answered, Duration::from_micros(1), true);
            }
            self.0 += 2;
            Ok(())
        }
    }

    fn size() -> ClosedLoop {
        ClosedLoop { n_threads: 4, n_in_flight: 2, warm_up: Duration::ZERO, duration: Duration::ZERO }
    }

    #[test]
    fn the_requests_of_all_threads_are_added_without_those_of_the_warm_up() {
        let outcome = size().run(|| Ok(CountedLoop(3))).unwrap();

        assert_eq!((outcome.tally.account.sent, outcome.tally.in_time, outcome.n_warm_up), (20, 20, 12));
    }

    #[test]
    fn a_client_that_cannot_be_opened_fails_the_loop_and_blocks_no_thread() {
        let n_opened = AtomicU64::new(0);
        let open = || match n_opened.fetch_add(1, Ordering::Relaxed) {
            2 => Err(io::Error::other("no socket is left")),
            _ => Ok(CountedLoop(3)),
        };

        let failure = size().run(open).unwrap_err();

        assert_eq!(failure.to_string(), "no socket is left");
    }
}
