//! All limits of this crate, with their reasons.

use std::time::Duration;

/// How long a blocking call waits before it looks for a signal: Ctrl-C seems to act at once, and looking twenty times a
/// second costs nothing.
pub const SIGNAL_PERIOD: Duration = Duration::from_millis(50);

/// Results and events that are taken from a queue in one turn, so that other tasks of the event loop have theirs within
/// about a millisecond.
pub const TURN: usize = 1000;

/// Gets of many PVs that end together: as many as the client issues at once. The values of Python of one part are made while
/// the server replies to the next ones.
pub const GET_PART: usize = 256;

/// Parts of the gets of one call: each reply looks for its part.
pub const GET_PARTS: usize = 8;

/// How long a get of many PVs waits for one that is not connected before it looks at the others: one that turns out to be a
/// structure is read again, and has the same deadline.
pub const ALONE_PERIOD: Duration = Duration::from_millis(10);

/// Lines of the log of an IOC that wait for its thread of Python: a burst at the start or the end. More are counted, and left
/// out.
pub const LOG_LINES: usize = 1000;

/// How deep types may be nested: the same as in messages of pvAccess.
pub const TYPE_DEPTH_MAX: usize = 20;

/// Names that clients search for and that wait for the handlers of a server: clients search again for what is left out.
pub const SEARCHED_NAMES: usize = 1000;

/// Puts and calls that wait for the handlers of a server: at a thousand bytes each ten megabytes, and more than handlers that
/// keep up ever leave.
pub const HANDLER_TASKS: usize = 10_000;

/// Bytes of the values of these puts and calls: as many as all circuits of a server may hold in values that arrive. Puts of
/// Channel Access without completion count nowhere else while they wait.
pub const HANDLER_BYTES: usize = 256 << 20;
