//! The flush delay of a circuit: bytes that could be sent wait a moment for more, so that they are sent together.

use std::time::{Duration, Instant};

use crate::limit;

/// Decides how long the bytes of one circuit wait.
#[derive(Debug)]
pub struct FlushDelay {
    delay: Duration,
    phase: FlushPhase,
}

/// What the bytes wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FlushPhase {
    /// There are none.
    Empty,
    /// For more bytes, at most until this time.
    Collecting(Instant),
    /// For the socket. Nothing is delayed until it has accepted all of them.
    Sending,
}

impl FlushDelay {
    pub fn new(delay: Duration) -> FlushDelay {
        FlushDelay { delay, phase: FlushPhase::Empty }
    }

    /// Whether bytes never wait. A circuit checks it once before it writes, and calls nothing else then.
    #[inline]
    pub fn is_zero(&self) -> bool {
        self.delay.is_zero()
    }

    /// Whether to wait for more, with this number of bytes to send. If not, the caller sends, and reports success with
    /// [`FlushDelay::all_sent`].
    pub fn waits_for_more(&mut self, pending_bytes: usize, now: Instant) -> bool {
        if pending_bytes == 0 {
            self.phase = FlushPhase::Empty;
            return false;
        }
        let until = match self.phase {
            FlushPhase::Empty => now + self.delay,
            FlushPhase::Collecting(until) => until,
            FlushPhase::Sending => return false,
        };
        let waits = now < until && pending_bytes < limit::FLUSH_BYTES;
        self.phase = if waits { FlushPhase::Collecting(until) } else { FlushPhase::Sending };
        waits
    }

    /// The socket has accepted all bytes: the next ones wait again.
    pub fn all_sent(&mut self) {
        self.phase = FlushPhase::Empty;
    }

    /// When bytes that wait for more are sent at the latest.
    #[inline]
    pub fn deadline(&self) -> Option<Instant> {
        match self.phase {
            FlushPhase::Collecting(until) => Some(until),
            FlushPhase::Empty | FlushPhase::Sending => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DELAY: Duration = Duration::from_millis(5);

    #[test]
    fn bytes_wait_from_the_first_one_until_the_delay_has_passed() {
        let (mut flush_delay, start) = (FlushDelay::new(DELAY), Instant::now());
        let nearly = start + (DELAY - Duration::from_nanos(1));

        let waits = [(0, start), (40, start), (80, nearly), (80, start + DELAY)]
            .map(|(pending_bytes, now)| (flush_delay.waits_for_more(pending_bytes, now), flush_delay.deadline()));

        let until = Some(start + DELAY);
        assert_eq!(waits, [(false, None), (true, until), (true, until), (false, None)]);
    }

    #[test]
    fn sixteen_kibibytes_do_not_wait() {
        let (mut flush_delay, start) = (FlushDelay::new(DELAY), Instant::now());

        let waits = [1, 16 * 1024 - 1, 16 * 1024].map(|bytes| flush_delay.waits_for_more(bytes, start));

        assert_eq!(waits, [true, true, false]);
    }

    #[test]
    fn what_a_full_socket_has_not_accepted_does_not_wait_again_and_what_follows_does() {
        let (mut flush_delay, start) = (FlushDelay::new(DELAY), Instant::now());
        flush_delay.waits_for_more(20_000, start);

        let rest = flush_delay.waits_for_more(100, start);
        flush_delay.all_sent();
        let next = flush_delay.waits_for_more(100, start);

        assert_eq!((rest, next), (false, true));
        assert_eq!(flush_delay.deadline(), Some(start + DELAY));
    }
}
