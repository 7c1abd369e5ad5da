//! The floor as a driver: the same work over a raw socket; see [`crate::floor`].

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddrV4, TcpStream, UdpSocket};
use std::ops::Range;
use std::time::{Duration, Instant};

use super::rounds::{ProcessGets, RoundTimes};
use super::{ArrayTimes, ConnectedChannels, Driver, DriverFailure, Hello, Timed};
use crate::floor::{self, FloorCommand, FloorSizes, READ_BYTES, REQUEST_BYTES, RoundTripSize, SCALAR_REPLY_BYTES};
use crate::limit::{ELEMENTS_MAX, IN_FLIGHT_MAX, OPERATION_MAX, RAW_STREAM_AHEAD};
use crate::protocol::LabProtocol;

/// Where a large answer is read to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// Through a reused buffer into newly allocated memory.
    Fresh,
    /// Directly into the memory of the previous answer.
    Reused,
}

/// The sockets that stand for a circuit and its searches.
#[derive(Debug)]
struct RawSockets {
    stream: TcpStream,
    searching: UdpSocket,
    /// How many requests of [`FloorCommand::Count`] were sent, and how many are answered or need no answer.
    n_sent: usize,
    n_done: usize,
    answers: Vec<u8>,
}

/// The client end of one circuit.
#[derive(Debug)]
pub struct RawDriver {
    server: SocketAddrV4,
    destination: Destination,
    sizes: FloorSizes,
    circuit: Option<RawSockets>,
    buffer: Vec<u8>,
    reply: Vec<u8>,
    n_elements: usize,
    elements: Vec<i32>,
}

impl RawDriver {
    /// A driver for the server at `server`, with messages as long as those of `protocol`.
    pub fn new(server: SocketAddrV4, destination: Destination, protocol: LabProtocol) -> RawDriver {
        let sizes = FloorSizes::of(protocol);
        let buffer = vec![0; READ_BYTES];
        RawDriver {
            server,
            destination,
            sizes,
            circuit: None,
            buffer,
            reply: Vec::new(),
            n_elements: 0,
            elements: Vec::new(),
        }
    }

    fn circuit(&mut self) -> Result<&mut RawSockets, DriverFailure> {
        self.circuit.as_mut().ok_or_else(not_open)
    }

    /// Sends one request and waits for its answer.
    pub fn round_trip(&mut self, exchange: RoundTripSize) -> Result<(), DriverFailure> {
        self.circuit()?.exchange(exchange, 1, 1)
    }

    fn stream(&mut self) -> Result<&mut TcpStream, DriverFailure> {
        Ok(&mut self.circuit()?.stream)
    }

    /// Reads arrays of this size one after the other, each into the memory of the one before, while the server always
    /// has another request. Returns how many arrays arrive per second.
    pub fn stream_arrays(&mut self, array_bytes: usize, duration: Duration) -> Result<f64, DriverFailure> {
        self.open("", 1)?;
        self.put_array(&vec![0; array_bytes / size_of::<i32>()])?;
        let request = floor::request(FloorCommand::Get, self.reply.len());
        let stream = &mut self.circuit.as_mut().ok_or_else(not_open)?.stream;
        stream.write_all(&request.repeat(RAW_STREAM_AHEAD)).map_err(failed("request"))?;
        let (start, mut n_arrays) = (Instant::now(), 0.0);
        while start.elapsed() < duration {
            stream.write_all(&request).map_err(failed("request"))?;
            stream.read_exact(&mut self.reply).map_err(failed("answer"))?;
            n_arrays += 1.0;
        }
        Ok(n_arrays / start.elapsed().as_secs_f64())
    }

    /// Requests the array `n` times at once, and reads all of them into the same memory.
    fn stream_in_flight(&mut self, n: usize) -> Result<(), DriverFailure> {
        let requests = floor::request(FloorCommand::Get, self.reply.len()).repeat(n);
        let stream = &mut self.circuit.as_mut().ok_or_else(not_open)?.stream;
        stream.write_all(&requests).map_err(failed("request"))?;
        (0..n).try_for_each(|_| stream.read_exact(&mut self.reply).map_err(failed("answer")))
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

impl RawSockets {
    fn open(server: SocketAddrV4) -> std::io::Result<RawSockets> {
        let stream = TcpStream::connect(server)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(OPERATION_MAX))?;
        let searching = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        searching.connect(server)?;
        searching.set_read_timeout(Some(OPERATION_MAX))?;
        Ok(RawSockets { stream, searching, n_sent: 0, n_done: 0, answers: Vec::new() })
    }

    /// Sends the first `n` of the encoded `requests`.
    fn send(&mut self, requests: &[u8], exchange: RoundTripSize, n: usize) -> Result<(), DriverFailure> {
        let bytes = requests.get(..n * exchange.request_bytes).unwrap_or(requests);
        self.n_sent += n;
        self.stream.write_all(bytes).map_err(failed("request"))
    }

    /// Receives `n` answers; each must end with the number of its request.
    fn take(&mut self, exchange: RoundTripSize, n: usize) -> Result<(), DriverFailure> {
        self.answers.resize(n * exchange.answer_bytes, 0);
        self.stream.read_exact(&mut self.answers).map_err(failed("answer"))?;
        for (index, answer) in self.answers.chunks_exact(exchange.answer_bytes.max(1)).enumerate() {
            let (number, expected) = (floor::counted(answer).unwrap_or(0), self.n_done + index + 1);
            if number != expected as u32 {
                return Err(DriverFailure::WrongCount { n: number as usize, expected });
            }
        }
        self.n_done += n;
        Ok(())
    }

    /// Exchanges `n` equal requests, `chunk` at a time and at most two chunks in flight.
    fn exchange(&mut self, exchange: RoundTripSize, n: usize, chunk: usize) -> Result<(), DriverFailure> {
        let requests = floor::exchange_request(exchange).repeat(chunk.min(n));
        let end = self.n_done + n;
        let mut n_left = n;
        while self.n_done < end {
            while n_left > 0 && self.n_sent - self.n_done <= chunk {
                let n_now = n_left.min(chunk);
                self.send(&requests, exchange, n_now)?;
                n_left -= n_now;
            }
            self.take(exchange, chunk.min(end - self.n_done))?;
        }
        Ok(())
    }

    fn search(&self, bytes_each: usize, numbers: Range<usize>) -> Result<(), DriverFailure> {
        self.searching.send(&floor::searches(bytes_each, numbers)).map(drop).map_err(failed("search"))
    }

    /// The channels that a datagram claims; their numbers must be consecutive.
    fn take_claims(&self) -> Result<Range<usize>, DriverFailure> {
        let mut datagram = [0; 2048];
        let n = self.searching.recv(&mut datagram).map_err(failed("claim"))?;
        let claims = datagram.get(..n).unwrap_or_default();
        let first = floor::claimed(claims).next().unwrap_or_default();
        let n_claimed = floor::claimed(claims).count();
        match floor::claimed(claims).eq(first..first + n_claimed) {
            true => Ok(first..first + n_claimed),
            false => Err(DriverFailure::Protocol {
                line: "the datagram claims channels that were not searched together".into(),
            }),
        }
    }

    /// Searches for the channels of these numbers and creates them, with at most `n_datagram` searches in a datagram.
    fn connect(
        &mut self,
        create: RoundTripSize,
        name: &str,
        numbers: Range<usize>,
        n_datagram: usize,
    ) -> Result<(), DriverFailure> {
        let bytes_each = floor::search_bytes(name);
        let requests = floor::exchange_request(create).repeat(n_datagram.min(numbers.len()));
        let group = |index: usize| {
            let start = (numbers.start + index * n_datagram).min(numbers.end);
            start..(start + n_datagram).min(numbers.end)
        };
        let n_groups = numbers.len().div_ceil(n_datagram);
        for index in 0..n_groups.min(floor::DATAGRAMS_IN_FLIGHT) {
            self.search(bytes_each, group(index))?;
        }
        // On a network datagrams may overtake each other; each must arrive once.
        let mut is_claimed = vec![false; n_groups];
        let mut last = 0;
        for n_received in 0..n_groups {
            let claimed = self.take_claims()?;
            let index = claimed.start.saturating_sub(numbers.start) / n_datagram;
            match is_claimed.get_mut(index) {
                Some(is_claimed) if !*is_claimed && claimed == group(index) => *is_claimed = true,
                _ => return Err(DriverFailure::WrongCount { n: claimed.len(), expected: group(index).len() }),
            }
            if n_received + floor::DATAGRAMS_IN_FLIGHT < n_groups {
                self.search(bytes_each, group(n_received + floor::DATAGRAMS_IN_FLIGHT))?;
            }
            self.send(&requests, create, claimed.len())?;
            if n_received > 0 {
                self.take(create, last)?;
            }
            last = claimed.len();
        }
        self.take(create, last)
    }

    /// Searches for `n` channels, with as many per datagram as possible.
    fn claim(&self, name: &str, n: usize) -> Result<(), DriverFailure> {
        let (bytes_each, n_datagram) = (floor::search_bytes(name), floor::searches_per_datagram(name));
        for first in (0..n).step_by(n_datagram) {
            self.search(bytes_each, first..(first + n_datagram).min(n))?;
            self.take_claims()?;
        }
        Ok(())
    }

    /// Times `n` concurrent exchanges.
    fn time(&mut self, exchange: RoundTripSize, n: usize, chunk: usize) -> Result<Timed, DriverFailure> {
        let (start, n_before) = (Instant::now(), self.n_done);
        self.exchange(exchange, n, chunk)?;
        Ok(Timed::since(start, self.n_done - n_before))
    }
}

fn failed(what: &str) -> impl FnOnce(std::io::Error) -> DriverFailure + '_ {
    move |why| DriverFailure::Operation { what: what.into(), why: why.to_string() }
}

fn not_open() -> DriverFailure {
    DriverFailure::Operation { what: "use of the socket".into(), why: "the socket is not open".into() }
}

impl Driver for RawDriver {
    fn hello(&self) -> Hello {
        Hello { client: "raw socket".into(), ..Hello::default() }
    }

    fn open(&mut self, _pv: &str, _n_channels: usize) -> Result<usize, DriverFailure> {
        self.circuit = Some(RawSockets::open(self.server).map_err(failed("connect"))?);
        Ok(ELEMENTS_MAX)
    }

    fn get_scalar(&mut self, _channel_index: usize) -> Result<f64, DriverFailure> {
        if self.sizes != FloorSizes::of(LabProtocol::Ca) {
            return self.round_trip(self.sizes.get).map(|()| 0.0);
        }
        let stream = self.stream()?;
        let mut reply = [0; SCALAR_REPLY_BYTES];
        stream.write_all(&floor::request(FloorCommand::Get, SCALAR_REPLY_BYTES)).map_err(failed("request"))?;
        stream.read_exact(&mut reply).map_err(failed("answer"))?;
        Ok(reply.last_chunk().copied().map_or(f64::NAN, f64::from_be_bytes))
    }

    fn put_array(&mut self, elements: &[i32]) -> Result<(), DriverFailure> {
        match self.destination {
            Destination::Fresh => self.reply = Vec::new(),
            // Memory counts as reused once it has been written to: the first access to a page is expensive.
            Destination::Reused => self.reply.resize(floor::array_reply_bytes(elements.len()), 0),
        }
        let stream = self.stream()?;
        let mut image = vec![0; floor::array_prefix_bytes(elements.len())];
        image.extend(elements.iter().flat_map(|element| element.to_ne_bytes()));
        image.resize(floor::array_reply_bytes(elements.len()), 0);
        let mut done = [0; REQUEST_BYTES];
        stream.write_all(&floor::request(FloorCommand::Put, image.len())).map_err(failed("request"))?;
        stream.write_all(&image).map_err(failed("put"))?;
        stream.read_exact(&mut done).map_err(failed("answer"))
    }

    fn get_array(&mut self, n_elements: usize) -> Result<(), DriverFailure> {
        let n_bytes = floor::array_reply_bytes(n_elements);
        self.n_elements = n_elements;
        let stream = &mut self.circuit.as_mut().ok_or_else(not_open)?.stream;
        stream.write_all(&floor::request(FloorCommand::Get, n_bytes)).map_err(failed("request"))?;
        match self.destination {
            Destination::Fresh => {
                self.reply = RawDriver::read_fresh(stream, &mut self.buffer, n_bytes).map_err(failed("answer"))?;
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

    fn connect_one_by_one(&mut self, batch: &ConnectedChannels) -> Result<Timed, DriverFailure> {
        let sizes = self.sizes;
        let circuit = self.circuit()?;
        let names = batch.names();
        let (start, n_before) = (Instant::now(), circuit.n_done);
        for (number, name) in names.iter().enumerate() {
            circuit.connect(sizes.create(name), name, number..number + 1, 1)?;
        }
        Ok(Timed::since(start, circuit.n_done - n_before))
    }

    fn connect_at_once(&mut self, batch: &ConnectedChannels) -> Result<Timed, DriverFailure> {
        let sizes = self.sizes;
        let circuit = self.circuit()?;
        // All names of a batch have the same length.
        let Some(name) = batch.names().into_iter().next() else { return Ok(Timed::default()) };
        let (start, n_before) = (Instant::now(), circuit.n_done);
        circuit.connect(sizes.create(&name), &name, 0..batch.n, floor::searches_per_datagram(&name))?;
        Ok(Timed::since(start, circuit.n_done - n_before))
    }

    fn get_at_once(&mut self, batch: &ConnectedChannels) -> Result<Timed, DriverFailure> {
        let get = self.sizes.get;
        self.circuit()?.time(get, batch.n, floor::CHUNK)
    }

    fn get_whole_at_once(&mut self, batch: &ConnectedChannels) -> Result<Timed, DriverFailure> {
        let get = RoundTripSize { answer_bytes: floor::PVA_WHOLE_REPLY_BYTES, ..self.sizes.get };
        self.circuit()?.time(get, batch.n, floor::CHUNK)
    }

    fn get_in_flight(&mut self, batch: &ConnectedChannels) -> Result<Timed, DriverFailure> {
        let get = self.sizes.get;
        self.circuit()?.time(get, batch.n, IN_FLIGHT_MAX / 2)
    }

    fn monitor_at_once(&mut self, batch: &ConnectedChannels) -> Result<Timed, DriverFailure> {
        let FloorSizes { open, subscribe, .. } = self.sizes;
        let circuit = self.circuit()?;
        let start = Instant::now();
        if let Some(open) = open {
            circuit.exchange(open, batch.n, floor::CHUNK)?;
        }
        let n_done = circuit.time(subscribe, batch.n, floor::CHUNK)?.n;
        Ok(Timed::since(start, n_done))
    }

    fn put_at_once(&mut self, batch: &ConnectedChannels) -> Result<Timed, DriverFailure> {
        let put = self.sizes.put;
        self.circuit()?.time(put, batch.n, floor::CHUNK)
    }

    fn put_unconfirmed_at_once(&mut self, batch: &ConnectedChannels) -> Result<Timed, DriverFailure> {
        let sizes = self.sizes;
        let circuit = self.circuit()?;
        let start = Instant::now();
        let n_done = circuit.time(sizes.put_unconfirmed, batch.n, floor::CHUNK)?.n;
        // The answer to this get counts the requests received before it.
        circuit.exchange(sizes.get, 1, 1)?;
        Ok(Timed::since(start, n_done))
    }

    fn contexts_at_work(&mut self, batch: &ConnectedChannels) -> Result<Timed, DriverFailure> {
        let (server, sizes) = (self.server, self.sizes);
        let circuit = self.circuit()?;
        let Some(name) = batch.names().into_iter().next() else { return Ok(Timed::default()) };
        let start = Instant::now();
        circuit.claim(&name, batch.n)?;
        let mut streams = Vec::with_capacity(batch.n);
        for _number in 0..batch.n {
            let stream = TcpStream::connect(server).map_err(failed("connect"))?;
            stream.set_nodelay(true).map_err(failed("connect"))?;
            streams.push(stream);
        }
        // All circuits send their request before the first answer is awaited.
        for exchange in [Some(sizes.create(&name)), sizes.open, Some(sizes.get)].into_iter().flatten() {
            let request = floor::exchange_request(exchange);
            let mut answer = vec![0; exchange.answer_bytes];
            for stream in &mut streams {
                stream.write_all(&request).map_err(failed("request"))?;
            }
            for stream in &mut streams {
                stream.read_exact(&mut answer).map_err(failed("answer"))?;
            }
        }
        let timed = Timed::since(start, streams.len());
        // The server's threads end when they close their streams; wait for that, so that it does not disturb the next
        // measurement.
        for stream in &streams {
            stream.shutdown(Shutdown::Write).map_err(failed("close"))?;
        }
        for stream in &mut streams {
            stream.read_to_end(&mut Vec::new()).map_err(failed("close"))?;
        }
        Ok(timed)
    }

    fn get_group(&mut self, pv: &str, n_members: usize, n: usize) -> Result<ArrayTimes, DriverFailure> {
        self.open(pv, 1)?;
        let get = RoundTripSize { answer_bytes: floor::PVA_GROUP_REPLY_BYTES, ..self.sizes.get };
        let mut latencies_ns = Vec::with_capacity(n);
        for _get in 0..n {
            let start = Instant::now();
            self.round_trip(get)?;
            latencies_ns.push(start.elapsed().as_nanos() as u64);
        }
        Ok(ArrayTimes { latencies_ns, n_elements: n_members })
    }

    /// As many bytes in one round trip: counters as gets at once, arrays into the memory of those before.
    fn process_gets(&mut self, gets: &ProcessGets) -> Result<RoundTimes, DriverFailure> {
        let (n, get) = (gets.records.n, self.sizes.get);
        self.open("", 1)?;
        if gets.n_elements > 0 {
            // The floor puts integers of half the size.
            self.put_array(&vec![0; 2 * gets.n_elements])?;
        }
        let rounds_ns = gets.spans.repeat(|| {
            let start = Instant::now();
            match gets.n_elements {
                0 => self.circuit()?.exchange(get, n, floor::CHUNK)?,
                _ => self.stream_in_flight(n)?,
            }
            Ok(start.elapsed())
        })?;
        Ok(RoundTimes { rounds_ns, n, ..RoundTimes::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Variant;

    type Work = fn(&mut RawDriver, &ConnectedChannels) -> Result<Timed, DriverFailure>;

    fn raw(protocol: LabProtocol) -> RawDriver {
        let (sender, port) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            floor::serve(Ipv4Addr::LOCALHOST, |port| sender.send(port).map_err(std::io::Error::other))
        });
        let server = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port.recv().unwrap());
        let mut raw = RawDriver::new(server, Destination::Fresh, protocol);
        raw.open("any", 1).unwrap();
        raw
    }

    #[test]
    fn raw_batches_of_every_size_complete_all_channels() {
        let mut raws = [raw(LabProtocol::Ca), raw(LabProtocol::Pva)];
        let works: [Work; 7] = [
            RawDriver::connect_one_by_one,
            RawDriver::connect_at_once,
            RawDriver::get_at_once,
            RawDriver::get_in_flight,
            RawDriver::monitor_at_once,
            RawDriver::put_at_once,
            RawDriver::put_unconfirmed_at_once,
        ];

        for n in [0, 1, 31, 32, 100, 2 * floor::CHUNK, 5 * floor::CHUNK + 7] {
            let batch = ConnectedChannels { pattern: "lab:{:06}".into(), n, variant: Variant::Distinct };
            for work in works {
                for raw in &mut raws {
                    assert_eq!(work(raw, &batch).map(|timed| timed.n), Ok(n));
                }
            }
        }
    }

    #[test]
    fn a_raw_stream_reads_whole_arrays_for_the_given_time() {
        let mut raw = RawDriver { destination: Destination::Reused, ..raw(LabProtocol::Pva) };
        let start = Instant::now();

        let arrays_hz = raw.stream_arrays(80_000, Duration::from_millis(20)).unwrap();

        assert!(start.elapsed() >= Duration::from_millis(20));
        assert!(arrays_hz > 0.0 && raw.reply.len() == floor::array_reply_bytes(20_000));
    }

    #[test]
    fn each_context_in_use_has_its_own_circuit() {
        let batch = ConnectedChannels { pattern: "lab:{:06}".into(), n: 40, variant: Variant::Equal };

        for protocol in [LabProtocol::Ca, LabProtocol::Pva] {
            assert_eq!(raw(protocol).contexts_at_work(&batch).map(|timed| timed.n), Ok(40));
        }
    }

    #[test]
    fn an_unexpected_reply_is_a_wrong_count() {
        let mut raw = raw(LabProtocol::Ca);
        let circuit = raw.circuit().unwrap();
        circuit.exchange(floor::PUT, 3, floor::CHUNK).unwrap();

        circuit.n_done = 0;
        circuit.n_sent = 0;
        let counted = circuit.exchange(floor::PUT, 1, floor::CHUNK);

        assert_eq!(counted, Err(DriverFailure::WrongCount { n: 4, expected: 1 }));
    }

    #[test]
    fn search_replies_for_other_channels_are_ignored() {
        let mut raw = raw(LabProtocol::Ca);
        let circuit = raw.circuit().unwrap();

        circuit.search(floor::search_bytes("x"), 5..8).unwrap();
        let connected = circuit.connect(floor::create("x"), "x", 0..3, 3);

        assert_eq!(connected, Err(DriverFailure::WrongCount { n: 3, expected: 0 }));
    }
}
