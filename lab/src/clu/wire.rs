//! The requests of study 004 as datagrams: `checkAlive()`, encrypted with the key of the laboratory's CLU.

use std::collections::HashMap;
use std::net::Ipv4Addr;

use fodo_clu::cipher::{BLOCK_BYTES, CipherKey};
use fodo_clu::command::{Reply, Request, Session};
use fodo_clu::value::REFUSED;

/// What `checkAlive()` returns: the serial number of the laboratory's CLU.
pub const SERIAL: &str = "0d0a1b2c";

/// The expression of each request.
pub const SCRIPT: &str = "checkAlive()";

/// The first session of a book; the others follow. All have the same number of digits.
const SESSION_FIRST: u32 = 0x0001_0000;

/// The key of the laboratory's CLU. It protects nothing: the CLU runs only while it is measured, on loopback.
pub fn key() -> CipherKey {
    CipherKey::new(*b"fodo laboratory\0", *b"initial vector\0\0")
}

/// What a server returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ServedReply {
    /// The bytes of the request.
    Same,
    /// The reply of a CLU.
    Clu,
}

impl ServedReply {
    /// The name in arguments.
    pub fn text(self) -> &'static str {
        match self {
            ServedReply::Same => "same",
            ServedReply::Clu => "clu",
        }
    }
}

/// Requests that differ in their session only, and the replies to them. The cipher is deterministic, so both are known before
/// they are sent.
#[derive(Debug)]
pub struct RequestBook {
    kind: ServedReply,
    key: CipherKey,
    address: Ipv4Addr,
    requests: Vec<Vec<u8>>,
    replies: Vec<Vec<u8>>,
    /// The second block of each reply, which contains the session.
    by_block: HashMap<[u8; BLOCK_BYTES], usize>,
    buffer: Vec<u8>,
}

/// What a received datagram is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceivedReply {
    /// The reply to the request with this index.
    Expected(usize),
    /// A reply to the request with this index, with another value.
    Wrong(usize),
    /// The CLU refused a request; its reply does not contain which one.
    Refused,
    /// None of them.
    Unknown,
}

impl RequestBook {
    /// `n` requests to a CLU at `address`, from the same address.
    pub fn new(n: usize, address: Ipv4Addr, kind: ServedReply) -> RequestBook {
        let mut book = RequestBook {
            kind,
            key: key(),
            address,
            requests: Vec::with_capacity(n),
            replies: Vec::with_capacity(n),
            by_block: HashMap::with_capacity(n),
            buffer: Vec::new(),
        };
        for index in 0..n {
            let mut request = Vec::new();
            book.encrypt(index, &mut request);
            let reply = match kind {
                ServedReply::Same => request.clone(),
                ServedReply::Clu => encrypted_reply(&book.key, session(index), address),
            };
            book.by_block.insert(second_block(&reply), index);
            book.requests.push(request);
            book.replies.push(reply);
        }
        book
    }

    /// Number of requests.
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// The prepared request with this index.
    pub fn request(&self, index: usize) -> &[u8] {
        self.requests.get(index).map_or(&[], Vec::as_slice)
    }

    /// Encrypts the request with this index into `datagram`.
    pub fn encrypt(&self, index: usize, datagram: &mut Vec<u8>) {
        datagram.clear();
        let request =
            Request::Execute { client: Some(self.address), session: session(index), script: SCRIPT.as_bytes() };
        request.encode(datagram);
        self.key.encrypt_from(0, datagram);
    }

    /// Recognises a reply by its bytes; decrypts only what is not expected.
    pub fn compare(&mut self, datagram: &[u8]) -> ReceivedReply {
        match self.by_block.get(&second_block(datagram)) {
            Some(&index) if self.replies.get(index).is_some_and(|reply| reply == datagram) => {
                ReceivedReply::Expected(index)
            }
            _ => self.decrypt(datagram),
        }
    }

    /// Recognises a reply by its contents.
    pub fn decrypt(&mut self, datagram: &[u8]) -> ReceivedReply {
        let Some(message) = self.key.decrypt(datagram, &mut self.buffer) else { return ReceivedReply::Unknown };
        let (session, is_expected) = match self.kind {
            ServedReply::Same => match Request::decode(message) {
                Some(Request::Execute { session, script, .. }) => (session, script == SCRIPT.as_bytes()),
                _ => return ReceivedReply::Unknown,
            },
            ServedReply::Clu => match Reply::decode(message) {
                Some(Reply::Refused {} | Reply::Executed { value: REFUSED, .. }) => return ReceivedReply::Refused,
                Some(Reply::Executed { session, value, .. }) => (session, value == SERIAL.as_bytes()),
                _ => return ReceivedReply::Unknown,
            },
        };
        match session.0.checked_sub(SESSION_FIRST).map(|index| index as usize).filter(|index| *index < self.len()) {
            Some(index) if is_expected => ReceivedReply::Expected(index),
            Some(index) => ReceivedReply::Wrong(index),
            None => ReceivedReply::Unknown,
        }
    }
}

fn session(index: usize) -> Session {
    Session(SESSION_FIRST + index as u32)
}

fn encrypted_reply(key: &CipherKey, session: Session, address: Ipv4Addr) -> Vec<u8> {
    let mut reply = Vec::new();
    Reply::Executed { clu: Some(address), session, value: SERIAL.as_bytes() }.encode(&mut reply);
    key.encrypt_from(0, &mut reply);
    reply
}

/// Zeros if the datagram is shorter.
fn second_block(datagram: &[u8]) -> [u8; BLOCK_BYTES] {
    let block = datagram.get(BLOCK_BYTES..2 * BLOCK_BYTES);
    block.and_then(|block| block.try_into().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: Ipv4Addr = Ipv4Addr::LOCALHOST;

    fn encrypted(text: &str) -> Vec<u8> {
        let mut datagram = Vec::new();
        key().encrypt(text.as_bytes(), &mut datagram);
        datagram
    }

    #[test]
    fn requests_and_replies_have_the_48_bytes_of_the_study() {
        let book = RequestBook::new(300, HOST, ServedReply::Clu);

        assert!(book.requests.iter().chain(&book.replies).all(|datagram| datagram.len() == 48));
        assert_eq!(book.by_block.len(), 300);
    }

    #[test]
    fn a_reply_of_a_clu_is_recognised_by_its_bytes_and_by_its_contents() {
        let mut book = RequestBook::new(10, HOST, ServedReply::Clu);

        for (text, by_bytes) in [
            ("resp:127.0.0.1:00010007:0d0a1b2c", ReceivedReply::Expected(7)),
            // Another form of the same reply.
            ("resp:10.0.0.1:00010007:0d0a1b2c", ReceivedReply::Expected(7)),
            ("resp:127.0.0.1:00010007:emergency", ReceivedReply::Wrong(7)),
            ("resp:127.0.0.1:00020000:0d0a1b2c", ReceivedReply::Unknown),
            ("resp:ERROR", ReceivedReply::Refused),
            ("resp:127.0.0.1:00010007:error: the CLU refused the request", ReceivedReply::Refused),
            ("nonsense", ReceivedReply::Unknown),
        ] {
            assert_eq!(book.compare(&encrypted(text)), by_bytes, "{text}");
            assert_eq!(book.decrypt(&encrypted(text)), by_bytes, "{text}");
        }
        assert_eq!(book.compare(b"not encrypted"), ReceivedReply::Unknown);
    }

    #[test]
    fn an_echo_returns_the_request_and_a_changed_one_is_unknown() {
        let mut book = RequestBook::new(10, HOST, ServedReply::Same);
        let mut request = Vec::new();
        book.encrypt(3, &mut request);

        assert_eq!(request, book.request(3));
        assert_eq!(book.compare(&request), ReceivedReply::Expected(3));
        assert_eq!(book.decrypt(&request), ReceivedReply::Expected(3));
        request[40] ^= 1;
        assert_ne!(book.compare(&request), ReceivedReply::Expected(3));
    }
}
