//! `fodo ioc`: serves the records of `.db` files and runs `st.cmd` scripts, until a signal or a command ends it.

use std::io::{self, BufRead as _, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use clap::ArgMatches;
use fodo_ioc::shell::{Flow, IocSlot, Lookup, Purpose, RunConfig, Shell};
use fodo_ioc::{IocError, Policy, RunningIoc, printable};
use fodo_net::config;
use fodo_net::log::Level;
use fodo_net::process;
use fodo_net::{ConfigError, ServerConfig};

use crate::client::seconds;
use crate::clu_log::CluLogThread;
use crate::epics::OutputStreams;
use crate::exit::Exit;
use crate::limit::{ACCESS_RETRY, COMMAND_BYTES_MAX, EXIT_DELAY};
use crate::local_time::Clock;
use crate::log::LogFlags;
use crate::put_log::PutLog;
use crate::sort::FileType;
use crate::terminal;

mod shell_thread;

use shell_thread::{CommandSource, ShellThread};

/// Serve the records of .db files and run st.cmd scripts
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// A database, as for softIoc
    #[arg(short = 'd', long = "database", value_name = "FILE")]
    databases: Vec<PathBuf>,
    /// Macros for the following databases; after the last database, for those without macros: "P=x:,R=1"
    #[arg(short = 'm', long, value_name = "MACROS")]
    macros: Vec<String>,
    /// Further databases, substitutions files (.substitutions) and scripts (.cmd or .iocsh)
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// EPICS access security file (.acf), with macros as for a database; reloaded on SIGHUP
    #[arg(short = 'a', long, value_name = "FILE")]
    access: Option<PathBuf>,
    /// Identify hosts by the address they connect from, not by the name they send (asCheckClientIP)
    #[arg(long)]
    check_client_ip: bool,
    /// Allow no client to write
    #[arg(long)]
    read_only: bool,
    /// Append successful puts to this file, one JSON object per line; with an access file only those under TRAPWRITE
    #[arg(long, value_name = "FILE")]
    put_log: Option<PathBuf>,
    /// Save the fields named in info(autosaveFields, "...") in this folder, and restore them at the start
    #[arg(long, value_name = "FOLDER")]
    autosave: Option<PathBuf>,
    /// Serve the objects of the CLUs in this file as PVs, beside records
    #[arg(long = "clu", value_name = "FILE")]
    clu_file: Option<PathBuf>,
    /// UDP port for searches, and TCP port if it is free; 0: any, also of pvAccess. Overrides EPICS_CAS_SERVER_PORT
    #[arg(long, value_name = "N")]
    port: Option<u16>,
    /// TCP port of both protocols: the first byte of a client shows its protocol. For a firewall that lets one port pass
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    one_port: Option<u16>,
    /// Serve on this IPv4 address only; may be repeated. Overrides EPICS_CAS_INTF_ADDR_LIST and EPICS_PVAS_INTF_ADDR_LIST
    #[arg(long, value_name = "ADDRESS")]
    interface: Vec<Ipv4Addr>,
    /// Do not serve pvAccess
    #[arg(long)]
    no_pva: bool,
    /// Serve the status of the server and its clients as PREFIX:CLIENTS etc.; see `fodo top`
    #[arg(long, value_name = "PREFIX")]
    status_prefix: Option<String>,
    /// Serve metrics for Prometheus over HTTP on ADDRESS:PORT, or on a port of 127.0.0.1
    #[arg(long, value_name = "[ADDRESS:]PORT", value_parser = metrics_address)]
    metrics: Option<SocketAddr>,
    /// Send the records to RecCeivers that announce themselves on UDP 5049, or this port (recsync, for ChannelFinder)
    #[arg(long, value_name = "PORT", num_args = 0..=1, require_equals = true, default_missing_value = RECSYNC_PORT)]
    reccaster: Option<u16>,
    /// Disconnect a client that reads nothing, or does not answer a probe, for this time
    #[arg(long, value_name = "SECONDS", default_value = "120", value_parser = seconds)]
    client_silence: Duration,
    /// Serve PREFIX:BaseVersion, and PREFIX:exit, which ends the IOC when processed, with code 1 if its A is not 0
    #[arg(short = 'x', long, value_name = "PREFIX")]
    exit_prefix: Option<String>,
    #[command(flatten)]
    log: LogFlags,
    /// Do not read commands from stdin
    #[arg(short = 'S', long)]
    no_shell: bool,
    /// Show the shell commands that correspond to the arguments
    #[arg(short, long)]
    verbose: bool,
    /// Load records with unknown types or devices (DTYP) as well; they store what is written and do nothing else
    #[arg(long)]
    simulate: bool,
    /// Report and leave out whatever is invalid in the given databases, and serve the rest, as scripts do
    #[arg(long)]
    keep_going: bool,
    /// End a script at the first error, as after `on error break`; nothing invalid is left out
    #[arg(long, conflicts_with = "keep_going")]
    strict: bool,
    /// A .dbd file with site-specific scan rates (menuScan) and breakpoint tables, read before the databases
    #[arg(short = 'D', value_name = "FILE")]
    descriptions: Vec<PathBuf>,
    /// Read commands, which is the default
    #[arg(short = 's', hide = true)]
    shell: bool,
    /// Do not print the lines that report that it serves
    #[arg(short, long)]
    quiet: bool,
}

/// The default port for announcements of RecCeivers.
const RECSYNC_PORT: &str = "5049";

/// The line that EPICS Base writes at the end of iocInit; programs that start an IOC wait for it.
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
  fodo ioc --one-port 5075 plant.db
  fodo ioc --clu house.toml plant.db

When it starts to serve, it prints one line on stdout, for which scripts may wait:
  fodo ioc: serving 102 records on 127.0.0.1:5064 (CA) and 127.0.0.1:5075 (pvAccess)
or, without pvAccess, and if searches use another port than circuits:
  fodo ioc: serving 102 records on 127.0.0.1:40001 (CA, searches on UDP 5064)
Directly before it, `iocRun: All initialization complete` is written to stderr; with --log-format
json as the key what of a log line.
With --read-only, \", read-only\" follows, and then with --metrics their address:
  fodo ioc: serving 102 records on 127.0.0.1:5064 (CA), metrics on http://127.0.0.1:9464/metrics
SIGINT and SIGTERM stop it cleanly, with exit code 0, or 1 if autosave values or put log lines could
not be written.

Databases are served immediately. A script must contain iocInit itself; its lines are echoed, except
those that begin with #-. Use fodo check st.cmd to check a script beforehand.

Then commands are read from stdin, with history and completion at a terminal; help lists them. exit
stops the IOC, with an optional exit code, and so do Ctrl-D and Ctrl-C at a terminal. The end of any
other input does not stop it: with /dev/null as stdin, in the background, or with -S, it serves
until a signal. The exit code is 1 if a script cannot be read or was ended by `on error break`, or
if the input ends before iocInit.

An error in a database named here stops the start, as with softIoc -d. In a script, and with
--keep-going, the valid part is served: an invalid field keeps its default, a record of an unknown
type is left out, a record with an unknown DTYP does nothing and is INVALID, and the rest of a file
after a syntax error is ignored. Every error is reported, and their number is available in
PREFIX:LOAD_ERROR_CNT and in the metrics. With --strict an error ends a script.

With --clu FILE, the objects of Grenton CLUs are PVs with the names PREFIXobject:feature. FILE is
TOML: [clu.NAME] with address, keys or project, om, interfaces and prefix, or with folder for a
virtual CLU in this process. What has no PV is reported on stderr. With --read-only or --access no
client may write to these PVs, and --put-log does not contain their puts.

With --one-port N, clients of Channel Access and pvAccess connect to TCP port N. A client that has
sent nothing for 50 ms is taken for one of pvAccess, so that connecting over pvAccess takes that much
longer. Searches over TCP (EPICS_CA_NAME_SERVERS and EPICS_PVA_NAME_SERVERS of the clients) need no
other port. If the port is in use, nothing is served.

With --simulate, a record with an unknown DTYP behaves like Soft Channel, but its INP and OUT do not
connect. A record of an unknown type has the common fields, VAL, and as strings the fields set in
its file. These records store what is written and do nothing else; SCAN I/O Intr never triggers. At
the start, their number is reported on stderr, one line for each type and DTYP.

Events are logged on stderr: errors of this host, warnings about invalid requests of clients and
about links to other IOCs that do not work; with --log-level info also connecting and disconnecting
clients, with debug also refused channels. The same message about a host is logged once a minute;
the next line reports how many were left out.
JSON keys: time (RFC 3339 in UTC), level, what, peer, pv (both null if there is none), left_out.

Without --access every client may do everything. With it, or with asSetFilename in a script, clients
are notified immediately when rules, their inputs or the ASG of a record change. SIGHUP reloads the
file of --access, and asInit reloads either file; if it contains errors, they are reported and the
previous rules stay in force. Host names are compared ignoring case.

With --autosave FOLDER, the fields that a record names in info(autosaveFields, \"VAL PREC\") are
saved to FOLDER/info_settings.sav within 5 s of a change and when the IOC stops, and are restored at
the next start. Fields in autosaveFields_pass0 (info_positions.sav) are restored only before record
initialisation, those in autosaveFields_pass1 (info_pass1.sav) only after it. A new file replaces
the previous one only when it is on the disk; the previous one is kept as .savB and is used if the
new one is damaged. Scripts can use the commands of synApps autosave; the file formats are the same.

JSON keys of --put-log: time (RFC 3339 in UTC), user and host (as sent by the client), peer (the
address it connects from), pv (record and field), old, new (the value before and after; at most 100
elements of an array), count (of new), left_out: puts missing from the file that no previous line
has counted, because they arrived faster than they could be written, or because the disk was full.
A last line without pv counts the remaining ones. A line that a full disk or a crash has cut off is
removed; its put is counted as missing. If the file cannot be written, this is reported on stderr
and the exit code is 1. FILE may be a device, or a pipe with a reader; processing never waits.";

/// The section of the help on the environment.
pub fn environment() -> String {
    let variables = config::help(|_| true);
    format!(
        "Environment, with defaults in parentheses (fodo config shows values in effect). EPICS_CA_ADDR_LIST\n\
         and related variables configure links to PVs of other IOCs:\n{variables}"
    )
}

/// The databases and scripts in the order given, each with the last macros given before it. Macros after the last file
/// apply to files without macros.
fn files(matches: &ArgMatches) -> Vec<(PathBuf, String)> {
    files_of(matches, &["databases", "files"])
}

/// The same for the files of the given arguments.
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

/// An event that ends the IOC or changes how it continues.
enum IocEvent {
    Signal,
    /// The access file must be reloaded.
    Hangup,
    /// `exit`, or the end of input at a terminal.
    Exit(u8),
    /// No more commands are read, and a running IOC continues.
    Silence,
    /// It does not start; the reason has been reported.
    Failed,
}

/// Runs the command and returns the exit code, which a script may choose.
///
/// `matches`: contains the order of the arguments.
pub fn run(arguments: &Arguments, matches: &ArgMatches, outlet: &mut OutputStreams<'_>) -> io::Result<u8> {
    let files = files(matches);
    // Each client and each server of a link needs a descriptor.
    process::raise_descriptor_limit();
    // Registered first, so that a signal during a long load also stops it cleanly.
    let (sender, ends) = mpsc::channel();
    let by_signal = sender.clone();
    // It fails only if the receiver is gone, that is, when the program is already stopping.
    crate::stop::on_signal(move || by_signal.send(IocEvent::Signal).unwrap_or_default())?;
    if arguments.access.is_some() {
        let by_hangup = sender.clone();
        crate::stop::on_sighup(move || by_hangup.send(IocEvent::Hangup).unwrap_or_default())?;
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
    // Dropped after the IOC, so that the last entries are printed.
    let Some(_clu_logs) = add_other_pvs(&mut shell, arguments, exit_later(sender.clone()), outlet)? else {
        return Ok(Exit::Other.code());
    };
    if let Some(folder) = &arguments.autosave {
        shell.keep_values_in(folder);
    }
    let place = shell.place();
    let has_person = !arguments.no_shell && terminal::is_interactive();
    let restore = has_person.then(terminal::TerminalSettings::later);
    outlet.out.flush()?;

    let work = ShellThread {
        is_verbose: arguments.verbose,
        descriptions: arguments.descriptions.clone(),
        keeps_going: arguments.keep_going,
        access: files_of(matches, &["access"]).pop(),
        has_records: arguments.exit_prefix.is_some() || (arguments.clu_file.is_some() && files.is_empty()),
        input: match (arguments.no_shell, has_person) {
            (true, _) => CommandSource::None,
            (false, true) => CommandSource::Person,
            (false, false) if io::IsTerminal::is_terminal(&io::stdin()) => CommandSource::None,
            (false, false) => CommandSource::Lines,
        },
    };
    std::thread::Builder::new().name("fodo-shell".into()).spawn(move || {
        let end = work.run(&mut shell, &files).unwrap_or_else(|error| {
            // There is no other place to report that stderr failed.
            let _ = writeln!(io::stderr(), "fodo ioc: {error}");
            IocEvent::Failed
        });
        // It fails if a signal has ended the wait first.
        let _ = sender.send(end);
    })?;
    let code = wait_for_the_end(&ends, &place, arguments);
    let running = place.lock().take();
    let saved = running.map_or(Ok(()), RunningIoc::stop).map_err(|error| error.to_string());
    drop(restore);
    let logged = put_log.map_or(Ok(()), PutLog::finish);
    let lost: Vec<String> = [saved, logged].into_iter().filter_map(Result::err).collect();
    lost.iter().try_for_each(|what| writeln!(outlet.err, "fodo ioc: {what}"))?;
    // An exit code chosen by a script is kept, unless it is 0.
    Ok(if lost.is_empty() || code != Exit::Done.code() { code } else { Exit::Other.code() })
}

/// Adds the PVs that are not records of files. Returns what prints the logs of CLUs; `None` if it could not, and then the reason
/// has been reported.
fn add_other_pvs(
    shell: &mut Shell,
    arguments: &Arguments,
    exit: impl Fn(u8) + Send + Sync + 'static,
    outlet: &mut OutputStreams<'_>,
) -> io::Result<Option<CluLogThread>> {
    if let Some(prefix) = &arguments.exit_prefix
        && let Err(errors) = shell.serve_exit(prefix, exit)
    {
        errors.iter().try_for_each(|error| writeln!(outlet.err, "fodo ioc: -x: {}", error.message))?;
        return Ok(None);
    }
    let Some(file) = &arguments.clu_file else { return Ok(Some(CluLogThread::default())) };
    let is_read_only = arguments.read_only || arguments.access.is_some();
    match crate::clu_pvs::sources(file, is_read_only, outlet.err) {
        Ok(opened) => {
            opened.sources.into_iter().for_each(|source| shell.serve_also(source));
            CluLogThread::start(opened.logs, arguments.log.clone()).map(Some)
        }
        Err(error) => writeln!(outlet.err, "fodo ioc: {error}").map(|()| None),
    }
}

/// Waits for the end; returns the exit code.
fn wait_for_the_end(ends: &mpsc::Receiver<IocEvent>, place: &IocSlot, arguments: &Arguments) -> u8 {
    // Whether a reload must be retried.
    let mut again = false;
    loop {
        let end = match again {
            true => ends.recv_timeout(ACCESS_RETRY),
            false => ends.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match end {
            Ok(IocEvent::Silence) => {}
            Ok(IocEvent::Hangup) | Err(RecvTimeoutError::Timeout) => {
                let running = place.lock();
                again = running.as_ref().is_some_and(|running| read_access_again(running, arguments, again));
            }
            // An error means that no event can arrive any more, so it stops as well.
            Ok(IocEvent::Signal) | Err(RecvTimeoutError::Disconnected) => return 0,
            Ok(IocEvent::Exit(code)) => return code,
            Ok(IocEvent::Failed) => return Exit::Other.code(),
        }
    }
}

/// Ends the IOC after a short delay, so that the client that requested it still receives the response.
fn exit_later(sender: mpsc::Sender<IocEvent>) -> impl Fn(u8) + Send + Sync {
    let is_ending = AtomicBool::new(false);
    move |code| {
        if is_ending.swap(true, Ordering::Relaxed) {
            return;
        }
        let (later, now) = (sender.clone(), sender.clone());
        let waiting = std::thread::Builder::new().name("fodo-exit".into()).spawn(move || {
            std::thread::sleep(EXIT_DELAY);
            // It fails only if the program is already stopping.
            let _ = later.send(IocEvent::Exit(code));
        });
        if waiting.is_err() {
            // The same.
            let _ = now.send(IocEvent::Exit(code));
        }
    }
}

/// The configuration in the variables, with what the command line overrides.
fn server_config(arguments: &Arguments, lookup: &Lookup<'_>) -> Result<ServerConfig, ConfigError> {
    let Arguments { port, interface, .. } = arguments;
    let mut config = ServerConfig::from_variables(lookup)?;
    config.port = port.unwrap_or(config.port);
    config.one_port = arguments.one_port;
    config.pva = config.pva.filter(|_| !arguments.no_pva);
    if !interface.is_empty() {
        config.interfaces.clone_from(interface);
    }
    if let Some(pva) = &mut config.pva {
        if *port == Some(0) {
            (pva.port, pva.search_port) = (0, 0);
        }
        if !interface.is_empty() {
            pva.interfaces = interface.iter().map(|&ip| ip.into()).collect();
        }
    }
    config.status_prefix.clone_from(&arguments.status_prefix);
    config.quotas.silence = arguments.client_silence;
    Ok(config)
}

fn shell(arguments: &Arguments, put_log: Option<&PutLog>) -> io::Result<Shell> {
    let (is_read_only, is_quiet) = (arguments.read_only, arguments.quiet);
    let of_server = arguments.clone();
    let configure = move |lookup: &Lookup<'_>| server_config(&of_server, lookup);
    let policy = Policy {
        access_file: None,
        checks_client_address: arguments.check_client_ip,
        is_read_only,
        put_listener: put_log.map(PutLog::callback),
    };
    let log = arguments.log.clone();
    let start = RunConfig {
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

/// Reloads the access file; returns whether to retry later. `is_retry`: the lack of descriptors is already logged.
fn read_access_again(running: &RunningIoc, arguments: &Arguments, is_retry: bool) -> bool {
    match running.reload_access() {
        Ok(warnings) => {
            warnings.iter().for_each(|what| arguments.log.report(Level::Warning, what));
            arguments.log.report(Level::Info, "the access file was reloaded");
            false
        }
        Err(IocError::NoDescriptors(_)) if is_retry => true,
        Err(error) => {
            let lacks_descriptors = matches!(error, IocError::NoDescriptors(_));
            let later = if lacks_descriptors { ", and reading is retried every second" } else { "" };
            let what = format!("cannot reload the access file; the previous rules stay in force{later}: {error}");
            what.lines().for_each(|line| arguments.log.report(Level::Error, line));
            lacks_descriptors
        }
    }
}

fn ready(running: &RunningIoc, is_read_only: bool) -> String {
    ready_line(&ReadyLine {
        n_records: running.n_records(),
        address: running.address(),
        tcp_port: running.tcp_port(),
        udp_port: running.udp_port(),
        pva_tcp_port: running.pva_tcp_port(),
        is_read_only,
        metrics: running.metrics_address(),
    })
}

/// The contents of the ready line.
struct ReadyLine {
    n_records: usize,
    address: Ipv4Addr,
    tcp_port: u16,
    udp_port: u16,
    pva_tcp_port: Option<u16>,
    is_read_only: bool,
    metrics: Option<SocketAddr>,
}

fn ready_line(served: &ReadyLine) -> String {
    let ReadyLine { n_records, address, tcp_port, udp_port, .. } = served;
    let searches = if udp_port == tcp_port { String::new() } else { format!(", searches on UDP {udp_port}") };
    let read_only = if served.is_read_only { ", read-only" } else { "" };
    let metrics = served.metrics.map_or(String::new(), |address| format!(", metrics on http://{address}/metrics"));
    let pva = served.pva_tcp_port.map_or(String::new(), |port| format!(" and {address}:{port} (pvAccess)"));
    format!("fodo ioc: serving {n_records} records on {address}:{tcp_port} (CA{searches}){pva}{read_only}{metrics}\n")
}

/// Parses the address for metrics; a port without an address means loopback.
fn metrics_address(text: &str) -> Result<SocketAddr, String> {
    let port = text.parse().map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    port.or_else(|_| text.parse()).map_err(|_| format!("\"{text}\" is neither a port nor ADDRESS:PORT"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Args as _, Command, FromArgMatches as _};

    const DATABASES: &[&str] = &["databases", "files"];

    fn placed(line: &str, arguments: &[&str]) -> Vec<(String, String)> {
        let command = Arguments::augment_args(Command::new("ioc"));
        let matches = command.try_get_matches_from(line.split(' ')).unwrap();
        files_of(&matches, arguments).into_iter().map(|(file, macros)| (file.display().to_string(), macros)).collect()
    }

    #[test]
    fn macros_apply_to_the_files_after_them() {
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
    fn the_ready_line_is_the_same_as_documented() {
        let udp_5064 = |tcp_port, pva_tcp_port, metrics: Option<&str>| ReadyLine {
            n_records: 102,
            address: Ipv4Addr::LOCALHOST,
            tcp_port,
            udp_port: 5064,
            pva_tcp_port,
            is_read_only: false,
            metrics: metrics.map(|address| address.parse().unwrap()),
        };

        let metrics = Some("127.0.0.1:9464");
        for served in [udp_5064(5064, Some(5075), None), udp_5064(40001, None, None), udp_5064(5064, None, metrics)] {
            assert!(HELP.contains(ready_line(&served).trim_end()));
        }
    }

    #[test]
    fn the_command_line_overrides_the_ports_and_interfaces_of_the_variables() {
        let variables = |name: &str| match name {
            "EPICS_CAS_SERVER_PORT" => Some("6064".to_owned()),
            "EPICS_CAS_INTF_ADDR_LIST" | "EPICS_PVAS_INTF_ADDR_LIST" => Some("127.0.0.3".to_owned()),
            _ => None,
        };
        for (line, port, pva_ports, interface) in [
            ("ioc", 6064, Some((5075, 5076)), [127, 0, 0, 3]),
            ("ioc --port 7064", 7064, Some((5075, 5076)), [127, 0, 0, 3]),
            ("ioc --port 0", 0, Some((0, 0)), [127, 0, 0, 3]),
            ("ioc --no-pva --port 0", 0, None, [127, 0, 0, 3]),
            ("ioc --interface 127.0.0.2", 6064, Some((5075, 5076)), [127, 0, 0, 2]),
            ("ioc --one-port 7075", 6064, Some((5075, 5076)), [127, 0, 0, 3]),
        ] {
            let command = Arguments::augment_args(Command::new("ioc"));
            let matches = command.try_get_matches_from(line.split(' ')).unwrap();
            let arguments = Arguments::from_arg_matches(&matches).unwrap();

            let config = server_config(&arguments, &variables).unwrap();

            assert_eq!((config.port, config.interfaces), (port, vec![Ipv4Addr::from(interface)]), "{line}");
            assert_eq!(config.pva.as_ref().map(|pva| (pva.port, pva.search_port)), pva_ports, "{line}");
            assert!(config.pva.is_none_or(|pva| pva.interfaces == [Ipv4Addr::from(interface).into()]), "{line}");
            assert_eq!(config.one_port, line.ends_with("7075").then_some(7075), "{line}");
            assert_eq!((config.quotas.silence, config.status_prefix), (Duration::from_secs(120), None), "{line}");
        }
    }

    #[test]
    fn metrics_are_served_on_loopback_unless_an_address_is_given() {
        assert_eq!(metrics_address("9464"), Ok("127.0.0.1:9464".parse().unwrap()));
        assert_eq!(metrics_address("0.0.0.0:9464"), Ok("0.0.0.0:9464".parse().unwrap()));
        assert_eq!(metrics_address("[::1]:0"), Ok("[::1]:0".parse().unwrap()));
        assert!(metrics_address("plant:9464").is_err() && metrics_address("70000").is_err());
    }
}
