//! The book of a watcher: one page per subscription.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use fodo_lock::{Mutex, MutexGuard, Rank};
use fodo_net::TimeStamp;

use super::double::{Misbehavior, Update, UpdateFault};
use super::tally::{DeliveryTally, Latencies, NumberEncoding, Sums};

/// All pages of a client.
pub struct UpdateLog {
    numbers: NumberEncoding,
    double: Option<Misbehavior>,
    pages: Vec<Arc<SubscriptionLog>>,
    common: Arc<SharedState>,
}

/// The record of one subscription.
pub struct SubscriptionLog {
    pv: u32,
    subscription: usize,
    numbers: NumberEncoding,
    tally: Mutex<(UpdateFault, DeliveryTally)>,
    common: Arc<SharedState>,
}

/// State shared by all pages.
struct SharedState {
    start: Instant,
    /// The same moment by this host's wall clock, as known when counting started: reading a second clock for each
    /// update would take as long as everything else.
    start_unix_ns: AtomicU64,
    latencies: Mutex<Latencies>,
    n_begun: AtomicU64,
    fresh: Mutex<RestartProgress>,
}

/// Which subscriptions have received an update since counting started, and when the first and the last subscription
/// did.
#[derive(Debug, Default)]
pub struct RestartProgress {
    has_update: Vec<bool>,
    /// Number of subscriptions that have received an update.
    pub n_fresh: usize,
    /// When the first of them received it, by this host's wall clock.
    pub first_unix_ns: u64,
    /// When the last of them received it.
    pub last_unix_ns: u64,
}

impl RestartProgress {
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

    /// Whether all subscriptions have received an update.
    pub fn is_complete(&self) -> bool {
        self.n_fresh == self.has_update.len()
    }
}

impl UpdateLog {
    /// A book without pages. `double` falsifies what is written into it.
    pub fn new(numbers: NumberEncoding, double: Option<Misbehavior>) -> UpdateLog {
        let common = SharedState {
            start: Instant::now(),
            start_unix_ns: AtomicU64::new(unix_ns()),
            latencies: Mutex::default(),
            n_begun: AtomicU64::new(0),
            fresh: Mutex::default(),
        };
        UpdateLog { numbers, double, pages: Vec::new(), common: Arc::new(common) }
    }

    /// Adds the page of another subscription to a PV.
    pub fn page(&mut self, pv: u32) -> Arc<SubscriptionLog> {
        let subscription = self.pages.len();
        let fault = UpdateFault::new(self.double, subscription as u64);
        self.common.fresh.lock().has_update.push(false);
        let page = Arc::new(SubscriptionLog {
            pv,
            subscription,
            numbers: self.numbers,
            tally: Mutex::ranked(Rank::LoadTally, (fault, DeliveryTally::default())),
            common: self.common.clone(),
        });
        self.pages.push(page.clone());
        page
    }

    /// Number of subscriptions, and how many of them have received an update.
    pub fn n_begun(&self) -> (u64, u64) {
        (self.pages.len() as u64, self.common.n_begun.load(Ordering::Acquire))
    }

    /// Resets all pages, except for the position of each counter.
    pub fn restart(&self) {
        let start_unix_ns = unix_ns().saturating_sub(nanos(self.common.start.elapsed()));
        self.common.start_unix_ns.store(start_unix_ns, Ordering::Relaxed);
        *self.common.latencies.lock() = Latencies::default();
        for page in &self.pages {
            page.tally.lock().1.restart();
        }
        self.common.fresh.lock().forget();
    }

    /// Sums over all pages.
    pub fn sums(&self) -> Sums {
        let mut sums = Sums::default();
        for page in &self.pages {
            sums.add(page.tally.lock().1.sums());
        }
        sums
    }

    /// Latencies over all pages, see [`Latencies::counts`].
    pub fn latencies(&self) -> Vec<(u64, u64)> {
        self.common.latencies.lock().counts()
    }

    /// The current [`RestartProgress`].
    pub fn fresh(&self) -> MutexGuard<'_, RestartProgress> {
        self.common.fresh.lock()
    }
}

impl SubscriptionLog {
    /// Records an update. Called on the thread on which the client calls back.
    pub fn update(&self, value: f64, time: TimeStamp) {
        let at = self.common.start.elapsed();
        let now_unix_ns = self.common.start_unix_ns.load(Ordering::Relaxed) + nanos(at);
        let latency = since(time, now_unix_ns);
        let mut guard = self.tally.lock();
        let (fault, tally) = &mut *guard;
        if !tally.is_fresh() {
            self.common.fresh.lock().note(self.subscription);
        }
        fault.pass(Update { value, latency }, &mut |update| {
            if tally.has_begun() {
                self.common.latencies.lock().add(update.latency);
            } else {
                self.common.n_begun.fetch_add(1, Ordering::AcqRel);
            }
            tally.add(self.numbers.decode(self.pv, update.value), at);
        });
    }
}

fn unix_ns() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

fn nanos(duration: Duration) -> u64 {
    duration.as_nanos() as u64
}

/// Time from `then` to `now_unix_ns`, both by this host's wall clock; zero when `then` is later.
fn since(then: TimeStamp, now_unix_ns: u64) -> Duration {
    let then_unix_ns = i128::from(then.unix_s) * 1_000_000_000 + i128::from(then.nanos);
    u64::try_from(i128::from(now_unix_ns) - then_unix_ns).map_or(Duration::ZERO, Duration::from_nanos)
}
