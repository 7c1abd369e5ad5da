//! Subscriptions.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fodo_data::BitSet;
use fodo_net::{
    Alarm, Completion, EventMask, Kind, Meta, Peer, Post, Posts, PutRefusal, Pv, PvFacts, Reading, Rights, ServedPv,
    ServerConfig, Severity, SharedPv, Source, Status, Value,
};
use fodo_pva::client::{Event, Task};

use crate::peer::Client;
use crate::{start, start_with};

/// The nodes of an NTScalar of a double.
const VALUE: [usize; 4] = [1, 7, 8, 9];
const ALARM: [usize; 7] = [1, 3, 4, 5, 7, 8, 9];

#[test]
fn every_post_of_a_slow_series_arrives_in_order_with_the_nodes_that_changed() {
    let pv = SharedPv::new(0.0);
    let server = start([("x", pv.clone())]);
    let mut client = Client::new(&server);
    let x = client.channel("x");
    client.monitor(x, "");

    let first = client.update();
    assert_eq!(first.reading.value, 0.0.into());
    // As many as QSRV2 sends.
    assert_eq!((first.changed.len(), first.overrun.len()), (20, 0));

    for value in 1..20 {
        pv.post(f64::from(value));
        let update = client.update();
        assert_eq!(update.reading.value, f64::from(value).into());
        assert_eq!((update.changed.as_slice(), update.overrun.len()), (&VALUE[..], 0));
    }
    let alarm = Alarm { severity: Severity::Major, status: Status::HIGH };
    pv.post_reading(Reading { alarm, ..Reading::bare(20.0.into()) });
    let update = client.update();
    assert_eq!(update.reading.alarm.severity, Severity::Major);
    assert_eq!(update.changed, ALARM);
    assert_eq!(server.update_counts().sent, 20);
}

// A reader that acknowledges nothing gets as many updates as its window has; the ring keeps the newest posts.
#[test]
fn a_reader_that_falls_behind_receives_the_newest_value_and_is_informed_of_what_it_missed() {
    let pv = SharedPv::new(0.0);
    let server = start([("x", pv.clone())]);
    let mut client = Client::new(&server);
    let x = client.channel("x");
    let monitor = client.monitor(x, "record[pipeline=true,queueSize=2]");
    assert_eq!(client.update().reading.value, 0.0.into());
    pv.post(1.0);
    assert_eq!(client.update().reading.value, 1.0.into());

    // The ring of a SharedPv has 8 posts.
    for value in 2..=100 {
        pv.post(f64::from(value));
    }
    client.barrier(x);
    client.acknowledge(monitor, 2);

    let merged = client.update();
    assert_eq!(merged.reading.value, 93.0.into());
    assert_eq!((merged.changed.as_slice(), merged.overrun.as_slice()), (&VALUE[..], &VALUE[..]));
    let next = client.update();
    assert_eq!((next.reading.value, next.overrun.len()), (94.0.into(), 0));
    client.acknowledge(monitor, 100);
    for value in 95..=100 {
        assert_eq!(client.update().reading.value, f64::from(value).into());
    }
    let counts = server.update_counts();
    assert_eq!((counts.sent, counts.merged), (9, 91));
}

#[test]
fn two_channels_and_two_selections_of_one_pv_receive_the_same_values() {
    let pv = SharedPv::new(0.0);
    let server = start([("x", pv.clone())]);
    let mut client = Client::new(&server);
    let (x, y) = (client.channel("x"), client.channel("x"));
    let monitors =
        [client.monitor(x, ""), client.monitor(y, ""), client.monitor(x, "value"), client.monitor(y, "value")];
    let mut received = std::collections::HashMap::new();
    for _ in monitors {
        client.any_update();
    }

    for value in 1..=5 {
        pv.post(f64::from(value));
        for _ in monitors {
            let (monitor, update) = client.any_update();
            let nodes = if monitor == monitors[0] || monitor == monitors[1] { &VALUE[..] } else { &VALUE[..1] };
            assert_eq!(update.changed, nodes);
            received.entry(monitor).or_insert_with(Vec::new).push(update.reading.value);
        }
    }

    let expected: Vec<Value> = (1..=5).map(|value| f64::from(value).into()).collect();
    assert!(monitors.iter().all(|monitor| received[monitor] == expected));
    assert_eq!(server.update_counts().sent, 20);
}

#[test]
fn a_post_that_changes_nothing_that_the_subscriptions_select_is_not_counted_as_sent() {
    for n_subscriptions in [1, 2] {
        let pv = SharedPv::new(0.0);
        let server = start([("x", pv.clone())]);
        let mut client = Client::new(&server);
        let x = client.channel("x");
        for _ in 0..n_subscriptions {
            client.monitor(x, "alarm.severity");
            client.any_update();
        }

        pv.post(1.0);
        client.barrier(x);
        let alarm = Alarm { severity: Severity::Major, status: Status::HIGH };
        pv.post_reading(Reading { alarm, ..Reading::bare(2.0.into()) });
        for _ in 0..n_subscriptions {
            assert_eq!(client.any_update().1.reading.alarm.severity, Severity::Major);
        }

        assert_eq!(server.update_counts().sent, n_subscriptions);
    }
}

#[test]
fn large_arrays_arrive_in_order_at_every_subscription() {
    for n in [100, 2_000, 200_000] {
        let pv = SharedPv::new(vec![0.0; n]);
        let server = start([("x", pv.clone())]);
        let mut client = Client::new(&server);
        let x = client.channel("x");
        let monitors = [client.monitor(x, "value"), client.monitor(x, "value")];
        for _ in monitors {
            client.any_update();
        }
        for value in 1..=3 {
            pv.post(vec![f64::from(value); n]);
            for _ in monitors {
                assert_eq!(client.update().reading.value, vec![f64::from(value); n].into());
            }
        }
    }
}

#[test]
fn a_reader_of_images_that_pauses_receives_the_newest_one_and_every_post_is_accounted_for() {
    const N_ELEMENTS: usize = 500_000;
    const N_POSTS: u64 = 50;
    let pv = SharedPv::new(vec![0.0; N_ELEMENTS]);
    let server = start([("image", pv.clone())]);
    let mut client = Client::new(&server);
    let image = client.channel("image");
    client.monitor(image, "value");
    client.update();

    for value in 1..=N_POSTS {
        pv.post(vec![value as f64; N_ELEMENTS]);
    }

    let (mut n_updates, mut n_overrun) = (0, 0);
    loop {
        let update = client.update();
        n_updates += 1;
        n_overrun += usize::from(!update.overrun.is_empty());
        if update.reading.value == vec![N_POSTS as f64; N_ELEMENTS].into() {
            break;
        }
    }
    let counts = server.update_counts();
    assert_eq!((counts.sent, counts.sent + counts.merged), (n_updates, N_POSTS));
    assert!(n_updates < N_POSTS && n_overrun > 0, "{n_updates} updates, {n_overrun} of them with overruns");
}

// Row 41 of docs/reference/faults.md.
#[test]
fn a_huge_window_is_reduced_and_the_client_is_notified() {
    let pv = SharedPv::new(0.0);
    let server = start([("x", pv.clone())]);
    let mut client = Client::new(&server);
    let x = client.channel("x");
    let request = "record[pipeline=true,queueSize=4294967295]";
    let request = fodo_pva::client::PreparedRequest::new(&fodo_pva::request::PvRequest::parse(request).unwrap());
    let monitor = client.machine().open(x, Task::Monitor, fodo_pva::client::Decoding::Flat, &request).unwrap();
    client.machine().start(monitor).unwrap();

    let mut n_messages = 0;
    let value = loop {
        match client.event() {
            Event::Message { text, .. } => {
                assert!(text.to_str().contains("at most 1024"), "{text:?}");
                n_messages += 1;
            }
            Event::Update { received, .. } => break crate::peer::reading(received).value,
            _ => {}
        }
    };

    assert_eq!((n_messages, value), (1, 0.0.into()));
}

#[test]
fn a_stopped_subscription_continues_with_what_has_changed() {
    let pv = SharedPv::new(0.0);
    let server = start([("x", pv.clone())]);
    let mut client = Client::new(&server);
    let x = client.channel("x");
    let monitor = client.monitor(x, "");
    client.update();

    client.machine().stop(monitor).unwrap();
    client.barrier(x);
    pv.post(1.0);
    client.barrier(x);
    client.machine().start(monitor).unwrap();

    let update = client.update();
    assert_eq!((update.reading.value, update.changed.as_slice()), (1.0.into(), &VALUE[..]));
}

/// A PV whose metadata can change.
struct Tunable {
    meta: std::sync::Mutex<Arc<Meta>>,
    posts: Posts,
    is_public: AtomicBool,
}

impl Tunable {
    fn new() -> Arc<Tunable> {
        let is_public = AtomicBool::new(true);
        Arc::new(Tunable { meta: std::sync::Mutex::default(), posts: Posts::new(8), is_public })
    }

    fn post(&self, mask: EventMask, value: f64) {
        self.posts.post(Post { mask, reading: Reading::bare(value.into()) });
    }
}

impl Pv for Tunable {
    fn facts(&self) -> PvFacts {
        PvFacts { kind: Kind::F64, count_max: 1, is_read_only: true }
    }

    fn read(&self) -> Reading {
        Reading::bare(0.0.into())
    }

    fn with_reading(&self, subscribe: &mut dyn FnMut(Reading)) {
        subscribe(self.read());
    }

    fn put(&self, _: Value, _: &Peer, _: Option<Completion>) -> Result<(), PutRefusal> {
        Err(PutRefusal::ReadOnly)
    }

    fn posts(&self) -> &Posts {
        &self.posts
    }

    fn meta(&self) -> Arc<Meta> {
        self.meta.lock().unwrap().clone()
    }

    fn rights(&self, _: &Peer) -> Rights {
        Rights { read: self.is_public.load(Ordering::Relaxed), write: false }
    }
}

struct One(Arc<Tunable>);

impl Source for One {
    fn serves(&self, _: &str) -> bool {
        true
    }

    fn open(&self, _: &str) -> Option<ServedPv> {
        Some(ServedPv::Flat(self.0.clone()))
    }
}

#[test]
fn a_change_of_the_metadata_is_sent_with_the_metadata() {
    let pv = Tunable::new();
    let server = start_with(ServerConfig::isolated(), Arc::new(One(pv.clone())));
    let mut client = Client::new(&server);
    let x = client.channel("x");
    client.monitor(x, "");
    client.monitor(x, "value");
    assert_eq!(client.update().reading.meta.unwrap().units.to_str(), "");
    client.update();

    *pv.meta.lock().unwrap() = Arc::new(Meta { units: "mm".into(), ..Meta::default() });
    pv.post(EventMask::PROPERTY, 0.0);
    let update = client.update();
    assert_eq!(update.reading.meta.unwrap().units.to_str(), "mm");
    let changed: BitSet = update.changed.iter().copied().collect();
    assert!(VALUE.iter().all(|bit| !changed.contains(*bit)) && changed.len() > 10);

    // Only this one is sent to both.
    pv.post(EventMask::VALUE, 1.0);
    assert_eq!(client.update().changed, VALUE);
    assert_eq!(client.update().changed, [1]);
}

#[test]
fn a_subscription_receives_the_kinds_of_change_that_it_requests() {
    let pv = Tunable::new();
    let server = start_with(ServerConfig::isolated(), Arc::new(One(pv.clone())));
    let mut client = Client::new(&server);
    let x = client.channel("x");
    client.monitor(x, "record[DBE=ALARM]");
    client.update();

    pv.post(EventMask::VALUE, 1.0);
    pv.post(EventMask::VALUE | EventMask::ALARM, 2.0);

    let update = client.update();
    assert_eq!((update.reading.value, update.changed.as_slice()), (2.0.into(), &ALARM[..]));
}

#[test]
fn what_was_merged_is_reported_for_each_kind_of_change() {
    let pv = Tunable::new();
    let server = start_with(ServerConfig::isolated(), Arc::new(One(pv.clone())));
    let mut client = Client::new(&server);
    let x = client.channel("x");
    let monitor = client.monitor(x, "record[pipeline=true,queueSize=1]");
    client.update();

    // The alarm changes once, the value more often.
    pv.post(EventMask::VALUE | EventMask::ALARM, 1.0);
    for value in 2..=20 {
        pv.post(EventMask::VALUE, f64::from(value));
    }
    client.barrier(x);
    client.acknowledge(monitor, 1);

    let update = client.update();
    assert_eq!(update.reading.value, 13.0.into());
    assert_eq!((update.changed.as_slice(), update.overrun.as_slice()), (&ALARM[..], &VALUE[..]));
}

#[test]
fn a_subscription_that_may_not_be_read_any_more_ends_with_an_error() {
    let pv = Tunable::new();
    let server = start_with(ServerConfig::isolated(), Arc::new(One(pv.clone())));
    let mut client = Client::new(&server);
    let x = client.channel("x");
    let monitor = client.monitor(x, "");
    client.update();

    pv.is_public.store(false, Ordering::Relaxed);
    server.rights_signal().notify_changed();

    let Event::Ended { ioid, status } = client.event() else { panic!("the subscription goes on") };
    assert_eq!(
        (ioid, status.message.to_str().into_owned()),
        (monitor, "the client has no read access to the PV".into())
    );
    // Another one ends at once.
    let other = client.monitor(x, "");
    assert!(matches!(client.event(), Event::Ended { ioid, .. } if ioid == other));
    assert_eq!(server.observer().clients()[0].n_subscriptions, 0);
}
