//! A worker on another host: one TCP port, one laboratory at a time, drivers known by name, a shared key.
//!
//! The agent greets, the laboratory shows the key, names a driver and its caps; when that is accepted the
//! connection becomes the driver's standard input and output. The key is sent as it is: the port is for
//! trusted networks.

use std::io::{BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};

use crate::limit::GREETING_MAX;
use crate::plant::link::{Link, start_worker};
use crate::plant::worker::bounded_line;
use crate::plant::{Caps, search_addresses};

/// Changes with what is said on the connection.
const PROTOCOL: &str = "fodo-lab-agent/1";
/// The only driver so far that may ask a plant.
const DRIVER: &str = "fodo";
/// Where the key is when no file is named.
pub const KEY_VARIABLE: &str = "FODO_LAB_KEY";

/// The words after `fodo lab agent`.
#[derive(Debug, clap::Args)]
pub struct AgentVerb {
    /// Where to listen; port 0 takes a free one, which is printed.
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    #[command(flatten)]
    caps: Caps,
    /// A file with the key; without it, that of FODO_LAB_KEY, or a random one, which is printed.
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Said {
    Agent { protocol: String, version: String },
    Open { key: String, driver: String, caps: Caps },
    Accepted {},
    Refused { why: String },
}

/// The key of the file or of the environment, if there is one.
pub fn key(file: Option<&Path>) -> Result<Option<String>, String> {
    let text = match file {
        Some(path) => Some(std::fs::read_to_string(path).map_err(|why| format!("{}: {why}", path.display()))?),
        None => std::env::var(KEY_VARIABLE).ok(),
    };
    match text.map(|text| text.trim().to_owned()) {
        Some(key) if key.is_empty() => Err("the key is empty".into()),
        key => Ok(key),
    }
}

/// Serves until it is ended.
pub fn serve(verb: &AgentVerb) -> ExitCode {
    if !verb.listen.ip().is_loopback() && !verb.caps.allow_net {
        eprintln!("fodo lab agent: {} is not loopback: give --allow-net if others are to connect", verb.listen);
        return ExitCode::from(2);
    }
    match listen(verb) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("fodo lab agent: {why}");
            ExitCode::FAILURE
        }
    }
}

fn listen(verb: &AgentVerb) -> Result<(), String> {
    let given = key(verb.key_file.as_deref())?;
    let listener = TcpListener::bind(verb.listen).map_err(|why| format!("{}: {why}", verb.listen))?;
    let address = listener.local_addr().map_err(|why| why.to_string())?;
    let key = match given {
        Some(key) => key,
        None => {
            let key = random_key().map_err(|why| format!("no random key: {why}"))?;
            println!("fodo lab agent: key {key}");
            key
        }
    };
    println!("fodo lab agent: listening on {address}");
    std::io::stdout().flush().map_err(|why| why.to_string())?;
    let is_busy = Arc::new(AtomicBool::new(false));
    for stream in listener.incoming() {
        let Ok(stream) = stream else { continue };
        if is_busy.swap(true, Ordering::AcqRel) {
            refuse(&stream, "this agent works for somebody else");
            continue;
        }
        let (key, caps, is_busy) = (key.clone(), verb.caps, is_busy.clone());
        std::thread::spawn(move || {
            if let Err(why) = attend(&stream, &key, caps) {
                refuse(&stream, &why);
            }
            is_busy.store(false, Ordering::Release);
        });
    }
    Ok(())
}

/// One laboratory, until its connection ends.
fn attend(stream: &TcpStream, key: &str, caps: Caps) -> Result<(), String> {
    let text = |why: std::io::Error| why.to_string();
    // The deadline is of each read, so whoever dribbles is held to few bytes by it and by the line's bound.
    stream.set_read_timeout(Some(GREETING_MAX)).map_err(text)?;
    say(stream, &Said::Agent { protocol: PROTOCOL.into(), version: env!("CARGO_PKG_VERSION").into() })?;
    let Said::Open { key: shown, driver, caps: wanted } = hear(stream)? else {
        return Err("expected a key and a driver".into());
    };
    if !is_equal(shown.as_bytes(), key.as_bytes()) {
        return Err("the key is wrong".into());
    }
    if driver != DRIVER {
        return Err(format!("there is no driver {driver:?} here, only {DRIVER:?}"));
    }
    let caps = wanted.within(caps);
    let search = search_addresses(caps)?;
    stream.set_read_timeout(None).map_err(text)?;
    say(stream, &Said::Accepted {})?;
    let mut child = start_worker(stream.try_clone().map_err(text)?.into(), &search, caps).map_err(text)?;
    // It ends when it has read the end of the connection.
    child.wait().map_err(text)?;
    let _ = stream.shutdown(Shutdown::Both); // The other end may have done so.
    Ok(())
}

/// A worker behind the agent at `agent`.
pub fn connect(agent: &str, key: &str, caps: Caps) -> Result<Link, String> {
    let here = |why: String| format!("the agent at {agent}: {why}");
    let text = |why: std::io::Error| format!("the agent at {agent}: {why}");
    let addresses: Vec<SocketAddr> = agent.to_socket_addrs().map_err(text)?.collect();
    let address = addresses.first().ok_or_else(|| here("no such host".into()))?;
    if !caps.allow_net && !address.ip().is_loopback() {
        return Err(here("is not on this host: give --allow-net if it may be asked; nothing was sent".into()));
    }
    let stream = TcpStream::connect_timeout(address, GREETING_MAX).map_err(text)?;
    stream.set_nodelay(true).map_err(text)?;
    stream.set_read_timeout(Some(GREETING_MAX)).map_err(text)?;
    match hear(&stream).map_err(here)? {
        Said::Agent { protocol, version } if protocol == PROTOCOL && version == env!("CARGO_PKG_VERSION") => {}
        Said::Agent { protocol, version } => {
            let ours = env!("CARGO_PKG_VERSION");
            return Err(here(format!("is fodo {version} ({protocol}), this is {ours} ({PROTOCOL}): take the same")));
        }
        Said::Refused { why } => return Err(here(why)),
        _ => return Err(here("is none: it does not greet as one".into())),
    }
    say(&stream, &Said::Open { key: key.into(), driver: DRIVER.into(), caps }).map_err(here)?;
    match hear(&stream).map_err(here)? {
        Said::Accepted {} => {}
        Said::Refused { why } => return Err(here(why)),
        _ => return Err(here("neither accepted nor refused".into())),
    }
    stream.set_read_timeout(None).map_err(text)?;
    Link::there(agent, stream).map_err(text)
}

fn refuse(stream: &TcpStream, why: &str) {
    // Whoever has gone need not be told.
    let _ = say(stream, &Said::Refused { why: why.into() });
}

fn say(mut stream: &TcpStream, said: &Said) -> Result<(), String> {
    let line = serde_json::to_string(said).map_err(|why| why.to_string())? + "\n";
    stream.write_all(line.as_bytes()).map_err(|why| why.to_string())
}

fn hear(stream: &TcpStream) -> Result<Said, String> {
    // One byte at a time: what follows is for the driver.
    let line = bounded_line(&mut BufReader::with_capacity(1, stream)).map_err(|why| why.to_string())?;
    serde_json::from_str(&line.ok_or("the connection was closed")?).map_err(|why| why.to_string())
}

/// In a time that depends on the lengths alone.
fn is_equal(shown: &[u8], key: &[u8]) -> bool {
    shown.len() == key.len() && shown.iter().zip(key).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

fn random_key() -> std::io::Result<String> {
    use std::io::Read;
    let mut bytes = [0; 16];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
