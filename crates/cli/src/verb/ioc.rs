//! `fodo ioc`: serves the records of `.db` files and runs `st.cmd` scripts, until a signal or a command ends it.

use std::io::{self, BufRead as _, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use clap::ArgMatches;
use fodo_ioc::shell::{Flow, Place, Purpose, Shell, Start};
use fodo_ioc::{IocError, Policy, RunningIoc, printable};
use fodo_net::ServerConfig;
use fodo_net::config;
use fodo_net::log::Level;
use fodo_net::process;

use crate::client::seconds;
use crate::epics::Outlet;
use crate::exit::Exit;
use crate::limit::COMMAND_BYTES_MAX;
use crate::local_time::Clock;
use crate::log::LogFlags;
use crate::put_log::PutLog;
use crate::sort::Sort;
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
    /// Keep the fields that info(autosaveFields, "...") names in this folder, and restore them at the start
    #[arg(long, value_name = "FOLDER")]
    autosave: Option<PathBuf>,
    /// UDP port of searches, and TCP port where it is free; 0 for any. Instead of EPICS_CAS_SERVER_PORT
    #[arg(long, value_name = "N")]
    port: Option<u16>,
    /// Serve on this address only; may be given several times. Instead of EPICS_CAS_INTF_ADDR_LIST
    #[arg(long, value_name = "ADDRESS")]
    interface: Vec<Ipv4Addr>,
    /// Serve what the server knows of itself and its clients as PREFIX:CLIENTS and so on, see `fodo top`
    #[arg(long, value_name = "PREFIX")]
    status_prefix: Option<String>,
    /// Serve what is counted over HTTP, for Prometheus: ADDRESS:PORT, or a port for 127.0.0.1 only
    #[arg(long, value_name = "[ADDRESS:]PORT", value_parser = metrics_address)]
    metrics: Option<SocketAddr>,
    /// Tell RecCeivers that announce themselves (on UDP 5049, or this port) of the records: recsync, for ChannelFinder
    #[arg(long, value_name = "PORT", num_args = 0..=1, require_equals = true, default_missing_value = RECSYNC_PORT)]
    reccaster: Option<u16>,
    /// Let go of a client that takes nothing it is sent, or answers no probe, for so long
    #[arg(long, value_name = "SECONDS", default_value = "120", value_parser = seconds)]
    client_silence: Duration,
    /// Serve PREFIX:exit, which ends the IOC when it is processed, with code 1 when its field A is not 0, and PREFIX:BaseVersion
    #[arg(short = 'x', long, value_name = "PREFIX")]
    exit_prefix: Option<String>,
    #[command(flatten)]
    log: LogFlags,
    /// Read no commands from stdin
    #[arg(short = 'S', long)]
    no_shell: bool,
    /// Show the commands that the arguments mean
    #[arg(short, long)]
    verbose: bool,
    /// Load records of types and devices (DTYP) that are not here as well; they keep what is put to them and do nothing
    #[arg(long)]
    simulate: bool,
    /// Serve what is right in the databases given, and leave out and report what is wrong, as scripts do
    #[arg(long)]
    keep_going: bool,
    /// An error ends a script, as after `on error break`; nothing that is wrong is left out
    #[arg(long, conflicts_with = "keep_going")]
    strict: bool,
    /// A .dbd file, read before the databases: the scan rates of a site (menuScan) and breakpoint tables. The rest is built in
    #[arg(short = 'D', value_name = "FILE")]
    descriptions: Vec<PathBuf>,
    /// Read commands, which it does anyway
    #[arg(short = 's', hide = true)]
    shell: bool,
    /// Do not print the lines that tell when it serves
    #[arg(short, long)]
    quiet: bool,
}

/// How soon an access file is read again after there was no descriptor for it: the rules before it may allow too much.
const ACCESS_RETRY: Duration = Duration::from_secs(1);

/// Where RecCeivers announce themselves unless a plant has chosen another port.
const RECSYNC_PORT: &str = "5049";

/// What EPICS Base writes when iocInit has ended; programs that start an IOC wait for it.
const COMPLETE: &str = "iocRun: All initialization complete";

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
  fodo ioc --autosave /var/lib/plant plant.db

When it serves it prints one line on stdout, which scripts may wait for:
  fodo ioc: serving 102 records on 127.0.0.1:5064 (CA)
or, where searches have another port than the circuits:
  fodo ioc: serving 102 records on 127.0.0.1:40001 (CA, searches on UDP 5064)
Right before it `iocRun: All initialization complete` is written to stderr, with --log-format json as the
key what of a line of the log.
With --read-only the brackets end in \", read-only)\", and with --metrics in the address of these:
  fodo ioc: serving 102 records on 127.0.0.1:5064 (CA, metrics on http://127.0.0.1:9464/metrics)
SIGINT and SIGTERM stop it cleanly, with exit code 0, or 1 when values of autosave or lines of the
put log could not be written.

Databases are served at once. A script says iocInit itself; its lines are shown as they are read, but
those that start with #-. fodo check st.cmd tells beforehand what is wrong with it.

Then commands are read from stdin, with history and completion at a terminal; help lists them. exit
stops it, with a code if one is given, and at a terminal so do Ctrl-D and Ctrl-C. The end of any other
input stops nothing: with /dev/null as stdin, in the background, or with -S it serves until a signal.
When a script cannot be read, was ended by `on error break`, or input ends before iocInit, the code is 1.

A database named here that has an error stops the start, as with softIoc -d. In a script, and with
--keep-going, what is right in it is served: a wrong field keeps its default, a record of an unknown type
is not there, one of an unknown DTYP does nothing and is INVALID, and nothing is read behind a syntax
error. Every error is reported, and their number is in PREFIX:LOAD_ERROR_CNT and in the metrics. With
--strict an error ends a script.

With --simulate a record of a DTYP that is not here is as one of Soft Channel, but INP and OUT lead nowhere;
one of a type that is not here has the common fields, VAL, and as texts the fields that its file sets. What
is put to them stays, nothing else happens, SCAN I/O Intr never comes. How many there are is told on
stderr when it starts, a line for each type and DTYP.

What happens meanwhile is told on stderr: errors of this host, warnings of clients that send what
they must not, with --log-level info clients that come and go, with debug channels that are refused.
A host has the same text told once a minute; the next line says how many were left out. JSON keys:
time (RFC 3339 in UTC), level, what, peer, pv (both null where there is none), left_out.

Without --access everybody may do everything. With it, or with asSetFilename in a script, clients are
told at once when rules, their inputs or the ASG of a record change. SIGHUP has the file of --access
read again, asInit that of either; when something is wrong in it, that is told and the rules before
hold on. Host names are compared without case.

With --autosave FOLDER, fields that a record names in info(autosaveFields, \"VAL PREC\") are saved within 5 s
of a change and when it stops, to FOLDER/info_settings.sav, and have their values back at the next start.
Those of autosaveFields_pass0 (info_positions.sav) are restored only before the records are initialised,
those of autosaveFields_pass1 (info_pass1.sav) only after. A file takes the place of the one before when
it is on the disk; that one is kept as .savB, and used when the newer one is damaged. Scripts have the
commands of synApps autosave for the same and more; files are the same in both directions.

JSON keys of --put-log: time (RFC 3339 in UTC), user and host (as the client says), peer (where
it connects from), pv (record and field), old, new (the field before and after; of an array the
first 100 elements), count (of new), left_out: puts that are missing in the file and that no line
before has counted, because they came faster than they could be written, or the disk was full.
A line without pv at the end counts the last of them. A line that is no JSON was cut by a full
disk; its put is counted as missing. That the file cannot be written is reported on stderr, and
the exit code is 1. FILE may be a device, or a pipe that a program reads; processing never waits.";

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
    // A descriptor for each client, and for each server that links lead to.
    process::raise_descriptor_limit();
    // Asked for first, so that a signal during a long load stops it cleanly as well.
    let (sender, ends) = mpsc::channel();
    let by_signal = sender.clone();
    // It fails only when nobody waits any more, and then it is stopping already.
    crate::stop::on_signal(move || by_signal.send(End::Signal).unwrap_or_default())?;
    if arguments.access.is_some() {
        let by_hangup = sender.clone();
        crate::stop::on_hangup(move || by_hangup.send(End::Hangup).unwrap_or_default())?;
    }
    let put_log = arguments.put_log.as_deref().map(|path| PutLog::open(path, arguments.log.log()));
    let put_log = match put_log.transpose() {
        Ok(put_log) => put_log,
        Err(error) => {
            writeln!(outlet.err, "fodo ioc: the put log cannot be written: {error}")?;
            return Ok(Exit::Other.code());
        }
    };
    let mut shell = shell(arguments, put_log.as_ref())?;
    if let Some(prefix) = &arguments.exit_prefix
        && let Err(errors) = shell.serve_exit(prefix, exit_later(sender.clone()))
    {
        errors.iter().try_for_each(|error| writeln!(outlet.err, "fodo ioc: -x: {}", error.message))?;
        return Ok(Exit::Other.code());
    }
    if let Some(folder) = &arguments.autosave {
        shell.keep_values_in(folder);
    }
    let place = shell.place();
    let has_person = !arguments.no_shell && terminal::has_person();
    let restore = has_person.then(terminal::Restore::later);
    outlet.out.flush()?;

    let work = Work {
        is_verbose: arguments.verbose,
        descriptions: arguments.descriptions.clone(),
        keeps_going: arguments.keep_going,
        access: files_of(matches, &["access"]).pop(),
        has_records: arguments.exit_prefix.is_some(),
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
    let code = wait_for_the_end(&ends, &place, arguments);
    let running = place.lock().map(|mut place| place.take()).unwrap_or_default();
    let saved = running.map_or(Ok(()), RunningIoc::stop).map_err(|error| error.to_string());
    drop(restore);
    let logged = put_log.map_or(Ok(()), PutLog::finish);
    let lost: Vec<String> = [saved, logged].into_iter().filter_map(Result::err).collect();
    lost.iter().try_for_each(|what| writeln!(outlet.err, "fodo ioc: {what}"))?;
    // A code that a script has chosen is not changed, unless it means success.
    Ok(if lost.is_empty() || code != Exit::Done.code() { code } else { Exit::Other.code() })
}

/// The exit code, once it is to end.
fn wait_for_the_end(ends: &mpsc::Receiver<End>, place: &Place, arguments: &Arguments) -> u8 {
    // A Hangup that is to be tried again.
    let mut again = false;
    loop {
        let end = match again {
            true => ends.recv_timeout(ACCESS_RETRY),
            false => ends.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match end {
            Ok(End::Silence) => {}
            Ok(End::Hangup) | Err(RecvTimeoutError::Timeout) => {
                let running = place.lock();
                let running = running.iter().filter_map(|place| place.as_ref());
                again = running.fold(false, |_, running| read_access_again(running, arguments, again));
            }
            // An error would mean that nobody can ask it to stop any more.
            Ok(End::Signal) | Err(RecvTimeoutError::Disconnected) => return 0,
            Ok(End::Exit(code)) => return code,
            Ok(End::Failed) => return Exit::Other.code(),
        }
    }
}

/// Ends the IOC a moment later, so that whoever has asked for it hears that it is done.
fn exit_later(sender: mpsc::Sender<End>) -> impl Fn(u8) + Send + Sync {
    const MOMENT: Duration = Duration::from_millis(100);
    let is_ending = AtomicBool::new(false);
    move |code| {
        if is_ending.swap(true, Ordering::Relaxed) {
            return;
        }
        let (later, now) = (sender.clone(), sender.clone());
        let waiting = std::thread::Builder::new().name("fodo-exit".into()).spawn(move || {
            std::thread::sleep(MOMENT);
            // It ends already when nobody waits for it any more.
            let _ = later.send(End::Exit(code));
        });
        if waiting.is_err() {
            // Likewise.
            let _ = now.send(End::Exit(code));
        }
    }
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
    descriptions: Vec<PathBuf>,
    /// Databases with errors are served without what is wrong in them.
    keeps_going: bool,
    /// With its macros.
    access: Option<(PathBuf, String)>,
    /// There are records besides those of the files.
    has_records: bool,
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
            let hint = if files.is_empty() { "; name a database or a script, see fodo ioc --help" } else { "" };
            return self.refuse(&format!("iocInit never came, so nothing is served{hint}"));
        }
        Ok(end)
    }

    /// Loads the .dbd files and the databases, starts them, then runs the scripts; tells the end, if that is one.
    fn files(&self, shell: &mut Shell, files: &[(PathBuf, String)]) -> io::Result<Option<End>> {
        if let Some((access, macros)) = &self.access {
            self.command(shell, &["asSetFilename", &access.to_string_lossy()])?;
            if !macros.is_empty() {
                self.command(shell, &["asSetSubstitutions", macros])?;
            }
        }
        for description in &self.descriptions {
            if !self.command(shell, &["dbLoadDatabase", &description.to_string_lossy()])? && !self.keeps_going {
                return Ok(Some(End::Failed));
            }
        }
        let sorted = files.iter().map(|(file, macros)| (Sort::of(file), file, macros));
        let (scripts, databases): (Vec<_>, Vec<_>) = sorted.partition(|(sort, ..)| *sort == Sort::Script);
        for (sort, file, macros) in &databases {
            let name = file.to_string_lossy();
            let words = match sort {
                Sort::Description => ["dbLoadDatabase", &name, "", macros].to_vec(),
                Sort::Substitutions => ["dbLoadTemplate", &name, macros].to_vec(),
                Sort::Database | Sort::Script => ["dbLoadRecords", &name, macros].to_vec(),
            };
            if !self.command(shell, &words)? && !self.keeps_going {
                return Ok(Some(End::Failed));
            }
        }
        let has_databases = databases.iter().any(|(sort, ..)| *sort != Sort::Description);
        if (has_databases || self.has_records) && !self.command(shell, &["iocInit"])? {
            return Ok(Some(End::Failed));
        }
        for (_, script, _) in scripts {
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
        for reason in printable(reasons).lines() {
            writeln!(io::stderr(), "fodo ioc: {reason}")?;
        }
        Ok(End::Failed)
    }

    fn lines(&self, shell: &mut Shell) -> io::Result<End> {
        let mut input = io::stdin().lock();
        loop {
            let mut line = Vec::new();
            let n_bytes = input.by_ref().take(COMMAND_BYTES_MAX).read_until(b'\n', &mut line)?;
            if n_bytes == 0 {
                return Ok(End::Silence);
            }
            if n_bytes as u64 == COMMAND_BYTES_MAX && !line.ends_with(b"\n") {
                self.refuse(&format!("a line of the input has more than {COMMAND_BYTES_MAX} bytes; no more is read"))?;
                return Ok(End::Silence);
            }
            match shell.run_line(String::from_utf8_lossy(&line).trim_end_matches('\n')) {
                Flow::Exit(code) => return Ok(End::Exit(code)),
                Flow::Halted => return Ok(End::Silence),
                Flow::Next | Flow::Broken => {}
            }
        }
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
    let log = arguments.log.clone();
    let start = Start {
        configure: Box::new(configure),
        policy,
        has_put_log: put_log.is_some(),
        ready: Box::new(move |running| if is_quiet { String::new() } else { ready(running, is_read_only) }),
        complete: Box::new(move || if is_quiet { String::new() } else { log.as_it_is(COMPLETE) }),
        date: Box::new(|format| Clock::local().formatted(format)),
        log: Some(arguments.log.log()),
        reccaster: arguments.reccaster,
        metrics: arguments.metrics.map(|address| (address, put_log.map(PutLog::left_out))),
    };
    let environment = std::env::vars_os()
        .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()));
    let folder = std::env::current_dir()?;
    let (out, err) = (Box::new(io::stdout()), Box::new(io::stderr()));
    let mut shell = Shell::new(Purpose::Run(Box::new(start)), &folder, environment, out, err);
    if arguments.simulate {
        shell.simulate();
    }
    if arguments.strict {
        shell.be_strict();
    }
    Ok(shell)
}

/// Returns whether it is to be tried again later. `is_retry`: that it was tried before, which is logged already.
fn read_access_again(running: &RunningIoc, arguments: &Arguments, is_retry: bool) -> bool {
    match running.reload_access() {
        Ok(warnings) => {
            warnings.iter().for_each(|what| arguments.log.say(Level::Warning, what));
            arguments.log.say(Level::Info, "the access file was read again");
            false
        }
        Err(IocError::NoDescriptors(_)) if is_retry => true,
        Err(error) => {
            let lacks_descriptors = matches!(error, IocError::NoDescriptors(_));
            let later = if lacks_descriptors { " until it can be read, which is tried every second" } else { "" };
            let what = format!("the access file is not used, what held before goes on{later}: {error}");
            what.lines().for_each(|line| arguments.log.say(Level::Error, line));
            lacks_descriptors
        }
    }
}

fn ready(running: &RunningIoc, is_read_only: bool) -> String {
    ready_line(&Served {
        n_records: running.n_records(),
        address: running.address(),
        tcp_port: running.tcp_port(),
        udp_port: running.udp_port(),
        is_read_only,
        metrics: running.metrics_address(),
    })
}

/// What the line about it tells.
struct Served {
    n_records: usize,
    address: Ipv4Addr,
    tcp_port: u16,
    udp_port: u16,
    is_read_only: bool,
    metrics: Option<SocketAddr>,
}

fn ready_line(served: &Served) -> String {
    let Served { n_records, address, tcp_port, udp_port, .. } = served;
    let searches = if udp_port == tcp_port { String::new() } else { format!(", searches on UDP {udp_port}") };
    let read_only = if served.is_read_only { ", read-only" } else { "" };
    let metrics = served.metrics.map_or(String::new(), |address| format!(", metrics on http://{address}/metrics"));
    format!("fodo ioc: serving {n_records} records on {address}:{tcp_port} (CA{searches}{read_only}{metrics})\n")
}

/// Where metrics are served; nobody but this host reads them unless an address says so.
fn metrics_address(text: &str) -> Result<SocketAddr, String> {
    let port = text.parse().map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    port.or_else(|_| text.parse()).map_err(|_| format!("\"{text}\" is neither a port nor ADDRESS:PORT"))
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
    fn the_ready_line_is_the_documented_one() {
        let udp_5064 = |tcp_port, metrics: Option<&str>| Served {
            n_records: 102,
            address: Ipv4Addr::LOCALHOST,
            tcp_port,
            udp_port: 5064,
            is_read_only: false,
            metrics: metrics.map(|address| address.parse().unwrap()),
        };

        for served in [udp_5064(5064, None), udp_5064(40001, None), udp_5064(5064, Some("127.0.0.1:9464"))] {
            assert!(HELP.contains(ready_line(&served).trim_end()));
        }
    }

    #[test]
    fn metrics_are_for_this_host_unless_an_address_is_given() {
        assert_eq!(metrics_address("9464"), Ok("127.0.0.1:9464".parse().unwrap()));
        assert_eq!(metrics_address("0.0.0.0:9464"), Ok("0.0.0.0:9464".parse().unwrap()));
        assert_eq!(metrics_address("[::1]:0"), Ok("[::1]:0".parse().unwrap()));
        assert!(metrics_address("plant:9464").is_err() && metrics_address("70000").is_err());
    }
}
