//! What the tools need of a client: the network, or a made-up plant in tests.

use std::time::Duration;

use fodo_net::{Error, Facts, Priority, Reading, Request, Value};

use super::options::Common;

/// PVs by their place in the list that was connected.
pub trait Plant {
    /// Takes hold of these PVs. One answer each, in their order, all within `timeout`.
    fn connect(&mut self, names: &[String], priority: Priority, timeout: Duration) -> Vec<Result<Facts, Error>>;

    /// Reads all of these at once; one answer each, in their order, all within `timeout`.
    fn read(&mut self, asked: &[(usize, Request)], timeout: Duration) -> Vec<Result<Reading, Error>>;

    /// Writes, and waits for the end of processing when `confirmed`.
    fn write(&mut self, pv: usize, value: Value, confirmed: bool, timeout: Duration) -> Result<(), Error>;
}

/// Connects all PVs or says, as the field does, that it could not; then `None`.
pub fn connect_all(
    plant: &mut dyn Plant,
    names: &[String],
    common: &Common,
    err: &mut dyn std::io::Write,
) -> std::io::Result<Option<Vec<Facts>>> {
    let connected: Result<Vec<Facts>, Error> =
        plant.connect(names, common.priority, common.timeout()).into_iter().collect();
    match (connected, names) {
        (Ok(facts), _) => return Ok(Some(facts)),
        (Err(Error::Misuse { reason, .. }), _) => writeln!(err, "{reason}")?,
        (Err(_), [name]) => writeln!(err, "Channel connect timed out: '{name}' not found.")?,
        (Err(_), _) => writeln!(err, "Channel connect timed out: some PV(s) not found.")?,
    }
    Ok(None)
}
