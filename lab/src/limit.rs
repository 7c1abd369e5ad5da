//! Every bound of the laboratory, with its reason.

use std::time::Duration;

/// A server that is not ready by then is not going to be; with a hundred thousand records, on a busy machine, it
/// takes seconds.
pub const SERVER_START_MAX: Duration = Duration::from_secs(60);

/// For a driver to say who it is. The slowest start a virtual machine and load a wheel on a busy core.
pub const DRIVER_START_MAX: Duration = Duration::from_secs(20);

/// For one operation inside a driver; less than most caps so that the driver can say what failed.
pub const OPERATION_MAX: Duration = Duration::from_secs(10);

/// For a batch of many channels inside a driver. The laboratory's own cap per point is shorter; this one ends
/// a driver that nobody watches.
pub const BATCH_MAX: Duration = Duration::from_secs(180);

/// For the processes to end by themselves once their standard input is closed.
pub const EXIT_MAX: Duration = Duration::from_millis(500);

/// Lines of a process's output kept to explain its end.
pub const OUTPUT_LINES_KEPT: usize = 6;

/// Repetitions of a run that does not say: odd, and just enough for quartiles.
pub const REPETITIONS_DEFAULT: usize = 5;

/// When a quick run begins nothing any more, so that it is over within three minutes.
pub const QUICK_MAX: Duration = Duration::from_secs(150);

/// When a full run begins nothing any more, so that it is over within the hour.
pub const FULL_MAX: Duration = Duration::from_secs(3400);

/// Repetitions below which a median has no spread worth printing.
pub const REPETITIONS_MIN: usize = 5;

/// Repetitions above which `quick` is no longer quick by any measure.
pub const REPETITIONS_MAX: usize = 1000;

/// What caproto's server is asked at a time: it answers some thousand requests in a second, and with more it would be busy
/// with one question during the next.
pub const CAPROTO_POINT_MAX: usize = 1000;

/// Elements of the largest array, the waveform's NELM; a request for more is refused.
pub const ELEMENTS_MAX: usize = 10_000_000;

/// Gets under way at a time where one is started after another: what a program keeps that reads many PVs as
/// futures, and enough that a round trip costs nobody anything.
pub const IN_FLIGHT_MAX: usize = 100;

/// Records that take puts: as many as the largest question puts to at once. More would only make servers start
/// more slowly.
pub const PUT_RECORDS_MAX: usize = 10_000;

/// A line between the laboratory and a worker that asks a plant: the names of all PVs, or what each of them did.
pub const PLANT_LINE_BYTES: u64 = 16 << 20;

/// How far ahead a common start may be; more is a mistake of a clock.
pub const WATCH_AHEAD_MAX: Duration = Duration::from_secs(30);

/// How long a plant is watched at most.
pub const WATCH_MAX: Duration = Duration::from_secs(3600);

/// For an agent and a laboratory to show each other who they are; meanwhile nobody else is let in.
pub const GREETING_MAX: Duration = Duration::from_secs(5);

/// Pieces under way in a delayed direction: in a millisecond a client does not write more often.
pub const DELAYED_PIECES_MAX: usize = 4096;

/// Bytes read at once into a delay: what a gigabit carries in half a millisecond.
pub const DELAYED_PIECE_BYTES: usize = 64 * 1024;

/// Circuits, and clients that search, by way of one delay: a client's process has a few, and one process asks at a time.
pub const DELAYED_CLIENTS_MAX: usize = 256;

/// After which a client that searches no more is forgotten; it may come again.
pub const DELAYED_SEARCHER_MAX: Duration = Duration::from_secs(60);
