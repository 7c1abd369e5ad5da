//! Clients under test, all driven through the same trait.

mod program;
mod timed;

use std::process::Command;
use std::time::Duration;

use fodo_data::EventMask;
use fodo_net::Protocol;
use serde_json::{Value as Json, json};

pub use self::timed::TimedClient;
use crate::process::{Process, restrict_to_loopback, set_pva_ports};
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
    /// Our program: `fodo get`, `put`, `monitor`, `info` and `call`.
    FodoProgram,
    /// p4p.
    P4p,
    /// Phoebus' core-pva, in Java.
    CorePva,
}

impl ClientKind {
    /// The clients of Channel Access.
    pub const CA: [ClientKind; 5] =
        [ClientKind::Fodo, ClientKind::Aioca, ClientKind::Pyepics, ClientKind::Caproto, ClientKind::PsiCa];

    /// The clients of pvAccess.
    pub const PVA: [ClientKind; 4] = [ClientKind::Fodo, ClientKind::FodoProgram, ClientKind::P4p, ClientKind::CorePva];

    /// The name in the reference.
    pub fn text(self) -> &'static str {
        match self {
            ClientKind::Fodo => "Fodo",
            ClientKind::Aioca => "libca: aioca",
            ClientKind::Pyepics => "libca: pyepics",
            ClientKind::Caproto => "caproto",
            ClientKind::PsiCa => "PSI's ca",
            ClientKind::FodoProgram => "`fodo get`, `put`, `monitor`, `info`, `call`",
            ClientKind::P4p => "p4p",
            ClientKind::CorePva => "core-pva",
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
    /// The kind of an element, by its name in the protocol, such as `DOUBLE` in Channel Access and `double` in pvAccess.
    pub kind: String,
    /// Maximum number of elements; 0 if the protocol does not report it.
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

/// What a client requests of a PV that may be of any type. In JSON, a union or a variant is the value that it contains.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AnyTypeRequest<'a> {
    /// The type: an object with its `id` and `members`, each with its type.
    Describe,
    /// The value: an object.
    Get,
    /// A put of these fields, an object with their paths.
    Put(&'a Json),
    /// A put of a union: the member, and its value.
    PutUnion(&'a str, &'a Json),
    /// A call, with the query of an NTURI.
    Call(&'a Json),
    /// The processing of a record, without a value.
    Process,
}

/// How a client subscribes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MonitorForm {
    /// Which changes are reported.
    pub mask: EventMask,
    /// The number of updates that the server may send before the client acknowledges them; `None`: no such limit.
    pub window: Option<u32>,
    /// Whether an update is a whole structure as JSON.
    pub is_structure: bool,
}

impl Default for MonitorForm {
    fn default() -> MonitorForm {
        MonitorForm { mask: EventMask::VALUE | EventMask::ALARM, window: None, is_structure: false }
    }
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

    /// Writes a value and processes the record, also where a put of that field does not.
    fn process(&mut self, pv: &str, value: &Json) -> Result<(), TestFailure> {
        Err(format!("{pv}: this client cannot request that a put of {value} processes the record"))
    }

    /// Requests something of a PV that may be of any type, and returns what it yields as JSON.
    fn request(&mut self, pv: &str, request: AnyTypeRequest) -> Result<Json, TestFailure> {
        Err(format!("{pv}: this client has no {request:?}"))
    }

    /// Subscribes and returns the subscription's number.
    fn subscribe(&mut self, pv: &str, form: MonitorForm) -> Result<usize, TestFailure>;

    /// Subscribes to these changes and returns the subscription's number.
    fn monitor_masked(&mut self, pv: &str, mask: EventMask) -> Result<usize, TestFailure> {
        self.subscribe(pv, MonitorForm { mask, ..MonitorForm::default() })
    }

    /// Subscribes to changes of value and alarm, and returns the subscription's number.
    fn monitor(&mut self, pv: &str) -> Result<usize, TestFailure> {
        self.subscribe(pv, MonitorForm::default())
    }

    /// Ends all subscriptions.
    fn end_monitors(&mut self) -> Result<(), TestFailure>;

    /// The next `count` updates of a subscription, or those received within `timeout`.
    fn take(&mut self, monitor: usize, count: usize, timeout: Duration) -> Result<Vec<Sample>, TestFailure>;
}

/// Starts a client that finds this server by `way`, with the server's protocol.
pub fn start(kind: ClientKind, server: &TestServer, way: NameSearch) -> Result<Box<dyn Client>, TestFailure> {
    let mut command = match kind {
        ClientKind::Fodo if server.protocol == Protocol::Pva => {
            return Ok(Box::new(ours::FodoClient::new_pva(server, way)));
        }
        ClientKind::Fodo => return Ok(Box::new(ours::FodoClient::new(server.address(), way))),
        ClientKind::FodoProgram => Command::new(place::program()),
        ClientKind::Aioca => python("aioca_client.py"),
        ClientKind::Pyepics => python("pyepics_client.py"),
        ClientKind::Caproto => python("caproto_client.py"),
        ClientKind::PsiCa => place::java("PsiCaClient"),
        ClientKind::P4p => python("p4p_client.py"),
        ClientKind::CorePva => place::java("CorePvaClient"),
    };
    find_server(&mut command, server, way);
    if kind == ClientKind::FodoProgram {
        return Ok(Box::new(program::ProgramClient::new(&command, server.protocol)));
    }
    Ok(Box::new(PeerClient { process: Process::start(&format!("{kind:?} client"), &mut command)? }))
}

/// Sets the variables with which a client finds this server only, by `way`.
fn find_server(command: &mut Command, server: &TestServer, way: NameSearch) {
    restrict_to_loopback(command, server.port);
    set_pva_ports(command, server.pva.search, place::free_port());
    match (server.protocol, way) {
        (Protocol::Pva, NameSearch::Unicast) => {
            let addresses: Vec<String> = server.pva_search_addresses().iter().map(ToString::to_string).collect();
            command.env("EPICS_PVA_ADDR_LIST", addresses.join(" "));
        }
        (_, NameSearch::Unicast) => {}
        (Protocol::Pva, NameSearch::Broadcast) => {
            command.env("EPICS_PVA_ADDR_LIST", place::LOOPBACK_BROADCAST.to_string());
        }
        (Protocol::Pva, NameSearch::NameServer) => {
            set_pva_ports(command, place::free_port(), place::free_port());
            command.env("EPICS_PVA_NAME_SERVERS", server.pva_tcp_address().to_string());
        }
        (_, NameSearch::Broadcast) => {
            command.env("EPICS_CA_ADDR_LIST", place::LOOPBACK_BROADCAST.to_string());
        }
        (_, NameSearch::NameServer) => {
            command.env("EPICS_CA_SERVER_PORT", place::free_port().to_string());
            command.env("EPICS_CA_NAME_SERVERS", server.address().to_string());
        }
    }
}

fn python(script: &str) -> Command {
    let mut command = Command::new(place::python());
    command.arg("-u").arg(place::script(script));
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
#[derive(Debug)]
pub struct PeerClient {
    process: Process,
}

impl PeerClient {
    /// Starts a Python script that finds this server.
    pub fn start(script: &str, server: &TestServer) -> Result<PeerClient, TestFailure> {
        let mut command = python(script);
        find_server(&mut command, server, NameSearch::Unicast);
        Ok(PeerClient { process: Process::start(script, &mut command)? })
    }

    /// Sends a request with these members, and waits for its answer.
    fn ask(&mut self, verb: &str, pv: &str, members: Json) -> Result<Json, TestFailure> {
        let mut request = json!({ "do": verb, "pv": pv, "timeout": OPERATION_DURATION_MAX.as_secs() });
        if let (Json::Object(request), Json::Object(members)) = (&mut request, members) {
            request.extend(members);
        }
        self.exchange(request, OPERATION_DURATION_MAX)
    }

    /// Sends a request and returns the answer.
    pub fn exchange(&mut self, request: Json, timeout: Duration) -> Result<Json, TestFailure> {
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
        let answer = self.ask("connect", pv, json!({}))?;
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
        Ok(sample(&self.ask("get", pv, json!({ "shape": shape }))?))
    }

    fn put(&mut self, pv: &str, value: &Json, wait: bool) -> Result<(), TestFailure> {
        self.ask("put", pv, json!({ "value": value, "wait": wait })).map(|_| ())
    }

    fn put_pattern(&mut self, pv: &str, first: i32, count: usize) -> Result<(), TestFailure> {
        self.ask("put_pattern", pv, json!({ "first": first, "count": count })).map(|_| ())
    }

    fn process(&mut self, pv: &str, value: &Json) -> Result<(), TestFailure> {
        self.ask("process", pv, json!({ "value": value })).map(|_| ())
    }

    fn request(&mut self, pv: &str, request: AnyTypeRequest) -> Result<Json, TestFailure> {
        let answer = match request {
            AnyTypeRequest::Describe => self.ask("describe", pv, json!({})),
            AnyTypeRequest::Get => self.ask("get_structure", pv, json!({})),
            AnyTypeRequest::Put(fields) => self.ask("put_fields", pv, json!({ "fields": fields })),
            AnyTypeRequest::PutUnion(member, value) => {
                self.ask("put_union", pv, json!({ "member": member, "value": value }))
            }
            AnyTypeRequest::Call(query) => self.ask("call", pv, json!({ "query": query })),
            AnyTypeRequest::Process => Err(format!("{pv}: the library has no request for processing")),
        };
        answer.map(|mut answer| answer["result"].take())
    }

    fn subscribe(&mut self, pv: &str, form: MonitorForm) -> Result<usize, TestFailure> {
        let mut members = json!({ "mask": form.mask.0 });
        if let Some(window) = form.window {
            members["window"] = json!(window);
        }
        if form.is_structure {
            members["structure"] = json!(true);
        }
        let answer = self.ask("monitor", pv, members)?;
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
