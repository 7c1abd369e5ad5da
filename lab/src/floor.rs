//! The floor: what a blocking round trip of the very sizes costs over a raw socket between two
//! processes, with no protocol, no second thread and no conversion.
//!
//! A request is 16 bytes, the length of a READ_NOTIFY; it says how many bytes to answer, so one server
//! serves every size. The answers are as long as those of Channel Access:
//! [`SCALAR_REPLY_BYTES`] for one double with time, [`array_reply_bytes`] for an array of 32-bit integers.
//!
//! Buffer rules of the client: a small answer is read into a reused buffer. A large one comes in two
//! ways, both reported: **fresh** reads into a reused buffer of 256 KiB and copies to a destination
//! allocated for this answer, as a client does that parses what it reads and hands out what it got;
//! **reused** reads straight into the destination of the answer before, which no value that the user
//! keeps can do: it is the limit of the wire. Neither swaps bytes; Channel Access has to.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

/// Header of a Channel Access message.
const HEADER_BYTES: usize = 16;

/// Header of a message whose payload or count does not fit 16 bits.
const EXTENDED_HEADER_BYTES: usize = 24;

/// `DBR_TIME_DOUBLE` of one element: status and severity 4, time stamp 8, padding 4, value 8.
const TIME_DOUBLE_BYTES: usize = 24;

/// Alarm and time stamp before the elements of `DBR_TIME_LONG`.
const TIME_LONG_PREFIX_BYTES: usize = 12;

/// A request: READ_NOTIFY has no payload.
pub const REQUEST_BYTES: usize = HEADER_BYTES;

/// The answer to a get of one double with time.
pub const SCALAR_REPLY_BYTES: usize = HEADER_BYTES + TIME_DOUBLE_BYTES;

/// How much of a large answer is read at once.
pub const READ_BYTES: usize = 256 * 1024;

/// The answer to a get of an array of 32-bit integers with time, payload padded to 8.
pub fn array_reply_bytes(n_elements: usize) -> usize {
    let payload = (TIME_LONG_PREFIX_BYTES + 4 * n_elements).next_multiple_of(8);
    let is_extended = payload >= 0xffff || n_elements >= 0xffff;
    payload + if is_extended { EXTENDED_HEADER_BYTES } else { HEADER_BYTES }
}

/// What precedes the elements in such an answer.
pub fn array_prefix_bytes(n_elements: usize) -> usize {
    let payload = (TIME_LONG_PREFIX_BYTES + 4 * n_elements).next_multiple_of(8);
    array_reply_bytes(n_elements) - payload + TIME_LONG_PREFIX_BYTES
}

/// What a request wants of the server's store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// The first bytes of it; zeros while nothing was put.
    Get,
    /// To be it from now on: so many bytes follow, and [`REQUEST_BYTES`] of zeros answer.
    Put,
}

/// A request about so many bytes.
pub fn request(verb: Verb, n_bytes: usize) -> [u8; REQUEST_BYTES] {
    let [a, b, c, d] = (n_bytes as u32).to_be_bytes();
    let is_put = u8::from(verb == Verb::Put);
    [a, b, c, d, is_put, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
}

/// Listens on loopback, tells its port to `announce`, and answers for ever, one thread and one store
/// of bytes per client.
pub fn serve(announce: impl FnOnce(u16) -> std::io::Result<()>) -> std::io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    announce(listener.local_addr()?.port())?;
    for stream in listener.incoming() {
        let stream = stream?;
        std::thread::spawn(move || {
            // A client that leaves ends its thread; nobody waits for the reason.
            let _ = serve_one(stream);
        });
    }
    Ok(())
}

fn serve_one(mut stream: TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut request = [0; REQUEST_BYTES];
    let mut store: Vec<u8> = vec![0; SCALAR_REPLY_BYTES];
    loop {
        stream.read_exact(&mut request)?;
        let [a, b, c, d, is_put, ..] = request;
        let n_bytes = (u32::from_be_bytes([a, b, c, d]) as usize).min(STORE_BYTES_MAX);
        if is_put == 0 {
            // Asked for more than there is, it answers less, and the client's check finds out.
            stream.write_all(store.get(..n_bytes).unwrap_or(&store))?;
        } else {
            store.resize(n_bytes, 0);
            stream.read_exact(&mut store)?;
            stream.write_all(&[0; REQUEST_BYTES])?;
        }
    }
}

/// A little more than the largest array takes; a longer one is cut and so found out.
const STORE_BYTES_MAX: usize = 4 * crate::limit::ELEMENTS_MAX + 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_channel_access() {
        assert_eq!(REQUEST_BYTES, 16);
        assert_eq!(SCALAR_REPLY_BYTES, 40);
        assert_eq!(array_reply_bytes(10_000), 16 + 12 + 40_000 + 4);
        assert_eq!(array_reply_bytes(10_000_000), 24 + 12 + 40_000_000 + 4);
        assert_eq!(array_prefix_bytes(10_000_000), 36);
    }

    #[test]
    fn the_server_gives_back_as_many_bytes_as_it_is_asked_for_and_as_they_were_put() {
        let (sender, port) = std::sync::mpsc::channel();
        std::thread::spawn(move || serve(|port| sender.send(port).map_err(std::io::Error::other)));
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port.recv().unwrap())).unwrap();
        let put: Vec<u8> = (0..200).collect();
        let mut done = [0xff; REQUEST_BYTES];
        let mut reply = [0; 150];

        stream.write_all(&request(Verb::Put, put.len())).unwrap();
        stream.write_all(&put).unwrap();
        stream.read_exact(&mut done).unwrap();
        stream.write_all(&request(Verb::Get, reply.len())).unwrap();
        stream.read_exact(&mut reply).unwrap();

        assert_eq!(done, [0; REQUEST_BYTES]);
        assert_eq!(reply, put[..150]);
    }
}
