//! Every bound of the program's own, with its reason.

use std::time::Duration;

/// Puts that may wait for the disk: a second of what a busy client puts, in a few MiB.
pub const WAITING_PUTS_MAX: usize = 4096;

/// Elements of an array that the put log keeps: who put what, not a recording.
pub const LOGGED_ELEMENTS_MAX: usize = 100;

/// Lines of the put log that are written at once while more are waiting.
pub const PUTS_AT_ONCE: usize = 256;

/// How often it is reported that the put log cannot be written: a disk that is full may have room now and then.
pub const PUT_LOG_REPORT_PERIOD: Duration = Duration::from_secs(60);

/// Bytes of a command that is read from a pipe: as many as a line may have whose macros are replaced.
pub const COMMAND_BYTES_MAX: u64 = 1 << 16;

/// Commands of a person that are kept to be called back: more than a working day of them.
pub const HISTORY_LINES_MAX: usize = 1000;
