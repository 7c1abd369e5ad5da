//! One file per command, with its flags, help and implementation.

pub mod call;
pub mod check;
pub mod completion;
pub mod config;
pub mod expand;
pub mod get;
pub mod info;
pub mod ioc;
#[cfg(feature = "lab")]
pub mod lab;
pub mod list;
pub mod monitor;
pub mod put;
mod put_fields;
pub mod repeater;
pub mod search;
pub mod top;
pub mod why;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use fodo_data::{NormativeLayout, NormativeType};
use fodo_net::{BitSet, Channel, Error, ErrorKind, Protocol, PvRequest, Reading, Structure, StructureType};

use crate::client::{ClientContext, CluFileFlag, Deadline, ProtocolFlag};
use crate::clu_pvs::CluNames;
use crate::epics::OutputStreams;
use crate::exit::{Exit, explain_named};
use crate::{json, notices, structure};

/// Creates a context; on failure reports the error and returns the exit code.
fn context(flag: ProtocolFlag, outlet: &mut OutputStreams<'_>) -> io::Result<Result<ClientContext, Exit>> {
    match ClientContext::from_env(flag) {
        Ok(client) => {
            notices::print(&client.context, notices::own)?;
            Ok(Ok(client))
        }
        Err(error) => {
            writeln!(outlet.err, "fodo: {error}")?;
            Ok(Err(Exit::Other))
        }
    }
}

/// The same as [`context`], with the CLUs of names such as `clu://house/Bath/Value`.
fn context_with_clus(
    flag: ProtocolFlag,
    pvs: &[String],
    clu: &CluFileFlag,
    timeout: Duration,
    outlet: &mut OutputStreams<'_>,
) -> io::Result<Result<ClientContext, Exit>> {
    let mut client = match context(flag, outlet)? {
        Ok(client) => client,
        Err(exit) => return Ok(Err(exit)),
    };
    match CluNames::open(pvs, clu.clu_file.as_deref(), timeout, outlet.err) {
        Ok(clus) => client.clus = clus,
        Err((exit, reason)) => {
            writeln!(outlet.err, "fodo: {reason}")?;
            return Ok(Err(exit));
        }
    }
    Ok(Ok(client))
}

/// Reports the failure of a PV, with the name as the user typed it, on stderr and, with JSON output, on stdout.
fn fail(pv: &str, error: &Error, with_json: bool, outlet: &mut OutputStreams<'_>) -> io::Result<Exit> {
    let (exit, message) = (Exit::of(error), explain_named(pv, error));
    if with_json {
        outlet.out.write_all(json::line(json::failure(pv, exit, &message)).as_bytes())?;
    }
    writeln!(outlet.err, "fodo: {message}")?;
    Ok(exit)
}

/// What a get reads.
#[derive(Clone, Debug)]
pub enum Readout {
    /// A scalar, an array or an enum.
    Reading(Reading),
    /// Any other type of pvAccess.
    Structure(Box<Structure>),
}

/// Reads the whole structure of a PV of pvAccess whose type is not that of a scalar, an array or an enum.
///
/// `failure`: why it cannot be read as one; returned if it cannot be read as a structure either.
fn structure_instead(
    channel: &Channel,
    protocol: Protocol,
    failure: Error,
    deadline: &Deadline,
) -> Result<Readout, Error> {
    if protocol != Protocol::Pva || !matches!(failure.kind(), ErrorKind::WrongReply { .. } | ErrorKind::Misuse { .. }) {
        return Err(failure);
    }
    let read = deadline.wait(channel.start_get_structure(PvRequest::default()));
    read.map(|structure| Readout::Structure(Box::new(structure))).map_err(|_| failure)
}

/// What was read with a pvRequest: a reading if the pvRequest selects no fields and the type permits it, otherwise the
/// received nodes.
fn requested(whole: &Structure, received: &BitSet, request: &PvRequest) -> Readout {
    let selects_fields = request.groups.iter().any(|group| !group.members.is_empty());
    let is_reading = !selects_fields && is_flat(whole.kind());
    match NormativeLayout::of(whole.kind().clone()).filter(|_| is_reading) {
        Some(layout) => {
            let meta = Some(Arc::new(layout.meta(whole)));
            Readout::Reading(Reading { meta, ..layout.reading(whole) })
        }
        None => Readout::Structure(Box::new(structure::part(whole, received))),
    }
}

/// What was read with all fields: a reading with its metadata if the type permits it.
fn received(whole: Structure) -> Readout {
    let layout = NormativeLayout::of(whole.kind().clone()).filter(|_| is_flat(whole.kind()));
    match layout {
        Some(layout) => Readout::Reading(layout.received(&whole)),
        None => Readout::Structure(Box::new(whole)),
    }
}

/// Whether a value is a scalar, an array or an enum: a reading holds all of it. The arrays of other normative types, such
/// as the values of an NTNameValue, mean nothing without the other fields.
fn is_flat(kind: &Arc<StructureType>) -> bool {
    let of = NormativeType::from_id(&kind.id().to_str());
    !of.is_some_and(NormativeType::holds_more_than_a_reading) && NormativeLayout::of(kind.clone()).is_some()
}

/// The channel of a PV and the operation started on it.
type Started<T> = Result<(Channel, T), Error>;

/// Creates a channel for every PV and starts an operation on it, without waiting.
fn start_all<T>(client: &ClientContext, pvs: &[String], start: impl Fn(&Channel, Protocol) -> T) -> Vec<Started<T>> {
    let start_one = |pv: &String| {
        let channel = client.channel(pv)?;
        let started = start(&channel, client.protocol(pv));
        Ok((channel, started))
    };
    pvs.iter().map(start_one).collect()
}
