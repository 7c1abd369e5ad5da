//! A server that is killed and started again: time until every subscription has received its first update.

use std::time::{Duration, SystemTime};

use super::{ANSWER_MAX, LoadReply, LoadRequest, exchange, start_client, start_server, unavailable, unexpected};
use crate::driver::DriverFailure;
use crate::placement::{CpuChoice, Placement};
use crate::process::Ports;
use crate::protocol::LabProtocol;

/// Time to recover, counted from the moment at which the server accepts requests again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RecoveryTimes {
    /// The first subscription.
    pub first: Duration,
    /// All subscriptions.
    pub all: Duration,
}

/// Maximum time for all subscriptions to recover.
const PATIENCE: Duration = Duration::from_secs(50);

/// Subscribes to `n_pvs` PVs, kills the server, starts it again after `down`.
pub fn run(
    protocol: LabProtocol,
    n_pvs: u32,
    down: Duration,
    placement: Placement,
    cpus: &CpuChoice,
) -> Result<RecoveryTimes, DriverFailure> {
    let ports = Ports::free().map_err(|why| unavailable("ports", &why))?;
    let server = start_server(n_pvs, cpus, ports)?;
    let mut client = start_client(None, protocol, placement, cpus, ports)?;
    exchange(&mut client, &LoadRequest::Watch { n_pvs, n_subscriptions: 1 }, ANSWER_MAX)?;
    drop(server);
    exchange(&mut client, &LoadRequest::Restart {}, ANSWER_MAX)?;
    std::thread::sleep(down);
    let _server = start_server(n_pvs, cpus, ports)?;
    let listens_unix_ns = unix_ns();
    let answer =
        exchange(&mut client, &LoadRequest::AwaitFresh { patience_ms: PATIENCE.as_millis() as u64 }, ANSWER_MAX)?;
    let LoadReply::Fresh { first_unix_ns, all_unix_ns } = answer else { return Err(unexpected(&answer)) };
    // An update may arrive before the server's ready line is read.
    let since = |unix_ns: u64| Duration::from_nanos(unix_ns.saturating_sub(listens_unix_ns));
    Ok(RecoveryTimes { first: since(first_unix_ns), all: since(all_unix_ns) })
}

fn unix_ns() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}
