//! Every bound of the laboratory, with its reason.

use std::time::Duration;

/// A server that is not ready by then is not going to be; softIoc needs a second on a busy machine.
pub const SERVER_START_MAX: Duration = Duration::from_secs(15);

/// For one answer of a driver. The slowest, ten million elements put and got, takes a second or two.
pub const ANSWER_MAX: Duration = Duration::from_secs(20);

/// For one operation inside a driver; less than [`ANSWER_MAX`] so that the driver can say what failed.
pub const OPERATION_MAX: Duration = Duration::from_secs(10);

/// For the processes to end by themselves once their standard input is closed.
pub const EXIT_MAX: Duration = Duration::from_millis(500);

/// Lines of a process's output kept to explain its end.
pub const OUTPUT_LINES_KEPT: usize = 6;

/// Repetitions of a run that does not say: odd, enough for quartiles, and well within a minute.
pub const REPETITIONS_DEFAULT: usize = 7;

/// Repetitions below which a median has no spread worth printing.
pub const REPETITIONS_MIN: usize = 5;

/// Repetitions above which `quick` is no longer quick by any measure.
pub const REPETITIONS_MAX: usize = 1000;

/// Elements of the largest array, the waveform's NELM; a request for more is refused.
pub const ELEMENTS_MAX: usize = 10_000_000;
