//! Client and server: sockets, clocks, threads and the environment for the machines below.
//!
//! A client starts with a [`Context`], a server with a [`Source`] and [`Server::start`].

pub mod client;
pub mod config;
pub mod server;

pub use client::{
    Channel, ChannelState, Context, Counts, Detail, Error, Facts, Monitor, MonitorEvent, MonitorOptions, Operation,
    Refusal, Request,
};
pub use config::{ClientConfig, ConfigError, ServerConfig};
pub use fodo_data::{Alarm, Array, EventMask, Kind, Meta, Reading, Scalar, Severity, Status, Text, TimeStamp, Value};
pub use server::{Completion, Posts, PutOutcome, PutRefusal, Pv, PvFacts, Server, ServerError, Source};
