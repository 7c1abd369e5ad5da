//! Every bound of this crate, with its reason.

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
