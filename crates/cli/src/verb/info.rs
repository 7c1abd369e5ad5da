//! `fodo info`: shows the server, type and access rights of PVs.

use std::io;

use fodo_net::{ChannelFacts, Detail, Request};

use super::{context, fail, start_all};
use crate::client::{ClientFlags, Deadline, kind_name};
use crate::epics::OutputStreams;
use crate::exit::Exit;
use crate::json;

/// Show the server, type and access rights of PVs
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Names, such as `x:motor` or `x:motor.RBV`
    #[arg(required = true, value_name = "PV")]
    pvs: Vec<String>,
    #[command(flatten)]
    client: ClientFlags,
}

/// The end of the help.
pub const HELP: &str = "\
Examples:
  fodo info x:motor
  fodo info --json x:motor x:wave

JSON keys: pv, server, kind, count_max, read, write, record_type (null if the server does not
report it); error as for get.";

const RECORD_TYPE: Request = Request { kind: None, detail: Detail::ClassName, count: 1 };

/// Runs the command.
pub fn run(arguments: &Arguments, outlet: &mut OutputStreams<'_>) -> io::Result<Exit> {
    let deadline = Deadline::after(arguments.client.timeout);
    let context = match context(outlet)? {
        Ok(context) => context,
        Err(exit) => return Ok(exit),
    };
    let started =
        start_all(&context, &arguments.pvs, |channel| (channel.start_connect(), channel.start_get(RECORD_TYPE)));
    let mut exit = Exit::Done;
    for (pv, started) in arguments.pvs.iter().zip(started) {
        let known = started.and_then(|(channel, (connecting, class))| Ok((channel, deadline.wait(connecting)?, class)));
        // Dropping the channel closes it, so it is kept until the last response.
        let (_channel, facts, class) = match known {
            Ok(known) => known,
            Err(error) => {
                exit = exit.and(fail(pv, &error, arguments.client.json, outlet)?);
                continue;
            }
        };
        // A server without record types refuses this request; that is not an error.
        let class = deadline.wait(class).ok().and_then(|reading| reading.value.first());
        let class = class.map(|name| name.to_text(None).to_str().into_owned()).filter(|name| !name.is_empty());
        let text = match arguments.client.json {
            true => json::line(json::facts(pv, &facts, class.as_deref())),
            false => block(pv, &facts, class.as_deref()),
        };
        outlet.out.write_all(text.as_bytes())?;
    }
    Ok(exit)
}

fn block(pv: &str, facts: &ChannelFacts, record_type: Option<&str>) -> String {
    let elements = match facts.count_max {
        1 => String::new(),
        n => format!(", up to {n} elements"),
    };
    let rights = match (facts.may_read, facts.may_write) {
        (true, true) => "read, write",
        (true, false) => "read only",
        (false, true) => "write only",
        (false, false) => "none",
    };
    format!(
        "{pv}\n    server    {}\n    type      {}{elements}\n    access    {rights}\n    record    {}\n",
        facts.server,
        kind_name(facts.kind),
        record_type.unwrap_or("unknown")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use fodo_net::Kind;
    use std::net::SocketAddr;

    #[test]
    fn an_info_block_shows_server_type_and_access_rights() {
        let server = SocketAddr::from(([127, 0, 0, 1], 5064));
        let facts = ChannelFacts { server, kind: Kind::F64, count_max: 5, may_read: true, may_write: false };

        assert_eq!(
            block("x:w", &facts, Some("waveform")),
            "x:w\n    server    127.0.0.1:5064\n    type      double, up to 5 elements\n    access    read only\n    \
             record    waveform\n"
        );
    }
}
