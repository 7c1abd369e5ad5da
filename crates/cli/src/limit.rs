//! All limits of the program, each with its reason.

use std::time::Duration;

/// Bytes of lines of the put log that wait for the disk: more than a second of 200 000 puts/s.
pub const WAITING_PUT_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Maximum number of array elements in the put log, which is not meant for recording data.
pub const LOGGED_ELEMENTS_MAX: usize = 100;

/// Minimum time between two writes to the put log: a put is in the file soon, and many puts wake its thread 50 times a second.
pub const PUT_LOG_PERIOD: Duration = Duration::from_millis(20);

/// How long and how often the put log waits for the reader of a full pipe before it drops lines.
pub const PIPE_RETRY_PERIOD: Duration = Duration::from_millis(1);
pub const PIPE_RETRIES_MAX: usize = 100;

/// Maximum length of a line of the put log that a crash has cut off: two values of 64 KiB of which each byte is escaped.
pub const PUT_LINE_BYTES_MAX: u64 = 1024 * 1024;

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

/// Maximum number of rows of a table shown at a terminal: a screen of the usual height also shows the other fields.
pub const ROWS_AT_TERMINAL: usize = 16;

/// Maximum width of a column; a longer cell shifts only the rest of its own line.
pub const COLUMN_CHARS: usize = 40;

/// How long to wait for further servers after the first response to a search.
pub const LATE_CLAIM: Duration = Duration::from_millis(350);

/// Maximum delay until a signal is handled.
pub const SIGNAL_NOTICED: Duration = Duration::from_millis(200);

/// Maximum delay until an entry of a virtual CLU's log is printed.
pub const LOG_PERIOD: Duration = Duration::from_millis(200);

/// How long `fodo clu serve --pvs` waits for the first values before it serves them; the CLU is in the same process.
pub const FIRST_VALUES: Duration = Duration::from_secs(2);

/// Maximum duration of one transfer of a file of a CLU: the largest file, on a slow network. A CLU that stops replying is
/// noticed after 15 s.
pub const FILE_TRANSFER: Duration = Duration::from_secs(30 * 60);

#[cfg(test)]
mod tests {
    use super::*;

    /// A limit that loses a factor would reject what its reason promises to allow.
    #[test]
    fn limits_have_room_for_what_their_reasons_name() {
        const YEAR_S: u64 = 365 * 24 * 3600;

        for (what, limit, least) in [
            ("a line with a hundred macros of 500 characters", COMMAND_BYTES_MAX, 100 * 500),
            ("a text of a million characters", LONG_STRING_BYTES as u64, 1_000_000),
            ("a program that runs for years", FOREVER.as_secs(), 9 * YEAR_S),
        ] {
            assert!(limit >= least, "{limit} is too small for {what}, {least}");
        }
        assert!(FOREVER.as_secs() < 20 * YEAR_S, "the clock would overflow");
    }
}
