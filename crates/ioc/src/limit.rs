//! Every bound of this crate, with its reason.

/// Posts kept for the subscriptions of a scalar: short pulses survive a busy moment.
pub const SCALAR_POSTS: usize = 8;

/// The same for arrays, whose snapshots cost memory.
pub const ARRAY_POSTS: usize = 2;

/// How often the scan thread lets others run between two slices.
pub const YIELDS: usize = 100;
