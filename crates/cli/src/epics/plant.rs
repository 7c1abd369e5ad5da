//! The client interface that the tools need: the network, or a simulation in tests.

use std::time::Duration;

use fodo_net::{ChannelFacts, Error, ErrorKind, Priority, Reading, Request, Value};

use super::options::CommonOptions;

/// A client; PVs are identified by their index in the list passed to `connect`.
pub trait ToolClient {
    /// Connects these PVs. Returns one result each, in order, within `timeout`.
    fn connect(&mut self, names: &[String], priority: Priority, timeout: Duration) -> Vec<Result<ChannelFacts, Error>>;

    /// Reads all these PVs concurrently. Returns one result each, in order, within `timeout`.
    fn read(&mut self, requests: &[(usize, Request)], timeout: Duration) -> Vec<Result<Reading, Error>>;

    /// Writes a PV; with `confirmed` waits for the end of processing.
    fn write(&mut self, pv: usize, value: Value, confirmed: bool, timeout: Duration) -> Result<(), Error>;
}

/// Connects all PVs; otherwise prints the error of the EPICS tools and returns `None`.
pub fn connect_all(
    plant: &mut dyn ToolClient,
    names: &[String],
    common: &CommonOptions,
    err: &mut dyn std::io::Write,
) -> std::io::Result<Option<Vec<ChannelFacts>>> {
    let connected: Result<Vec<ChannelFacts>, Error> =
        plant.connect(names, common.priority, common.timeout()).into_iter().collect();
    let error = match connected {
        Ok(facts) => return Ok(Some(facts)),
        Err(error) => error,
    };
    match (error.kind(), names) {
        (ErrorKind::Misuse { reason, .. }, _) => writeln!(err, "{reason}")?,
        (_, [name]) => writeln!(err, "Channel connect timed out: '{name}' not found.")?,
        _ => writeln!(err, "Channel connect timed out: some PV(s) not found.")?,
    }
    Ok(None)
}
