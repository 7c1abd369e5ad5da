//! A CLU whose scripts are a few words of the test, and its clients.
//!
//! The scripts are `checkAlive()`, `echo TEXT`, `long N`, `register ID ITEM...`, `register ADDRESS:PORT ID ITEM...` and
//! `destroy ID`. The items of a registration are indexes of values.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use fodo_clu::cipher::{CipherKey, Pin};
use fodo_clu::command::{Reply, Request, Serial, Session};
use fodo_clu::script::ReportTarget;
use fodo_clu::server::{
    CluServer, CluServerConfig, CluServerCounts, RegistrationChange, ServerEvent, ServerOutput, ServerSocket,
};
use fodo_data::Now;

pub const SERIAL: Serial = Serial(0x0d0a_1b2c);
pub const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
pub const PIN: &str = "12345678";

/// A client by the last part of its address.
pub fn client(number: u8) -> SocketAddr {
    ([10, 0, 1, number], 5000).into()
}

pub fn project_key() -> CipherKey {
    CipherKey::new([1; 16], [2; 16])
}

pub fn config() -> CluServerConfig {
    let mut config = CluServerConfig::new(SERIAL, ADDRESS, project_key());
    config.pin = Pin::new(PIN);
    config.is_commissioning = true;
    config
}

/// A datagram that the server has sent.
#[derive(Clone, Debug, PartialEq)]
pub struct Sent {
    pub socket: ServerSocket,
    pub to: SocketAddr,
    pub bytes: Vec<u8>,
}

pub struct World {
    pub server: CluServer<usize>,
    pub out: ServerOutput<usize>,
    pub now: Now,
    pub values: Vec<i64>,
    /// Every script that was executed.
    pub executed: Vec<String>,
    /// Whether a new key can be stored.
    pub can_store: bool,
}

impl World {
    pub fn new(config: CluServerConfig) -> World {
        let mut next = 0;
        let random = move |bytes: &mut [u8]| {
            next += 1;
            bytes.fill(next);
        };
        World {
            server: CluServer::new(config, Box::new(random)),
            out: ServerOutput::default(),
            now: Now::for_test(),
            values: vec![0; 64],
            executed: Vec::new(),
            can_store: true,
        }
    }

    /// Passes a datagram to the server and carries out what it requests.
    pub fn deliver(&mut self, socket: ServerSocket, from: SocketAddr, datagram: &[u8]) -> Vec<Sent> {
        self.server.received(socket, from, datagram, self.now, &mut self.out);
        self.carry_out()
    }

    /// Sends a request with a key to the unicast socket.
    pub fn request(&mut self, from: SocketAddr, key: &CipherKey, request: &Request<'_>) -> Vec<Sent> {
        self.deliver(ServerSocket::Unicast, from, &encrypted(key, request))
    }

    /// The text of the reply to a script under a key; `None` without exactly one reply.
    pub fn execute(&mut self, from: SocketAddr, key: &CipherKey, script: &str) -> Option<String> {
        let request = Request::Execute { client: None, session: Session(0xabcd), script: script.as_bytes() };
        let sent = self.request(from, key, &request);
        let [reply] = &sent[..] else { return None };
        assert_eq!(reply.to, from);
        text(key, reply)
    }

    pub fn carry_out(&mut self) -> Vec<Sent> {
        while let Some(event) = (!self.out.events.is_empty()).then(|| self.out.events.remove(0)) {
            match event {
                ServerEvent::Execute { reply, script } => {
                    let (value, changes) = self.run(&script);
                    self.executed.push(script);
                    self.server.answer(reply, value.as_bytes(), changes, self.now, &mut self.out);
                }
                ServerEvent::Fetch { fetch, items } => {
                    let list = self.list(&items);
                    self.server.fetched(fetch, list.as_bytes(), self.now, &mut self.out);
                }
                ServerEvent::SetKey { reply, .. } if !self.can_store => self.server.refuse(reply, &mut self.out),
                ServerEvent::Reset { reply }
                | ServerEvent::StartTftp { reply }
                | ServerEvent::StopTftp { reply }
                | ServerEvent::Measure { reply, .. }
                | ServerEvent::SetKey { reply, .. } => self.server.confirm(reply, self.now, &mut self.out),
            }
        }
        self.take_sent()
    }

    pub fn take_sent(&mut self) -> Vec<Sent> {
        let ServerOutput { datagrams, broadcast_replies, .. } = &mut self.out;
        let mut all = Vec::new();
        for (socket, sent) in [(ServerSocket::Unicast, datagrams), (ServerSocket::Broadcast, broadcast_replies)] {
            all.extend(sent.iter().map(|(to, bytes)| Sent { socket, to, bytes: bytes.to_vec() }));
            sent.clear();
        }
        all
    }

    /// Advances the clock in the steps that the server requests, and returns what it sent, each with the time.
    pub fn advance(&mut self, by: Duration) -> Vec<(Duration, Sent)> {
        let (start, end) = (self.now, self.now + by);
        let mut all = Vec::new();
        loop {
            let due = self.server.deadline().filter(|due| *due <= end.monotonic);
            let Some(due) = due else { break };
            self.now = self.now + due.saturating_duration_since(self.now.monotonic);
            self.server.tick(self.now, &mut self.out);
            let at = self.now.monotonic - start.monotonic;
            all.extend(self.carry_out().into_iter().map(|sent| (at, sent)));
            assert!(self.server.deadline().is_none_or(|next| next > self.now.monotonic), "nothing due is left");
        }
        self.now = end;
        all
    }

    pub fn list(&self, items: &[usize]) -> String {
        let values: Vec<String> = items.iter().map(|item| self.values[*item].to_string()).collect();
        format!("{{{}}}", values.join(","))
    }

    fn run(&self, script: &str) -> (String, Vec<RegistrationChange<usize>>) {
        let words: Vec<&str> = script.split(' ').collect();
        match words[..] {
            ["checkAlive()"] => (SERIAL.to_string(), Vec::new()),
            ["echo", ref text @ ..] => (text.join(" "), Vec::new()),
            ["long", n] => ("x".repeat(n.parse().unwrap_or(0)), Vec::new()),
            ["register", first, ref rest @ ..] if !rest.is_empty() => {
                let target = first.parse::<SocketAddr>().ok();
                let (target, id, items) = match target {
                    Some(SocketAddr::V4(to)) => (ReportTarget::Address(*to.ip(), to.port()), rest[0], &rest[1..]),
                    _ => (ReportTarget::Sender, first, rest),
                };
                let items = items.iter().filter_map(|item| item.parse().ok()).filter(|item| *item < self.values.len());
                let items: Vec<usize> = items.collect();
                let client_id = id.parse().unwrap_or(0);
                let value = format!("clientReport:{client_id}:{}", self.list(&items));
                (value, vec![RegistrationChange::Register { target, client_id, items }])
            }
            ["destroy", id] => {
                let client_id = id.parse().unwrap_or(0);
                (id.to_string(), vec![RegistrationChange::Destroy { target: ReportTarget::Sender, client_id }])
            }
            _ => ("nil".to_string(), Vec::new()),
        }
    }

    /// Each datagram was dropped, was answered, or waits.
    pub fn assert_accounted(&self) -> &CluServerCounts {
        let counts = self.server.counts();
        assert_eq!(counts.received, counts.n_dropped() + counts.answered + counts.waiting);
        counts
    }
}

pub fn encrypted(key: &CipherKey, request: &Request<'_>) -> Vec<u8> {
    let (mut command, mut datagram) = (Vec::new(), Vec::new());
    request.encode(&mut command);
    key.encrypt(&command, &mut datagram);
    datagram
}

/// The plaintext of a sent datagram.
pub fn plain(key: &CipherKey, sent: &Sent) -> Option<Vec<u8>> {
    key.decrypt(&sent.bytes, &mut Vec::new()).map(<[u8]>::to_vec)
}

/// The text of a value, or of a reply that has none.
pub fn text(key: &CipherKey, sent: &Sent) -> Option<String> {
    let plain = plain(key, sent)?;
    let text = match Reply::decode(&plain)? {
        Reply::Executed { clu, value, .. } => {
            assert_eq!(clu, Some(ADDRESS));
            value
        }
        _ => &plain,
    };
    Some(String::from_utf8(text.to_vec()).unwrap())
}
