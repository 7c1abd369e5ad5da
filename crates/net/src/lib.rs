//! EPICS Channel Access, client and server: read, write, monitor and serve process variables (PVs).
//!
//! | task | start with |
//! | --- | --- |
//! | read, write or monitor a PV | [`Context`] and [`Channel`] |
//! | read or write many PVs at once | [`many`] |
//! | serve PVs | [`Server`] with a [`PvTable`] of [`SharedPv`]s, or with your own implementation of [`Source`] |
//! | find out why a PV is not connected | [`client::diagnosis`], [`Context::next_notice`] |
//! | monitor a site's searches and beacons | [`traffic_monitor`] |
//!
//! This page introduces each of them. Its examples use a server on the same host with the PVs `demo:temperature` and
//! `demo:gap`. Values ([`Value`], [`Array`], [`Text`]) and their attributes ([`Alarm`], [`Meta`], [`TimeStamp`]) are those of
//! `fodo-data`.
//!
//! # Read
//!
//! A [`Context`] is a client with its configuration. [`ClientConfig::from_env`] reads the variables that every EPICS
//! client reads, such as `EPICS_CA_ADDR_LIST`; a program can also set the fields itself. A [`Channel`] is the connection
//! to one PV. It connects in the background and reconnects after a failure, so a program creates it once and keeps it.
//!
//! ```
//! # let (server, _context) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/demo/server.rs"));
//! # let config = server.client_config();
//! use fodo_net::{Context, Detail, Request};
//!
//! let context = Context::new(config); // or Context::from_env()?
//! let temperature = context.channel("demo:temperature")?;
//!
//! let reading = temperature.get()?;
//! println!("{:?}, severity {}, at {:?}", reading.value, reading.alarm.severity, reading.time);
//!
//! // Units, limits and labels as well.
//! let reading = temperature.get_with(Request { detail: Detail::Full, ..Request::default() })?;
//! println!("{:?}", reading.meta);
//! # Ok::<(), fodo_net::Error>(())
//! ```
//!
//! # Write
//!
//! [`Channel::put`] waits until the server has completed the processing that the put started, for instance until a motor
//! has stopped. [`Channel::put_unconfirmed`] does not wait for a reply. A put that times out is not undone: once it was
//! sent, the server carries it out.
//!
//! ```
//! # let (_server, context) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/demo/server.rs"));
//! use std::time::Duration;
//!
//! let gap = context.channel("demo:gap")?;
//! gap.put(12.5)?;
//! gap.put_timeout(20.0, Duration::from_secs(60))?;
//! gap.put_unconfirmed(12.5)?;
//! # Ok::<(), fodo_net::Error>(())
//! ```
//!
//! # Monitor
//!
//! A [`Monitor`] receives the current value and every change, and reports when the connection is lost and restored.
//!
//! ```
//! # let (_server, context) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/demo/server.rs"));
//! use fodo_net::{MonitorEvent, MonitorOptions};
//!
//! let monitor = context.channel("demo:gap")?.monitor(MonitorOptions::default());
//! for event in &monitor {
//!     match event {
//!         MonitorEvent::Update(reading) => {
//!             println!("{:?}", reading.value);
//!             // The loop ends after the context is closed.
//!             context.close();
//!         }
//!         MonitorEvent::Disconnected => println!("disconnected: the last value may be stale"),
//!         _ => {}
//!     }
//! }
//! # Ok::<(), fodo_net::Error>(())
//! ```
//!
//! Updates that the program does not take in time wait in a queue of limited length. [`WhenFull`] determines what
//! happens when it is full, and [`MonitorEvent::Merged`] reports it. [`MonitorOptions::newest`] keeps only the newest
//! value, as a display needs it. [`Channel::monitor_with`] passes the events to a callback instead.
//!
//! Changes that the server merges because they are faster than the network, and those during a disconnection, leave no
//! mark: Channel Access does not report them. The newest value always arrives. While no server has the PV there is no
//! event; [`Channel::why_inactive`] says why.
//!
//! # Await
//!
//! Nothing requires an async runtime, and any runtime can be used. An [`Operation`] is a future, a [`Monitor`] is a
//! [`Stream`](futures_core::Stream). In async code use `start_connect`, `start_get`, `start_put`,
//! `start_put_unconfirmed`, [`Monitor::next_event`] and the stream. These calls block their thread: the other calls of
//! a [`Channel`] that transfer values or connect, [`Operation::wait`], all of [`many`], [`Monitor::next_timeout`] and
//! [`Monitor::iter`], [`Context::next_notice`], [`client::diagnosis`], [`traffic_monitor`], [`Observer::clients`],
//! [`ServerConfig::from_env`] if it has names to resolve, and dropping a [`Server`].
//!
//! An operation starts when it is created, not when it is first polled. Create it before a `select!` loop: a put that
//! is created in each turn writes in each turn.
//!
//! ```
//! # let (_server, context) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/demo/server.rs"));
//! use fodo_net::{MonitorOptions, Request};
//! use futures_util::StreamExt;
//!
//! # pollster::block_on(async {
//! let gap = context.channel("demo:gap")?;
//! gap.start_put(12.5).await?;
//! println!("{:?}", gap.start_get(Request::default()).await?.value);
//!
//! let mut monitor = gap.monitor(MonitorOptions::default());
//! while let Some(event) = monitor.next().await {
//!     println!("{event:?}");
//!     // The stream ends after the context is closed.
//!     context.close();
//! }
//! # Ok::<(), fodo_net::Error>(())
//! # }).unwrap();
//! ```
//!
//! # Serve
//!
//! A [`SharedPv`] holds a value. The program posts new values; clients read and monitor them, and write them if the PV
//! accepts puts. A [`PvTable`] gives the PVs their names, and a [`Server`] publishes the table until it is dropped. The
//! limits in a PV's [`Meta`] only inform clients: the program raises alarms and refuses puts itself.
//!
//! ```
//! use std::sync::Arc;
//!
//! use fodo_net::{Context, PutRefusal, PvTable, Server, ServerConfig, SharedPv, Value};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let temperature = SharedPv::new(21.5);
//! let gap = SharedPv::builder(12.5)
//!     .on_put(|value, _client| match value.to_f64() {
//!         Ok(0.0..=50.0) => Ok(value),
//!         _ => Err(PutRefusal::Rejected("the gap must be between 0 and 50 mm".into())),
//!     })
//!     .build();
//! let table = PvTable::from([("demo:temperature", temperature.clone()), ("demo:gap", gap)]);
//!
//! // For a test: on loopback, on free ports. `ServerConfig::from_env` serves on the network.
//! let server = Server::start(ServerConfig::isolated(), Arc::new(table))?;
//! temperature.post(21.7);
//!
//! let context = Context::new(server.client_config());
//! assert_eq!(context.channel("demo:temperature")?.get()?.value, Value::from(21.7));
//! assert!(context.channel("demo:gap")?.put(51.0).is_err());
//! # Ok(())
//! # }
//! ```
//!
//! # Errors and timeouts
//!
//! Each operation ends exactly once: with its result, or with an [`Error`] that has a [`kind`](Error::kind) and the
//! [name of the PV](Error::pv). A blocking call without a timeout of its own and an awaited operation end after
//! [`ClientConfig::operation_timeout`], 5 s by default. Each blocking call also has a variant with a timeout, such as
//! [`Channel::get_timeout`]. An awaited operation has none: it ends after `operation_timeout` even within a longer
//! timeout of the runtime, so a put that takes a minute needs a context with a longer one.
//!
//! ```
//! # let (_server, context) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/demo/server.rs"));
//! use std::time::Duration;
//!
//! use fodo_net::ErrorKind;
//!
//! let absent = context.channel("demo:absent")?;
//! match absent.get_timeout(Duration::from_millis(100)) {
//!     Ok(reading) => println!("{:?}", reading.value),
//!     Err(error) => match error.kind() {
//!         // Try again: the server may be starting. A put that is tried again may be carried out twice, except after
//!         // `NotFound` and `ConnectionClosed`.
//!         ErrorKind::NotFound { .. }
//!         | ErrorKind::NoReply { .. }
//!         | ErrorKind::ConnectionClosed { .. }
//!         | ErrorKind::Disconnected { .. } => {}
//!         ErrorKind::Refused { refusal, .. } => println!("{} refused {refusal}", error.pv()),
//!         _ => eprintln!("{error}"),
//!     },
//! }
//! # Ok::<(), fodo_net::Error>(())
//! ```
//!
//! # Threads and round trips
//!
//! - [`Context::new`] and [`Context::channel`] do not block. The first channel of the process starts the thread
//!   `fodo-client`, which serves the sockets of all contexts.
//! - A blocking call reads its connection itself, on the calling thread, so that no other thread must be woken. When
//!   connected, a get or put costs one round trip, and so do all operations of [`many`] together. Connecting costs the
//!   search, the TCP connection unless one to that server exists, and one round trip for each channel; channels connect
//!   in parallel.
//! - A callback of [`Channel::monitor_with`] runs on the thread `fodo-callbacks` of its context, or as its [`Executor`]
//!   determines. It may call everything in this crate. A panic ends only the call.
//! - A server runs at most four threads, `fodo-server-0` and so on. It calls a [`Source`], and the closures of a
//!   [`SharedPv`], on these; they must not block. A panic is logged and ends the request or the connection that caused
//!   it. [`Server::refresh_every_second`] and [`ServerConfig::status_prefix`] add the thread `fodo-status`.
//! - Host names are resolved on a thread `fodo-names`, which exists while there are names to resolve.
//! - Each thread that reads a client's connection keeps a buffer of 256 KiB, as does each thread of a server.
//! - All of these types are `Send` and `Sync`. Clones of a [`Context`], [`Channel`] or [`SharedPv`] are cheap and share the
//!   same object.
//!
//! The protocol itself is in `fodo-ca`, which does no input or output; this crate adds sockets, clocks, threads and the
//! environment variables.
#![forbid(unsafe_code)]

mod address_list;
pub mod client;
mod clock;
pub mod config;
mod event_loop;
mod interfaces;
mod limit;
pub mod log;
pub mod process;
pub mod reactor;
mod repeater;
pub mod server;
mod socket;
mod stream;
pub mod traffic_monitor;

pub use client::{
    CallbackJob, Channel, ChannelFacts, ChannelState, Context, Detail, Error, ErrorKind, Executor, Monitor,
    MonitorCounts, MonitorEvent, MonitorIter, MonitorOptions, Notice, Operation, Output, Priority, Refusal, Request,
    WhenFull, WrongReply, many,
};
pub use config::{ClientConfig, ConfigError, Host, Quotas, ServerConfig};
pub use fodo_ca::dbr::DbrType;
pub use fodo_ca::eca::Eca;
pub use fodo_data::{
    Acknowledge, Alarm, Array, ConvertError, EventMask, Kind, Limits, Meta, Now, Reading, Scalar, Severity, Status,
    Text, TimeStamp, Value,
};
pub use fodo_engine::Rights;
pub use fodo_engine::ring::Post;
pub use repeater::Repeater;
pub use server::{
    ChannelAccessPv, ClientStatus, Completion, DeferredPut, Observer, Peer, Posts, PutRefusal, Pv, PvFacts, PvTable,
    RightsSignal, Server, ServerCounts, ServerError, SharedPv, SharedPvBuilder, Source, SourceChain, UpdateCounts,
    host_with_most_unused_clients,
};
