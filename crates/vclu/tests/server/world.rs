//! A virtual CLU on loopback, and its clients.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use fodo_clu::cipher::{Block, CipherKey, Pin};
use fodo_clu::command::{Reply, Request, Serial, Session};
use fodo_clu::server::CluServerConfig;
use fodo_data::Now;
use fodo_vclu::{VcluConfig, VcluServer, VcluServerConfig};

use crate::support::{MAIN, TestFolder, om};

pub const SERIAL: Serial = Serial(0x0d0a_1b2c);
pub const PIN: &str = "12345678";

/// How long a test waits for what must happen.
pub const LIMIT: Duration = Duration::from_secs(20);

const PROJECT_KEY: Block =
    [0x78, 0x97, 0xb8, 0x66, 0x9e, 0xe8, 0x28, 0x90, 0xde, 0x3f, 0x25, 0xfa, 0x07, 0x69, 0x42, 0x5e];
const PROJECT_IV: Block =
    [0x9b, 0xff, 0x07, 0xff, 0x7f, 0x73, 0x7e, 0x3e, 0xf1, 0x07, 0x19, 0x5f, 0xdb, 0xd5, 0xf9, 0xdc];

/// The key of the vectors.
pub fn project_key() -> CipherKey {
    CipherKey::new(PROJECT_KEY, PROJECT_IV)
}

/// A server with the folder that it uses.
pub struct World {
    pub server: VcluServer,
    pub folder: TestFolder,
    config: VcluServerConfig,
    /// How far the clock of the CLU is ahead.
    ahead: Arc<Mutex<Duration>>,
}

impl World {
    /// With objects in the form of OM.LUA.
    pub fn with_objects(objects: &str) -> World {
        World::configured(objects, |_| {})
    }

    pub fn configured(objects: &str, configure: impl FnOnce(&mut VcluServerConfig)) -> World {
        let folder = TestFolder::new();
        folder.write("MAIN.LUA", MAIN);
        folder.write("OM.LUA", &om(objects));
        folder.write("USER.LUA", "");
        let mut server = CluServerConfig::new(SERIAL, Ipv4Addr::LOCALHOST, project_key());
        server.pin = Pin::new(PIN);
        server.report_interval = Duration::from_millis(100);
        let mut config = VcluServerConfig::new(VcluConfig::new(folder.scripts()), server);
        config.listen = (Ipv4Addr::LOCALHOST, 0).into();
        config.tftp = Some((Ipv4Addr::LOCALHOST, 0).into());
        config.keys = Some(folder.0.join("keys.json"));
        let ahead = Arc::new(Mutex::new(Duration::ZERO));
        let of_clock = Arc::clone(&ahead);
        config.clu.clock = Arc::new(move || {
            let now = Now { monotonic: Instant::now(), wall: SystemTime::now().into() };
            now + *of_clock.lock().unwrap()
        });
        config.clu.storage = Some(folder.0.join("storage"));
        configure(&mut config);
        World { server: VcluServer::start(config.clone()).unwrap(), folder, config, ahead }
    }

    /// Stops the server and starts it again, on another port.
    pub fn restart(self) -> World {
        let World { server, folder, config, ahead } = self;
        server.stop();
        World { server: VcluServer::start(config.clone()).unwrap(), folder, config, ahead }
    }

    /// Advances the clock. The server looks at it with its next turn.
    pub fn advance(&self, by: Duration) {
        *self.ahead.lock().unwrap() += by;
    }

    pub fn client(&self) -> Client {
        Client::new(self.server.address(), project_key())
    }

    /// A client with another address.
    pub fn client_at(&self, address: Ipv4Addr) -> Client {
        Client::bound(address, self.server.address(), project_key())
    }

    /// The configuration, for another server.
    pub fn config(&self) -> VcluServerConfig {
        self.config.clone()
    }
}

/// A client with one socket.
pub struct Client {
    pub socket: UdpSocket,
    pub clu: SocketAddr,
    pub key: CipherKey,
    next: u32,
}

impl Client {
    pub fn new(clu: SocketAddr, key: CipherKey) -> Client {
        Client::bound(Ipv4Addr::LOCALHOST, clu, key)
    }

    fn bound(address: Ipv4Addr, clu: SocketAddr, key: CipherKey) -> Client {
        let socket = UdpSocket::bind((address, 0)).unwrap();
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        Client { socket, clu, key, next: 0 }
    }

    pub fn send(&self, datagram: &[u8]) {
        assert_eq!(self.socket.send_to(datagram, self.clu).unwrap(), datagram.len());
    }

    /// The next datagram, from the port of the request.
    pub fn receive(&self) -> Vec<u8> {
        let mut buffer = [0; 4096];
        let (n_bytes, from) = self.socket.recv_from(&mut buffer).expect("no reply");
        assert_eq!(from, self.clu);
        buffer[..n_bytes].to_vec()
    }

    pub fn encrypted(&self, request: &Request<'_>) -> Vec<u8> {
        let (mut command, mut datagram) = (Vec::new(), Vec::new());
        request.encode(&mut command);
        self.key.encrypt(&command, &mut datagram);
        datagram
    }

    /// The next datagram as text.
    pub fn receive_text(&self) -> String {
        let (datagram, mut buffer) = (self.receive(), Vec::new());
        let text = self.key.decrypt(&datagram, &mut buffer).expect("another key");
        String::from_utf8(text.to_vec()).unwrap()
    }

    /// Sends a plain text encrypted.
    pub fn send_text(&self, text: &[u8]) {
        let mut datagram = Vec::new();
        self.key.encrypt(text, &mut datagram);
        self.send(&datagram);
    }

    /// The reply to a request, as text.
    pub fn request(&self, request: &Request<'_>) -> String {
        self.send(&self.encrypted(request));
        self.receive_text()
    }

    /// Sends a script and returns its number.
    pub fn start(&mut self, script: &str) -> u32 {
        self.next += 1;
        let session = Session(self.next);
        self.send(&self.encrypted(&Request::Execute { client: None, session, script: script.as_bytes() }));
        self.next
    }

    /// The value of a script. Reports before it are ignored.
    pub fn eval(&mut self, script: &str) -> String {
        let started = self.start(script);
        loop {
            if let (number, value) = self.value()
                && number == started
            {
                return value;
            }
        }
    }

    /// The next report, without those that are queued from before.
    pub fn report(&self) -> String {
        loop {
            if let (0, value) = self.value() {
                return value;
            }
        }
    }

    /// Waits for a report with this text.
    pub fn wait_report(&self, expected: &str) {
        while self.report() != expected {}
    }

    /// Waits until the server has handled everything that this client has sent.
    pub fn settle(&mut self) {
        self.eval("1");
    }

    /// The next reply or report: its number, which is 0 for a report, and its value.
    pub fn value(&self) -> (u32, String) {
        let text = self.receive_text();
        match Reply::decode(text.as_bytes()) {
            Some(Reply::Executed { clu, session, value }) => {
                assert_eq!(clu, Some(Ipv4Addr::LOCALHOST));
                (session.0, String::from_utf8(value.to_vec()).unwrap())
            }
            _ => panic!("not a value: {text}"),
        }
    }
}

/// The bytes of hexadecimal digits.
pub fn bytes(digits: &str) -> Vec<u8> {
    let pairs = digits.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
    pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
}
