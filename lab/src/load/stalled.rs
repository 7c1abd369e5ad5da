//! A fan-out with a second client that has stopped reading: its effect on the first client.

use rustix::process::{Signal, kill_process};

use super::traffic::TrafficCounters;
use super::{ANSWER_MAX, FanOut, LoadOutcome, LoadRequest, exchange, start_client, start_server, unavailable};
use crate::driver::DriverFailure;
use crate::placement::{CpuChoice, Placement};
use crate::process::Ports;

/// The same load without and with a stalled client.
#[derive(Clone, Debug, PartialEq)]
pub struct Stalled {
    /// The load without a stalled client.
    pub alone: LoadOutcome,
    /// The load with a stalled client; the ledger is that of the live client.
    pub beside: LoadOutcome,
}

impl Stalled {
    /// Measures both.
    pub fn run(load: &FanOut, placement: Placement, cpus: &CpuChoice) -> Result<Stalled, DriverFailure> {
        Ok(Stalled { alone: load.run(placement, cpus)?, beside: beside(load, placement, cpus)? })
    }

    /// Ratio of p99 with the stalled client to p99 without it.
    pub fn ratio_of_p99(&self) -> f64 {
        let p99 = |outcome: &LoadOutcome| {
            outcome.percentiles.iter().find(|(per_cent, _)| *per_cent == 99.0).map_or(f64::NAN, |(_, ns)| *ns)
        };
        p99(&self.beside) / p99(&self.alone)
    }
}

fn beside(load: &FanOut, placement: Placement, cpus: &CpuChoice) -> Result<LoadOutcome, DriverFailure> {
    let ports = Ports::free().map_err(|why| unavailable("ports", &why))?;
    let mut server = start_server(load.n_pvs, cpus, ports)?;
    let mut live = start_client(load.double, load.protocol, placement, cpus, ports)?;
    let mut stalled = start_client(None, load.protocol, placement, cpus, ports)?;
    let watch = LoadRequest::Watch { n_pvs: load.n_pvs, n_subscriptions: load.n_subscriptions };
    exchange(&mut stalled, &watch, ANSWER_MAX)?;
    let stop =
        |signal| kill_process(stalled.id(), signal).map_err(|why| unavailable("the stalled client", &why.into()));
    stop(Signal::STOP)?;
    let outcome = load.converse(&mut server, &mut live, TrafficCounters::Circuits(ports.port_of(load.protocol)));
    // The process is killed when dropped, which does not require it to run; continue it so that it can exit by itself.
    stop(Signal::CONT)?;
    let mut outcome = outcome?;
    // The server counts both clients together, and updates merged for the stalled client hide those merged for the live
    // one. So the live client must receive every number.
    let ledger = &mut outcome.ledger;
    ledger.merged_server = 0;
    ledger.unexplained = ledger.produced as i64 - (ledger.delivered + ledger.merged_client) as i64;
    Ok(outcome)
}
