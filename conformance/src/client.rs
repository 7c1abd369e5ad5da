//! Clients under test, all driven through the same trait.

use std::process::Command;
use std::time::Duration;

use fodo_data::EventMask;
use serde_json::{Value as Json, json};

use crate::process::{Process, restrict_to_loopback};
use crate::server::TestServer;
use crate::{TestFailure, ours, place};

/// Maximum time of any single operation.
pub const OPERATION_DURATION_MAX: Duration = Duration::from_secs(15);

/// Additional time for a client script to report the result.
const GRACE: Duration = Duration::from_secs(10);

/// The program or library of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientKind {
    /// Our Rust API, in the test's own process.
    Fodo,
    /// aioca, on libca.
    Aioca,
    /// pyepics, on libca.
    Pyepics,
    /// caproto's threading client.
    Caproto,
    /// PSI's `ca`, in Java.
    PsiCa,
}

impl ClientKind {
    /// All clients.
    pub const ALL: [ClientKind; 5] =
        [ClientKind::Fodo, ClientKind::Aioca, ClientKind::Pyepics, ClientKind::Caproto, ClientKind::PsiCa];

    /// The name in the reference.
    pub fn text(self) -> &'static str {
        match self {
            ClientKind::Fodo => "Fodo",
            ClientKind::Aioca => "libca: aioca",
            ClientKind::Pyepics => "libca: pyepics",
            ClientKind::Caproto => "caproto",
            ClientKind::PsiCa => "PSI's ca",
        }
    }
}

/// How a client finds servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameSearch {
    /// It searches by UDP at the server's own address.
    Unicast,
    /// It searches by UDP broadcast.
    Broadcast,
    /// It searches by TCP; no server is reachable by UDP.
    NameServer,
}

/// The form in which a value is requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueForm {
    /// As the channel's own kind, with alarm and time.
    Value,
    /// As a string formatted by the server.
    Text,
    /// With units, limits, precision and labels.
    Control,
    /// An array of characters as one text.
    LongText,
}

/// Properties of a channel, known after connecting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelProperties {
    /// The kind of an element, by its Channel Access name, such as `DOUBLE`.
    pub kind: String,
    /// Maximum number of elements.
    pub count: u64,
    /// Whether it is writable.
    pub may_write: bool,
}

/// A value as the client returns it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// The value; more than 1000 elements are summarized as by [`described`].
    pub value: Json,
    /// Alarm severity.
    pub severity: Option<u64>,
    /// Nanoseconds since 1970.
    pub time_ns: Option<i128>,
    /// Units as received.
    pub units: Option<String>,
    /// Number of digits to show.
    pub precision: Option<i64>,
    /// Names of states.
    pub labels: Option<Vec<String>>,
    /// Low and high of display, alarm, warning and control.
    pub limits: Option<Json>,
}

/// The operations of every client. Every call ends within a bounded time.
pub trait Client {
    /// Connects.
    fn connect(&mut self, pv: &str) -> Result<ChannelProperties, TestFailure>;

    /// Reads.
    fn get(&mut self, pv: &str, shape: ValueForm) -> Result<Sample, TestFailure>;

    /// Writes; with `wait`, returns after processing.
    fn put(&mut self, pv: &str, value: &Json, wait: bool) -> Result<(), TestFailure>;

    /// Writes an array of `count` elements of the pattern that begins with `first`, and waits.
    fn put_pattern(&mut self, pv: &str, first: i32, count: usize) -> Result<(), TestFailure>;

    /// Subscribes to these changes and returns the subscription's number.
    fn monitor_masked(&mut self, pv: &str, mask: EventMask) -> Result<usize, TestFailure>;

    /// Subscribes to changes of value and alarm, and returns the subscription's number.
    fn monitor(&mut self, pv: &str) -> Result<usize, TestFailure> {
        self.monitor_masked(pv, EventMask::VALUE | EventMask::ALARM)
    }

    /// Ends all subscriptions.
    fn end_monitors(&mut self) -> Result<(), TestFailure>;

    /// The next `count` updates of a subscription, or those received within `timeout`.
    fn take(&mut self, monitor: usize, count: usize, timeout: Duration) -> Result<Vec<Sample>, TestFailure>;
}

/// Starts a client that finds this server by `way`.
pub fn start(kind: ClientKind, server: &TestServer, way: NameSearch) -> Result<Box<dyn Client>, TestFailure> {
    let mut command = match kind {
        ClientKind::Fodo => return Ok(Box::new(ours::FodoClient::new(server.address(), way))),
        ClientKind::Aioca => python("aioca_client.py"),
        ClientKind::Pyepics => python("pyepics_client.py"),
        ClientKind::Caproto => python("caproto_client.py"),
        ClientKind::PsiCa => java("PsiCaClient.java"),
    };
    restrict_to_loopback(&mut command, server.port);
    match way {
        NameSearch::Unicast => {}
        NameSearch::Broadcast => {
            command.env("EPICS_CA_ADDR_LIST", place::LOOPBACK_BROADCAST.to_string());
        }
        NameSearch::NameServer => {
            command.env("EPICS_CA_SERVER_PORT", place::free_port().to_string());
            command.env("EPICS_CA_NAME_SERVERS", server.address().to_string());
        }
    }
    Ok(Box::new(PeerClient { process: Process::start(&format!("{kind:?} client"), &mut command)? }))
}

fn python(script: &str) -> Command {
    let mut command = Command::new(place::python());
    command.arg("-u").arg(place::script(script));
    command
}

fn java(source: &str) -> Command {
    let mut command = Command::new("java");
    // The quick compiler suits processes that live for seconds. The client's repeater would be a second Java process.
    command.args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m", "-DCA_REPEATER_DISABLE=true", "-cp"]);
    command.arg(place::psi_ca().unwrap_or_default().join("*")).arg(place::script(source));
    command
}

/// Element `index` of a pattern.
pub fn pattern(first: i32, index: usize) -> i32 {
    (index as i32).wrapping_mul(7919).wrapping_add(first)
}

/// The summary of a long array with the pattern that begins with `first`.
pub fn described(first: i32, count: usize) -> Json {
    json!({ "count": count, "first": first, "n_wrong": 0 })
}

/// A script that receives requests and sends answers, one JSON text per line.
struct PeerClient {
    process: Process,
}

impl PeerClient {
    fn exchange(&mut self, request: Json, timeout: Duration) -> Result<Json, TestFailure> {
        self.process.write_line(&request.to_string())?;
        // Libraries print lines of their own; answers are the JSON lines.
        let line = self.process.wait_for_line_starting("{", timeout + GRACE)?;
        let answer: Json = serde_json::from_str(&line).map_err(|error| format!("{line}: {error}"))?;
        match answer.get("error").and_then(Json::as_str) {
            Some(error) => Err(self.process.failure(&format!("{request}: {error}"))),
            None => Ok(answer),
        }
    }
}

impl Client for PeerClient {
    fn connect(&mut self, pv: &str) -> Result<ChannelProperties, TestFailure> {
        let timeout = OPERATION_DURATION_MAX;
        let answer = self.exchange(json!({ "do": "connect", "pv": pv, "timeout": timeout.as_secs() }), timeout)?;
        Ok(ChannelProperties {
            kind: answer["kind"].as_str().unwrap_or_default().to_string(),
            count: answer["count"].as_u64().unwrap_or_default(),
            may_write: answer["may_write"].as_bool().unwrap_or_default(),
        })
    }

    fn get(&mut self, pv: &str, shape: ValueForm) -> Result<Sample, TestFailure> {
        let shape = match shape {
            ValueForm::Value => "value",
            ValueForm::Text => "text",
            ValueForm::Control => "control",
            ValueForm::LongText => "long",
        };
        let timeout = OPERATION_DURATION_MAX;
        let request = json!({ "do": "get", "pv": pv, "shape": shape, "timeout": timeout.as_secs() });
        Ok(sample(&self.exchange(request, timeout)?))
    }

    fn put(&mut self, pv: &str, value: &Json, wait: bool) -> Result<(), TestFailure> {
        let timeout = OPERATION_DURATION_MAX;
        let request = json!({ "do": "put", "pv": pv, "value": value, "wait": wait, "timeout": timeout.as_secs() });
        self.exchange(request, timeout).map(|_| ())
    }

    fn put_pattern(&mut self, pv: &str, first: i32, count: usize) -> Result<(), TestFailure> {
        let timeout = OPERATION_DURATION_MAX;
        let request =
            json!({ "do": "put_pattern", "pv": pv, "first": first, "count": count, "timeout": timeout.as_secs() });
        self.exchange(request, timeout).map(|_| ())
    }

    fn monitor_masked(&mut self, pv: &str, mask: EventMask) -> Result<usize, TestFailure> {
        let timeout = OPERATION_DURATION_MAX;
        let request = json!({ "do": "monitor", "pv": pv, "mask": mask.0, "timeout": timeout.as_secs() });
        let answer = self.exchange(request, timeout)?;
        answer["monitor"].as_u64().map(|n| n as usize).ok_or_else(|| format!("{answer}"))
    }

    fn end_monitors(&mut self) -> Result<(), TestFailure> {
        self.exchange(json!({ "do": "end_monitors" }), OPERATION_DURATION_MAX).map(|_| ())
    }

    fn take(&mut self, monitor: usize, count: usize, timeout: Duration) -> Result<Vec<Sample>, TestFailure> {
        let request = json!({ "do": "take", "monitor": monitor, "count": count, "timeout": timeout.as_secs_f64() });
        let answer = self.exchange(request, timeout)?;
        Ok(answer["updates"].as_array().into_iter().flatten().map(sample).collect())
    }
}

fn sample(answer: &Json) -> Sample {
    let seconds = answer["seconds"].as_i64();
    Sample {
        value: answer["value"].clone(),
        severity: answer["severity"].as_u64(),
        time_ns: seconds.map(|s| i128::from(s) * 1_000_000_000 + i128::from(answer["nanos"].as_i64().unwrap_or(0))),
        units: answer["units"].as_str().map(str::to_string),
        precision: answer["precision"].as_i64(),
        labels: answer["labels"]
            .as_array()
            .map(|labels| labels.iter().map(|label| label.as_str().unwrap_or_default().to_string()).collect()),
        limits: answer.get("limits").cloned(),
    }
}
