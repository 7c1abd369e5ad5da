//! A CLU on loopback whose scripts are a few words of the tests. Each test uses a part of it.
//!
//! The scripts are `checkAlive()`, `value(TEXT)`, `nothing()`, `refuse()`, `wrong()`, `hold()`, whose reply waits for
//! [`TestClu::release`], `elsewhere(TEXT)`, whose reply is sent from another port, `foreign(TEXT)`, whose reply is sent from
//! another address, `SYSTEM:fetchValues`, `SYSTEM:clientRegister` and `SYSTEM:clientDestroy`.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use fodo_clu::cipher::{CipherKey, Pin};
use fodo_clu::command::Serial;
use fodo_clu::script::ReportTarget;
use fodo_clu::server::{
    CluServer, CluServerConfig, CluServerCounts, RegistrationChange, ServerEvent, ServerOutput, ServerSocket,
    UnansweredRequest,
};
use fodo_data::Now;
use fodo_net::clu::{CluConnection, CluConnectionConfig};

pub const SERIAL: Serial = Serial(0x0d0a_1b2c);
pub const PIN: &str = "12345678";

pub fn project_key() -> CipherKey {
    CipherKey::new([1; 16], [2; 16])
}

/// A running CLU; it ends when it is dropped.
pub struct TestClu {
    pub address: SocketAddr,
    shared: Arc<Mutex<CluWorld>>,
    thread: Option<JoinHandle<()>>,
}

/// What tests read and change.
#[derive(Default)]
pub struct CluWorld {
    /// Received datagrams are dropped.
    pub is_silent: bool,
    /// The values of items by their text in a list; the others are 0.
    pub values: BTreeMap<String, String>,
    /// Every script that was executed, without checkAlive.
    pub scripts: Vec<String>,
    pub counts: CluServerCounts,
    pub n_subscriptions: usize,
    has_new_values: bool,
    is_releasing: bool,
    is_restarting: bool,
    is_ended: bool,
}

impl TestClu {
    pub fn start() -> TestClu {
        TestClu::start_at(Ipv4Addr::LOCALHOST)
    }

    /// With a socket at this address, such as that of broadcasts.
    pub fn start_at(address: Ipv4Addr) -> TestClu {
        let socket = UdpSocket::bind((address, 0)).unwrap();
        let (address, shared) = (socket.local_addr().unwrap(), Arc::<Mutex<CluWorld>>::default());
        let of_thread = shared.clone();
        let thread = std::thread::spawn(move || CluLoop::new(socket, of_thread).run());
        TestClu { address, shared, thread: Some(thread) }
    }

    pub fn world(&self) -> MutexGuard<'_, CluWorld> {
        self.shared.lock().unwrap()
    }

    /// Changes the CLU and lets it notice.
    pub fn change(&self, change: impl FnOnce(&mut CluWorld)) {
        change(&mut self.world());
        let waker = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        waker.set_broadcast(true).unwrap();
        waker.send_to(&[], self.address).unwrap();
    }

    pub fn set_value(&self, item: &str, value: &str) {
        self.change(|world| {
            world.values.insert(item.to_owned(), value.to_owned());
            world.has_new_values = true;
        });
    }

    /// Answers what `hold()` holds.
    pub fn release(&self) {
        self.change(|world| world.is_releasing = true);
    }

    /// Forgets all subscriptions.
    pub fn restart(&self) {
        self.change(|world| world.is_restarting = true);
    }

    pub fn config(&self) -> CluConnectionConfig {
        CluConnectionConfig { checks_availability: false, ..CluConnectionConfig::new(self.address, project_key()) }
    }

    /// A connection that sends no requests of its own.
    pub fn connect(&self) -> CluConnection {
        CluConnection::open(self.config()).unwrap()
    }
}

impl Drop for TestClu {
    fn drop(&mut self) {
        self.change(|world| world.is_ended = true);
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(std::thread::panicking() || matches!(ended, Some(Ok(()))), "the CLU has panicked");
    }
}

struct CluLoop {
    /// From the port to which requests are sent, from another port, and from another address.
    sockets: [UdpSocket; 3],
    shared: Arc<Mutex<CluWorld>>,
    server: CluServer<String>,
    out: ServerOutput<String>,
    held: Vec<UnansweredRequest>,
}

impl CluLoop {
    fn new(socket: UdpSocket, shared: Arc<Mutex<CluWorld>>) -> CluLoop {
        // Only Linux has this address without configuration.
        let other_address = if cfg!(target_os = "linux") { [127, 0, 0, 2].into() } else { Ipv4Addr::LOCALHOST };
        let others = [Ipv4Addr::LOCALHOST, other_address].map(|address| UdpSocket::bind((address, 0)).unwrap());
        let [elsewhere, foreign] = others;
        CluLoop {
            sockets: [socket, elsewhere, foreign],
            shared,
            server: CluLoop::new_server(),
            out: ServerOutput::default(),
            held: Vec::new(),
        }
    }

    fn new_server() -> CluServer<String> {
        let mut config = CluServerConfig::new(SERIAL, Ipv4Addr::LOCALHOST, project_key());
        config.pin = Pin::new(PIN);
        config.is_commissioning = true;
        config.report_interval = Duration::from_millis(100);
        CluServer::new(config, fodo_net::clu::random_source())
    }

    fn run(mut self) {
        let mut datagram = vec![0; 4096];
        loop {
            let turn = now();
            self.server.tick(turn, &mut self.out);
            self.carry_out(turn);
            let timeout = self.server.deadline().map(|at| at.saturating_duration_since(Instant::now()));
            let timeout = timeout.map(|timeout| timeout.max(Duration::from_millis(1)));
            self.sockets[0].set_read_timeout(timeout).unwrap();
            let received = self.sockets[0].recv_from(&mut datagram);
            let now = now();
            let shared = self.shared.clone();
            let mut world = shared.lock().unwrap();
            if world.is_ended {
                return;
            }
            if std::mem::take(&mut world.is_restarting) {
                self.server = CluLoop::new_server();
            }
            if std::mem::take(&mut world.has_new_values) {
                self.server.values_changed(now, &mut self.out);
            }
            if std::mem::take(&mut world.is_releasing) {
                for reply in std::mem::take(&mut self.held) {
                    self.server.answer(reply, b"released", Vec::new(), now, &mut self.out);
                }
            }
            let is_silent = world.is_silent;
            drop(world);
            if let Ok((n_bytes @ 1.., from)) = received
                && !is_silent
            {
                self.server.received(ServerSocket::Unicast, from, &datagram[..n_bytes], now, &mut self.out);
            }
        }
    }

    fn carry_out(&mut self, now: Now) {
        for event in std::mem::take(&mut self.out.events) {
            match event {
                ServerEvent::Execute { reply, script } => self.execute(reply, &script, now),
                ServerEvent::Fetch { fetch, items } => {
                    let list = list(&self.shared.lock().unwrap(), &items);
                    self.server.fetched(fetch, list.as_bytes(), now, &mut self.out);
                }
                ServerEvent::Reset { reply }
                | ServerEvent::StartTftp { reply }
                | ServerEvent::StopTftp { reply }
                | ServerEvent::Measure { reply, .. }
                | ServerEvent::SetKey { reply, .. } => self.server.confirm(reply, now, &mut self.out),
            }
        }
        self.send_from(0);
        let mut world = self.shared.lock().unwrap();
        world.counts = self.server.counts().clone();
        world.n_subscriptions = self.server.n_subscriptions();
    }

    fn send_from(&mut self, socket: usize) {
        for (to, datagram) in self.out.datagrams.iter() {
            // The receiver may have closed its socket.
            let _ = self.sockets[socket].send_to(datagram, to);
        }
        self.out.datagrams.clear();
    }

    fn execute(&mut self, reply: UnansweredRequest, script: &str, now: Now) {
        if script != "checkAlive()" {
            self.shared.lock().unwrap().scripts.push(script.to_owned());
        }
        let inner = |call: &str| script.strip_prefix(call).and_then(|rest| rest.strip_suffix(')'));
        let (mut socket, mut changes) = (0, Vec::new());
        let value = if script == "checkAlive()" {
            SERIAL.to_string()
        } else if script == "hold()" {
            return self.held.push(reply);
        } else if script == "refuse()" {
            return self.server.refuse(reply, &mut self.out);
        } else if let Some(text) = inner("value(") {
            text.to_owned()
        } else if let Some(text) = inner("elsewhere(") {
            socket = 1;
            text.to_owned()
        } else if let Some(text) = inner("foreign(") {
            socket = 2;
            text.to_owned()
        } else if let Some(items) = inner("SYSTEM:fetchValues(") {
            format!("values:{}", list(&self.shared.lock().unwrap(), &items_of(items)))
        } else if let Some(arguments) = inner("SYSTEM:clientRegister(") {
            let (target, client_id, items) = registration(arguments);
            let items = items_of(items);
            let value = format!("clientReport:{client_id}:{}", list(&self.shared.lock().unwrap(), &items));
            changes.push(RegistrationChange::Register { target, client_id, items });
            value
        } else if let Some(arguments) = inner("SYSTEM:clientDestroy(") {
            let (target, client_id, _) = registration(arguments);
            changes.push(RegistrationChange::Destroy { target, client_id });
            client_id.to_string()
        } else {
            "nil".to_owned()
        };
        if socket != 0 {
            self.send_from(0);
        }
        self.server.answer(reply, value.as_bytes(), changes, now, &mut self.out);
        if socket != 0 {
            self.send_from(socket);
        }
    }
}

fn now() -> Now {
    Now { monotonic: Instant::now(), wall: SystemTime::now().into() }
}

/// The receiver, the number and the items of a registration.
fn registration(arguments: &str) -> (ReportTarget, u32, &str) {
    let mut parts = arguments.splitn(4, ',');
    let mut next = || parts.next().unwrap_or_default();
    match next() {
        "0" => {
            let client_id = next().parse().unwrap();
            assert_eq!(next().split(',').next(), Some("1"));
            (ReportTarget::Sender, client_id, next())
        }
        address => {
            let address = address.trim_matches('"').parse().unwrap();
            let (port, client_id) = (next().parse().unwrap(), next().parse().unwrap());
            (ReportTarget::Address(address, port), client_id, next())
        }
    }
}

/// The items of a list, `{{A,1},"b"}`: `A,1` and `b`.
fn items_of(list: &str) -> Vec<String> {
    let inner = list.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).unwrap_or_default();
    let (mut items, mut depth) = (vec![String::new()], 0);
    for character in inner.chars() {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => items.push(String::new()),
            '"' => {}
            _ => items.last_mut().unwrap().push(character),
        }
    }
    items
}

fn list(world: &CluWorld, items: &[String]) -> String {
    let value = |item: &String| world.values.get(item).map_or("0", String::as_str).to_owned();
    format!("{{{}}}", items.iter().map(value).collect::<Vec<_>>().join(","))
}
