//! What a watcher writes down: a page for each subscription.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use fodo_net::TimeStamp;

use super::double::{Double, Meddler, Update};
use super::tally::{Latencies, Numbers, Sums, Tally};

/// All pages of a client.
pub struct Book {
    numbers: Numbers,
    double: Option<Double>,
    pages: Vec<Arc<Page>>,
    common: Arc<Common>,
}

/// What came of one subscription.
pub struct Page {
    pv: u32,
    subscription: usize,
    numbers: Numbers,
    tally: Mutex<(Meddler, Tally)>,
    common: Arc<Common>,
}

/// What all pages share.
struct Common {
    start: Instant,
    /// That moment by the wall clock of this host, as it was known when counting started: a second look at a clock for each
    /// update would take as long as all the rest.
    start_unix_ns: AtomicU64,
    latencies: Mutex<Latencies>,
    n_begun: AtomicU64,
    fresh: Mutex<Fresh>,
}

/// Which subscriptions have had an update since counting started, and when the first and last had.
#[derive(Debug, Default)]
pub struct Fresh {
    has_update: Vec<bool>,
    /// How many have.
    pub n_fresh: usize,
    /// When the first had it, by the wall clock of this host.
    pub first_unix_ns: u64,
    /// When the last had it.
    pub last_unix_ns: u64,
}

impl Fresh {
    fn note(&mut self, subscription: usize) {
        if let Some(has_update @ false) = self.has_update.get_mut(subscription) {
            *has_update = true;
            self.n_fresh += 1;
            self.last_unix_ns = unix_ns();
            if self.n_fresh == 1 {
                self.first_unix_ns = self.last_unix_ns;
            }
        }
    }

    fn forget(&mut self) {
        self.has_update.fill(false);
        self.n_fresh = 0;
    }

    /// Whether all have.
    pub fn is_complete(&self) -> bool {
        self.n_fresh == self.has_update.len()
    }
}

impl Book {
    /// Without pages. A double falsifies what is written into it.
    pub fn new(numbers: Numbers, double: Option<Double>) -> Book {
        let common = Common {
            start: Instant::now(),
            start_unix_ns: AtomicU64::new(unix_ns()),
            latencies: Mutex::default(),
            n_begun: AtomicU64::new(0),
            fresh: Mutex::default(),
        };
        Book { numbers, double, pages: Vec::new(), common: Arc::new(common) }
    }

    /// The page of a further subscription to a PV.
    pub fn page(&mut self, pv: u32) -> Arc<Page> {
        let subscription = self.pages.len();
        let meddler = Meddler::new(self.double, subscription as u64);
        lock(&self.common.fresh).has_update.push(false);
        let page = Arc::new(Page {
            pv,
            subscription,
            numbers: self.numbers,
            tally: Mutex::new((meddler, Tally::default())),
            common: self.common.clone(),
        });
        self.pages.push(page.clone());
        page
    }

    /// How many subscriptions there are, and how many have had an update.
    pub fn n_begun(&self) -> (u64, u64) {
        (self.pages.len() as u64, self.common.n_begun.load(Ordering::Acquire))
    }

    /// What was written is forgotten, but for where each counter stands.
    pub fn restart(&self) {
        let start_unix_ns = unix_ns().saturating_sub(nanos(self.common.start.elapsed()));
        self.common.start_unix_ns.store(start_unix_ns, Ordering::Relaxed);
        *lock(&self.common.latencies) = Latencies::default();
        for page in &self.pages {
            lock(&page.tally).1.restart();
        }
        lock(&self.common.fresh).forget();
    }

    /// Over all pages.
    pub fn sums(&self) -> Sums {
        let mut sums = Sums::default();
        for page in &self.pages {
            sums.add(lock(&page.tally).1.sums());
        }
        sums
    }

    /// Over all pages, see [`Latencies::counts`].
    pub fn latencies(&self) -> Vec<(u64, u64)> {
        lock(&self.common.latencies).counts()
    }

    /// See [`Fresh`].
    pub fn fresh(&self) -> MutexGuard<'_, Fresh> {
        lock(&self.common.fresh)
    }
}

impl Page {
    /// An update came. Called on whichever thread the client calls back.
    pub fn update(&self, value: f64, time: TimeStamp) {
        let at = self.common.start.elapsed();
        let now_unix_ns = self.common.start_unix_ns.load(Ordering::Relaxed) + nanos(at);
        let latency = since(time, now_unix_ns);
        let mut guard = lock(&self.tally);
        let (meddler, tally) = &mut *guard;
        if !tally.is_fresh() {
            lock(&self.common.fresh).note(self.subscription);
        }
        meddler.pass(Update { value, latency }, &mut |update| {
            if tally.has_begun() {
                lock(&self.common.latencies).add(update.latency);
            } else {
                self.common.n_begun.fetch_add(1, Ordering::AcqRel);
            }
            tally.add(self.numbers.decode(self.pv, update.value), at);
        });
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn unix_ns() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

fn nanos(duration: Duration) -> u64 {
    duration.as_nanos() as u64
}

/// From a moment of this host's wall clock to another; zero when it lies ahead.
fn since(then: TimeStamp, now_unix_ns: u64) -> Duration {
    let then_unix_ns = i128::from(then.unix_s) * 1_000_000_000 + i128::from(then.nanos);
    u64::try_from(i128::from(now_unix_ns) - then_unix_ns).map_or(Duration::ZERO, Duration::from_nanos)
}
