//! `fodo monitor`: prints updates as they arrive.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fodo_net::{
    BitSet, Channel, Detail, EventMask, Kind, Meta, MonitorCounts, MonitorEvent, MonitorOptions, Operation, Protocol,
    PvRequest, Reading, Request, Structure, StructureType, Value,
};
use serde_json::Map;

use super::{Readout, context_with_clus, is_flat, requested};
use crate::client::{
    ClientContext, ClientFlags, CluFileFlag, META, ProtocolFlag, RequestFlag, ValueFlags, lacks_label, meta_of, seconds,
};
use crate::epics::OutputStreams;
use crate::exit::{Exit, explain, explain_named, with_advice};
use crate::json;
use crate::limit;
use crate::mask;
use crate::show::DisplayOptions;
use crate::structure;
use crate::watch::{PvMonitors, WatchEvent};

/// Print updates of PVs
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Names, such as `x:motor`, `x:motor.RBV` or `pva://x:motor`
    #[arg(required = true, value_name = "PV")]
    pvs: Vec<String>,
    /// End after N updates of all PVs together
    #[arg(long, value_name = "N")]
    events: Option<u64>,
    /// End after this time
    #[arg(long = "for", value_name = "SECONDS", value_parser = seconds)]
    duration: Option<Duration>,
    /// Events to subscribe to: v value, a alarm, l archive, p property
    #[arg(long, value_name = "LETTERS", default_value = "va", value_parser = mask_of)]
    mask: EventMask,
    /// Maximum number of queued updates per PV; in a full queue the newest replaces the last one and is counted
    #[arg(long, value_name = "N", default_value_t = 1024)]
    queue: usize,
    /// Print statistics of updates at the end, on stderr; with --json as objects on stdout
    #[arg(long)]
    stats: bool,
    #[command(flatten)]
    request: RequestFlag,
    #[command(flatten)]
    protocol: ProtocolFlag,
    #[command(flatten)]
    client: ClientFlags,
    #[command(flatten)]
    clu: CluFileFlag,
    #[command(flatten)]
    value: ValueFlags,
}

/// The end of the help.
pub const HELP: &str = "\
Examples:
  fodo monitor x:motor.RBV x:motor.STAT
  fodo monitor --events 1 --mask a x:alarm
  fodo monitor pva://x:motor.RBV
  fodo monitor --request 'field(value)record[queueSize=100]' pva://x:table
  fodo monitor --json --for 60 --stats x:wave > wave.ndjson

It ends on a signal (Ctrl-C), or after --events or --for. A PV that is not connected within
--timeout is reported on stderr, with the server that claimed it if one did, and is still watched;
if it never connects, it determines the exit code. A line with --- after the name marks a gap:
merged updates, or a time without a server. With --stats, `received` updates came from the server,
`merged` were replaced by later ones because this program was too slow, and `delivered` were
printed; the others were still queued at the end.";

fn mask_of(letters: &str) -> Result<EventMask, String> {
    mask::parse(letters).ok_or_else(|| format!("\"{letters}\" must consist of the letters v, a, l and p"))
}

/// The state of one PV.
#[derive(Default)]
struct KnownPv {
    was_connected: bool,
    getting_meta: Option<Operation<Reading>>,
    getting_kind: Option<Operation<Arc<StructureType>>>,
    /// A reading cannot hold its value, so that its updates are structures.
    is_structured: bool,
    meta: Option<Arc<Meta>>,
    /// Read apart: the labels of states whose labels the metadata lack. Each is a state and its label as a value.
    labels: Vec<(Value, Value)>,
    is_refused: bool,
    lost_at: Option<Instant>,
    n_printed: u64,
    /// The pvRequest of the user, and the nodes that were received with it.
    request: Option<PvRequest>,
    received: BitSet,
}

/// Runs the command.
pub fn run(arguments: &Arguments, outlet: &mut OutputStreams<'_>) -> io::Result<Exit> {
    let options = MonitorOptions {
        request: arguments.value.request(),
        mask: arguments.mask,
        queue_max: arguments.queue.max(1),
        ..MonitorOptions::default()
    };
    let (pvs, timeout) = (&arguments.pvs, arguments.client.timeout);
    let client = match context_with_clus(arguments.protocol, pvs, &arguments.clu, timeout, outlet)? {
        Ok(client) => client,
        Err(exit) => return Ok(exit),
    };
    let request = arguments.request.request.as_ref();
    let of_ca = arguments.pvs.iter().find(|pv| request.is_some() && client.protocol(pv) == Protocol::Ca);
    if let Some(pv) = of_ca {
        writeln!(outlet.err, "fodo: \"{pv}\": a pvRequest requires pvAccess; request the PV with \"pva://\"")?;
        return Ok(Exit::BadValue);
    }
    let open = |pv: &str| client.channel(pv);
    let started = match request {
        Some(request) => PvMonitors::start_requested(&open, &arguments.pvs, request, options),
        None => PvMonitors::start(&open, &arguments.pvs, |_| options),
    };
    let mut watch = match started {
        Ok(watch) => watch,
        Err(error) => {
            writeln!(outlet.err, "fodo: {}", explain(&error))?;
            return Ok(Exit::Other);
        }
    };
    crate::stop::on_signal(watch.stopper())?;
    let new = |_: &String| KnownPv { request: request.cloned(), ..KnownPv::default() };
    let mut known: Vec<KnownPv> = arguments.pvs.iter().map(new).collect();
    let end = watch_all(arguments, &client, &mut watch, &mut known, outlet)?;
    outlet.out.flush()?;
    if arguments.stats {
        for (index, (pv, known)) in arguments.pvs.iter().zip(&known).enumerate() {
            let text = stats(pv, &watch.counts(index), known.n_printed, arguments.client.json);
            if arguments.client.json {
                outlet.out.write_all(text.as_bytes())?;
            } else {
                outlet.err.write_all(text.as_bytes())?;
            }
        }
    }
    let ends = known.iter().enumerate().map(|(index, known)| match (known.is_refused, known.was_connected) {
        (true, _) => Exit::Refused,
        (false, true) => Exit::Done,
        (false, false) => watch.why_inactive(index, Duration::ZERO).map_or(Exit::Done, |error| Exit::of(&error)),
    });
    Ok(ends.fold(end, Exit::and))
}

/// The statistics of a PV's updates, as a line of text or a JSON object.
fn stats(pv: &str, counts: &MonitorCounts, n_printed: u64, as_json: bool) -> String {
    let gap_s = counts.longest_gap.as_secs_f64();
    if !as_json {
        return format!(
            "{pv}: received {}, merged {}, delivered {n_printed}, longest gap {gap_s:.3} s, disconnected {} times\n",
            counts.received, counts.merged, counts.n_disconnected
        );
    }
    let mut object = Map::new();
    object.insert("pv".into(), pv.into());
    object.insert("event".into(), "stats".into());
    object.insert("received".into(), counts.received.into());
    object.insert("merged".into(), counts.merged.into());
    object.insert("delivered".into(), n_printed.into());
    object.insert("longest_gap_s".into(), gap_s.into());
    object.insert("n_disconnected".into(), counts.n_disconnected.into());
    json::line(object)
}

fn watch_all(
    arguments: &Arguments,
    client: &ClientContext,
    watch: &mut PvMonitors<'_>,
    known: &mut [KnownPv],
    outlet: &mut OutputStreams<'_>,
) -> io::Result<Exit> {
    let look = arguments.value.look();
    let width = arguments.pvs.iter().map(|pv| pv.chars().count()).max().unwrap_or(0);
    let start = Instant::now();
    let end = arguments.duration.map(|duration| start + duration);
    let mut missing_at = Some(start + arguments.client.timeout);
    let mut n_updates = 0;
    loop {
        let next = [end, missing_at].into_iter().flatten().min();
        let wait = next.map_or(limit::QUIET, |next| next.saturating_duration_since(Instant::now()));
        match watch.next(wait.min(limit::QUIET)) {
            Some(WatchEvent::Stop) => return Ok(Exit::Done),
            Some(WatchEvent::Failed(error)) => {
                writeln!(outlet.err, "fodo: {}", explain(&error))?;
                return Ok(Exit::of(&error));
            }
            Some(WatchEvent::Event(index, event)) => {
                let (Some(pv), Some(known)) = (arguments.pvs.get(index), known.get_mut(index)) else { continue };
                let is_update = matches!(event, MonitorEvent::Update(_));
                if let (MonitorEvent::Connected(_), Some(channel)) = (&event, watch.channel(index)) {
                    let is_pva = client.protocol(pv) == Protocol::Pva;
                    known.request_description(channel, is_pva && !arguments.value.selects_elements());
                }
                if is_update && known.needs_structures() {
                    watch.monitor_structure(index);
                    continue;
                }
                known.read_label(&event, watch.channel(index), &arguments.value);
                known.print(pv, width, event, arguments.client.json, &look, outlet.out)?;
                outlet.out.flush()?;
                known.n_printed += u64::from(is_update);
                n_updates += u64::from(is_update);
            }
            Some(WatchEvent::Structured(index, event)) => {
                let (Some(pv), Some(known)) = (arguments.pvs.get(index), known.get_mut(index)) else { continue };
                let is_update = matches!(event, MonitorEvent::Update(_));
                known.print_structured(pv, width, event, arguments.client.json, &look, outlet.out)?;
                outlet.out.flush()?;
                known.n_printed += u64::from(is_update);
                n_updates += u64::from(is_update);
            }
            None => {}
        }
        if arguments.events.is_some_and(|n| n_updates >= n) {
            return Ok(Exit::Done);
        }
        let now = Instant::now();
        if end.is_some_and(|end| now >= end) {
            return Ok(Exit::Done);
        }
        if missing_at.is_some_and(|missing_at| now >= missing_at) {
            missing_at = None;
            for (index, _) in known.iter().enumerate().filter(|(_, known)| !known.was_connected) {
                if let Some(error) = watch.why_inactive(index, arguments.client.timeout) {
                    let Some(pv) = arguments.pvs.get(index) else { continue };
                    let message = explain_named(pv, &error);
                    writeln!(outlet.err, "fodo: {message} (still watching for it)")?;
                }
            }
        }
    }
}

impl KnownPv {
    /// Prints an event. An update may be large, so its text is never stored as a whole.
    fn print(
        &mut self,
        pv: &str,
        width: usize,
        event: MonitorEvent,
        as_json: bool,
        look: &DisplayOptions,
        out: &mut dyn io::Write,
    ) -> io::Result<()> {
        let reading = match event {
            MonitorEvent::Update(reading) => reading,
            event => return out.write_all(self.text(pv, width, event, as_json).as_bytes()),
        };
        self.was_connected = true;
        self.take_meta();
        let label = self.labels.iter().find(|(state, _)| *state == reading.value).map(|(_, label)| label.clone());
        let value = label.unwrap_or(reading.value);
        let reading = Reading { value, meta: self.meta.clone(), ..reading };
        if as_json {
            let mut object = json::reading(pv, &reading, look);
            object.insert("event", "update");
            return writeln!(out, "{object}");
        }
        write!(out, "{pv:<width$}  {}  {}", look.time(&reading), look.of(pv).value(&reading))?;
        match look.alarm(&reading) {
            alarm if alarm.is_empty() => writeln!(out),
            alarm => writeln!(out, "  {alarm}"),
        }
    }

    /// Requests the metadata and, if its value may be more than a reading, the type.
    fn request_description(&mut self, channel: &Channel, needs_type: bool) {
        self.labels.clear();
        self.getting_meta = Some(channel.start_get(META));
        self.getting_kind = needs_type.then(|| channel.start_describe(""));
    }

    fn take_meta(&mut self) {
        if let Some(getting_meta) = self.getting_meta.take() {
            self.meta = meta_of(getting_meta.wait_timeout(limit::META_WAIT));
        }
    }

    /// Reads the label of the state in an update if the metadata lack it and the PV still has this state.
    fn read_label(&mut self, event: &MonitorEvent, channel: Option<&Channel>, flags: &ValueFlags) {
        let (MonitorEvent::Update(Reading { value: state, .. }), Some(channel)) = (event, channel) else { return };
        self.take_meta();
        let is_known = self.labels.iter().any(|(known, _)| known == state);
        if flags.numeric || is_known || !lacks_label(state, self.meta.as_deref()) {
            return;
        }
        // A server replies to the requests of a circuit in their order.
        let getting = [Kind::Enum, Kind::Text, Kind::Enum]
            .map(|kind| channel.start_get(Request { kind: Some(kind), detail: Detail::Value, count: 1 }));
        let values = getting.map(|getting| getting.wait_timeout(limit::META_WAIT).ok().map(|reading| reading.value));
        if let [Some(before), Some(label), Some(after)] = values
            && before == *state
            && after == *state
        {
            self.labels.push((before, label));
        }
    }

    /// Whether a reading cannot hold the value of this PV.
    fn needs_structures(&mut self) -> bool {
        if let Some(getting_kind) = self.getting_kind.take() {
            let kind = getting_kind.wait_timeout(limit::META_WAIT);
            self.is_structured = kind.is_ok_and(|kind| !is_flat(&kind));
        }
        self.is_structured
    }

    /// What an update shows: with a pvRequest only what was received.
    fn readout(&mut self, structure: Structure) -> Readout {
        let Some(request) = &self.request else { return Readout::Structure(Box::new(structure)) };
        self.received.union_with(structure.changed());
        requested(&structure, &self.received, request)
    }

    /// Prints an event of a PV that is a structure; an update with all fields.
    fn print_structured(
        &mut self,
        pv: &str,
        width: usize,
        event: MonitorEvent<Structure>,
        as_json: bool,
        look: &DisplayOptions,
        out: &mut dyn io::Write,
    ) -> io::Result<()> {
        let event = match event {
            MonitorEvent::Update(structure) => {
                self.was_connected = true;
                match self.readout(structure) {
                    Readout::Reading(reading) => {
                        self.meta = reading.meta.clone();
                        return self.print(pv, width, MonitorEvent::Update(reading), as_json, look, out);
                    }
                    Readout::Structure(structure) if as_json => {
                        let mut object = json::structure(pv, &structure);
                        object.insert("event", "update");
                        return writeln!(out, "{object}");
                    }
                    Readout::Structure(structure) => {
                        writeln!(out, "{pv:<width$}  {}", structure::type_name(structure.kind()))?;
                        return out.write_all(structure::tree(&structure, look).as_bytes());
                    }
                }
            }
            MonitorEvent::Connected(facts) => MonitorEvent::Connected(facts),
            MonitorEvent::Rights(facts) => MonitorEvent::Rights(facts),
            MonitorEvent::Merged(n) => MonitorEvent::Merged(n),
            MonitorEvent::Unresponsive => MonitorEvent::Unresponsive,
            MonitorEvent::Responsive => MonitorEvent::Responsive,
            MonitorEvent::Disconnected => MonitorEvent::Disconnected,
            MonitorEvent::Refused(refusal) => MonitorEvent::Refused(refusal),
            MonitorEvent::WrongReply(reply) => MonitorEvent::WrongReply(reply),
            MonitorEvent::Closed => MonitorEvent::Closed,
            _ => return Ok(()),
        };
        out.write_all(self.text(pv, width, event, as_json).as_bytes())
    }

    /// The text of an event other than an update; empty for the first connection.
    fn text(&mut self, pv: &str, width: usize, event: MonitorEvent, as_json: bool) -> String {
        let head = |name: &str| {
            let mut object = Map::new();
            object.insert("pv".into(), pv.into());
            object.insert("event".into(), name.into());
            object
        };
        let line = |words: &str| format!("{pv:<width$}  {words}\n");
        let plain = |name: &str, words: &str| if as_json { json::line(head(name)) } else { line(words) };
        let reported = |name: &str, words: String| {
            if !as_json {
                return line(&words);
            }
            let mut object = head(name);
            object.insert("message".into(), words.into());
            json::line(object)
        };
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
                    (false, true) => {
                        let outage = self.lost_at.take().map_or(Duration::ZERO, |at| at.elapsed());
                        line(&format!("--- connected again after {:.1} s, to {}", outage.as_secs_f64(), facts.server))
                    }
                    (false, false) => String::new(),
                }
            }
            MonitorEvent::Rights(facts) if as_json => {
                let mut object = head("rights");
                object.insert("read".into(), facts.may_read.into());
                object.insert("write".into(), facts.may_write.into());
                json::line(object)
            }
            MonitorEvent::Rights(facts) => {
                let may = |may: bool| if may { "may" } else { "may not" };
                line(&format!("--- {} be read now, {} be written", may(facts.may_read), may(facts.may_write)))
            }
            MonitorEvent::Merged(n) if as_json => {
                let mut object = head("merged");
                object.insert("n".into(), n.into());
                json::line(object)
            }
            MonitorEvent::Merged(n) => {
                line(&format!("--- {n} updates merged into the next: they arrived faster than they were printed"))
            }
            MonitorEvent::Unresponsive => plain("unresponsive", "the server is silent; the last value may be stale"),
            MonitorEvent::Responsive => plain("responsive", "the server responds again"),
            MonitorEvent::Disconnected if as_json => json::line(head("disconnected")),
            MonitorEvent::Disconnected => {
                self.lost_at = Some(Instant::now());
                line("--- disconnected; searching")
            }
            MonitorEvent::Closed => plain("closed", "closed"),
            MonitorEvent::Refused(refusal) => {
                self.is_refused = true;
                reported("refused", with_advice(format!("the server refused {refusal}"), refusal.advice()))
            }
            MonitorEvent::WrongReply(reply) => {
                reported("wrong_reply", format!("--- the server sent {reply}, which was dropped"))
            }
            _ => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local_time::Clock;
    use fodo_net::{ChannelFacts, Kind, TimeStamp};
    use std::net::SocketAddr;

    fn connected() -> MonitorEvent {
        let server = SocketAddr::from(([127, 0, 0, 1], 5064));
        MonitorEvent::Connected(ChannelFacts {
            server,
            kind: Kind::F64,
            count_max: 1,
            may_read: true,
            may_write: true,
            tls: None,
        })
    }

    fn update() -> MonitorEvent {
        let time = TimeStamp { unix_s: 1_800_000_000, nanos: 0 };
        MonitorEvent::Update(Reading { time, ..Reading::bare(2.5.into()) })
    }

    fn texts(as_json: bool) -> Vec<String> {
        let mut known = KnownPv::default();
        let look = DisplayOptions::plain(Clock::utc());
        let events = [connected(), update(), MonitorEvent::Disconnected, connected()];
        let printed = |event| {
            let mut text = Vec::new();
            known.print("x:y", 5, event, as_json, &look, &mut text).unwrap();
            String::from_utf8(text).unwrap()
        };
        events.map(printed).to_vec()
    }

    #[test]
    fn monitor_prints_updates_and_disconnections_as_text() {
        assert_eq!(
            texts(false),
            [
                "",
                "x:y    2027-01-15 08:00:00.000000 +00:00  2.5\n",
                "x:y    --- disconnected; searching\n",
                "x:y    --- connected again after 0.0 s, to 127.0.0.1:5064\n",
            ]
        );
    }

    #[test]
    fn monitor_prints_merged_updates_and_final_counts() {
        let mut known = KnownPv::default();
        let counts = MonitorCounts {
            received: 9,
            merged: 7,
            overrun: 0,
            delivered: 2,
            longest_gap: Duration::from_millis(1500),
            n_disconnected: 1,
        };

        let mark = known.text("x:y", 3, MonitorEvent::Merged(7), false);
        let object = known.text("x:y", 3, MonitorEvent::Merged(7), true);

        assert_eq!(mark, "x:y  --- 7 updates merged into the next: they arrived faster than they were printed\n");
        assert_eq!(object, "{\"pv\":\"x:y\",\"event\":\"merged\",\"n\":7}\n");
        assert_eq!(
            stats("x:y", &counts, 2, false),
            "x:y: received 9, merged 7, delivered 2, longest gap 1.500 s, disconnected 1 times\n"
        );
        assert!(stats("x:y", &counts, 2, true).contains("\"longest_gap_s\":1.5,\"n_disconnected\":1"));
    }

    #[test]
    fn monitor_json_names_every_event() {
        let texts = texts(true);

        assert_eq!(texts[0], "{\"pv\":\"x:y\",\"event\":\"connected\",\"server\":\"127.0.0.1:5064\"}\n");
        assert!(texts[1].ends_with("\"severity\":\"NO_ALARM\",\"status\":\"NO_ALARM\",\"event\":\"update\"}\n"));
        assert_eq!(texts[2], "{\"pv\":\"x:y\",\"event\":\"disconnected\"}\n");
    }

    #[test]
    fn monitor_prints_every_state_of_a_channel_as_text_and_json() {
        let text = |event: MonitorEvent| KnownPv::default().text("x", 1, event, false);
        let object = |event: MonitorEvent| KnownPv::default().text("x", 1, event, true);
        let rights = |may_read, may_write| {
            let server = SocketAddr::from(([127, 0, 0, 1], 5064));
            MonitorEvent::Rights(ChannelFacts { server, kind: Kind::F64, count_max: 1, may_read, may_write, tls: None })
        };
        let wrong = || MonitorEvent::WrongReply(fodo_net::WrongReply::Count { requested: 1, received: 2 });
        let refused = || MonitorEvent::Refused(fodo_net::Refusal::ReadAccess);

        assert_eq!(text(rights(true, false)), "x  --- may be read now, may not be written\n");
        assert_eq!(object(rights(true, false)), "{\"pv\":\"x\",\"event\":\"rights\",\"read\":true,\"write\":false}\n");
        assert_eq!(text(MonitorEvent::Unresponsive), "x  the server is silent; the last value may be stale\n");
        assert_eq!(object(MonitorEvent::Unresponsive), "{\"pv\":\"x\",\"event\":\"unresponsive\"}\n");
        assert_eq!(text(MonitorEvent::Responsive), "x  the server responds again\n");
        assert_eq!(text(MonitorEvent::Closed), "x  closed\n");
        assert!(text(refused()).starts_with("x  the server "), "{}", text(refused()));
        assert!(object(refused()).starts_with("{\"pv\":\"x\",\"event\":\"refused\",\"message\":\"the server "));
        assert!(text(wrong()).starts_with("x  --- the server sent ") && text(wrong()).ends_with("which was dropped\n"));
        assert!(object(wrong()).contains("\"event\":\"wrong_reply\",\"message\":\"--- the server sent "));
    }
}
