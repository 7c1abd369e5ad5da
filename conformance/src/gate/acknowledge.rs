//! Alarms acknowledged as alarm handlers do it (`DBR_PUT_ACKT`, `DBR_PUT_ACKS`), for which the client has no call.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use fodo_ca::dbr::DbrType;
use fodo_ca::message::{Answer, HEADER_BYTES, Header, MINOR_VERSION, Request, encode_text};
use fodo_ca::{Cid, Ioid, Sid};

use crate::Failure;
use crate::client::OPERATION_DURATION_MAX;

/// Which of the two is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acknowledge {
    /// ACKT: whether alarms that have gone by themselves still want to be acknowledged.
    Transient,
    /// ACKS: up to which severity they are.
    Severity,
}

/// Writes the number to the PV, on a circuit of its own; what the client is told.
pub fn acknowledge(server: SocketAddr, pv: &str, which: Acknowledge, number: u16) -> Result<String, Failure> {
    let mut stream = TcpStream::connect(server).map_err(|error| format!("{server}: {error}"))?;
    let timeout = Some(OPERATION_DURATION_MAX);
    stream.set_read_timeout(timeout).map_err(|error| error.to_string())?;
    let cid = Cid(1);
    let version = Request::Version { priority: 0, minor: u32::from(MINOR_VERSION), sequence: 0 };
    send_alone(&mut stream, version)?;
    send(&mut stream, Request::HostName {}, b"here")?;
    send(&mut stream, Request::ClientName {}, b"gate")?;
    send(&mut stream, Request::CreateChan { cid, minor: u32::from(MINOR_VERSION) }, pv.as_bytes())?;
    let sid = loop {
        match next(&mut stream)? {
            Answer::CreateChan { sid, .. } => break sid,
            Answer::CreateChFail { .. } => return Err(format!("there is no {pv}")),
            _ => {}
        }
    };
    write(&mut stream, sid, which, number)
}

fn write(stream: &mut TcpStream, sid: Sid, which: Acknowledge, number: u16) -> Result<String, Failure> {
    let dbr = match which {
        Acknowledge::Transient => DbrType::PUT_ACKT,
        Acknowledge::Severity => DbrType::PUT_ACKS,
    };
    // Without an answer, which would have to wait for a record that is active.
    send(stream, Request::Write { dbr, count: 1, sid, ioid: Ioid(1) }, &number.to_be_bytes())?;
    send_alone(stream, Request::Echo {})?;
    let mut told = String::new();
    loop {
        match next(stream)? {
            Answer::Error { status, .. } => told = format!("refused: {status}"),
            Answer::Echo {} => return Ok(told),
            _ => {}
        }
    }
}

/// Sends a message without a payload.
fn send_alone(stream: &mut TcpStream, request: Request) -> Result<(), Failure> {
    let mut bytes = Vec::new();
    request.encode(&mut bytes);
    stream.write_all(&bytes).map_err(|error| error.to_string())
}

/// Sends a message with a payload, behind which the end of a text is no harm.
fn send(stream: &mut TcpStream, request: Request, payload: &[u8]) -> Result<(), Failure> {
    let mut bytes = Vec::new();
    encode_text(&mut bytes, |n_bytes| request.header(n_bytes), payload);
    stream.write_all(&bytes).map_err(|error| error.to_string())
}

/// The next message; its payload is left out.
fn next(stream: &mut TcpStream) -> Result<Answer, Failure> {
    let mut bytes = [0; HEADER_BYTES];
    stream.read_exact(&mut bytes).map_err(|error| format!("no answer: {error}"))?;
    let (header, _) = Header::decode(&bytes).ok_or("an extended header")?;
    let mut payload = vec![0; header.payload_bytes as usize];
    stream.read_exact(&mut payload).map_err(|error| format!("no answer: {error}"))?;
    Ok(Answer::from_header(&header))
}
