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

/// How long "for ever" is for a wait: nobody waits longer, and no clock overflows.
pub const FOREVER: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// How long a wait without an end lasts at a time.
pub const QUIET: Duration = Duration::from_secs(3600);

/// How long an update waits for the units that were requested together with it.
pub const META_WAIT: Duration = Duration::from_secs(1);

/// Happenings of watched PVs that wait at most: few, because beyond them the monitors' own queues hold, merge and count the
/// updates, and the user chose their length.
pub const HAPPENINGS: usize = 64;

/// Updates of one PV that wait to be printed by `camonitor`.
pub const CAMONITOR_QUEUE: usize = 1024;

/// Bytes of a string in Channel Access, without its NUL.
pub const STRING_BYTES: usize = 39;

/// Bytes of a long string that `caput` writes at once.
pub const LONG_STRING_BYTES: usize = 1 << 20;

/// Elements of an array that a terminal shows.
pub const ELEMENTS_AT_TERMINAL: usize = 8;

/// Characters of a column at most: what is longer moves the rest of its own line only.
pub const COLUMN_CHARS: usize = 40;

/// How long servers may be late behind the first that has answered a search.
pub const LATE_CLAIM: Duration = Duration::from_millis(350);

/// How long a signal may go unnoticed.
pub const SIGNAL_NOTICED: Duration = Duration::from_millis(200);
