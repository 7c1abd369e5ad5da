//! What the protocols share: the rules of clients and servers that do not depend on a protocol. No IO.
//!
//! | part | purpose |
//! | --- | --- |
//! | [`Cid`], [`Sid`], [`Ioid`], [`SubscriptionId`] | the numbers of channels, operations and subscriptions |
//! | [`NumberMap`], [`IdMap`], [`NumberHashMap`], [`PeerNumberHashMap`] | maps by number |
//! | [`Rights`] | what a client may do with a channel |
//! | [`ring`] | the last posts of a PV, and a cursor on them for each subscription |
//! | [`structure_ring`] | the latest posts of a structured PV |
//! | [`outbox`] | what a circuit has yet to send |
//! | [`search`] | when a client searches for which name again |
//! | [`shares`] | which searches a server processes if there are too many |
//! | [`role`] | which thread reads a client's circuit |
//! | [`timers`] | the deadlines of many objects |
//!
//! ```
//! use fodo_data::{EventMask, Reading, Value};
//! use fodo_engine::ring::{Post, Ring};
//! use fodo_engine::{NumberMap, SubscriptionId};
//!
//! // A PV that keeps its last two posts, and the cursors of its subscriptions.
//! let mut ring = Ring::new(2);
//! let mut cursors = NumberMap::default();
//! cursors.insert(SubscriptionId(7), ring.cursor(EventMask::VALUE));
//!
//! for value in 1..=3 {
//!     ring.push(Post { mask: EventMask::VALUE, reading: Reading::bare(Value::from(value)) });
//! }
//!
//! // The subscription is slow: the first post is merged into the second.
//! let cursor = cursors.get_mut(SubscriptionId(7)).expect("inserted above");
//! let post = ring.next(cursor).expect("the ring holds two posts");
//! assert_eq!((&post.reading.value, cursor.merged), (&Value::from(2), 1));
//! ```
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
pub mod structure_ring;
pub mod timers;

pub use id_map::IdMap;
pub use numbers::{Cid, Ioid, NumberHashMap, NumberHasher, PeerNumberHashMap, PeerNumberHasher, Sid, SubscriptionId};
pub use rights::Rights;
pub use roster::NumberMap;
