//! `fodo ioc`: serves the records of `.db` files until a signal ends it.

use std::io;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::mpsc;

use clap::ArgMatches;
use fodo_net::ServerConfig;
use fodo_net::config::{self, Side};

use crate::epics::Outlet;
use crate::exit::Exit;

/// Serve the records of .db files
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// A database, as softIoc takes it
    #[arg(short = 'd', long = "database", value_name = "FILE")]
    databases: Vec<PathBuf>,
    /// Macros for the databases that follow, or, behind the last one, for those without any: "P=x:,R=1"
    #[arg(short = 'm', long, value_name = "MACROS")]
    macros: Vec<String>,
    /// More databases
    #[arg(value_name = "FILE", required_unless_present = "databases")]
    files: Vec<PathBuf>,
    /// UDP port of searches, and TCP port where it is free; 0 for any. Instead of EPICS_CAS_SERVER_PORT
    #[arg(long, value_name = "N")]
    port: Option<u16>,
    /// Serve on this address only; may be given several times. Instead of EPICS_CAS_INTF_ADDR_LIST
    #[arg(long, value_name = "ADDRESS")]
    interface: Vec<Ipv4Addr>,
    /// Serve what the server knows of itself and its clients as PREFIX:CLIENTS and so on, see `fodo top`
    #[arg(long, value_name = "PREFIX")]
    status_prefix: Option<String>,
    /// No shell, which there is none of: for command lines made for softIoc
    #[arg(short = 'S', hide = true)]
    no_shell: bool,
    /// Do not print the line that tells when it serves
    #[arg(short, long)]
    quiet: bool,
}

/// The end of the help.
pub const HELP: &str = "\
Examples:
  fodo ioc plant.db
  fodo ioc -d motor.db -m P=x:,M=1
  fodo ioc -m P=x: -d motor.db -m P=y: -d motor.db
  fodo ioc --interface 127.0.0.1 --port 0 plant.db

When it serves it prints one line on stdout, which scripts may wait for:
  fodo ioc: serving 102 records on 127.0.0.1:5064 (CA)
or, where searches have another port than the circuits:
  fodo ioc: serving 102 records on 127.0.0.1:40001 (CA, searches on UDP 5064)
SIGINT and SIGTERM stop it cleanly, with exit code 0. It reads no input and needs no terminal.";

/// The section of the help on the environment.
pub fn environment() -> String {
    let variables = config::help(|side| side != Side::Client);
    format!("Environment, and in brackets what holds without it (fodo config shows what does):\n{variables}")
}

/// The files in the order given, each with the macros that were last given before it; those that
/// stand behind every file count for the files without any.
pub fn files(matches: &ArgMatches) -> Vec<(PathBuf, String)> {
    let placed = |id: &str| -> Vec<usize> { matches.indices_of(id).into_iter().flatten().collect() };
    let macros: Vec<(usize, String)> =
        placed("macros").into_iter().zip(matches.get_many::<String>("macros").into_iter().flatten().cloned()).collect();
    let mut files: Vec<(usize, PathBuf)> = Vec::new();
    for id in ["databases", "files"] {
        files.extend(placed(id).into_iter().zip(matches.get_many::<PathBuf>(id).into_iter().flatten().cloned()));
    }
    files.sort_by_key(|&(place, _)| place);
    let last_file = files.last().map_or(0, |(place, _)| *place);
    let behind = macros.iter().find(|(at, _)| *at > last_file);
    let macros_of =
        |place: usize| macros.iter().rev().find(|(at, _)| *at < place).or(behind).map(|(_, text)| text.clone());
    files.into_iter().map(|(place, file)| (file, macros_of(place).unwrap_or_default())).collect()
}

/// Does it. `matches` tells the order in which the arguments came.
pub fn run(arguments: &Arguments, matches: &ArgMatches, outlet: &mut Outlet<'_>) -> io::Result<Exit> {
    let mut config = match ServerConfig::from_env() {
        Ok(config) => config,
        Err(error) => return refuse(&error.to_string(), outlet),
    };
    if let Some(port) = arguments.port {
        config.port = port;
    }
    if !arguments.interface.is_empty() {
        config.interfaces.clone_from(&arguments.interface);
    }
    config.status_prefix.clone_from(&arguments.status_prefix);
    let address = config.interfaces.first().copied().unwrap_or(Ipv4Addr::UNSPECIFIED);

    // Asked for first, so that a signal during a long load stops it cleanly as well.
    let (sender, stop) = mpsc::channel();
    // It fails only when nobody waits any more, and then it is stopping already.
    crate::stop::on_signal(move || sender.send(()).unwrap_or_default())?;
    let ioc = match fodo_ioc::Ioc::load(&files(matches)) {
        Ok(ioc) => ioc,
        Err(error) => return refuse(&error.to_string(), outlet),
    };
    let running = match ioc.serve(config) {
        Ok(running) => running,
        Err(error) => return refuse(&error.to_string(), outlet),
    };
    if !arguments.quiet {
        let (tcp, udp) = (running.tcp_port(), running.udp_port());
        outlet.out.write_all(ready(running.n_records(), address, tcp, udp).as_bytes())?;
        outlet.out.flush()?;
    }
    // An error would mean that nobody can ask it to stop any more.
    let _ = stop.recv();
    running.stop();
    Ok(Exit::Done)
}

fn ready(n_records: usize, address: Ipv4Addr, tcp_port: u16, udp_port: u16) -> String {
    let searches = if udp_port == tcp_port { String::new() } else { format!(", searches on UDP {udp_port}") };
    format!("fodo ioc: serving {n_records} records on {address}:{tcp_port} (CA{searches})\n")
}

/// Tells why it does not serve, a line for every reason.
fn refuse(reasons: &str, outlet: &mut Outlet<'_>) -> io::Result<Exit> {
    for reason in reasons.lines() {
        writeln!(outlet.err, "fodo ioc: {reason}")?;
    }
    Ok(Exit::Other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Args as _, Command};

    fn placed(line: &str) -> Vec<(String, String)> {
        let command = Arguments::augment_args(Command::new("ioc"));
        let matches = command.try_get_matches_from(line.split(' ')).unwrap();
        files(&matches).into_iter().map(|(file, macros)| (file.display().to_string(), macros)).collect()
    }

    #[test]
    fn macros_count_for_the_files_after_them() {
        let pair = |file: &str, macros: &str| (file.to_owned(), macros.to_owned());

        assert_eq!(
            placed("ioc -d a.db -m P=1 -d b.db -d c.db -m P=2,R=x d.db"),
            [pair("a.db", ""), pair("b.db", "P=1"), pair("c.db", "P=1"), pair("d.db", "P=2,R=x")]
        );
        assert_eq!(placed("ioc -d a.db b.db -m P=1"), [pair("a.db", "P=1"), pair("b.db", "P=1")]);
        assert_eq!(placed("ioc -m P=1 -d a.db -m P=2"), [pair("a.db", "P=1")]);
    }

    #[test]
    fn the_ready_line_is_the_documented_one() {
        let address = Ipv4Addr::LOCALHOST;

        assert!(HELP.contains(ready(102, address, 5064, 5064).trim_end()));
        assert!(HELP.contains(ready(102, address, 40001, 5064).trim_end()));
    }
}
