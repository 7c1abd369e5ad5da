//! `fodo clu discover`: finds the CLUs of a network, and gives one the key of a project.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use fodo_clu::cipher::{CipherKey, Pin};
use fodo_clu::client::{Answer, CluRequest, DiscoveredClu, KeyMatch, RequestOutcome};
use fodo_clu::command::Serial;
use fodo_clu::omp::ProjectClu;
use fodo_net::clu::{CLU_PORT, CluConnection, CluConnectionConfig, CluDiscoveryConfig, discover_clus, random_source};
use serde_json::Map;

use super::interface::{NamedInterface, interface_named};
use super::keys::{new_clu_keys, read_file, read_project};
use crate::client::seconds;
use crate::epics::OutputStreams;
use crate::exit::Exit;
use crate::json;
use crate::show::escape_control;

/// Find the CLUs of a network, and give a CLU the key of a project
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Interface for the broadcasts: its name or its address
    #[arg(short, long, value_name = "INTERFACE")]
    interface: String,
    /// Project of Object Manager (.omp) with the key and the PINs
    #[arg(long, value_name = "FILE", conflicts_with = "keys")]
    project: Option<PathBuf>,
    /// File with the key, and the PIN of a virtual CLU
    #[arg(long, value_name = "FILE")]
    keys: Option<PathBuf>,
    /// PIN of a CLU, or of all CLUs; may be repeated
    // Parsed later, because an error of clap would print it.
    #[arg(long, value_name = "[SERIAL=]PIN")]
    pin: Vec<String>,
    /// Give this CLU the key of --project or --keys
    #[arg(long, value_name = "SERIAL", value_parser = serial)]
    set_key: Option<Serial>,
    /// UDP port of the CLUs
    #[arg(long, value_name = "N", default_value_t = CLU_PORT)]
    port: u16,
    /// How long CLUs may take to answer, in seconds
    #[arg(short = 'w', long, value_name = "SECONDS", default_value = "3", value_parser = seconds)]
    timeout: Duration,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

/// The end of the help.
pub const HELP: &str = "\
Examples:
  fodo clu discover -i eth0                           all CLUs of the network
  fodo clu discover -i eth0 --project house.omp       and whether they have the key of the project
  fodo clu discover -i eth0 --keys keys.json --pin 0d0a1b2c=12345678 --set-key 0d0a1b2c

Broadcasts are sent on the named interface only. SERIAL is the serial number as printed, or CLU and
its decimal digits, as in Object Manager. Only with the PIN of a CLU can this command find out which
key the CLU has:
  project    that of --project or --keys
  other      another one, as a new CLU has
  wrong PIN  the answer does not match the PIN
  unknown    the PIN is not known
PINs are read from the project, from --keys, and from --pin, which other users of this host can see
in the list of processes. No PIN and no key is ever printed.

--set-key replaces the key of a CLU; then no client with the previous key can use it. The key is sent
only to a CLU whose answer matches its PIN, because any host can answer a discovery. A virtual CLU
answers discoveries and accepts keys only with --commission.

JSON keys: serial, mac, address, name (in the project, or null), key (project, other, wrong_pin,
unknown), and with --set-key for that CLU outcome (key_set, or as for exec) and error.";

/// Parses a serial number: 8 hexadecimal digits, or `CLU` and decimal digits.
pub fn serial(text: &str) -> Result<Serial, String> {
    let decimal = text.strip_prefix("CLU").map(|digits| digits.parse().ok().map(Serial));
    decimal
        .unwrap_or_else(|| Serial::parse(text))
        .ok_or_else(|| format!("\"{text}\" must be a serial number: hexadecimal digits, or CLU and decimal digits"))
}

/// What is known before the discovery.
struct KnownKeys {
    /// `None`: no key was named.
    project: Option<CipherKey>,
    clus: Vec<ProjectClu>,
    pins: Vec<(Option<Serial>, Pin)>,
}

impl KnownKeys {
    fn read(arguments: &Arguments) -> Result<KnownKeys, String> {
        let mut known = KnownKeys { project: None, clus: Vec::new(), pins: Vec::new() };
        for text in &arguments.pin {
            known.pins.push(pin(text)?);
        }
        if let Some(path) = &arguments.project {
            let project = read_project(path)?;
            (known.project, known.clus) = (Some(project.key), project.clus);
        }
        if let Some(path) = &arguments.keys {
            let keys = read_file(path)?;
            known.project = Some(keys.project);
            known.pins.extend(keys.pin.map(|pin| (None, pin)));
        }
        match (&known.project, arguments.set_key) {
            (None, Some(_)) => Err("--set-key requires --project or --keys: the file with the key".to_owned()),
            _ => Ok(known),
        }
    }

    /// The PIN of a CLU: one for its serial number, otherwise one for all.
    fn pin(&self, serial: Serial) -> Option<&Pin> {
        let of_project = self.clus.iter().find(|clu| clu.serial == Some(serial)).and_then(|clu| clu.pin.as_ref());
        let given = |of: Option<Serial>| self.pins.iter().find(|(known, _)| *known == of).map(|(_, pin)| pin);
        given(Some(serial)).or(of_project).or_else(|| given(None))
    }

    fn name(&self, serial: Serial) -> Option<&str> {
        let clu = self.clus.iter().find(|clu| clu.serial == Some(serial))?;
        Some(clu.name.as_deref().unwrap_or(&clu.object))
    }
}

/// Parses `[SERIAL=]PIN`. The error contains no PIN.
fn pin(text: &str) -> Result<(Option<Serial>, Pin), String> {
    let invalid = || "--pin: a PIN must have 8 visible characters of ASCII".to_owned();
    if let Some(pin) = Pin::new(text) {
        return Ok((None, pin));
    }
    let (number, pin) = text.split_once('=').ok_or_else(invalid)?;
    Ok((Some(serial(number).map_err(|error| format!("--pin: {error}"))?), Pin::new(pin).ok_or_else(invalid)?))
}

/// Runs the command.
pub fn run(arguments: &Arguments, outlet: &mut OutputStreams<'_>) -> io::Result<Exit> {
    let prepared = KnownKeys::read(arguments).and_then(|known| Ok((known, interface_named(&arguments.interface)?)));
    let (known, interface) = match prepared {
        Ok(prepared) => prepared,
        Err(message) => {
            writeln!(outlet.err, "fodo clu discover: {message}")?;
            return Ok(Exit::Other);
        }
    };
    let mut search = match discover_clus(config(arguments, &known, &interface)) {
        Ok(search) => search,
        Err(error) => {
            writeln!(outlet.err, "fodo clu discover: interface {}: {error}", interface.name)?;
            return Ok(Exit::Other);
        }
    };
    let (mut n_found, mut set) = (0_usize, None);
    while let Some(clu) = search.next() {
        n_found += 1;
        let key = known.pin(clu.serial).map(|pin| search.key_match(&clu, pin));
        let is_to_set = arguments.set_key == Some(clu.serial);
        let result = is_to_set.then(|| set_key(arguments, &known, &clu, key));
        print(arguments, &known, &clu, key, result.as_ref(), outlet)?;
        set = set.or(result);
    }
    let n_left_out = search.counts().left_out;
    if n_left_out > 0 {
        writeln!(outlet.err, "fodo clu discover: {n_left_out} replies of further CLUs are left out")?;
    }
    if n_found == 0 {
        writeln!(
            outlet.err,
            "fodo clu discover: no CLU answered on {} ({}) within {} s",
            interface.name,
            interface.address,
            arguments.timeout.as_secs_f64()
        )?;
        return Ok(Exit::NotFound);
    }
    match (arguments.set_key, set) {
        (Some(serial), None) => {
            writeln!(outlet.err, "fodo clu discover: {serial} did not answer; no key was set")?;
            Ok(Exit::NotFound)
        }
        (_, Some(Err((exit, message)))) => {
            writeln!(outlet.err, "fodo clu discover: {message}")?;
            Ok(exit)
        }
        _ => Ok(Exit::Done),
    }
}

fn config(arguments: &Arguments, known: &KnownKeys, interface: &NamedInterface) -> CluDiscoveryConfig {
    // Without a key, a random one: every CLU answers, and has another key.
    let project_key = known.project.clone().unwrap_or_else(|| new_clu_keys(&mut random_source()).project);
    let targets = interface.broadcast.into_iter().chain([Ipv4Addr::BROADCAST]);
    CluDiscoveryConfig {
        targets: targets.map(|address| SocketAddr::from((address, arguments.port))).collect(),
        timeout: arguments.timeout,
        ..CluDiscoveryConfig::new(interface.address, project_key)
    }
}

/// Gives a CLU the key of the project, but only if its reply proves that it knows its PIN: any host can answer a discovery
/// with any serial number, and the PIN of 8 characters alone protects the key in the request.
fn set_key(
    arguments: &Arguments,
    known: &KnownKeys,
    clu: &DiscoveredClu,
    key_match: Option<KeyMatch>,
) -> Result<(), (Exit, String)> {
    let (serial, address) = (clu.serial, request_address(arguments, clu));
    let Some((pin, key)) = known.pin(serial).zip(known.project.as_ref()) else {
        return Err((Exit::BadValue, format!("{serial}: its PIN is not known; give it with --pin")));
    };
    match key_match {
        Some(KeyMatch::Project | KeyMatch::Other) => {}
        Some(KeyMatch::WrongPin) | None => {
            let reason =
                "the reply does not match the PIN: the PIN is wrong, or another host answered; no key was sent";
            return Err((Exit::Refused, format!("{serial} ({address}): {reason}")));
        }
    }
    let mut config = CluConnectionConfig::new(address, clu.temporary_key(pin));
    config.timeout = arguments.timeout;
    config.checks_availability = false;
    let connection = CluConnection::open(config).map_err(|error| (Exit::Other, format!("{address}: {error}")))?;
    match connection.request(CluRequest::SetKey(key)) {
        Ok(RequestOutcome::Answered(Answer::Accepted)) => Ok(()),
        Ok(RequestOutcome::Refused) => Err((Exit::Refused, format!("{serial} ({address}) refused the key"))),
        Ok(RequestOutcome::TimedOut { .. }) => Err((
            Exit::NoReply,
            format!(
                "{serial} ({address}) did not confirm the key within {} s: its PIN may be wrong, or it may have the \
                 key now; discover again",
                arguments.timeout.as_secs_f64()
            ),
        )),
        Ok(_) => Err((Exit::NoReply, format!("{serial} ({address}) sent an invalid reply"))),
        Err(error) => Err((Exit::Other, format!("{serial} ({address}): {error}"))),
    }
}

/// Where a CLU receives requests; it may answer discoveries from another port.
fn request_address(arguments: &Arguments, clu: &DiscoveredClu) -> SocketAddr {
    SocketAddr::from((clu.address.ip(), arguments.port))
}

fn print(
    arguments: &Arguments,
    known: &KnownKeys,
    clu: &DiscoveredClu,
    key: Option<KeyMatch>,
    set: Option<&Result<(), (Exit, String)>>,
    outlet: &mut OutputStreams<'_>,
) -> io::Result<()> {
    let name = known.name(clu.serial);
    let (word, text) = match (key, &known.project) {
        (Some(KeyMatch::Project), Some(_)) => ("project", "key: project"),
        (Some(KeyMatch::WrongPin), _) => ("wrong_pin", "key: wrong PIN"),
        (Some(_), Some(_)) => ("other", "key: other"),
        (None, _) | (_, None) => ("unknown", "key: unknown"),
    };
    if arguments.json {
        let mut object = Map::new();
        object.insert("serial".into(), clu.serial.to_string().into());
        object.insert("mac".into(), clu.mac.to_string().into());
        object.insert("address".into(), request_address(arguments, clu).to_string().into());
        object.insert("name".into(), name.into());
        object.insert("key".into(), word.into());
        match set {
            Some(Ok(())) => drop(object.insert("outcome".into(), "key_set".into())),
            Some(Err((exit, message))) => {
                object.insert("outcome".into(), "error".into());
                let error = serde_json::json!({"code": exit.code(), "class": exit.class(), "message": message});
                object.insert("error".into(), error);
            }
            None => {}
        }
        outlet.out.write_all(json::line(object).as_bytes())?;
    } else {
        let set = if matches!(set, Some(Ok(()))) { "; now that of the project" } else { "" };
        let name = name.map(|name| format!("  {}", escape_control(name))).unwrap_or_default();
        let address = request_address(arguments, clu).to_string();
        writeln!(outlet.out, "{}  {}  {address:<21}  {text}{set}{name}", clu.serial, clu.mac)?;
    }
    outlet.out.flush()
}
