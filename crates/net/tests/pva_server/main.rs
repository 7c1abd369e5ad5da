//! The server over pvAccess: a client over a real socket, whose machine has no IO.

mod get;
mod hostile;
mod images;
mod monitor;
mod peer;
mod put;
mod search;
mod structured;

use std::sync::Arc;
use std::time::Duration;

use fodo_net::{PvTable, Server, ServerConfig, Source};

/// How long a test waits for what must happen.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// A server of these PVs on loopback.
pub fn start(pvs: impl Into<PvTable>) -> Server {
    start_with(ServerConfig::isolated(), Arc::new(pvs.into()))
}

/// A server of a source.
pub fn start_with(config: ServerConfig, source: Arc<dyn Source>) -> Server {
    Server::start(config, source).unwrap()
}
