//! All limits of this crate, each with its reason.

use std::time::Duration;

/// Posts kept for the subscriptions of a scalar, so that short pulses are not lost when the server is briefly busy.
pub const SCALAR_POSTS: usize = 8;

/// Posts kept for the subscriptions of an array; fewer, because each snapshot costs memory.
pub const ARRAY_POSTS: usize = 2;

/// Posts kept for the subscriptions of a group: the default queue of clients.
pub const GROUP_POSTS: usize = 4;

/// Maximum number of times that the scan thread yields between two slices.
pub const YIELDS_MAX: usize = 100;

/// Bytes of lines of records that wait to be printed: some ten thousand short lines, or sixteen of the longest.
pub const PRINT_QUEUE_BYTES: usize = 1 << 20;

/// How long a command of the shell, and the end of the IOC, wait for printed lines: much longer than a terminal takes.
pub const PRINT_FLUSH: Duration = Duration::from_secs(1);

/// How long a link may be unconnected before the log reports it: as many IOCs start together, most links connect within
/// some seconds.
pub const LINK_GRACE: Duration = Duration::from_secs(30);

/// How often the log is checked for troubles of links, so that links lost together are reported together.
pub const LINK_LOG_PERIOD: Duration = Duration::from_secs(1);

/// The pause before the log reports the same link again.
pub const LINK_LOG_PAUSE: Duration = Duration::from_secs(60);

/// Links named in one line of the log; further links are counted, and `dbcar` shows them.
pub const LINKS_NAMED: usize = 5;

/// Maximum nesting depth of scripts; real installations nest three or four.
pub const SCRIPT_DEPTH_MAX: usize = 20;

/// Fields with a channel from which the table of them is checked for closed ones; again when it has doubled.
pub const OPEN_PVS_PRUNED_MIN: usize = 1024;

/// Array elements that a command shows: as many as fit in a line.
pub const ELEMENTS_SHOWN_MAX: usize = 10;

/// Maximum number of completions offered: more than a person reads.
pub const COMPLETIONS_MAX: usize = 500;

/// Record names compared with an unknown name to find a suggestion; takes some milliseconds.
pub const COMPARED_NAMES_MAX: usize = 5000;

/// Maximum include depth of request files; those of synApps nest three deep.
pub const REQUEST_DEPTH_MAX: usize = 20;

/// Maximum number of lines of a request file and its includes; a large IOC saves some ten thousand PVs.
pub const REQUEST_LINES_MAX: usize = 1_000_000;

/// Maximum number of errors reported for one request file.
pub const REQUEST_ERRORS_MAX: usize = 100;

/// Unrestored values of one save file that are reported individually; the rest are only counted.
pub const RESTORE_ERRORS_MAX: usize = 20;

/// Maximum size of a file named by a command line, a script or another file: eight times a database of a million
/// records.
pub const FILE_BYTES_MAX: u64 = 256 << 20;

/// Maximum size of a save file: a hundred megapixels as text. A larger file is not a save file.
pub const SAVE_FILE_BYTES_MAX: u64 = 1 << 30;

/// Maximum number of sequence files, as in synApps: their names end in one digit.
pub const SEQUENCE_FILES_MAX: usize = 10;

/// How often a trigger PV is checked: faster than a person acts, but slow enough to cost nothing.
pub const TRIGGER_PERIOD: Duration = Duration::from_millis(200);

/// The shortest save period, so that a wrong period does not keep the disk busy.
pub const SAVE_PERIOD_MIN: Duration = Duration::from_secs(1);

/// The longest save period: a year, so that adding it to an `Instant` cannot overflow.
pub const SAVE_PERIOD_MAX: Duration = Duration::from_secs(366 * 24 * 3600);

/// Unsent bytes of a circuit to another IOC above which further link puts are held back in the IOC, where a newer value
/// of a link replaces the older one.
pub const UNSENT_BYTES_MAX: usize = 64 * 1024;

/// The delay before a link with a full circuit is retried; the number of waiting links is at most that of all links.
pub const RETRY: Duration = Duration::from_millis(10);

/// Events of a channel that the thread of links handles before it executes the requests of other links.
pub const LINK_EVENTS_MAX: usize = 100;

/// The priority of link circuits, as in Base: below no circuit except those of its own tools.
pub const LINK_PRIORITY: u8 = 80;

/// The save period of the autosave sets that info items define: they have no command that could set another one.
pub const INFO_SAVE_PERIOD: Duration = Duration::from_secs(5);

/// The update period of the autosave status records, as in synApps.
pub const STATUS_PERIOD: Duration = Duration::from_secs(1);

/// Maximum number of sets with status records: as many as save_restoreStatus.db of synApps has.
pub const STATUS_SETS_MAX: usize = 8;

/// Bytes of output of a `system` program that are read at once; a pipe delivers about this many.
pub const PROGRAM_CHUNK_BYTES: usize = 8 * 1024;

/// Maximum number of chunks waiting to be printed; when it is reached, the program blocks.
pub const PROGRAM_CHUNKS_WAITING: usize = 16;

/// How often a silent `system` program is checked for its end.
pub const PROGRAM_PERIOD: Duration = Duration::from_millis(50);

/// How long output is still printed after a program has ended, when a background process of it keeps printing.
pub const PROGRAM_LAST_OUTPUT: Duration = Duration::from_secs(2);

/// Concurrent connections to a page: two programs that scrape, a person, and some that hang.
pub const PAGE_CONNECTIONS: usize = 16;

/// Maximum duration of a connection, whatever its peer does: programs that scrape give up after ten seconds themselves.
pub const PAGE_CONNECTION_TIME: Duration = Duration::from_secs(10);

/// New connections accepted before the others are served.
pub const PAGE_ACCEPTS: usize = 16;

/// Bytes of a request: several times what browsers send.
pub const PAGE_REQUEST_BYTES: usize = 8 * 1024;

/// How long a page is reused before it is generated again, so that constant requests cost the server little.
pub const PAGE_KEPT: Duration = Duration::from_millis(200);

/// Bytes of records that are sent to a RecCeiver at once: about two hundred records.
pub const RECCASTER_SLICE_BYTES: usize = 16 * 1024;

/// The pause after each slice: a hundred thousand records take some seconds, and one thread a fraction of them.
pub const RECCASTER_PAUSE: Duration = Duration::from_millis(10);

/// Bytes of a message body from a RecCeiver. The known ones have four; unknown ones are skipped.
pub const RECCASTER_BODY_BYTES: usize = 1024;

/// Bytes read at once from a RecCeiver, which only sends its greeting and pings.
pub const RECCASTER_READ_BYTES: usize = 1024;

/// Reads from a RecCeiver before other connections have their turn.
pub const RECCASTER_READS: usize = 64;

/// Bytes that may wait to be sent: a slice, and replies to more pings than a normal server sends in a day.
pub const RECCASTER_UNSENT_BYTES: usize = 256 * 1024;

/// How long announcements are ignored after a failure, multiplied by the number of consecutive failures, as in recsync.
pub const RECCASTER_REST: Duration = Duration::from_secs(5);

/// Maximum of the configured times for a RecCeiver: longer would be practically never.
pub const RECCASTER_WAIT_MAX: Duration = Duration::from_secs(3600);

/// Consecutive failures that are counted; from then on it retries about every minute.
pub const RECCASTER_FAILURES_COUNTED: u32 = 10;

/// Datagrams handled in one turn.
pub const RECCASTER_DATAGRAMS: usize = 64;

/// Bytes read of a datagram: an announcement has sixteen.
pub const RECCASTER_DATAGRAM_BYTES: usize = 64;

/// How long a stop waits for a function of the program that has an output: longer than a device takes to reply. A function
/// that never returns must not block the stop for ever.
pub const HANDLER_END: Duration = Duration::from_secs(5);

/// The shortest time for which a load of the processors is computed.
pub const LOAD_MIN: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    /// A limit that loses a factor would admit, or refuse, what its reason mentions.
    #[test]
    fn limits_have_room_for_what_their_reasons_name() {
        for (what, limit, least) in [
            ("ten thousand short lines", PRINT_QUEUE_BYTES, 10_000 * 80),
            ("sixteen of the longest lines", PRINT_QUEUE_BYTES, 16 * 64 * 1024),
            ("eight databases of a million records", FILE_BYTES_MAX as usize, 8 * 1_000_000 * 32),
            ("a hundred megapixels as text", SAVE_FILE_BYTES_MAX as usize, 100_000_000 * 10),
            ("a leap year", SAVE_PERIOD_MAX.as_secs() as usize, 366 * 86_400),
            ("a thousand link puts", UNSENT_BYTES_MAX, 1000 * 64),
            ("two pages of a pipe", PROGRAM_CHUNK_BYTES, 2 * 4096),
            ("what browsers send, several times", PAGE_REQUEST_BYTES, 4 * 1500),
            ("some two hundred records of 60 bytes", RECCASTER_SLICE_BYTES, 200 * 60),
            ("several slices", RECCASTER_UNSENT_BYTES, 4 * RECCASTER_SLICE_BYTES),
        ] {
            assert!(limit >= least, "{limit} has no room for {what}, {least}");
        }
    }
}
