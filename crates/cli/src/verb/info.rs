//! `fodo info`: shows the server, type and access rights of PVs.

use std::io;

use fodo_net::{ChannelFacts, Detail, Protocol, Request, StructureType};

use super::{context_with_clus, fail, is_flat, start_all};
use crate::client::{ClientFlags, CluFileFlag, Deadline, ProtocolFlag, kind_name};
use crate::epics::OutputStreams;
use crate::epics::pva::type_text;
use crate::exit::{Exit, protocol_name};
use crate::json;

/// Show the server, type and access rights of PVs
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Names, such as `x:motor`, `x:motor.RBV` or `pva://x:motor`
    #[arg(required = true, value_name = "PV")]
    pvs: Vec<String>,
    #[command(flatten)]
    protocol: ProtocolFlag,
    #[command(flatten)]
    client: ClientFlags,
    #[command(flatten)]
    clu: CluFileFlag,
}

/// The end of the help.
pub const HELP: &str = "\
Examples:
  fodo info x:motor
  fodo info --json x:motor x:wave
  fodo info pva://x:motor

A server of pvAccess reports neither access rights nor the type of the record, and of an array not
the maximum number of elements.

Of a PV of pvAccess that is neither a scalar nor an array nor an enum it prints all fields of the
type.

JSON keys: pv, protocol (ca or pva), server, tls (the name in the server's certificate; only with
TLS), kind, count_max, read, write, record_type (the last four are null if the server does not
report them); of a structure also id and type (its fields as text); error as for get.";

const RECORD_TYPE: Request = Request { kind: None, detail: Detail::ClassName, count: 1 };

/// Runs the command.
pub fn run(arguments: &Arguments, outlet: &mut OutputStreams<'_>) -> io::Result<Exit> {
    let deadline = Deadline::after(arguments.client.timeout);
    let (pvs, timeout) = (&arguments.pvs, arguments.client.timeout);
    let client = match context_with_clus(arguments.protocol, pvs, &arguments.clu, timeout, outlet)? {
        Ok(client) => client,
        Err(exit) => return Ok(exit),
    };
    let started = start_all(&client, &arguments.pvs, |channel, protocol| {
        // Only Channel Access has a request for the type of a record.
        let getting_type = (protocol == Protocol::Ca).then(|| channel.start_get(RECORD_TYPE));
        let describing = (protocol == Protocol::Pva).then(|| channel.start_describe(""));
        (channel.start_connect(), getting_type, describing)
    });
    let mut exit = Exit::Done;
    for (pv, started) in arguments.pvs.iter().zip(started) {
        let protocol = client.protocol(pv);
        let known = started.and_then(|(channel, (connecting, class, describing))| {
            Ok((channel, deadline.wait(connecting)?, class, describing))
        });
        // Dropping the channel closes it, so it is kept until the last response.
        let (_channel, facts, class, describing) = match known {
            Ok(known) => known,
            Err(error) => {
                exit = exit.and(fail(pv, &error, arguments.client.json, outlet)?);
                continue;
            }
        };
        // The server of this process is not what the user wants to know.
        let facts = ChannelFacts { server: client.clu_address(pv).unwrap_or(facts.server), ..facts };
        let kind = describing.and_then(|describing| deadline.wait(describing).ok()).filter(|kind| !is_flat(kind));
        // A server without record types refuses this request; that is not an error.
        let class = class.and_then(|class| deadline.wait(class).ok()).and_then(|reading| reading.value.first());
        let class = class.map(|name| name.to_text(None).to_str().into_owned()).filter(|name| !name.is_empty());
        let text = match (arguments.client.json, &kind) {
            (true, None) => json::line(json::facts(pv, protocol, &facts, class.as_deref())),
            (true, Some(kind)) => {
                let mut object = json::facts(pv, protocol, &facts, None);
                object.insert("kind".into(), "structure".into());
                object.insert("id".into(), kind.id().to_str().into());
                object.insert("type".into(), type_text::type_text(kind, 0).into());
                json::line(object)
            }
            (false, None) => block(pv, protocol, &facts, class.as_deref()),
            (false, Some(kind)) => structured_block(pv, &facts, kind),
        };
        outlet.out.write_all(text.as_bytes())?;
    }
    Ok(exit)
}

/// The block of a PV with any other type, which is printed with all of its fields.
fn structured_block(pv: &str, facts: &ChannelFacts, kind: &StructureType) -> String {
    let (protocol, server) = (protocol_name(Protocol::Pva), facts.server);
    let tls = encryption(facts);
    format!("{pv}\n    protocol  {protocol}\n    server    {server}\n{tls}    type\n{}", type_text::type_text(kind, 2))
}

/// The line about encryption; empty without it.
fn encryption(facts: &ChannelFacts) -> String {
    facts.tls.as_ref().map(|peer| format!("    tls       {peer}\n")).unwrap_or_default()
}

fn block(pv: &str, protocol: Protocol, facts: &ChannelFacts, record_type: Option<&str>) -> String {
    let elements = match facts.count_max {
        0 => ", any number of elements".to_owned(),
        1 => String::new(),
        n => format!(", up to {n} elements"),
    };
    let rights = match (facts.may_read, facts.may_write) {
        (true, true) => "read, write",
        (true, false) => "read only",
        (false, true) => "write only",
        (false, false) => "none",
    };
    let known = format!(
        "{pv}\n    protocol  {}\n    server    {}\n{}    type      {}{elements}\n",
        protocol_name(protocol),
        facts.server,
        encryption(facts),
        kind_name(facts.kind),
    );
    match protocol {
        Protocol::Pva => known,
        _ => format!("{known}    access    {rights}\n    record    {}\n", record_type.unwrap_or("unknown")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fodo_net::Kind;
    use std::net::SocketAddr;
    use std::sync::Arc;

    #[test]
    fn an_info_block_shows_server_type_and_access_rights() {
        let server = SocketAddr::from(([127, 0, 0, 1], 5064));
        let facts = ChannelFacts { server, kind: Kind::F64, count_max: 5, may_read: true, may_write: false, tls: None };

        assert_eq!(
            block("x:w", Protocol::Ca, &facts, Some("waveform")),
            "x:w\n    protocol  Channel Access\n    server    127.0.0.1:5064\n    type      double, up to 5 elements\n    access    read only\n    \
             record    waveform\n"
        );
    }

    #[test]
    fn an_info_block_of_a_structure_shows_its_fields() {
        let server = SocketAddr::from(([127, 0, 0, 1], 5075));
        let facts = ChannelFacts { server, kind: Kind::Text, count_max: 0, may_read: true, may_write: true, tls: None };
        let mut build = fodo_net::StructureBuilder::new("scan_t");
        build.array("points", Kind::F64);
        let kind = Arc::new(build.finish());

        assert_eq!(
            structured_block("pva://x:s", &facts, &kind),
            "pva://x:s\n    protocol  pvAccess\n    server    127.0.0.1:5075\n    type\n        scan_t\n            \
             double[] points\n"
        );
        assert!(!is_flat(&kind) && is_flat(&Arc::new(fodo_data::normative_type(Kind::F64, false))));
    }

    #[test]
    fn an_info_block_of_pvaccess_shows_what_its_servers_report() {
        let server = SocketAddr::from(([127, 0, 0, 1], 5075));
        let facts = ChannelFacts { server, kind: Kind::U16, count_max: 0, may_read: true, may_write: true, tls: None };

        assert_eq!(
            block("pva://x:w", Protocol::Pva, &facts, None),
            "pva://x:w\n    protocol  pvAccess\n    server    127.0.0.1:5075\n    type      uint16, any number of \
             elements\n"
        );
    }
}
