//! What the protocols share. No IO.
#![forbid(unsafe_code)]

mod numbers;
mod roster;

pub use numbers::{Cid, Ioid, NumberHashMap, NumberHasher, Sid, SubscriptionId};
pub use roster::NumberMap;
