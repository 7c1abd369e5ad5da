//! Faults: what a client should not do.

use std::collections::VecDeque;
use std::io::Write;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering};

use fodo_ca::dbr::DbrType;
use fodo_ca::message::{self, Answer, Request};
use fodo_engine::{Cid, Ioid, Sid, SubscriptionId};
use fodo_pva::cursor::ByteOrder;
use fodo_pva::message::Request as PvaRequest;
use fodo_pva::search::{LOCAL_GROUP, OriginTag, SearchFlags, SearchRequest, SearchedChannel, TCP, wire_address};
use socket2::Socket;

use crate::ioc::{Ioc, N_DESCRIPTORS, N_ELEMENTS};
use crate::neighbour::connected_from;
use crate::raw::{DOUBLE, Raw, bare, create, echo, put, read, subscribe, with};

/// Maximum number of connections that misbehaving clients keep open.
const N_HELD: usize = 40;

/// Bytes of a half-sent put, as a random fault.
const HALF_SENT_BYTES: usize = 4 << 20;

/// The name of a fault in the log, and its function.
type Fault = (&'static str, fn(&mut Hostile<'_>));

/// All faults with their names.
pub const FAULTS: [Fault; 17] = [
    ("another protocol", |hostile| hostile.send(b"GET / HTTP/1.1\r\n\r\n")),
    ("random bytes", |hostile| {
        let bytes = hostile.chance.bytes(200);
        hostile.send(&bytes);
    }),
    ("a cut message", |hostile| {
        let n_bytes = 1 + hostile.chance.below(15);
        hostile.send(&echo()[..n_bytes]);
    }),
    ("clients that come and go", |hostile| (0..50).for_each(|_| drop(TcpStream::connect(hostile.server)))),
    ("answers that are not read", |hostile| {
        let raw = hostile.with_channel("f:big");
        hostile.hold(sent(raw, &read(1).repeat(1000)));
    }),
    ("death within a put", die_within_a_put),
    ("changed bytes", change_bytes),
    ("updates turned off", |hostile| {
        let mut off = hostile.with_channel("f:count21");
        off.send(&[subscribe(1), bare(Request::EventsOff {})]);
        hostile.hold(off);
    }),
    ("stray datagrams", |hostile| {
        for _ in 0..20 {
            let n_bytes = hostile.chance.below(1400);
            let bytes = hostile.chance.bytes(n_bytes);
            hostile.send_datagram(&bytes);
        }
    }),
    ("a delay below the clock's resolution", set_delay_to_almost_zero),
    ("half-sent puts", |hostile| {
        let raw = hostile.with_channel("f:huge");
        hostile.hold(half_sent(raw, HALF_SENT_BYTES));
    }),
    ("half-sent puts without rights", |hostile| {
        let raw = hostile.with_channel("f:guarded");
        hostile.hold(half_sent(raw, HALF_SENT_BYTES));
    }),
    ("silent connections", be_silent),
    ("subscriptions of types for puts", subscribe_to_types_for_puts),
    ("a pipe in place of the access file", |hostile| hostile.ioc.offer_a_pipe_as_rules()),
    ("misaligned searches", |hostile| {
        let bytes = misaligned_searches();
        (0..100).for_each(|_| hostile.send_datagram(&bytes));
    }),
    ("forwarded searches", forward_searches),
];

/// A seeded pseudorandom generator.
pub struct Chance(u64);

impl Chance {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % n
    }

    fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.below(256) as u8).collect()
    }
}

/// The misbehaving client, on the host 127.0.0.1 and on another one.
pub struct Hostile<'a> {
    chance: Chance,
    ioc: &'a Ioc,
    server: SocketAddr,
    held: VecDeque<Raw>,
    silent: Vec<Raw>,
}

impl<'a> Hostile<'a> {
    pub fn new(seed: u64, ioc: &'a Ioc) -> Hostile<'a> {
        Hostile { chance: Chance(seed), ioc, server: ioc.server, held: VecDeque::new(), silent: Vec::new() }
    }

    /// Runs one random fault, and stores its index. Connections that the fault leaves open are kept for a while.
    pub fn misbehave(&mut self, fault: &AtomicUsize) {
        let index = self.chance.below(FAULTS.len());
        fault.store(index, Ordering::Relaxed);
        FAULTS[index].1(self);
    }

    /// Closes all connections.
    pub fn go(&mut self) {
        self.held.clear();
        self.silent.clear();
    }

    fn with_channel(&self, name: &str) -> Raw {
        Raw::with_channel(self.server.port(), name)
    }

    /// Sends bytes on a new connection.
    fn send(&mut self, bytes: &[u8]) {
        self.hold(sent(Raw::connected(self.server.port()), bytes));
    }

    fn hold(&mut self, raw: Raw) {
        self.held.push_back(raw);
        while self.held.len() > N_HELD {
            self.held.pop_front();
        }
    }

    fn send_datagram(&self, datagram: &[u8]) {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has a port");
        // A failed send is not a fault of the server.
        let _ = socket.send_to(datagram, self.server);
    }
}

/// Sends bytes; ignores errors, because the server may reject them or have closed the connection.
fn sent(mut raw: Raw, bytes: &[u8]) -> Raw {
    raw.stream.set_nonblocking(true).expect("it is a socket");
    let _ = raw.stream.write(bytes);
    raw
}

fn die_within_a_put(hostile: &mut Hostile<'_>) {
    let mut dying = hostile.with_channel("f:count20");
    dying.send(&(0..100).map(subscribe).collect::<Vec<_>>());
    let last = put(1);
    dying.send(&[last[..1 + hostile.chance.below(last.len())].to_vec()]);
}

fn change_bytes(hostile: &mut Hostile<'_>) {
    let mut conversation = [create(1, "f:ao"), subscribe(1), read(2), put(3), echo()].concat();
    for _ in 0..3 {
        let at = hostile.chance.below(conversation.len());
        conversation[at] = hostile.chance.below(256) as u8;
    }
    let raw = hostile.with_channel("f:longout");
    hostile.hold(sent(raw, &conversation));
}

/// Puts without completion to fields of a record that switches itself off after zero time.
fn set_delay_to_almost_zero(hostile: &mut Hostile<'_>) {
    let mut raw = hostile.with_channel("f:loop.HIGH");
    raw.send(&[create(1, "f:loop.PROC")]);
    raw.until(|answer| matches!(answer, Answer::CreateChan { .. }));
    let write = |sid, value: f64| {
        with(Request::Write { dbr: DOUBLE, count: 1, sid: Sid(sid), ioid: Ioid(1) }, &value.to_be_bytes())
    };
    raw.send(&[write(0, 1e-12), write(1, 1.0), echo()]);
    raw.until(|answer| matches!(answer, Answer::Echo {}));
    hostile.hold(raw);
}

/// Starts a put of 80 MB to channel 0 and sends its first `n_bytes`.
pub fn half_sent(mut raw: Raw, n_bytes: usize) -> Raw {
    let mut header = Vec::new();
    let request = Request::WriteNotify { dbr: DOUBLE, count: N_ELEMENTS, sid: Sid(0), ioid: Ioid(1) };
    request.header(N_ELEMENTS as usize * 8).encode(&mut header);
    raw.send(&[header, vec![1; n_bytes]]);
    raw
}

/// Opens more connections than one host may have, and sends nothing on them.
fn be_silent(hostile: &mut Hostile<'_>) {
    hostile.silent.clear();
    let own = Ipv4Addr::new(127, 0, 0, 3);
    hostile.silent.extend((0..N_DESCRIPTORS).map(|_| connected_from(own, hostile.server)));
}

/// Each subscription is rejected, and the circuit stays open.
fn subscribe_to_types_for_puts(hostile: &mut Hostile<'_>) {
    let mut raw = hostile.with_channel("f:longout");
    for (id, dbr) in [DbrType::PUT_ACKT, DbrType::PUT_ACKS].into_iter().enumerate() {
        let mut mask = Vec::new();
        message::encode_mask(&mut mask, 1);
        let subscription = SubscriptionId(id as u32);
        raw.send(&[with(Request::EventAdd { dbr, count: 1, sid: Sid(0), subscription }, &mask)]);
    }
    raw.send(&[echo()]);
    raw.until(|answer| matches!(answer, Answer::Echo {}));
    hostile.hold(raw);
}

/// Sends searches of pvAccess that the IOC forwards to the servers of its host, and others that a server seems to have
/// forwarded.
fn forward_searches(hostile: &mut Hostile<'_>) {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has a port");
    let own = socket.local_addr().expect("it is bound");
    let socket = Socket::from(socket);
    let search = SearchRequest {
        sequence: 1,
        flags: SearchFlags::UNICAST.with(SearchFlags::MUST_REPLY),
        address: Ipv6Addr::UNSPECIFIED,
        port: own.port(),
        protocols: vec![TCP.into()],
        channels: (0..50).map(|cid| SearchedChannel { cid: Cid(cid), name: b"f:ao" }).collect(),
    };
    let tag = OriginTag { destination: wire_address(Ipv4Addr::LOCALHOST.into()) };
    let (mut direct, mut forwarded) = (Vec::new(), Vec::new());
    PvaRequest::Search {}.encode(ByteOrder::Little, &mut direct, |to| search.encode(to));
    PvaRequest::OriginTag {}.encode(ByteOrder::Little, &mut forwarded, |to| tag.encode(to));
    PvaRequest::Search {}.encode(ByteOrder::Little, &mut forwarded, |to| search.forwarded(own).encode(to));
    let group = SocketAddr::from((LOCAL_GROUP, hostile.ioc.pva_searches.port()));
    // Some sandboxes have no multicasts.
    let _ = socket.set_multicast_if_v4(&Ipv4Addr::LOCALHOST);
    for _ in 0..20 {
        let _ = socket.send_to(&direct, &hostile.ioc.pva_searches.into());
        let _ = socket.send_to(&forwarded, &group.into());
    }
}

/// Searches for existing names, with misaligned payloads.
pub fn misaligned_searches() -> Vec<u8> {
    let mut bytes = bare(Request::Version { priority: 0, minor: 13, sequence: 1 });
    for cid in 0..50 {
        let search = Request::Search { reply: 5, minor: 13, cid: Cid(cid), again: cid };
        search.header(6).encode(&mut bytes);
        bytes.extend_from_slice(b"f:ao\0\0");
    }
    bytes
}
