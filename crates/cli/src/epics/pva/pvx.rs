//! The tools of pvxs: `pvxget`, `pvxmonitor`, `pvxput`, `pvxinfo`, `pvxcall` and `pvxlist`.

use std::io;
use std::time::{Duration, Instant};

use fodo_net::discovery::{self, FoundServers, ServerSearch};
use fodo_net::{MonitorEvent, NodeKind, PvRequest, Scalar, Structure, Value};

use super::assign::{NotANumber, assign_json, changed_fields, parsed};
use super::client::{StructureClient, config, context, is_timeout, message, pv_access, server_address};
use super::monitors::{StreamEvent, StructureMonitors};
use super::options::{VERSION, seconds};
use super::pvcall::is_nothing;
use super::pvdata::{EscapeStyle, escaped};
use super::pvxs;
use crate::epics::OutputStreams;
use crate::epics::getopt::{self, Flag};
use crate::{limit, stop};

pub(super) const GET_FLAGS: &str = "hVvdw:r:#:F:";
pub(super) const MONITOR_FLAGS: &str = "hVvdr:#:F:";
pub(super) const PUT_FLAGS: &str = "hvVdw:r:";
pub(super) const INFO_FLAGS: &str = "hVvdDw:";
pub(super) const CALL_FLAGS: &str = "hVvdw:";
pub(super) const LIST_FLAGS: &str = "hVApivdw:";

/// The text of `pvxget -h`; the flags are those of pvxs.
pub(super) const GET_HELP: &str = "
pvxget [flags] PV...: read PVs of pvAccess, with the output of pvxget

  -h          this help                -V          version
  -r REQUEST  pvRequest, such as 'field(value,alarm)'; all fields by default
  -w SECONDS  timeout for all PVs (5)
  -F FORMAT   delta (received fields, one on each line) or tree (all fields)
  -# COUNT    elements of each array to print (20; 0: all)
  -v          also print the configuration     -d      accepted without effect

Environment: EPICS_PVA_ADDR_LIST and related variables (see fodo get --help)
Exit codes: 0 read, 1 timeout, refused by the server, or invalid flags

Example: pvxget -F tree my:pv
";

/// The text of `pvxmonitor -h`.
pub(super) const MONITOR_HELP: &str = "
pvxmonitor [flags] PV...: print updates of PVs of pvAccess until stopped, as pvxmonitor

  -h          this help                -V          version
  -r REQUEST  pvRequest, such as 'field(value)record[queueSize=10]'
  -F FORMAT   delta (changed fields, one on each line) or tree (all fields)
  -# COUNT    elements of each array to print (0: all; by default all, as by the original)
  -v          also print the configuration     -d      accepted without effect

Environment: EPICS_PVA_ADDR_LIST and related variables (see fodo get --help)
Exit codes: 2 stopped by a signal, 1 invalid flags

Example: pvxmonitor my:pv another:pv
";

/// The text of `pvxput -h`.
pub(super) const PUT_HELP: &str = "
pvxput [flags] PV VALUE:          write the field value; VALUE may be JSON: [1, 2]
pvxput [flags] PV '{..}':         write the fields that a JSON object names
pvxput [flags] PV FIELD=VALUE...: write these fields, such as value.index=1

  -h          this help                -V          version
  -r REQUEST  pvRequest, such as 'record[process=true]'
  -w SECONDS  timeout (5)
  -v          also print the configuration     -d      accepted without effect

Environment: EPICS_PVA_ADDR_LIST and related variables (see fodo get --help)
Exit codes: 0 written, 1 timeout, invalid value, refused by the server, or invalid flags

Example: pvxput my:pv 1.5
";

/// The text of `pvxinfo -h`.
pub(super) const INFO_HELP: &str = "
pvxinfo [flags] PV...: print the servers and types of PVs of pvAccess, as pvxinfo

  -h          this help                -V          version
  -D          version and system of this program
  -w SECONDS  timeout for all PVs (5)
  -v          also print the configuration     -d      accepted without effect

Environment: EPICS_PVA_ADDR_LIST and related variables (see fodo get --help)
Exit codes: 0 printed, 1 timeout, or invalid flags

Example: pvxinfo my:pv
";

/// The text of `pvxcall -h`.
pub(super) const CALL_HELP: &str = "
pvxcall [flags] PV NAME=VALUE...: call a procedure of pvAccess with texts, as pvxcall

  -h          this help                -V          version
  -w SECONDS  timeout (5)
  -v          also print the configuration     -d      accepted without effect

Environment: EPICS_PVA_ADDR_LIST and related variables (see fodo get --help)
Exit codes: 0 called, 1 timeout, refused by the server, or invalid flags

Example: pvxcall my:add lhs=1 rhs=2
";

/// The text of `pvxlist -h`.
pub(super) const LIST_HELP: &str = "
pvxlist [flags]:              list the servers of pvAccess that reply, as pvxlist
pvxlist [flags] HOST[:PORT]...: list the PVs of servers

  -h          this help                -V          version
  -i          print version and language of servers instead of their PVs
  -w SECONDS  how long to wait for replies (5; 0: until a signal)
  -v          all replies with GUID and version; with servers, their addresses as well
  -A          send a search (default)
  -p          refused: the original only listens for beacons; fodo search --watch does
  -d          accepted without effect

Environment: EPICS_PVA_ADDR_LIST and related variables (see fodo get --help)
Exit codes: 0 listed, 1 invalid flags

Example: pvxlist $(pvxlist -w 1)
";

/// Elements of an array that pvxget prints by default. pvxmonitor prints all.
const ELEMENTS: usize = 20;

/// A tool of pvxs: its name, its flags and its help.
struct PvxTool {
    name: &'static str,
    flags: &'static str,
    help: &'static str,
}

/// The values of the flags.
struct PvxOptions {
    timeout: Duration,
    request: PvRequest,
    is_tree: bool,
    count_max: usize,
    is_verbose: bool,
    with_info: bool,
}

impl PvxTool {
    /// Parses the command line. The inner `Err` is the exit code to end with immediately.
    fn parse(
        &self,
        arguments: &[String],
        outlet: &mut OutputStreams<'_>,
    ) -> io::Result<Result<(PvxOptions, Vec<String>), u8>> {
        let (flags, words) = getopt::parse(arguments, self.flags, false);
        let mut options = PvxOptions {
            timeout: Duration::from_secs(5),
            request: PvRequest::default(),
            is_tree: false,
            count_max: if self.name == "pvxget" { ELEMENTS } else { usize::MAX },
            is_verbose: false,
            with_info: false,
        };
        for flag in &flags {
            if let Err(code) = self.take(flag, &mut options, outlet)? {
                return Ok(Err(code));
            }
        }
        Ok(Ok((options, words)))
    }

    fn take(
        &self,
        flag: &Flag,
        options: &mut PvxOptions,
        outlet: &mut OutputStreams<'_>,
    ) -> io::Result<Result<(), u8>> {
        let invalid = |text: &str, hint: &str, outlet: &mut OutputStreams<'_>| {
            writeln!(outlet.err, "Error: Invalid input : \"{text}\"{hint}").map(|()| Err(1))
        };
        match flag {
            Flag::Unknown(letter) => {
                writeln!(outlet.err, "{}: invalid option -- '{letter}'", self.name)?;
                return self.misused("Unknown argument: ?", outlet).map(Err);
            }
            Flag::ValueMissing(letter) => {
                writeln!(outlet.err, "{}: option requires an argument -- '{letter}'", self.name)?;
                return self.misused("Unknown argument: ?", outlet).map(Err);
            }
            Flag::Set('h', _) => {
                outlet.err.write_all(self.help.as_bytes())?;
                return Ok(Err(0));
            }
            Flag::Set('V', _) => {
                writeln!(outlet.out, "{VERSION}")?;
                return Ok(Err(0));
            }
            Flag::Set('D', _) => {
                let (os, processor) = (std::env::consts::OS, std::env::consts::ARCH);
                writeln!(outlet.out, "{VERSION}\n{os} {processor}")?;
                return Ok(Err(0));
            }
            Flag::Set('p', _) => {
                writeln!(
                    outlet.err,
                    "Error: -p is not supported: pvxlist sends a search; fodo search --watch only listens"
                )?;
                return Ok(Err(1));
            }
            Flag::Set('v', _) => options.is_verbose = true,
            Flag::Set('i', _) => options.with_info = true,
            Flag::Set('w', text) => match seconds(text) {
                Some(timeout) => options.timeout = timeout,
                None => return invalid(text, " : stod", outlet),
            },
            Flag::Set('#', text) => match text.parse() {
                Ok(count) => options.count_max = count,
                Err(_) => return invalid(text, "", outlet),
            },
            Flag::Set('F', format) => match format.as_str() {
                "tree" => options.is_tree = true,
                "delta" => options.is_tree = false,
                _ => writeln!(outlet.err, "Warning: ignoring unknown format '{format}'")?,
            },
            Flag::Set('r', text) => match PvRequest::parse(text) {
                Ok(request) => options.request = request,
                Err(error) => {
                    writeln!(outlet.err, "Error: {error}")?;
                    return Ok(Err(1));
                }
            },
            Flag::Set(..) => {}
        }
        Ok(Ok(()))
    }

    /// Prints the help and what is wrong with the command line.
    fn misused(&self, reason: &str, outlet: &mut OutputStreams<'_>) -> io::Result<u8> {
        writeln!(outlet.err, "{}\n{reason}", self.help)?;
        Ok(1)
    }
}

impl PvxOptions {
    fn text(&self, structure: &Structure) -> String {
        match self.is_tree {
            true => pvxs::tree(structure, 1, self.count_max),
            false => pvxs::delta(structure, 1, self.count_max),
        }
    }

    /// Prints the configuration if requested.
    fn print_config(&self, outlet: &mut OutputStreams<'_>) -> io::Result<()> {
        if !self.is_verbose {
            return Ok(());
        }
        writeln!(outlet.out, "Effective config")?;
        for setting in fodo_net::config::settings() {
            if let (name, Ok(value)) = (setting.variable.name, &setting.value)
                && name.starts_with("EPICS_PVA_")
            {
                writeln!(outlet.out, "{name}={value}")?;
            }
        }
        Ok(())
    }
}

/// Runs `pvxget`; returns its exit code.
pub fn get(arguments: &[String], client: &mut dyn StructureClient, outlet: &mut OutputStreams<'_>) -> io::Result<u8> {
    let tool = PvxTool { name: "pvxget", flags: GET_FLAGS, help: GET_HELP };
    let (options, names) = match tool.parse(arguments, outlet)? {
        Ok(parsed) => parsed,
        Err(code) => return Ok(code),
    };
    options.print_config(outlet)?;
    let (mut code, mut n_outstanding) = (0, 0);
    for (name, result) in names.iter().zip(client.get(&names, &options.request, options.timeout)) {
        match result {
            Ok(structure) => write!(outlet.out, "{name}\n{}", options.text(&structure))?,
            Err(error) if is_timeout(&error) => n_outstanding += 1,
            Err(error) => {
                writeln!(outlet.err, "{name} Error: {}", message(&error))?;
                code = 1;
            }
        }
    }
    if n_outstanding > 0 || names.is_empty() {
        writeln!(outlet.err, "Timeout with {n_outstanding} outstanding")?;
        code = 1;
    }
    Ok(code)
}

/// Runs `pvxinfo`; returns its exit code.
pub fn info(arguments: &[String], client: &mut dyn StructureClient, outlet: &mut OutputStreams<'_>) -> io::Result<u8> {
    let tool = PvxTool { name: "pvxinfo", flags: INFO_FLAGS, help: INFO_HELP };
    let (options, names) = match tool.parse(arguments, outlet)? {
        Ok(parsed) => parsed,
        Err(code) => return Ok(code),
    };
    options.print_config(outlet)?;
    let mut has_timed_out = names.is_empty();
    for (name, result) in names.iter().zip(client.describe(&names, options.timeout)) {
        match result {
            Ok((server, kind)) => write!(outlet.out, "{name} from {server}\n{}", pvxs::type_tree(&kind))?,
            Err(error) if is_timeout(&error) => has_timed_out = true,
            Err(error) => writeln!(outlet.out, "{name} Error: {}", message(&error))?,
        }
    }
    if has_timed_out {
        writeln!(outlet.err, "Timeout")?;
    }
    Ok(u8::from(has_timed_out))
}

/// Runs `pvxput`; returns its exit code.
pub fn put(arguments: &[String], client: &mut dyn StructureClient, outlet: &mut OutputStreams<'_>) -> io::Result<u8> {
    let tool = PvxTool { name: "pvxput", flags: PUT_FLAGS, help: PUT_HELP };
    let (options, words) = match tool.parse(arguments, outlet)? {
        Ok(parsed) => parsed,
        Err(code) => return Ok(code),
    };
    let (name, values) = match words.split_first() {
        Some((name, values)) if !values.is_empty() => (name, values),
        _ => return tool.misused("Expected PV name and at least one value", outlet),
    };
    let pairs = match pairs(values) {
        Ok(pairs) => pairs,
        Err(word) => {
            let word = escaped(word.as_bytes(), EscapeStyle::Pvxs);
            writeln!(outlet.err, "Error: expected <fld>=<value> not \"{word}\"")?;
            return Ok(1);
        }
    };
    options.print_config(outlet)?;
    let described = client.describe(std::slice::from_ref(name), options.timeout).pop();
    let written = match described {
        Some(Ok((_, kind))) => {
            let mut into = Structure::new(kind);
            match pairs.iter().try_for_each(|(path, text)| assign(&mut into, path, text)) {
                Ok(()) => client.put(name, &options.request, changed_fields(&into), options.timeout),
                Err(reason) => {
                    writeln!(outlet.err, "Error St13runtime_error : {reason}")?;
                    return Ok(1);
                }
            }
        }
        Some(Err(error)) => Err(error),
        None => Ok(()),
    };
    report(written.err(), outlet)
}

/// The fields and values of a put; the error is a word that is not `FIELD=VALUE`.
fn pairs(words: &[String]) -> Result<Vec<(&str, &str)>, &str> {
    match words {
        [word] if !word.contains('=') || word.starts_with('{') => {
            Ok(vec![(if word.starts_with('{') { "" } else { "value" }, word)])
        }
        words => {
            // In the order of their names, as pvxput assigns them.
            let mut pairs =
                words.iter().map(|word| word.split_once('=').ok_or(word.as_str())).collect::<Result<Vec<_>, _>>()?;
            pairs.sort_by_key(|&(path, _)| path);
            Ok(pairs)
        }
    }
}

fn assign(into: &mut Structure, path: &str, text: &str) -> Result<(), String> {
    let of = |reason: String| {
        format!("Unable to assign {path} from \"{}\" : {reason}", escaped(text.as_bytes(), EscapeStyle::Pvxs))
    };
    let kind = into.kind().clone();
    let bit = kind.node(path).ok_or_else(|| of(format!("no such member field '{path}'")))?;
    if text.starts_with(['{', '[', '"']) {
        let json = serde_json::from_str(text).map_err(|error| of(error.to_string()))?;
        return assign_json(into, bit, &json).map_err(of);
    }
    match &kind.nodes()[bit].kind {
        NodeKind::Scalar(scalar) => {
            let element = parsed(*scalar, text).map_err(|error| of(invalid(*scalar, text, error)))?;
            into.set_value(bit, Value::Scalar(element)).map_err(|error| of(error.to_string()))
        }
        NodeKind::BoundedText(_) => {
            let text = Value::Scalar(Scalar::Text(text.into()));
            into.set_value(bit, text).map_err(|error| of(error.to_string()))
        }
        _ => Err(of(format!("Unable to assign {} with String", pvxs::type_word(&kind, bit)))),
    }
}

/// The words of pvxs for a text that is not a number.
fn invalid(kind: fodo_net::Kind, text: &str, error: NotANumber) -> String {
    let is_real = matches!(kind, fodo_net::Kind::F32 | fodo_net::Kind::F64);
    let hint = match error {
        NotANumber::TooLarge => " : out of range",
        _ if is_real => " : stod",
        _ => "",
    };
    format!("Invalid input : \"{}\"{hint}", escaped(text.as_bytes(), EscapeStyle::Pvxs))
}

/// Reports the failure of an operation; returns the exit code.
fn report(failure: Option<fodo_net::Error>, outlet: &mut OutputStreams<'_>) -> io::Result<u8> {
    match failure {
        None => Ok(0),
        Some(error) => {
            if is_timeout(&error) {
                writeln!(outlet.err, "Timeout")?;
            } else {
                // As the original prints the name of its exception.
                writeln!(outlet.err, "Error N4pvxs6client11RemoteErrorE : {}", message(&error))?;
            }
            Ok(1)
        }
    }
}

/// Runs `pvxcall`; returns its exit code.
pub fn call(arguments: &[String], client: &mut dyn StructureClient, outlet: &mut OutputStreams<'_>) -> io::Result<u8> {
    let tool = PvxTool { name: "pvxcall", flags: CALL_FLAGS, help: CALL_HELP };
    let (options, words) = match tool.parse(arguments, outlet)? {
        Ok(parsed) => parsed,
        Err(code) => return Ok(code),
    };
    let Some((name, words)) = words.split_first() else { return tool.misused("Expected PV name", outlet) };
    let mut pairs: Vec<(&str, &str)> = Vec::new();
    for word in words {
        let Some((key, text)) = word.split_once('=') else {
            let word = escaped(word.as_bytes(), EscapeStyle::Pvxs);
            writeln!(outlet.err, "Error: expected <fld>=<value> not \"{word}\"")?;
            return Ok(1);
        };
        if pairs.iter().any(|(known, _)| *known == key) {
            writeln!(outlet.err, "Error: duplicate argument name {key}")?;
            return Ok(1);
        }
        pairs.push((key, text));
    }
    options.print_config(outlet)?;
    let mut argument = discovery::query(name, &pairs);
    // pvxs sends no scheme.
    let _ = argument.set("scheme", "");
    match client.call(name, argument, options.timeout) {
        Ok(result) => {
            if !is_nothing(&result) {
                outlet.out.write_all(pvxs::tree(&result, 0, 0).as_bytes())?;
            }
            Ok(0)
        }
        Err(error) => report(Some(error), outlet),
    }
}

/// Runs `pvxmonitor`; returns its exit code.
pub fn monitor(arguments: &[String], outlet: &mut OutputStreams<'_>) -> io::Result<u8> {
    let tool = PvxTool { name: "pvxmonitor", flags: MONITOR_FLAGS, help: MONITOR_HELP };
    let (options, names) = match tool.parse(arguments, outlet)? {
        Ok(parsed) => parsed,
        Err(code) => return Ok(code),
    };
    options.print_config(outlet)?;
    let channels: Vec<String> = names.iter().map(|name| pv_access(name)).collect();
    let monitors = match context().and_then(|context| StructureMonitors::start(&context, &channels, &options.request)) {
        Ok(monitors) => monitors,
        Err(error) => {
            writeln!(outlet.err, "Error: {}", message(&error))?;
            return Ok(1);
        }
    };
    stop::on_signal(monitors.stopper())?;
    loop {
        match monitors.next(Duration::from_secs(3600)) {
            Some(StreamEvent::Event(pv, event)) => {
                print_event(&names[pv], &event, &options, outlet)?;
                outlet.out.flush()?;
            }
            Some(StreamEvent::Stop) => {
                if options.is_verbose {
                    writeln!(outlet.err, "Interrupted")?;
                }
                return Ok(2);
            }
            None => {}
        }
    }
}

fn print_event(
    name: &str,
    event: &MonitorEvent<Structure>,
    options: &PvxOptions,
    outlet: &mut OutputStreams<'_>,
) -> io::Result<()> {
    match event {
        MonitorEvent::Update(structure) => write!(outlet.out, "{name}\n{}", options.text(structure)),
        MonitorEvent::Connected(facts) => writeln!(outlet.err, "{name} Connected to {}", facts.server),
        MonitorEvent::Disconnected => writeln!(outlet.err, "{name} Disconnected"),
        MonitorEvent::Refused(fodo_net::Refusal::Reported { text }) => {
            writeln!(outlet.err, "{name} Error N4pvxs6client11RemoteErrorE : {text}")
        }
        _ => Ok(()),
    }
}

/// The text of `pvxmonitor` for an event, for the comparison with the original.
#[cfg(test)]
pub(super) fn event_text(
    arguments: &[String],
    event: &MonitorEvent<Structure>,
    outlet: &mut OutputStreams<'_>,
) -> io::Result<()> {
    let tool = PvxTool { name: "pvxmonitor", flags: MONITOR_FLAGS, help: MONITOR_HELP };
    match tool.parse(arguments, outlet)? {
        Ok((options, names)) => print_event(&names[0], event, &options, outlet),
        Err(_) => Ok(()),
    }
}

/// Runs `pvxlist`; returns its exit code.
pub fn list(arguments: &[String], outlet: &mut OutputStreams<'_>) -> io::Result<u8> {
    let tool = PvxTool { name: "pvxlist", flags: LIST_FLAGS, help: LIST_HELP };
    let (options, servers) = match tool.parse(arguments, outlet)? {
        Ok(parsed) => parsed,
        Err(code) => return Ok(code),
    };
    if options.with_info && servers.is_empty() {
        return tool.misused("Error: -i requires at least one server", outlet);
    }
    let config = match config() {
        Ok(config) => config,
        Err(reason) => {
            writeln!(outlet.err, "Error: {reason}")?;
            return Ok(1);
        }
    };
    if servers.is_empty() {
        return print_servers(&config, &options, outlet);
    }
    for server in &servers {
        let failed = |reason: String, outlet: &mut OutputStreams<'_>| writeln!(outlet.err, "From {server} : {reason}");
        let address = match server_address(server) {
            Ok(address) => address,
            Err(reason) => {
                failed(reason, outlet)?;
                continue;
            }
        };
        if options.with_info {
            match discovery::about(&config, address, options.timeout) {
                Ok(about) => writeln!(outlet.out, "{server}{}", about_text(&about))?,
                Err(error) => failed(message(&error), outlet)?,
            }
            continue;
        }
        match discovery::names(&config, address, options.timeout) {
            Ok(names) => {
                if options.is_verbose {
                    writeln!(outlet.out, "# From {server}")?;
                }
                names.iter().try_for_each(|name| writeln!(outlet.out, "{name}"))?;
            }
            Err(error) => failed(message(&error), outlet)?,
        }
    }
    Ok(0)
}

fn about_text(about: &Structure) -> String {
    let part = |label: &str, path: &str| match about.get(path) {
        Some(Value::Scalar(Scalar::Text(text))) => {
            format!(" {label}=\"{}\"", escaped(text.as_bytes(), EscapeStyle::Pvxs))
        }
        _ => String::new(),
    };
    part("version", "version") + &part("lang", "implLang")
}

fn print_servers(
    config: &fodo_net::ClientConfig,
    options: &PvxOptions,
    outlet: &mut OutputStreams<'_>,
) -> io::Result<u8> {
    let until = Instant::now() + options.timeout.min(limit::FOREVER);
    let (mut search, mut servers) = (ServerSearch::start(config)?, FoundServers::default());
    while let Some(reply) = search.next(until)? {
        let is_first = servers.add(&reply);
        if options.is_verbose {
            let (guid, transport) = (reply.guid.to_string().to_lowercase(), &reply.transport);
            let (address, version, source) = (reply.address, reply.version, reply.source);
            writeln!(
                outlet.out,
                "ONLINE  guid: {guid} proto: {transport} server: {address} ver: {version} via: {source}"
            )?;
        } else if is_first && matches!(reply.transport.as_bytes(), b"tcp" | b"tls") {
            writeln!(outlet.out, "{}", reply.address)?;
        }
        outlet.out.flush()?;
    }
    if let Some(notice) = search.ipv6_failure() {
        writeln!(outlet.err, "{notice}")?;
    }
    Ok(0)
}
