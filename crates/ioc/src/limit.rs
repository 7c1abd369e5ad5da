//! Every bound of this crate, with its reason.

use std::time::Duration;

/// Posts kept for the subscriptions of a scalar: short pulses survive a busy moment.
pub const SCALAR_POSTS: usize = 8;

/// The same for arrays, whose snapshots cost memory.
pub const ARRAY_POSTS: usize = 2;

/// How often the scan thread lets others run between two slices.
pub const YIELDS: usize = 100;

/// Scripts that may run one another; plants nest three or four.
pub const SCRIPT_DEPTH_MAX: usize = 20;

/// Names that are offered for the beginning of one: more than a person reads.
pub const COMPLETIONS_MAX: usize = 500;

/// Names of records that are compared with a wrong one to suggest the right one: some milliseconds.
pub const COMPARED_NAMES_MAX: usize = 5000;

/// Request files that may include one another; synApps' own nest three deep.
pub const REQUEST_DEPTH_MAX: usize = 20;

/// Lines of a request file and all that it includes: a plant saves some ten thousand PVs of one IOC.
pub const REQUEST_LINES_MAX: usize = 1_000_000;

/// Mistakes that are told of one request file.
pub const REQUEST_ERRORS_MAX: usize = 100;

/// Values of one save file that are told not to be restored, one by one; the rest is counted.
pub const RESTORE_ERRORS_MAX: usize = 20;

/// Bytes of a file that a command line, a script or another file names: eight times a database of a million records.
pub const FILE_BYTES_MAX: u64 = 256 << 20;

/// Bytes of a save file that are read: a hundred megapixels as text. What is longer is no save file.
pub const SAVE_FILE_BYTES_MAX: u64 = 1 << 30;

/// Copies of a save file that are kept in turn, as in synApps: their names end in one digit.
pub const SEQUENCE_FILES_MAX: usize = 10;

/// How often the PV that triggers a save is looked at: faster than a person, slower than it costs anything.
pub const TRIGGER_PERIOD: Duration = Duration::from_millis(200);

/// The shortest time between two saves: a disk is to be kept busy by nobody's mistake.
pub const SAVE_PERIOD_MIN: Duration = Duration::from_secs(1);

/// The longest: what is due later is due when nobody remembers why, and clocks end somewhere.
pub const SAVE_PERIOD_MAX: Duration = Duration::from_secs(366 * 24 * 3600);

/// Bytes that may wait in the circuit to another IOC before what links write next waits here, where the newest value of
/// a link replaces the one before.
pub const UNSENT_BYTES: usize = 64 * 1024;

/// How soon a link whose circuit takes nothing is looked at again; at most as many links wait as there are.
pub const RETRY: Duration = Duration::from_millis(10);

/// The priority of the circuits of links, as in Base: below nobody's but those of its own tools.
pub const LINK_PRIORITY: u8 = 80;

/// How often the records that show how saving goes are written, as in synApps.
pub const STATUS_PERIOD: Duration = Duration::from_secs(1);

/// Sets that have records which show how saving goes: as many as save_restoreStatus.db of synApps has.
pub const STATUS_SETS_MAX: usize = 8;

/// Bytes that are read at once of what a program of `system` prints, as a pipe gives them.
pub const PROGRAM_CHUNK_BYTES: usize = 8 * 1024;

/// Such chunks that may wait to be shown, before the program waits.
pub const PROGRAM_CHUNKS_WAITING: usize = 16;

/// How often it is looked whether a program of `system` has ended while it prints nothing.
pub const PROGRAM_PERIOD: Duration = Duration::from_millis(50);

/// How long the last output of a program that has ended is shown, when what it left in the background goes on printing.
pub const PROGRAM_LAST_OUTPUT: Duration = Duration::from_secs(2);
