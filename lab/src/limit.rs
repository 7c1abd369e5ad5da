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

/// Time after which a full run starts no further question: the loads that follow take about 1800 s.
pub const FULL_QUESTIONS_MAX: Duration = Duration::from_secs(2520);

/// Time after which a full run starts no further work, so that it ends within 75 minutes: the longest piece of work,
/// the search count for absent names, takes a minute and a half.
pub const FULL_MAX: Duration = Duration::from_secs(4380);

/// Time after which a run of the suite java starts no further question: the loads that follow take about 600 s.
pub const JAVA_QUESTIONS_MAX: Duration = Duration::from_secs(840);

/// Time after which it starts no further work, so that it ends within 25 minutes: its last loads take half a minute each.
pub const JAVA_MAX: Duration = Duration::from_secs(1460);

/// Bounds of a client's warm-up for each kind of work, before the first row of that kind is measured. Ten rounds keep
/// the cold first rounds out of both medians. A comparison of runs calls a row different from a change of a tenth. Two
/// seconds are at least a hundred rounds of every client; PSI's `ca` and its virtual machine become steady within them.
pub const WARM_UP: WarmUpBounds = WarmUpBounds { n_rounds_min: 10, change_max: 0.1, time_max: Duration::from_secs(2) };

/// The same for a quick run, which measures all clients in two minutes; a row that was not steady is marked.
pub const WARM_UP_QUICK: WarmUpBounds = WarmUpBounds { time_max: Duration::from_millis(400), ..WARM_UP };

/// Channels of a warm-up round of concurrent operations: few enough for many rounds, and enough that a round takes
/// longer than its start.
pub const WARM_UP_CHANNELS: usize = 100;

/// Channels that a client in a virtual machine connects before the memory of further ones is measured: by then the virtual
/// machine has compiled the code, whose memory is not that of a channel.
pub const VM_WARM_UP_CHANNELS: u32 = 10_000;

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

/// Time after which the short form of study 002 starts no further point, so that it ends within five minutes.
pub const DIAMOND_SHORT_MAX: Duration = Duration::from_secs(275);

/// Maximum warm-up of a point of study 002, as a share of its duration; at least two rounds. A row that was not steady says so.
/// With 382 points of ten seconds the run takes two hours.
pub const WARM_UP_DIAMOND_SHARE: f64 = 0.4;

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

/// Descriptors that contexts at work need: `fodo ioc` gives the circuits of one host at most half of its descriptors, after
/// a reserve for what it opens itself.
pub const DESCRIPTORS_PER_CONTEXT: usize = 2;

/// The reserve of `fodo ioc`, and what it has open without clients.
pub const DESCRIPTORS_RESERVED: usize = 600;

/// Maximum number of monitors at once with a peer as client or server: softIoc needs 40 us for each of 100 000 monitors on
/// one PV and longer for each of more, and PSI's `ca` needs 80 us to connect a channel.
pub const PEER_MONITORS_MAX: usize = 100_000;

/// Maximum number of channels for a client in Python: the time per channel is the same with ten thousand, and preparing
/// and closing those takes seconds. Also for spvirit, which opens a connection for each subscription.
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

/// Changes of a stream that wait in the server: as many as it keeps of an array, so that none is merged.
pub const STREAM_WAITING_MAX: u64 = 2;

/// Interval at which a stream looks whether the server has sent an array. Two arrays of 8 MB take longer at any rate of a
/// socket.
pub const STREAM_POLL: Duration = Duration::from_micros(500);

/// Duration of a raw stream: hundreds of arrays of 8 MB.
pub const RAW_STREAM: Duration = Duration::from_secs(1);

/// Requests of a raw stream that the server has before it has sent the answer to the first: it never waits for one.
pub const RAW_STREAM_AHEAD: usize = 2;

/// Minimum number of rounds that are measured of a point of study 003: a round of ten arrays of 8 MB takes 0.7 s at one
/// gigabit per second, and one round has no spread.
pub const ROUNDS_MIN: usize = 2;

/// Maximum number of rounds that are measured of a point: their times are one line of text.
pub const ROUNDS_MAX: usize = 100_000;

/// Samples of a point of study 003: as many as other rows have repetitions. Each is the rate of consecutive rounds.
pub const ROUND_SAMPLES_MAX: usize = 5;

/// Time without an update after which a client of study 003 takes the updates that are missing for lost.
pub const EVENT_QUIET: Duration = Duration::from_secs(1);

/// Subscriptions that a client of study 003 creates before it waits for their first updates. QSRV2 leaves some of a thousand
/// without any update when they are created at once on a network of frames of 1500 bytes.
pub const SUBSCRIPTIONS_AT_ONCE: usize = 100;

/// Time after which a run of study 003 starts no further point, so that it ends within twelve minutes: one point takes at
/// most [`NSLS2_POINT_MAX`].
pub const NSLS2_MAX: Duration = Duration::from_secs(670);

/// Maximum time of a point of study 003: a few rounds of ten arrays of 8 MB through a delay, by the slowest client.
pub const NSLS2_POINT_MAX: Duration = Duration::from_secs(30);

/// Gets one by one of a PV or a group in a repetition of the suite of study 003: about a tenth of a second.
pub const GETS_ONE_BY_ONE: usize = 2000;

/// Gets of an array of 8 MB in such a repetition: each is put before, and compared, which takes longer than the get.
pub const ARRAYS_ONE_BY_ONE: usize = 5;

/// How long a request of study 004 waits for its answer: a hundred times the slowest answer of a busy CLU, and short enough
/// that a lost datagram does not end a measurement.
pub const CLU_TIMEOUT: Duration = Duration::from_secs(2);

/// Requests that do not count before each repetition of study 004.
pub const CLU_WARM_UP: Duration = Duration::from_millis(100);

/// The same with a server that runs in a virtual machine, which compiles meanwhile.
pub const CLU_WARM_UP_JAVA: Duration = Duration::from_secs(2);

/// Maximum time until a CLU of study 004 answers; a virtual machine starts within seconds.
pub const CLU_ANSWER_MAX: Duration = Duration::from_secs(30);

/// Maximum time until all subscriptions of study 004 have their first update: a thousand registrations.
pub const CLU_FIRST_UPDATE_MAX: Duration = Duration::from_secs(30);

/// How long the updates of study 004 may take after the last change: CLUs delay a report by at most a second.
pub const CLU_LAST_UPDATE_MAX: Duration = Duration::from_secs(5);
