//! `camonitor`: prints updates until stopped.

use std::io;
use std::time::{Duration, Instant, SystemTime};

use fodo_net::{ChannelFacts, EventMask, MonitorEvent, MonitorOptions, Refusal, TimeStamp};

use super::OutputStreams;
use super::caget::count;
use super::format::Style;
use super::options::{CommonOptions, handle_common};
use super::stamps::Stamps;
use super::status;
use super::{getopt, network};
use crate::exit::explain;
use crate::limit;
use crate::local_time::Clock;
use crate::notices;
use crate::watch::{PvMonitors, WatchEvent};

pub(super) const FLAGS: &str = "nhVm:sSe:f:g:l:#:0:w:t:p:F:";

/// The text of `-h`.
pub(super) const HELP: &str = "
camonitor [flags] PV...: print updates until stopped, with the output of EPICS camonitor

  -h          this help                -V          version
  -w SECONDS  time after which PVs are reported as not found (1)
  -p NUMBER   priority of the circuit (0 to 99)
  -m LETTERS  events to subscribe to: v value, a alarm, l archive, p property (va)
  -t LETTERS  time stamps: s server, c client, n none; relative: r to the start, i to the
              previous update, I to the previous update of the same PV
  -n          enums as numbers         -s          floating point numbers as strings from the server
  -# COUNT    elements to request      -S          arrays of char as a string
  -eN -fN -gN floating point as %e %f %g with N digits
  -lx -lo -lb floating point rounded, hexadecimal, octal, binary
  -0x -0o -0b integers hexadecimal, octal, binary
  -F CHAR     field separator

Environment: EPICS_CA_ADDR_LIST and related variables, EPICS_CLI_TIMEOUT (see fodo get --help)
Exit codes: 1 invalid flags; otherwise it runs until a signal ends it

Example: camonitor -f8 my:channel another:channel
";

/// The parsed flags.
pub(super) struct CamonitorOptions {
    /// Flags common to the tools.
    pub common: CommonOptions,
    mask: EventMask,
    floats_as_text: bool,
}

impl CamonitorOptions {
    /// The options of the subscription.
    pub fn monitor_options(&self, facts: &ChannelFacts) -> MonitorOptions {
        let style = &self.common.style;
        let count = count(style.count_requested, facts, true);
        let request = style.request_type(facts.kind, self.floats_as_text).request(count);
        MonitorOptions { request, mask: self.mask, queue_max: limit::CAMONITOR_QUEUE, ..MonitorOptions::default() }
    }
}

/// The flags and the PVs to monitor.
pub(super) struct MonitorArguments {
    pub options: CamonitorOptions,
    pub stamps: Stamps,
    pub names: Vec<String>,
}

/// Runs the tool; returns its exit code.
pub fn run(arguments: &[String], clock: &Clock, outlet: &mut OutputStreams<'_>) -> io::Result<u8> {
    let MonitorArguments { options, stamps, names } = match parse_arguments(arguments, clock, outlet)? {
        Ok(parsed) => parsed,
        Err(code) => return Ok(code),
    };
    let mut lines = LinePrinter::new(&names, &options.common.style, stamps);
    let format_notice = |notice: &_| notices::of_epics(notice, &Clock::local(), SystemTime::now());
    let channels: Vec<String> = names.iter().map(|name| network::channel_access(name)).collect();
    let started = network::context(format_notice).and_then(|context| {
        let monitors = PvMonitors::start(&|pv| context.channel(pv), &channels, |facts| options.monitor_options(facts));
        monitors.map_err(|error| explain(&error))
    });
    let mut watch = match started {
        Ok(watch) => watch,
        Err(error) => {
            writeln!(outlet.err, "{error}")?;
            return Ok(1);
        }
    };
    let missing_after = Instant::now() + options.common.timeout();
    let mut are_missing_reported = false;
    loop {
        let wait = if are_missing_reported {
            Duration::from_secs(3600)
        } else {
            missing_after.saturating_duration_since(Instant::now())
        };
        match watch.next(wait) {
            Some(WatchEvent::Event(pv, event)) => {
                lines.print(pv, &event, SystemTime::now().into(), outlet.out)?;
                outlet.out.flush()?;
            }
            Some(WatchEvent::Failed(error)) => {
                writeln!(outlet.err, "{}", explain(&error))?;
                return Ok(1);
            }
            // PVs of Channel Access are never structures.
            Some(WatchEvent::Stop | WatchEvent::Structured(..)) | None => {}
        }
        if !are_missing_reported && Instant::now() >= missing_after {
            are_missing_reported = true;
            outlet.out.write_all(lines.missing().as_bytes())?;
            outlet.out.flush()?;
        }
    }
}

/// Prints lines and keeps the state that later lines depend on.
pub struct LinePrinter<'a> {
    names: &'a [String],
    style: &'a Style,
    stamps: Stamps,
    pvs: Vec<PvState>,
}

/// The state of one PV.
#[derive(Clone, Default)]
struct PvState {
    was_connected: bool,
    n_elements: usize,
}

impl<'a> LinePrinter<'a> {
    /// Creates the state before the first event.
    pub fn new(names: &'a [String], style: &'a Style, stamps: Stamps) -> LinePrinter<'a> {
        LinePrinter { names, style, stamps, pvs: vec![PvState::default(); names.len()] }
    }

    /// Prints the line of an event at `now`, if it has one.
    pub fn print(
        &mut self,
        pv: usize,
        event: &MonitorEvent,
        now: TimeStamp,
        out: &mut dyn io::Write,
    ) -> io::Result<()> {
        let (Some(name), Some(seen)) = (self.names.get(pv), self.pvs.get_mut(pv)) else { return Ok(()) };
        match event {
            MonitorEvent::Connected(facts) => {
                *seen = PvState { was_connected: true, n_elements: facts.count_max as usize };
                Ok(())
            }
            MonitorEvent::Update(reading) => {
                *seen = PvState { was_connected: true, n_elements: reading.value.len() };
                let stamp = self.stamps.stamp(pv, reading.time, now, &self.style.clock);
                writeln!(out, "{}{}", self.style.name(name, reading.value.len()), self.style.wide(&stamp, reading))
            }
            // libca reports a silent server as disconnected, and reads the value again when it responds. camonitor
            // prints nothing for merged updates and access rights.
            MonitorEvent::Responsive | MonitorEvent::Merged(_) | MonitorEvent::Rights(_) => Ok(()),
            MonitorEvent::Disconnected | MonitorEvent::Unresponsive | MonitorEvent::Closed => {
                self.complain(name, pv, "*** disconnected", now, out)
            }
            MonitorEvent::Refused(Refusal::Status { status, .. }) => {
                let text = format!("*** CA error {}", status::message(*status));
                self.complain(name, pv, &text, now, out)
            }
            MonitorEvent::WrongReply(reply) => self.complain(name, pv, &format!("*** CA error {reply}"), now, out),
            MonitorEvent::Refused(_) => self.complain(name, pv, "*** no read access", now, out),
            _ => Ok(()),
        }
    }

    /// The lines for PVs that have never been connected.
    pub fn missing(&self) -> String {
        let missing = self.names.iter().zip(&self.pvs).filter(|(_, seen)| !seen.was_connected);
        missing.map(|(name, _)| format!("{}*** Not connected (PV not found)\n", self.style.name(name, 0))).collect()
    }

    fn complain(&self, name: &str, pv: usize, text: &str, now: TimeStamp, out: &mut dyn io::Write) -> io::Result<()> {
        let n_elements = self.pvs.get(pv).map_or(0, |seen| seen.n_elements);
        writeln!(out, "{}{} {text}", self.style.name(name, n_elements), self.style.clock.for_epics(now))
    }
}

/// Parses the arguments; the inner `Err` is the exit code to end with immediately.
pub(super) fn parse_arguments(
    arguments: &[String],
    clock: &Clock,
    outlet: &mut OutputStreams<'_>,
) -> io::Result<Result<MonitorArguments, u8>> {
    let (flags, names) = getopt::parse(arguments, FLAGS, false);
    let mut stamps = Stamps::new(names.len(), SystemTime::now().into());
    let common = CommonOptions::new("camonitor", clock, outlet.err)?;
    let mut options = CamonitorOptions { common, mask: EventMask::VALUE | EventMask::ALARM, floats_as_text: false };
    for flag in &flags {
        let (letter, value) = match handle_common(flag, "camonitor", HELP, outlet)? {
            Ok(own) => own,
            Err(code) => return Ok(Err(code)),
        };
        match letter {
            's' => options.floats_as_text = true,
            't' => {
                for key in stamps.choose(value) {
                    writeln!(outlet.err, "Invalid argument '{key}' for option '-t' - ignored.")?;
                }
            }
            'm' => match crate::mask::parse(value) {
                Some(mask) => options.mask = mask,
                None => {
                    options.mask = EventMask::VALUE | EventMask::ALARM;
                    writeln!(outlet.err, "Invalid argument '{value}' for option '-m' - ignored.")?;
                }
            },
            letter => options.common.take(letter, value, outlet.err)?,
        }
    }
    if names.is_empty() {
        writeln!(outlet.err, "No pv name specified. ('camonitor -h' for help.)")?;
        return Ok(Err(1));
    }
    Ok(Ok(MonitorArguments { options, stamps, names }))
}

#[cfg(test)]
mod tests {
    use fodo_ca::eca::Eca;
    use fodo_net::{Kind, Reading, WrongReply};

    use super::*;

    #[test]
    fn each_event_of_a_pv_is_printed_as_camonitor_does() {
        let (names, style) = (["x".to_owned(), "y".to_owned()], Style::new(Clock::utc()));
        let now = TimeStamp { unix_s: 1_800_000_000, nanos: 0 };
        let mut lines = LinePrinter::new(&names, &style, Stamps::new(2, now));
        let server = "127.0.0.1:5064".parse().unwrap();
        let facts = ChannelFacts { server, kind: Kind::F64, count_max: 1, may_read: true, may_write: true, tls: None };
        let mut printed = |event| {
            let mut text = Vec::new();
            lines.print(0, &event, now, &mut text).unwrap();
            String::from_utf8(text).unwrap()
        };
        let line = |text: &str| format!("{:<30} 2027-01-15 08:00:00.000000 {text}\n", "x");

        for silent in [MonitorEvent::Connected(facts.clone()), MonitorEvent::Responsive, MonitorEvent::Merged(2)] {
            assert_eq!(printed(silent), "");
        }
        assert_eq!(printed(MonitorEvent::Rights(facts)), "");
        let update = Reading { time: now, ..Reading::bare(1.5.into()) };
        assert_eq!(printed(MonitorEvent::Update(update)).trim_end(), line("1.5").trim_end());
        for lost in [MonitorEvent::Disconnected, MonitorEvent::Unresponsive, MonitorEvent::Closed] {
            assert_eq!(printed(lost), line("*** disconnected"));
        }
        let refusal = Refusal::Status { status: Eca::GETFAIL, text: String::new() };
        assert_eq!(printed(MonitorEvent::Refused(refusal)), line("*** CA error Channel read request failed"));
        assert_eq!(printed(MonitorEvent::Refused(Refusal::ReadAccess)), line("*** no read access"));
        let reply = WrongReply::Count { requested: 1, received: 2 };
        let reason = format!("*** CA error {reply}");
        assert_eq!(printed(MonitorEvent::WrongReply(reply)), line(&reason));
        assert_eq!(lines.missing(), format!("{:<30} *** Not connected (PV not found)\n", "y"));
    }
}
