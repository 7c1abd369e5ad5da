//! `fodo monitor`: prints updates as they come.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fodo_net::{Error, EventMask, Meta, MonitorEvent, MonitorOptions, Operation, Reading};
use serde_json::{Map, Value as Json};

use crate::client::{ClientFlags, META, ValueFlags, meta_of, seconds};
use crate::epics::Outlet;
use crate::exit::{Exit, explain, explain_refusal};
use crate::json;
use crate::mask;
use crate::show::Look;
use crate::watch::{Happening, Watch};

/// How long an update waits for the units that were asked for together with it.
const META_WAIT: Duration = Duration::from_secs(1);

/// How long nothing at all is waited for at a time.
const QUIET: Duration = Duration::from_secs(3600);

/// Watch PVs and print their updates
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Names, such as `x:motor` or `x:motor.RBV`
    #[arg(required = true, value_name = "PV")]
    pvs: Vec<String>,
    /// End after N updates, of all PVs together
    #[arg(long, value_name = "N")]
    events: Option<u64>,
    /// End after this time
    #[arg(long = "for", value_name = "SECONDS", value_parser = seconds)]
    duration: Option<Duration>,
    /// What counts as an update: v value, a alarm, l archive, p property
    #[arg(long, value_name = "LETTERS", default_value = "va", value_parser = mask_of)]
    mask: EventMask,
    /// Updates of one PV that may wait; beyond, the newest replaces the last and is counted
    #[arg(long, value_name = "N", default_value_t = 1024)]
    queue: usize,
    /// At the end, tell on stderr how many updates went where
    #[arg(long)]
    stats: bool,
    #[command(flatten)]
    client: ClientFlags,
    #[command(flatten)]
    value: ValueFlags,
}

/// The end of the help.
pub const HELP: &str = "\
Examples:
  fodo monitor x:motor.RBV x:motor.STAT
  fodo monitor --events 1 --mask a x:alarm
  fodo monitor --json --for 60 --stats x:wave > wave.ndjson

It ends at a signal (Ctrl-C), after --events or --for. A PV that is not found within --timeout is
told on stderr and watched for all the same; it decides the exit code when it never came. With
--stats, `received` came from the server, `merged` were replaced by later ones because this program
was too slow, `delivered` were printed; the rest was waiting when it ended.";

fn mask_of(letters: &str) -> Result<EventMask, String> {
    mask::parse(letters).ok_or_else(|| format!("\"{letters}\" is not of the letters v, a, l, p"))
}

/// What is known of one PV.
#[derive(Default)]
struct Known {
    was_connected: bool,
    getting_meta: Option<Operation<Reading>>,
    meta: Option<Arc<Meta>>,
    is_refused: bool,
    n_printed: u64,
}

/// Does it.
pub fn run(arguments: &Arguments, outlet: &mut Outlet<'_>) -> io::Result<Exit> {
    let options =
        MonitorOptions { request: arguments.value.request(), mask: arguments.mask, queue_max: arguments.queue.max(1) };
    let started = Watch::start(&arguments.pvs, crate::notices::own, |_| options);
    let mut watch = match started {
        Ok(watch) => watch,
        Err(reason) => {
            writeln!(outlet.err, "fodo: {reason}")?;
            return Ok(Exit::Other);
        }
    };
    crate::stop::on_signal(watch.stopper())?;
    let mut known: Vec<Known> = arguments.pvs.iter().map(|_| Known::default()).collect();
    let end = watch_all(arguments, &mut watch, &mut known, outlet)?;
    outlet.out.flush()?;
    if arguments.stats {
        for (index, (pv, known)) in arguments.pvs.iter().zip(&known).enumerate() {
            let counts = watch.counts(index);
            writeln!(
                outlet.err,
                "{pv}: received {}, merged {}, delivered {}",
                counts.received, counts.merged, known.n_printed
            )?;
        }
    }
    let ends = known.iter().map(|known| match (known.is_refused, known.was_connected) {
        (true, _) => Exit::Refused,
        (false, true) => Exit::Done,
        (false, false) => Exit::NotFound,
    });
    Ok(ends.fold(end, Exit::and))
}

fn watch_all(
    arguments: &Arguments,
    watch: &mut Watch<'_>,
    known: &mut [Known],
    outlet: &mut Outlet<'_>,
) -> io::Result<Exit> {
    let look = arguments.value.look();
    let width = arguments.pvs.iter().map(|pv| pv.chars().count()).max().unwrap_or(0);
    let start = Instant::now();
    let end = arguments.duration.map(|duration| start + duration);
    let mut missing_at = Some(start + arguments.client.timeout);
    let mut n_updates = 0;
    loop {
        let next = [end, missing_at].into_iter().flatten().min();
        let wait = next.map_or(QUIET, |next| next.saturating_duration_since(Instant::now()));
        match watch.next(wait.min(QUIET)) {
            Some(Happening::Stop) => return Ok(Exit::Done),
            Some(Happening::Failed(error)) => {
                writeln!(outlet.err, "fodo: {}", explain(&error))?;
                return Ok(Exit::of(&error));
            }
            Some(Happening::Event(index, event)) => {
                let (Some(pv), Some(known)) = (arguments.pvs.get(index), known.get_mut(index)) else { continue };
                let is_update = matches!(event, MonitorEvent::Update(_));
                if matches!(event, MonitorEvent::Connected(_)) {
                    known.getting_meta = watch.channel(index).map(|channel| channel.start_get(META));
                }
                let text = known.text(pv, width, event, arguments.client.json, &look);
                outlet.out.write_all(text.as_bytes())?;
                outlet.out.flush()?;
                known.n_printed += u64::from(is_update);
                n_updates += u64::from(is_update);
                if arguments.events.is_some_and(|n| n_updates >= n) {
                    return Ok(Exit::Done);
                }
            }
            None => {}
        }
        let now = Instant::now();
        if end.is_some_and(|end| now >= end) {
            return Ok(Exit::Done);
        }
        if missing_at.is_some_and(|missing_at| now >= missing_at) {
            missing_at = None;
            for (pv, _) in arguments.pvs.iter().zip(known.iter()).filter(|(_, known)| !known.was_connected) {
                let error = Error::NotFound { pv: pv.clone(), after: arguments.client.timeout };
                writeln!(outlet.err, "fodo: {} (still watching for it)", explain(&error))?;
            }
        }
    }
}

impl Known {
    /// What is printed of an event; nothing for a connection that is as expected.
    fn text(&mut self, pv: &str, width: usize, event: MonitorEvent, as_json: bool, look: &Look) -> String {
        let head = |name: &str| {
            let mut object = Map::new();
            object.insert("pv".into(), pv.into());
            object.insert("event".into(), name.into());
            object
        };
        let said = |words: &str| format!("{pv:<width$}  {words}\n");
        match event {
            MonitorEvent::Connected(facts) => {
                let was_connected = std::mem::replace(&mut self.was_connected, true);
                self.is_refused = false;
                match (as_json, was_connected) {
                    (true, _) => {
                        let mut object = head("connected");
                        object.insert("server".into(), facts.server.to_string().into());
                        json::line(object)
                    }
                    (false, true) => said(&format!("connected again, to {}", facts.server)),
                    (false, false) => String::new(),
                }
            }
            MonitorEvent::Update(reading) => {
                self.was_connected = true;
                if let Some(getting_meta) = self.getting_meta.take() {
                    self.meta = meta_of(getting_meta.wait(META_WAIT));
                }
                let reading = Reading { meta: self.meta.clone(), ..reading };
                if as_json {
                    let mut object = json::reading(pv, &reading, look);
                    object.insert("event".into(), Json::from("update"));
                    return json::line(object);
                }
                let line = format!(
                    "{pv:<width$}  {}  {}  {}",
                    look.time(&reading),
                    look.value(&reading),
                    look.alarm(&reading)
                );
                format!("{}\n", line.trim_end())
            }
            MonitorEvent::Unresponsive if as_json => json::line(head("unresponsive")),
            MonitorEvent::Unresponsive => said("its server is silent; the last value may be stale"),
            MonitorEvent::Responsive if as_json => json::line(head("responsive")),
            MonitorEvent::Responsive => said("its server is heard again"),
            MonitorEvent::Disconnected if as_json => json::line(head("disconnected")),
            MonitorEvent::Disconnected => said("disconnected; looking for it"),
            MonitorEvent::Closed if as_json => json::line(head("closed")),
            MonitorEvent::Closed => said("closed"),
            MonitorEvent::Refused(refusal) => {
                self.is_refused = true;
                let words = format!("its server {}", explain_refusal(&refusal));
                if !as_json {
                    return said(&words);
                }
                let mut object = head("refused");
                object.insert("message".into(), words.into());
                json::line(object)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local_time::Clock;
    use fodo_net::{Facts, Kind, TimeStamp};
    use std::net::SocketAddr;

    fn connected() -> MonitorEvent {
        let server = SocketAddr::from(([127, 0, 0, 1], 5064));
        MonitorEvent::Connected(Facts { server, kind: Kind::F64, count_max: 1, may_read: true, may_write: true })
    }

    fn update() -> MonitorEvent {
        let time = TimeStamp { unix_s: 1_800_000_000, nanos: 0 };
        MonitorEvent::Update(Reading { time, ..Reading::bare(2.5.into()) })
    }

    fn texts(as_json: bool) -> Vec<String> {
        let mut known = Known::default();
        let look = Look::plain(Clock::utc());
        let events = [connected(), update(), MonitorEvent::Disconnected, connected()];
        events.map(|event| known.text("x:y", 5, event, as_json, &look)).to_vec()
    }

    #[test]
    fn people_hear_of_updates_and_of_what_is_unusual() {
        assert_eq!(
            texts(false),
            [
                "",
                "x:y    2027-01-15 08:00:00.000000 +00:00  2.5\n",
                "x:y    disconnected; looking for it\n",
                "x:y    connected again, to 127.0.0.1:5064\n",
            ]
        );
    }

    #[test]
    fn scripts_get_every_event_by_name() {
        let texts = texts(true);

        assert_eq!(texts[0], "{\"pv\":\"x:y\",\"event\":\"connected\",\"server\":\"127.0.0.1:5064\"}\n");
        assert!(texts[1].ends_with("\"severity\":\"NO_ALARM\",\"status\":\"NO_ALARM\",\"event\":\"update\"}\n"));
        assert_eq!(texts[2], "{\"pv\":\"x:y\",\"event\":\"disconnected\"}\n");
    }
}
