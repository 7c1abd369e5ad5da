//! Every bound of the laboratory, with its reason.

use std::time::Duration;

use crate::warm_up::Bounds;

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

/// When a quick run begins no question any more: the loads after them take some 25 s.
pub const QUICK_QUESTIONS_MAX: Duration = Duration::from_secs(85);

/// When a quick run begins nothing any more, so that it is over within two minutes.
pub const QUICK_MAX: Duration = Duration::from_secs(110);

/// When a full run begins no question any more: the loads after them take some 1300 s.
pub const FULL_QUESTIONS_MAX: Duration = Duration::from_secs(1600);

/// When a full run begins nothing any more, so that it is over within 50 minutes: the longest piece of work, a count of
/// searches for absent names, takes a minute and a half.
pub const FULL_MAX: Duration = Duration::from_secs(2880);

/// How a client is warmed up for each kind of work, before the first row of that kind is measured. Ten rounds leave the
/// cold first ones outside both medians; a tenth is the difference from which on a comparison of runs calls a row
/// different; two seconds are a hundred rounds and more of every client, in which PSI's `ca` and its virtual machine
/// come to rest.
pub const WARM_UP: Bounds = Bounds { n_rounds_min: 10, change_max: 0.1, time_max: Duration::from_secs(2) };

/// The same in a quick run, where all clients are asked in two minutes; a row that was not steady says so.
pub const WARM_UP_QUICK: Bounds = Bounds { time_max: Duration::from_millis(400), ..WARM_UP };

/// Channels of a warm-up round where all are asked at once: few enough for many rounds, and enough that a round takes
/// longer than its start.
pub const WARM_UP_CHANNELS: usize = 100;

/// Channels of a warm-up round that connects one after the other, and contexts of one: libca waits 32 ms for each such
/// channel, and PSI's `ca` needs 8 ms and many threads for a context.
pub const WARM_UP_ONE_BY_ONE: usize = 5;

/// Elements of the array that a warm-up round moves: small enough for every link.
pub const WARM_UP_ELEMENTS: usize = 10_000;

/// Blocking gets that are timed in a row at least, however few the channels: of one alone there is no median.
pub const GETS_MIN: usize = 200;

/// How both ends of a load are warmed up, with rounds of the same load: changes at a given rate scatter more than a
/// closed loop does. Ten seconds are what PSI's `ca` takes to carry 100 000 updates a second.
pub const WARM_UP_LOAD: Bounds = Bounds { n_rounds_min: 2, change_max: 0.25, time_max: Duration::from_secs(10) };

/// Which part of a load's time a round of its warm-up takes.
pub const WARM_UP_LOAD_SHARE: f64 = 0.1;

/// Repetitions between two hosts in a full run: three show what the network adds to what five show on one host, and five
/// would take the time of the loads.
pub const HOSTS_REPETITIONS_MAX: usize = 3;

/// Blocking gets that are timed in a row, however many the channels: with five repetitions enough for 99.9 %, and 80 000
/// have the same median in eight times the time.
pub const GETS_MAX: usize = 10_000;

/// Repetitions below which a median has no spread worth printing.
pub const REPETITIONS_MIN: usize = 5;

/// Repetitions above which `quick` is no longer quick by any measure.
pub const REPETITIONS_MAX: usize = 1000;

/// What caproto's server is asked at a time: it answers some thousand requests in a second, and with more it would be busy
/// with one question during the next.
pub const CAPROTO_POINT_MAX: usize = 1000;

/// The most channels that a client in Python is asked about: it takes as long for each of ten thousand, and seconds to
/// prepare and to close them.
pub const PYTHON_POINT_MAX: usize = 1000;

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
