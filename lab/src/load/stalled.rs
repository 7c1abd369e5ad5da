//! A fan-out beside a client that has stopped reading: what is that to the others?

use rustix::process::{Signal, kill_process};

use super::{ANSWER_MAX, Ask, FanOut, Outcome, ask, start_client, start_server, unavailable};
use crate::driver::Failure;
use crate::placement::{Placement, Seats};
use crate::process::Ports;

/// The same load without and with a stalled client.
#[derive(Clone, Debug, PartialEq)]
pub struct Stalled {
    /// Without.
    pub alone: Outcome,
    /// With; its ledger is the live client's.
    pub beside: Outcome,
}

impl Stalled {
    /// Measures both.
    pub fn run(load: &FanOut, placement: Placement, seats: &Seats) -> Result<Stalled, Failure> {
        Ok(Stalled { alone: load.run(placement, seats)?, beside: beside(load, placement, seats)? })
    }

    /// How many times its value alone p99 is beside the stalled client.
    pub fn ratio_of_p99(&self) -> f64 {
        let p99 = |outcome: &Outcome| {
            outcome.percentiles.iter().find(|(per_cent, _)| *per_cent == 99.0).map_or(f64::NAN, |(_, ns)| *ns)
        };
        p99(&self.beside) / p99(&self.alone)
    }
}

fn beside(load: &FanOut, placement: Placement, seats: &Seats) -> Result<Outcome, Failure> {
    let ports = Ports::free().map_err(|why| unavailable("ports", &why))?;
    let mut server = start_server(load.n_pvs, seats, ports)?;
    let mut live = start_client(load.double, placement, seats, ports)?;
    let mut stalled = start_client(None, placement, seats, ports)?;
    let watch = Ask::Watch { n_pvs: load.n_pvs, n_subscriptions: load.n_subscriptions };
    ask(&mut stalled, &watch, ANSWER_MAX)?;
    let stop =
        |signal| kill_process(stalled.id(), signal).map_err(|why| unavailable("the stalled client", &why.into()));
    stop(Signal::STOP)?;
    let outcome = load.converse(&mut server, &mut live, ports.server);
    // It is ended when it goes out of scope, and for that it need not run.
    stop(Signal::CONT)?;
    let mut outcome = outcome?;
    // The server's counts are of both clients, and what it merged for the stalled one hides what it merged for the
    // live one, of whom therefore every number must come.
    let ledger = &mut outcome.ledger;
    ledger.merged_server = 0;
    ledger.unexplained = ledger.produced as i64 - (ledger.delivered + ledger.merged_client) as i64;
    Ok(outcome)
}
