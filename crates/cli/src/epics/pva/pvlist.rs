//! `pvlist`: lists the servers of pvAccess, and the PVs of a server.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use fodo_net::discovery::{self, DiscoveredServer, FoundServers, ServerSearch};
use fodo_net::{ClientConfig, Error, ErrorKind, Refusal};

use super::client::{config, message, server_address};
use super::options::PvOptions;
use super::pvdata::{self, OutputMode, PrintOptions};
use super::pvget::all;
use crate::epics::{OutputStreams, getopt};
use crate::local_time::Clock;

pub(super) const FLAGS: &str = "hVw:qdF:f:i";

/// How long servers may take to reply: pvlist ends after three periods of a quarter of a second without a reply.
const SEARCH_TIME: Duration = Duration::from_millis(750);

/// The text of `-h`; the flags are those of pvlist.
pub(super) const HELP: &str = "
pvlist [flags]:           list the servers of pvAccess that reply, as pvlist of EPICS Base
pvlist [flags] SERVER...: list the PVs of servers, given by address or by GUID (0x..)

  -h          this help                -V          version
  -i          print what a server reports about itself instead of its PVs
  -w SECONDS  timeout of each server (3)
  -q -d, -F CHAR: accepted without effect
  -f FILE     refused, as by the original

Environment: EPICS_PVA_ADDR_LIST and related variables (see fodo get --help)
Exit codes: 0 listed, 1 timeout, refused by the server, or invalid flags

Example: pvlist 10.0.0.1:5075
";

/// Runs the tool; returns its exit code.
pub fn run(arguments: &[String], clock: &Clock, outlet: &mut OutputStreams<'_>) -> io::Result<u8> {
    let (flags, servers) = getopt::parse(arguments, FLAGS, false);
    let mut options = PvOptions::new("pvlist", 3);
    let mut with_info = false;
    for flag in &flags {
        match options.take(flag, HELP, outlet)? {
            Ok(Some(('i', _))) => with_info = true,
            Ok(_) => {}
            Err(code) => return Ok(code),
        }
    }
    let config = match config() {
        Ok(config) => config,
        Err(reason) => {
            writeln!(outlet.err, "Error: {reason}")?;
            return Ok(1);
        }
    };
    if servers.is_empty() {
        for server in found(&config, outlet)?.as_slice() {
            writeln!(outlet.out, "{}", line(server))?;
        }
        return Ok(0);
    }
    for server in &servers {
        let (address, config) = match target(server, &config, outlet)? {
            Ok(target) => target,
            Err(reason) => {
                writeln!(outlet.err, "{reason}")?;
                return Ok(1);
            }
        };
        let printed = if with_info {
            discovery::about(&config, address, options.timeout).map(|about| {
                let shown = all();
                let print = PrintOptions { mode: OutputMode::Raw, shown: &shown, highlighted: None, clock };
                format!("{}\n", pvdata::text(&about, &print))
            })
        } else {
            let lines = |names: Vec<fodo_net::Text>| names.iter().map(|name| format!("{name}\n")).collect();
            discovery::names(&config, address, options.timeout).map(lines)
        };
        match printed {
            Ok(text) => outlet.out.write_all(text.as_bytes())?,
            Err(error) => {
                writeln!(outlet.err, "Error: {}", reason(&error))?;
                return Ok(1);
            }
        }
    }
    Ok(0)
}

/// The words of pvlist for a server that cannot be reached.
fn reason(error: &Error) -> String {
    match error.kind() {
        ErrorKind::NoReply { .. } | ErrorKind::Refused { refusal: Refusal::Connection, .. } => {
            "connection timeout".to_owned()
        }
        _ => message(error),
    }
}

/// The servers that reply.
fn found(config: &ClientConfig, outlet: &mut OutputStreams<'_>) -> io::Result<FoundServers> {
    let mut search = ServerSearch::start(config)?;
    let mut servers = FoundServers::default();
    let mut until = Instant::now() + SEARCH_TIME;
    while let Some(reply) = search.next(until)? {
        if servers.add(&reply) {
            until = Instant::now() + SEARCH_TIME;
        }
    }
    if let Some(notice) = search.ipv6_failure() {
        writeln!(outlet.err, "{notice}")?;
    }
    Ok(servers)
}

fn line(server: &DiscoveredServer) -> String {
    let addresses: Vec<String> = server.addresses.iter().map(SocketAddr::to_string).collect();
    format!("GUID 0x{} version {}: {}@[ {} ]", server.guid, server.version, server.transport, addresses.join(" "))
}

/// The address of a server given by address or by GUID, and the configuration for calls to it. The inner `Err` is a message.
fn target(
    server: &str,
    config: &ClientConfig,
    outlet: &mut OutputStreams<'_>,
) -> io::Result<Result<(SocketAddr, ClientConfig), String>> {
    if server.len() == 26 && server.starts_with("0x") {
        let is_it = |known: &&DiscoveredServer| known.guid.to_string().eq_ignore_ascii_case(&server[2..]);
        let servers = found(config, outlet)?;
        let found = servers.as_slice().iter().find(is_it);
        let target = found.and_then(|known| Some((*known.addresses.first()?, known.client_config(config))));
        return Ok(target.ok_or_else(|| format!("Failed to resolve GUID '{server}'!")));
    }
    let target = server_address(server).map(|address| (address, config.clone()));
    Ok(target.map_err(|reason| format!("Error: {reason}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fodo_net::discovery::Guid;

    #[test]
    fn a_server_has_one_line_with_all_of_its_addresses() {
        let addresses = vec!["10.0.0.1:5075".parse().unwrap(), "10.1.0.1:5075".parse().unwrap()];
        let server = DiscoveredServer { guid: Guid([0xa0; 12]), version: 2, transport: "tcp".into(), addresses };

        let guid = "A0".repeat(12);
        assert_eq!(line(&server), format!("GUID 0x{guid} version 2: tcp@[ 10.0.0.1:5075 10.1.0.1:5075 ]"));
    }
}
