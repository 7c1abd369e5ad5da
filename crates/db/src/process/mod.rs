//! Processing: one call of the database, its deferred work, and what a record does while it is processed.

pub(crate) mod deferred;
pub(crate) mod engine;
pub(crate) mod external;
pub(crate) mod link_access;
pub(crate) mod post;
pub(crate) mod program;
pub(crate) mod put;
pub(crate) mod request_queue;
pub(crate) mod scan;
pub(crate) mod step;
pub(crate) mod timers;
