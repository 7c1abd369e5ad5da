//! What the protocols share. No IO.
#![forbid(unsafe_code)]

pub mod limit;
mod numbers;
pub mod outbox;
mod rights;
pub mod ring;
mod roster;
pub mod search;
pub mod shares;

pub use numbers::{Cid, Ioid, NumberHashMap, NumberHasher, Sid, SubscriptionId};
pub use rights::Rights;
pub use roster::NumberMap;
