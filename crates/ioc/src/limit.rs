//! All limits of this crate, each with its reason.

use std::time::Duration;

/// Posts kept for the subscriptions of a scalar, so that short pulses are not lost when the server is briefly busy.
pub const SCALAR_POSTS: usize = 8;

/// Posts kept for the subscriptions of an array; fewer, because each snapshot costs memory.
pub const ARRAY_POSTS: usize = 2;

/// Maximum number of times that the scan thread yields between two slices.
pub const YIELDS_MAX: usize = 100;

/// Maximum nesting depth of scripts; real installations nest three or four.
pub const SCRIPT_DEPTH_MAX: usize = 20;

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

/// The priority of link circuits, as in Base: below no circuit except those of its own tools.
pub const LINK_PRIORITY: u8 = 80;

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
