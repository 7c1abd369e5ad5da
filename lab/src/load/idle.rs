//! Memory of idle channels and subscriptions.

use super::{
    ANSWER_MAX, LoadReply, LoadRequest, counts, exchange, start_client, start_server, tallied, unavailable, unexpected,
};
use crate::driver::DriverFailure;
use crate::placement::{CpuChoice, Placement};
use crate::process::Ports;

/// Bytes of memory per object, including its name, by the process's resident memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct IdleMemory {
    /// A connected channel in the client.
    pub client_channel: f64,
    /// A connected channel in the server.
    pub server_channel: f64,
    /// A subscription whose first update is delivered, in the client.
    pub client_subscription: f64,
    /// The same in the server.
    pub server_subscription: f64,
}

/// Connects `n` channels, then creates as many subscriptions, to `n_pvs` PVs in turn.
pub fn run(n: u32, n_pvs: u32, placement: Placement, cpus: &CpuChoice) -> Result<IdleMemory, DriverFailure> {
    let ports = Ports::free().map_err(|why| unavailable("ports", &why))?;
    let mut server = start_server(n_pvs, cpus, ports)?;
    let mut client = start_client(None, placement, cpus, ports)?;
    // The first channel creates sockets, threads and buffers, which are not counted.
    exchange(&mut client, &LoadRequest::Connect { n_channels: 1, n_pvs: 1 }, ANSWER_MAX)?;
    let (client_0, server_0) = (tallied(&mut client)?.usage.rss_bytes, counts(&mut server)?.1.rss_bytes);
    let answer = exchange(&mut client, &LoadRequest::Connect { n_channels: n, n_pvs }, ANSWER_MAX)?;
    let LoadReply::Connected { n_channels, usage } = answer else { return Err(unexpected(&answer)) };
    if n_channels != u64::from(n) + 1 {
        return Err(DriverFailure::WrongCount { n: n_channels as usize, expected: n as usize + 1 });
    }
    let (client_1, server_1) = (usage.rss_bytes, counts(&mut server)?.1.rss_bytes);
    exchange(&mut client, &LoadRequest::Watch { n_pvs, n_subscriptions: n.div_ceil(n_pvs) }, ANSWER_MAX)?;
    let (client_2, server_2) = (tallied(&mut client)?.usage.rss_bytes, counts(&mut server)?.1.rss_bytes);
    let n_subscriptions = f64::from(n.div_ceil(n_pvs) * n_pvs);
    let each = |after: u64, before: u64, n: f64| after.saturating_sub(before) as f64 / n;
    Ok(IdleMemory {
        client_channel: each(client_1, client_0, f64::from(n)),
        server_channel: each(server_1, server_0, f64::from(n)),
        client_subscription: each(client_2, client_1, n_subscriptions),
        server_subscription: each(server_2, server_1, n_subscriptions),
    })
}
