//! Limits, each with its reason.

/// Structures within each other in a value of Java; types of pvAccess are far from it, and the stack is finite.
pub const VALUE_DEPTH_MAX: usize = 64;

/// Events of one monitor in a turn of its queue, so that a fast PV does not delay the others.
pub const EVENTS_IN_TURN: usize = 64;

/// The time of an operation without a timeout, 100 years: later times may not exist on the clock of a system.
pub const WAIT_MAX: std::time::Duration = std::time::Duration::from_secs(100 * 365 * 24 * 3600);
