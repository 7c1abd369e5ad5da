//! Subscriptions: start, stop, flow control, updates and their end.

use fodo_data::{BitSet, EventMask, Reading, Structure};
use fodo_pva::message::{Answer, Request, Subcommand};
use fodo_pva::server::{ChannelType, Contents, Event, RequestKey, SubscriptionOptions};
use fodo_pva::status::{RequestStatus, StatusLevel};
use fodo_pva::types;
use fodo_pva::{Ioid, Sid, limit, value};

use crate::scripted::{Received, Server, bits, contents, double, monitor, pair, pv_request_body, reading};

/// A subscription of a client to a double.
struct Subscribed {
    server: Server,
    sid: Sid,
    request: RequestKey,
    options: SubscriptionOptions,
    needs_meta: bool,
}

/// A stopped subscription with this pvRequest.
fn subscribed(pv_request: &str) -> Subscribed {
    let (server, sid) = Server::with_double();
    subscribed_to(server, sid, pv_request)
}

fn subscribed_to(mut server: Server, sid: Sid, pv_request: &str) -> Subscribed {
    server.send(&monitor(sid, 1, Subcommand::INIT), pv_request_body(pv_request));
    let Event::Subscribe { request, options, needs_meta, .. } = server.event() else { panic!("no subscription") };
    let started = server.answers();
    let started = started.last().unwrap();
    assert_eq!(started.answer, Answer::Monitor { ioid: Ioid(1), sub: Subcommand::INIT });
    let mut reader = started.reader();
    assert_eq!(RequestStatus::decode(&mut reader), RequestStatus::OK);
    assert!(types::decode(&mut reader, &mut server.types).is_some());
    Subscribed { server, sid, request, options, needs_meta }
}

impl Subscribed {
    fn control(&mut self, sub: Subcommand) {
        self.server.send(&monitor(self.sid, 1, sub), |_| {});
    }

    fn acknowledge(&mut self, sub: Subcommand, n_updates: u32) {
        self.server.send(&monitor(self.sid, 1, sub), |to| to.u32(n_updates));
    }

    /// Sends an update of the value, if that is possible.
    fn update(&mut self, number: f64) -> bool {
        let ChannelType::Flat(layout) = double() else { panic!("a double is flat") };
        let marks = layout.marks(EventMask::VALUE);
        self.server.circuit.update(self.request, contents(&reading(number)), marks, &BitSet::new())
    }

    /// The values in the updates that were sent.
    fn values(&mut self) -> Vec<f64> {
        self.server.answers().iter().map(|received| decoded(received).0.value.to_f64().unwrap()).collect()
    }
}

/// The reading, the marks and the overrun bits in an update of a double.
fn decoded(received: &Received) -> (Reading, BitSet, BitSet) {
    assert_eq!(received.answer, Answer::Monitor { ioid: Ioid(1), sub: Subcommand::EXECUTE });
    let ChannelType::Flat(layout) = double() else { panic!("a double is flat") };
    let mut reader = received.reader();
    let mut reading = Reading::bare(0.0.into());
    let marks = value::decode_reading(&layout, &mut reading, &mut reader, &mut types::TypeCache::new());
    let overrun = reader.bit_set(layout.kind().nodes().len());
    assert_eq!((reader.n_left(), reader.finish()), (0, Ok(())));
    (reading, marks, overrun)
}

#[test]
fn updates_are_sent_while_the_subscription_is_started() {
    let mut client = subscribed("");
    assert!(client.needs_meta && !client.update(1.0));

    client.control(Subcommand::START);
    let request = client.request;
    assert_eq!(client.server.event(), Event::Start { request });
    assert!(client.server.circuit.may_update(request) && client.update(2.0) && client.update(3.0));
    client.control(Subcommand::START);
    assert_eq!(client.server.take(), [], "it is started already");
    client.control(Subcommand::STOP);
    assert_eq!(client.server.event(), Event::Stop { request });
    assert!(!client.server.circuit.may_update(request) && !client.update(4.0));
    client.control(Subcommand::STOP);
    assert_eq!(client.server.take(), [], "it is stopped already");
    client.control(Subcommand::START);
    assert!(client.update(5.0));

    assert_eq!(client.values(), [2.0, 3.0, 5.0]);
}

#[test]
fn the_update_of_a_double_has_41_bytes() {
    let mut client = subscribed("");
    client.control(Subcommand::START);
    client.server.sent();

    assert!(client.update(1.5));

    assert_eq!(client.server.sent().len(), 41);
}

// Row 42 of docs/reference/faults.md.
#[test]
fn flow_control_sends_exactly_the_acknowledged_number_of_updates() {
    let mut client = subscribed("record[pipeline=true,queueSize=10]");
    assert!(client.options.has_flow_control && client.options.queue_size == 10);
    client.control(Subcommand::START);
    client.server.take();
    assert!(!client.update(0.0), "nothing is acknowledged");
    let request = client.request;
    let circuit = &mut client.server.circuit;
    assert!(!circuit.may_update(request) && !circuit.update_encoded(request, b"too early"));

    for (n_acknowledged, values) in [(2, [1.0, 2.0, 3.0]), (1, [4.0, 5.0, 6.0])] {
        client.acknowledge(Subcommand::ACK, n_acknowledged);
        assert_eq!(client.server.event(), Event::Ack { request: client.request });
        let n_sent = values.into_iter().filter(|value| client.update(*value)).count();
        assert_eq!(n_sent, n_acknowledged as usize);
    }

    assert_eq!(client.values(), [1.0, 2.0, 4.0]);
}

#[test]
fn updates_can_be_acknowledged_before_the_start_with_it_or_with_the_init() {
    let mut client = subscribed("record[pipeline=true]");
    client.acknowledge(Subcommand::ACK, 1);
    assert_eq!(client.server.take(), []);
    client.control(Subcommand::START);
    assert!(client.update(1.0) && !client.update(2.0));

    let mut client = subscribed("record[pipeline=true]");
    client.acknowledge(Subcommand(0xc4), 2);
    assert_eq!(client.server.event(), Event::Start { request: client.request });
    assert!(client.update(1.0) && client.update(2.0) && !client.update(3.0));

    let (mut server, sid) = Server::with_double();
    server.send(&monitor(sid, 1, Subcommand(0x88)), |to| {
        pv_request_body("record[pipeline=true]")(to);
        to.u32(1);
    });
    let Event::Subscribe { request, options, .. } = server.event() else { panic!("no subscription") };
    let mut client = Subscribed { server, sid, request, options, needs_meta: true };
    assert_eq!(client.server.answer().answer, Answer::Monitor { ioid: Ioid(1), sub: Subcommand::INIT });
    client.control(Subcommand::START);
    assert!(client.update(1.0) && !client.update(2.0));
}

// Row 42 of docs/reference/faults.md.
#[test]
fn more_acknowledgements_than_updates_neither_overflow_nor_matter_without_flow_control() {
    let mut client = subscribed("record[pipeline=true]");
    client.control(Subcommand::START);
    client.server.take();
    for _ in 0..3 {
        client.acknowledge(Subcommand::ACK, u32::MAX);
    }
    assert_eq!(client.server.event(), Event::Ack { request: client.request }, "only the first opens the window");
    assert!(client.update(1.0) && client.update(2.0));

    let mut client = subscribed("");
    client.control(Subcommand::START);
    client.server.take();
    client.acknowledge(Subcommand::ACK, 1);
    // An acknowledgement without its number.
    client.control(Subcommand::ACK);
    assert_eq!(client.server.take(), []);
    assert!(client.update(1.0) && client.update(2.0) && client.server.is_alive());
}

#[test]
fn an_update_contains_the_selected_nodes_and_those_that_changed_more_than_once() {
    let mut client = subscribed("value,alarm");
    client.control(Subcommand::START);
    assert!(!client.needs_meta);
    let (request, reading) = (client.request, reading(1.5));
    let circuit = &mut client.server.circuit;

    let is_sent = circuit.update(request, contents(&reading), &bits(&[1, 3, 7, 8, 9]), &bits(&[1, 7]));
    assert!(is_sent);
    let is_sent = circuit.update(request, contents(&reading), &bits(&[0]), &BitSet::new());
    assert!(is_sent);
    let is_sent = circuit.update(request, contents(&reading), &bits(&[7, 8, 9]), &bits(&[1]));
    assert!(!is_sent, "no selected node is marked");

    let answers = client.server.answers();
    let marks: Vec<_> = answers.iter().map(decoded).map(|(_, marks, overrun)| (marks, overrun)).collect();
    assert_eq!(marks, [(bits(&[1, 3]), bits(&[1])), (bits(&[1, 2]), BitSet::new())]);
}

#[test]
fn one_encoding_serves_all_subscriptions_with_the_same_selection() {
    let (mut server, sid) = Server::with_double();
    let mut subscriptions = Vec::new();
    for (ioid, selected) in [(1, "value"), (2, "value"), (3, "alarm"), (4, "")] {
        server.send(&monitor(sid, ioid, Subcommand::INIT), pv_request_body(selected));
        let Event::Subscribe { request, selection, .. } = server.event() else { panic!("no subscription") };
        server.send(&monitor(sid, ioid, Subcommand::START), |_| {});
        server.take();
        subscriptions.push((request, selection));
    }
    let [(first, value), (second, same), (_, alarm), (_, all)] = &subscriptions[..] else { panic!("four") };
    assert!(value == same && value != alarm && value != all);
    server.answers();

    let (reading, marks) = (reading(1.5), bits(&[1, 7, 8, 9]));
    let mut encoded = Vec::new();
    assert!(server.circuit.encode_update(*first, contents(&reading), &marks, &BitSet::new(), &mut encoded));
    assert!(!server.circuit.encode_update(*first, contents(&reading), &bits(&[7]), &BitSet::new(), &mut Vec::new()));
    assert!(server.circuit.update_encoded(*first, &encoded) && server.circuit.update_encoded(*second, &encoded));
    let shared = server.answers();
    assert!(server.circuit.update(*first, contents(&reading), &marks, &BitSet::new()));

    let single = server.answer();
    assert_eq!(shared.len(), 2);
    assert!(shared.iter().all(|received| received.body == single.body));
}

#[test]
fn updates_of_a_structure_contain_its_marked_nodes() {
    let mut server = Server::validated();
    let sid = server.channel(pair());
    let Subscribed { mut server, request, .. } = {
        let mut client = subscribed_to(server, sid, "");
        client.control(Subcommand::START);
        client.server.take();
        client
    };
    let mut structure = Structure::new(pair().kind().clone());
    structure.set("left", 7).unwrap();

    let is_sent = server.circuit.update(request, Contents::Structure(&structure), structure.changed(), &BitSet::new());
    let other = reading(1.5);
    let all = bits(&[0]);
    assert!(!server.circuit.update(request, contents(&other), &all, &BitSet::new()), "a value of another type");
    assert!(!server.circuit.encode_update(request, contents(&other), &all, &BitSet::new(), &mut Vec::new()));

    let mut received = Structure::new(structure.kind().clone());
    value::decode_changed(&mut received, &mut server.answer().reader(), &mut types::TypeCache::new());
    assert!(is_sent && received == structure);
}

#[test]
fn the_end_of_a_subscription_is_reported_by_the_side_that_ends_it() {
    let mut client = subscribed("");
    client.control(Subcommand::DESTROY);
    let (sid, request) = (client.sid, client.request);
    assert_eq!(client.server.event(), Event::Cancel { sid, request });
    assert_eq!(client.server.answers().len(), 0);

    let mut client = subscribed("");
    client.control(Subcommand::START);
    client.server.take();
    client.server.circuit.end_monitor(client.request, &RequestStatus::error("no access"));
    let last = client.server.answer();
    assert_eq!(last.answer, Answer::Monitor { ioid: Ioid(1), sub: Subcommand::DESTROY });
    assert_eq!(last.level(), StatusLevel::Error);
    assert!(!client.update(1.0) && !client.server.circuit.update_encoded(client.request, b"late"));
    let destroy = Request::DestroyRequest { sid: client.sid, ioid: Ioid(1) };
    client.server.send(&destroy, |_| {});
    assert_eq!((client.server.take(), client.server.answers().len()), (vec![], 0));
}

// Row 43 of docs/reference/faults.md.
#[test]
fn the_start_of_a_subscription_that_does_not_exist_ends_it_and_late_acknowledgements_are_ignored() {
    let (mut server, sid) = Server::with_double();
    for sid in [sid, Sid(77)] {
        server.send(&monitor(sid, 1, Subcommand::START), |_| {});
        let last = server.answer();
        assert_eq!(last.answer, Answer::Monitor { ioid: Ioid(1), sub: Subcommand::DESTROY });
        assert_eq!(last.level(), StatusLevel::Error);
        for sub in [Subcommand::ACK, Subcommand::STOP, Subcommand::DESTROY] {
            server.send(&monitor(sid, 1, sub), |to| to.u32(1));
        }
        assert_eq!((server.take(), server.answers().len()), (vec![], 0));
    }
    server.send(&monitor(Sid(77), 1, Subcommand::INIT), pv_request_body(""));
    assert_eq!((server.take(), server.answer().level()), (vec![], StatusLevel::Error));
}

// Row 41 of docs/reference/faults.md.
#[test]
fn a_queue_beyond_the_limit_is_cut_and_the_client_is_notified() {
    let (mut server, sid) = Server::with_double();
    server.send(&monitor(sid, 1, Subcommand::INIT), pv_request_body("record[queueSize=4294967295,DBE=ALARM]"));

    let Event::Subscribe { options, .. } = server.event() else { panic!("no subscription") };

    let expected =
        SubscriptionOptions { events: EventMask::ALARM, queue_size: limit::QUEUE_SIZE_MAX, has_flow_control: false };
    assert_eq!(options, expected);
    let answers = server.answers();
    assert!(matches!(&answers[0].answer, Answer::Message { text, .. } if text.to_str().contains("1024")));
    assert_eq!((answers.len(), answers[1].level()), (2, StatusLevel::Ok));
}
