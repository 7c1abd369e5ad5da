//! The limits of servers and IOCs, with their reasons.

/// Puts and calls that wait for the handlers of a server: at a thousand bytes each ten megabytes, and more than handlers that
/// keep up ever leave.
pub const TASKS: usize = 10_000;

/// Bytes of the values of these puts and calls: as many as all circuits of a server may hold in values that arrive. Puts of
/// Channel Access without completion count nowhere else while they wait.
pub const TASK_BYTES: usize = 256 << 20;

/// Lines of the log of an IOC that wait for its thread of Java: a burst at the start or the end. More are counted, and left
/// out.
pub const LOG_LINES: usize = 1000;
