//! `fodo clu watch`: prints changes of features and variables as they are reported.

use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant, SystemTime};

use fodo_net::clu::{Availability, CluUpdate};
use fodo_net::{Scalar, TimeStamp};
use serde_json::{Map, Value as Json};

use super::item::{NamedItem, items};
use super::outcome::CluFailure;
use super::target::{CluFlags, CluTarget, ConnectedClu};
use crate::client::seconds;
use crate::epics::OutputStreams;
use crate::exit::Exit;
use crate::json;
use crate::limit;
use crate::local_time::Clock;
use crate::show::escape_control;

/// Print changes of features and variables
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The CLU: an address, or a name
    #[arg(value_name = "CLU")]
    clu: String,
    /// Objects, features and variables
    #[arg(required = true, value_name = "ITEM")]
    items: Vec<String>,
    /// End after N values of all items together
    #[arg(long, value_name = "N")]
    events: Option<u64>,
    /// End after this time
    #[arg(long = "for", value_name = "SECONDS", value_parser = seconds)]
    duration: Option<Duration>,
    /// Print each reported value, also if it did not change
    #[arg(long)]
    all: bool,
    /// Print numbers that have a name as numbers
    #[arg(short = 'n', long)]
    numeric: bool,
    #[command(flatten)]
    flags: CluFlags,
}

/// The end of the help.
pub const HELP: &str = "\
Examples:
  fodo clu watch 10.0.0.2 THE0001/14 THE0001/13
  fodo clu watch --clu house.toml house THE0001 PRE0001/PresenceDetected
  fodo clu watch --json --for 60 --clu house.toml house THE0001 > thermostat.ndjson

The CLU reports values about once a second; a change between two reports is not seen. The time is
that of the report's arrival, because reports contain none. It ends on a signal (Ctrl-C), or after
--events or --for, and then unregisters. A CLU that does not answer within --timeout is reported on
stderr and still watched; if it never answers, the code is 4. If the output is not read fast
enough, newer values replace older ones; a line with --- reports how many.

JSON keys: clu, event (update, missing, available, emergency, unavailable, merged); of an update
object, feature, index (or variable), value, label, units, time (RFC 3339 in UTC); of missing, an
item that the CLU does not report, object, feature, index (or variable); of merged n, the number of
reports that newer ones replaced.";

/// What the connection reports.
enum CluWatchEvent {
    Update(CluUpdate),
    Availability(Availability),
    Stop,
}

/// Runs the command.
pub fn run(arguments: &Arguments, outlet: &mut OutputStreams<'_>) -> io::Result<Exit> {
    let failed = |failure: CluFailure, outlet: &mut OutputStreams<'_>| {
        let object = Map::from_iter([("clu".to_owned(), arguments.clu.as_str().into())]);
        failure.report(arguments.flags.json.then_some(object), "watch", outlet)
    };
    let opened = arguments.flags.target(&arguments.clu).and_then(|target| {
        let items = items(&target, &arguments.items)?;
        let connection = target.connect(arguments.flags.timeout, true)?;
        Ok((items, ConnectedClu { target, connection, timeout: arguments.flags.timeout }))
    });
    let (items, clu) = match opened {
        Ok(opened) => opened,
        Err(failure) => return failed(failure, outlet),
    };
    // The listener waits while the channel is full; then the connection replaces older values by newer ones and counts it.
    let (sender, receiver) = sync_channel(limit::HAPPENINGS);
    crate::stop::on_signal({
        let sender = sender.clone();
        // It fails only if the program is already stopping.
        move || sender.send(CluWatchEvent::Stop).unwrap_or_default()
    })?;
    listen_to_availability(&clu, sender.clone());
    let requested = items.iter().map(|item| item.item.clone()).collect();
    let subscribed = clu.connection.subscribe(requested, move |update| {
        drop(sender.send(CluWatchEvent::Update(update)));
    });
    let monitor = match subscribed {
        Ok(monitor) => monitor,
        Err(error) => return failed(CluFailure::not_sent(&clu.target, "the subscription", error), outlet),
    };
    let mut watched = WatchedItems::new(&items, &clu.target, arguments);
    let end = watched.print_all(&clu, receiver, outlet);
    drop(monitor);
    clu.connection.close();
    end
}

/// Passes on changes, and what was known before the listener.
fn listen_to_availability(clu: &ConnectedClu, sender: SyncSender<CluWatchEvent>) {
    clu.connection.on_availability(move |availability| {
        drop(sender.send(CluWatchEvent::Availability(availability)));
    });
}

/// The items, and what was printed of them.
struct WatchedItems<'a> {
    items: &'a [NamedItem],
    target: &'a CluTarget,
    arguments: &'a Arguments,
    width: usize,
    /// `None` before the first report.
    last: Vec<Option<Option<Scalar>>>,
    is_missing: Vec<bool>,
    n_printed: u64,
    n_merged: u64,
    /// `None` before the first event that changes it.
    availability: Option<Availability>,
    clock: Clock,
}

impl<'a> WatchedItems<'a> {
    fn new(items: &'a [NamedItem], target: &'a CluTarget, arguments: &'a Arguments) -> WatchedItems<'a> {
        WatchedItems {
            items,
            target,
            arguments,
            width: items.iter().map(|item| item.text.chars().count()).max().unwrap_or(0),
            last: vec![None; items.len()],
            is_missing: vec![false; items.len()],
            n_printed: 0,
            n_merged: 0,
            availability: None,
            clock: Clock::local(),
        }
    }

    /// Prints events until the end.
    fn print_all(
        &mut self,
        clu: &ConnectedClu,
        events: Receiver<CluWatchEvent>,
        outlet: &mut OutputStreams<'_>,
    ) -> io::Result<Exit> {
        let start = Instant::now();
        let end = self.arguments.duration.map(|duration| start + duration);
        let mut missing_at = Some(start + clu.timeout);
        let has_answered = |watched: &WatchedItems<'_>| watched.last.iter().any(Option::is_some);
        loop {
            let next = [end, missing_at].into_iter().flatten().min();
            let wait = next.map_or(limit::QUIET, |next| next.saturating_duration_since(Instant::now()));
            match events.recv_timeout(wait.min(limit::QUIET)) {
                Ok(CluWatchEvent::Stop) => break,
                Ok(CluWatchEvent::Update(update)) => self.update(update, outlet)?,
                Ok(CluWatchEvent::Availability(availability)) => self.availability(availability, outlet)?,
                Err(_) => {}
            }
            self.merged(clu.connection.delivery_counts().merged, outlet)?;
            outlet.out.flush()?;
            let now = Instant::now();
            if self.arguments.events.is_some_and(|n| self.n_printed >= n) || end.is_some_and(|end| now >= end) {
                break;
            }
            if missing_at.is_some_and(|missing_at| now >= missing_at) {
                missing_at = None;
                if !has_answered(self) {
                    let seconds = clu.timeout.as_secs_f64();
                    let message = "check the address and the key (still watching it)";
                    writeln!(outlet.err, "fodo clu watch: {}: no report within {seconds} s: {message}", self.target)?;
                }
            }
        }
        outlet.out.flush()?;
        match has_answered(self) || self.is_missing.contains(&true) {
            true if self.is_missing.contains(&true) => Ok(Exit::NotFound),
            true => Ok(Exit::Done),
            false => Ok(Exit::NoReply),
        }
    }

    fn update(&mut self, update: CluUpdate, outlet: &mut OutputStreams<'_>) -> io::Result<()> {
        let (first, values) = match update {
            CluUpdate::Values { first, values } => (first, values),
            CluUpdate::Missing { index } => return self.missing(index, outlet),
        };
        for (index, value) in values.into_iter().enumerate().map(|(at, value)| (first + at, value)) {
            let (Some(item), Some(last)) = (self.items.get(index), self.last.get_mut(index)) else { continue };
            let was_missing = std::mem::replace(&mut self.is_missing[index], false);
            let is_new = was_missing || last.as_ref() != Some(&value);
            if is_new || self.arguments.all {
                self.n_printed += 1;
                *last = Some(value.clone());
                self.print(item, value.as_ref(), outlet.out)?;
            }
            if self.arguments.events.is_some_and(|n| self.n_printed >= n) {
                return Ok(());
            }
        }
        Ok(())
    }

    fn print(&self, item: &NamedItem, value: Option<&Scalar>, out: &mut dyn io::Write) -> io::Result<()> {
        let time = TimeStamp::from(SystemTime::now());
        if self.arguments.flags.json {
            let mut object = self.event("update");
            item.insert_into(&mut object);
            item.insert_value(value, &mut object);
            object.insert("time".into(), Clock::rfc3339(time).into());
            return out.write_all(json::line(object).as_bytes());
        }
        let (text, width) = (escape_control(&item.text), self.width);
        writeln!(out, "{text:<width$}  {}  {}", self.clock.for_people(time), item.shown(value, self.arguments.numeric))
    }

    fn missing(&mut self, index: usize, outlet: &mut OutputStreams<'_>) -> io::Result<()> {
        let Some(item) = self.items.get(index) else { return Ok(()) };
        if std::mem::replace(&mut self.is_missing[index], true) {
            return Ok(());
        }
        if self.arguments.flags.json {
            let mut object = self.event("missing");
            item.insert_into(&mut object);
            outlet.out.write_all(json::line(object).as_bytes())?;
        }
        let text = escape_control(&item.text);
        writeln!(outlet.err, "fodo clu watch: {}: the CLU does not report {text} (still watching)", self.target)
    }

    /// Prints that the CLU stops or starts to answer. The first answer is not printed.
    fn availability(&mut self, availability: Availability, outlet: &mut OutputStreams<'_>) -> io::Result<()> {
        let before = self.availability.replace(availability);
        let (name, words) = match availability {
            Availability::Available if before.is_none() => return Ok(()),
            Availability::Available => ("available", "--- the CLU answers again"),
            Availability::Emergency => ("emergency", "--- emergency mode: the scripts of the CLU do not run"),
            Availability::Unavailable => ("unavailable", "--- the CLU does not answer; the last values may be stale"),
            Availability::Unknown => return Ok(()),
        };
        if self.arguments.flags.json {
            return outlet.out.write_all(json::line(self.event(name)).as_bytes());
        }
        let (text, width) = (escape_control(&self.target.name), self.width);
        writeln!(outlet.out, "{text:<width$}  {words}")
    }

    fn merged(&mut self, n_merged: u64, outlet: &mut OutputStreams<'_>) -> io::Result<()> {
        let n_new = n_merged - std::mem::replace(&mut self.n_merged, n_merged);
        if n_new == 0 {
            return Ok(());
        }
        if self.arguments.flags.json {
            let mut object = self.event("merged");
            object.insert("n".into(), n_new.into());
            return outlet.out.write_all(json::line(object).as_bytes());
        }
        let (text, width) = (escape_control(&self.target.name), self.width);
        let words = "reports replaced by newer ones: they arrived faster than they were printed";
        writeln!(outlet.out, "{text:<width$}  --- {n_new} {words}")
    }

    fn event(&self, name: &str) -> Map<String, Json> {
        let mut object = self.target.json();
        object.insert("event".into(), name.into());
        object
    }
}
