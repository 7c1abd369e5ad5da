//! `fodo ioc`: serves the records of `.db` files until a signal ends it.

use std::io::{self, Write as _};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

use clap::ArgMatches;
use fodo_net::ServerConfig;
use fodo_net::config::{self, Side};
use fodo_net::log::{Level, Line, Log};
use serde_json::Map;

use crate::client::seconds;
use crate::epics::Outlet;
use crate::exit::Exit;
use crate::json;
use crate::local_time::Clock;

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
    /// Let go of a client that takes nothing it is sent, or answers no probe, for so long
    #[arg(long, value_name = "SECONDS", default_value = "120", value_parser = seconds)]
    client_silence: Duration,
    /// Lines that matter less are not told on stderr
    #[arg(long, value_name = "LEVEL", default_value = "warning")]
    log_level: LogLevel,
    /// How these lines look; JSON is one object per line
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    log_format: LogFormat,
    /// No shell, which there is none of: for command lines made for softIoc
    #[arg(short = 'S', hide = true)]
    no_shell: bool,
    /// Do not print the line that tells when it serves
    #[arg(short, long)]
    quiet: bool,
}

/// Which lines are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
#[expect(missing_docs, reason = "the names say it, and they are shown as they are")]
pub enum LogLevel {
    Error,
    Warning,
    Info,
    Debug,
}

/// How a line looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
#[expect(missing_docs, reason = "likewise")]
pub enum LogFormat {
    Text,
    Json,
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
SIGINT and SIGTERM stop it cleanly, with exit code 0. It reads no input and needs no terminal.

What happens meanwhile is told on stderr: errors of this host, warnings of clients that send what
they must not, with --log-level info clients that come and go, with debug channels that are refused.
A host has the same text told once a minute; the next line says how many were left out. JSON keys:
time (RFC 3339 in UTC), level, what, peer, pv (both null where there is none), left_out.";

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
    config.quotas.silence = arguments.client_silence;
    let address = config.interfaces.first().copied().unwrap_or(Ipv4Addr::UNSPECIFIED);

    // Asked for first, so that a signal during a long load stops it cleanly as well.
    let (sender, stop) = mpsc::channel();
    // It fails only when nobody waits any more, and then it is stopping already.
    crate::stop::on_signal(move || sender.send(()).unwrap_or_default())?;
    let ioc = match fodo_ioc::Ioc::load(&files(matches)) {
        Ok(ioc) => ioc,
        Err(error) => return refuse(&error.to_string(), outlet),
    };
    let running = match ioc.serve_telling(config, log(arguments)) {
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

fn log(arguments: &Arguments) -> Log {
    let level = match arguments.log_level {
        LogLevel::Error => Level::Error,
        LogLevel::Warning => Level::Warning,
        LogLevel::Info => Level::Info,
        LogLevel::Debug => Level::Debug,
    };
    let format = arguments.log_format;
    Log::new(level, move |line| {
        // Nothing is left to do when stderr fails.
        let _ = io::stderr().write_all(told(line, format).as_bytes());
    })
}

fn told(line: &Line, format: LogFormat) -> String {
    let level = match line.level {
        Level::Error => "error",
        Level::Warning => "warning",
        Level::Info => "info",
        Level::Debug => "debug",
    };
    let peer = line.peer.map(|peer| peer.to_string());
    let time = Clock::rfc3339(line.time);
    if format == LogFormat::Json {
        return json::line(Map::from_iter([
            ("time".to_owned(), time.into()),
            ("level".to_owned(), level.into()),
            ("what".to_owned(), line.what.clone().into()),
            ("peer".to_owned(), peer.into()),
            ("pv".to_owned(), line.pv.clone().into()),
            ("left_out".to_owned(), line.n_left_out.into()),
        ]));
    }
    // Names come from peers: a terminal is to show them, not to obey.
    let pv = line.pv.as_ref().map(|pv| format!(" \"{}\"", pv.escape_debug())).unwrap_or_default();
    let peer = peer.map(|peer| format!(" ({peer})")).unwrap_or_default();
    let left_out = if line.n_left_out > 0 { format!("; {} like it left out", line.n_left_out) } else { String::new() };
    format!("{} {level}: {}{pv}{peer}{left_out}\n", time.unwrap_or_default(), line.what)
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
    fn a_line_of_the_log_tells_who_and_what_and_commands_no_terminal() {
        let line = Line {
            level: Level::Debug,
            time: fodo_net::TimeStamp { unix_s: 1_800_000_000, nanos: 5 },
            what: "a channel is refused".to_owned(),
            peer: Some("10.0.0.2:4000".parse().unwrap()),
            pv: Some("x\u{1b}[2J".to_owned()),
            n_left_out: 3,
        };

        assert_eq!(
            told(&line, LogFormat::Text),
            "2027-01-15T08:00:00.000000005Z debug: a channel is refused \"x\\u{1b}[2J\" (10.0.0.2:4000); 3 like it left \
             out\n"
        );
        let object: Map<String, serde_json::Value> = serde_json::from_str(&told(&line, LogFormat::Json)).unwrap();
        assert_eq!((&object["peer"], &object["left_out"]), (&"10.0.0.2:4000".into(), &3.into()));
        for key in object.keys() {
            assert!(HELP.contains(key), "{key}");
        }
    }

    #[test]
    fn the_ready_line_is_the_documented_one() {
        let address = Ipv4Addr::LOCALHOST;

        assert!(HELP.contains(ready(102, address, 5064, 5064).trim_end()));
        assert!(HELP.contains(ready(102, address, 40001, 5064).trim_end()));
    }
}
