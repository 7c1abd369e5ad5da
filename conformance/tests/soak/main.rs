//! Runs random faults against `fodo ioc` for any duration, with well-behaved clients next to them, and single trials of
//! the worst that a hostile host can do. The rows are those of `docs/reference/faults.md`.
#![forbid(unsafe_code)]

#[path = "../../../crates/net/tests/faults/raw.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod raw;

mod faults;
mod ioc;
mod neighbour;
mod trials;

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use fodo_net::{Channel, Context, Monitor, MonitorEvent, MonitorOptions, Reading};

use faults::{FAULTS, Hostile};
use ioc::Ioc;
use neighbour::Neighbour;

/// Maximum time for anything that must happen.
const PATIENCE: Duration = Duration::from_secs(30);

/// Maximum growth of memory after the warm-up. The allocator keeps some tens of megabytes of half-sent values. A leak
/// of a hundred bytes per fault would exceed this within an hour.
const GROWTH_BYTES_MAX: u64 = 96 << 20;

/// Maximum 99th percentile of a well-behaved client's gets during a fault. The target on an idle machine is 20 ms; this
/// limit allows for a busy one, with what follows.
const LATENCY_MAX: Duration = Duration::from_secs(1);

/// How many threads a get may wait for, one after the other, on a machine that wakes each of them late.
const N_WAKES: u32 = 10;

fn number(reading: &Reading) -> f64 {
    reading.value.first().and_then(|value| value.to_f64().ok()).expect("a number")
}

/// Watches a counting PV until `is_over`; returns the number of updates received, and the number of those that the client
/// has not received.
fn account(monitor: &Monitor, is_over: &AtomicBool) -> (u64, i64) {
    let (mut n, mut span) = (0, None);
    while !is_over.load(Ordering::Relaxed) {
        match monitor.next_timeout(Duration::from_millis(200)) {
            Some(MonitorEvent::Update(reading)) => {
                let value = number(&reading);
                let (first, _) = span.unwrap_or((value, value));
                span = Some((first, value));
                n += 1;
            }
            Some(MonitorEvent::Connected(_)) | None => {}
            Some(other) => panic!("unexpected event for a well-behaved client: {other:?}"),
        }
    }
    let (first, last) = span.expect("updates were received");
    let counts = monitor.counts();
    (n, (last - first) as i64 + 1 - n as i64 - counts.merged as i64)
}

/// Pause between two operations of a well-behaved client: latencies are to be those of the server, not of a processor that the
/// clients themselves keep busy.
const PAUSE: Duration = Duration::from_millis(1);

/// Pause between two faults; an hour has almost a million of them.
const FAULT_PAUSE: Duration = Duration::from_millis(4);

/// Puts, gets and compares values until `is_over`; returns the number of repetitions.
fn operate(longin: &Channel, is_over: &AtomicBool) -> u32 {
    let mut n_operations = 0;
    while !is_over.load(Ordering::Relaxed) {
        longin.put_timeout(n_operations as i32, PATIENCE).expect("a put that completes");
        assert_eq!(number(&longin.get_timeout(PATIENCE).expect("a get")), f64::from(n_operations));
        n_operations += 1;
        std::thread::sleep(PAUSE);
    }
    n_operations
}

/// Stops the threads that run concurrently when dropped, also when a trial panics, because they are joined.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs random faults for `duration`.
fn soak(duration: Duration, seed: u64) {
    let ioc = Ioc::start("soak");
    let context = ioc.context();
    let channel = |context: &Context, name: &str| context.channel(name).expect("a channel");
    let monitors: Vec<_> = (0..10)
        .map(|index| channel(&context, &format!("f:count{index:02}")).monitor(MonitorOptions::default()))
        .collect();
    let longin = channel(&context, "f:longin");
    longin.connect_timeout(PATIENCE).expect("it is there");
    let big = channel(&context, "f:big");
    big.put_timeout(vec![7; 100_000], PATIENCE).expect("an array for clients that request and do not read");

    let (is_over, fault) = (AtomicBool::new(false), AtomicUsize::new(0));
    let (accounts, n_operations, latencies, warm, end) = std::thread::scope(|scope| {
        let accounting: Vec<_> = monitors.iter().map(|monitor| scope.spawn(|| account(monitor, &is_over))).collect();
        let operating = scope.spawn(|| operate(&longin, &is_over));
        let neighbour = scope.spawn(|| Neighbour::at(Ipv4Addr::new(127, 0, 0, 2), ioc.server).watch(&fault, &is_over));
        let over = Over(&is_over);
        let mut hostile = Hostile::new(seed, &ioc);
        let (start, mut warm) = (Instant::now(), None);
        while start.elapsed() < duration && !operating.is_finished() && !neighbour.is_finished() {
            hostile.misbehave(&fault);
            std::thread::sleep(FAULT_PAUSE);
            if warm.is_none() && start.elapsed() > duration / 3 {
                hostile.go();
                warm = Some(ioc.memory_when_alone());
            }
        }
        hostile.go();
        let end = ioc.memory_when_alone();
        drop(over);
        let accounts: Vec<_> = accounting.into_iter().map(|one| one.join().expect("no panic")).collect();
        let latencies = neighbour.join().expect("no panic");
        (accounts, operating.join().expect("no panic"), latencies, warm.expect("a third of the time has passed"), end)
    });
    let n_merged = ioc.metric("fodo_updates_merged_total");

    println!(
        "seed {seed}: {n_operations} operations, (received, missing) {accounts:?}, {n_merged} merged by the server"
    );
    println!("{} MB and then {} MB", warm >> 20, end >> 20);
    for (index, (name, _)) in FAULTS.iter().enumerate() {
        println!("{name}: {}", latencies.of(index));
    }
    // On a busy machine a client is delayed by a second, and the server merges updates; it must have counted them.
    let n_missing: i64 = accounts.iter().map(|&(_, n_missing)| n_missing).sum();
    assert!(accounts.iter().all(|&(n, n_missing)| n > 0 && n_missing >= 0), "seed {seed}: {accounts:?}");
    assert!(n_missing as f64 <= n_merged, "seed {seed}: {accounts:?}, {n_merged} merged by the server");
    assert!(end < warm + GROWTH_BYTES_MAX, "seed {seed}: {warm} bytes, then {end}");
    let latency_max = LATENCY_MAX + N_WAKES * latencies.p99_of_wakes();
    assert!(latencies.all().p99() < latency_max, "seed {seed}: {}, above {latency_max:?}", latencies.all());
    drop((context, monitors, longin, big));
    ioc.stop();
}

// Rows 32 and 79 of docs/reference/faults.md.
#[test]
fn ten_seconds_of_random_faults_do_not_affect_correct_clients() {
    soak(Duration::from_secs(10), 79);
}

// Rows 32 and 79 of docs/reference/faults.md.
#[test]
#[ignore = "takes an hour, or FODO_SOAK_MINUTES; `cargo xtask soak MINUTES` runs it"]
fn an_hour_of_random_faults_does_not_affect_correct_clients() {
    let minutes = std::env::var("FODO_SOAK_MINUTES").ok().and_then(|minutes| minutes.parse().ok()).unwrap_or(60);
    let seed = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(1, |since| since.as_secs());
    soak(Duration::from_secs(60 * minutes), seed);
}
