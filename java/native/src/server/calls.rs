//! The calls of `NativeServer.java`, without their way through JNI.

use std::sync::Arc;
use std::time::Duration;

use fodo_net::log::Level;
use fodo_net::{Peer, SharedStructure, Structure};

use super::ioc::{JavaIoc, JavaRecord, WaitingPut};
use super::pv::{FlatValue, HeldValue, OwnedPv, change};
use super::queue::{NextTask, ReceivedValue, ServerTask, ServerTasks};
use super::request::{Ending, HandlerResult, JavaRequest};
use super::{JavaServer, NamedPv, ServerObject, parse};
use crate::codec::{InputReader, ReplyTag, ReplyWriter};
use crate::error::JavaFailure;

type Done = Result<(), JavaFailure>;

const PUT: u8 = 30;
const CALL: u8 = 31;
const OUTPUT: u8 = 32;
const LINE: u8 = 33;

// PVs

pub fn pv_create(flags: i32, length_max: i32, input: &mut InputReader<'_>, out: &mut ReplyWriter) -> Done {
    let value = match input.u8()? {
        0 => HeldValue::Flat(FlatValue::new(parse::reading(input)?, length_max.unsigned_abs())),
        _ => {
            let shared = SharedStructure::new(structure(input)?);
            HeldValue::Structured(shared.clone(), shared.into())
        }
    };
    let pv = OwnedPv { value, accepts_puts: flags & 1 != 0, accepts_calls: flags & 2 != 0 };
    out.handle(ServerObject::Pv(Arc::new(pv)).handle());
    Ok(())
}

/// A structure of which all nodes are marked.
fn structure(input: &mut InputReader<'_>) -> Result<Structure, JavaFailure> {
    let mut whole = input.structure()?;
    whole.mark_only([0].into_iter().collect());
    Ok(whole)
}

pub fn pv_post(pv: &OwnedPv, input: &mut InputReader<'_>, out: &mut ReplyWriter) -> Done {
    match &pv.value {
        HeldValue::Flat(flat) => flat.post(parse::reading(input)?).map_err(invalid)?,
        HeldValue::Structured(..) => {
            return Err(JavaFailure::misuse("", "the PV is a structure: post a structure or its fields"));
        }
    }
    out.reply(ReplyTag::Nothing);
    Ok(())
}

pub fn pv_post_fields(pv: &OwnedPv, input: &mut InputReader<'_>, out: &mut ReplyWriter) -> Done {
    let fields = parse::fields(input)?;
    let HeldValue::Structured(shared, _) = &pv.value else {
        return Err(JavaFailure::misuse("", "the PV is not a structure: post its value"));
    };
    let change = change(shared, fields).map_err(invalid)?;
    shared.post(&change).map_err(|error| invalid(error.to_string()))?;
    out.reply(ReplyTag::Nothing);
    Ok(())
}

pub fn pv_current(pv: &OwnedPv, out: &mut ReplyWriter) {
    match &pv.value {
        HeldValue::Flat(flat) => out.reading(&flat.reading()),
        HeldValue::Structured(shared, _) => out.structure(&shared.value()),
    }
}

fn invalid(reason: String) -> JavaFailure {
    JavaFailure::misuse("", reason)
}

// Servers

pub fn server_start(input: &mut InputReader<'_>, out: &mut ReplyWriter) -> Done {
    let is_isolated = input.u8()? != 0;
    let settings = parse::pairs(input)?.into_iter().collect();
    let n = input.count(20)?;
    let mut named = Vec::with_capacity(n);
    for _ in 0..n {
        let (pv, token, name) = (ServerObject::pv(input.i64()?)?, input.i64()?, input.text()?);
        named.push(NamedPv { name, token, pv });
    }
    let server = JavaServer::start(is_isolated, &settings, named)?;
    out.handle(ServerObject::Server(Arc::new(server)).handle());
    Ok(())
}

pub fn server_add(
    server: &JavaServer,
    pv: Arc<OwnedPv>,
    token: i64,
    input: &mut InputReader<'_>,
    out: &mut ReplyWriter,
) -> Done {
    server.add(NamedPv { name: input.text()?, token, pv })?;
    out.reply(ReplyTag::Nothing);
    Ok(())
}

pub fn server_remove(server: &JavaServer, input: &mut InputReader<'_>, out: &mut ReplyWriter) -> Done {
    server.remove(&input.text()?)?;
    out.reply(ReplyTag::Nothing);
    Ok(())
}

pub fn pairs(out: &mut ReplyWriter, pairs: &[(String, String)]) {
    out.reply(ReplyTag::List);
    out.u32(pairs.len() as u32);
    for (name, text) in pairs {
        out.text(name);
        out.text(text);
    }
}

pub fn counts(out: &mut ReplyWriter, counts: &[u64]) {
    out.reply(ReplyTag::Counts);
    counts.iter().for_each(|count| out.u64(*count));
}

// Requests

pub fn next(queue: &ServerTasks, pause: Duration, out: &mut ReplyWriter) {
    match queue.next(pause) {
        NextTask::Nothing => out.reply(ReplyTag::Nothing),
        NextTask::Closed => out.reply(ReplyTag::Closed),
        NextTask::Task(ServerTask::Put(put)) => {
            out.u8(PUT);
            out.i64(put.entry.token);
            let mut value = ReplyWriter::new();
            match &put.value {
                ReceivedValue::Flat(flat) => {
                    value.reply(ReplyTag::Reading);
                    value.value(flat);
                }
                ReceivedValue::Structure(structure) => value.structure(structure),
            }
            let (name, by) = (put.entry.name.clone(), put.by.clone());
            out.i64(ServerObject::Request(JavaRequest::new(Ending::Put(put))).handle());
            client(out, &name, &by);
            out.append(&value);
        }
        NextTask::Task(ServerTask::Call(entry, call)) => {
            out.u8(CALL);
            out.i64(entry.token);
            let (argument, by) = (call.argument.clone(), call.by.clone());
            out.i64(ServerObject::Request(JavaRequest::new(Ending::Call(call))).handle());
            client(out, &entry.name, &by);
            out.structure(&argument);
        }
        NextTask::Task(ServerTask::Output(token, output)) => {
            out.u8(OUTPUT);
            out.i64(token);
            let values = output.values().map(|(value, previous)| (value.clone(), previous.cloned()));
            out.i64(ServerObject::Request(JavaRequest::new(Ending::Output(output))).handle());
            let (value, previous) = values.map_or((None, None), |(value, previous)| (Some(value), previous));
            out.u8(u8::from(previous.is_some()));
            for value in value.into_iter().chain(previous) {
                out.value(&value);
            }
        }
        NextTask::Task(ServerTask::Line(level, text)) => {
            out.u8(LINE);
            out.u8(match level {
                Level::Error => 0,
                Level::Warning => 1,
                _ => 2,
            });
            out.text(&text);
        }
    }
}

fn client(out: &mut ReplyWriter, name: &str, by: &Peer) {
    out.text(name);
    out.text(&by.user);
    out.text(&by.host);
    out.text(&by.address.to_string());
}

pub fn request_end(request: &JavaRequest, how: i32, input: &mut InputReader<'_>, out: &mut ReplyWriter) -> Done {
    let end = match how {
        0 => HandlerResult::Complete,
        1 => HandlerResult::Quietly,
        2 => HandlerResult::Refuse(input.text()?),
        3 => HandlerResult::Restore,
        _ => HandlerResult::Result(structure(input)?),
    };
    let has_ended = request.end(end)?;
    out.reply(ReplyTag::Nothing);
    out.u8(u8::from(has_ended));
    Ok(())
}

// IOCs

pub fn ioc_start(input: &mut InputReader<'_>, out: &mut ReplyWriter) -> Done {
    let ioc = JavaIoc::start(parse::ioc_spec(input)?)?;
    out.handle(ServerObject::Ioc(Arc::new(ioc)).handle());
    Ok(())
}

pub fn ioc_record(ioc: &JavaIoc, input: &mut InputReader<'_>, out: &mut ReplyWriter) -> Done {
    let record = ioc.record(&input.text()?)?;
    out.handle(ServerObject::Record(Arc::new(record)).handle());
    Ok(())
}

pub fn ioc_set_many(ioc: &JavaIoc, input: &mut InputReader<'_>, out: &mut ReplyWriter) -> Done {
    let n = input.count(9)?;
    let mut records = Vec::with_capacity(n);
    let mut values = Vec::with_capacity(n);
    for _ in 0..n {
        records.push(ServerObject::record(input.i64()?)?);
        values.push(input.value()?);
    }
    let handles = records.iter().map(|record| &record.handle);
    let failures = ioc.set_many(handles.zip(values).collect())?;
    out.reply(ReplyTag::List);
    out.u32(failures.len() as u32);
    for (position, failure) in failures {
        out.u32(position as u32);
        out.failure(&failure);
    }
    Ok(())
}

pub fn ioc_counts(ioc: &JavaIoc, out: &mut ReplyWriter) {
    use std::sync::atomic::Ordering::Relaxed;

    let (program, queue) = (&ioc.counts, ioc.queue.counts());
    let server = ioc.observer.as_ref().map(fodo_net::Observer::counts).unwrap_or_default();
    let program = [&program.set, &program.not_set, &program.completed, &program.refused, &program.restored];
    let mut all: Vec<u64> = program.iter().map(|count| count.load(Relaxed)).collect();
    all.extend([queue.waiting, queue.lines_dropped]);
    all.extend([server.posted, server.updates.sent, server.updates.merged, server.dropped]);
    counts(out, &all);
}

pub fn ioc_reload_access(ioc: &JavaIoc, out: &mut ReplyWriter) -> Done {
    let warnings = ioc.reload_access()?;
    out.reply(ReplyTag::List);
    out.u32(warnings.len() as u32);
    warnings.iter().for_each(|warning| out.text(warning));
    Ok(())
}

pub fn ioc_close(ioc: &JavaIoc, out: &mut ReplyWriter) {
    out.reply(ReplyTag::Nothing);
    out.u32(ioc.close() as u32);
}

// Records

pub fn record_set(record: &JavaRecord, input: &mut InputReader<'_>, out: &mut ReplyWriter) -> Done {
    record.set(parse::program_value(input)?)?;
    out.reply(ReplyTag::Nothing);
    Ok(())
}

pub fn record_put(record: &JavaRecord, input: &mut InputReader<'_>, out: &mut ReplyWriter) -> Done {
    let waits = input.u8()? != 0;
    let value = input.value()?;
    if !waits {
        record.put(value)?;
        out.reply(ReplyTag::Nothing);
        return Ok(());
    }
    out.reply(ReplyTag::Pending);
    out.i64(ServerObject::WaitingPut(Arc::new(record.put_and_wait(value)?)).handle());
    Ok(())
}

pub fn put_await(put: &WaitingPut, pause: Duration, out: &mut ReplyWriter) -> Done {
    match put.wait(pause) {
        Some(result) => {
            result?;
            out.reply(ReplyTag::Nothing);
        }
        None => {
            out.reply(ReplyTag::Pending);
            out.i64(0);
        }
    }
    Ok(())
}
