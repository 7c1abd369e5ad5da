//! Which thread reads a circuit: the reactor, one blocking caller, an event loop of the program, or for a short time none.
//!
//! The role passes from one blocked caller to the next without involving the reactor. It must never be lost: while any
//! thread waits for a reply, another one reads or is about to. An event loop may be busy, so it reads until its lease ends
//! and no longer, and a caller that waits does not wait for it.

use std::time::Instant;

/// The thread that reads the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// The reactor; the socket is registered there.
    Reactor,
    /// A blocking caller.
    Caller,
    /// An event loop, until its lease ends.
    Loop,
    /// None since this time: the next caller takes the role, or soon the reactor does.
    Resting(Instant),
}

/// The result of [`ReaderRole::take`] and [`ReaderRole::lend`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// The calling thread is the reader; it must undo the reactor's registration.
    FromReactor,
    /// The calling thread is the reader; it must undo the registration with the event loop, which reads again when no
    /// caller does.
    FromLoop,
    /// The calling thread is the reader; no thread was before.
    FromNone,
    /// The reader is still the same.
    Not,
}

/// The reader and the callers that wait for the role. `W` wakes one of them; `Id` identifies them; `L` is an event loop.
#[derive(Debug)]
pub struct ReaderRole<Id, W, L> {
    reader: Reader,
    blocked: Vec<(Id, W)>,
    /// `Some` while an event loop reads, or reads next.
    lease: Option<LoopLease<L>>,
}

/// An event loop that reads unless a caller does.
#[derive(Debug)]
struct LoopLease<L> {
    holder: L,
    until: Instant,
    /// The loop has read since the lease began or was extended, so it is not busy.
    is_used: bool,
}

impl<Id, W, L> Default for ReaderRole<Id, W, L> {
    /// The reactor reads and no caller waits.
    fn default() -> ReaderRole<Id, W, L> {
        ReaderRole { reader: Reader::Reactor, blocked: Vec::new(), lease: None }
    }
}

impl<Id: PartialEq, W, L: Clone + PartialEq> ReaderRole<Id, W, L> {
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
            Reader::Loop => Taken::FromLoop,
            Reader::Resting(_) => Taken::FromNone,
        }
    }

    /// Makes an event loop the reader until this time, unless a caller or another event loop is. After a caller it is the
    /// next one. The lease of the event loop that reads already is extended only if it has read meanwhile.
    #[must_use]
    pub fn lend(&mut self, to: &L, until: Instant) -> Taken {
        match (self.reader, &mut self.lease) {
            (Reader::Loop, Some(lease)) => {
                if lease.holder == *to && std::mem::take(&mut lease.is_used) {
                    lease.until = until;
                }
                return Taken::Not;
            }
            (_, lease) => *lease = Some(LoopLease { holder: to.clone(), until, is_used: false }),
        }
        match self.reader {
            Reader::Loop | Reader::Caller => Taken::Not,
            Reader::Reactor => {
                self.reader = Reader::Loop;
                Taken::FromReactor
            }
            Reader::Resting(_) => {
                self.reader = Reader::Loop;
                Taken::FromNone
            }
        }
    }

    /// The event loop that reads, or reads when no caller does, and the end of its lease.
    #[inline]
    pub fn lease(&self) -> Option<(&L, Instant)> {
        self.lease.as_ref().map(|lease| (&lease.holder, lease.until))
    }

    /// Whether this event loop reads; it is about to.
    #[must_use]
    pub fn use_lease(&mut self, is_it: impl FnOnce(&L) -> bool) -> bool {
        match &mut self.lease {
            Some(lease) if self.reader == Reader::Loop && is_it(&lease.holder) => {
                lease.is_used = true;
                true
            }
            _ => false,
        }
    }

    /// Makes the event loop whose lease has not ended the reader, if no thread reads and no caller waits. Returns whether it
    /// became the reader.
    #[must_use]
    pub fn resume_loop(&mut self, now: Instant) -> bool {
        let is_free = matches!(self.reader, Reader::Resting(_)) && self.blocked.is_empty();
        let resumes = is_free && self.lease.as_ref().is_some_and(|lease| now < lease.until);
        if resumes {
            self.reader = Reader::Loop;
        }
        resumes
    }

    /// Ends the lease. Returns the event loop if it was the reader; its registration must be undone.
    pub fn end_lease(&mut self, now: Instant) -> Option<L> {
        let lease = self.lease.take()?;
        if self.reader != Reader::Loop {
            return None;
        }
        self.reader = Reader::Resting(now);
        Some(lease.holder)
    }

    /// The reader stops reading.
    pub fn rest(&mut self, now: Instant) {
        self.reader = Reader::Resting(now);
    }

    /// The reactor has registered the socket and reads again.
    pub fn attached(&mut self) {
        self.reader = Reader::Reactor;
        self.lease = None;
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
        role: ReaderRole<thread::ThreadId, thread::Thread, char>,
        unread: Vec<usize>,
        answered: BTreeSet<usize>,
        /// The thread that the end of each operation wakes.
        waiters: BTreeMap<usize, thread::Thread>,
        /// The event loop's thread, which a readable socket wakes while it is registered there.
        event_loop: Option<thread::Thread>,
        /// The reactor's thread, which the end of a lease wakes.
        reactor: Option<thread::Thread>,
    }

    impl Shared {
        fn new(n_replies: usize) -> Shared {
            Shared {
                role: ReaderRole::default(),
                unread: (0..n_replies).collect(),
                answered: BTreeSet::new(),
                waiters: BTreeMap::new(),
                event_loop: None,
                reactor: None,
            }
        }

        fn read_one(&mut self) {
            let answer = self.unread.pop().expect("a reply was lost");
            self.answered.insert(answer);
            if let Some(owner) = self.waiters.get(&answer) {
                owner.unpark();
            }
        }

        /// The event loop has become the reader: its descriptor is readable if the socket is, and its lease is timed.
        fn registered(&self) {
            self.event_loop.iter().chain(&self.reactor).for_each(thread::Thread::unpark);
        }

        /// The last step of a caller, as `Circuit::leave`. Without an event loop, the circuit rests until it is timed.
        fn leave(&mut self) {
            if let Some(successor) = self.role.successor() {
                successor.unpark();
            }
            if self.role.resume_loop(Instant::now()) {
                self.registered();
            } else if let Some(reactor) = &self.reactor {
                reactor.unpark();
            }
        }
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
                state.read_one();
            }
            state.role.rest(Instant::now());
        }
        state.leave();
    }

    /// Awaits one reply in an event loop. It serves the circuit only if it is not busy.
    fn await_in_loop(shared: &Mutex<Shared>, mine: usize, is_busy: bool) {
        let mut state = shared.lock().unwrap();
        state.waiters.insert(mine, thread::current());
        state.event_loop = Some(thread::current());
        let until = Instant::now() + std::time::Duration::from_secs(3600);
        if state.role.lend(&'a', until) != Taken::Not {
            state.registered();
        }
        while !state.answered.contains(&mine) {
            if !is_busy && state.role.reader() == Reader::Loop {
                state.read_one();
                continue;
            }
            drop(state);
            thread::park();
            state = shared.lock().unwrap();
        }
    }

    /// Serves as `Circuit::serve_open` does when a lease has ended or the circuit has rested, until all is answered.
    fn take_back(shared: &Mutex<Shared>, n_replies: usize) {
        let mut state = shared.lock().unwrap();
        state.reactor = Some(thread::current());
        while state.answered.len() < n_replies {
            if state.role.end_lease(Instant::now()).is_some() || matches!(state.role.reader(), Reader::Resting(_)) {
                state.role.attached();
            }
            if state.role.reader() == Reader::Reactor && !state.unread.is_empty() {
                state.read_one();
                drop(state);
                thread::yield_now();
            } else {
                drop(state);
                thread::park();
            }
            state = shared.lock().unwrap();
        }
    }

    #[test]
    fn every_caller_receives_its_reply_regardless_of_thread_order() {
        shuttle::check_random(
            || {
                let n_callers = 4;
                let shared = Arc::new(Mutex::new(Shared::new(n_callers)));
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

    /// Two callers and an event loop; the reactor takes the reading back at any moment.
    fn callers_and_a_loop(is_busy: bool) {
        shuttle::check_random(
            move || {
                let n_replies = 3;
                let shared = Arc::new(Mutex::new(Shared::new(n_replies)));
                let (of_reactor, of_loop) = (shared.clone(), shared.clone());
                let mut threads = vec![
                    thread::spawn(move || take_back(&of_reactor, n_replies)),
                    thread::spawn(move || await_in_loop(&of_loop, 0, is_busy)),
                ];
                threads.extend((1..n_replies).map(|mine| {
                    let shared = shared.clone();
                    thread::spawn(move || drive(&shared, mine))
                }));
                let reactor = threads.remove(0);
                threads.into_iter().for_each(|waiting| waiting.join().unwrap());
                reactor.thread().unpark();
                reactor.join().unwrap();
                assert_eq!(shared.lock().unwrap().answered.len(), n_replies);
            },
            5000,
        );
    }

    #[test]
    fn callers_and_an_event_loop_receive_their_replies_regardless_of_thread_order() {
        callers_and_a_loop(false);
    }

    #[test]
    fn an_event_loop_that_serves_nothing_delays_no_reply_for_ever() {
        callers_and_a_loop(true);
    }

    #[test]
    fn the_role_passes_from_the_reactor_to_one_caller_and_back() {
        let now = Instant::now();
        let mut role = ReaderRole::<u32, char, char>::default();
        assert_eq!(role.reader(), Reader::Reactor);

        assert_eq!((role.take(), role.reader()), (Taken::FromReactor, Reader::Caller));
        assert_eq!((role.take(), role.reader()), (Taken::Not, Reader::Caller));
        role.rest(now);
        assert_eq!(role.reader(), Reader::Resting(now));
        assert_eq!((role.take(), role.reader()), (Taken::FromNone, Reader::Caller));
        role.attached();
        assert_eq!((role.reader(), role.take()), (Reader::Reactor, Taken::FromReactor));
    }

    #[test]
    fn an_event_loop_reads_until_its_lease_ends_and_again_after_a_caller() {
        let now = Instant::now();
        let until = now + std::time::Duration::from_secs(1);
        let mut role = ReaderRole::<u32, char, char>::default();

        assert_eq!((role.lend(&'a', now), role.reader()), (Taken::FromReactor, Reader::Loop));
        assert_eq!((role.lend(&'a', until), role.lease()), (Taken::Not, Some((&'a', now))), "it has not read");
        assert!(!role.use_lease(|holder| *holder == 'b') && role.use_lease(|holder| *holder == 'a'));
        assert_eq!((role.lend(&'a', until), role.lease()), (Taken::Not, Some((&'a', until))));
        assert_eq!((role.lend(&'a', now), role.lease()), (Taken::Not, Some((&'a', until))), "nor again");
        assert_eq!((role.lend(&'b', until), role.lease()), (Taken::Not, Some((&'a', until))), "another one waits");
        assert_eq!((role.take(), role.reader()), (Taken::FromLoop, Reader::Caller));
        assert!(!role.resume_loop(now), "a caller reads");
        role.rest(now);
        role.block(1, 'w');
        assert!(!role.resume_loop(now), "a caller waits");
        role.unblock(&1);
        assert!(!role.resume_loop(until), "the lease has ended");
        assert!(role.resume_loop(now));
        assert_eq!((role.end_lease(now), role.reader(), role.lease()), (Some('a'), Reader::Resting(now), None));
        assert_eq!((role.end_lease(now), role.lend(&'b', until)), (None, Taken::FromNone));
    }

    #[test]
    fn an_event_loop_that_comes_while_a_caller_reads_is_the_next_reader() {
        let now = Instant::now();
        let mut role = ReaderRole::<u32, char, char>::default();
        assert_eq!(role.take(), Taken::FromReactor);

        assert_eq!(role.lend(&'a', now + std::time::Duration::from_secs(1)), Taken::Not);
        role.rest(now);
        assert!(role.resume_loop(now));
        assert_eq!(role.reader(), Reader::Loop);
        role.attached();
        assert_eq!(role.lease(), None);
    }

    #[test]
    fn the_successor_is_the_caller_that_has_waited_longest_if_no_caller_reads() {
        let mut role = ReaderRole::<_, _, char>::default();
        assert_eq!(role.successor(), None);
        [(1, 'a'), (2, 'b'), (3, 'c')].into_iter().for_each(|(id, waker)| role.block(id, waker));

        assert_eq!(role.successor(), Some(&'a'));
        assert_eq!((role.take(), role.successor()), (Taken::FromReactor, None));
        role.rest(Instant::now());
        role.unblock(&1);
        role.unblock(&1);
        assert_eq!(role.successor(), Some(&'b'));
        assert_eq!(role.waiting_callers().collect::<String>(), "bc");
    }
}
