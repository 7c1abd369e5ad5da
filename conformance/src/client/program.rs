//! Our program as a client: a process for each operation and each monitor.

use std::collections::HashMap;
use std::ffi::OsString;
use std::process::Command;
use std::time::{Duration, Instant};

use fodo_data::EventMask;
use fodo_net::Protocol;
use serde_json::{Map, Value as Json, json};

use super::{AnyTypeRequest, ChannelProperties, Client, MonitorForm, OPERATION_DURATION_MAX, Sample, ValueForm};
use crate::TestFailure;
use crate::process::{Process, printed_by};

/// Additional time for a process to start and to end.
const GRACE: Duration = Duration::from_secs(10);

/// `fodo get`, `put`, `monitor`, `info` and `call`, with names such as `pva://x:y`.
pub struct ProgramClient {
    program: OsString,
    /// The variables to set or, without a value, to remove.
    environment: Vec<(OsString, Option<OsString>)>,
    protocol: Protocol,
    /// The types of PVs that are structures.
    types: HashMap<String, Json>,
    monitors: Vec<Option<ProgramMonitor>>,
}

struct ProgramMonitor {
    process: Process,
    /// The type of the PV if its updates are structures.
    kind: Option<Json>,
}

impl ProgramClient {
    /// The client with the program and the environment of `command`.
    pub fn new(command: &Command, protocol: Protocol) -> ProgramClient {
        let environment = command.get_envs().map(|(name, value)| (name.to_owned(), value.map(OsString::from)));
        ProgramClient {
            program: command.get_program().to_owned(),
            environment: environment.collect(),
            protocol,
            types: HashMap::new(),
            monitors: Vec::new(),
        }
    }

    /// The command with this verb, and the name with the scheme of the protocol.
    fn command(&self, verb: &str, flags: &[&str], pv: &str) -> Command {
        let mut command = Command::new(&self.program);
        for (name, value) in &self.environment {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.args([verb, "--json", "--timeout"]).arg(OPERATION_DURATION_MAX.as_secs().to_string()).args(flags);
        command.arg(format!("{}://{pv}", self.protocol));
        command
    }

    fn printed(&self, mut command: Command) -> Result<Json, TestFailure> {
        let printed = printed_by("fodo", &mut command, OPERATION_DURATION_MAX + GRACE)?;
        parsed(&printed)
    }

    /// The type of a PV that is a structure.
    fn type_of(&mut self, pv: &str) -> Result<Json, TestFailure> {
        if let Some(kind) = self.types.get(pv) {
            return Ok(kind.clone());
        }
        let about = self.printed(self.command("info", &[], pv))?;
        let text = about["type"].as_str().ok_or_else(|| format!("{pv} is not a structure: {about}"))?;
        let kind = json!({ "id": about["id"], "members": members(text) });
        self.types.insert(pv.to_owned(), kind.clone());
        Ok(kind)
    }

    /// Runs a verb with these words after the name.
    fn run(&self, verb: &str, flags: &[&str], pv: &str, words: &[String]) -> Result<String, TestFailure> {
        let mut command = self.command(verb, flags, pv);
        command.args(words);
        printed_by(&format!("fodo {verb}"), &mut command, OPERATION_DURATION_MAX + GRACE)
    }
}

impl Client for ProgramClient {
    fn connect(&mut self, pv: &str) -> Result<ChannelProperties, TestFailure> {
        let about = self.printed(self.command("info", &[], pv))?;
        Ok(ChannelProperties {
            kind: pva_kind(about["kind"].as_str().unwrap_or_default()).into(),
            count: about["count_max"].as_u64().unwrap_or(0),
            may_write: about["write"].as_bool().unwrap_or_default(),
        })
    }

    fn get(&mut self, pv: &str, shape: ValueForm) -> Result<Sample, TestFailure> {
        let flags: &[&str] = match shape {
            ValueForm::Control => &["--meta", "--numeric"],
            ValueForm::Value => &["--numeric"],
            ValueForm::Text => &[],
            ValueForm::LongText => &["--string"],
        };
        sample(&self.printed(self.command("get", flags, pv))?)
    }

    fn put(&mut self, pv: &str, value: &Json, wait: bool) -> Result<(), TestFailure> {
        let flags: &[&str] = if wait { &["--quiet"] } else { &["--quiet", "--no-wait"] };
        let mut command = self.command("put", flags, pv);
        // With an equals sign, because a negative number would be taken for a flag.
        command.arg(format!("--from-json={value}"));
        printed_by("fodo put", &mut command, OPERATION_DURATION_MAX + GRACE).map(|_| ())
    }

    fn put_pattern(&mut self, pv: &str, _first: i32, _count: usize) -> Result<(), TestFailure> {
        Err(format!("{pv}: an argument of a command holds no large array"))
    }

    fn process(&mut self, pv: &str, value: &Json) -> Result<(), TestFailure> {
        let flags = ["--quiet", "--request", "record[process=true]"];
        self.run("put", &flags, pv, &[format!("--from-json={value}")]).map(|_| ())
    }

    fn request(&mut self, pv: &str, request: AnyTypeRequest) -> Result<Json, TestFailure> {
        let words = |fields: &Json| -> Vec<String> {
            fields.as_object().into_iter().flatten().map(|(name, value)| format!("{name}={value}")).collect()
        };
        match request {
            AnyTypeRequest::Describe => self.type_of(pv),
            AnyTypeRequest::Get => {
                let kind = self.type_of(pv)?;
                let mut read = self.printed(self.command("get", &[], pv))?;
                Ok(without_members(read["structure"].take(), &kind["members"]))
            }
            AnyTypeRequest::Put(fields) => self.run("put", &["--quiet"], pv, &words(fields)).map(|_| Json::Null),
            AnyTypeRequest::PutUnion(member, value) => {
                let union = Map::from_iter([(member.to_owned(), value.clone())]);
                self.run("put", &["--quiet"], pv, &words(&json!({ "value": union }))).map(|_| Json::Null)
            }
            AnyTypeRequest::Call(query) => {
                let mut result = parsed(&self.run("call", &[], pv, &words(query))?)?;
                Ok(result["structure"].take())
            }
            AnyTypeRequest::Process => Err(format!("{pv}: the program has no request for processing")),
        }
    }

    fn subscribe(&mut self, pv: &str, form: MonitorForm) -> Result<usize, TestFailure> {
        let letters =
            [(EventMask::VALUE, 'v'), (EventMask::ALARM, 'a'), (EventMask::LOG, 'l'), (EventMask::PROPERTY, 'p')];
        let letters = letters.into_iter().filter(|(bit, _)| form.mask.0 & bit.0 != 0).map(|(_, letter)| letter);
        let letters: String = letters.collect();
        let kind = if form.is_structure { Some(self.type_of(pv)?) } else { None };
        let mut command = self.command("monitor", &["--numeric", "--mask", &letters], pv);
        if let Some(window) = form.window {
            command.args(["--request", &format!("record[pipeline=true,queueSize={window}]")]);
        }
        let process = Process::start("fodo monitor", &mut command)?;
        self.monitors.push(Some(ProgramMonitor { process, kind }));
        Ok(self.monitors.len() - 1)
    }

    fn end_monitors(&mut self) -> Result<(), TestFailure> {
        self.monitors.iter_mut().for_each(|monitor| *monitor = None);
        Ok(())
    }

    fn take(&mut self, monitor: usize, count: usize, timeout: Duration) -> Result<Vec<Sample>, TestFailure> {
        let monitor = self.monitors.get_mut(monitor).and_then(Option::as_mut).ok_or("unknown monitor")?;
        let deadline = Instant::now() + timeout;
        let mut samples = Vec::new();
        while samples.len() < count {
            let left = deadline.saturating_duration_since(Instant::now());
            let line = match monitor.process.line(left) {
                Ok(line) => line,
                Err(_) if Instant::now() >= deadline => break,
                Err(failure) => return Err(failure),
            };
            let mut event = parsed(&line)?;
            match (event["event"].as_str(), &monitor.kind) {
                (Some("update"), Some(kind)) => {
                    let value = without_members(event["structure"].take(), &kind["members"]);
                    samples.push(Sample { value, ..Sample::default() });
                }
                // With a pvRequest the program prints the structure of any PV.
                (Some("update"), None) if event["structure"].is_object() => {
                    samples.push(Sample { value: event["structure"]["value"].take(), ..Sample::default() });
                }
                (Some("update"), None) => samples.push(sample(&event)?),
                // The other clients do not report these in their stream of updates.
                (Some("connected" | "disconnected" | "rights"), _) => {}
                _ => return Err(format!("fodo monitor printed {line}")),
            }
        }
        Ok(samples)
    }
}

fn parsed(line: &str) -> Result<Json, TestFailure> {
    serde_json::from_str(line).map_err(|error| format!("{line}: {error}"))
}

/// The members of a printed type, by name: a name of a type, or the members of a structure or union.
fn members(text: &str) -> Json {
    let lines: Vec<&str> = text.lines().skip(1).collect();
    let indent = |line: &str| line.len() - line.trim_start().len();
    let mut by_name = Map::new();
    let mut next = 0;
    while let Some(line) = lines.get(next) {
        let inner = lines.iter().skip(next + 1).take_while(|inner| indent(inner) > indent(line)).count();
        let inside = members(&lines[next..=next + inner].join("\n"));
        let (kind, name) = line.trim().split_once(' ').unwrap_or_default();
        let kind = match kind {
            "union" => json!({ "union": inside }),
            kind if inner == 0 => json!(kind),
            _ => inside,
        };
        by_name.insert(name.to_owned(), kind);
        next += inner + 1;
    }
    Json::Object(by_name)
}

/// A structure of this type in which each union is the value that it contains. The program prints a union as an object with
/// the selected member.
fn without_members(value: Json, kind: &Json) -> Json {
    match (value, kind) {
        (Json::Object(union), Json::Object(kind)) if kind.contains_key("union") => union
            .into_iter()
            .next()
            .map_or(Json::Null, |(member, value)| without_members(value, &kind["union"][&member])),
        (Json::Object(structure), kind @ Json::Object(_)) => {
            let members = structure.into_iter().map(|(name, value)| {
                let value = without_members(value, &kind[&name]);
                (name, value)
            });
            Json::Object(members.collect())
        }
        (value, _) => value,
    }
}

/// The name in pvAccess of a kind that the program prints.
fn pva_kind(printed: &str) -> &str {
    match printed {
        "char" => "ubyte",
        "int8" => "byte",
        "bool" => "boolean",
        "uint16" => "ushort",
        "long" => "int",
        "uint32" => "uint",
        "int64" => "long",
        "uint64" => "ulong",
        same => same,
    }
}

fn sample(printed: &Json) -> Result<Sample, TestFailure> {
    let severities = ["NO_ALARM", "MINOR", "MAJOR", "INVALID"];
    let severity = printed["severity"].as_str().and_then(|name| severities.iter().position(|known| *known == name));
    let meta = &printed["meta"];
    let labels = meta["states"].as_array().filter(|states| !states.is_empty());
    let limits = ["display", "alarm", "warning", "control"].map(|name| meta[name].clone());
    Ok(Sample {
        value: printed["value"].clone(),
        severity: severity.map(|severity| severity as u64),
        time_ns: printed["time"].as_str().map(unix_ns).transpose()?,
        units: printed["units"].as_str().map(str::to_owned),
        precision: meta["precision"].as_i64(),
        labels: labels.map(|states| states.iter().filter_map(Json::as_str).map(str::to_owned).collect()),
        limits: meta.is_object().then(|| json!(limits)),
    })
}

/// Nanoseconds since 1970 of a time such as `2027-01-15T08:00:00.000000005Z`.
fn unix_ns(text: &str) -> Result<i128, TestFailure> {
    let numbers = text.split(|character: char| !character.is_ascii_digit()).filter(|digits| !digits.is_empty());
    let numbers: Vec<i128> = numbers.filter_map(|digits| digits.parse().ok()).collect();
    let [year, month, day, hour, minute, second, nanos] = numbers.as_slice() else {
        return Err(format!("\"{text}\" is not a time with nanoseconds"));
    };
    // Days since 1970 in the Gregorian calendar, with years that begin in March, so that a leap day is the last.
    let (year, month) = if *month > 2 { (*year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 719_469;
    Ok((((days * 24 + hour) * 60 + minute) * 60 + second) * 1_000_000_000 + nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_printed_time_is_converted_to_nanoseconds_since_1970() {
        assert_eq!(unix_ns("1970-01-01T00:00:00.000000007Z"), Ok(7));
        assert_eq!(unix_ns("2027-01-15T08:00:00.000000005Z"), Ok(1_800_000_000_000_000_005));
        assert_eq!(unix_ns("2024-02-29T23:59:59.000000000Z"), Ok(1_709_251_199_000_000_000));
        assert!(unix_ns("yesterday").is_err());
    }

    #[test]
    fn the_members_of_a_printed_type_are_nested_and_its_unions_are_what_they_contain() {
        let text = "scan_t\n    double[] points\n    alarm_t alarm\n        int severity\n    union value\n        string text\n    any more\n";
        let value =
            json!({ "points": [1.5], "alarm": { "severity": 2 }, "value": { "text": "hi" }, "more": { "a": 1 } });

        let kind = members(text);

        let union = json!({ "union": { "text": "string" } });
        let alarm = json!({ "severity": "int" });
        assert_eq!(kind, json!({ "points": "double[]", "alarm": alarm, "value": union, "more": "any" }));
        let shown = json!({ "points": [1.5], "alarm": { "severity": 2 }, "value": "hi", "more": { "a": 1 } });
        assert_eq!(without_members(value, &kind), shown);
    }

    #[test]
    fn a_printed_reading_becomes_a_sample() {
        let printed = json!({
            "pv": "pva://x", "value": 2.5, "kind": "double", "count": 1, "units": "mm",
            "time": "1970-01-01T00:00:01.000000000Z", "severity": "MAJOR", "status": "HIHI",
            "meta": {"precision": 3, "display": [-10.0, 10.0], "warning": [-6.0, 6.0], "alarm": [-8.0, 8.0],
                     "control": [-10.0, 10.0], "states": []},
        });

        let sample = sample(&printed).unwrap();

        assert_eq!((sample.value, sample.severity, sample.time_ns), (json!(2.5), Some(2), Some(1_000_000_000)));
        assert_eq!((sample.units.as_deref(), sample.precision, sample.labels), (Some("mm"), Some(3), None));
        assert_eq!(sample.limits, Some(json!([[-10.0, 10.0], [-8.0, 8.0], [-6.0, 6.0], [-10.0, 10.0]])));
    }
}
