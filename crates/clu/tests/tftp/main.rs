//! Both ends of TFTP with a clock of the test, on a network that loses, repeats and reorders packets.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use fodo_clu::OutgoingDatagrams;
use fodo_clu::tftp::{
    FilePath, FileStore, StoreFault, TftpClient, TftpMode, TftpOutput, TftpServer, TftpServerConfig, TftpSocket,
    TransferId,
};
use fodo_data::Now;

#[path = "../../../../fuzz/src/clu_tftp.rs"]
mod clu_tftp;

const REQUESTS: u16 = 69;

/// Files in memory; names are found without regard to case.
#[derive(Default)]
struct Files {
    stored: HashMap<String, Vec<u8>>,
    open: HashMap<TransferId, (String, Vec<u8>)>,
    n_begun: usize,
    n_ended: usize,
    can_commit: bool,
}

fn name(path: &FilePath) -> String {
    path.to_string().to_ascii_lowercase()
}

impl FileStore for Files {
    fn read(&mut self, path: &FilePath, n_bytes_max: usize) -> Result<Vec<u8>, StoreFault> {
        let file = self.stored.get(&name(path)).ok_or(StoreFault::NotFound)?;
        if file.len() > n_bytes_max { Err(StoreFault::TooLarge) } else { Ok(file.clone()) }
    }

    fn begin(&mut self, transfer: TransferId, path: &FilePath) -> Result<(), StoreFault> {
        assert!(self.open.insert(transfer, (name(path), Vec::new())).is_none());
        self.n_begun += 1;
        Ok(())
    }

    fn write(&mut self, transfer: TransferId, content: &[u8]) -> Result<(), StoreFault> {
        self.open.get_mut(&transfer).expect("an open file").1.extend_from_slice(content);
        Ok(())
    }

    fn commit(&mut self, transfer: TransferId) -> Result<(), StoreFault> {
        let (name, content) = self.open.remove(&transfer).expect("an open file");
        self.n_ended += 1;
        if !self.can_commit {
            return Err(StoreFault::Failed);
        }
        self.stored.insert(name, content);
        Ok(())
    }

    fn abort(&mut self, transfer: TransferId) {
        self.open.remove(&transfer).expect("an open file");
        self.n_ended += 1;
    }
}

struct World {
    server: TftpServer,
    files: Files,
    out: TftpOutput,
    now: Now,
    /// The port of each transfer.
    ports: HashMap<TransferId, u16>,
    next_port: u16,
}

fn client_address(port: u16) -> SocketAddr {
    ([10, 0, 0, 1], port).into()
}

fn server_address(port: u16) -> SocketAddr {
    ([10, 0, 0, 2], port).into()
}

impl World {
    fn new(config: TftpServerConfig) -> World {
        let files = Files { can_commit: true, ..Files::default() };
        let (now, ports) = (Now::for_test(), HashMap::new());
        World { server: TftpServer::new(config), files, out: TftpOutput::default(), now, ports, next_port: 40000 }
    }

    fn unlocked() -> World {
        let mut world = World::new(TftpServerConfig::default());
        assert!(world.server.unlock(client_address(0).ip(), world.now));
        world
    }

    /// Passes a packet to a port of the server; returns what it sent, with the ports.
    fn deliver(&mut self, from: SocketAddr, port: u16, packet: &[u8]) -> Vec<(u16, SocketAddr, Vec<u8>)> {
        let transfer = self.ports.iter().find(|(_, other)| **other == port).map(|(id, _)| *id);
        let socket = match transfer {
            Some(id) => TftpSocket::Transfer(id),
            None if port == REQUESTS => TftpSocket::Requests,
            None => return Vec::new(),
        };
        self.server.received(socket, from, packet, &mut self.files, self.now, &mut self.out);
        self.carry_out()
    }

    fn tick(&mut self) -> Vec<(u16, SocketAddr, Vec<u8>)> {
        self.server.tick(&mut self.files, self.now, &mut self.out);
        self.carry_out()
    }

    fn carry_out(&mut self) -> Vec<(u16, SocketAddr, Vec<u8>)> {
        for id in self.out.opened.drain(..) {
            assert!(self.ports.insert(id, self.next_port).is_none());
            self.next_port += 1;
        }
        let ports = &self.ports;
        let port = |socket| match socket {
            TftpSocket::Requests => REQUESTS,
            TftpSocket::Transfer(id) => ports[&id],
        };
        let sent = self.out.datagrams.drain(..).map(|(socket, to, bytes)| (port(socket), to, bytes)).collect();
        for id in self.out.closed.drain(..) {
            assert!(self.ports.remove(&id).is_some(), "each socket is closed once");
        }
        sent
    }

    fn request(&mut self, text: &str) -> Vec<(u16, SocketAddr, Vec<u8>)> {
        self.deliver(client_address(5000), REQUESTS, text.as_bytes())
    }
}

/// The kind of a packet and the number after it.
fn start(packet: &[u8]) -> (u8, u8) {
    (packet[1], packet[3])
}

#[test]
fn a_locked_server_sends_nothing_and_locks_again_after_a_transfer() {
    let mut world = World::new(TftpServerConfig::default());
    world.files.stored.insert("a:\\main.lua".into(), b"x".to_vec());
    let read = "\0\x01a:\\MAIN.LUA\0octet\0";

    assert_eq!(world.request(read), []);
    assert!(world.server.unlock(client_address(0).ip(), world.now));
    assert_eq!(world.deliver(([10, 0, 0, 3], 5000).into(), REQUESTS, read.as_bytes()), [], "another address");
    let sent = world.request(read);
    assert_eq!(sent, [(40000, client_address(5000), b"\0\x03\0\x01x".to_vec())]);
    world.deliver(client_address(5000), 40000, b"\0\x04\0\x01");
    assert!(world.server.is_unlocked(world.now), "for the next transfer");
    world.now = world.now + Duration::from_secs(10);
    world.tick();

    assert!(!world.server.is_unlocked(world.now));
    assert_eq!(world.request(read), []);
    assert_eq!((world.server.counts().locked, world.server.counts().files_read), (3, 1));
    assert_eq!(world.server.deadline(), None);
}

#[test]
fn names_that_leave_their_drive_and_other_refusals_have_their_errors() {
    let mut world = World::unlocked();
    for (request, code) in [
        ("\0\x01a:\\..\\keys.json\0octet\0", 2),
        ("\0\x02../../etc/passwd\0octet\0", 2),
        ("\0\x01a:\\NONE.LUA\0octet\0", 1),
        ("\0\x01a:\\MAIN.LUA\0mail\0", 4),
    ] {
        let sent = world.request(request);
        assert_eq!(
            sent.iter().map(|(port, _, packet)| (*port, start(packet))).collect::<Vec<_>>(),
            [(REQUESTS, (5, code))]
        );
    }
    assert_eq!((world.server.counts().refused, world.files.n_begun), (4, 0));
}

#[test]
fn packets_of_another_client_get_error_5_and_do_not_disturb_the_transfer() {
    let mut world = World::unlocked();
    world.files.stored.insert("a:\\x".into(), vec![7; 600]);
    world.request("\0\x01a:/X\0octet\0");

    let foreign = world.deliver(client_address(6000), 40000, b"\0\x04\0\x01");
    let error = world.deliver(client_address(6000), 40000, b"\0\x05\0\x00x\0");
    let own = world.deliver(client_address(5000), 40000, b"\0\x04\0\x01");
    let repeated = world.deliver(client_address(5000), 40000, b"\0\x04\0\x01");

    assert_eq!((foreign[0].1, start(&foreign[0].2)), (client_address(6000), (5, 5)));
    assert_eq!(error, []);
    assert_eq!(start(&own[0].2), (3, 2));
    assert_eq!(repeated, [], "a repeated acknowledgement is not answered");
    assert_eq!((world.server.counts().foreign, world.server.counts().ignored), (2, 1));
}

#[test]
fn a_silent_client_gets_each_packet_three_times_and_its_file_is_dropped() {
    let mut world = World::unlocked();
    let first = world.request("\0\x02a:\\x\0octet\0");
    assert_eq!(start(&first[0].2), (4, 0));

    let mut times = Vec::new();
    for second in 1..60 {
        world.now = world.now + Duration::from_secs(1);
        times.extend(world.tick().into_iter().map(|(_, _, packet)| (second, packet[1])));
    }

    assert_eq!(times, [(5, 4), (10, 4), (15, 5)]);
    assert_eq!((world.files.n_begun, world.files.n_ended, world.ports.len()), (1, 1, 0));
    assert_eq!(world.server.counts().failed, 1);
}

#[test]
fn a_client_that_misses_the_last_acknowledgement_gets_it_again() {
    let mut world = World::unlocked();
    world.request("\0\x02a:\\x\0octet\0");
    let last = world.deliver(client_address(5000), 40000, b"\0\x03\0\x01end");

    // The client repeats its block after 5 s, at the server a little later than the end of the same time there.
    world.now = world.now + Duration::from_secs(5);
    assert_eq!(world.tick(), []);
    assert_eq!(world.deliver(client_address(5000), 40000, b"\0\x03\0\x01end"), last);
    assert_eq!((world.server.counts().files_written, world.server.counts().failed), (1, 0));
    world.now = world.now + Duration::from_secs(15);
    world.tick();
    world.now = world.now + Duration::from_secs(15);
    world.tick();
    assert_eq!((world.ports.len(), world.server.deadline()), (0, None));
}

#[test]
fn silence_gives_no_time_for_another_transfer() {
    let mut world = World::unlocked();
    world.now = world.now + Duration::from_secs(55);
    world.request("\0\x02a:\\x\0octet\0");
    for _ in 0..3 {
        world.now = world.now + Duration::from_secs(5);
        world.tick();
    }

    assert_eq!(world.server.counts().failed, 1);
    assert!(!world.server.is_unlocked(world.now));
}

#[test]
fn a_file_above_the_limit_is_not_written_and_a_failed_commit_is_reported() {
    let mut world = World::new(TftpServerConfig { file_bytes_max: 600, ..TftpServerConfig::default() });
    world.server.unlock(client_address(0).ip(), world.now);
    let block = |number: u8, length: usize| [&[0, 3, 0, number][..], &vec![1; length]].concat();

    world.request("\0\x02a:\\x\0octet\0");
    world.deliver(client_address(5000), 40000, &block(1, 512));
    let too_large = world.deliver(client_address(5000), 40000, &block(2, 100));
    assert_eq!(start(&too_large[0].2), (5, 3));
    world.files.can_commit = false;
    world.request("\0\x02a:\\x\0octet\0");
    let failed = world.deliver(client_address(5000), 40001, &block(1, 100));
    assert_eq!(start(&failed[0].2), (5, 0));

    assert!(world.files.stored.is_empty());
    assert_eq!((world.files.n_begun, world.files.n_ended, world.server.counts().failed), (2, 2, 2));
}

#[test]
fn files_survive_a_network_that_loses_repeats_and_reorders_packets() {
    let seeds = match std::env::var("SIM_SEED") {
        Ok(seed) => vec![seed.parse().expect("a number")],
        Err(_) => (0..60).collect(),
    };
    let n_complete = seeds.iter().filter(|seed| transfer(**seed)).count();
    assert!(n_complete * 2 > seeds.len(), "{n_complete} of {} transfers", seeds.len());
}

/// Writes or reads a file; a transfer either fails at its client or is complete.
fn transfer(seed: u64) -> bool {
    println!("SIM_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let mut world = World::unlocked();
    let n_bytes = random.usize(0..3000);
    let file: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(n_bytes).collect();
    let is_write = random.bool();
    let mut out = OutgoingDatagrams::default();
    let mut client = if is_write {
        TftpClient::write(server_address(REQUESTS), "A:\\FILE", TftpMode::Octet, &file, world.now, &mut out)
    } else {
        world.files.stored.insert("a:\\file".into(), file.clone());
        TftpClient::read(server_address(REQUESTS), "a:/File", TftpMode::Octet, 4096, world.now, &mut out)
    };
    let mut wire: Vec<(SocketAddr, SocketAddr, Vec<u8>)> = Vec::new();
    let address = client_address(5000);
    loop {
        wire.extend(out.iter().map(|(to, bytes)| (address, to, bytes.to_vec())));
        out.clear();
        if wire.is_empty() {
            let deadlines = [client.deadline(), world.server.deadline()];
            let Some(due) = deadlines.into_iter().flatten().min() else { break };
            world.now = world.now + due.saturating_duration_since(world.now.monotonic);
            client.tick(world.now, &mut out);
            wire.extend(world.tick().into_iter().map(|(port, to, bytes)| (server_address(port), to, bytes)));
            continue;
        }
        let index = random.usize(..wire.len());
        let (from, to, bytes) = match random.u8(0..10) {
            0 => {
                wire.swap_remove(index);
                continue;
            }
            1 => wire[index].clone(),
            _ => wire.swap_remove(index),
        };
        if to == address {
            client.received(from, &bytes, world.now, &mut out);
        } else {
            let sent = world.deliver(from, to.port(), &bytes);
            wire.extend(sent.into_iter().map(|(port, to, bytes)| (server_address(port), to, bytes)));
        }
    }
    assert_eq!((world.files.n_begun, world.ports.len()), (world.files.n_ended, 0));
    assert!(!world.server.is_unlocked(world.now));
    let stored = world.files.stored.get("a:\\file");
    match client.outcome().expect("each transfer ends") {
        Ok(read) => {
            assert!(if is_write { stored == Some(&file) } else { *read == file });
            true
        }
        Err(_) => {
            assert!(!is_write || stored.is_none_or(|stored| *stored == file));
            false
        }
    }
}

#[test]
fn any_packets_at_any_time_end_all_transfers() {
    let mut random = fastrand::Rng::with_seed(19);
    for _ in 0..2000 {
        let mut input = Vec::new();
        for _ in 0..random.usize(0..12) {
            let length = random.usize(1..8);
            input.extend([random.u8(..), random.u8(..), length as u8]);
            let packet = match random.u8(0..4) {
                0 => b"\0\x01a:\\MAIN\0octet\0".to_vec(),
                1 => b"\0\x02a:\\MAIN.LUA\0netascii\0".to_vec(),
                2 => vec![0, random.u8(3..6), 0, random.u8(0..4)],
                _ => std::iter::repeat_with(|| random.u8(..)).take(3 * length).collect(),
            };
            input.extend(packet.into_iter().chain(std::iter::repeat(0)).take(3 * length));
        }
        clu_tftp::feed(&input);
    }
}
