//! Channel Access: messages, DBR layouts, search and circuits, both ends. No IO.
//!
//! `search`, `client` and `server` are state machines: the caller passes in received bytes and the time, and gets bytes
//! to send and events. `deadline` returns when to call again. `fodo-net` drives them with real sockets.
#![forbid(unsafe_code)]

pub mod beacon;
mod body;
pub mod client;
pub mod dbr;
pub mod eca;
mod frame;
pub mod limit;
pub mod message;
pub mod repeater;
pub mod search;
pub mod server;
mod subscriptions;
pub mod traffic;
mod value_message;
