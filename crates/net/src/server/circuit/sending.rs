//! Sending updates and replies, at once or after the flush delay.

use std::io;

use fodo_data::Now;

use super::{Circuit, CircuitMachine as _, CircuitProtocol};
use crate::limit;
use crate::server::{UpdateCounts, UpdateTally};
use crate::stream::WriteOutcome;

/// What a turn may still send, and in which pieces: the first ones are small, so that the client works while the server
/// prepares more, and the later ones cost fewer calls of the system.
#[derive(Clone, Copy, Debug)]
pub(super) struct TurnOutput {
    n_budget: usize,
    piece_bytes: usize,
}

impl TurnOutput {
    /// The output of a new turn.
    pub(super) fn new() -> TurnOutput {
        TurnOutput { n_budget: limit::SERVER_TURN_BYTES, piece_bytes: limit::FLUSH_BYTES }
    }
}

impl<P: CircuitProtocol> Circuit<P> {
    /// Writes updates and replies until the socket is full, the limit of a turn is reached, or all is sent.
    pub(super) fn send(&mut self, tally: &UpdateTally, output: &mut TurnOutput) -> io::Result<WriteOutcome> {
        loop {
            self.pass_updates(tally, output.piece_bytes);
            output.piece_bytes = output.piece_bytes.saturating_mul(2);
            match self.flush_up_to(&mut output.n_budget)? {
                WriteOutcome::All if !self.unsent_watches.is_empty() && self.may_update() => {}
                WriteOutcome::SocketIsFull => {
                    // The rings keep fewer updates than the queue.
                    self.pass_updates(tally, usize::MAX);
                    return Ok(WriteOutcome::SocketIsFull);
                }
                sent => return Ok(sent),
            }
        }
    }

    /// Writes replies while more requests wait, once there is a piece of them.
    #[inline]
    pub(super) fn send_piece(&mut self, output: &mut TurnOutput) -> io::Result<()> {
        if self.machine.pending_bytes() < output.piece_bytes || !self.flush_delay.is_zero() {
            return Ok(());
        }
        self.write_piece(output)
    }

    #[inline(never)]
    fn write_piece(&mut self, output: &mut TurnOutput) -> io::Result<()> {
        output.piece_bytes = match self.flush_up_to(&mut output.n_budget)? {
            WriteOutcome::All => output.piece_bytes.saturating_mul(2),
            // No more in this turn: its end reports why.
            WriteOutcome::SocketIsFull | WriteOutcome::Enough => usize::MAX,
        };
        Ok(())
    }

    /// The same with a flush delay: updates are encoded at once, so that they count as sent, but bytes wait for more. Those
    /// that wait are not to be sent now, so that all others are.
    #[cold]
    pub(super) fn send_delayed(
        &mut self,
        tally: &UpdateTally,
        output: &mut TurnOutput,
        now: Now,
    ) -> io::Result<WriteOutcome> {
        self.pass_updates(tally, usize::MAX);
        let pending_bytes = self.machine.pending_bytes();
        if self.closes_by.is_none() && self.flush_delay.waits_for_more(pending_bytes, now.monotonic) {
            return Ok(WriteOutcome::All);
        }
        let sent = self.send(tally, output);
        if matches!(sent, Ok(WriteOutcome::All)) {
            self.flush_delay.all_sent();
        }
        sent
    }

    /// Passes updates to the machine, until about `piece_bytes` wait to be sent.
    #[inline]
    fn pass_updates(&mut self, tally: &UpdateTally, piece_bytes: usize) {
        let counts = self.send_updates(piece_bytes);
        tally.add(counts);
        self.counts.sent += counts.sent;
        self.counts.merged += counts.merged;
    }

    /// Sends posts to the subscriptions until the circuit has enough to write for now. Unsent posts stay in the rings,
    /// where later posts replace them and are counted.
    fn send_updates(&mut self, piece_bytes: usize) -> UpdateCounts {
        let mut counts = UpdateCounts::default();
        if !self.may_update() {
            return counts;
        }
        let queue_bytes_max = self.queue_bytes_max(limit::UPDATE_BYTES);
        while let Some(&(index, number)) = self.unsent_watches.front()
            && self.machine.pending_bytes() < piece_bytes
        {
            let Some(watch) = self.watches.get_mut(index).filter(|watch| watch.number == number) else {
                self.n_unsent_ended -= 1;
                self.unsent_watches.pop_front();
                continue;
            };
            watch.is_unsent = !self.protocol.send_watch(&mut self.machine, watch, queue_bytes_max, &mut counts);
            if watch.is_unsent {
                // Its remaining posts follow those of the others, so that one fast PV does not block the rest.
                self.unsent_watches.rotate_left(1);
                break;
            }
            self.unsent_watches.pop_front();
        }
        counts
    }
}
