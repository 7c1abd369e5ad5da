//! What the protocols share. No IO.
#![forbid(unsafe_code)]

mod numbers;

pub use numbers::{Cid, Ioid, NumberHashMap, NumberHasher, Sid, SubscriptionId};
