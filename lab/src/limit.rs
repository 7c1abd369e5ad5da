//! Limits of the laboratory, each with its reason.

use std::time::Duration;

use crate::warm_up::WarmUpBounds;

/// Maximum time for a server to become ready. With a hundred thousand records on a busy machine it takes seconds.
pub const SERVER_START_MAX: Duration = Duration::from_secs(60);

/// Maximum time for a driver to send its greeting. The slowest drivers start a virtual machine or load a Python package
/// on a busy core.
pub const DRIVER_START_MAX: Duration = Duration::from_secs(20);

/// Maximum time of one operation inside a driver; shorter than most limits of the laboratory, so that the driver can
/// report what failed.
pub const OPERATION_MAX: Duration = Duration::from_secs(10);

/// Maximum time of a batch of many channels inside a driver. The laboratory's own limit per point is shorter; this one
/// ends a driver that is not supervised.
pub const BATCH_MAX: Duration = Duration::from_secs(180);

/// Maximum time for the processes to exit after their standard input is closed.
pub const EXIT_MAX: Duration = Duration::from_millis(500);

/// Number of last output lines of a process that are kept to explain its exit.
pub const OUTPUT_LINES_KEPT: usize = 6;

/// Default number of repetitions of a run: odd, and just enough for quartiles.
pub const REPETITIONS_DEFAULT: usize = 5;

/// Time after which a quick run starts no further question: the loads that follow take about 25 s.
pub const QUICK_QUESTIONS_MAX: Duration = Duration::from_secs(85);

/// Time after which a quick run starts no further work, so that it ends within two minutes.
pub const QUICK_MAX: Duration = Duration::from_secs(110);

/// Time after which a full run starts no further question: the loads that follow take about 1600 s.
pub const FULL_QUESTIONS_MAX: Duration = Duration::from_secs(2400);

/// Time after which a full run starts no further work, so that it ends within 70 minutes: the longest piece of work,
/// the search count for absent names, takes a minute and a half.
pub const FULL_MAX: Duration = Duration::from_secs(4080);

/// Bounds of a client's warm-up for each kind of work, before the first row of that kind is measured. Ten rounds keep
/// the cold first rounds out of both medians. A comparison of runs calls a row different from a change of a tenth. Two
/// seconds are at least a hundred rounds of every client; PSI's `ca` and its virtual machine become steady within them.
pub const WARM_UP: WarmUpBounds = WarmUpBounds { n_rounds_min: 10, change_max: 0.1, time_max: Duration::from_secs(2) };

/// The same for a quick run, which measures all clients in two minutes; a row that was not steady is marked.
pub const WARM_UP_QUICK: WarmUpBounds = WarmUpBounds { time_max: Duration::from_millis(400), ..WARM_UP };

/// Channels of a warm-up round of concurrent operations: few enough for many rounds, and enough that a round takes
/// longer than its start.
pub const WARM_UP_CHANNELS: usize = 100;

/// Channels of a warm-up round that connects one channel after the other, and contexts of a warm-up round: libca waits
/// 32 ms for each such channel, and PSI's `ca` needs 8 ms and many threads for a context.
pub const WARM_UP_ONE_BY_ONE: usize = 5;

/// Elements of the array in a warm-up round: small enough for every link.
pub const WARM_UP_ELEMENTS: usize = 10_000;

/// Minimum number of consecutive timed blocking gets, however few the channels: one get has no median.
pub const GETS_MIN: usize = 200;

/// Bounds of the warm-up of both ends of a load, with rounds of the same load: changes at a given rate scatter more
/// than a closed loop does. PSI's `ca` needs ten seconds until it carries 100 000 updates a second.
pub const WARM_UP_LOAD: WarmUpBounds =
    WarmUpBounds { n_rounds_min: 2, change_max: 0.25, time_max: Duration::from_secs(10) };

/// Share of a load's duration that one round of its warm-up takes.
pub const WARM_UP_LOAD_SHARE: f64 = 0.1;

/// Repetitions between two hosts in a full run: three show what the network adds to the five repetitions on one host,
/// and five would take the time of the loads.
pub const HOSTS_REPETITIONS_MAX: usize = 3;

/// Maximum number of consecutive timed blocking gets, however many the channels: with five repetitions it is enough for
/// the 99.9 % quantile, and 80 000 give the same median in eight times the time.
pub const GETS_MAX: usize = 10_000;

/// Minimum number of repetitions for a median whose spread is worth printing.
pub const REPETITIONS_MIN: usize = 5;

/// Maximum number of repetitions: above it `quick` is no longer quick.
pub const REPETITIONS_MAX: usize = 1000;

/// Maximum point size for caproto's server: it answers about a thousand requests per second, and with more it would
/// still be busy with one question during the next.
pub const CAPROTO_POINT_MAX: usize = 1000;

/// Maximum number of channels for a client in Python: the time per channel is the same with ten thousand, and preparing
/// and closing those takes seconds.
pub const PYTHON_POINT_MAX: usize = 1000;

/// Elements of the largest array, the waveform's NELM; a request for more is rejected.
pub const ELEMENTS_MAX: usize = 10_000_000;

/// Maximum number of gets in flight when gets are started one after another: what a program keeps that reads many PVs
/// as futures, and enough to hide the round trip.
pub const IN_FLIGHT_MAX: usize = 100;

/// Number of records that take puts: as many as the largest question puts to concurrently. More would only slow down
/// the start of the servers.
pub const PUT_RECORDS_MAX: usize = 10_000;

/// Maximum bytes of a line between the laboratory and a plant worker: it contains the names of all PVs, or the outcome
/// for each.
pub const PLANT_LINE_BYTES: u64 = 16 << 20;

/// Maximum delay until a common start; a longer one indicates a wrong clock.
pub const WATCH_AHEAD_MAX: Duration = Duration::from_secs(30);

/// Maximum time for which a plant is watched.
pub const WATCH_MAX: Duration = Duration::from_secs(3600);

/// Maximum time for an agent and a laboratory to authenticate each other; meanwhile no other peer is admitted.
pub const GREETING_MAX: Duration = Duration::from_secs(5);

/// Maximum number of pieces in flight in one delayed direction: a client writes less often than this within a
/// millisecond.
pub const DELAYED_PIECES_MAX: usize = 4096;

/// Bytes per read into a delay: what a gigabit link carries in half a millisecond.
pub const DELAYED_PIECE_BYTES: usize = 64 * 1024;

/// Maximum number of circuits, and of searching clients, through one delay: a client's process has a few, and one
/// process is measured at a time.
pub const DELAYED_CLIENTS_MAX: usize = 256;

/// Time without a search after which a delay forgets a client; the client is added again when it searches again.
pub const DELAYED_SEARCHER_MAX: Duration = Duration::from_secs(60);
