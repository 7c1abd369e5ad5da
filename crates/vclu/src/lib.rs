//! A virtual Grenton CLU: the scripts that Object Manager uploads, and the objects that they use.
//!
//! | task | start with |
//! | --- | --- |
//! | run a CLU on the network | [`VcluServer`] |
//! | run a CLU on a thread | [`VirtualClu::start`], [`VirtualClu::submit`] |
//! | run a CLU with a clock of the test | [`LuaEngine`], [`ClockFn`] |
//! | answer a request of a client | [`VcluRequest::Execute`], [`ScriptAnswer`] |
//! | send the values of a subscription | [`SubscriptionChange`], [`VcluRequest::Fetch`] |
//! | map objects to PVs | [`VcluRequest::List`], [`ObjectClass`], [`VcluRequest::Set`], [`VcluRequest::Call`] |
//! | serve the objects of a CLU as PVs | [`CluPvs`] |
//! | read the file that names the CLUs of a site | [`CluSite`] |
//! | write the interface files for Object Manager | [`object_interface`], [`clu_interface`] |
//!
//! Scripts run on the thread of a [`VirtualClu`]. The sockets of a [`VcluServer`] are those of `fodo-net`, and the protocol is
//! that of `fodo-clu`.
//!
//! # Scripts
//!
//! The scripts are Lua 5.2 with the libraries base, table, string, math and coroutine. MAIN.LUA runs as a coroutine, up to
//! each `SYSTEM.Loop`; requests, handlers of events and timers run between. A call may execute a limited number of
//! instructions for a limited time, and all scripts together have a limited memory: what exceeds it fails, and the client
//! receives `nil`, as for every error. The log and the counters have the reason.
//!
//! If MAIN.LUA is missing, fails, or does not define `checkAlive`, EMERGNCY.LUA runs instead; without such a file, one that
//! only answers `checkAlive()` with `emergency`.
//!
//! # PVs
//!
//! A Pv object (class 998) is a client of one PV. Its feature `Name` may have a scheme, `ca://` or `pva://`; the other features have
//! the last value, its alarm, time stamp and units, and the last error. `Put`, `Get` and `Monitor` start an operation and return
//! `nil` at once: the thread of the CLU never waits for a server. `OnChange` reports each value of a get or a monitor, `OnPut` that the
//! server has completed a put, and `OnError` that one of them failed, also after `Timeout`. To set `Value` is to put, so that other
//! objects can write a PV.
//!
//! Arrays are lists, at most [`limit::PV_ELEMENTS_MAX`] elements. An enum is its number, and `Label` has its name; a put accepts
//! both. A text is sent to a PV of characters as characters.
//!
//! ```lua
//! BEAM = OBJECT:new(998, "BEAM")
//! BEAM:add_event(0, function() BEAM:set(0, "pva://ring:current") BEAM:execute(2) end)
//! BEAM:add_event(1, function() LAMP:set(0, BEAM:get(1) > 10 and 1 or 0) end)
//! ```
//!
//! Updates of a monitor wait in a queue of [`limit::PV_UPDATES_MAX`], and the handlers of one run before the next is taken. Updates
//! that are replaced because the CLU is too slow are counted, in the feature `Merged` and in [`CluCounts`]. All Pv objects of a CLU
//! share one client, which is created when the first has a name, from [`VcluConfig::pv_client`] or the environment.
//!
//! # Other CLUs
//!
//! `CLU2:execute(0, script)` of a RemoteCLU (class 1) sends a script to another CLU and returns its value: a number, a table, or a text; `nil`
//! if the value is `nil` and, with a reason in the log, if there is no valid reply within [`limit::REMOTE_TIMEOUT`]. Tables are
//! parsed as constants and never executed; those of OpenGr8ton's virtual CLU, whose texts have no quotes, are read too. `true` and
//! `false` remain texts.
//!
//! The call waits in its coroutine, as in `SYSTEM.Wait`: meanwhile the CLU handles other requests, events and timers, and the
//! reply to the own client is sent when its script ends. What else may have changed during the wait is the script's concern: a
//! handler that waits continues after handlers of later events. Calls continue in the order in which they began if several
//! replies are there, each with a new budget. At most [`limit::WAITING_MAX`] calls wait; further ones are refused before anything is
//! sent. A call within a coroutine of a script, or where Lua cannot wait (a comparison of `table.sort`, a replacement of
//! `string.gsub`), is refused or fails.
//!
//! OM.LUA has only the address of a CLU. [`VcluConfig::peers`] names CLUs with another port or another key than that of the project,
//! which a [`VcluServer`] sets.
#![forbid(unsafe_code)]

mod actor;
mod clock;
mod engine;
mod folder;
mod http;
mod json;
pub mod limit;
mod log;
mod mqtt;
mod network;
mod object;
mod pv;
mod remote;
mod server;
mod site;
mod tls;
mod value;

pub use actor::{RequestRefused, VirtualClu};
pub use clock::{ClockFn, system_clock};
pub use engine::LuaEngine;
pub use engine::request::{HTTP_PORT, ObjectListing, ReplyTo, ScriptAnswer, StartError, VcluConfig, VcluRequest};
pub use engine::subscription::{FetchItem, ReportReceiver, SubscriptionChange};
pub use log::{CluCounts, CluLogReader, LogEntry, LogSeverity, NewLogEntries};
pub use object::interface::{CluVersion, clu_interface, object_interface};
pub use object::world::CluState;
pub use object::{
    CLASSES, Feature, FeatureAccess, ObjectClass, ObjectError, ObjectEvent, ObjectMethod, Parameter, ValueKind,
};
pub use pv::{CluEnd, CluPvConfig, CluPvs, PvPath, PvPathFilter};
pub use remote::{PeerClu, PeerClus};
pub use server::{VcluServer, VcluServerConfig, VcluServerError};
pub use site::{CluPlace, CluSite, SiteClu, SiteError, SiteObject};
pub use value::{LuaValue, NumberFormat};
