//! The server's side of a load: counters that change on schedule, whether or not the updates are delivered.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use fodo_net::{
    Alarm, Completion, EventMask, Kind, Meta, Peer, Post, Posts, PutRefusal, Pv, PvFacts, Reading, Severity, Source,
    TimeStamp, Value,
};

use super::tally;

/// Posts that each counter keeps: as many as the IOC keeps for a scalar.
const POSTS: usize = 8;

/// The PVs `load:000000`, `load:000001` and so on.
pub struct LoadPvs {
    pvs: Vec<Arc<LoadPv>>,
    /// The current number of all PVs.
    round: AtomicU64,
}

/// One PV. Its value is an encoded number, its time stamp the moment at which it was scheduled to be sent.
struct LoadPv {
    index: u32,
    present: Mutex<Reading>,
    posts: Posts,
}

/// Result of a run of the schedule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScheduleResult {
    /// Changes of all PVs together.
    pub n_posts: u64,
    /// Maximum delay of a change after its scheduled moment.
    pub late_max: Duration,
}

impl LoadPvs {
    /// `n_pvs` counters, all at number 0.
    pub fn new(n_pvs: u32) -> Arc<LoadPvs> {
        let counter = |index| {
            let present = Mutex::new(reading(index, 0, TimeStamp::NEVER));
            Arc::new(LoadPv { index, present, posts: Posts::new(POSTS) })
        };
        Arc::new(LoadPvs { pvs: (0..n_pvs).map(counter).collect(), round: AtomicU64::new(0) })
    }

    /// Changes all PVs every `period`, `n_rounds` times. A late change is sent at once and keeps the time stamp of its
    /// scheduled moment, so that the delay counts in its latency.
    pub fn produce(&self, period: Duration, n_rounds: u64) -> ScheduleResult {
        let start_wall = TimeStamp::from(SystemTime::now());
        let late_max = on_schedule(period, n_rounds, |after| {
            let sequence = self.round.fetch_add(1, Ordering::Relaxed) + 1;
            self.pvs.iter().for_each(|pv| pv.set(sequence, start_wall + after));
        });
        ScheduleResult { n_posts: n_rounds * self.pvs.len() as u64, late_max }
    }
}

/// Calls `change` every `period`, `n_rounds` times, with the time after the start at which it is due; a late change is
/// done at once. Returns the maximum delay after the scheduled moment.
pub fn on_schedule(period: Duration, n_rounds: u64, mut change: impl FnMut(Duration)) -> Duration {
    let start = Instant::now();
    let mut late_max = Duration::ZERO;
    for round in 0..n_rounds {
        let after = period.mul_f64(round as f64);
        let now = start.elapsed();
        if now < after {
            std::thread::sleep(after - now);
        }
        change(after);
        late_max = late_max.max(start.elapsed().saturating_sub(after));
    }
    late_max
}

fn reading(index: u32, sequence: u64, time: TimeStamp) -> Reading {
    Reading { value: Value::from(tally::encode(index, sequence)), alarm: Alarm::default(), time, meta: None }
}

impl LoadPv {
    fn set(&self, sequence: u64, time: TimeStamp) {
        let mut present = self.present.lock().unwrap_or_else(PoisonError::into_inner);
        *present = reading(self.index, sequence, time);
        self.posts.push(Post { mask: EventMask::VALUE, reading: present.clone() });
    }
}

impl Source for LoadPvs {
    fn serves(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    fn open(&self, name: &str) -> Option<Arc<dyn Pv>> {
        self.find(name).map(|pv| pv.clone() as Arc<dyn Pv>)
    }
}

impl LoadPvs {
    fn find(&self, name: &str) -> Option<&Arc<LoadPv>> {
        self.pvs.get(name.strip_prefix("load:")?.parse::<usize>().ok()?)
    }
}

impl Pv for LoadPv {
    fn facts(&self) -> PvFacts {
        PvFacts { kind: Kind::F64, count_max: 1, is_read_only: true, class_name: "load" }
    }

    fn read(&self) -> Reading {
        self.present.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn meta(&self) -> Arc<Meta> {
        Arc::default()
    }

    fn put(&self, _value: Value, _by: &Peer, _completion: Option<Completion>) -> Result<(), PutRefusal> {
        Err(PutRefusal::ReadOnly)
    }

    fn acknowledge(&self, _transient: Option<bool>, _severity: Option<Severity>) -> Result<(), PutRefusal> {
        Err(PutRefusal::ReadOnly)
    }

    fn posts(&self) -> &Posts {
        &self.posts
    }

    fn listeners_changed(&self) {}

    fn attach(&self, attach: &mut dyn FnMut(Reading)) {
        let present = self.present.lock().unwrap_or_else(PoisonError::into_inner);
        attach(present.clone());
    }
}
