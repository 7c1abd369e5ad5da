//! Which thread reads a circuit: the reactor, one blocking caller, or for a short time none.
//!
//! The role passes from one blocked caller to the next without involving the reactor. It must never be lost: while any
//! thread waits for a reply, another one reads or is about to.

use std::time::Instant;

/// The thread that reads the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// The reactor; the socket is registered there.
    Reactor,
    /// A blocking caller.
    Caller,
    /// None since this time: the next caller takes the role, or soon the reactor does.
    Resting(Instant),
}

/// The result of [`ReaderRole::take`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// The calling thread is the reader; it must undo the reactor's registration.
    FromReactor,
    /// The calling thread is the reader; no thread was before.
    FromNone,
    /// Another caller is the reader.
    Not,
}

/// The reader and the callers that wait for the role. `W` wakes one of them; `Id` identifies them.
#[derive(Debug)]
pub struct ReaderRole<Id, W> {
    reader: Reader,
    blocked: Vec<(Id, W)>,
}

impl<Id, W> Default for ReaderRole<Id, W> {
    /// The reactor reads and no caller waits.
    fn default() -> ReaderRole<Id, W> {
        ReaderRole { reader: Reader::Reactor, blocked: Vec::new() }
    }
}

impl<Id: PartialEq, W> ReaderRole<Id, W> {
    /// The current reader.
    pub fn reader(&self) -> Reader {
        self.reader
    }

    /// Makes the calling thread the reader, unless another caller is.
    #[must_use]
    pub fn take(&mut self) -> Taken {
        match std::mem::replace(&mut self.reader, Reader::Caller) {
            Reader::Caller => Taken::Not,
            Reader::Reactor => Taken::FromReactor,
            Reader::Resting(_) => Taken::FromNone,
        }
    }

    /// The reader stops reading.
    pub fn rest(&mut self, now: Instant) {
        self.reader = Reader::Resting(now);
    }

    /// The reactor has registered the socket and reads again.
    pub fn attached(&mut self) {
        self.reader = Reader::Reactor;
    }

    /// A caller is about to park until it is woken; after locking again it must check again.
    pub fn block(&mut self, id: Id, waker: W) {
        self.blocked.push((id, waker));
    }

    /// The caller is awake again.
    pub fn unblock(&mut self, id: &Id) {
        self.blocked.retain(|(blocked, _)| blocked != id);
    }

    /// The caller to wake at the end of a blocking call: the one that has waited longest, if no thread reads.
    pub fn successor(&self) -> Option<&W> {
        match self.reader {
            Reader::Caller => None,
            _ => self.blocked.first().map(|(_, waker)| waker),
        }
    }

    /// All waiting callers; used when the circuit has closed.
    pub fn waiting_callers(&self) -> impl Iterator<Item = &W> {
        self.blocked.iter().map(|(_, waker)| waker)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use shuttle::sync::{Arc, Mutex};
    use shuttle::thread;

    use super::*;

    /// A circuit reduced to its role: replies are delivered one at a time to the reader.
    struct Shared {
        role: ReaderRole<thread::ThreadId, thread::Thread>,
        unread: Vec<usize>,
        answered: BTreeSet<usize>,
        /// The thread that the end of each operation wakes.
        waiters: BTreeMap<usize, thread::Thread>,
    }

    /// Handles the role as `Circuit::drive` of the client does.
    fn drive(shared: &Mutex<Shared>, mine: usize) {
        let mut state = shared.lock().unwrap();
        state.waiters.insert(mine, thread::current());
        while !state.answered.contains(&mine) {
            if state.role.take() == Taken::Not {
                let me = thread::current();
                let id = me.id();
                state.role.block(id, me);
                drop(state);
                thread::park();
                state = shared.lock().unwrap();
                state.role.unblock(&id);
                continue;
            }
            while !state.answered.contains(&mine) {
                drop(state);
                thread::yield_now();
                state = shared.lock().unwrap();
                let answer = state.unread.pop().expect("a reply was lost");
                state.answered.insert(answer);
                if let Some(owner) = state.waiters.get(&answer) {
                    owner.unpark();
                }
            }
            state.role.rest(Instant::now());
        }
        if let Some(successor) = state.role.successor() {
            successor.unpark();
        }
    }

    #[test]
    fn every_caller_receives_its_reply_regardless_of_thread_order() {
        shuttle::check_random(
            || {
                let n_callers = 4;
                let shared = Arc::new(Mutex::new(Shared {
                    role: ReaderRole::default(),
                    unread: (0..n_callers).collect(),
                    answered: BTreeSet::new(),
                    waiters: BTreeMap::new(),
                }));
                let callers: Vec<_> = (0..n_callers)
                    .map(|mine| {
                        let shared = shared.clone();
                        thread::spawn(move || drive(&shared, mine))
                    })
                    .collect();
                callers.into_iter().for_each(|caller| caller.join().unwrap());
                assert_eq!(shared.lock().unwrap().answered.len(), n_callers);
            },
            2000,
        );
    }
}
