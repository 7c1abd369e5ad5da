//! A server that claims every name and answers requests according to a script.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use fodo_ca::dbr::DbrType;
use fodo_ca::eca::Eca;
use fodo_ca::message::{Answer, Header, Request};
use fodo_ca::search::Responder;
use fodo_data::Now;
use fodo_engine::{Cid, Ioid, Rights, Sid, SubscriptionId};

/// The script: what is sent in reply to each request.
type Script = dyn Fn(&Request) -> Option<Vec<u8>> + Send + Sync;

/// The server; it claims names until it is dropped.
pub struct Scripted {
    udp: SocketAddr,
    tcp: SocketAddr,
    is_over: Arc<AtomicBool>,
    n_connections: Arc<AtomicUsize>,
}

impl Scripted {
    /// Claims at once, and sends what the script returns for each request.
    pub fn start(script: impl Fn(&Request) -> Option<Vec<u8>> + Send + Sync + 'static) -> Scripted {
        Scripted::start_with(Duration::ZERO, script)
    }

    /// The same, with delayed claims.
    pub fn start_with(
        claim_after: Duration,
        script: impl Fn(&Request) -> Option<Vec<u8>> + Send + Sync + 'static,
    ) -> Scripted {
        Scripted::run(claim_after, Arc::new(script), false)
    }

    /// Closes each connection when a channel is requested.
    pub fn closing_at_create() -> Scripted {
        Scripted::run(Duration::ZERO, Arc::new(|_: &Request| None), true)
    }

    fn run(claim_after: Duration, script: Arc<Script>, closes: bool) -> Scripted {
        let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let scripted = Scripted {
            udp: udp.local_addr().unwrap(),
            tcp: tcp.local_addr().unwrap(),
            is_over: Arc::default(),
            n_connections: Arc::default(),
        };
        let (is_over, port) = (scripted.is_over.clone(), scripted.tcp.port());
        thread::spawn(move || claim(&udp, port, claim_after, &is_over));
        let n_connections = scripted.n_connections.clone();
        thread::spawn(move || {
            while let Ok((stream, _)) = tcp.accept() {
                n_connections.fetch_add(1, Ordering::Relaxed);
                let script = script.clone();
                thread::spawn(move || converse(stream, &*script, closes));
            }
        });
        scripted
    }

    /// The address at which it answers searches.
    pub fn address(&self) -> SocketAddr {
        self.udp
    }

    /// The address at which it accepts connections.
    pub fn tcp(&self) -> SocketAddr {
        self.tcp
    }

    /// The number of accepted connections.
    pub fn n_connections(&self) -> usize {
        self.n_connections.load(Ordering::Relaxed)
    }

    /// From now on searches are ignored.
    pub fn claims_no_more(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.claims_no_more();
    }
}

fn claim(socket: &UdpSocket, port: u16, after: Duration, is_over: &AtomicBool) {
    socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let now = Now { monotonic: Instant::now(), wall: SystemTime::now().into() };
    let (mut responder, mut buffer, mut answers) = (Responder::new(port, now), [0; 2048], Vec::new());
    while !is_over.load(Ordering::Relaxed) {
        let Ok((n, from)) = socket.recv_from(&mut buffer) else { continue };
        if is_over.load(Ordering::Relaxed) {
            return;
        }
        thread::sleep(after);
        responder.handle(from, &buffer[..n], &mut |_| true, &mut answers);
        for answer in answers.drain(..) {
            // The client may have ended already.
            let _ = socket.send_to(&answer.bytes, from);
        }
    }
}

/// Reads requests until the connection ends.
fn converse(mut stream: TcpStream, script: &Script, closes: bool) {
    let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
    // As rsrv does, so that the client knows that the server supports a count of 0.
    let mut said = stream.write_all(&message(Answer::Version { valid: 0, minor: 13, sequence: 0 }, &[]));
    while let (Ok(()), Ok(n @ 1..)) = (&said, stream.read(&mut piece)) {
        bytes.extend_from_slice(&piece[..n]);
        while let Some((header, n_header)) = Header::decode(&bytes) {
            let end = n_header + header.payload_bytes as usize;
            if end > bytes.len() {
                break;
            }
            bytes.drain(..end);
            let request = Request::from_header(&header);
            if closes && matches!(request, Request::CreateChan { .. }) {
                return;
            }
            if let Some(reply) = script(&request) {
                said = stream.write_all(&reply);
            }
        }
    }
}

/// A message with its payload.
pub fn message(answer: Answer, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    answer.header(payload.len()).encode(&mut bytes);
    bytes.extend_from_slice(payload);
    bytes
}

/// A channel of doubles with read and write access.
pub fn created(cid: Cid, count: u32) -> Vec<u8> {
    let rights = Answer::AccessRights { cid, rights: Rights { read: true, write: true } };
    [message(rights, &[]), message(Answer::CreateChan { dbr: DbrType(6), count, cid, sid: Sid(1) }, &[])].concat()
}

/// A rejected request.
pub fn error(request: &Request, status: Eca, text: &str) -> Vec<u8> {
    let mut payload = Vec::new();
    request.encode(&mut payload);
    payload.extend_from_slice(text.as_bytes());
    payload.resize(payload.len() / 8 * 8 + 8, 0);
    message(Answer::Error { cid: Cid(0), status }, &payload)
}

/// Zeros as the reply to a get.
pub fn value(dbr: DbrType, count: u32, ioid: Ioid) -> Vec<u8> {
    message(Answer::ReadNotify { dbr, count, status: Eca::NORMAL, ioid }, &zeros(dbr, count))
}

/// Zeros as an update.
pub fn update(dbr: DbrType, count: u32, subscription: SubscriptionId) -> Vec<u8> {
    message(Answer::EventAdd { dbr, count, status: Eca::NORMAL, subscription }, &zeros(dbr, count))
}

fn zeros(dbr: DbrType, count: u32) -> Vec<u8> {
    vec![0; dbr.payload_bytes(count).unwrap().next_multiple_of(8)]
}
