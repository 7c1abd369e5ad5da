//! The protocol of the Grenton CLU, a controller of buildings: cipher, commands, and the machines of both ends. No IO.
//!
//! A CLU is controlled with encrypted UDP datagrams, most of which contain an expression of Lua. One datagram is one
//! command; one reply answers it. [`command`] has the table of commands, [`cipher`] encrypts them, and [`value`] reads
//! the values in replies. [`client`] is the machine of a client, [`server`] that of a CLU, and [`tftp`]
//! transfers its files. [`keys`], [`omp`], [`om_lua`] and [`interface`]
//! read files of projects, from memory.
//!
//! This crate reads no clock and creates no random numbers: callers pass in both.
#![forbid(unsafe_code)]

mod archive;
pub mod cipher;
pub mod client;
pub mod command;
pub mod interface;
pub mod keys;
pub mod limit;
pub mod om_lua;
pub mod omp;
mod outgoing;
pub mod script;
pub mod server;
pub mod tftp;
pub mod value;

pub use outgoing::OutgoingDatagrams;

/// The UDP port on which CLUs receive requests.
pub const PORT: u16 = 1234;

/// Fills a buffer with random bytes that cannot be predicted, for example from the operating system.
pub type RandomSource = Box<dyn FnMut(&mut [u8]) + Send>;
