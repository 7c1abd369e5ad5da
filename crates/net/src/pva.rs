//! What only pvAccess needs.

mod beacon_listener;
pub(crate) mod circuit;
pub(crate) mod client;
pub(crate) mod diagnosis;
mod direct;
pub mod discovery;
pub mod responder;
pub(crate) mod search;
