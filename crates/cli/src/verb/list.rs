//! `fodo list`: lists the servers of pvAccess, and the PVs of a server.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use fodo_net::ClientConfig;
use fodo_net::discovery::{self, DiscoveredServer, FoundServers, ServerSearch};
use fodo_net::{Error, ErrorKind, Refusal, Scalar, Structure, Value};
use serde_json::{Map, Value as Json};

use crate::client::seconds;
use crate::epics::OutputStreams;
use crate::epics::pva::client::server_address;
use crate::exit::{Exit, explain_named};
use crate::json;
use crate::show::escape_control;

/// List the servers of pvAccess and their PVs
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Servers whose PVs to list: address, address:port, or the GUID that `fodo list` prints
    #[arg(value_name = "SERVER")]
    servers: Vec<String>,
    /// Print what each server reports about itself instead of its PVs
    #[arg(short, long)]
    info: bool,
    /// List the PVs of all servers that reply
    #[arg(short, long, conflicts_with = "servers")]
    all: bool,
    /// How long servers may take to reply to the search, and each server to a request, in seconds
    #[arg(short = 'w', long, value_name = "SECONDS", default_value = "2", value_parser = seconds)]
    timeout: Duration,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

/// The end of the help.
pub const HELP: &str = "\
Examples:
  fodo list                            servers of pvAccess that reply
  fodo list 10.0.0.1:5075              the PVs of a server
  fodo list --info 10.0.0.1            its version and language
  fodo list --all --json | jq -r .pv   the PVs of all servers

The search goes to the addresses of EPICS_PVA_ADDR_LIST and the broadcast addresses, as do searches
for PVs. A server may have PVs that it does not list, such as fields of records. Servers of Channel
Access do not answer such a search: fodo search --watch shows those that send beacons.

JSON keys, of a server: guid, version, transport, servers (its addresses); of a PV: pv, server;
with --info: server, info (an object); after a failure: server, error (as for get).";

/// Runs the command.
pub fn run(arguments: &Arguments, outlet: &mut OutputStreams<'_>) -> io::Result<Exit> {
    let config = match ClientConfig::from_env() {
        Ok(config) => config,
        Err(error) => {
            writeln!(outlet.err, "fodo: {error}")?;
            return Ok(Exit::Other);
        }
    };
    if arguments.servers.is_empty() {
        let servers = found(&config, arguments.timeout, outlet)?;
        if servers.as_slice().is_empty() {
            writeln!(
                outlet.err,
                "fodo: no server replied within {} s: check EPICS_PVA_ADDR_LIST",
                arguments.timeout.as_secs_f64()
            )?;
            return Ok(Exit::NotFound);
        }
        if !arguments.all && !arguments.info {
            for server in servers.as_slice() {
                outlet.out.write_all(server_line(server, arguments.json).as_bytes())?;
            }
            return Ok(Exit::Done);
        }
        let found = servers.as_slice().iter().filter_map(|server| found_target(&config, server));
        return print_all(&found.collect::<Vec<_>>(), arguments, outlet);
    }
    let mut targets = Vec::new();
    for server in &arguments.servers {
        match target(&config, server, arguments.timeout, outlet)? {
            Ok(target) => targets.push(target),
            Err(reason) => {
                writeln!(outlet.err, "fodo: {reason}")?;
                return Ok(Exit::NotFound);
            }
        }
    }
    print_all(&targets, arguments, outlet)
}

/// The servers that reply within a time.
fn found(config: &ClientConfig, timeout: Duration, outlet: &mut OutputStreams<'_>) -> io::Result<FoundServers> {
    let mut search = ServerSearch::start(config)?;
    let mut servers = FoundServers::default();
    let until = Instant::now() + timeout;
    while let Some(reply) = search.next(until)? {
        servers.add(&reply);
    }
    if let Some(notice) = search.ipv6_failure() {
        writeln!(outlet.err, "fodo: {notice}")?;
    }
    Ok(servers)
}

/// The address of a server, and the configuration for calls to it.
type ListedServer = (SocketAddr, ClientConfig);

fn found_target(config: &ClientConfig, server: &DiscoveredServer) -> Option<ListedServer> {
    server.addresses.first().map(|address| (*address, server.client_config(config)))
}

/// The server given by address or GUID. The inner `Err` says what is wrong.
fn target(
    config: &ClientConfig,
    server: &str,
    timeout: Duration,
    outlet: &mut OutputStreams<'_>,
) -> io::Result<Result<ListedServer, String>> {
    let digits = server.strip_prefix("0x").unwrap_or(server);
    if digits.len() == 24 && digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        let is_it = |known: &&DiscoveredServer| known.guid.to_string().eq_ignore_ascii_case(digits);
        let servers = found(config, timeout, outlet)?;
        let found = servers.as_slice().iter().find(is_it).and_then(|known| found_target(config, known));
        return Ok(found.ok_or_else(|| format!("no server with the GUID {server} replied")));
    }
    Ok(server_address(server).map(|address| (address, config.clone())))
}

fn print_all(targets: &[ListedServer], arguments: &Arguments, outlet: &mut OutputStreams<'_>) -> io::Result<Exit> {
    let mut exit = Exit::Done;
    for (server, config) in targets {
        let server = *server;
        let printed = match arguments.info {
            true => {
                discovery::about(config, server, arguments.timeout).map(|about| info(server, &about, arguments.json))
            }
            false => discovery::names(config, server, arguments.timeout).map(|names| {
                let line = |name: &fodo_net::Text| match arguments.json {
                    true => {
                        let pv = ("pv".to_owned(), name.to_str().into());
                        json::line([pv, ("server".to_owned(), server.to_string().into())].into_iter().collect())
                    }
                    false => format!("{}\n", escape_control(&name.to_str())),
                };
                names.iter().map(line).collect()
            }),
        };
        match printed {
            Ok(text) => outlet.out.write_all(text.as_bytes())?,
            Err(error) => exit = exit.and(fail(server, &error, arguments.json, outlet)?),
        }
    }
    Ok(exit)
}

fn server_line(server: &DiscoveredServer, as_json: bool) -> String {
    let addresses: Vec<String> = server.addresses.iter().map(SocketAddr::to_string).collect();
    if as_json {
        let mut object = Map::new();
        object.insert("guid".into(), server.guid.to_string().into());
        object.insert("version".into(), server.version.into());
        object.insert("transport".into(), server.transport.to_str().into());
        object.insert("servers".into(), addresses.into());
        return json::line(object);
    }
    let transport = escape_control(&server.transport.to_str());
    format!("{}  version {}  {transport}  {}\n", server.guid, server.version, addresses.join(" "))
}

/// What a server reports about itself.
fn info(server: SocketAddr, about: &Structure, as_json: bool) -> String {
    if as_json {
        let mut object = json::Object::default();
        object.insert("server", server.to_string());
        object.insert_structure("info", about);
        return format!("{object}\n");
    }
    let kind = about.kind();
    let parts = kind.members(0).filter_map(|bit| match about.value(bit)? {
        Value::Scalar(Scalar::Text(text)) => Some((kind.nodes()[bit].name.to_string(), text.to_string())),
        Value::Scalar(other) => Some((kind.nodes()[bit].name.to_string(), other.to_text(None).to_string())),
        Value::Array(_) => None,
    });
    let mut text = format!("{server}\n");
    for (name, part) in parts {
        text += &format!("    {:<10}{}\n", escape_control(&name), escape_control(&part));
    }
    text
}

/// Reports the failure of a server.
fn fail(server: SocketAddr, error: &Error, as_json: bool, outlet: &mut OutputStreams<'_>) -> io::Result<Exit> {
    let exit = Exit::of(error);
    let message = match error.kind() {
        ErrorKind::Refused { refusal: Refusal::Connection, .. } => {
            format!("{server}: no program accepts connections; fodo list shows the ports of servers")
        }
        ErrorKind::NoReply { after, .. } => format!("{server}: no reply within {} s", after.as_secs_f64()),
        _ => explain_named(&server.to_string(), error),
    };
    if as_json {
        let failure = json::failure("", exit, &message);
        let of_server = ("server".to_owned(), Json::from(server.to_string()));
        let of_failure = failure.into_iter().filter(|(key, _)| key == "error");
        outlet.out.write_all(json::line(std::iter::once(of_server).chain(of_failure).collect()).as_bytes())?;
    }
    writeln!(outlet.err, "fodo: {message}")?;
    Ok(exit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fodo_net::discovery::Guid;

    #[test]
    fn a_server_has_one_line_as_text_and_as_json() {
        let addresses = vec!["10.0.0.1:5075".parse().unwrap(), "10.1.0.1:5075".parse().unwrap()];
        let server = DiscoveredServer { guid: Guid([0xa0; 12]), version: 2, transport: "tcp".into(), addresses };
        let guid = "A0".repeat(12);

        assert_eq!(server_line(&server, false), format!("{guid}  version 2  tcp  10.0.0.1:5075 10.1.0.1:5075\n"));
        assert_eq!(
            server_line(&server, true),
            format!(
                "{{\"guid\":\"{guid}\",\"version\":2,\"transport\":\"tcp\",\
                 \"servers\":[\"10.0.0.1:5075\",\"10.1.0.1:5075\"]}}\n"
            )
        );
    }
}
