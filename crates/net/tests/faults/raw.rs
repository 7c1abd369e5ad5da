//! A client that sends only what a test specifies.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use fodo_ca::dbr::DbrType;
use fodo_ca::message::{self, Answer, Header, Request};
use fodo_engine::{Cid, Ioid, Sid, SubscriptionId};

use crate::PATIENCE;

pub const DOUBLE: DbrType = DbrType(6);

/// A connection to a server.
pub struct Raw {
    pub stream: TcpStream,
}

impl Raw {
    /// Connects without sending anything.
    pub fn connected(port: u16) -> Raw {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Raw { stream }
    }

    /// Connects, exchanges VERSION and creates a channel, which has number 0.
    pub fn with_channel(port: u16, name: &str) -> Raw {
        let mut raw = Raw::connected(port);
        raw.send(&[bare(Request::Version { priority: 0, minor: 13, sequence: 0 }), create(0, name)]);
        raw.until(|answer| matches!(answer, Answer::CreateChan { .. }));
        raw
    }

    pub fn send(&mut self, messages: &[Vec<u8>]) {
        self.stream.write_all(&messages.concat()).unwrap();
    }

    /// Sends as much as the other side accepts; returns the number of bytes.
    pub fn flood(&mut self, bytes: &[u8], enough: usize) -> usize {
        self.stream.set_nonblocking(true).unwrap();
        let (mut n_said, mut since) = (0, Instant::now());
        // Bytes that are not accepted for that long will not be accepted.
        while n_said < enough && since.elapsed() < Duration::from_millis(300) {
            match self.stream.write(&bytes[n_said % bytes.len()..]) {
                Ok(n) => (n_said, since) = (n_said + n, Instant::now()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::yield_now(),
                Err(error) => panic!("{error} after {n_said} bytes"),
            }
        }
        self.stream.set_nonblocking(false).unwrap();
        n_said
    }

    /// The next message with its payload; `None` at the end of the stream.
    pub fn hear(&mut self) -> Option<(Answer, Vec<u8>)> {
        let mut bytes = vec![0; message::HEADER_BYTES];
        self.stream.read_exact(&mut bytes).ok()?;
        if Header::decode(&bytes).is_none() {
            bytes.resize(message::EXTENDED_BYTES, 0);
            self.stream.read_exact(&mut bytes[message::HEADER_BYTES..]).ok()?;
        }
        let (header, _) = Header::decode(&bytes)?;
        let mut payload = vec![0; header.payload_bytes as usize];
        self.stream.read_exact(&mut payload).ok()?;
        Some((Answer::from_header(&header), payload))
    }

    /// The first message that matches; others are ignored.
    pub fn until(&mut self, is_expected: impl Fn(&Answer) -> bool) -> (Answer, Vec<u8>) {
        loop {
            let message = self.hear().expect("the stream ended early");
            if is_expected(&message.0) {
                return message;
            }
        }
    }

    /// How long the server takes to end the stream.
    pub fn ended_after(&mut self) -> Duration {
        let start = Instant::now();
        let mut buffer = [0; 4096];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return start.elapsed(),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return start.elapsed(),
                Err(error) => panic!("{error}: the stream goes on"),
            }
        }
    }
}

pub fn bare(request: Request) -> Vec<u8> {
    with(request, &[])
}

pub fn with(request: Request, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    request.header(payload.len()).encode(&mut bytes);
    bytes.extend_from_slice(payload);
    bytes
}

pub fn create(cid: u32, name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let request = Request::CreateChan { cid: Cid(cid), minor: 13 };
    message::encode_text(&mut bytes, |size| request.header(size), name.as_bytes());
    bytes
}

/// A get of all elements of channel 0, as doubles.
pub fn read(ioid: u32) -> Vec<u8> {
    bare(Request::ReadNotify { dbr: DOUBLE, count: 0, sid: Sid(0), ioid: Ioid(ioid) })
}

/// A put of 1.5 to channel 0, with a reply.
pub fn put(ioid: u32) -> Vec<u8> {
    with(Request::WriteNotify { dbr: DOUBLE, count: 1, sid: Sid(0), ioid: Ioid(ioid) }, &1.5_f64.to_be_bytes())
}

/// A subscription to all elements of channel 0.
pub fn subscribe(subscription: u32) -> Vec<u8> {
    let mut payload = Vec::new();
    message::encode_mask(&mut payload, 1);
    let request = Request::EventAdd { dbr: DOUBLE, count: 0, sid: Sid(0), subscription: SubscriptionId(subscription) };
    with(request, &payload)
}

pub fn echo() -> Vec<u8> {
    bare(Request::Echo {})
}
