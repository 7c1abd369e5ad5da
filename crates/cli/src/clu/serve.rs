//! `fodo clu serve`: runs a virtual CLU.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};

use fodo_clu::command::Serial;
use fodo_clu::limit::TFTP_FILE_BYTES_MAX;
use fodo_clu::om_lua::OmLua;
use fodo_clu::server::{CluServerConfig, CluServerCounts, DropReason};
use fodo_net::clu::{CLU_PORT, random_source};
use fodo_net::{Server, ServerConfig};
use fodo_vclu::{
    CluEnd, CluPvConfig, CluPvs, LogSeverity, NumberFormat, ReplyTo, VcluConfig, VcluRequest, VcluServer,
    VcluServerConfig, VcluServerError,
};
use jiff::tz::TimeZone;
use serde_json::{Map, Value as Json};

use super::discover::serial;
use super::interface::{NamedInterface, interface_named};
use super::keys::{create_file, new_clu_keys, read_file, read_project};
use super::outcome::printable_text;
use super::target::DEFAULT_KEYS;
use crate::epics::OutputStreams;
use crate::exit::Exit;
use crate::json;
use crate::limit;
use crate::local_time::Clock;

/// Run a virtual CLU with the scripts of a folder
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The folder with MAIN.LUA, OM.LUA and USER.LUA
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
    /// Its address; default: that of --interface, otherwise 127.0.0.1
    #[arg(long, value_name = "ADDRESS")]
    address: Option<Ipv4Addr>,
    /// UDP port for requests; 0: any
    #[arg(long, value_name = "N", default_value_t = CLU_PORT)]
    port: u16,
    /// Interface whose broadcasts it receives, for discoveries: its name or its address
    #[arg(short, long, value_name = "INTERFACE")]
    interface: Option<String>,
    /// File with the key and the PIN; created if it does not exist
    #[arg(long, value_name = "FILE", default_value = DEFAULT_KEYS)]
    keys: PathBuf,
    /// Serial number: hexadecimal, or CLU and decimal digits; default: that of the CLU in OM.LUA
    #[arg(long, value_name = "SERIAL", value_parser = serial)]
    serial: Option<Serial>,
    /// Answer discoveries and accept new keys
    #[arg(long)]
    commission: bool,
    /// Let clients with the key read and write the scripts by TFTP, on UDP port 69 or this one
    #[arg(long, value_name = "PORT", num_args = 0..=1, require_equals = true, default_missing_value = "69")]
    tftp: Option<u16>,
    /// Folder for the values that Storage objects keep; created if it does not exist
    #[arg(long, value_name = "FOLDER")]
    storage: Option<PathBuf>,
    /// Time zone, such as Europe/Warsaw; default: that of this host
    #[arg(long, value_name = "ZONE")]
    zone: Option<String>,
    /// Address and port of HttpListener objects
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8080")]
    http: SocketAddr,
    /// Folder with ca.crt, certificate.crt and key.pem, for MQTT and HTTP with TLS
    #[arg(long, value_name = "FOLDER")]
    certificates: Option<PathBuf>,
    /// Project of Object Manager (.omp): its objects in the CLUs that RemoteCLU objects call are entities of Home Assistant
    #[arg(long, value_name = "FILE")]
    project: Option<PathBuf>,
    /// Print numbers with two decimals, as devices do: 0.50 instead of 0.5
    #[arg(long)]
    two_decimals: bool,
    /// Serve features, methods and events of the objects as PVs whose names begin with this prefix
    #[arg(long, value_name = "PREFIX")]
    pvs: Option<String>,
    /// Print the lines of start and end as JSON objects on stdout, and log entries as JSON objects on stderr
    #[arg(long)]
    json: bool,
}

/// The end of the help.
pub const HELP: &str = "\
Examples:
  fodo clu serve house
  fodo clu serve --port 0 --storage values house
  fodo clu serve --interface eth0 --commission --tftp house
  fodo clu serve --pvs house: house

When it is ready it prints one line on stdout, for which scripts may wait:
  fodo clu serve: CLU 0d0a1b2c on 127.0.0.1:1234, 12 objects, key in keys.json
\", TFTP on UDP 69\", \", broadcasts on eth0\" and \", PVs house:* on TCP 5064 (CA) and 5075
(pvAccess)\" follow. Entries of its log are printed on stderr:
what scripts write with print and logWarning, and their errors. SIGINT and SIGTERM stop it cleanly,
with code 0 and a last line on stderr that counts requests and errors.

Without --keys the file is keys.json. If it does not exist, it is created with a new key and a new
PIN, readable by its owner only. The key that a client sets (--commission) replaces the one in the
file. No key and no PIN is printed.

Only clients with the key can use the CLU. The encryption of Grenton has a fixed initialisation
vector and no check of integrity: whoever can record datagrams can send them again. Without --tftp
no file can be read or written; with it, a client with the key unlocks TFTP for its address and for
a short time, and then files are transferred without encryption. A port below 1024 requires
privileges; clients of another port use --tftp-port.

With --pvs house: the objects that exist at the start are PVs of Channel Access and pvAccess, such
as house:Living_room:CurrentTemp, and so are variables of the user. The environment variables of
fodo ioc select ports and interfaces.

JSON keys: event (ready, stopped, log); of ready address, serial, objects, keys, tftp (a port or
null), broadcasts (an interface or null), pvs (null, or prefix and the TCP ports ca and pva), state
(alive, emergency); of stopped received, answered, refused, dropped (an object: reason and number),
reports, subscriptions (at the end), subscriptions_expired, keys_set, scripts, scripts_failed,
files_read, files_written; of log time, level (debug, info, warning, error), what.";

/// Runs the command.
pub fn run(arguments: &Arguments, outlet: &mut OutputStreams<'_>) -> io::Result<Exit> {
    let (sender, stop) = mpsc::channel();
    // It fails only if the receiver is gone, that is, when the program is already stopping.
    crate::stop::on_signal(move || sender.send(()).unwrap_or_default())?;
    let prepared = config(arguments, outlet)?.and_then(|(config, interface)| {
        let tftp = config.tftp;
        let server = VcluServer::start(config).map_err(|error| explain(arguments, tftp, &error))?;
        Ok((server, interface))
    });
    let started = prepared.and_then(|(server, interface)| {
        let pvs =
            arguments.pvs.as_ref().map(|prefix| CluPvServer::start(prefix, &arguments.folder, &server)).transpose()?;
        Ok((server, interface, pvs))
    });
    let (server, interface, pvs) = match started {
        Ok(started) => started,
        Err(message) => {
            writeln!(outlet.err, "fodo clu serve: {message}")?;
            return Ok(Exit::Other);
        }
    };
    for problem in pvs.iter().flat_map(|pvs| pvs.problems.iter()) {
        writeln!(outlet.err, "fodo clu serve: {problem}")?;
    }
    let mut log = ServeLog { n_seen: 0, as_json: arguments.json };
    log.print(&server, outlet)?;
    print_ready(arguments, &server, interface.as_ref(), pvs.as_ref(), outlet)?;
    loop {
        let end = stop.recv_timeout(limit::LOG_PERIOD);
        log.print(&server, outlet)?;
        // An error means that no signal can arrive any more, so it stops as well.
        if !matches!(end, Err(RecvTimeoutError::Timeout)) {
            break;
        }
    }
    print_counts(arguments, &server, outlet)?;
    // Before the CLU, whose values the PVs have.
    drop(pvs);
    server.stop();
    Ok(Exit::Done)
}

/// The configuration of the arguments. The inner `Err` says what is wrong.
fn config(
    arguments: &Arguments,
    outlet: &mut OutputStreams<'_>,
) -> io::Result<Result<(VcluServerConfig, Option<NamedInterface>), String>> {
    let path = &arguments.keys;
    if !arguments.folder.is_dir() {
        return Ok(Err(format!("{}: it is not a folder", arguments.folder.display())));
    }
    let interface = match arguments.interface.as_deref().map(interface_named).transpose() {
        Ok(interface) => interface,
        Err(message) => return Ok(Err(message)),
    };
    if !path.exists() {
        if let Err(message) = create_file(path, &new_clu_keys(&mut random_source())) {
            return Ok(Err(message));
        }
        writeln!(
            outlet.err,
            "fodo clu serve: created {} with a new key and a new PIN, readable by its owner only",
            path.display()
        )?;
    }
    Ok(config_with_keys(arguments, interface.as_ref()).map(|config| (config, interface)))
}

fn config_with_keys(arguments: &Arguments, interface: Option<&NamedInterface>) -> Result<VcluServerConfig, String> {
    let keys = read_file(&arguments.keys)?;
    if arguments.commission && keys.pin.is_none() {
        return Err(format!("{}: --commission requires a PIN in this file", arguments.keys.display()));
    }
    let of_interface = interface.map_or(Ipv4Addr::LOCALHOST, |interface| interface.address);
    let address = arguments.address.unwrap_or(of_interface);
    let serial = arguments.serial.or_else(|| serial_of(&arguments.folder)).unwrap_or(Serial(0));

    let mut clu = VcluConfig::new(&arguments.folder);
    clu.storage = arguments.storage.clone();
    clu.http = arguments.http;
    clu.certificates = arguments.certificates.clone();
    if arguments.two_decimals {
        clu.number_format = NumberFormat::TwoDecimals;
    }
    if let Some(path) = &arguments.project {
        clu.peers.set_objects(read_project(path)?.objects);
    }
    clu.zone = match &arguments.zone {
        Some(zone) => zone.clone(),
        None => TimeZone::system().iana_name().unwrap_or("UTC").to_owned(),
    };
    let mut server = CluServerConfig::new(serial, address, keys.project);
    server.pin = keys.pin;
    server.is_commissioning = arguments.commission;
    let mut config = VcluServerConfig::new(clu, server);
    config.listen = SocketAddr::from((address, arguments.port));
    config.broadcast = interface.map(|interface| SocketAddr::from((interface.address, 0)));
    config.tftp = arguments.tftp.map(|port| SocketAddr::from((address, port)));
    config.keys = Some(arguments.keys.clone());
    Ok(config)
}

/// The PVs of the objects, and the server of both protocols.
struct CluPvServer {
    server: Server,
    problems: Vec<String>,
}

impl CluPvServer {
    fn start(prefix: &str, folder: &Path, clu: &VcluServer) -> Result<CluPvServer, String> {
        let config = ServerConfig::from_env().map_err(|error| error.to_string())?;
        let variables = om_lua(folder).map(|om| om.variables).unwrap_or_default();
        let end = CluEnd::Process(Arc::clone(clu.clu()));
        let pvs = CluPvs::start(CluPvConfig { variables, ..CluPvConfig::new(prefix, end) });
        let pvs = pvs.map_err(|error| format!("--pvs {prefix}: {error}"))?;
        let problems = pvs.problems().to_vec();
        // Without the values of a CLU that is busy for longer, the PVs are served as well.
        let _ = pvs.wait_for_values(limit::FIRST_VALUES);
        let server = Server::start(config, pvs).map_err(|error| format!("--pvs {prefix}: {error}"))?;
        Ok(CluPvServer { server, problems })
    }
}

/// The serial number in the name of the CLU in OM.LUA, such as `CLU218766124`.
fn serial_of(folder: &Path) -> Option<Serial> {
    let own = om_lua(folder)?.objects.into_iter().find(|object| object.class == Some(0))?;
    own.id.strip_prefix("CLU")?.parse().ok().map(Serial)
}

/// OM.LUA of the folder, whose name may be in lower case; `None` if it does not exist or is not a text.
fn om_lua(folder: &Path) -> Option<OmLua> {
    let mut paths = fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
    let path = paths.find(|path| path.file_name().is_some_and(|name| name.eq_ignore_ascii_case("OM.LUA")))?;
    let mut text = String::new();
    File::open(path).ok()?.take(TFTP_FILE_BYTES_MAX as u64).read_to_string(&mut text).ok()?;
    Some(OmLua::parse(&text))
}

fn explain(arguments: &Arguments, tftp: Option<SocketAddr>, error: &VcluServerError) -> String {
    let advice = match (error, tftp) {
        (VcluServerError::Sockets(error), Some(tftp)) if error.kind() == io::ErrorKind::PermissionDenied => {
            let port = tftp.port();
            format!(
                "; UDP port {port} for TFTP may require privileges: use --tftp=6969 and, in clients, --tftp-port 6969"
            )
        }
        (VcluServerError::Sockets(error), _) if error.kind() == io::ErrorKind::AddrInUse => {
            format!("; another CLU may use UDP port {}: use --port or --address", arguments.port)
        }
        _ => String::new(),
    };
    format!("{error}{advice}")
}

/// The number of objects, and whether the scripts run.
fn objects_and_state(server: &VcluServer) -> (usize, &'static str) {
    let (sender, receiver) = mpsc::channel();
    let (of_list, of_check) = (sender.clone(), sender);
    let list = ReplyTo::new(move |objects: Option<Vec<_>>| {
        // The receiver waits for both.
        let _ = of_list.send((objects.map_or(0, |objects| objects.len()), ""));
    });
    let check = ReplyTo::new(move |answer: Option<fodo_vclu::ScriptAnswer>| {
        let is_alive = answer.is_some_and(|answer| !answer.is_error && answer.text != "emergency");
        let _ = of_check.send((0, if is_alive { "alive" } else { "emergency" }));
    });
    // A refused request ends like one without a reply.
    let _ = server.clu().submit(VcluRequest::List { reply: list });
    let _ = server.clu().submit(VcluRequest::Execute { script: "checkAlive()".into(), reply: check });
    let n_objects = receiver.recv().map_or(0, |(n_objects, _)| n_objects);
    (n_objects, receiver.recv().map_or("emergency", |(_, state)| state))
}

fn print_ready(
    arguments: &Arguments,
    server: &VcluServer,
    interface: Option<&NamedInterface>,
    pvs: Option<&CluPvServer>,
    outlet: &mut OutputStreams<'_>,
) -> io::Result<()> {
    let (n_objects, state) = objects_and_state(server);
    let serial = arguments.serial.or_else(|| serial_of(&arguments.folder)).unwrap_or(Serial(0));
    let tftp = server.tftp_address().map(|address| address.port());
    let interface = interface.map(|interface| interface.name.as_str());
    if arguments.json {
        let mut object = Map::new();
        object.insert("event".into(), "ready".into());
        object.insert("address".into(), server.address().to_string().into());
        object.insert("serial".into(), serial.to_string().into());
        object.insert("objects".into(), n_objects.into());
        object.insert("keys".into(), arguments.keys.display().to_string().into());
        object.insert("tftp".into(), tftp.into());
        object.insert("broadcasts".into(), interface.into());
        let served = pvs.zip(arguments.pvs.as_deref()).map(|(pvs, prefix)| {
            serde_json::json!({"prefix": prefix, "ca": pvs.server.tcp_port(), "pva": pvs.server.pva_tcp_port()})
        });
        object.insert("pvs".into(), served.into());
        object.insert("state".into(), state.into());
        outlet.out.write_all(json::line(object).as_bytes())?;
    } else {
        let address = server.address();
        let keys = arguments.keys.display();
        write!(outlet.out, "fodo clu serve: CLU {serial} on {address}, {n_objects} objects, key in {keys}")?;
        if let Some(tftp) = tftp {
            write!(outlet.out, ", TFTP on UDP {tftp}")?;
        }
        if let Some(interface) = interface {
            write!(outlet.out, ", broadcasts on {interface}")?;
        }
        if let Some((pvs, prefix)) = pvs.zip(arguments.pvs.as_deref()) {
            write!(outlet.out, ", PVs {prefix}* on TCP {} (CA)", pvs.server.tcp_port())?;
            if let Some(port) = pvs.server.pva_tcp_port() {
                write!(outlet.out, " and {port} (pvAccess)")?;
            }
        }
        writeln!(outlet.out)?;
    }
    outlet.out.flush()?;
    if state == "emergency" {
        let folder = arguments.folder.display();
        writeln!(outlet.err, "fodo clu serve: emergency mode: the scripts in {folder} failed or are missing")?;
    }
    Ok(())
}

/// Prints new entries of the log.
struct ServeLog {
    n_seen: u64,
    as_json: bool,
}

impl ServeLog {
    fn print(&mut self, server: &VcluServer, outlet: &mut OutputStreams<'_>) -> io::Result<()> {
        let new = server.clu().log_after(self.n_seen);
        self.n_seen = new.n_seen;
        if new.n_missed > 0 {
            writeln!(outlet.err, "fodo clu serve: {} entries of the log are left out", new.n_missed)?;
        }
        for entry in new.entries {
            let level = match entry.level {
                LogSeverity::Debug => "debug",
                LogSeverity::Info => "info",
                LogSeverity::Warning => "warning",
                LogSeverity::Error => "error",
            };
            let time = Clock::rfc3339(entry.time);
            if self.as_json {
                let mut object = Map::new();
                object.insert("event".into(), "log".into());
                object.insert("time".into(), time.into());
                object.insert("level".into(), level.into());
                object.insert("what".into(), entry.text.into());
                outlet.err.write_all(json::line(object).as_bytes())?;
            } else {
                writeln!(outlet.err, "{} {level}: {}", time.unwrap_or_default(), printable_text(&entry.text))?;
            }
        }
        Ok(())
    }
}

fn print_counts(arguments: &Arguments, server: &VcluServer, outlet: &mut OutputStreams<'_>) -> io::Result<()> {
    let (counts, scripts, files) = (server.counts(), server.clu().counts(), server.tftp_counts());
    let dropped = dropped(&counts);
    if arguments.json {
        let number = |number: u64| Json::from(number);
        let object = Map::from_iter([
            ("event".to_owned(), "stopped".into()),
            ("received".to_owned(), number(counts.received)),
            ("answered".to_owned(), number(counts.answered)),
            ("refused".to_owned(), number(counts.refused)),
            (
                "dropped".to_owned(),
                Json::Object(dropped.into_iter().map(|(text, n)| (text.into(), n.into())).collect()),
            ),
            ("reports".to_owned(), number(counts.reports)),
            ("subscriptions".to_owned(), server.n_subscriptions().into()),
            ("subscriptions_expired".to_owned(), number(counts.subscriptions_expired)),
            ("keys_set".to_owned(), number(counts.keys_set)),
            ("scripts".to_owned(), number(scripts.requests)),
            ("scripts_failed".to_owned(), number(scripts.scripts_failed)),
            ("files_read".to_owned(), number(files.files_read)),
            ("files_written".to_owned(), number(files.files_written)),
        ]);
        return outlet.out.write_all(json::line(object).as_bytes());
    }
    let reasons: Vec<String> = dropped.iter().map(|(text, n)| format!("{n} {text}")).collect();
    let reasons = if reasons.is_empty() { String::new() } else { format!(" ({})", reasons.join(", ")) };
    writeln!(
        outlet.err,
        "fodo clu serve: stopped: {} datagrams received, {} answered, {} refused, {} dropped{reasons}; {} reports; {} \
         scripts failed; {} files read, {} written",
        counts.received,
        counts.answered,
        counts.refused,
        counts.n_dropped(),
        counts.reports,
        scripts.scripts_failed,
        files.files_read,
        files.files_written
    )
}

/// The reasons for which datagrams were dropped, and how many.
fn dropped(counts: &CluServerCounts) -> Vec<(&'static str, u64)> {
    let all = DropReason::ALL.iter().map(|&reason| (reason.text(), counts.n_dropped_for(reason)));
    all.filter(|(_, n)| *n > 0).collect()
}
