//! Requests that no correct client sends.

use std::io::Read;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use fodo_data::Structure;
use fodo_engine::{Ioid, Sid};
use fodo_net::{Peer, PvTable, Quotas, Rights, ServerConfig, SharedPv};
use fodo_pva::client::{Event, Task};
use fodo_pva::cursor::ByteOrder;
use fodo_pva::frame::{Frame, Framer, Sender};
use fodo_pva::message::{Answer, NewChannel, Request, Subcommand};
use fodo_pva::validation::Credentials;
use fodo_pva::value;

use crate::peer::Client;
use crate::{PATIENCE, start, start_with};

/// A connection that sends only what the test specifies.
pub struct Raw {
    stream: TcpStream,
    framer: Framer,
    received: Vec<u8>,
}

impl Raw {
    pub fn new(port: u16) -> Raw {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Raw { stream, framer: Framer::new(Sender::Server, 1 << 24), received: Vec::new() }
    }

    pub fn send(&mut self, request: &Request, body: impl FnOnce(&mut fodo_pva::cursor::ByteWriter)) {
        use std::io::Write;
        let mut bytes = Vec::new();
        request.encode(ByteOrder::Little, &mut bytes, body);
        self.stream.write_all(&bytes).unwrap();
    }

    /// The next message that matches.
    pub fn until(&mut self, is_expected: impl Fn(&Answer) -> bool) -> Answer {
        loop {
            let mut input = &self.received[..];
            let frame = self.framer.next(&mut input).unwrap();
            let answer = match frame {
                Some(Frame::Message(header, payload)) => {
                    let mut reader = fodo_pva::cursor::ByteReader::new(payload, header.order);
                    Some(Answer::decode(header.command, &mut reader))
                }
                _ => None,
            };
            let took_bytes = input.len() < self.received.len();
            self.received = input.to_vec();
            match answer {
                Some(answer) if is_expected(&answer) => return answer,
                None if !took_bytes => {
                    let mut buffer = [0; 4096];
                    let n = self.stream.read(&mut buffer).unwrap();
                    assert!(n > 0, "the stream ended");
                    self.received.extend_from_slice(&buffer[..n]);
                }
                _ => {}
            }
        }
    }
}

// Row 43 of docs/reference/faults.md.
#[test]
fn a_stale_channel_or_operation_gets_a_status_and_the_circuit_goes_on() {
    let server = start([("x", SharedPv::new(1.5))]);
    let mut client = Client::new(&server);
    let x = client.channel("x");
    let get = client.open(x, Task::Get, "value");
    let (sid, ioid) = (Sid(99), Ioid(77));
    let none = |_: &mut fodo_pva::cursor::ByteWriter| {};

    let mut raw = Raw::new(server.pva_tcp_port().unwrap());
    let is_refused = |answer: &Answer| match answer {
        Answer::Get { status, .. } | Answer::Put { status, .. } => !status.is_success(),
        _ => false,
    };
    raw.send(&Request::Get { sid, ioid, sub: Subcommand::INIT }, |to| value::encode_any(None, None, to));
    raw.until(is_refused);
    raw.send(&Request::Get { sid, ioid, sub: Subcommand::EXECUTE }, none);
    raw.until(is_refused);
    raw.send(&Request::Put { sid, ioid, sub: Subcommand::GET }, none);
    raw.until(is_refused);
    raw.send(&Request::DestroyRequest { sid, ioid }, none);
    raw.send(&Request::CancelRequest { sid, ioid }, none);
    raw.send(&Request::Echo {}, none);
    raw.until(|answer| matches!(answer, Answer::Echo {}));

    assert_eq!(client.get(get).unwrap().value, 1.5.into());
}

#[test]
fn a_procedure_call_of_a_flat_pv_gets_a_status() {
    let server = start([("x", SharedPv::new(1.5))]);
    let mut client = Client::new(&server);
    let x = client.channel("x");
    let rpc = client.open(x, Task::Rpc, "");
    let argument = fodo_data::StructureBuilder::new("").finish();

    client.machine().rpc(rpc, Structure::new(Arc::new(argument))).unwrap();

    let Event::Done { result, .. } = client.event() else { panic!("no reply") };
    assert!(result.unwrap_err().to_string().contains("the PV is not a procedure"));
}

#[test]
fn a_client_that_never_sends_its_identity_is_closed() {
    let quotas = Quotas { silent_client: Duration::from_millis(100), ..Quotas::default() };
    let config = ServerConfig { quotas, ..ServerConfig::isolated() };
    let server = start_with(config, Arc::new(PvTable::new()));
    let mut stream = TcpStream::connect(("127.0.0.1", server.pva_tcp_port().unwrap())).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();

    let mut received = Vec::new();
    stream.read_to_end(&mut received).unwrap();

    // The greeting, and nothing else.
    assert_eq!(received.len(), 8 + 8 + 20);
    assert_eq!(server.observer().counts().evicted, 1);
}

#[test]
fn bytes_that_are_no_message_close_only_their_circuit() {
    let server = start([("x", SharedPv::new(1.5))]);
    let (mut good, mut bad) = (Client::new(&server), Client::new(&server));
    let x = good.channel("x");
    bad.channel("x");

    bad.send_raw(b"GET / HTTP/1.1\r\n\r\n");
    assert!(bad.try_event().is_none());

    assert_eq!(good.get_once(x, "value").unwrap().value, 1.5.into());
}

// QSRV2 accepts channels before the identity, too.
#[test]
fn the_rights_of_a_channel_follow_an_identity_that_is_sent_later() {
    let rights = |peer: &Peer| Rights { read: peer.user == "ann", write: false };
    let server = start([("x", SharedPv::builder(1.5).rights(rights).build())]);
    let mut raw = Raw::new(server.pva_tcp_port().unwrap());
    let none = |_: &mut fodo_pva::cursor::ByteWriter| {};
    let channels = vec![NewChannel { cid: fodo_engine::Cid(1), name: "x".into() }];
    raw.send(&Request::CreateChannel { channels }, none);
    let Answer::CreateChannel { sid, .. } = raw.until(|answer| matches!(answer, Answer::CreateChannel { .. })) else {
        panic!("no channel");
    };
    let get = |sub| Request::Get { sid, ioid: Ioid(1), sub };
    raw.send(&get(Subcommand::INIT), |to| value::encode_any(None, None, to));
    raw.until(|answer| matches!(answer, Answer::Get { sub: Subcommand::INIT, .. }));
    let is_executed = |answer: &Answer| matches!(answer, Answer::Get { sub: Subcommand::EXECUTE, .. });
    let read = |raw: &mut Raw| {
        raw.send(&get(Subcommand::EXECUTE), none);
        let Answer::Get { status, .. } = raw.until(is_executed) else { panic!("no reply") };
        status.is_success()
    };
    assert!(!read(&mut raw));

    let credentials = Credentials::Ca { user: "ann".into(), host: "desk".into() };
    let validation =
        Request::ConnectionValidation { buffer_bytes: 0, registry_size: 0, qos: 0, method: credentials.method() };
    raw.send(&validation, |to| credentials.encode(None, to));
    raw.until(|answer| matches!(answer, Answer::ConnectionValidated { .. }));

    assert!(read(&mut raw));
}
