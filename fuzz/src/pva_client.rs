//! The client end of a pvAccess circuit: anything that a server may send, in pieces.
//!
//! The first byte is the size of the pieces. The lowest bit of the second selects how values are decoded; the other
//! bits are unused. Every channel has one operation of each task and one request for its type, in this order, so that
//! an input can name them: their numbers are 0x400000 and upwards.

use std::collections::{HashMap, HashSet};

use fodo_data::{Now, Structure};
use fodo_pva::client::{Circuit, Config, Decoding, Event, PreparedRequest, Task};
use fodo_pva::cursor::ByteReader;
use fodo_pva::frame::{Frame, Framer, Sender};
use fodo_pva::message::Request;
use fodo_pva::request::PvRequest;
use fodo_pva::search::SearchedChannel;
use fodo_pva::{Cid, Ioid, Sid};

/// The largest accepted payload; small, so that inputs can exceed it, and larger than the least array that is decoded as
/// it arrives.
const PAYLOAD_BYTES_MAX: usize = 1 << 17;

/// The number of channels that are requested at the start.
const CHANNELS: u32 = 8;

/// How many channels are requested in total: those that end are requested again.
const CREATES_MAX: u32 = 24;

/// How many requests an operation executes.
const EXECUTIONS_MAX: u32 = 20;

/// What the client sends for one received byte: everything that it requests of a new channel, for the confirmation.
const REQUEST_FACTOR_MAX: usize = 64;

/// The identity of the client, and its first requests.
const SENT_BYTES_SPARE: usize = 4096;

const TASKS: [Task; 6] = [Task::Get, Task::Put, Task::PutGet, Task::Rpc, Task::Process, Task::Monitor];

/// An operation, or a request for a type.
struct Operation {
    task: Option<Task>,
    n_requested: u32,
    n_done: u32,
    has_opened: bool,
    has_ended: bool,
}

/// A client circuit and its caller.
struct Client {
    circuit: Circuit,
    decoding: Decoding,
    now: Now,
    n_creates: u32,
    n_unconfirmed: u32,
    /// Every number that the server has confirmed.
    confirmed: HashSet<Sid>,
    /// New channels, whose operations are not open.
    new_channels: Vec<(Cid, Sid)>,
    operations: HashMap<Ioid, Operation>,
    sent: Framer,
    n_sent_bytes: usize,
}

/// Processes one input.
pub fn feed(bytes: &[u8]) {
    let [length, flags, rest @ ..] = bytes else { return };
    let mut client = Client::new(if flags & 1 == 0 { Decoding::Flat } else { Decoding::Structured });
    let mut events = Vec::new();
    let mut n_received_bytes = 0;
    for piece in rest.chunks(usize::from(*length).max(1)) {
        client.circuit.received(piece, client.now, &mut events);
        n_received_bytes += piece.len();
        for event in events.drain(..) {
            if let Event::Closed(reason) = event {
                assert!(!reason.to_string().is_empty());
                assert_eq!(client.circuit.deadline(), None);
                return;
            }
            client.handle(event);
        }
        for (_, sid) in std::mem::take(&mut client.new_channels) {
            client.open_all(sid);
        }
        client.check(n_received_bytes);
    }
    client.end(n_received_bytes);
}

impl Client {
    fn new(decoding: Decoding) -> Client {
        let now = Now::for_test();
        let config = Config {
            priority: 0,
            user: "user".into(),
            host: "host".into(),
            echo_after: std::time::Duration::from_secs(15),
            payload_bytes_max: PAYLOAD_BYTES_MAX,
        };
        let mut client = Client {
            circuit: Circuit::new(&config, now),
            decoding,
            now,
            n_creates: 0,
            n_unconfirmed: 0,
            confirmed: HashSet::new(),
            new_channels: Vec::new(),
            operations: HashMap::new(),
            sent: Framer::new(Sender::Client, 1 << 30),
            n_sent_bytes: 0,
        };
        client.circuit.search(&[SearchedChannel { cid: Cid(100), name: b"searched" }]);
        (0..CHANNELS).for_each(|cid| client.create(Cid(cid)));
        client
    }

    fn create(&mut self, cid: Cid) {
        if self.n_creates < CREATES_MAX {
            self.n_creates += 1;
            self.n_unconfirmed += 1;
            self.circuit.create(cid, "w:pv", self.now);
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Created { cid, sid } => {
                self.confirm();
                self.confirmed.insert(sid);
                self.new_channels.push((cid, sid));
            }
            Event::CreateFailed { cid, .. } => {
                self.confirm();
                self.create(cid);
            }
            Event::ChannelGone { cid, sid } => {
                self.new_channels.retain(|new| *new != (cid, sid));
                self.create(cid);
            }
            Event::Opened { ioid, .. } => {
                let operation = self.operation(ioid);
                assert!(
                    operation.task.is_some() && !std::mem::replace(&mut operation.has_opened, true),
                    "opened twice"
                );
            }
            Event::OpenFailed { ioid, .. } => {
                let operation = self.operation(ioid);
                assert!(!operation.has_opened, "an open operation cannot fail to open");
                operation.has_ended = true;
            }
            Event::Ended { ioid, .. } => {
                let operation = self.operation(ioid);
                assert_eq!(operation.task, Some(Task::Monitor));
                operation.has_ended = true;
            }
            Event::Described { ioid, .. } => {
                let operation = self.operation(ioid);
                assert_eq!(operation.task, None);
                operation.has_ended = true;
            }
            Event::Done { ioid, .. } => {
                let operation = self.operation(ioid);
                operation.n_done += 1;
                assert!(operation.n_done <= operation.n_requested, "a request ends once");
                self.execute(ioid);
            }
            Event::Update { ioid, .. } => {
                assert_eq!(self.operation(ioid).task, Some(Task::Monitor));
                assert_eq!(self.circuit.acknowledge(ioid, 1).is_ok(), self.circuit.stop(ioid).is_ok());
                // Fails if the server ended the monitor in the same piece.
                let _ = self.circuit.start(ioid);
            }
            Event::Rights { .. } | Event::Message { .. } | Event::Claimed { .. } => {}
            Event::CreateUnanswered | Event::Unresponsive | Event::Responsive | Event::Closed(_) => {}
        }
    }

    fn confirm(&mut self) {
        assert!(self.n_unconfirmed > 0, "a channel that was not requested");
        self.n_unconfirmed -= 1;
    }

    /// The operation of an event: the client has opened it, and it has not ended.
    fn operation(&mut self, ioid: Ioid) -> &mut Operation {
        let operation = self.operations.get_mut(&ioid).expect("the operation was never opened");
        assert!(!operation.has_ended, "an event of an operation that has ended");
        operation
    }

    fn open_all(&mut self, sid: Sid) {
        let text = "record[queueSize=3,pipeline=true]field(value,alarm,timeStamp)";
        let request = PreparedRequest::new(&PvRequest::parse(text).expect("the request is valid"));
        for task in TASKS {
            let Ok(ioid) = self.circuit.open(sid, task, self.decoding, &request) else { return };
            self.add(ioid, Some(task));
            self.execute(ioid);
            self.execute(ioid);
        }
        if let Ok(ioid) = self.circuit.describe(sid, "value") {
            self.add(ioid, None);
        }
    }

    fn add(&mut self, ioid: Ioid, task: Option<Task>) {
        let operation = Operation { task, n_requested: 0, n_done: 0, has_opened: false, has_ended: false };
        assert!(self.operations.insert(ioid, operation).is_none(), "two operations have the same number");
    }

    /// Requests the next execution. Fails if the value cannot be converted to the type of the server, or if the
    /// operation has ended in the meantime.
    fn execute(&mut self, ioid: Ioid) {
        let Some(operation) = self.operations.get_mut(&ioid) else { return };
        if operation.n_requested >= EXECUTIONS_MAX {
            return;
        }
        let is_even = operation.n_requested % 2 == 0;
        let circuit = &mut self.circuit;
        let result = match operation.task {
            Some(Task::Get) => circuit.get(ioid),
            Some(Task::Put | Task::PutGet) if is_even => circuit.put(ioid, fodo_data::Value::from("one")),
            Some(Task::Put | Task::PutGet) => circuit.get(ioid),
            Some(Task::Rpc) => circuit.rpc(ioid, Structure::single(1.into())),
            Some(Task::Process) => circuit.process(ioid),
            Some(Task::Monitor) => return drop(circuit.start(ioid)),
            None => return,
        };
        operation.n_requested += u32::from(result.is_ok());
    }

    /// Checks everything that the circuit has sent.
    fn check(&mut self, n_received_bytes: usize) {
        self.n_sent_bytes += self.circuit.pending_bytes();
        let n_most = n_received_bytes * REQUEST_FACTOR_MAX + SENT_BYTES_SPARE;
        assert!(self.n_sent_bytes <= n_most, "{} bytes for {n_received_bytes}", self.n_sent_bytes);
        loop {
            let ready = self.circuit.ready();
            if ready.is_empty() {
                break;
            }
            let bytes = ready.to_vec();
            self.circuit.sent(bytes.len());
            let mut left = &bytes[..];
            while let Some(frame) = self.sent.next(&mut left).expect("the client sends valid frames") {
                let Frame::Message(header, payload) = frame else { continue };
                let mut reader = ByteReader::new(payload, header.order);
                let request = Request::decode(header.command, &mut reader);
                assert!(!reader.has_failed(), "the client sends complete messages");
                let sid = channel_of(&request);
                assert!(sid.is_none_or(|sid| self.confirmed.contains(&sid)), "{request} on an unknown channel");
            }
        }
        assert_eq!(self.circuit.pending_bytes(), 0);
    }

    /// Ends everything: no event may follow.
    fn end(mut self, n_received_bytes: usize) {
        let mut events = Vec::new();
        if let Some(deadline) = self.circuit.deadline() {
            self.circuit.tick(self.now + deadline.duration_since(self.now.monotonic), &mut events);
            assert!(events.len() <= 2, "what is due is reported once");
        }
        self.operations.keys().for_each(|ioid| self.circuit.destroy(*ioid));
        // One more request for each operation.
        self.check(n_received_bytes + self.operations.len());
        assert!(self.operations.keys().all(|ioid| self.circuit.start(*ioid).is_err()), "the operation has ended");
    }
}

/// The channel of a request.
fn channel_of(request: &Request) -> Option<Sid> {
    match *request {
        Request::Get { sid, .. }
        | Request::Put { sid, .. }
        | Request::PutGet { sid, .. }
        | Request::Monitor { sid, .. }
        | Request::Array { sid, .. }
        | Request::Process { sid, .. }
        | Request::Rpc { sid, .. }
        | Request::GetField { sid, .. }
        | Request::DestroyChannel { sid, .. }
        | Request::DestroyRequest { sid, .. }
        | Request::CancelRequest { sid, .. } => Some(sid),
        _ => None,
    }
}
