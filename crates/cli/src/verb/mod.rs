//! One file per command, with its flags, help and implementation.

pub mod check;
pub mod completion;
pub mod config;
pub mod expand;
pub mod get;
pub mod info;
pub mod ioc;
#[cfg(feature = "lab")]
pub mod lab;
pub mod monitor;
pub mod put;
pub mod repeater;
pub mod search;
pub mod top;
pub mod why;

use std::io;

use fodo_net::{Channel, Context, Error};

use crate::epics::OutputStreams;
use crate::exit::{Exit, explain};
use crate::{json, notices};

/// Creates a context; on failure reports the error and returns the exit code.
fn context(outlet: &mut OutputStreams<'_>) -> io::Result<Result<Context, Exit>> {
    match Context::from_env() {
        Ok(context) => {
            notices::print(&context, notices::own)?;
            Ok(Ok(context))
        }
        Err(error) => {
            writeln!(outlet.err, "fodo: {error}")?;
            Ok(Err(Exit::Other))
        }
    }
}

/// Reports the failure of a PV on stderr and, with JSON output, on stdout.
fn fail(pv: &str, error: &Error, with_json: bool, outlet: &mut OutputStreams<'_>) -> io::Result<Exit> {
    if with_json {
        outlet.out.write_all(json::line(json::failure(pv, error)).as_bytes())?;
    }
    writeln!(outlet.err, "fodo: {}", explain(error))?;
    Ok(Exit::of(error))
}

/// The channel of a PV and the operation started on it.
type Started<T> = Result<(Channel, T), Error>;

/// Creates a channel for every PV and starts an operation on it, without waiting.
fn start_all<T>(context: &Context, pvs: &[String], start: impl Fn(&Channel) -> T) -> Vec<Started<T>> {
    let start_one = |pv: &String| {
        let channel = context.channel(pv)?;
        let started = start(&channel);
        Ok((channel, started))
    };
    pvs.iter().map(start_one).collect()
}
