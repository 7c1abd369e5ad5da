//! Memory of idle channels and subscriptions.

use super::cast::idle_client;
use super::usage::Usage;
use super::{ANSWER_MAX, LoadReply, LoadRequest, counts, exchange, start_server, tallied, unavailable, unexpected};
use crate::driver::{ClientUnderTest, DriverFailure};
use crate::limit::VM_WARM_UP_CHANNELS;
use crate::placement::{CpuChoice, Placement};
use crate::process::Ports;
use crate::protocol::LabProtocol;

/// Bytes of memory per object, including its name, by the process's resident memory. The heap of a virtual machine is
/// resident from its start, so the growth is outside of it.
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
pub fn run(
    (client, protocol): (ClientUnderTest, LabProtocol),
    n: u32,
    n_pvs: u32,
    placement: Placement,
    cpus: &CpuChoice,
) -> Result<IdleMemory, DriverFailure> {
    let ports = Ports::free().map_err(|why| unavailable("ports", &why))?;
    let mut server = start_server(n_pvs, cpus, ports)?;
    let mut process = idle_client(client, protocol, placement, cpus, ports)?;
    let n_first = if client.external().is_some() { VM_WARM_UP_CHANNELS } else { 1 };
    // The first channels create sockets, threads and buffers, which are not counted.
    exchange(&mut process, &LoadRequest::Connect { n_channels: n_first, n_pvs: 1 }, ANSWER_MAX)?;
    let (client_0, server_0) = (tallied(&mut process)?.usage.rss_bytes, counts(&mut server)?.1.rss_bytes);
    let answer = exchange(&mut process, &LoadRequest::Connect { n_channels: n, n_pvs }, ANSWER_MAX)?;
    let LoadReply::Connected { n_channels, usage } = answer else { return Err(unexpected(&answer)) };
    if n_channels != u64::from(n + n_first) {
        return Err(DriverFailure::WrongCount { n: n_channels as usize, expected: (n + n_first) as usize });
    }
    let usage = if usage == Usage::default() { Usage::of_process(&process.number()) } else { usage };
    let (client_1, server_1) = (usage.rss_bytes, counts(&mut server)?.1.rss_bytes);
    exchange(&mut process, &LoadRequest::Watch { n_pvs, n_subscriptions: n.div_ceil(n_pvs) }, ANSWER_MAX)?;
    let (client_2, server_2) = (tallied(&mut process)?.usage.rss_bytes, counts(&mut server)?.1.rss_bytes);
    let n_subscriptions = f64::from(n.div_ceil(n_pvs) * n_pvs);
    let each = |after: u64, before: u64, n: f64| after.saturating_sub(before) as f64 / n;
    Ok(IdleMemory {
        client_channel: each(client_1, client_0, f64::from(n)),
        server_channel: each(server_1, server_0, f64::from(n)),
        client_subscription: each(client_2, client_1, n_subscriptions),
        server_subscription: each(server_2, server_1, n_subscriptions),
    })
}
