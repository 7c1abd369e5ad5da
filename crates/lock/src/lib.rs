//! Locks without poisoning, whose order is checked in debug builds.
//!
//! A lock of [`Mutex::new`] is a leaf: while a thread holds it, the thread takes no other lock. A lock that a thread
//! holds while it takes others has a [`Rank`], and ranks are taken in ascending order. Debug builds panic at the first
//! lock out of order, so every unit test checks the order; release builds contain neither rank nor check.
//!
//! ```
//! use fodo_lock::{Mutex, Rank};
//!
//! let driver = Mutex::ranked(Rank::Driver, Vec::new());
//! let count = Mutex::new(0);
//!
//! let mut events = driver.lock();
//! *count.lock() += 1;
//! events.push("counted");
//! ```
#![forbid(unsafe_code)]

mod rank;

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

pub use rank::Rank;
pub use std::sync::WaitTimeoutResult;

use rank::{Held, RankOf};

/// A lock for one thread at a time. A thread that panics while it holds the lock releases it.
pub struct Mutex<T: ?Sized> {
    rank: RankOf,
    inner: parking_lot::Mutex<T>,
}

/// Access to the contents of a [`Mutex`]; dropping it releases the lock.
pub struct MutexGuard<'a, T: ?Sized> {
    guard: parking_lot::MutexGuard<'a, T>,
    held: Held,
}

impl<T> Mutex<T> {
    /// A leaf: no lock may be taken while this one is held.
    pub const fn new(value: T) -> Mutex<T> {
        Mutex::ranked(Rank::Leaf, value)
    }

    /// A lock that may be held while locks of higher rank are taken.
    pub const fn ranked(rank: Rank, value: T) -> Mutex<T> {
        Mutex { rank: RankOf::new(rank), inner: parking_lot::Mutex::new(value) }
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits for the lock and takes it. In debug builds, panics if this thread holds a lock of the same or a higher rank.
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let held = Held::check(self.rank);
        MutexGuard { guard: self.inner.lock(), held }
    }

    /// Takes the lock if it is free. The order is checked as in [`Mutex::lock`].
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let held = Held::check(self.rank);
        self.inner.try_lock().map(|guard| MutexGuard { guard, held })
    }

    /// The contents, without locking: the borrow proves that no other thread has access.
    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut()
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Mutex<T> {
        Mutex::new(T::default())
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

/// A condition that threads wait for while they release a [`Mutex`].
///
/// The child of a fork can use its own conditions although threads of its parent were waiting. Therefore a wait uses the
/// condition of the standard library, whose state is inside it. That of `parking_lot` is in a table of the process, which
/// refers to the stacks of waiting threads; the child frees these stacks.
#[derive(Debug, Default)]
pub struct Condvar {
    /// The number of threads that wait, or are about to.
    n_waiting: AtomicUsize,
    /// Held from the release of the lock until the thread waits, so that no notification is lost.
    gate: std::sync::Mutex<()>,
    notified: std::sync::Condvar,
}

impl Condvar {
    /// A condition for which no thread waits yet.
    pub const fn new() -> Condvar {
        Condvar { n_waiting: AtomicUsize::new(0), gate: std::sync::Mutex::new(()), notified: std::sync::Condvar::new() }
    }

    /// Releases the lock, waits for a notification and takes the lock again. May also return without a notification.
    /// In debug builds, panics if this thread holds another lock.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn wait<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>) {
        guard.held.check_only_one();
        self.with_gate(guard, |gate| drop(self.notified.wait(gate)));
    }

    /// As [`Condvar::wait`], for at most `timeout`.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn wait_for<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>, timeout: Duration) -> WaitTimeoutResult {
        guard.held.check_only_one();
        self.with_gate(guard, |gate| {
            let waited = self.notified.wait_timeout(gate, timeout);
            waited.unwrap_or_else(PoisonError::into_inner).1
        })
    }

    /// Waits without the lock.
    fn with_gate<T: ?Sized, R>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        wait: impl FnOnce(std::sync::MutexGuard<'_, ()>) -> R,
    ) -> R {
        // A thread that changes what this one waits for takes the lock later, and then sees the count.
        self.n_waiting.fetch_add(1, Ordering::SeqCst);
        let gate = self.locked_gate();
        let result = parking_lot::MutexGuard::unlocked(&mut guard.guard, || wait(gate));
        self.n_waiting.fetch_sub(1, Ordering::SeqCst);
        result
    }

    fn locked_gate(&self) -> std::sync::MutexGuard<'_, ()> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes one waiting thread.
    pub fn notify_one(&self) {
        if self.n_waiting.load(Ordering::SeqCst) > 0 {
            drop(self.locked_gate());
            self.notified.notify_one();
        }
    }

    /// Wakes all waiting threads.
    pub fn notify_all(&self) {
        if self.n_waiting.load(Ordering::SeqCst) > 0 {
            drop(self.locked_gate());
            self.notified.notify_all();
        }
    }
}

/// A lock for many readers or one writer. A thread must not take it a second time while it reads.
pub struct RwLock<T> {
    rank: RankOf,
    inner: parking_lot::RwLock<T>,
}

/// Access to the contents of an [`RwLock`] for reading.
pub struct RwLockReadGuard<'a, T> {
    guard: parking_lot::RwLockReadGuard<'a, T>,
    _held: Held,
}

/// Access to the contents of an [`RwLock`] for writing.
pub struct RwLockWriteGuard<'a, T> {
    guard: parking_lot::RwLockWriteGuard<'a, T>,
    _held: Held,
}

impl<T> RwLock<T> {
    /// A leaf: no lock may be taken while this one is held.
    pub const fn new(value: T) -> RwLock<T> {
        RwLock { rank: RankOf::new(Rank::Leaf), inner: parking_lot::RwLock::new(value) }
    }

    /// Waits until no thread writes. The order is checked as in [`Mutex::lock`].
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        let held = Held::check(self.rank);
        RwLockReadGuard { guard: self.inner.read(), _held: held }
    }

    /// Waits until no thread reads or writes. The order is checked as in [`Mutex::lock`].
    #[inline]
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        let held = Held::check(self.rank);
        RwLockWriteGuard { guard: self.inner.write(), _held: held }
    }
}

impl<T: Default> Default for RwLock<T> {
    fn default() -> RwLock<T> {
        RwLock::new(T::default())
    }
}

impl<T: fmt::Debug> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl<T> Deref for RwLockReadGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for RwLockWriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, mpsc};
    use std::time::Instant;

    use super::*;

    /// The text of the panic of `work`, on a thread of its own.
    fn panic_of(work: impl FnOnce() + Send + 'static) -> Option<String> {
        let panic = std::thread::spawn(work).join().err()?;
        panic.downcast::<String>().ok().map(|text| *text)
    }

    /// Takes a lock that another thread releases when it waits.
    fn locked_soon<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        let start = Instant::now();
        loop {
            if let Some(guard) = mutex.try_lock() {
                return guard;
            }
            assert!(start.elapsed() < Duration::from_secs(10), "the other thread keeps its lock");
            std::thread::yield_now();
        }
    }

    #[test]
    fn locks_are_taken_in_the_order_of_their_ranks() {
        let (driver, record, leaf) = (Mutex::ranked(Rank::Driver, 1), Mutex::ranked(Rank::Record, 2), Mutex::new(3));

        let (driver, record, leaf) = (driver.lock(), record.lock(), leaf.lock());

        assert_eq!(*driver + *record + *leaf, 6);
    }

    #[test]
    fn a_lock_out_of_order_panics_in_a_debug_build_even_if_it_is_free() {
        let panic = panic_of(|| {
            let (driver, record) = (Mutex::ranked(Rank::Driver, ()), Mutex::ranked(Rank::Record, ()));
            let _record = record.lock();
            let _driver = driver.lock();
        });

        let expected = cfg!(debug_assertions).then_some("Driver locked while Record is held");
        assert_eq!(panic.as_deref().and_then(|text| text.split(';').next()), expected);
    }

    #[cfg(debug_assertions)]
    #[test]
    fn the_panic_names_the_file_that_takes_the_lock() {
        let (sender, places) = mpsc::channel();
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let is_ours = std::thread::current().name() == Some("out of order");
            if let Some(place) = panic.location().filter(|_| is_ours) {
                sender.send((place.file().to_owned(), place.line())).unwrap();
            }
            before(panic);
        }));
        let line = line!() + 4;
        let wrong = || {
            let (driver, record) = (Mutex::ranked(Rank::Driver, ()), Mutex::ranked(Rank::Record, ()));
            let _record = record.lock();
            let _driver = driver.lock();
        };
        let thread = std::thread::Builder::new().name("out of order".into()).spawn(wrong).unwrap();

        assert!(thread.join().is_err());
        assert_eq!(places.recv().unwrap(), (file!().to_owned(), line));
    }

    #[test]
    fn two_locks_of_one_rank_are_out_of_order() {
        let two_records = panic_of(|| {
            let (one, other) = (Mutex::ranked(Rank::Record, ()), Mutex::ranked(Rank::Record, ()));
            let _one = one.lock();
            let _other = other.lock();
        });
        let two_readers = panic_of(|| {
            let rules = RwLock::new(());
            let _one = rules.read();
            let _other = rules.read();
        });

        assert_eq!(two_records.is_some(), cfg!(debug_assertions));
        assert_eq!(two_readers.is_some(), cfg!(debug_assertions));
    }

    #[test]
    fn locks_may_be_released_in_any_order() {
        let (driver, record) = (Mutex::ranked(Rank::Driver, ()), Mutex::ranked(Rank::Record, ()));
        let (held, later) = (driver.lock(), record.lock());

        drop(held);
        drop(later);

        drop(driver.lock());
        drop(record.lock());
    }

    #[test]
    fn a_try_takes_a_free_lock() {
        let leaf = Mutex::new(1);

        let taken = leaf.try_lock().map(|value| *value);

        assert_eq!(taken, Some(1));
    }

    #[test]
    fn a_try_that_fails_holds_nothing() {
        let leaf = Arc::new(Mutex::new(()));
        let (locked, is_locked) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        let holder = leaf.clone();
        let thread = std::thread::spawn(move || {
            let _held = holder.lock();
            locked.send(()).unwrap();
            released.recv().unwrap();
        });
        is_locked.recv().unwrap();

        assert!(leaf.try_lock().is_none());
        release.send(()).unwrap();
        thread.join().unwrap();

        drop(leaf.lock());
    }

    #[test]
    fn a_panic_of_another_thread_leaves_the_lock_usable() {
        let value = Arc::new(Mutex::new(1));
        let theirs = value.clone();

        assert!(panic_of(move || panic!("with {} held", *theirs.lock())).is_some());

        assert_eq!(*value.lock(), 1);
    }

    #[test]
    fn a_waiting_thread_releases_its_lock_until_it_is_notified() {
        let shared = Arc::new((Mutex::new(false), Condvar::new()));
        let ours = shared.clone();
        let (locked, is_locked) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let mut is_done = ours.0.lock();
            locked.send(()).unwrap();
            while !*is_done {
                ours.1.wait(&mut is_done);
            }
        });
        is_locked.recv().unwrap();

        *locked_soon(&shared.0) = true;
        shared.1.notify_all();

        thread.join().unwrap();
    }

    #[test]
    fn one_notification_wakes_a_waiting_thread() {
        let shared = Arc::new((Mutex::new(false), Condvar::new()));
        let ours = shared.clone();
        let (sender, messages) = mpsc::channel();
        std::thread::spawn(move || {
            let mut is_done = ours.0.lock();
            sender.send("waits").unwrap();
            while !*is_done {
                ours.1.wait(&mut is_done);
            }
            sender.send("is woken").unwrap();
        });
        assert_eq!(messages.recv(), Ok("waits"));

        *locked_soon(&shared.0) = true;
        shared.1.notify_one();

        assert_eq!(messages.recv_timeout(Duration::from_secs(10)), Ok("is woken"));
    }

    #[test]
    fn a_wait_without_a_notification_ends_at_its_timeout() {
        let (leaf, changed) = (Mutex::new(()), Condvar::new());

        assert!(changed.wait_for(&mut leaf.lock(), Duration::from_millis(1)).timed_out());
    }

    #[test]
    fn what_is_written_under_a_lock_is_read_under_it_later() {
        let (mut mutex, lock) = (Mutex::new(1), RwLock::new(2));

        *mutex.lock() += 10;
        *mutex.get_mut() += 100;
        *lock.write() += 10;

        assert_eq!(*mutex.lock(), 111);
        assert_eq!(*lock.read(), 12);
    }

    #[test]
    fn a_thread_that_waits_holds_no_other_lock() {
        let panic = panic_of(|| {
            let (driver, leaf, changed) = (Mutex::ranked(Rank::Driver, ()), Mutex::new(()), Condvar::new());
            let _driver = driver.lock();
            changed.wait_for(&mut leaf.lock(), Duration::ZERO);
        });

        assert_eq!(panic.is_some(), cfg!(debug_assertions));
    }

    #[test]
    fn debug_output_of_a_lock_shows_its_contents() {
        let (mutex, lock) = (format!("{:?}", Mutex::new(17)), format!("{:?}", RwLock::new(18)));

        assert!(mutex.contains("17") && lock.contains("18"), "{mutex} {lock}");
    }

    #[test]
    fn a_release_build_stores_no_ranks() {
        let extra = if cfg!(debug_assertions) { 8 } else { 0 };

        assert!(size_of::<Mutex<u64>>() <= size_of::<parking_lot::Mutex<u64>>() + extra);
    }
}
