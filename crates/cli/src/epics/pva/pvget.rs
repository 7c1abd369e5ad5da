//! `pvget` and `pvmonitor`: read PVs of pvAccess and print them, once or with every update.

use std::io;
use std::time::Duration;

use fodo_net::{BitSet, MonitorEvent, Structure};

use super::client::{StructureClient, context, is_timeout, message, pv_access};
use super::monitors::{StreamEvent, StructureMonitors};
use super::options::PvOptions;
use super::pvdata::{self, OutputMode, PrintOptions};
use crate::epics::{OutputStreams, getopt};
use crate::local_time::Clock;
use crate::stop;

pub(super) const FLAGS: &str = "hvVRM:r:w:tmp:qdcF:f:ni";

/// The text of `-h`; the flags are those of pvget.
pub(super) const HELP: &str = "
pvget [flags] PV...: read PVs of pvAccess, with the output of pvget of EPICS Base

  -h          this help                -V          version
  -r REQUEST  pvRequest: fields and options, such as 'field(value,alarm)'; all fields by default
  -w SECONDS  timeout for all PVs (5; 0: none)
  -M MODE     nt (values of known types on one line), raw (all fields), json (JSON5, one line)
  -v          all received fields, as -M raw; -vv also the others, in bold those received
  -m          monitor, see pvmonitor   -p PROVIDER only pva
  -q -t -i -n -c -d -R, -F CHAR        accepted without effect
  -f FILE     refused, as by the original

Environment: EPICS_PVA_ADDR_LIST and related variables (see fodo get --help)
Exit codes: 0 read, 1 timeout, refused by the server, or invalid flags

Example: pvget -r 'value,timeStamp' my:pv another:pv
";

/// The text of `pvmonitor -h`.
pub(super) const MONITOR_HELP: &str = "
pvmonitor [flags] PV...: print updates of PVs of pvAccess until stopped, as of EPICS Base

  -h          this help                -V          version
  -r REQUEST  pvRequest: fields and options, such as 'field(value)record[queueSize=10]'
  -M MODE     nt (values of known types on one line), raw (all fields), json (JSON5, one line)
  -v          changed fields, as -M raw; -vv all received, -vvv all fields, in bold the changed
  -p PROVIDER only pva                 -w SECONDS  accepted without effect, as -m
  -q -t -i -n -c -d -R, -F CHAR        accepted without effect
  -f FILE     refused, as by the original

Environment: EPICS_PVA_ADDR_LIST and related variables (see fodo get --help)
Exit codes: 0 stopped by a signal, 1 refused by a server, or invalid flags

Example: pvmonitor my:pv another:pv
";

/// Runs `pvget`; returns its exit code.
pub fn run(
    arguments: &[String],
    client: &mut dyn StructureClient,
    clock: &Clock,
    outlet: &mut OutputStreams<'_>,
) -> io::Result<u8> {
    run_as("pvget", false, arguments, client, clock, outlet)
}

/// Runs `pvmonitor`; returns its exit code.
pub fn monitor(
    arguments: &[String],
    client: &mut dyn StructureClient,
    clock: &Clock,
    outlet: &mut OutputStreams<'_>,
) -> io::Result<u8> {
    run_as("pvmonitor", true, arguments, client, clock, outlet)
}

fn run_as(
    tool: &'static str,
    mut is_monitor: bool,
    arguments: &[String],
    client: &mut dyn StructureClient,
    clock: &Clock,
    outlet: &mut OutputStreams<'_>,
) -> io::Result<u8> {
    let help = if tool == "pvget" { HELP } else { MONITOR_HELP };
    let (flags, names) = getopt::parse(arguments, FLAGS, false);
    let mut options = PvOptions::new(tool, 5);
    for flag in &flags {
        match options.take(flag, help, outlet)? {
            Ok(Some(('m', _))) => is_monitor = true,
            Ok(_) => {}
            Err(code) => return Ok(code),
        }
    }
    options.imply_raw();
    let Some(request) = options.pv_request(outlet)? else { return Ok(1) };
    let printer = UpdatePrinter::new(&names, &options, clock);
    if names.is_empty() {
        return Ok(0);
    }
    if is_monitor {
        return print_updates(&names, &request, printer, outlet);
    }
    let (mut code, mut has_timed_out) = (0, false);
    for (name, result) in names.iter().zip(client.get(&names, &request, options.timeout)) {
        match result {
            Ok(structure) => outlet.out.write_all(printer.reading(name, &structure).as_bytes())?,
            Err(error) if is_timeout(&error) => has_timed_out = true,
            Err(error) => {
                write!(outlet.out, "{}", printer.name(name))?;
                writeln!(outlet.err, "Error {}", message(&error))?;
                code = 1;
            }
        }
    }
    if has_timed_out {
        writeln!(outlet.err, "Timeout")?;
        code = 1;
    }
    Ok(code)
}

fn print_updates(
    names: &[String],
    request: &fodo_net::PvRequest,
    mut printer: UpdatePrinter<'_>,
    outlet: &mut OutputStreams<'_>,
) -> io::Result<u8> {
    let channels: Vec<String> = names.iter().map(|name| pv_access(name)).collect();
    let monitors = match context().and_then(|context| StructureMonitors::start(&context, &channels, request)) {
        Ok(monitors) => monitors,
        Err(error) => {
            writeln!(outlet.err, "Error: {}", message(&error))?;
            return Ok(1);
        }
    };
    stop::on_signal(monitors.stopper())?;
    let mut n_left = names.len();
    while n_left > 0 {
        match monitors.next(Duration::from_secs(3600)) {
            Some(StreamEvent::Event(pv, MonitorEvent::Refused(refusal))) => {
                let text = match refusal {
                    fodo_net::Refusal::Reported { text } => text.to_string(),
                    other => other.to_string(),
                };
                writeln!(outlet.err, "{}Error {text}", printer.name(&names[pv]))?;
                n_left -= 1;
            }
            Some(StreamEvent::Event(pv, event)) => {
                outlet.out.write_all(printer.event(pv, &event).as_bytes())?;
                outlet.out.flush()?;
            }
            Some(StreamEvent::Stop) => return Ok(u8::from(n_left < names.len())),
            None => {}
        }
    }
    Ok(1)
}

/// Prints lines and keeps which fields were received.
pub(super) struct UpdatePrinter<'a> {
    names: &'a [String],
    width: usize,
    mode: OutputMode,
    verbosity: u32,
    clock: &'a Clock,
    received: Vec<BitSet>,
}

impl<'a> UpdatePrinter<'a> {
    /// Creates the state before the first event.
    pub(super) fn new(names: &'a [String], options: &PvOptions, clock: &'a Clock) -> UpdatePrinter<'a> {
        UpdatePrinter {
            names,
            width: names.iter().map(String::len).max().unwrap_or(0),
            mode: options.mode,
            verbosity: options.verbosity,
            clock,
            received: vec![BitSet::new(); names.len()],
        }
    }

    /// The name in its column.
    fn name(&self, name: &str) -> String {
        format!("{name:<0$} ", self.width)
    }

    /// The text of what a get returned.
    fn reading(&self, name: &str, structure: &Structure) -> String {
        let shown = structure.changed();
        match self.verbosity {
            0 | 1 => self.text(name, structure, shown, None),
            _ => self.text(name, structure, &all(), Some(shown)),
        }
    }

    /// The text of an event; empty if it has none.
    pub(super) fn event(&mut self, pv: usize, event: &MonitorEvent<Structure>) -> String {
        let name = self.names[pv].clone();
        match event {
            MonitorEvent::Update(structure) => {
                let changed = structure.changed();
                self.received[pv].union_with(changed);
                match self.verbosity {
                    0 | 1 => self.text(&name, structure, changed, None),
                    2 => self.text(&name, structure, &self.received[pv], Some(changed)),
                    _ => self.text(&name, structure, &all(), Some(changed)),
                }
            }
            MonitorEvent::Disconnected => {
                self.received[pv].clear();
                format!("{}<Disconnect>\n", self.name(&name))
            }
            _ => String::new(),
        }
    }

    fn text(&self, name: &str, structure: &Structure, shown: &BitSet, highlighted: Option<&BitSet>) -> String {
        // Bold only at a terminal, as by pvData.
        let highlighted = highlighted.filter(|_| io::IsTerminal::is_terminal(&io::stdout()));
        let options = PrintOptions { mode: self.mode, shown, highlighted, clock: self.clock };
        format!("{}{}", self.name(name), pvdata::text(structure, &options))
    }
}

/// The bit of the whole structure.
pub(super) fn all() -> BitSet {
    [0].into_iter().collect()
}
