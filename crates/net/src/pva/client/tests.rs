//! The machine against the machine of a server, without IO.

use std::sync::Arc;
use std::time::Duration;

use fodo_data::{Array, BitSet, EventMask, Kind, Meta, NormativeLayout, Scalar, StructureBuilder, normative_type};
use fodo_pva::cursor::ByteOrder;
use fodo_pva::guid::Guid;
use fodo_pva::message::Answer;
use fodo_pva::server::{self, ChannelType, Contents, PutValue, RequestKey};
use fodo_pva::status::RequestStatus;

use super::*;
use crate::client::{Detail, Request};

/// What callers and monitors have received, and both ends of a circuit.
struct Dialog {
    client: PvaMachine,
    server: server::Circuit,
    log: ReplyLog,
    events: Vec<CircuitEvent>,
    now: Now,
    /// The number of writes to the socket of the client, as far as they carried bytes.
    n_flights: usize,
    channels: Vec<String>,
    /// Puts that the server has not completed: the channel's number, the request, the value, and whether the client
    /// waits for processing.
    puts: Vec<(Sid, RequestKey, Value, bool)>,
    /// Whether the server completes puts at once.
    completes_puts: bool,
    /// All values put, in the order of arrival.
    values_put: Vec<Value>,
    subscription: Option<RequestKey>,
    n_acknowledged: usize,
    n_cleared: usize,
    /// The value of the channel `group`.
    group: Structure,
    structures_put: Vec<Structure>,
    /// The calls and processing that the server has not completed.
    calls: Vec<RequestKey>,
    n_cancelled: usize,
}

#[derive(Debug, Default)]
struct ReplyLog {
    ended: Vec<(u32, String)>,
    updates: Vec<(Result<Value, WrongReply>, bool)>,
    rows: Vec<(RowTarget, Result<Value, WrongReply>, bool)>,
    structures: Vec<(Structure, bool)>,
    refused: Vec<Refusal>,
}

impl Replies for ReplyLog {
    fn ended(&mut self, ioid: Ioid, result: Result<OperationOutcome, Failure>) {
        let text = match result {
            Ok(OperationOutcome::Reading(reading)) => format!("{:?}", reading.value),
            Ok(outcome) => format!("{outcome:?}"),
            Err(failure) => format!("{failure:?}"),
        };
        self.ended.push((ioid.0, text));
    }

    fn updated(&mut self, _: SubscriptionId, update: Result<Reading, WrongReply>, is_overrun: bool) {
        self.updates.push((update.map(|reading| reading.value), is_overrun));
    }

    fn row_updated(
        &mut self,
        _: SubscriptionId,
        target: RowTarget,
        update: Result<Reading, WrongReply>,
        is_overrun: bool,
    ) {
        self.rows.push((target, update.map(|reading| reading.value), is_overrun));
    }

    fn structure_updated(&mut self, _: SubscriptionId, structure: Structure, is_overrun: bool) {
        self.structures.push((structure, is_overrun));
    }

    fn refused(&mut self, _: SubscriptionId, refusal: Refusal) {
        self.refused.push(refusal);
    }

    fn room(&mut self, _: Option<Ioid>, _: Kind, _: usize) -> Option<Array> {
        None
    }

    fn large_array(&mut self, _: &Array) {}
}

fn layout(name: &str) -> Arc<NormativeLayout> {
    let kind = match name {
        "state" => normative_type(Kind::Enum, false),
        "array" => normative_type(Kind::F64, true),
        _ => normative_type(Kind::F64, false),
    };
    Arc::new(NormativeLayout::of(Arc::new(kind)).unwrap())
}

fn reading(name: &str) -> Reading {
    let meta = Meta { labels: vec!["off".into(), "on".into()], units: "mm".into(), ..Meta::default() };
    let value = match name {
        "state" => Value::Scalar(Scalar::Enum(1)),
        "array" => vec![1.0, 2.0, 3.0].into(),
        _ => 1.5.into(),
    };
    Reading { meta: Some(Arc::new(meta)), ..Reading::bare(value) }
}

/// A channel to a number, as the server has described it.
fn scalar_channel(sid: Sid) -> ServerChannel {
    ServerChannel { sid, kind: Kind::F64, count: 1 }
}

impl Dialog {
    fn new() -> Dialog {
        let now = Now::for_test();
        let config = Config {
            priority: 0,
            user: "ann".into(),
            host: "desk".into(),
            echo_after: Duration::from_secs(15),
            payload_bytes_max: 1 << 20,
        };
        let server_config = server::Config { payload_bytes_max: 1 << 20, guid: Guid::default() };
        Dialog {
            client: PvaMachine::new(&config, now),
            server: server::Circuit::new(&server_config),
            log: ReplyLog::default(),
            events: Vec::new(),
            now,
            n_flights: 0,
            channels: Vec::new(),
            puts: Vec::new(),
            completes_puts: true,
            values_put: Vec::new(),
            subscription: None,
            n_acknowledged: 0,
            n_cleared: 0,
            group: structured::group(),
            structures_put: Vec::new(),
            calls: Vec::new(),
            n_cancelled: 0,
        }
    }

    /// A dialog in which the client has this channel.
    fn with(name: &str) -> (Dialog, Sid) {
        let mut dialog = Dialog::new();
        dialog.client.create(Cid(7), name, dialog.now);
        dialog.run();
        match dialog.events.pop() {
            Some(CircuitEvent::Created { cid: Cid(7), server_channel }) => (dialog, server_channel.sid),
            other => panic!("{other:?}"),
        }
    }

    /// Exchanges bytes until both ends have nothing to send.
    fn run(&mut self) {
        while self.exchange() {}
    }

    /// One flight in each direction; returns whether there was one.
    fn exchange(&mut self) -> bool {
        let sent = self.client.ready().to_vec();
        self.client.sent(sent.len());
        self.n_flights += usize::from(!sent.is_empty());
        let mut events = Vec::new();
        self.server.received(&sent, self.now, &mut events);
        events.into_iter().for_each(|event| self.serve(event));
        let mut replied = Vec::new();
        while !self.server.ready().is_empty() {
            replied.extend_from_slice(self.server.ready());
            let n = self.server.ready().len();
            self.server.sent(n);
        }
        self.client.received(&replied, self.now, &mut self.log, &mut self.events);
        self.events.retain(|event| !matches!(event, CircuitEvent::Confirmed { .. }));
        !sent.is_empty() || !replied.is_empty()
    }

    fn serve(&mut self, event: server::Event) {
        use fodo_pva::server::Event;
        match event {
            Event::Create { cid, name } if name == "absent" => {
                self.server.create_failed(cid, "there is no PV with this name")
            }
            Event::Create { cid, name } => {
                let kind = match name.as_str() {
                    "table" => ChannelType::Structured(Arc::new(StructureBuilder::new("table").finish())),
                    "group" => ChannelType::Structured(self.group.kind().clone()),
                    name => ChannelType::Flat(layout(name)),
                };
                let sid = self.server.created(cid, kind);
                self.channels.resize((sid.0 as usize + 1).max(self.channels.len()), String::new());
                self.channels[sid.0 as usize] = name;
            }
            Event::Read { sid, request, .. } if self.channels[sid.0 as usize] == "group" => {
                self.server.read_done(request, Ok(Contents::Structure(&self.group)));
            }
            Event::Write { request, value: PutValue::Structured(value), .. } => {
                self.structures_put.push(value);
                self.server.write_done(request, Ok(()));
            }
            Event::Rpc { request, .. } | Event::Process { request, .. } => self.calls.push(request),
            Event::Cancel { .. } => self.n_cancelled += 1,
            Event::Read { sid, request, .. } => {
                let reading = reading(&self.channels[sid.0 as usize]);
                self.server.read_done(request, Ok(Contents::Reading(&reading)));
            }
            Event::Write { sid, request, value: PutValue::Flat(Some(value)), options, .. } => {
                self.values_put.push(value.clone());
                self.puts.push((sid, request, value, options.is_blocking));
                if self.completes_puts {
                    self.complete(Ok(()));
                }
            }
            Event::Start { request } => self.subscription = Some(request),
            Event::Ack { .. } => self.n_acknowledged += 1,
            Event::Clear { .. } => self.n_cleared += 1,
            Event::Reply(reply) => self.server.reply(reply),
            _ => {}
        }
    }

    /// The server completes the first put; returns whether the client waits for processing.
    fn complete(&mut self, result: Result<(), &RequestStatus>) -> bool {
        let (_, request, _, is_blocking) = self.puts.remove(0);
        self.server.write_done(request, result);
        is_blocking
    }

    fn get(&mut self, sid: Sid, ioid: u32, request: Request) -> Result<(), Failure> {
        self.client.request(Ioid(ioid), &OperationTask::Get(request), scalar_channel(sid))
    }

    fn put(&mut self, sid: Sid, ioid: u32, value: impl Into<Value>) {
        self.client.request(Ioid(ioid), &OperationTask::Put(value.into()), scalar_channel(sid)).unwrap();
    }

    fn put_unconfirmed(&mut self, sid: Sid, value: impl Into<Value>) {
        self.client.put_unconfirmed(sid, &value.into()).unwrap();
    }

    /// Posts a value to the subscription; returns whether it was sent.
    fn post(&mut self, value: f64, overrun: &BitSet) -> bool {
        let layout = layout("number");
        let request = self.subscription.unwrap();
        let reading = Reading::bare(value.into());
        self.server.update(request, Contents::Reading(&reading), layout.marks(EventMask::VALUE), overrun)
    }

    /// What has ended since the last call.
    fn ended(&mut self) -> Vec<(u32, String)> {
        std::mem::take(&mut self.log.ended)
    }
}

fn shown(value: impl Into<Value>) -> String {
    format!("{:?}", value.into())
}

mod structured;

#[test]
fn a_channel_reports_the_kind_and_length_of_its_value() {
    for (name, kind, count) in
        [("number", Kind::F64, 1), ("state", Kind::Enum, 1), ("array", Kind::F64, 0), ("table", Kind::Text, 0)]
    {
        let mut dialog = Dialog::new();
        dialog.client.create(Cid(7), name, dialog.now);
        dialog.run();

        let created = matches!(dialog.events[..], [CircuitEvent::Created { cid: Cid(7), server_channel }]
            if (server_channel.kind, server_channel.count) == (kind, count));
        assert!(created, "{name}: {:?}", dialog.events);
        dialog.client.clear(Cid(7));
        dialog.run();
        assert!(dialog.client.holds_nothing(), "{name}");
    }
}

#[test]
fn a_channel_that_the_server_does_not_have_is_refused() {
    let mut dialog = Dialog::new();

    dialog.client.create(Cid(7), "absent", dialog.now);
    dialog.run();

    assert_eq!(
        dialog.events,
        [CircuitEvent::Refused {
            cid: Cid(7),
            refusal: Refusal::Channel { text: "there is no PV with this name".into() }
        }]
    );
    assert!(dialog.client.holds_nothing());
}

#[test]
fn a_get_opens_an_operation_once_and_then_costs_one_round_trip() {
    let (mut dialog, sid) = Dialog::with("number");
    dialog.n_flights = 0;

    dialog.get(sid, 1, Request::default()).unwrap();
    dialog.run();
    assert_eq!((dialog.ended(), dialog.n_flights), (vec![(1, shown(1.5))], 2));
    for ioid in 2..5 {
        dialog.get(sid, ioid, Request::default()).unwrap();
    }
    dialog.run();

    assert_eq!(dialog.n_flights, 4, "one for the first of them, one for the others together");
    assert_eq!(dialog.ended(), [(2, shown(1.5)), (3, shown(1.5)), (4, shown(1.5))]);
    dialog.client.clear(Cid(7));
    dialog.run();
    assert!(dialog.client.holds_nothing());
}

#[test]
fn callers_with_different_requests_receive_what_they_requested() {
    let (mut dialog, sid) = Dialog::with("array");
    let request = |kind, count| Request { kind, count, ..Request::default() };

    dialog.get(sid, 1, request(None, 2)).unwrap();
    dialog.get(sid, 2, request(Some(Kind::I32), 0)).unwrap();
    dialog.get(sid, 3, Request { detail: Detail::Full, ..Request::default() }).unwrap();
    dialog.run();

    let integers = Value::Array(Array::I32(Arc::new(vec![1, 2, 3])));
    let mut ended = dialog.ended();
    ended.sort_unstable();
    assert_eq!(ended, [(1, shown(vec![1.0, 2.0])), (2, shown(integers)), (3, shown(vec![1.0, 2.0, 3.0]))]);
}

#[test]
fn the_name_of_a_state_is_received_and_put() {
    let (mut dialog, sid) = Dialog::with("state");

    dialog.get(sid, 1, Request { kind: Some(Kind::Text), ..Request::default() }).unwrap();
    dialog.put(sid, 2, "off");
    dialog.run();

    let mut ended = dialog.ended();
    ended.sort_unstable();
    assert_eq!(ended, [(1, shown("on")), (2, "Written".to_owned())]);
    assert_eq!(dialog.values_put, [Value::Scalar(Scalar::Enum(0))]);
}

#[test]
fn a_structure_without_a_value_ends_every_operation_with_that_error() {
    let (mut dialog, sid) = Dialog::with("table");
    let value = Value::from(1.0);

    for result in [
        dialog.get(sid, 1, Request::default()),
        dialog.client.put_unconfirmed(sid, &value),
        dialog.client.request(Ioid(2), &OperationTask::Put(value), scalar_channel(sid)),
        dialog.client.subscribe(sid, &MonitorOptions::default(), None, None, SubscriptionId(1)).map(|_| ()),
    ] {
        let is_named = |reply: &WrongReply| *reply == WrongReply::Structure { id: "table".into() };
        assert!(matches!(&result, Err(Failure::WrongReply(reply)) if is_named(reply)), "{result:?}");
    }
}

#[test]
fn a_put_ends_with_the_status_of_the_server() {
    let (mut dialog, sid) = Dialog::with("number");
    dialog.completes_puts = false;

    dialog.put(sid, 1, 2.5);
    dialog.put(sid, 2, 3.5);
    dialog.run();
    assert_eq!((dialog.values_put.len(), dialog.ended().len()), (1, 0), "one at a time");
    assert!(dialog.complete(Ok(())), "the client waits for processing");
    dialog.run();
    assert_eq!(dialog.ended(), [(1, "Written".to_owned())]);
    dialog.complete(Err(&RequestStatus::error("not now")));
    dialog.run();

    let ended = dialog.ended();
    assert!(ended[0].0 == 2 && ended[0].1.contains("not now"), "{ended:?}");
    assert_eq!(dialog.values_put, [2.5, 3.5].map(Value::from));
}

#[test]
fn a_refused_put_without_completion_is_an_event_of_its_channel() {
    let (mut dialog, sid) = Dialog::with("number");
    dialog.completes_puts = false;

    dialog.put_unconfirmed(sid, 2.5);
    dialog.run();
    assert!(!dialog.complete(Err(&RequestStatus::error("not now"))), "the client does not wait for processing");
    dialog.run();

    let refusal = Refusal::Reported { text: "not now".into() };
    assert_eq!(dialog.events, [CircuitEvent::PutRefused { cid: Cid(7), refusal }]);
    assert_eq!(dialog.client.queued_bytes(), 0);
}

#[test]
fn puts_and_gets_of_a_channel_keep_the_order_of_the_calls() {
    let (mut dialog, sid) = Dialog::with("number");
    dialog.completes_puts = false;

    dialog.put_unconfirmed(sid, 1.0);
    dialog.put_unconfirmed(sid, 2.0);
    dialog.put(sid, 3, 3.0);
    dialog.put_unconfirmed(sid, 4.0);
    dialog.get(sid, 5, Request::default()).unwrap();
    assert!(dialog.client.queued_bytes() > dialog.client.pending_bytes());
    dialog.run();
    assert_eq!((dialog.values_put.len(), dialog.ended()), (1, vec![]));
    dialog.complete(Ok(()));
    dialog.run();
    assert_eq!(dialog.values_put.len(), 3, "the last one waits for the reply to the second");
    assert_eq!(dialog.ended(), [(5, shown(1.5))], "the get has not waited for the put with completion");
    while !dialog.puts.is_empty() {
        dialog.complete(Ok(()));
        dialog.run();
    }

    assert_eq!(dialog.values_put, [1.0, 2.0, 3.0, 4.0].map(Value::from));
    assert_eq!((dialog.client.queued_bytes(), dialog.ended()), (0, vec![(3, "Written".to_owned())]));
    dialog.client.clear(Cid(7));
    dialog.run();
    assert!(dialog.client.holds_nothing());
}

#[test]
fn a_put_without_completion_does_not_wait_for_the_end_of_processing() {
    let (mut dialog, sid) = Dialog::with("number");
    dialog.completes_puts = false;
    dialog.put(sid, 1, 1.0);
    dialog.run();

    dialog.put_unconfirmed(sid, 2.0);
    dialog.get(sid, 2, Request::default()).unwrap();
    dialog.run();

    assert_eq!(dialog.values_put, [1.0, 2.0].map(Value::from));
}

#[test]
fn a_channel_is_cleared_after_its_puts_are_sent() {
    let (mut dialog, sid) = Dialog::with("number");
    dialog.put_unconfirmed(sid, 1.0);
    dialog.put_unconfirmed(sid, 2.0);

    dialog.client.clear_after_puts(Cid(7));
    assert!(dialog.client.has_cleared_channels());
    dialog.run();

    assert_eq!(dialog.values_put, [1.0, 2.0].map(Value::from));
    assert_eq!((dialog.n_cleared, &dialog.events[..]), (1, &[CircuitEvent::Cleared][..]));
    assert!(!dialog.client.has_cleared_channels() && dialog.client.holds_nothing());
}

#[test]
fn a_monitor_with_flow_control_receives_every_update_and_acknowledges_half_of_the_window() {
    let (mut dialog, sid) = Dialog::with("number");
    let options = MonitorOptions { window: Some(4), ..MonitorOptions::default() };
    let opened = dialog.client.subscribe(sid, &options, None, None, SubscriptionId(1)).unwrap();
    dialog.run();
    let overrun: BitSet = [layout("number").value_bit()].into_iter().collect();

    let n_sent = (0..10).filter(|n| dialog.post(f64::from(*n), &BitSet::new())).count();
    assert_eq!(n_sent, 4, "the window");
    dialog.run();
    assert_eq!(dialog.log.updates.len(), 4);
    assert!(dialog.post(5.0, &overrun));
    dialog.run();
    assert_eq!(dialog.log.updates.last(), Some(&(Ok(5.0.into()), true)));

    assert!(dialog.n_acknowledged > 0);

    dialog.client.cancel(opened);
    dialog.run();
    dialog.client.clear(Cid(7));
    dialog.run();
    assert!(dialog.client.holds_nothing());
}

#[test]
fn the_updates_of_a_group_name_its_stage_and_the_index_of_the_pv() {
    let (mut dialog, sid) = Dialog::with("number");
    let (options, target) = (MonitorOptions::default(), RowTarget { stage: 2, index: 70_000 });
    let opened = dialog.client.subscribe(sid, &options, None, Some(target), SubscriptionId(1)).unwrap();
    dialog.run();
    let overrun: BitSet = [layout("number").value_bit()].into_iter().collect();

    for (value, overrun) in [(1.0, &BitSet::new()), (2.0, &overrun)] {
        assert!(dialog.post(value, overrun));
        dialog.run();
    }

    assert_eq!(dialog.log.rows, [(target, Ok(1.0.into()), false), (target, Ok(2.0.into()), true)]);
    assert_eq!(dialog.log.updates, []);
    dialog.client.cancel(opened);
    dialog.client.clear(Cid(7));
    dialog.run();
    assert!(dialog.client.holds_nothing());
}

#[test]
fn a_monitor_that_the_server_ends_is_refused_and_leaves_nothing() {
    let ends = [
        (RequestStatus::error("gone"), Refusal::Reported { text: "gone".into() }),
        (RequestStatus::OK, Refusal::FurtherUpdates),
    ];
    for (status, refusal) in ends {
        let (mut dialog, sid) = Dialog::with("number");
        dialog.client.subscribe(sid, &MonitorOptions::default(), None, None, SubscriptionId(1)).unwrap();
        dialog.run();

        dialog.server.end_monitor(dialog.subscription.unwrap(), &status);
        dialog.run();

        assert_eq!(dialog.log.refused, [refusal]);
        dialog.client.clear(Cid(7));
        dialog.run();
        assert!(dialog.client.holds_nothing());
    }
}

// Row 61 of docs/reference/faults.md.
#[test]
fn the_end_of_a_second_confirmation_does_not_end_the_channel() {
    let (mut dialog, sid) = Dialog::with("number");
    let second = Sid(sid.0 + 10);
    let mut bytes = Vec::new();
    // The reply to this request confirms the other channel again.
    dialog.client.create(Cid(8), "other", dialog.now);
    Answer::CreateChannel { cid: Cid(7), sid: second, status: RequestStatus::OK }.encode(
        ByteOrder::Little,
        &mut bytes,
        |_| {},
    );
    Answer::DestroyChannel { sid: second, cid: Cid(7) }.encode(ByteOrder::Little, &mut bytes, |_| {});

    dialog.client.received(&bytes, dialog.now, &mut dialog.log, &mut dialog.events);

    assert_eq!(dialog.events, []);
    dialog.get(sid, 1, Request::default()).unwrap();
    dialog.run();
    assert_eq!(dialog.ended(), [(1, shown(1.5))]);
    dialog.client.clear(Cid(7));
    dialog.run();
    assert!(dialog.client.holds_nothing());
}

#[test]
fn a_channel_that_ends_while_everything_is_in_progress_leaves_nothing() {
    let (mut dialog, sid) = Dialog::with("number");
    dialog.completes_puts = false;
    dialog.client.subscribe(sid, &MonitorOptions::default(), None, None, SubscriptionId(1)).unwrap();
    dialog.get(sid, 1, Request::default()).unwrap();
    dialog.put(sid, 2, 1.0);
    dialog.put(sid, 3, 2.0);
    dialog.put_unconfirmed(sid, 3.0);
    dialog.put_unconfirmed(sid, 4.0);

    dialog.client.clear(Cid(7));
    dialog.run();

    assert!(dialog.client.holds_nothing(), "{:?}", dialog.client);
    assert_eq!(dialog.client.queued_bytes(), 0);
}
