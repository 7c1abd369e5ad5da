//! EPICS Channel Access and pvAccess, client and server: read, write, monitor and serve process variables (PVs).
//!
//! A client selects the protocol by the name of the PV: `pva://demo:gap` or `ca://demo:gap`. Names without a scheme use
//! [`ClientConfig::default_protocol`], which is Channel Access by default. The calls are the same for both protocols;
//! those for [structures](#structures) need pvAccess.
//!
//! | task | start with |
//! | --- | --- |
//! | read, write or monitor a PV | [`Context`] and [`Channel`] |
//! | read or write many PVs at once | [`many`] |
//! | monitor thousands of numbers with one buffer | [`MonitorGroup`] |
//! | read, write or monitor structures, call procedures | [`Channel::get_structure`] |
//! | serve PVs | [`Server`] with a [`PvTable`] of [`SharedPv`]s, or with your own implementation of [`Source`] |
//! | find out why a PV is not connected | [`client::diagnosis`], [`Context::next_notice`] |
//! | monitor a site's searches and beacons | [`traffic_monitor`] |
//! | find the servers of pvAccess and the names of their PVs | [`discovery`] |
//! | control a Grenton CLU | [`clu`] |
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
//! mark: Channel Access does not report them, and pvAccess only counts the former ([`MonitorCounts::overrun`]). The newest
//! value always arrives. While no server has the PV there is no
//! event; [`Channel::why_inactive`] says why.
//!
//! # Monitor many
//!
//! A [`MonitorGroup`] receives the updates of any number of PVs as rows of one buffer, which the program takes as a whole. It
//! is the fastest way to receive many updates: an update takes no lock, no memory of its own and wakes no thread by itself.
//!
//! ```
//! # let (_server, context) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/demo/server.rs"));
//! use std::time::Duration;
//!
//! use fodo_net::{GroupOptions, GroupRows};
//!
//! let names = ["demo:temperature", "demo:gap"];
//! let group = context.monitor_group(GroupOptions::default());
//! for (name, added) in names.iter().zip(group.add(&names)) {
//!     println!("{name} has the index {}", added?);
//! }
//! let mut taken = GroupRows::default();
//! while group.take(&mut taken, Duration::from_secs(1)) {
//!     for row in &taken.rows {
//!         println!("{}: {} at {} s, severity {}", row.index, row.value, row.unix_s, row.severity);
//!     }
//!     // The loop ends after the context is closed.
//!     context.close();
//! }
//! # Ok::<(), fodo_net::Error>(())
//! ```
//!
//! # Structures
//!
//! A PV of pvAccess may have any type: tables, groups of values, unions. The calls above serve scalars, arrays and enums,
//! and fail for other types. [`Channel::get_structure`] and its relatives serve all types: a [`PvRequest`] selects fields,
//! and a [`Structure`] contains their values, with the nodes that the server has sent marked as changed.
//! [`Channel::call`] calls a procedure.
//!
//! ```
//! # let (_server, context) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/demo/server.rs"));
//! use fodo_net::{NodeValue, PvRequest};
//!
//! let gap = context.channel("pva://demo:gap")?;
//! println!("{}", gap.describe()?);
//!
//! let request = PvRequest::parse("field(value,alarm)").expect("a valid pvRequest");
//! let structure = gap.get_structure(&request)?;
//! println!("{:?}, severity {:?}", structure.get("value"), structure.get("alarm.severity"));
//!
//! gap.put_structure(&PvRequest::default(), vec![("value".into(), NodeValue::Value(20.0.into()))])?;
//! # Ok::<(), fodo_net::Error>(())
//! ```
//!
//! # Await
//!
//! Nothing requires an async runtime, and any runtime can be used. An [`Operation`] is a future, a [`Monitor`] is a
//! [`Stream`](futures_core::Stream). In async code use `start_connect`, `start_get`, `start_put`,
//! `start_put_unconfirmed` and those for structures, [`Monitor::next_event`] and the stream, and
//! [`MonitorGroup::next_rows`]. These calls block their thread: the other calls of a [`Channel`] that transfer values or
//! connect, [`Operation::wait`], all of [`many`], [`Monitor::next_timeout`] and [`Monitor::iter`], [`MonitorGroup::take`],
//! [`Context::next_notice`], [`client::diagnosis`], [`traffic_monitor`], [`Observer::clients`],
//! [`ServerConfig::from_env`] if it has names to resolve, and dropping a [`Server`].
//!
//! The thread `fodo-client` wakes the runtime with each result. An event loop can also read the circuits itself, with a
//! [`LoopReader`]; then a result wakes no other thread.
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
//! A [`SharedStructure`] holds a table, an image or any other structure, or is a procedure that clients call. Only pvAccess
//! serves it. `examples/structures.rs` of this crate has some.
//!
//! # Errors and timeouts
//!
//! Each operation ends exactly once: with its result, or with an [`Error`] that has a [`kind`](Error::kind), the
//! [name of the PV](Error::pv) and [what to do](Error::advice). A blocking call without a timeout of its own and an awaited operation end after
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
//! # Invalid calls
//!
//! The text of an error says which PV, what happened and what to do. [`Error::reason`] and [`Error::advice`] are the last two
//! parts. An invalid call ends with [`ErrorKind::Misuse`] and sends nothing:
//!
//! ```
//! # let (_server, context) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/demo/server.rs"));
//! use fodo_net::{Context, Detail, Error, GroupOptions, NodeValue, PvRequest, Request};
//!
//! /// Prints the error, and checks its two parts.
//! fn check<T>(result: Result<T, Error>, reason: &str, advice: &str) {
//!     let error = result.err().expect("an invalid call");
//!     println!("{error}");
//!     assert_eq!((error.reason().as_str(), error.advice()), (reason, Some(advice)));
//! }
//!
//! // Names, and priorities of channels.
//! check(context.channel(""), "the name of the channel is empty", "pass the name of a PV, such as \"demo:gap\"");
//! let long = "x".repeat(600);
//! check(
//!     context.channel(&long),
//!     "the name has 600 bytes, but a server accepts at most 511",
//!     "shorten the name, or the filter in it",
//! );
//! check(context.channel("demo\0"), "the name contains NUL", "remove it; a name ends before the NUL of a C string");
//! check(context.channel_at("demo:gap", 100), "the priority 100 is out of range", "it must be between 0 and 99");
//!
//! // Values that the PV cannot hold. Channel Access sends them, and the server decides.
//! let pva = context.channel("pva://demo:gap")?;
//! check(pva.put("wide"), "\"wide\" is not a number", "send a value that the type of the PV can hold");
//!
//! // What only the other protocol has.
//! let ca = context.channel("ca://demo:gap")?;
//! check(
//!     ca.get_structure(&PvRequest::default()),
//!     "structures, calls and processing require pvAccess",
//!     "request the PV with \"pva://\"",
//! );
//! let class = Request { detail: Detail::ClassName, ..Request::default() };
//! check(
//!     pva.get_with(class),
//!     "the record type is available with Channel Access only",
//!     "request the PV with \"ca://\"",
//! );
//!
//! // Fields that the PV does not have.
//! check(
//!     pva.start_describe("width").wait(),
//!     "the PV has no field \"width\"",
//!     "describe the PV to see its fields",
//! );
//! let fields = vec![("width".into(), NodeValue::Value(20.0.into()))];
//! let error = pva.put_structure(&PvRequest::default(), fields).unwrap_err();
//! println!("{error}");
//! assert_eq!(error.advice(), Some("set fields that the PV has, to values of their types"));
//!
//! // A channel of another context.
//! let group = Context::new(Default::default()).monitor_group(GroupOptions::default());
//! check(
//!     group.add_channel(&ca),
//!     "the channel belongs to another context than the group",
//!     "open it with the context of the group",
//! );
//!
//! // A context that the program has closed; this is `ErrorKind::ContextClosed`.
//! context.close();
//! check(ca.get(), "the context is closed", "create a new one");
//! # Ok::<(), Error>(())
//! ```
//!
//! # Threads and round trips
//!
//! - [`Context::new`] and [`Context::channel`] do not block. The first channel of the process starts the thread
//!   `fodo-client`, which serves the sockets of all contexts.
//! - A blocking call reads its connection itself, on the calling thread, so that no other thread must be woken; so does an
//!   event loop with a [`LoopReader`]. When connected, a get or put costs one round trip, and so do all operations of [`many`]
//!   together. With pvAccess, the first get and the first put of a channel cost two. Connecting costs the search, the TCP
//!   connection unless one to that server exists, and one round trip for each channel, with pvAccess two; channels connect in
//!   parallel.
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
//! The protocols themselves are in `fodo-ca` and `fodo-pva`, which do no input or output; this crate adds sockets, clocks, threads and the
//! environment variables.
#![forbid(unsafe_code)]

mod accepted;
mod address_list;
mod ca;
pub mod client;
mod clock;
pub mod clu;
pub mod config;
mod event_loop;
mod flush_delay;
mod interfaces;
mod limit;
pub mod log;
pub mod process;
mod protocol;
mod pva;
pub mod reactor;
mod repeater;
mod search_udp;
pub mod server;
mod socket;
mod stream;
mod tls;
pub mod traffic_monitor;

pub use accepted::AcceptedValues;
pub use client::{
    CallbackJob, Channel, ChannelFacts, ChannelState, Context, Detail, Error, ErrorKind, Executor, GroupChange,
    GroupCounts, GroupOptions, GroupRow, GroupRows, LoopReader, Monitor, MonitorCounts, MonitorEvent, MonitorGroup,
    MonitorIter, MonitorOptions, MonitorValue, Notice, Operation, Output, Priority, Refusal, Request, WhenFull,
    WrongReply, many,
};
pub use config::{
    ClientConfig, ConfigError, Host, InterfaceAddress, PvaClientConfig, PvaServerConfig, Quotas, ServerConfig,
};
pub use fodo_ca::dbr::DbrType;
pub use fodo_ca::eca::Eca;
pub use fodo_data::{
    AcknowledgePut, AcknowledgeState, Alarm, Array, ArraySize, BitSet, ConvertError, EventMask, Kind, Limits, Meta,
    MetaParts, Node, NodeKind, NodeValue, NormativeLayout, NormativeType, Now, Reading, Role, Scalar, Severity, Status,
    Structure, StructureBuilder, StructureError, StructureType, Text, TimeStamp, UnionMember, UnionType, UnionValue,
    Value, normative_type,
};
pub use fodo_engine::Rights;
pub use fodo_engine::ring::Post;
pub use fodo_pva::request::{PvRequest, RequestOption, RequestSyntax, RequestedField};
pub use fodo_pva::server::{AtomicOption, ProcessOption, PutOptions};
pub use protocol::Protocol;
pub use pva::discovery;
pub use repeater::Repeater;
pub use server::{
    Call, ChannelAccessPv, ClientStatus, Completion, DeferredPut, NormativeShape, Observer, Peer, Posts, PutRefusal,
    Pv, PvAccessPv, PvFacts, PvTable, RightsSignal, ServedPv, Server, ServerCounts, ServerError, SharedPv,
    SharedPvBuilder, SharedStructure, SharedStructureBuilder, Source, SourceChain, StructurePosts, StructuredPv,
    UpdateCounts, host_with_most_unused_clients,
};
pub use tls::{ClientCertificates, Keychain, KeychainError, TlsPeer, TlsPolicy};
