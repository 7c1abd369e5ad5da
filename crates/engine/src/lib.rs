//! What the protocols share. No IO.
#![forbid(unsafe_code)]

mod id_map;
pub mod limit;
mod numbers;
pub mod outbox;
mod rights;
pub mod ring;
pub mod role;
mod roster;
pub mod search;
pub mod shares;
pub mod timers;

pub use id_map::IdMap;
pub use numbers::{Cid, Ioid, NumberHashMap, NumberHasher, Sid, SubscriptionId};
pub use rights::Rights;
pub use roster::NumberMap;
