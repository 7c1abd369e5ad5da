//! Channel Access client and server: the public library of Fodo.
//!
//! To read, write and monitor PVs, create a [`Context`] and open a [`Channel`] by name. To serve PVs, implement a
//! [`Source`] and pass it to [`Server::start`].
//!
//! The protocol itself is in `fodo-ca`, which does no input or output; this crate adds sockets, clocks, threads and the
//! environment variables.
#![forbid(unsafe_code)]

pub mod client;
mod clock;
pub mod config;
mod interfaces;
mod limit;
pub mod log;
pub mod overhear;
mod page;
mod places;
pub mod process;
pub mod reccaster;
mod repeater;
pub mod server;
mod socket;
mod sync;
mod timers;

pub use client::{
    Channel, ChannelState, Context, Counts, Detail, Error, Executor, Facts, Given, Job, Monitor, MonitorEvent,
    MonitorOptions, Notice, Operation, Priority, Refusal, Request, WhenFull, WrongReply, many,
};
pub use config::{ClientConfig, ConfigError, Host, Quotas, ServerConfig};
pub use fodo_ca::Rights;
pub use fodo_ca::ring::Post;
pub use fodo_data::{
    Alarm, Array, ConvertError, EventMask, Kind, Limits, Meta, Reading, Scalar, Severity, Status, Text, TimeStamp,
    Value,
};
pub use page::{Page, PageConfig};
pub use repeater::Repeater;
pub use server::{
    ClientStatus, Completion, Observer, Peer, Posts, PutRefusal, Pv, PvFacts, RightsSignal, Server, ServerCounts,
    ServerError, Source, StatusPv, UpdateCounts, host_of_most_unused,
};
