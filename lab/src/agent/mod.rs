//! An agent: a worker on another host, behind one TCP port, for one laboratory at a time, with a shared key.
//!
//! The agent sends a greeting. The laboratory sends the key, the name of a driver, and its limits. Once accepted, the
//! connection becomes the driver's standard input and output. The key is sent unencrypted: use the port on trusted
//! networks only.

use std::io::{BufReader, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};

use crate::limit::GREETING_MAX;
use crate::plant::link::{WorkerConnection, start_worker};
use crate::plant::worker::bounded_line;
use crate::plant::{RunLimits, search_addresses};

/// Version of the agent protocol.
const PROTOCOL: &str = "fodo-lab-agent/1";
/// The only driver so far that supports plants.
const DRIVER: &str = "fodo";
/// Variable with the key, when no key file is given.
pub const KEY_VARIABLE: &str = "FODO_LAB_KEY";

/// Arguments of `fodo lab agent`.
#[derive(Debug, clap::Args)]
pub struct AgentVerb {
    /// Address to listen at; port 0 selects a free port, which is printed.
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    #[command(flatten)]
    caps: RunLimits,
    /// File with the key; default: FODO_LAB_KEY, or a random key, which is printed.
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum AgentMessage {
    Agent { protocol: String, version: String },
    Open { key: String, driver: String, caps: RunLimits },
    Accepted {},
    Refused { why: String },
}

/// The key from the file or the environment, if there is one.
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

/// Serves until the process ends.
pub fn serve(verb: &AgentVerb) -> ExitCode {
    if !verb.listen.ip().is_loopback() && !verb.caps.allow_net {
        eprintln!(
            "fodo lab agent: {} is not loopback: use --allow-net to accept connections from other hosts",
            verb.listen
        );
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
    let configured = key(verb.key_file.as_deref())?;
    let listener = TcpListener::bind(verb.listen).map_err(|why| format!("{}: {why}", verb.listen))?;
    let address = listener.local_addr().map_err(|why| why.to_string())?;
    let key = match configured {
        Some(key) => key,
        None => {
            let key = random_key().map_err(|why| format!("cannot create a random key: {why}"))?;
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
            refuse(&stream, "the agent is busy with another laboratory");
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

/// Serves one laboratory until its connection ends.
fn attend(stream: &TcpStream, key: &str, caps: RunLimits) -> Result<(), String> {
    let text = |why: std::io::Error| why.to_string();
    // The timeout applies to each read; together with the limit of a line it bounds a slow peer.
    stream.set_read_timeout(Some(GREETING_MAX)).map_err(text)?;
    send(stream, &AgentMessage::Agent { protocol: PROTOCOL.into(), version: env!("CARGO_PKG_VERSION").into() })?;
    let AgentMessage::Open { key: offered_key, driver, caps: requested } = receive(stream)? else {
        return Err("expected a key and a driver".into());
    };
    if !is_equal(offered_key.as_bytes(), key.as_bytes()) {
        return Err("the key is wrong".into());
    }
    if driver != DRIVER {
        return Err(format!("unknown driver {driver:?}: this agent supports only {DRIVER:?}"));
    }
    let caps = requested.within(caps);
    let search = search_addresses(caps)?;
    stream.set_read_timeout(None).map_err(text)?;
    send(stream, &AgentMessage::Accepted {})?;
    let mut child = start_worker(stream.try_clone().map_err(text)?.into(), &search, caps).map_err(text)?;
    // The worker exits at the end of the connection.
    child.wait().map_err(text)?;
    let _ = stream.shutdown(Shutdown::Both); // The other end may have done so.
    Ok(())
}

/// Connects to a worker through the agent at `agent`.
pub fn connect(agent: &str, key: &str, caps: RunLimits) -> Result<WorkerConnection, String> {
    let here = |why: String| format!("the agent at {agent}: {why}");
    let text = |why: std::io::Error| format!("the agent at {agent}: {why}");
    let addresses: Vec<SocketAddr> = agent.to_socket_addrs().map_err(text)?.collect();
    let address = addresses.first().ok_or_else(|| here("unknown host".into()))?;
    if !caps.allow_net && !address.ip().is_loopback() {
        return Err(here("the address is not loopback: use --allow-net to permit it; nothing was sent".into()));
    }
    let stream = TcpStream::connect_timeout(address, GREETING_MAX).map_err(text)?;
    stream.set_nodelay(true).map_err(text)?;
    stream.set_read_timeout(Some(GREETING_MAX)).map_err(text)?;
    match receive(&stream).map_err(here)? {
        AgentMessage::Agent { protocol, version } if protocol == PROTOCOL && version == env!("CARGO_PKG_VERSION") => {}
        AgentMessage::Agent { protocol, version } => {
            let ours = env!("CARGO_PKG_VERSION");
            return Err(here(format!(
                "version mismatch: agent {version} ({protocol}), laboratory {ours} ({PROTOCOL})"
            )));
        }
        AgentMessage::Refused { why } => return Err(here(why)),
        _ => return Err(here("the peer is not an agent: unexpected greeting".into())),
    }
    send(&stream, &AgentMessage::Open { key: key.into(), driver: DRIVER.into(), caps }).map_err(here)?;
    match receive(&stream).map_err(here)? {
        AgentMessage::Accepted {} => {}
        AgentMessage::Refused { why } => return Err(here(why)),
        _ => return Err(here("unexpected answer instead of accepted or refused".into())),
    }
    stream.set_read_timeout(None).map_err(text)?;
    WorkerConnection::there(agent, stream).map_err(text)
}

fn refuse(stream: &TcpStream, why: &str) {
    // A peer that has disconnected needs no reason.
    let _ = send(stream, &AgentMessage::Refused { why: why.into() });
}

fn send(mut stream: &TcpStream, message: &AgentMessage) -> Result<(), String> {
    let line = serde_json::to_string(message).map_err(|why| why.to_string())? + "\n";
    stream.write_all(line.as_bytes()).map_err(|why| why.to_string())
}

fn receive(stream: &TcpStream) -> Result<AgentMessage, String> {
    // Reads one byte at a time: the bytes that follow belong to the driver.
    let line = bounded_line(&mut BufReader::with_capacity(1, stream)).map_err(|why| why.to_string())?;
    serde_json::from_str(&line.ok_or("the connection was closed")?).map_err(|why| why.to_string())
}

/// Compares in a time that depends on the lengths only.
fn is_equal(shown: &[u8], key: &[u8]) -> bool {
    shown.len() == key.len() && shown.iter().zip(key).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

fn random_key() -> std::io::Result<String> {
    use std::io::Read;
    let mut bytes = [0; 16];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
