//! The server's side of a load: counters that change on schedule, whether or not the updates are delivered.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use fodo_net::{PvTable, Reading, SharedPv, TimeStamp, Value};

use super::tally;
use super::worker::name_of;

/// The PVs `load:000000`, `load:000001` and so on.
pub struct LoadPvs {
    table: Arc<PvTable>,
    /// The value of each is an encoded number, its time stamp the moment at which it was scheduled to be sent.
    pvs: Vec<SharedPv>,
    /// The current number of all PVs.
    round: AtomicU64,
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
    pub fn new(n_pvs: u32) -> LoadPvs {
        let counter = |index| {
            let pv = SharedPv::new(0.0);
            pv.post_reading(reading(index, 0, TimeStamp::NEVER));
            pv
        };
        let pvs: Vec<SharedPv> = (0..n_pvs).map(counter).collect();
        let table = (0..).map(name_of).zip(pvs.iter().cloned()).collect();
        LoadPvs { table: Arc::new(table), pvs, round: AtomicU64::new(0) }
    }

    /// The PVs as a source.
    pub fn table(&self) -> Arc<PvTable> {
        self.table.clone()
    }

    /// Changes all PVs every `period`, `n_rounds` times. A late change is sent at once and keeps the time stamp of its
    /// scheduled moment, so that the delay counts in its latency.
    pub fn produce(&self, period: Duration, n_rounds: u64) -> ScheduleResult {
        let start_wall = TimeStamp::from(SystemTime::now());
        let late_max = on_schedule(period, n_rounds, |after| {
            let sequence = self.round.fetch_add(1, Ordering::Relaxed) + 1;
            let time = start_wall + after;
            (0..).zip(&self.pvs).for_each(|(index, pv)| pv.post_reading(reading(index, sequence, time)));
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
    Reading { time, ..Reading::bare(Value::from(tally::encode(index, sequence))) }
}
