//! Grenton CLUs: controllers of buildings, which a client controls with encrypted datagrams.
//!
//! | task | start with |
//! | --- | --- |
//! | evaluate Lua, read and change values, subscribe to values | [`CluConnection`] |
//! | find the CLUs of a network | [`discover_clus`] |
//! | read and write the files of a CLU | [`download_file`] and [`upload_file`] |
//! | serve a CLU | [`CluServerSockets`] |
//!
//! The protocol is in `fodo-clu`; its types that a program needs are here as well. The encryption has a fixed initialisation
//! vector and no integrity check: whoever can send datagrams to the CLU can repeat recorded ones.
//!
//! ```
//! # let (clu, key) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/demo/clu.rs"));
//! use fodo_net::clu::{Answer, CluConnection, CluConnectionConfig, CluItem, CluRequest, RequestOutcome, Scalar};
//!
//! let connection = CluConnection::open(CluConnectionConfig::new(clu, key))?;
//! let lamp = CluItem::feature("DOU8306", 0).ok_or("the name of an object is a name in Lua")?;
//! connection.request(CluRequest::Set(&lamp, &Scalar::F64(1.0)))?;
//! match connection.request(CluRequest::Get(&lamp))? {
//!     RequestOutcome::Answered(Answer::Text(value)) => println!("the lamp has the value {value}"),
//!     RequestOutcome::Nil => println!("the CLU does not have this value"),
//!     other => println!("{other:?}"),
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod client;
mod discovery;
mod files;
mod random;
pub mod server;

pub use fodo_clu::cipher::{CipherKey, Pin};
pub use fodo_clu::client::{
    Answer, Availability, ClientCounts, CluRequest, DiscoveredClu, DiscoveryCounts, KeyMatch, RequestOutcome,
    SubmitError,
};
pub use fodo_clu::command::{MacAddress, Serial};
pub use fodo_clu::script::CluItem;
pub use fodo_clu::tftp::{TftpErrorCode, TftpFailure};
pub use fodo_data::{Scalar, Text};

pub use client::{
    CluConnection, CluConnectionConfig, CluDeliveryCounts, CluMonitor, CluOperation, CluSocketCounts, CluUpdate,
    ReportMode,
};
pub use discovery::{CLU_PORT, CluDiscoveryConfig, CluDiscoverySearch, discover_clus};
pub use files::{
    CLU_TFTP_PORT, TransferError, TransferFailure, download_file, download_file_with_progress, upload_file,
    upload_file_with_progress,
};
pub use random::random_source;
pub use server::{
    CluFiles, CluHandler, CluOutcome, CluOutcomes, CluServerSocketCounts, CluServerSockets, CluSocketsConfig, CluTask,
    CluTaskPoll, NowFn,
};
