//! The floor as a driver: the same work over a raw socket; see [`crate::floor`].

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};

use super::{Driver, Failure, Hello};
use crate::floor::{self, READ_BYTES, REQUEST_BYTES, SCALAR_REPLY_BYTES, Verb};
use crate::limit::{ELEMENTS_MAX, OPERATION_MAX};

/// Where a large answer is read to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// By way of a reused buffer into memory allocated for it.
    Fresh,
    /// Straight into the memory of the answer before.
    Reused,
}

/// One raw socket.
#[derive(Debug)]
pub struct Raw {
    port: u16,
    destination: Destination,
    stream: Option<TcpStream>,
    buffer: Vec<u8>,
    reply: Vec<u8>,
    n_elements: usize,
    elements: Vec<i32>,
}

impl Raw {
    /// To the server at this port of loopback.
    pub fn new(port: u16, destination: Destination) -> Raw {
        let buffer = vec![0; READ_BYTES];
        Raw { port, destination, stream: None, buffer, reply: Vec::new(), n_elements: 0, elements: Vec::new() }
    }

    fn read_fresh(stream: &mut TcpStream, buffer: &mut [u8], n_bytes: usize) -> std::io::Result<Vec<u8>> {
        let mut reply = Vec::with_capacity(n_bytes);
        while reply.len() < n_bytes {
            let n = stream.read(buffer)?;
            if n == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            reply.extend_from_slice(buffer.get(..n).unwrap_or_default());
        }
        Ok(reply)
    }
}

fn failed(what: &str) -> impl FnOnce(std::io::Error) -> Failure + '_ {
    move |why| Failure::Operation { what: what.into(), why: why.to_string() }
}

fn not_open() -> Failure {
    Failure::Operation { what: "use of the socket".into(), why: "it is not open".into() }
}

impl Driver for Raw {
    fn hello(&self) -> Hello {
        Hello { client: "raw socket".into(), ..Hello::default() }
    }

    fn open(&mut self, _pv: &str, _n_channels: usize) -> Result<usize, Failure> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).map_err(failed("connect"))?;
        stream.set_nodelay(true).map_err(failed("TCP_NODELAY"))?;
        stream.set_read_timeout(Some(OPERATION_MAX)).map_err(failed("time-out"))?;
        self.stream = Some(stream);
        Ok(ELEMENTS_MAX)
    }

    fn get_scalar(&mut self, _channel_index: usize) -> Result<f64, Failure> {
        let stream = self.stream.as_mut().ok_or_else(not_open)?;
        let mut reply = [0; SCALAR_REPLY_BYTES];
        stream.write_all(&floor::request(Verb::Get, SCALAR_REPLY_BYTES)).map_err(failed("request"))?;
        stream.read_exact(&mut reply).map_err(failed("answer"))?;
        Ok(reply.last_chunk().copied().map_or(f64::NAN, f64::from_be_bytes))
    }

    fn put_array(&mut self, elements: &[i32]) -> Result<(), Failure> {
        match self.destination {
            Destination::Fresh => self.reply = Vec::new(),
            // Memory counts as reused once it has been written to: the first touch of a page is dear.
            Destination::Reused => self.reply.resize(floor::array_reply_bytes(elements.len()), 0),
        }
        let stream = self.stream.as_mut().ok_or_else(not_open)?;
        let mut image = vec![0; floor::array_prefix_bytes(elements.len())];
        image.extend(elements.iter().flat_map(|element| element.to_ne_bytes()));
        image.resize(floor::array_reply_bytes(elements.len()), 0);
        let mut done = [0; REQUEST_BYTES];
        stream.write_all(&floor::request(Verb::Put, image.len())).map_err(failed("request"))?;
        stream.write_all(&image).map_err(failed("put"))?;
        stream.read_exact(&mut done).map_err(failed("answer"))
    }

    fn get_array(&mut self, n_elements: usize) -> Result<(), Failure> {
        let stream = self.stream.as_mut().ok_or_else(not_open)?;
        let n_bytes = floor::array_reply_bytes(n_elements);
        self.n_elements = n_elements;
        stream.write_all(&floor::request(Verb::Get, n_bytes)).map_err(failed("request"))?;
        match self.destination {
            Destination::Fresh => {
                self.reply = Raw::read_fresh(stream, &mut self.buffer, n_bytes).map_err(failed("answer"))?;
                Ok(())
            }
            Destination::Reused => stream.read_exact(&mut self.reply).map_err(failed("answer")),
        }
    }

    fn elements(&mut self) -> &[i32] {
        let n_elements = self.n_elements;
        let bytes = self.reply.get(floor::array_prefix_bytes(n_elements)..).unwrap_or_default();
        self.elements.clear();
        self.elements.extend(bytes.as_chunks().0.iter().take(n_elements).map(|chunk| i32::from_ne_bytes(*chunk)));
        &self.elements
    }
}
