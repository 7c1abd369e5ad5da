//! `fodo ioc`: serves the records of `.db` files until a signal ends it.

use std::io::{self, Write as _};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::SystemTime;

use clap::ArgMatches;
use fodo_ioc::{Ioc, IocError, Policy, RunningIoc};
use fodo_net::ServerConfig;
use fodo_net::config::{self, Side};
use fodo_net::log::{Level, Line, Log};
use serde_json::Map;

use crate::epics::Outlet;
use crate::exit::Exit;
use crate::json;
use crate::local_time::Clock;
use crate::put_log::PutLog;

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
    /// Who may do what: an access security file of EPICS (.acf), with the macros as for a database. Read again at SIGHUP
    #[arg(short = 'a', long, value_name = "FILE")]
    access: Option<PathBuf>,
    /// Tell hosts apart by the address they connect from, not by the name they give themselves (asCheckClientIP)
    #[arg(long, requires = "access")]
    check_client_ip: bool,
    /// No client may write anything
    #[arg(long)]
    read_only: bool,
    /// Append every put that went through to this file, a JSON object per line; with --access those under TRAPWRITE
    #[arg(long, value_name = "FILE")]
    put_log: Option<PathBuf>,
    /// UDP port of searches, and TCP port where it is free; 0 for any. Instead of EPICS_CAS_SERVER_PORT
    #[arg(long, value_name = "N")]
    port: Option<u16>,
    /// Serve on this address only; may be given several times. Instead of EPICS_CAS_INTF_ADDR_LIST
    #[arg(long, value_name = "ADDRESS")]
    interface: Vec<Ipv4Addr>,
    /// Serve what the server knows of itself and its clients as PREFIX:CLIENTS and so on, see `fodo top`
    #[arg(long, value_name = "PREFIX")]
    status_prefix: Option<String>,
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
  fodo ioc -d plant.db -a plant.acf --put-log puts.json

When it serves it prints one line on stdout, which scripts may wait for:
  fodo ioc: serving 102 records on 127.0.0.1:5064 (CA)
or, where searches have another port than the circuits:
  fodo ioc: serving 102 records on 127.0.0.1:40001 (CA, searches on UDP 5064)
With --read-only the brackets end in \", read-only)\".
SIGINT and SIGTERM stop it cleanly, with exit code 0. It reads no input and needs no terminal.

What happens meanwhile is told on stderr: errors of this host, warnings of clients that send what
they must not, with --log-level info clients that come and go, with debug channels that are refused.
A host has the same text told once a minute; the next line says how many were left out. JSON keys:
time (RFC 3339 in UTC), level, what, peer, pv (both null where there is none), left_out.

Without --access everybody may do everything. With it, clients are told at once when rules, their
inputs or the ASG of a record change. SIGHUP has the file read again; when something is wrong in
it, that is told and the rules before hold on. Host names are compared without case.

JSON keys of --put-log: time (RFC 3339 in UTC), user and host (as the client says), peer (where
it connects from), pv (record and field), old, new (the field before and after; of an array the
first 100 elements), count (of new), left_out: puts since the line before that are not in the
file, since they came faster than it takes them. Processing never waits for the file.";

/// The section of the help on the environment.
pub fn environment() -> String {
    let variables = config::help(|side| side != Side::Client);
    format!("Environment, and in brackets what holds without it (fodo config shows what does):\n{variables}")
}

/// The files of these arguments in the order given, each with the macros that were last given before it; those that
/// stand behind every one of them count for the files without any.
fn files(matches: &ArgMatches, arguments: &[&str]) -> Vec<(PathBuf, String)> {
    let placed = |id: &str| -> Vec<usize> { matches.indices_of(id).into_iter().flatten().collect() };
    let macros: Vec<(usize, String)> =
        placed("macros").into_iter().zip(matches.get_many::<String>("macros").into_iter().flatten().cloned()).collect();
    let mut files: Vec<(usize, PathBuf)> = Vec::new();
    for id in arguments {
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
    let (sender, wishes) = mpsc::channel();
    let again = sender.clone();
    // These fail only when nobody waits any more, and then it is stopping already.
    crate::stop::on_signal(move || sender.send(Wish::Stop).unwrap_or_default())?;
    if arguments.access.is_some() {
        crate::stop::on_hangup(move || again.send(Wish::ReadAccessAgain).unwrap_or_default())?;
    }
    let put_log = match arguments.put_log.as_deref().map(PutLog::open).transpose() {
        Ok(put_log) => put_log,
        Err(error) => return refuse(&format!("the put log cannot be written: {error}"), outlet),
    };
    let running = match start(arguments, matches, config, put_log.as_ref()) {
        Ok(running) => running,
        Err(error) => return refuse(&error.to_string(), outlet),
    };
    if !arguments.quiet {
        let (tcp, udp) = (running.tcp_port(), running.udp_port());
        let line = ready(running.n_records(), address, tcp, udp, arguments.read_only);
        outlet.out.write_all(line.as_bytes())?;
        outlet.out.flush()?;
    }
    // An error would mean that nobody can ask it to stop any more.
    while let Ok(Wish::ReadAccessAgain) = wishes.recv() {
        read_access_again(&running, arguments);
    }
    running.stop();
    put_log.map_or(Ok(()), PutLog::finish)?;
    Ok(Exit::Done)
}

/// What a signal asks for.
enum Wish {
    Stop,
    ReadAccessAgain,
}

fn start(
    arguments: &Arguments,
    matches: &ArgMatches,
    config: ServerConfig,
    put_log: Option<&PutLog>,
) -> Result<RunningIoc, IocError> {
    let policy = Policy {
        access_file: files(matches, &["access"]).pop(),
        goes_by_address: arguments.check_client_ip,
        is_read_only: arguments.read_only,
        tell_put: put_log.map(PutLog::teller),
    };
    let ioc = Ioc::load(&files(matches, &["databases", "files"]))?.guarded(policy)?;
    ioc.access_warnings().iter().for_each(|what| say(Level::Warning, what, arguments));
    ioc.serve_telling(config, log(arguments))
}

fn read_access_again(running: &RunningIoc, arguments: &Arguments) {
    match running.reload_access() {
        Ok(warnings) => {
            warnings.iter().for_each(|what| say(Level::Warning, what, arguments));
            say(Level::Info, "the access file was read again", arguments);
        }
        Err(error) => {
            let what = format!("the access file is not used, what held before goes on: {error}");
            what.lines().for_each(|line| say(Level::Error, line, arguments));
        }
    }
}

/// A line of the log that is about no peer.
fn say(level: Level, what: &str, arguments: &Arguments) {
    if level > level_of(arguments) {
        return;
    }
    let time = SystemTime::now().into();
    let line = Line { level, time, what: what.to_owned(), peer: None, pv: None, n_left_out: 0 };
    // Nothing is left to do when stderr fails.
    let _ = io::stderr().write_all(told(&line, arguments.log_format).as_bytes());
}

fn level_of(arguments: &Arguments) -> Level {
    match arguments.log_level {
        LogLevel::Error => Level::Error,
        LogLevel::Warning => Level::Warning,
        LogLevel::Info => Level::Info,
        LogLevel::Debug => Level::Debug,
    }
}

fn log(arguments: &Arguments) -> Log {
    let format = arguments.log_format;
    Log::new(level_of(arguments), move |line| {
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

fn ready(n_records: usize, address: Ipv4Addr, tcp_port: u16, udp_port: u16, is_read_only: bool) -> String {
    let searches = if udp_port == tcp_port { String::new() } else { format!(", searches on UDP {udp_port}") };
    let read_only = if is_read_only { ", read-only" } else { "" };
    format!("fodo ioc: serving {n_records} records on {address}:{tcp_port} (CA{searches}{read_only})\n")
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

    const DATABASES: &[&str] = &["databases", "files"];

    fn placed(line: &str, arguments: &[&str]) -> Vec<(String, String)> {
        let command = Arguments::augment_args(Command::new("ioc"));
        let matches = command.try_get_matches_from(line.split(' ')).unwrap();
        files(&matches, arguments).into_iter().map(|(file, macros)| (file.display().to_string(), macros)).collect()
    }

    #[test]
    fn macros_count_for_the_files_after_them() {
        let pair = |file: &str, macros: &str| (file.to_owned(), macros.to_owned());

        assert_eq!(
            placed("ioc -d a.db -m P=1 -d b.db -d c.db -m P=2,R=x d.db", DATABASES),
            [pair("a.db", ""), pair("b.db", "P=1"), pair("c.db", "P=1"), pair("d.db", "P=2,R=x")]
        );
        assert_eq!(placed("ioc -d a.db b.db -m P=1", DATABASES), [pair("a.db", "P=1"), pair("b.db", "P=1")]);
        assert_eq!(placed("ioc -m P=1 -d a.db -m P=2", DATABASES), [pair("a.db", "P=1")]);
        assert_eq!(placed("ioc -m P=1 -a a.acf -m P=2 -d b.db", &["access"]), [pair("a.acf", "P=1")]);
        assert_eq!(placed("ioc -d b.db -a a.acf -m P=2", &["access"]), [pair("a.acf", "P=2")]);
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

        assert!(HELP.contains(ready(102, address, 5064, 5064, false).trim_end()));
        assert!(HELP.contains(ready(102, address, 40001, 5064, false).trim_end()));
    }
}
