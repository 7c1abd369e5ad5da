//! The floor: the cost of moving the same number of bytes as an operation between two processes over raw sockets, with
//! the same number of round trips, without a protocol, a second thread or conversions.
//!
//! A request is as long as that of Channel Access. Its first 16 bytes contain the length of the answer, so one server
//! serves every size. The answers are as long as those of Channel Access, too.
//!
//! | what | requests and answers |
//! |---|---|
//! | one get | [`REQUEST_BYTES`], [`SCALAR_REPLY_BYTES`] or [`array_reply_bytes`]; blocking |
//! | n gets, first updates, puts at once | n of [`GET`], [`SUBSCRIBE`], [`PUT`]: written [`CHUNK`] at a time, at most two chunks in flight, so that the two sides cannot deadlock |
//! | n puts without a reply | n of [`PUT_UNCONFIRMED`], then one [`GET`], whose answer confirms that all were received |
//! | gets in flight | n of [`GET`], in chunks of half the limit in flight |
//! | connecting one by one | a datagram with one search ([`search_bytes`]) and its answer, then [`create`] on the existing circuit: two round trips each |
//! | connecting n at once | the same, searches packed as in Channel Access, [`DATAGRAMS_IN_FLIGHT`] in flight; the requests for the channels of a datagram follow its answer |
//!
//! Over pvAccess the messages are those of Fodo, see [`FloorSizes::PVA`]; a subscription is a request that opens it, and
//! one that starts it. Datagrams and arrays have the sizes of Channel Access: a search of pvAccess is a byte shorter.
//!
//! A context without a circuit moves no bytes and so has no floor.
//!
//! Buffers of the client: a small answer is read into a reused buffer. A large one is measured in two ways, both
//! reported: **fresh** reads into a reused buffer of 256 KiB and copies to a destination allocated for this answer,
//! like a client that parses what it reads and hands out the value; **reused** reads directly into the destination of
//! the previous answer, which is impossible for a value that the user keeps: it is the limit of the wire. Neither swaps
//! bytes; Channel Access must.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use crate::protocol::LabProtocol;

/// Header of a Channel Access message.
const HEADER_BYTES: usize = 16;

/// Header of a message whose payload size or count exceeds 16 bits.
const EXTENDED_HEADER_BYTES: usize = 24;

/// `DBR_TIME_DOUBLE` of one element: status and severity 4, time stamp 8, padding 4, value 8.
const TIME_DOUBLE_BYTES: usize = 24;

/// Alarm and time stamp before the elements of `DBR_TIME_LONG`.
const TIME_LONG_PREFIX_BYTES: usize = 12;

/// A request: READ_NOTIFY has no payload.
pub const REQUEST_BYTES: usize = HEADER_BYTES;

/// The answer to a get of one double with time.
pub const SCALAR_REPLY_BYTES: usize = HEADER_BYTES + TIME_DOUBLE_BYTES;

/// The answer to a get of a whole double of a record over pvAccess, without units and description: header 14, set of
/// changes 5, value 8, alarm 9, time 16, limits and form 90, as QSRV2 sends it for a record of type ao.
pub const PVA_WHOLE_REPLY_BYTES: usize = 196;

/// The answer to a get of every field of a group of 20 doubles of records, as Fodo sends it: header 14, set of changes 86,
/// option of the group 1, and for each member 166, a whole double of a record of type ai.
pub const PVA_GROUP_REPLY_BYTES: usize = 3421;

/// Bytes of a large answer that are read at once.
pub const READ_BYTES: usize = 256 * 1024;

/// The answer to a get of an array of 32-bit integers with time, payload padded to 8.
pub fn array_reply_bytes(n_elements: usize) -> usize {
    let payload = (TIME_LONG_PREFIX_BYTES + 4 * n_elements).next_multiple_of(8);
    let is_extended = payload >= 0xffff || n_elements >= 0xffff;
    payload + if is_extended { EXTENDED_HEADER_BYTES } else { HEADER_BYTES }
}

/// Bytes before the elements in such an answer.
pub fn array_prefix_bytes(n_elements: usize) -> usize {
    let payload = (TIME_LONG_PREFIX_BYTES + 4 * n_elements).next_multiple_of(8);
    array_reply_bytes(n_elements) - payload + TIME_LONG_PREFIX_BYTES
}

/// One request on a circuit and its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundTripSize {
    /// The request, with its payload.
    pub request_bytes: usize,
    /// The answer; 0 for none.
    pub answer_bytes: usize,
}

/// READ_NOTIFY of one double with time.
pub const GET: RoundTripSize = RoundTripSize { request_bytes: REQUEST_BYTES, answer_bytes: SCALAR_REPLY_BYTES };

/// EVENT_ADD, whose payload is 16 bytes, and its first update.
pub const SUBSCRIBE: RoundTripSize =
    RoundTripSize { request_bytes: HEADER_BYTES + 16, answer_bytes: SCALAR_REPLY_BYTES };

/// WRITE_NOTIFY of one double.
pub const PUT: RoundTripSize = RoundTripSize { request_bytes: HEADER_BYTES + 8, answer_bytes: HEADER_BYTES };

/// WRITE of one double.
pub const PUT_UNCONFIRMED: RoundTripSize = RoundTripSize { request_bytes: HEADER_BYTES + 8, answer_bytes: 0 };

/// Sizes of the messages of a protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FloorSizes {
    protocol: LabProtocol,
    /// A get of a double with its alarm and time.
    pub get: RoundTripSize,
    /// What opens a get, a put or a subscription; `None` if nothing does.
    pub open: Option<RoundTripSize>,
    /// The start of a subscription, and its first update.
    pub subscribe: RoundTripSize,
    /// A put of a double with completion.
    pub put: RoundTripSize,
    /// A put of a double without completion.
    pub put_unconfirmed: RoundTripSize,
}

impl FloorSizes {
    const CA: FloorSizes = FloorSizes {
        protocol: LabProtocol::Ca,
        get: GET,
        open: None,
        subscribe: SUBSCRIBE,
        put: PUT,
        put_unconfirmed: PUT_UNCONFIRMED,
    };

    /// Header 8, channel and request 8, subcommand 1. A reading is a set of changes 2, value 8, alarm 9, time 16; a reply
    /// begins with header 8, request 4, subcommand 1, status 1. The request for three fields has 43 bytes, its reply a
    /// type id of 3. The floor's shortest answer has 16 bytes, two more than the reply to a put.
    const PVA: FloorSizes = FloorSizes {
        protocol: LabProtocol::Pva,
        get: RoundTripSize { request_bytes: 17, answer_bytes: 49 },
        open: Some(RoundTripSize { request_bytes: 60, answer_bytes: 17 }),
        subscribe: RoundTripSize { request_bytes: 17, answer_bytes: 49 },
        put: RoundTripSize { request_bytes: 27, answer_bytes: REQUEST_BYTES },
        put_unconfirmed: RoundTripSize { request_bytes: 27, answer_bytes: REQUEST_BYTES },
    };

    /// The sizes of a protocol.
    pub fn of(protocol: LabProtocol) -> FloorSizes {
        match protocol {
            LabProtocol::Ca => FloorSizes::CA,
            LabProtocol::Pva => FloorSizes::PVA,
        }
    }

    /// The creation of a channel.
    pub fn create(self, name: &str) -> RoundTripSize {
        match self.protocol {
            LabProtocol::Ca => create(name),
            // Header 8, count 2, channel 4, name; header 8, both numbers of the channel 8, status 1.
            LabProtocol::Pva => RoundTripSize { request_bytes: 15 + name.len(), answer_bytes: 17 },
        }
    }
}

/// CREATE_CHAN with a name; ACCESS_RIGHTS and CREATE_CHAN.
pub fn create(name: &str) -> RoundTripSize {
    RoundTripSize { request_bytes: HEADER_BYTES + text_bytes(name), answer_bytes: 2 * HEADER_BYTES }
}

/// SEARCH for a name; VERSION, as long as a header, precedes the first in a datagram.
pub fn search_bytes(name: &str) -> usize {
    HEADER_BYTES + text_bytes(name)
}

/// The claim of one name; VERSION precedes the first one in a datagram.
pub const CLAIM_BYTES: usize = HEADER_BYTES + 8;

/// Bytes before the searches or claims in a datagram.
pub const VERSION_BYTES: usize = HEADER_BYTES;

/// Maximum size of a datagram of searches: the limit that EPICS programs use.
const DATAGRAM_BYTES: usize = 1024;

/// Number of searches for names of this length in a datagram.
pub fn searches_per_datagram(name: &str) -> usize {
    ((DATAGRAM_BYTES - VERSION_BYTES) / search_bytes(name)).max(1)
}

/// A text is zero-terminated and padded to 8.
fn text_bytes(text: &str) -> usize {
    (text.len() + 1).next_multiple_of(8)
}

/// Requests written at once. Two chunks and their answers fit into the socket buffers of every system.
pub const CHUNK: usize = 1000;

/// Datagrams in flight: at most 48 kilobytes; the smallest socket buffer in use has four times that size. On a link
/// with a delay, fewer would measure the delay instead of the sockets.
pub const DATAGRAMS_IN_FLIGHT: usize = 32;

/// What a request asks the server to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FloorCommand {
    /// Return the first bytes of the store; zeros before the first put.
    Get,
    /// Store the `n_bytes` that follow; the answer is [`REQUEST_BYTES`] zeros.
    Put,
    /// Return an answer of `n_bytes` that ends with the number of these requests received on this circuit; see
    /// [`exchange_request`].
    Count,
}

/// Encodes a request for `n_bytes`.
pub fn request(verb: FloorCommand, n_bytes: usize) -> [u8; REQUEST_BYTES] {
    let [a, b, c, d] = (n_bytes as u32).to_be_bytes();
    [a, b, c, d, verb as u8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
}

/// Encodes a request with the sizes of `exchange`.
pub fn exchange_request(exchange: RoundTripSize) -> Vec<u8> {
    let payload_bytes = (exchange.request_bytes - REQUEST_BYTES) as u32;
    let mut bytes = request(FloorCommand::Count, exchange.answer_bytes).to_vec();
    bytes.splice(8..12, payload_bytes.to_be_bytes());
    bytes.resize(exchange.request_bytes, 0);
    bytes
}

/// The counter at the end of the answer to such a request.
pub fn counted(answer: &[u8]) -> Option<u32> {
    answer.last_chunk().copied().map(u32::from_be_bytes)
}

/// A datagram of searches, each `bytes_each` long, for the channels of these numbers.
pub fn searches(bytes_each: usize, numbers: std::ops::Range<usize>) -> Vec<u8> {
    let mut bytes = vec![0; VERSION_BYTES];
    bytes.splice(..4, (bytes_each as u32).to_be_bytes());
    for number in numbers {
        let start = bytes.len();
        bytes.resize(start + bytes_each, 0);
        bytes.splice(start + 12..start + 16, (number as u32).to_be_bytes());
    }
    bytes
}

/// The answer to a datagram of searches: one claim per search, with its number.
fn claims(datagram: &[u8]) -> Vec<u8> {
    let bytes_each = datagram.first_chunk().map_or(0, |chunk| u32::from_be_bytes(*chunk) as usize);
    let mut claims = vec![0; VERSION_BYTES];
    for search in datagram.get(VERSION_BYTES..).unwrap_or_default().chunks_exact(bytes_each.max(HEADER_BYTES)) {
        claims.extend_from_slice(search.get(..HEADER_BYTES).unwrap_or_default());
        claims.resize(claims.len() + CLAIM_BYTES - HEADER_BYTES, 0);
    }
    claims
}

/// The channel numbers in a datagram of claims.
pub fn claimed(datagram: &[u8]) -> impl Iterator<Item = usize> + '_ {
    let claims = datagram.get(VERSION_BYTES..).unwrap_or_default().chunks_exact(CLAIM_BYTES);
    claims.filter_map(|claim| claim.get(12..)?.first_chunk().map(|chunk| u32::from_be_bytes(*chunk) as usize))
}

/// The names in a Channel Access search datagram.
pub fn searched(datagram: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        let (&head, after) = rest.split_first_chunk::<16>()?;
        let [command, n_bytes] = [[head[0], head[1]], [head[2], head[3]]].map(u16::from_be_bytes);
        let (body, next) = after.split_at_checked(usize::from(n_bytes))?;
        rest = next;
        Some((command == SEARCH).then(|| body.split(|byte| *byte == 0).next().unwrap_or_default()))
    })
    .flatten()
}

/// Command number of a search.
const SEARCH: u16 = 6;

/// Listens at `host`, passes its port, the same for TCP and UDP, to `announce`, and serves without end: one thread and
/// one byte store per client, one thread for all searches.
pub fn serve(host: Ipv4Addr, announce: impl FnOnce(u16) -> std::io::Result<()>) -> std::io::Result<()> {
    let (listener, socket) = both_on_one_port(host)?;
    // A client that finds the queue full retries after a second, and ten thousand clients connect faster than their
    // threads start.
    rustix::net::listen(&listener, BACKLOG)?;
    announce(listener.local_addr()?.port())?;
    std::thread::spawn(move || {
        // Without answers the client's search fails and reports the reason.
        let _ = serve_searches(&socket);
    });
    for stream in listener.incoming() {
        // Without a file descriptor or a thread, only this client's question fails.
        let Ok(stream) = stream else {
            std::thread::sleep(NO_ROOM);
            continue;
        };
        let _ = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(move || {
            // A client that disconnects ends its thread; the reason does not matter.
            let _ = serve_one(&stream);
        });
    }
    Ok(())
}

/// Maximum number of connections waiting to be accepted; the system has its own limit, 4096 on Linux.
const BACKLOG: i32 = 65_535;

/// Interval between attempts to accept when resources are exhausted.
const NO_ROOM: Duration = Duration::from_millis(10);

/// Stack of a connection's thread; there may be ten thousand, and their buffers are on the heap.
const STACK_BYTES: usize = 64 * 1024;

/// A port that is free for TCP is usually free for UDP as well; otherwise another port is tried.
fn both_on_one_port(host: Ipv4Addr) -> std::io::Result<(TcpListener, UdpSocket)> {
    const N_TRIES: usize = 16;
    let mut failed = std::io::Error::from(std::io::ErrorKind::AddrInUse);
    for _try in 0..N_TRIES {
        let listener = TcpListener::bind((host, 0))?;
        match UdpSocket::bind(listener.local_addr()?) {
            Ok(socket) => return Ok((listener, socket)),
            Err(why) => failed = why,
        }
    }
    Err(failed)
}

fn serve_searches(socket: &UdpSocket) -> std::io::Result<()> {
    let mut datagram = [0; 2 * DATAGRAM_BYTES];
    loop {
        let (n, from) = socket.recv_from(&mut datagram)?;
        socket.send_to(&claims(datagram.get(..n).unwrap_or_default()), from)?;
    }
}

fn serve_one(mut stream: &TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::with_capacity(READ_BYTES, stream);
    let mut request = [0; REQUEST_BYTES];
    let mut store: Vec<u8> = vec![0; SCALAR_REPLY_BYTES];
    let mut answers: Vec<u8> = Vec::with_capacity(READ_BYTES);
    let mut n_counted: u32 = 0;
    loop {
        // Send all answers before blocking on the next request.
        if !answers.is_empty() && (reader.buffer().is_empty() || answers.len() >= READ_BYTES / 2) {
            stream.write_all(&answers)?;
            answers.clear();
        }
        reader.read_exact(&mut request)?;
        let [a, b, c, d, verb, _, _, _, e, f, g, h, ..] = request;
        let n_bytes = (u32::from_be_bytes([a, b, c, d]) as usize).min(STORE_BYTES_MAX);
        if verb == FloorCommand::Count as u8 {
            skip(&mut reader, u32::from_be_bytes([e, f, g, h]) as usize)?;
            n_counted = n_counted.wrapping_add(1);
            if n_bytes >= REQUEST_BYTES {
                answers.resize(answers.len() + n_bytes - 4, 0);
                answers.extend_from_slice(&n_counted.to_be_bytes());
            }
        } else if verb == FloorCommand::Get as u8 {
            // A request for more bytes than stored returns fewer, which the client's check detects.
            stream.write_all(store.get(..n_bytes).unwrap_or(&store))?;
        } else {
            store.resize(n_bytes, 0);
            reader.read_exact(&mut store)?;
            stream.write_all(&[0; REQUEST_BYTES])?;
        }
    }
}

/// Discards a payload.
fn skip(reader: &mut BufReader<&TcpStream>, mut n_bytes: usize) -> std::io::Result<()> {
    while n_bytes > 0 {
        let n = reader.fill_buf()?.len().min(n_bytes);
        if n == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        reader.consume(n);
        n_bytes -= n;
    }
    Ok(())
}

/// Slightly more than the largest array; a longer one is truncated and thereby detected.
const STORE_BYTES_MAX: usize = 4 * crate::limit::ELEMENTS_MAX + 64;

#[cfg(test)]
mod tests {
    use super::*;
    use fodo_data::Now;

    #[test]
    fn search_names_are_parsed_after_the_version_message() {
        let message = |command: u8, body: &[u8]| [&[0, command, 0, body.len() as u8][..], &[0; 12], body].concat();
        let datagram = [message(0, b""), message(6, b"first\0\0\0"), message(6, b"second\0\0"), vec![0, 6, 0]].concat();

        assert_eq!(searched(&datagram).collect::<Vec<_>>(), [&b"first"[..], b"second"]);
    }

    #[test]
    fn floor_message_sizes_are_the_same_as_in_channel_access() {
        assert_eq!(REQUEST_BYTES, 16);
        assert_eq!(SCALAR_REPLY_BYTES, 40);
        assert_eq!(array_reply_bytes(10_000), 16 + 12 + 40_000 + 4);
        assert_eq!(array_reply_bytes(10_000_000), 24 + 12 + 40_000_000 + 4);
        assert_eq!(array_prefix_bytes(10_000_000), 36);
    }

    fn client_config() -> fodo_ca::client::Config {
        fodo_ca::client::Config {
            priority: 0,
            user: String::new(),
            host: String::new(),
            echo_after: Duration::from_secs(30),
            payload_bytes_max: 1 << 20,
        }
    }

    #[test]
    fn floor_requests_and_replies_have_the_same_size_as_fodo_circuit_messages() {
        use fodo_ca::dbr::DbrType;
        use fodo_ca::server::ReadReply;
        use fodo_ca::{client, server};
        use fodo_engine::{Cid, Ioid, Rights, SubscriptionId};
        use fodo_net::{EventMask, Kind, Reading, Value};
        let now = Now::for_test();
        let mut client = client::Circuit::new(&client_config(), now);
        let mut server = server::Circuit::new(&server::Config { payload_bytes_max: 1 << 20 }, now);
        let (double, time) = (
            DbrType::of(Kind::F64, fodo_ca::dbr::AttributeLevel::Plain),
            DbrType::of(Kind::F64, fodo_ca::dbr::AttributeLevel::Time),
        );
        let (value, reading) = (Value::from(1.5), Reading::bare(Value::from(1.5)));
        let mut known = (client.pending_bytes(), server.pending_bytes());
        let mut grown = |client: &client::Circuit, server: &server::Circuit| {
            let before = std::mem::replace(&mut known, (client.pending_bytes(), server.pending_bytes()));
            RoundTripSize { request_bytes: known.0 - before.0, answer_bytes: known.1 - before.1 }
        };

        for name in ["x", "1234567", "12345678", "lab:000000", "ca:test:counter01"] {
            client.create(Cid(1), name, now);
            server.created(Cid(1), double, 1, Rights { read: true, write: true });
            assert_eq!(grown(&client, &server), create(name), "{name}");
        }
        let sid = server.created(Cid(2), double, 1, Rights { read: true, write: true });
        grown(&client, &server);

        client.read(sid, time, 1, Ioid(1));
        server.read_done(sid, time, 1, ReadReply::Notify(Ioid(1)), Ok(&reading));
        assert_eq!(grown(&client, &server), GET);
        client.subscribe(sid, time, 1, EventMask::VALUE, SubscriptionId(1));
        server.update(sid, time, 1, SubscriptionId(1), Ok(&reading)).unwrap();
        assert_eq!(grown(&client, &server), SUBSCRIBE);
        client.write(sid, double, &value, Some(Ioid(2))).unwrap();
        server.write_done(sid, double, 1, Some(Ioid(2)), Ok(()));
        assert_eq!(grown(&client, &server), PUT);
        client.write(sid, double, &value, None).unwrap();
        server.write_done(sid, double, 1, None, Ok(()));
        assert_eq!(grown(&client, &server), PUT_UNCONFIRMED);
    }

    #[test]
    fn floor_datagrams_have_the_same_size_as_fodo_searches_and_replies() {
        use fodo_ca::search::{NameSearcher, Responder, Searcher};
        let (name, n) = ("lab:000000", 100);
        let (mut datagrams, mut answered) = (Vec::new(), Vec::new());
        let mut searcher = Searcher::new(1);
        for cid in 0..n {
            searcher.add(fodo_engine::Cid(cid), name, Now::for_test());
        }

        searcher.tick(Now::for_test(), &mut datagrams);
        let from = (Ipv4Addr::LOCALHOST, 5064).into();
        Responder::new(5064, Now::for_test()).handle(from, &datagrams[0].bytes, &mut |_| true, &mut answered);

        let ours = searches(search_bytes(name), 0..searches_per_datagram(name));
        assert_eq!(datagrams[0].bytes.len(), ours.len());
        assert_eq!(answered[0].bytes.len(), claims(&ours).len());
        assert_eq!(claimed(&claims(&ours)).collect::<Vec<_>>(), (0..31).collect::<Vec<_>>());
    }

    #[test]
    fn the_floor_server_returns_the_requested_number_of_put_bytes() {
        let (sender, port) = std::sync::mpsc::channel();
        std::thread::spawn(move || serve(Ipv4Addr::LOCALHOST, |port| sender.send(port).map_err(std::io::Error::other)));
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port.recv().unwrap())).unwrap();
        let put: Vec<u8> = (0..200).collect();
        let mut done = [0xff; REQUEST_BYTES];
        let mut reply = [0; 150];

        stream.write_all(&request(FloorCommand::Put, put.len())).unwrap();
        stream.write_all(&put).unwrap();
        stream.read_exact(&mut done).unwrap();
        stream.write_all(&request(FloorCommand::Get, reply.len())).unwrap();
        stream.read_exact(&mut reply).unwrap();

        assert_eq!(done, [0; REQUEST_BYTES]);
        assert_eq!(reply, put[..150]);
    }
}
