//! All limits of the program, each with its reason.

use std::time::Duration;

/// Maximum number of puts waiting for the disk: one second of a busy client, in a few MiB.
pub const WAITING_PUTS_MAX: usize = 4096;

/// Maximum number of array elements in the put log, which is not meant for recording data.
pub const LOGGED_ELEMENTS_MAX: usize = 100;

/// Maximum number of put log lines per write.
pub const PUTS_AT_ONCE: usize = 256;

/// Minimum time between reports that the put log cannot be written; a full disk may have free space occasionally.
pub const PUT_LOG_REPORT_PERIOD: Duration = Duration::from_secs(60);

/// Maximum length of a command read from a pipe; the same as that of a line with expanded macros.
pub const COMMAND_BYTES_MAX: u64 = 1 << 16;

/// The delay before an access file is read again after a lack of descriptors. It is short, because the previous rules
/// may allow too much.
pub const ACCESS_RETRY: Duration = Duration::from_secs(1);

/// How long an IOC still serves after a client has ended it with `PREFIX:exit`, so that the client receives the response.
pub const EXIT_DELAY: Duration = Duration::from_millis(100);

/// Maximum number of typed commands in the history: more than a working day.
pub const HISTORY_LINES_MAX: usize = 1000;

/// The timeout used for "no timeout": longer than any real wait, but without clock overflow.
pub const FOREVER: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// The length of one step of an unlimited wait.
pub const QUIET: Duration = Duration::from_secs(3600);

/// Maximum time an update waits for the metadata that was requested with it.
pub const META_WAIT: Duration = Duration::from_secs(1);

/// Maximum number of queued events of watched PVs. It is small, because further updates stay in the queues of the
/// monitors, whose length the user chooses and which merge and count updates.
pub const HAPPENINGS: usize = 64;

/// Maximum number of updates of one PV that `camonitor` queues.
pub const CAMONITOR_QUEUE: usize = 1024;

/// Maximum length of a long string that `caput` writes.
pub const LONG_STRING_BYTES: usize = 1 << 20;

/// Maximum number of array elements shown at a terminal.
pub const ELEMENTS_AT_TERMINAL: usize = 8;

/// Maximum width of a column; a longer cell shifts only the rest of its own line.
pub const COLUMN_CHARS: usize = 40;

/// How long to wait for further servers after the first response to a search.
pub const LATE_CLAIM: Duration = Duration::from_millis(350);

/// Maximum delay until a signal is handled.
pub const SIGNAL_NOTICED: Duration = Duration::from_millis(200);
