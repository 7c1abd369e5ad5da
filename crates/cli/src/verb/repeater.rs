//! `fodo repeater`: hands the beacons that reach this host to all of its clients.

use std::io;
use std::sync::mpsc;

use fodo_net::config::REPEATER_PORT;
use fodo_net::{ClientConfig, Repeater};

use crate::epics::Outlet;
use crate::exit::Exit;

/// Hand the beacons of servers to every client of this host
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// UDP port; EPICS_CA_REPEATER_PORT or 5065 by default
    #[arg(long, value_name = "N")]
    port: Option<u16>,
    /// Do not print the line that tells when it runs
    #[arg(short, long)]
    quiet: bool,
}

/// The end of the help.
pub const HELP: &str = "\
Examples:
  fodo repeater
  fodo repeater --port 5065 --quiet

Servers tell with beacons that they have started, to one port of every host. Clients look again at
once for the names that nobody had, instead of up to five minutes later. One program of a host has
that port: this one, caRepeater, or the first client, if there is neither. So this verb is needed
only where clients come and go and one should always be there. A link to fodo with the name
caRepeater is started by programs with libca when they need it.

When it runs it prints one line on stdout: fodo repeater: on UDP 5065
SIGINT and SIGTERM stop it cleanly, with exit code 0. When another repeater has the port it says so
and ends with code 1.

Environment:
  EPICS_CA_REPEATER_PORT  the same as --port";

/// Does it.
pub fn run(arguments: &Arguments, outlet: &mut Outlet<'_>) -> io::Result<Exit> {
    let port = match (arguments.port, ClientConfig::from_env()) {
        (Some(port), _) => port,
        (None, Ok(config)) => config.repeater_port.unwrap_or(REPEATER_PORT),
        (None, Err(error)) => {
            writeln!(outlet.err, "fodo repeater: {error}")?;
            return Ok(Exit::Other);
        }
    };
    let (sender, stop) = mpsc::channel();
    // It fails only when nobody waits any more, and then it is stopping already.
    crate::stop::on_signal(move || sender.send(()).unwrap_or_default())?;
    let repeater = match Repeater::start(port) {
        Ok(repeater) => repeater,
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            writeln!(outlet.err, "fodo repeater: UDP port {port} is taken: this host has a repeater already")?;
            return Ok(Exit::Other);
        }
        Err(error) => {
            writeln!(outlet.err, "fodo repeater: UDP port {port}: {error}")?;
            return Ok(Exit::Other);
        }
    };
    if !arguments.quiet {
        writeln!(outlet.out, "fodo repeater: on UDP {}", repeater.port())?;
        outlet.out.flush()?;
    }
    // An error would mean that nobody can ask it to stop any more.
    let _ = stop.recv();
    Ok(Exit::Done)
}
