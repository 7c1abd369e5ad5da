//! Which thread drives the machines of a CLU.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fodo_lock::{Condvar, Mutex};

use crate::limit;

/// The thread of the tasks drives the machines whenever it waits, so that a request wakes no other thread. While it carries
/// out a task for longer than [`limit::CLU_BUSY_PERIOD`], the socket thread drives them.
///
/// The socket thread is not woken for each request: it looks at the number of the turn once in a period while there are
/// requests, and sleeps while the other thread waits for them.
pub(super) struct DriveTurns {
    /// [`NO_TASK_THREAD`]; or even while the thread of the tasks waits for datagrams, odd while it does not.
    turn: AtomicU64,
    /// Whether the socket thread must be woken when the turn changes.
    is_asleep: AtomicBool,
    lock: Mutex<()>,
    condition: Condvar,
    is_stopped: AtomicBool,
}

/// The socket thread is alone.
const NO_TASK_THREAD: u64 = u64::MAX;

/// A turn in which the socket thread drives the machines.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct SocketTurn(u64);

impl DriveTurns {
    pub(super) fn new() -> DriveTurns {
        DriveTurns {
            turn: AtomicU64::new(NO_TASK_THREAD),
            is_asleep: AtomicBool::new(false),
            lock: Mutex::new(()),
            condition: Condvar::new(),
            is_stopped: AtomicBool::new(false),
        }
    }

    /// The thread of the tasks waits for datagrams.
    pub(super) fn task_thread_waits(&self) {
        let turn = self.turn.load(Ordering::Relaxed);
        // Odd numbers follow, so that the largest number is never reached again.
        self.turn.store(if turn == NO_TASK_THREAD { 0 } else { turn + 1 }, Ordering::SeqCst);
    }

    /// The thread of the tasks has received datagrams, or has other work.
    pub(super) fn task_thread_works(&self) {
        self.change(self.turn.load(Ordering::Relaxed) + 1);
    }

    /// The thread of the tasks has ended.
    pub(super) fn task_thread_ends(&self) {
        self.change(NO_TASK_THREAD);
    }

    fn change(&self, turn: u64) {
        self.turn.store(turn, Ordering::SeqCst);
        if self.is_asleep.swap(false, Ordering::SeqCst) {
            self.notify();
        }
    }

    pub(super) fn stop(&self) {
        self.is_stopped.store(true, Ordering::SeqCst);
        self.notify();
    }

    fn notify(&self) {
        // The socket thread either waits already, or has not yet looked at what has changed.
        drop(self.lock.lock());
        self.condition.notify_all();
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::SeqCst)
    }

    /// Waits until the socket thread must drive the machines; `None` when the server stops.
    pub(super) fn next_socket_turn(&self) -> Option<SocketTurn> {
        loop {
            let turn = self.turn.load(Ordering::SeqCst);
            if self.is_stopped() {
                return None;
            }
            if turn == NO_TASK_THREAD {
                return Some(SocketTurn(turn));
            }
            let mut guard = self.lock.lock();
            if turn.is_multiple_of(2) {
                self.is_asleep.store(true, Ordering::SeqCst);
                if self.turn.load(Ordering::SeqCst) == turn && !self.is_stopped() {
                    self.condition.wait(&mut guard);
                }
                self.is_asleep.store(false, Ordering::SeqCst);
                continue;
            }
            if !self.is_stopped() {
                // It may also return early: then the turn is most often another one.
                let _ = self.condition.wait_for(&mut guard, limit::CLU_BUSY_PERIOD);
            }
            if self.turn.load(Ordering::SeqCst) == turn {
                return Some(SocketTurn(turn));
            }
        }
    }

    /// Whether the socket thread still drives the machines.
    pub(super) fn has(&self, turn: SocketTurn) -> bool {
        self.turn.load(Ordering::SeqCst) == turn.0 && !self.is_stopped()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_socket_thread_drives_alone_and_while_a_task_takes_long() {
        let turns = DriveTurns::new();
        let alone = turns.next_socket_turn().unwrap();
        assert!(turns.has(alone));

        turns.task_thread_waits();
        assert!(!turns.has(alone));
        turns.task_thread_works();
        let busy = turns.next_socket_turn().unwrap();
        assert!(busy != alone && turns.has(busy));

        turns.task_thread_waits();
        assert!(!turns.has(busy));
        turns.task_thread_ends();
        assert!(turns.next_socket_turn() == Some(alone));
        turns.stop();
        assert!(turns.next_socket_turn().is_none());
    }

    #[test]
    fn the_socket_thread_sleeps_until_a_task_takes_long_or_the_server_stops() {
        let turns = DriveTurns::new();
        turns.task_thread_waits();

        std::thread::scope(|scope| {
            let (sender, receiver) = std::sync::mpsc::channel();
            let turns = &turns;
            scope.spawn(move || {
                while let Some(turn) = turns.next_socket_turn() {
                    sender.send(turn).unwrap();
                    while turns.has(turn) {
                        std::thread::yield_now();
                    }
                }
            });
            turns.task_thread_works();
            let first = receiver.recv().unwrap();
            turns.task_thread_waits();
            turns.task_thread_works();
            assert!(receiver.recv().unwrap() != first);
            turns.task_thread_waits();
            turns.stop();
        });
    }
}
