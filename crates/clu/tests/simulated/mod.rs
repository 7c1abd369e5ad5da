//! A CLU and a network with a clock of the test.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use fodo_clu::cipher::CipherKey;
use fodo_clu::client::{
    Availability, ClientEvent, ClientOutput, CluClient, CluClientConfig, CluRequest, CluSubscription, RequestId,
    RequestOutcome,
};
use fodo_clu::command::{Reply, Request, Serial};
use fodo_clu::value::{ClientReport, REFUSED, write_fetched, write_value};
use fodo_data::{Now, Scalar};

pub const SERIAL: Serial = Serial(0x0d0a_1b2c);

/// How a CLU writes the lists of reports.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ListForm {
    /// As a real CLU: with quotes and without blanks.
    Quoted,
    /// As OpenGr8ton's virtual CLU: without quotes and with blanks.
    Unquoted,
}

/// A table in a table, as a script prints it.
pub const NESTED: &[u8] = b"{1,{2,{\"a\",nil}}}";

/// A text in another character set.
pub const NOT_UTF8: &[u8] = b"caf\xe9:\x01";

/// A text that fills a datagram, as OpenGr8ton sends it.
pub fn long_text() -> Vec<u8> {
    "é".repeat(32_000).into_bytes()
}

/// How a CLU replies to a registration that it does not accept.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum FailedRegistration {
    Nil,
    TooLong,
    Refused,
    NoReply,
}

/// How a registration of these items fails; `None` if the CLU accepts it.
pub type RegistrationFailure = fn(&[String]) -> Option<FailedRegistration>;

/// What a CLU does, in the simplest form that a client can observe.
pub struct SimulatedClu {
    pub key: CipherKey,
    pub is_running: bool,
    pub is_emergency: bool,
    pub list_form: ListForm,
    /// The items of each client id.
    pub registrations: BTreeMap<u32, Vec<String>>,
    /// The scripts that were executed, without those of the client itself.
    pub executed: Vec<String>,
    /// How the CLU replies to a registration that it does not accept.
    pub registration_failure: RegistrationFailure,
    /// How many times each client id was registered.
    pub n_registered: BTreeMap<u32, usize>,
    pub n_destroyed: usize,
    pub n_requests: usize,
}

impl SimulatedClu {
    pub fn new(key: CipherKey) -> SimulatedClu {
        SimulatedClu {
            key,
            is_running: true,
            is_emergency: false,
            list_form: ListForm::Quoted,
            registrations: BTreeMap::new(),
            executed: Vec::new(),
            registration_failure: |_| None,
            n_registered: BTreeMap::new(),
            n_destroyed: 0,
            n_requests: 0,
        }
    }

    /// A restart: the registrations are lost.
    pub fn restart(&mut self) {
        self.registrations.clear();
        self.is_running = true;
    }

    /// The reply to a datagram.
    pub fn answer(&mut self, datagram: &[u8]) -> Option<Vec<u8>> {
        let mut buffer = Vec::new();
        let command = self.key.decrypt(datagram, &mut buffer).filter(|_| self.is_running)?;
        self.n_requests += 1;
        let mut plain = Vec::new();
        match Request::decode(command) {
            Some(Request::Execute { session, script, .. }) => {
                let value = self.execute(&String::from_utf8_lossy(script));
                let is_refused = script == b"refuse" || value == Err(FailedRegistration::Refused);
                let value = match value {
                    Ok(value) => value,
                    Err(FailedRegistration::NoReply) => return None,
                    Err(FailedRegistration::TooLong) => b"error: the value is too long".to_vec(),
                    Err(_) => b"nil".to_vec(),
                };
                let reply = Reply::Executed { clu: Some([10, 0, 0, 2].into()), session, value: &value };
                if is_refused { Reply::Refused {} } else { reply }.encode(&mut plain);
            }
            Some(Request::SetKey { iv, key, .. }) => {
                self.key = CipherKey::new(*key.0, *iv);
                Reply::Accepted {}.encode(&mut plain);
            }
            Some(Request::SetAddress { serial, address, .. }) if serial == SERIAL => {
                Reply::AddressSet { serial, address }.encode(&mut plain);
            }
            Some(Request::Reset { .. }) => {
                self.restart();
                Reply::Reset { clu: None }.encode(&mut plain);
            }
            Some(Request::StartTftp {}) => Reply::Accepted {}.encode(&mut plain),
            _ => Reply::Refused {}.encode(&mut plain),
        }
        Some(self.encrypted(&plain))
    }

    fn execute(&mut self, script: &str) -> Result<Vec<u8>, FailedRegistration> {
        let inner = |call: &str| script.strip_prefix(call).and_then(|rest| rest.strip_suffix(')'));
        if script == "checkAlive()" {
            return Ok(if self.is_emergency { b"emergency".to_vec() } else { SERIAL.to_string().into_bytes() });
        }
        if let Some(arguments) = inner("SYSTEM:clientRegister(") {
            let mut parts = arguments.splitn(4, ',');
            let client_id = parts.nth(2).and_then(|id| id.parse().ok()).expect("a client id");
            let items = items(parts.next().expect("a list"));
            if items.iter().any(|item| item.contains("UNKNOWN")) {
                return Err(FailedRegistration::Nil);
            }
            if let Some(failure) = (self.registration_failure)(&items) {
                return Err(failure);
            }
            *self.n_registered.entry(client_id).or_default() += 1;
            self.registrations.insert(client_id, items);
            return Ok(self.report(client_id, 0).expect("it was registered"));
        }
        if let Some(arguments) = inner("SYSTEM:clientDestroy(") {
            let client_id = arguments.rsplit(',').next().expect("a client id");
            self.registrations.remove(&client_id.parse().expect("a number"));
            self.n_destroyed += 1;
            return Ok(client_id.as_bytes().to_vec());
        }
        self.executed.push(script.to_string());
        if let Some(list) = inner("SYSTEM:fetchValues(") {
            let mut value = Vec::new();
            write_fetched(&values(&items(list), 0), &mut value);
            return Ok(value);
        }
        Ok(match script {
            "nothing()" => b"nil".to_vec(),
            "long()" => long_text(),
            "nested()" => NESTED.to_vec(),
            "bytes()" => NOT_UTF8.to_vec(),
            "refuse with a session" => REFUSED.to_vec(),
            _ => format!("value of {script}").into_bytes(),
        })
    }

    /// The report of a registration. The values depend on `second`.
    fn report(&self, client_id: u32, second: u64) -> Option<Vec<u8>> {
        let values = values(self.registrations.get(&client_id)?, second);
        let mut report = Vec::new();
        if self.list_form == ListForm::Quoted {
            ClientReport::write(client_id, &values, &mut report);
        } else {
            let text = |value: &Option<Scalar>| {
                let mut text = Vec::new();
                write_value(value.as_ref(), &mut text);
                String::from_utf8(text).expect("the values are texts")
            };
            let texts: Vec<String> = values.iter().map(text).collect();
            report = format!("clientReport:{client_id}:{{{}}}", texts.join(", ")).into_bytes();
        }
        Some(report)
    }

    /// What the CLU sends each second.
    pub fn reports(&self, second: u64) -> Vec<Vec<u8>> {
        let ids = self.registrations.keys().filter(|_| self.is_running);
        ids.filter_map(|client_id| self.report(*client_id, second)).map(|report| self.update(&report)).collect()
    }

    /// An update with this value.
    pub fn update(&self, value: &[u8]) -> Vec<u8> {
        let mut plain = Vec::new();
        let session = fodo_clu::command::Session::UPDATE;
        Reply::Executed { clu: Some([10, 0, 0, 2].into()), session, value }.encode(&mut plain);
        self.encrypted(&plain)
    }

    pub fn encrypted(&self, plain: &[u8]) -> Vec<u8> {
        let mut datagram = Vec::new();
        self.key.encrypt(plain, &mut datagram);
        datagram
    }
}

/// The items of a list such as `{{A,0},"b"}`.
fn items(list: &str) -> Vec<String> {
    let inner = list.strip_prefix('{').and_then(|list| list.strip_suffix('}')).expect("a list");
    let separated = inner.replace("},", "};").replace("\",", "\";");
    separated.split(';').filter(|item| !item.is_empty()).map(str::to_string).collect()
}

/// A number, a text or nothing for each item.
pub fn values(items: &[String], second: u64) -> Vec<Option<Scalar>> {
    let value = |item: &String| match item.len() % 3 {
        0 => None,
        1 => Some(Scalar::F64(second as f64 + 0.5)),
        _ => Some(Scalar::Text(format!("text {second}").into())),
    };
    items.iter().map(value).collect()
}

/// How datagrams are transferred.
#[derive(Clone, Copy)]
pub struct Wire {
    /// The probability of the loss, and of a copy, of a datagram.
    pub loss: f64,
    pub copies: f64,
    /// The maximum delay.
    pub delay: Duration,
}

pub const GOOD_WIRE: Wire = Wire { loss: 0.0, copies: 0.0, delay: Duration::from_millis(2) };

enum InTransit {
    ToClu(Vec<u8>),
    ToClient(SocketAddr, Vec<u8>),
}

/// A client, a CLU and the network between them.
pub struct World {
    pub now: Now,
    start: Now,
    pub client: CluClient,
    pub clu: SimulatedClu,
    pub wire: Wire,
    pub events: Vec<(Duration, ClientEvent)>,
    out: ClientOutput,
    in_transit: Vec<(Now, InTransit)>,
    next_report: Now,
    random: fastrand::Rng,
}

pub fn key() -> CipherKey {
    CipherKey::new(*b"key of a project", *b"its first vector")
}

pub fn clu_address() -> SocketAddr {
    ([10, 0, 0, 2], 1234).into()
}

pub fn config() -> CluClientConfig {
    CluClientConfig::new(key(), clu_address(), [10, 0, 0, 1].into(), 4344)
}

impl World {
    pub fn new(seed: u64, config: CluClientConfig) -> World {
        let now = Now::for_test();
        let mut for_client = fastrand::Rng::with_seed(seed);
        World {
            now,
            start: now,
            client: CluClient::new(config, Box::new(move |bytes| for_client.fill(bytes)), now),
            clu: SimulatedClu::new(key()),
            wire: GOOD_WIRE,
            events: Vec::new(),
            out: ClientOutput::default(),
            in_transit: Vec::new(),
            next_report: now + Duration::from_secs(1),
            random: fastrand::Rng::with_seed(seed + 1),
        }
    }

    /// The time since the start.
    pub fn elapsed(&self) -> Duration {
        self.now.monotonic - self.start.monotonic
    }

    /// Calls the client and transfers its outputs.
    pub fn call<T>(&mut self, call: impl FnOnce(&mut CluClient, Now, &mut ClientOutput) -> T) -> T {
        let result = call(&mut self.client, self.now, &mut self.out);
        let mut out = std::mem::take(&mut self.out);
        for (to, datagram) in out.datagrams.iter() {
            assert_eq!(to.port(), 1234);
            self.transfer(InTransit::ToClu, datagram);
        }
        out.datagrams.clear();
        let elapsed = self.elapsed();
        self.events.extend(out.events.drain(..).map(|event| (elapsed, event)));
        self.out = out;
        assert!(self.client.counts().is_balanced(), "{:?}", self.client.counts());
        result
    }

    pub fn submit(&mut self, request: CluRequest<'_>) -> RequestId {
        self.call(|client, now, out| client.submit(request, now, out)).expect("the request is accepted")
    }

    /// Transfers a datagram to the client, from any address.
    pub fn send_to_client(&mut self, from: SocketAddr, datagram: &[u8]) {
        self.transfer(|datagram| InTransit::ToClient(from, datagram), datagram);
    }

    fn transfer(&mut self, direction: impl Fn(Vec<u8>) -> InTransit, datagram: &[u8]) {
        if self.random.f64() < self.wire.loss {
            return;
        }
        let n_copies = if self.random.f64() < self.wire.copies { 2 } else { 1 };
        for _ in 0..n_copies {
            let delay = self.wire.delay.mul_f64(self.random.f64());
            self.in_transit.push((self.now + delay, direction(datagram.to_vec())));
        }
    }

    /// Runs until this time after the start.
    pub fn run_until(&mut self, end: Duration) {
        let end = self.start + end;
        loop {
            let arrival = self.in_transit.iter().map(|(at, _)| at.monotonic).min();
            let next = [arrival, self.client.deadline(), Some(self.next_report.monotonic)].into_iter().flatten().min();
            let next = next.unwrap_or(end.monotonic);
            if next > end.monotonic {
                self.now = end;
                return;
            }
            self.now = self.now + next.saturating_duration_since(self.now.monotonic);
            self.step();
        }
    }

    fn step(&mut self) {
        let now = self.now;
        if let Some(index) = self.in_transit.iter().position(|(at, _)| at.monotonic <= now.monotonic) {
            match self.in_transit.remove(index).1 {
                InTransit::ToClu(datagram) => {
                    if let Some(reply) = self.clu.answer(&datagram) {
                        self.send_to_client(clu_address(), &reply);
                    }
                }
                InTransit::ToClient(from, datagram) => {
                    self.call(|client, now, out| client.received(from, &datagram, now, out));
                }
            }
        }
        if self.next_report.monotonic <= now.monotonic {
            for report in self.clu.reports(self.elapsed().as_secs()) {
                self.send_to_client(clu_address(), &report);
            }
            self.next_report = self.next_report + Duration::from_secs(1);
        }
        if self.client.deadline().is_some_and(|at| at <= now.monotonic) {
            self.call(CluClient::tick);
            assert!(self.client.deadline().is_none_or(|at| at > now.monotonic), "a tick leaves nothing due");
        }
    }

    /// The outcomes of a request.
    pub fn outcomes(&self, id: RequestId) -> Vec<RequestOutcome> {
        let outcome = |event: &ClientEvent| match event {
            ClientEvent::Ended { request, outcome } if *request == id => Some(outcome.clone()),
            _ => None,
        };
        self.events.iter().filter_map(|(_, event)| outcome(event)).collect()
    }
}

/// Whether the CLU was available, and since which second.
pub fn availabilities(world: &World) -> Vec<(u64, Availability)> {
    let availability = |(at, event): &(Duration, ClientEvent)| match event {
        ClientEvent::Availability(availability) => Some((at.as_secs(), *availability)),
        _ => None,
    };
    world.events.iter().filter_map(availability).collect()
}

/// The times and first items of the updates of a subscription.
pub fn updates(world: &World, id: CluSubscription) -> Vec<(Duration, usize, Vec<Option<Scalar>>)> {
    let update = |(at, event): &(Duration, ClientEvent)| match event {
        ClientEvent::Update { subscription, first, values } if *subscription == id => {
            Some((*at, *first, values.clone()))
        }
        _ => None,
    };
    world.events.iter().filter_map(update).collect()
}
