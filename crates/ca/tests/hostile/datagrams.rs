//! Searches and replies.

use fodo_ca::beacon::BeaconMonitor;
use fodo_ca::repeater::Repeater;
use fodo_ca::search::{DatagramFlaw, NameSearcher};

use super::*;

fn answers(bytes: &[u8]) -> Vec<Datagram> {
    let mut out = Vec::new();
    Responder::new(6000, Now::for_test()).handle(HERE, bytes, &mut |_| true, &mut out);
    out
}

fn version() -> Vec<u8> {
    bare(Request::Version { priority: 1, minor: 13, sequence: 1 })
}

fn search(name: &[u8]) -> Vec<u8> {
    let request = Request::Search { reply: 5, minor: 13, cid: Cid(1), again: 1 };
    [version(), text(request, name)].concat()
}

// Row 1 of docs/reference/faults.md.
#[test]
fn truncated_search_datagrams_get_no_reply() {
    let whole = search(b"x");
    assert_eq!(answers(&whole).len(), 1);

    for n_bytes in 0..whole.len() {
        assert_eq!(answers(&whole[..n_bytes]), [], "{n_bytes} bytes");
    }
}

fn flaw(bytes: &[u8]) -> Option<DatagramFlaw> {
    Responder::new(6000, Now::for_test()).handle(HERE, bytes, &mut |_| true, &mut Vec::new())
}

// Row 1 of docs/reference/faults.md.
#[test]
fn a_datagram_truncated_within_a_message_is_reported_as_cut() {
    let whole = search(b"x");
    let cuts: Vec<usize> = (0..=whole.len()).filter(|&n_bytes| flaw(&whole[..n_bytes]).is_none()).collect();

    assert_eq!(cuts, [16, whole.len()], "after VERSION, and at the end");
    assert_eq!(flaw(&whole[..20]), Some(DatagramFlaw::Cut));
}

// Row 4 of docs/reference/faults.md.
#[test]
fn an_invalid_name_is_reported_with_its_first_characters() {
    let mut unended = search(b"1234567");
    *unended.last_mut().unwrap() = b'8';

    for (bytes, start) in [
        (unended, "12345678".to_owned()),
        (search(b""), String::new()),
        (search(&[b'x'; 60_000]), "x".repeat(limit::SHOWN_NAME_BYTES_MAX)),
        (search(b"a\xff"), "a\u{fffd}".to_owned()),
    ] {
        assert_eq!(flaw(&bytes), Some(DatagramFlaw::NoName(start)));
    }
}

// Row 2 of docs/reference/faults.md.
#[test]
fn parsing_stops_at_a_payload_that_exceeds_its_datagram() {
    let mut bytes = [search(b"x"), search(b"x")[16..].to_vec()].concat();
    let second = bytes.len() - 24;
    bytes[second + 2..second + 4].copy_from_slice(&4096_u16.to_be_bytes());

    let answered = answers(&bytes);

    assert_eq!(recording::messages(&answered[0].bytes).len(), 2, "VERSION and one reply");
}

// Row 2 of docs/reference/faults.md.
#[test]
fn parsing_stops_at_a_misaligned_payload_as_in_rsrv() {
    let mut odd = version();
    Request::Search { reply: 5, minor: 13, cid: Cid(2), again: 2 }.header(2).encode(&mut odd);
    odd.extend_from_slice(b"x\0");

    assert_eq!(answers(&odd), []);
    assert_eq!(flaw(&odd), Some(DatagramFlaw::Misaligned));
    let behind_a_whole_one = [search(b"x"), odd[16..].to_vec(), search(b"x")[16..].to_vec()].concat();
    let answered = answers(&behind_a_whole_one);
    assert_eq!(recording::messages(&answered[0].bytes).len(), 2, "VERSION and the reply to the first");
}

// Row 6 of docs/reference/faults.md.
#[test]
fn search_replies_are_never_larger_than_their_request() {
    for n_names in [1, 2, 56, 57, 58, 59, 113, 115, 116, 2000] {
        let bytes = [version(), search(b"x")[16..].repeat(n_names)].concat();

        let answered = answers(&bytes);

        let n_bytes: usize = answered.iter().map(|datagram| datagram.bytes.len()).sum();
        assert!(n_bytes <= bytes.len(), "{n_names} names: {n_bytes} bytes for {}", bytes.len());
        let n_answered = answered.iter().map(|datagram| recording::messages(&datagram.bytes).len() - 1).sum::<usize>();
        assert!(n_answered >= n_names - n_names / 57, "{n_answered} of {n_names}");
    }
}

// Row 3 of docs/reference/faults.md.
#[test]
fn a_search_with_a_payload_length_near_u32_max_gets_no_reply() {
    for length in [u32::MAX, u32::MAX - 7, u32::MAX - 23, 0x8000_0000] {
        let mut bytes = version();
        bytes.extend_from_slice(&[0, 6, 0xff, 0xff, 0, 5, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1]);
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes.extend_from_slice(&[0, 0, 0, 13, b'x', 0, 0, 0, 0, 0, 0, 0]);

        assert_eq!(answers(&bytes), [], "{length}");
    }
}

// Row 4 of docs/reference/faults.md.
#[test]
fn invalid_names_are_rejected_before_the_source_is_queried() {
    let mut unended = search(b"1234567");
    *unended.last_mut().unwrap() = b'8';
    assert_eq!(answers(&unended), [], "no NUL");
    assert_eq!(answers(&search(b"")), [], "empty");
    assert_eq!(answers(&search(&[b'x'; 60_000])), [], "too long");
    assert_eq!(answers(&search(b"\xff\xfe")), [], "not UTF-8");

    let mut requested = Vec::new();
    for name in ["a\nb\u{1b}[2J", "../../etc", "%s%n"] {
        let mut serves = |name: &str| {
            requested.push(name.to_owned());
            false
        };
        let mut out = Vec::new();
        Responder::new(6000, Now::for_test()).handle(HERE, &search(name.as_bytes()), &mut serves, &mut out);
        assert_eq!(out, []);
    }
    assert_eq!(requested.len(), 3, "unusual names are passed to the source of PVs");
}

// Row 6 of docs/reference/faults.md.
#[test]
fn searches_from_invalid_sender_addresses_get_no_reply() {
    for from in ["127.0.0.1:0", "224.0.0.1:5064", "255.255.255.255:5064"] {
        let mut out = Vec::new();
        Responder::new(6000, Now::for_test()).handle(from.parse().unwrap(), &search(b"x"), &mut |_| true, &mut out);
        assert_eq!(out, [], "{from}");
    }
}

fn claim(port: u16, address: u32, cid: u32) -> Vec<u8> {
    with_answer(Answer::Search { port, count: 0, address, cid: Cid(cid) }, &[0, 13, 0, 0, 0, 0, 0, 0])
}

// Row 8 of docs/reference/faults.md.
#[test]
fn the_first_valid_claim_wins_and_invalid_claims_are_ignored() {
    let now = Now::for_test();
    let mut searcher = Searcher::new(1);
    searcher.add(Cid(5), "x", now);
    let mut claims = Vec::new();
    for (port, address, cid) in [(5064, u32::MAX, 6), (0, u32::MAX, 5), (5064, 0xe000_0001, 5)] {
        searcher.handle(HERE, &claim(port, address, cid), now, &mut claims);
    }
    assert!(claims.drain(..).all(|claim| claim.cid == Cid(6) && !claim.is_first), "unknown, no port, multicast");

    searcher.handle(HERE, &claim(5064, u32::MAX, 5), now, &mut claims);
    searcher.handle(HERE, &claim(5065, u32::MAX, 5), now, &mut claims);

    let received: Vec<_> = claims.iter().map(|claim| (claim.server.port(), claim.is_first)).collect();
    assert_eq!(received, [(5064, true), (5065, false)]);
}

// Row 7 of docs/reference/faults.md.
#[test]
fn not_found_is_sent_only_on_circuits_and_only_when_requested() {
    let wants_not_found = text(Request::Search { reply: 10, minor: 13, cid: Cid(7), again: 8 }, b"x");
    let wants_silence = text(Request::Search { reply: 5, minor: 13, cid: Cid(9), again: 9 }, b"x");
    let mut out = Vec::new();
    let datagram = [version(), wants_not_found.clone()].concat();
    Responder::new(6000, Now::for_test()).handle(HERE, &datagram, &mut |_| false, &mut out);
    assert_eq!(out, [], "NOT_FOUND over UDP would cause a storm");

    let now = Now::for_test();
    let mut circuit = server::Circuit::new(&server::Config { payload_bytes_max: 1 << 20 }, now);
    let n_greeting = circuit.ready().len();
    circuit.sent(n_greeting);
    let mut events = Vec::new();
    circuit.received(&[version(), wants_not_found, wants_silence].concat(), now, &mut events);
    for event in events {
        let server::Event::Search { search, name } = event else { panic!("{event:?}") };
        assert_eq!(name, "x");
        circuit.searched(search, None);
        circuit.searched(search, Some(6000));
    }

    let replies: Vec<Answer> =
        recording::messages(circuit.ready()).iter().map(|m| Answer::from_header(&m.header)).collect();
    let found = |cid| Answer::Search { port: 6000, count: 0, address: u32::MAX, cid: Cid(cid) };
    assert_eq!(replies, [Answer::NotFound { reply: 10, minor: 13, cid: Cid(7), again: 8 }, found(7), found(9)]);
}

// Row 60 of docs/reference/faults.md.
#[test]
fn the_version_in_a_search_reply_does_not_affect_the_circuit() {
    let now = Now::for_test();
    let mut searcher = Searcher::new(1);
    searcher.add(Cid(5), "x", now);
    let (mut old, mut claims) = (claim(5064, u32::MAX, 5), Vec::new());
    // The name server's own minor version, in place of that of the claimed server.
    let n = old.len();
    old[n - 8..].copy_from_slice(&[0, 3, 0, 0, 0, 0, 0, 0]);
    searcher.handle(HERE, &old, now, &mut claims);
    assert_eq!(claims.len(), 1);
    let config = client::Config {
        priority: 0,
        user: "ann".into(),
        host: "desk".into(),
        echo_after: std::time::Duration::from_secs(30),
        payload_bytes_max: 1 << 20,
    };
    let mut circuit = client::Circuit::new(&config, now);
    let n_greeting = circuit.ready().len();
    circuit.sent(n_greeting);

    circuit.received(&bare(Request::Version { priority: 0, minor: 13, sequence: 0 }), now, &mut Vec::new());
    circuit.read(Sid(1), DbrType(6), 0, Ioid(1));

    let requests = recording::messages(circuit.ready());
    assert_eq!(requests[0].header.count, 0, "as many as available, supported from minor version 13 on");
}

#[test]
fn searcher_and_responder_survive_any_datagram() {
    let recording = Recording::named("search");
    let datagrams: Vec<Vec<u8>> = recording
        .lines
        .iter()
        .filter_map(|line| match line {
            recording::Line::Bytes(_, bytes, _) => Some(bytes.clone()),
            recording::Line::Comment(_) => None,
        })
        .collect();
    for seed in 0..20_000 {
        let mut random = Rng::with_seed(seed);
        let messages = datagrams[random.usize(..2)].repeat(random.usize(1..=30));
        let bytes = mutated(&messages, &mut random);
        let now = Now::for_test();
        let mut searcher = Searcher::new(seed);
        (0..4).for_each(|cid| searcher.add(Cid(cid), "w:float", now));
        let (mut claims, mut out) = (Vec::new(), Vec::new());

        searcher.handle(HERE, &bytes, now, &mut claims);
        Responder::new(6000, now).handle(HERE, &bytes, &mut |_| true, &mut out);

        let n_first = claims.iter().filter(|claim| claim.is_first).count();
        assert_eq!(n_first + searcher.n_names(), 4, "seed {seed}");
        assert!(out.iter().all(|datagram| datagram.bytes.len() <= limit::ANSWER_BYTES), "seed {seed}");
        assert!(out.iter().map(|datagram| datagram.bytes.len()).sum::<usize>() <= bytes.len() + 16, "seed {seed}");
    }
}

#[test]
fn beacon_monitor_and_repeater_survive_any_datagram_without_amplification() {
    let recording = Recording::named("beacon");
    let beacon = recording.lines.iter().find_map(|line| match line {
        recording::Line::Bytes(_, bytes, _) => Some(bytes.clone()),
        recording::Line::Comment(_) => None,
    });
    let beacon = beacon.unwrap();
    for seed in 0..20_000 {
        let mut random = Rng::with_seed(seed);
        let messages =
            [beacon.clone(), fodo_ca::repeater::registration()][random.usize(..2)].repeat(random.usize(1..=30));
        let bytes = mutated(&messages, &mut random);
        let now = Now::for_test();
        let mut beacons = BeaconMonitor::new(now);
        let mut repeater = Repeater::new(5065);
        let (mut anomalies, mut out) = (Vec::new(), Vec::new());
        repeater.handle(HERE, true, &fodo_ca::repeater::registration(), now, &mut |_| true, &mut out);
        out.clear();

        beacons.handle(HERE, &bytes, now, &mut anomalies);
        repeater.handle("10.0.0.1:9".parse().unwrap(), false, &bytes, now, &mut |_| true, &mut out);

        assert!(beacons.n_servers() <= bytes.len() / 16, "seed {seed}");
        assert_eq!(repeater.n_clients(), 1, "seed {seed}");
        assert!(out.iter().map(|datagram| datagram.bytes.len()).sum::<usize>() <= bytes.len(), "seed {seed}");
    }
}
