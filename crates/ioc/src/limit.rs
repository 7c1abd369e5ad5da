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

/// Bytes that may wait in the circuit to another IOC before what links write next waits here, where the newest value of
/// a link replaces the one before.
pub const UNSENT_BYTES: usize = 64 * 1024;

/// How soon a link whose circuit takes nothing is looked at again; at most as many links wait as there are.
pub const RETRY: Duration = Duration::from_millis(10);

/// The priority of the circuits of links, as in Base: below nobody's but those of its own tools.
pub const LINK_PRIORITY: u8 = 80;
