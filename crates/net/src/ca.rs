//! What only Channel Access needs.

pub(crate) mod beacon_listener;
pub(crate) mod circuit;
pub(crate) mod diagnosis;
pub(crate) mod search;
