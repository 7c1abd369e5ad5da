//! `fodo ioc`: serves the records of `.db` files and runs `st.cmd` scripts, until a signal or a command ends it.

use std::io::{self, BufRead as _, Write as _};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, SystemTime};

use clap::ArgMatches;
use fodo_ioc::shell::{Flow, Purpose, Shell, Start};
use fodo_ioc::{Policy, RunningIoc};
use fodo_net::ServerConfig;
use fodo_net::config;
use fodo_net::log::{Level, Line, Log};
use serde_json::Map;

use crate::client::seconds;
use crate::epics::Outlet;
use crate::exit::Exit;
use crate::json;
use crate::local_time::Clock;
use crate::put_log::PutLog;
use crate::terminal;

/// Serve the records of .db files, run st.cmd scripts
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// A database, as softIoc takes it
    #[arg(short = 'd', long = "database", value_name = "FILE")]
    databases: Vec<PathBuf>,
    /// Macros for the databases that follow, or, behind the last one, for those without any: "P=x:,R=1"
    #[arg(short = 'm', long, value_name = "MACROS")]
    macros: Vec<String>,
    /// More databases; what ends in .substitutions names templates, what ends in .cmd or .iocsh is a script
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Who may do what: an access security file of EPICS (.acf), with the macros as for a database. Read again at SIGHUP
    #[arg(short = 'a', long, value_name = "FILE")]
    access: Option<PathBuf>,
    /// Tell hosts apart by the address they connect from, not by the name they give themselves (asCheckClientIP)
    #[arg(long)]
    check_client_ip: bool,
    /// No client may write anything
    #[arg(long)]
    read_only: bool,
    /// Append every put that went through to this file, a JSON object per line; with an access file those under TRAPWRITE
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
    /// Let go of a client that takes nothing it is sent, or answers no probe, for so long
    #[arg(long, value_name = "SECONDS", default_value = "120", value_parser = seconds)]
    client_silence: Duration,
    /// Lines that matter less are not told on stderr
    #[arg(long, value_name = "LEVEL", default_value = "warning")]
    log_level: LogLevel,
    /// How these lines look; JSON is one object per line
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    log_format: LogFormat,
    /// Read no commands from stdin
    #[arg(short = 'S', long)]
    no_shell: bool,
    /// Show the commands that the arguments mean
    #[arg(short, long)]
    verbose: bool,
    /// Accepted: record types and menus are built in. For command lines made for softIoc, as is -s
    #[arg(short = 'D', value_name = "FILE", hide = true)]
    descriptions: Vec<PathBuf>,
    /// Read commands, which it does anyway
    #[arg(short = 's', hide = true)]
    shell: bool,
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
  fodo ioc st.cmd
  fodo ioc -d motor.db -m P=x:,M=1
  fodo ioc -m P=x: -d motor.db -m P=y: -d motor.db
  fodo ioc -m P=x: plant.substitutions
  fodo ioc --interface 127.0.0.1 --port 0 plant.db
  fodo ioc -d plant.db -a plant.acf --put-log puts.json

When it serves it prints one line on stdout, which scripts may wait for:
  fodo ioc: serving 102 records on 127.0.0.1:5064 (CA)
or, where searches have another port than the circuits:
  fodo ioc: serving 102 records on 127.0.0.1:40001 (CA, searches on UDP 5064)
With --read-only the brackets end in \", read-only)\".
SIGINT and SIGTERM stop it cleanly, with exit code 0.

Databases are served at once. A script says iocInit itself; its lines are shown as they are read, but
those that start with #-. fodo check st.cmd tells beforehand what is wrong with it.

Then commands are read from stdin, with history and completion at a terminal; help lists them. exit
stops it, with a code if one is given, and at a terminal so do Ctrl-D and Ctrl-C. The end of any other
input stops nothing: with /dev/null as stdin, in the background, or with -S it serves until a signal.
When a script cannot be read, was ended by `on error break`, or input ends before iocInit, the code is 1.

What happens meanwhile is told on stderr: errors of this host, warnings of clients that send what
they must not, with --log-level info clients that come and go, with debug channels that are refused.
A host has the same text told once a minute; the next line says how many were left out. JSON keys:
time (RFC 3339 in UTC), level, what, peer, pv (both null where there is none), left_out.

Without --access everybody may do everything. With it, or with asSetFilename in a script, clients are
told at once when rules, their inputs or the ASG of a record change. SIGHUP has the file of --access
read again, asInit that of either; when something is wrong in it, that is told and the rules before
hold on. Host names are compared without case.

JSON keys of --put-log: time (RFC 3339 in UTC), user and host (as the client says), peer (where
it connects from), pv (record and field), old, new (the field before and after; of an array the
first 100 elements), count (of new), left_out: puts since the line before that are not in the
file, since they came faster than it takes them. Processing never waits for the file.";

/// The section of the help on the environment.
pub fn environment() -> String {
    let variables = config::help(|_| true);
    format!(
        "Environment, and in brackets what holds without it (fodo config shows what does); EPICS_CA_ADDR_LIST and what\n\
         belongs to it say where links look for PVs of other IOCs:\n{variables}"
    )
}

/// The databases and scripts in the order given, each with the macros that were last given before it; those that
/// stand behind every file count for the files without any.
fn files(matches: &ArgMatches) -> Vec<(PathBuf, String)> {
    files_of(matches, &["databases", "files"])
}

/// Likewise, those of some arguments.
fn files_of(matches: &ArgMatches, arguments: &[&str]) -> Vec<(PathBuf, String)> {
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

/// What a file on the command line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    /// Records.
    Database,
    /// Which templates with which macros.
    Substitutions,
    /// Commands.
    Script,
}

impl Sort {
    /// By what the name ends in.
    pub fn of(file: &Path) -> Sort {
        match file.extension().and_then(|extension| extension.to_str()) {
            Some("cmd" | "iocsh") => Sort::Script,
            Some("substitutions" | "subs" | "sub") => Sort::Substitutions,
            _ => Sort::Database,
        }
    }
}

/// Why it ends, or goes on otherwise.
enum End {
    Signal,
    /// The access file is to be read again.
    Hangup,
    /// `exit`, or the end of input at a terminal.
    Exit(u8),
    /// Nothing is read any more, and what serves goes on.
    Silence,
    /// It does not start; it is told why.
    Failed,
}

/// Does it and gives the exit code, which a script may choose. `matches` tells the order in which the arguments came.
pub fn run(arguments: &Arguments, matches: &ArgMatches, outlet: &mut Outlet<'_>) -> io::Result<u8> {
    let files = files(matches);
    // Asked for first, so that a signal during a long load stops it cleanly as well.
    let (sender, ends) = mpsc::channel();
    let by_signal = sender.clone();
    // It fails only when nobody waits any more, and then it is stopping already.
    crate::stop::on_signal(move || by_signal.send(End::Signal).unwrap_or_default())?;
    if arguments.access.is_some() {
        let by_hangup = sender.clone();
        crate::stop::on_hangup(move || by_hangup.send(End::Hangup).unwrap_or_default())?;
    }
    let put_log = match arguments.put_log.as_deref().map(PutLog::open).transpose() {
        Ok(put_log) => put_log,
        Err(error) => {
            writeln!(outlet.err, "fodo ioc: the put log cannot be written: {error}")?;
            return Ok(Exit::Other.code());
        }
    };
    let mut shell = shell(arguments, put_log.as_ref())?;
    let place = shell.place();
    let has_person = !arguments.no_shell && terminal::has_person();
    let restore = has_person.then(terminal::Restore::later);
    outlet.out.flush()?;

    let work = Work {
        is_verbose: arguments.verbose,
        access: files_of(matches, &["access"]).pop(),
        input: match (arguments.no_shell, has_person) {
            (true, _) => Input::None,
            (false, true) => Input::Person,
            (false, false) if io::IsTerminal::is_terminal(&io::stdin()) => Input::None,
            (false, false) => Input::Lines,
        },
    };
    std::thread::Builder::new().name("fodo-shell".into()).spawn(move || {
        let end = work.run(&mut shell, &files).unwrap_or_else(|error| {
            // Nothing is left to do when stderr fails as well.
            let _ = writeln!(io::stderr(), "fodo ioc: {error}");
            End::Failed
        });
        // Nobody waits any more when a signal came first.
        let _ = sender.send(end);
    })?;
    let code = loop {
        match ends.recv() {
            Ok(End::Silence) => {}
            Ok(End::Hangup) => place.lock().iter().filter_map(|place| place.as_ref()).for_each(|running| {
                read_access_again(running, arguments);
            }),
            // An error would mean that nobody can ask it to stop any more.
            Ok(End::Signal) | Err(_) => break 0,
            Ok(End::Exit(code)) => break code,
            Ok(End::Failed) => break Exit::Other.code(),
        }
    };
    let running = place.lock().map(|mut place| place.take()).unwrap_or_default();
    if let Some(running) = running {
        running.stop();
    }
    drop(restore);
    put_log.map_or(Ok(()), PutLog::finish)?;
    Ok(code)
}

/// Where commands come from after the arguments.
enum Input {
    None,
    /// A pipe or a file.
    Lines,
    Person,
}

/// What the shell's thread does.
struct Work {
    is_verbose: bool,
    /// With its macros.
    access: Option<(PathBuf, String)>,
    input: Input,
}

impl Work {
    fn run(&self, shell: &mut Shell, files: &[(PathBuf, String)]) -> io::Result<End> {
        if let Some(end) = self.files(shell, files)? {
            return Ok(end);
        }
        let end = match self.input {
            Input::None => End::Silence,
            Input::Lines => self.lines(shell)?,
            Input::Person => self.person(shell)?,
        };
        if matches!(end, End::Silence) && !shell.is_running() {
            return self.refuse("iocInit never came, so nothing is served");
        }
        Ok(end)
    }

    /// Loads the databases, starts them, then runs the scripts; tells the end, if that is one.
    fn files(&self, shell: &mut Shell, files: &[(PathBuf, String)]) -> io::Result<Option<End>> {
        if let Some((access, macros)) = &self.access {
            self.command(shell, &["asSetFilename", &access.to_string_lossy()])?;
            if !macros.is_empty() {
                self.command(shell, &["asSetSubstitutions", macros])?;
            }
        }
        let (scripts, databases): (Vec<_>, Vec<_>) = files.iter().partition(|(file, _)| Sort::of(file) == Sort::Script);
        for (file, macros) in &databases {
            let sort = Sort::of(file);
            let command = if sort == Sort::Substitutions { "dbLoadTemplate" } else { "dbLoadRecords" };
            if !self.command(shell, &[command, &file.to_string_lossy(), macros])? {
                return Ok(Some(End::Failed));
            }
        }
        if !databases.is_empty() && !self.command(shell, &["iocInit"])? {
            return Ok(Some(End::Failed));
        }
        for (script, _) in scripts {
            match shell.run_script(&script.to_string_lossy()) {
                Flow::Next => {}
                Flow::Broken => return Ok(Some(End::Failed)),
                Flow::Halted => return Ok(Some(End::Silence)),
                Flow::Exit(code) => return Ok(Some(End::Exit(code))),
            }
        }
        Ok(None)
    }

    fn command(&self, shell: &mut Shell, words: &[&str]) -> io::Result<bool> {
        if self.is_verbose {
            writeln!(io::stdout(), "{}", words.join(" "))?;
        }
        let Err(errors) = shell.attempt(words) else { return Ok(true) };
        for error in errors {
            self.refuse(&error.to_string())?;
        }
        Ok(false)
    }

    /// Tells why it does not serve, a line for every reason.
    fn refuse(&self, reasons: &str) -> io::Result<End> {
        for reason in reasons.lines() {
            writeln!(io::stderr(), "fodo ioc: {reason}")?;
        }
        Ok(End::Failed)
    }

    fn lines(&self, shell: &mut Shell) -> io::Result<End> {
        for line in io::stdin().lock().split(b'\n') {
            match shell.run_line(&String::from_utf8_lossy(&line?)) {
                Flow::Exit(code) => return Ok(End::Exit(code)),
                Flow::Halted => break,
                Flow::Next | Flow::Broken => {}
            }
        }
        Ok(End::Silence)
    }

    fn person(&self, shell: &mut Shell) -> io::Result<End> {
        let mut lines = terminal::Lines::new(shell.completer())?;
        loop {
            let prompt = shell.variable("IOCSH_PS1").unwrap_or("epics> ").to_owned();
            let Some(line) = lines.next(&prompt)? else { return Ok(End::Exit(0)) };
            if let Flow::Exit(code) = shell.run_line(&line) {
                return Ok(End::Exit(code));
            }
        }
    }
}

fn shell(arguments: &Arguments, put_log: Option<&PutLog>) -> io::Result<Shell> {
    let (port, interfaces) = (arguments.port, arguments.interface.clone());
    let (prefix, silence, is_quiet) = (arguments.status_prefix.clone(), arguments.client_silence, arguments.quiet);
    let configure = move |lookup: &fodo_ioc::shell::Lookup<'_>| {
        let mut config = ServerConfig::from_variables(lookup)?;
        config.port = port.unwrap_or(config.port);
        if !interfaces.is_empty() {
            config.interfaces.clone_from(&interfaces);
        }
        config.status_prefix.clone_from(&prefix);
        config.quotas.silence = silence;
        Ok(config)
    };
    let is_read_only = arguments.read_only;
    let policy = Policy {
        access_file: None,
        goes_by_address: arguments.check_client_ip,
        is_read_only,
        tell_put: put_log.map(PutLog::teller),
    };
    let start = Start {
        configure: Box::new(configure),
        policy,
        ready: Box::new(move |running| if is_quiet { String::new() } else { ready(running, is_read_only) }),
        date: Box::new(|format| Clock::local().formatted(format)),
        log: Some(log(arguments)),
    };
    let environment = std::env::vars_os()
        .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()));
    let folder = std::env::current_dir()?;
    Ok(Shell::new(Purpose::Run(start), &folder, environment, Box::new(io::stdout()), Box::new(io::stderr())))
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

fn ready(running: &RunningIoc, is_read_only: bool) -> String {
    let (tcp_port, udp_port) = (running.tcp_port(), running.udp_port());
    ready_line(running.n_records(), running.address(), tcp_port, udp_port, is_read_only)
}

fn ready_line(n_records: usize, address: Ipv4Addr, tcp_port: u16, udp_port: u16, is_read_only: bool) -> String {
    let searches = if udp_port == tcp_port { String::new() } else { format!(", searches on UDP {udp_port}") };
    let read_only = if is_read_only { ", read-only" } else { "" };
    format!("fodo ioc: serving {n_records} records on {address}:{tcp_port} (CA{searches}{read_only})\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Args as _, Command};

    const DATABASES: &[&str] = &["databases", "files"];

    fn placed(line: &str, arguments: &[&str]) -> Vec<(String, String)> {
        let command = Arguments::augment_args(Command::new("ioc"));
        let matches = command.try_get_matches_from(line.split(' ')).unwrap();
        files_of(&matches, arguments).into_iter().map(|(file, macros)| (file.display().to_string(), macros)).collect()
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

        assert!(HELP.contains(ready_line(102, address, 5064, 5064, false).trim_end()));
        assert!(HELP.contains(ready_line(102, address, 40001, 5064, false).trim_end()));
    }
}
