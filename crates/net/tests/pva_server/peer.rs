//! A client over a real socket: the machine of pvAccess without IO, driven by the calls of a test.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use fodo_engine::{Cid, Ioid, Sid};
use fodo_net::{Now, Reading, Server, Structure};
use fodo_pva::client::{Circuit, Config, Decoding, Event, PreparedRequest, PutContent, Received, RequestError, Task};
use fodo_pva::request::PvRequest;

use crate::PATIENCE;

pub struct Client {
    stream: TcpStream,
    circuit: Circuit,
    events: VecDeque<Event>,
    cid_next: u32,
}

/// An update of a monitor: the reading, the nodes that have changed, and those that have changed more than once.
pub struct Update {
    pub reading: Reading,
    pub changed: Vec<usize>,
    pub overrun: Vec<usize>,
}

impl Client {
    pub fn new(server: &Server) -> Client {
        Client::of("ann", server)
    }

    /// A client with this user name.
    pub fn of(user: &str, server: &Server) -> Client {
        let stream = TcpStream::connect(("127.0.0.1", server.pva_tcp_port().unwrap())).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let config = Config {
            priority: 0,
            user: user.into(),
            host: "desk".into(),
            echo_after: Duration::from_secs(15),
            payload_bytes_max: 1 << 28,
        };
        Client { stream, circuit: Circuit::new(&config, now()), events: VecDeque::new(), cid_next: 1 }
    }

    /// The next event; `None` at the end of the stream.
    pub fn try_event(&mut self) -> Option<Event> {
        let mut buffer = vec![0; 1 << 16];
        while self.events.is_empty() {
            self.flush();
            let n = self.stream.read(&mut buffer).unwrap_or(0);
            if n == 0 {
                return None;
            }
            let mut events = Vec::new();
            self.circuit.received(&buffer[..n], now(), &mut events);
            self.events.extend(events);
        }
        self.events.pop_front()
    }

    pub fn event(&mut self) -> Event {
        self.try_event().expect("the stream ended")
    }

    /// Sends what the machine has to send.
    pub fn flush(&mut self) {
        loop {
            let ready = self.circuit.ready();
            if ready.is_empty() {
                return;
            }
            // An error shows when the client reads.
            let _ = self.stream.write_all(ready);
            let n = ready.len();
            self.circuit.sent(n);
        }
    }

    /// Sends bytes that the machine does not know.
    pub fn send_raw(&mut self, bytes: &[u8]) {
        self.flush();
        self.stream.write_all(bytes).unwrap();
    }

    /// Requests a channel; the result is the server's.
    pub fn try_channel(&mut self, name: &str) -> Option<Sid> {
        let cid = Cid(self.cid_next);
        self.cid_next += 1;
        self.circuit.create(cid, name, now());
        loop {
            match self.event() {
                Event::Created { sid, .. } => return Some(sid),
                Event::CreateFailed { .. } => return None,
                _ => {}
            }
        }
    }

    pub fn channel(&mut self, name: &str) -> Sid {
        self.try_channel(name).unwrap()
    }

    pub fn open(&mut self, sid: Sid, task: Task, request: &str) -> Ioid {
        self.open_with(sid, task, Decoding::Flat, request)
    }

    /// Opens an operation whose values are structures.
    pub fn open_structured(&mut self, sid: Sid, task: Task, request: &str) -> Ioid {
        self.open_with(sid, task, Decoding::Structured, request)
    }

    fn open_with(&mut self, sid: Sid, task: Task, decoding: Decoding, request: &str) -> Ioid {
        let request = PreparedRequest::new(&PvRequest::parse(request).unwrap());
        let ioid = self.circuit.open(sid, task, decoding, &request).unwrap();
        self.wait_for(|event| matches!(event, Event::Opened { ioid: opened, .. } if *opened == ioid));
        ioid
    }

    /// Executes an operation that was opened with [`Client::open_structured`].
    pub fn get_structure(&mut self, ioid: Ioid) -> Result<Structure, String> {
        self.circuit.get(ioid).unwrap();
        self.done().map(structure)
    }

    /// Calls a procedure; the result is the text of the status if it is refused.
    pub fn call(&mut self, sid: Sid, argument: Structure) -> Result<Structure, String> {
        let ioid = self.open_structured(sid, Task::Rpc, "");
        self.circuit.rpc(ioid, argument).unwrap();
        self.done().map(structure)
    }

    /// The next update of a monitor of structures: the value, the nodes that have changed, and those that have changed more
    /// than once.
    pub fn structure_update(&mut self) -> (Structure, Vec<usize>, Vec<usize>) {
        match self.event() {
            Event::Update { received, changed, overrun, .. } => {
                (structure(received), changed.iter().collect(), overrun.iter().collect())
            }
            other => panic!("{other:?}"),
        }
    }

    /// Waits for an event; the others stay for later.
    fn wait_for(&mut self, is_it: impl Fn(&Event) -> bool) {
        let mut others = VecDeque::new();
        loop {
            match self.event() {
                event if is_it(&event) => break,
                other => others.push_back(other),
            }
        }
        others.append(&mut self.events);
        self.events = others;
    }

    pub fn done(&mut self) -> Result<Received, String> {
        match self.event() {
            Event::Done { result: Err(RequestError::Refused(status)), .. } => Err(status.message.to_str().into_owned()),
            Event::Done { result, .. } => Ok(result.unwrap()),
            other => panic!("{other:?}"),
        }
    }

    /// Repeats a get; the result is the text of the status if it is refused.
    pub fn get(&mut self, ioid: Ioid) -> Result<Reading, String> {
        self.circuit.get(ioid).unwrap();
        self.done().map(reading)
    }

    /// Opens a get and executes it.
    pub fn get_once(&mut self, sid: Sid, request: &str) -> Result<Reading, String> {
        let ioid = self.open(sid, Task::Get, request);
        self.get(ioid)
    }

    /// Sends a put without waiting for the reply.
    pub fn start_put(&mut self, ioid: Ioid, value: impl Into<PutContent>) {
        self.circuit.put(ioid, value).unwrap();
        self.flush();
    }

    pub fn put(&mut self, ioid: Ioid, value: impl Into<PutContent>) -> Result<Received, String> {
        self.start_put(ioid, value);
        self.done()
    }

    /// Opens a put and executes it.
    pub fn put_once(&mut self, sid: Sid, request: &str, value: impl Into<PutContent>) -> Result<(), String> {
        let ioid = self.open(sid, Task::Put, request);
        self.put(ioid, value).map(|_| ())
    }

    pub fn process(&mut self, ioid: Ioid) -> Result<(), String> {
        self.circuit.process(ioid).unwrap();
        self.done().map(|_| ())
    }

    /// The machine, for requests whose events the test handles itself.
    pub fn machine(&mut self) -> &mut Circuit {
        &mut self.circuit
    }

    /// Opens a monitor and starts it.
    pub fn monitor(&mut self, sid: Sid, request: &str) -> Ioid {
        let ioid = self.open(sid, Task::Monitor, request);
        self.circuit.start(ioid).unwrap();
        self.flush();
        ioid
    }

    /// Opens a monitor of structures and starts it.
    pub fn monitor_structure(&mut self, sid: Sid, request: &str) -> Ioid {
        let ioid = self.open_structured(sid, Task::Monitor, request);
        self.circuit.start(ioid).unwrap();
        self.flush();
        ioid
    }

    pub fn acknowledge(&mut self, ioid: Ioid, n_updates: u32) {
        self.circuit.acknowledge(ioid, n_updates).unwrap();
        self.flush();
    }

    /// The next update of any monitor, and its number.
    pub fn any_update(&mut self) -> (Ioid, Update) {
        match self.event() {
            Event::Update { ioid, received, changed, overrun } => {
                let (changed, overrun) = (changed.iter().collect(), overrun.iter().collect());
                (ioid, Update { reading: reading(received), changed, overrun })
            }
            other => panic!("{other:?}"),
        }
    }

    pub fn update(&mut self) -> Update {
        self.any_update().1
    }

    /// Waits until the server has processed everything so far.
    pub fn barrier(&mut self, sid: Sid) {
        let ioid = self.circuit.describe(sid, "").unwrap();
        self.wait_for(|event| matches!(event, Event::Described { ioid: described, .. } if *described == ioid));
    }
}

fn structure(received: Received) -> Structure {
    match received {
        Received::Structure(structure) => structure,
        other => panic!("{other:?}"),
    }
}

pub fn reading(received: Received) -> Reading {
    match received {
        Received::Reading(reading) => reading,
        other => panic!("{other:?}"),
    }
}

fn now() -> Now {
    Now { monotonic: std::time::Instant::now(), wall: std::time::SystemTime::now().into() }
}
