//! Client and server: sockets, clocks, threads and the environment for the machines below.
//!
//! A client starts with a [`Context`], a server with a [`Source`] and [`Server::start`].
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
