//! `fodo repeater`: forwards beacons received by this host to all its clients.

use std::io;
use std::sync::mpsc;

use fodo_net::config::REPEATER_PORT;
use fodo_net::{ClientConfig, Repeater};

use crate::epics::OutputStreams;
use crate::exit::Exit;

/// Forward the beacons of servers to all clients on this host
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// UDP port; default: EPICS_CA_REPEATER_PORT or 5065
    #[arg(long, value_name = "N")]
    port: Option<u16>,
    /// Do not print the line that reports the start
    #[arg(short, long)]
    quiet: bool,
}

/// The end of the help.
pub const HELP: &str = "\
Examples:
  fodo repeater
  fodo repeater --port 5065 --quiet

Servers announce their start with beacons to one port of every host. Clients then search again
immediately for names without a server, instead of up to five minutes later. One program on a host
uses that port: this one, caRepeater, or otherwise the first client. So this command is needed only
where clients start and stop and one repeater should always run. Programs with libca start
caRepeater when they need it; that name may be a link to fodo.

When it runs it prints one line on stdout: fodo repeater: on UDP 5065
SIGINT and SIGTERM stop it cleanly, with exit code 0. If another repeater uses the port, it reports
this and ends with code 1.

Environment:
  EPICS_CA_REPEATER_PORT  the same as --port";

/// Runs the command.
pub fn run(arguments: &Arguments, outlet: &mut OutputStreams<'_>) -> io::Result<Exit> {
    let port = match (arguments.port, ClientConfig::from_env()) {
        (Some(port), _) => port,
        (None, Ok(config)) => config.repeater_port.unwrap_or(REPEATER_PORT),
        (None, Err(error)) => {
            writeln!(outlet.err, "fodo repeater: {error}")?;
            return Ok(Exit::Other);
        }
    };
    let (sender, stop) = mpsc::channel();
    // It fails only if the receiver is gone, that is, when the program is already stopping.
    crate::stop::on_signal(move || sender.send(()).unwrap_or_default())?;
    let repeater = match Repeater::start(port) {
        Ok(repeater) => repeater,
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            writeln!(outlet.err, "fodo repeater: UDP port {port} is in use: this host already has a repeater")?;
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
    // An error means that no signal can arrive any more, so it stops as well.
    let _ = stop.recv();
    Ok(Exit::Done)
}
