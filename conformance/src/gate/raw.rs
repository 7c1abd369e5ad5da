//! Requests that the client library does not offer, or whose reply it does not return: a put without completion that
//! fails, reads and subscriptions of every DBR type, alarm acknowledgement as alarm handlers do it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use fodo_ca::dbr::{self, DbrType};
use fodo_ca::eca::Eca;
use fodo_ca::message::{Answer, HEADER_BYTES, Header, MINOR_VERSION, Request, encode_text};
use fodo_data::{Reading, Value};
use fodo_engine::{Cid, Ioid, Sid, SubscriptionId};

use crate::TestFailure;
use crate::client::OPERATION_DURATION_MAX;

/// How a value is requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestMethod {
    /// READ_NOTIFY.
    Read,
    /// EVENT_ADD; the first update is the answer.
    Subscribe,
}

/// Writes a value without completion and returns the server's reply: nothing, or the status of an ERROR.
pub fn write(server: SocketAddr, pv: &str, dbr: DbrType, value: Value) -> Result<String, TestFailure> {
    let mut circuit = TestCircuit::open(server, pv)?;
    let mut payload = Vec::new();
    let encoded = dbr::encode(dbr, 0, &Reading::bare(value), &mut payload);
    let count = encoded.map_err(|error| error.to_string())?;
    circuit.send(Request::Write { dbr, count, sid: circuit.sid, ioid: Ioid(1) }, &payload)?;
    circuit.send_alone(Request::Echo {})?;
    let mut outcome = String::new();
    loop {
        match circuit.next()? {
            (Answer::Error { status, .. }, _) => outcome = format!("refused: {status}"),
            (Answer::Echo {}, _) => return Ok(outcome),
            _ => {}
        }
    }
}

/// Requests a value as any DBR type and returns the server's reply; `show` formats the reading.
pub fn read(
    server: SocketAddr,
    pv: &str,
    way: RequestMethod,
    dbr: DbrType,
    count: u32,
    show: &dyn Fn(&Reading) -> String,
) -> Result<String, TestFailure> {
    let mut circuit = TestCircuit::open(server, pv)?;
    let sid = circuit.sid;
    match way {
        RequestMethod::Read => circuit.send_alone(Request::ReadNotify { dbr, count, sid, ioid: Ioid(1) })?,
        RequestMethod::Subscribe => {
            let subscription = SubscriptionId(1);
            // Three unused floats, the mask, padding.
            let payload = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0];
            circuit.send(Request::EventAdd { dbr, count, sid, subscription }, &payload)?;
        }
    }
    loop {
        let (dbr, count, status, payload) = match circuit.next()? {
            (Answer::ReadNotify { dbr, count, status, .. }, payload) => (dbr, count, status, payload),
            (Answer::EventAdd { dbr, count, status, .. }, payload) => (dbr, count, status, payload),
            (Answer::Error { status, .. }, _) => return Ok(format!("refused: {status}")),
            _ => continue,
        };
        if status != Eca::NORMAL {
            return Ok(format!("refused: {status}"));
        }
        let reading = dbr::decode(dbr, count, &payload).map_err(|error| format!("{pv} as {dbr}: {error}"))?;
        return Ok(show(&reading));
    }
}

/// A circuit with one channel.
struct TestCircuit {
    stream: TcpStream,
    sid: Sid,
}

impl TestCircuit {
    fn open(server: SocketAddr, pv: &str) -> Result<TestCircuit, TestFailure> {
        let stream = TcpStream::connect(server).map_err(|error| format!("{server}: {error}"))?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        stream.set_read_timeout(Some(OPERATION_DURATION_MAX)).map_err(|error| error.to_string())?;
        let mut circuit = TestCircuit { stream, sid: Sid(0) };
        let minor = u32::from(MINOR_VERSION);
        circuit.send_alone(Request::Version { priority: 0, minor, sequence: 0 })?;
        circuit.send_text(Request::HostName {}, b"here")?;
        circuit.send_text(Request::ClientName {}, b"gate")?;
        circuit.send_text(Request::CreateChan { cid: Cid(1), minor }, pv.as_bytes())?;
        loop {
            match circuit.next()?.0 {
                Answer::CreateChan { sid, .. } => {
                    circuit.sid = sid;
                    return Ok(circuit);
                }
                Answer::CreateChFail { .. } => return Err(format!("{pv} does not exist")),
                _ => {}
            }
        }
    }

    fn send_alone(&mut self, request: Request) -> Result<(), TestFailure> {
        self.send(request, &[])
    }

    fn send(&mut self, request: Request, payload: &[u8]) -> Result<(), TestFailure> {
        let mut bytes = Vec::new();
        request.header(payload.len()).encode(&mut bytes);
        bytes.extend_from_slice(payload);
        self.stream.write_all(&bytes).map_err(|error| error.to_string())
    }

    fn send_text(&mut self, request: Request, text: &[u8]) -> Result<(), TestFailure> {
        let mut bytes = Vec::new();
        encode_text(&mut bytes, |n_bytes| request.header(n_bytes), text);
        self.stream.write_all(&bytes).map_err(|error| error.to_string())
    }

    /// Receives the next message.
    fn next(&mut self) -> Result<(Answer, Vec<u8>), TestFailure> {
        let mut bytes = [0; HEADER_BYTES];
        self.stream.read_exact(&mut bytes).map_err(|error| format!("no reply: {error}"))?;
        let (header, _) = Header::decode(&bytes).ok_or("unexpected extended header")?;
        let mut payload = vec![0; header.payload_bytes as usize];
        self.stream.read_exact(&mut payload).map_err(|error| format!("no reply: {error}"))?;
        Ok((Answer::from_header(&header), payload))
    }
}
