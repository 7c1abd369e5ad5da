//! Channels and gets.

use std::sync::Arc;

use fodo_net::{
    Kind, Meta, Peer, Posts, Protocol, PutRefusal, Pv, PvFacts, PvTable, Reading, Rights, Scalar, ServedPv,
    ServerConfig, SharedPv, Source, Value,
};
use fodo_pva::client::{Event, Task};
use fodo_pva::search::SearchedChannel;

use crate::peer::Client;
use crate::{start, start_with};

#[test]
fn a_get_returns_the_value_of_every_kind_with_its_alarm_time_and_metadata() {
    let values: [Value; 8] = [
        1.5.into(),
        7.into(),
        "a text".into(),
        true.into(),
        vec![1.5, 2.5].into(),
        vec![1_i16, 2, 3].into(),
        vec!["one".into(), fodo_net::Text::from("two")].into(),
        vec![0.5; 100_000].into(),
    ];
    for value in values {
        let meta = Meta { units: "mm".into(), description: "position".into(), ..Meta::default() };
        let pv = SharedPv::builder(value.clone()).meta(meta).build();
        let server = start([("x", pv.clone())]);
        let mut client = Client::new(&server);
        let x = client.channel("x");

        let reading = client.get_once(x, "").unwrap();

        assert_eq!(reading.value, value);
        assert_eq!(reading.time, pv.reading().time);
        assert_eq!(reading.meta.unwrap().description.to_str(), "position", "{value:?}");
    }
}

#[test]
fn an_enum_has_its_index_and_its_choices() {
    let meta = Meta { labels: vec!["Closed".into(), "Open".into()], ..Meta::default() };
    let server = start([("valve", SharedPv::builder(Value::Scalar(Scalar::Enum(1))).meta(meta).build())]);
    let mut client = Client::new(&server);
    let valve = client.channel("valve");

    let reading = client.get_once(valve, "").unwrap();

    assert_eq!(reading.value, Value::Scalar(Scalar::Enum(1)));
    assert_eq!(reading.meta.unwrap().labels, ["Closed".into(), "Open".into()]);
}

#[test]
fn a_get_is_repeated_in_one_round_trip_and_returns_the_newest_value() {
    let pv = SharedPv::new(1.5);
    let server = start([("x", pv.clone())]);
    let mut client = Client::new(&server);
    let x = client.channel("x");
    let get = client.open(x, Task::Get, "value,alarm,timeStamp");

    for value in [2.5, 3.5] {
        pv.post(value);
        assert_eq!(client.get(get).unwrap().value, value.into());
    }
}

/// A PV whose metadata cannot be read.
struct NoMeta(Posts);

impl Pv for NoMeta {
    fn facts(&self) -> PvFacts {
        PvFacts { kind: Kind::F64, count_max: 1, is_read_only: true }
    }

    fn read(&self) -> Reading {
        Reading::bare(1.5.into())
    }

    fn with_reading(&self, subscribe: &mut dyn FnMut(Reading)) {
        subscribe(self.read());
    }

    fn put(&self, _: Value, _: &Peer, _: Option<fodo_net::Completion>) -> Result<(), PutRefusal> {
        Err(PutRefusal::ReadOnly)
    }

    fn posts(&self) -> &Posts {
        &self.0
    }

    fn meta(&self) -> Arc<Meta> {
        panic!("planned in meta");
    }
}

/// Serves one PV by any name.
struct One(Arc<dyn Pv>);

impl Source for One {
    fn serves(&self, name: &str) -> bool {
        name != "absent"
    }

    fn open(&self, name: &str) -> Option<ServedPv> {
        self.serves(name).then(|| self.0.clone().into())
    }
}

#[test]
fn only_a_client_that_selects_metadata_makes_the_server_read_it() {
    let server = start_with(ServerConfig::isolated(), Arc::new(One(Arc::new(NoMeta(Posts::new(1))))));
    let (mut careful, mut greedy) = (Client::new(&server), Client::new(&server));
    let x = careful.channel("x");
    assert_eq!(careful.get_once(x, "value,alarm,timeStamp").unwrap().value, 1.5.into());

    // A panic of the PV closes the circuit for which it was called, and no other.
    let y = greedy.channel("y");
    let get = greedy.open(y, Task::Get, "");
    greedy.machine().get(get).unwrap();
    assert!(greedy.try_event().is_none());

    assert_eq!(careful.get_once(x, "value").unwrap().value, 1.5.into());
}

#[test]
fn an_unknown_name_is_refused_and_the_circuit_stays_open() {
    let server = start([("x", SharedPv::new(1.5))]);
    let mut client = Client::new(&server);

    assert_eq!(client.try_channel("y"), None);
    let x = client.channel("x");
    assert_eq!(client.get_once(x, "value").unwrap().value, 1.5.into());
}

#[test]
fn a_search_on_the_circuit_finds_only_what_is_served() {
    let server = start([("x", SharedPv::new(1.5))]);
    let mut client = Client::new(&server);
    let searched = |cid, name: &'static [u8]| SearchedChannel { cid: fodo_engine::Cid(cid), name };

    client.machine().search(&[searched(8, b"y"), searched(9, b"x")]);

    assert!(matches!(client.event(), Event::Claimed { cid: fodo_engine::Cid(9), .. }));
    assert_eq!(server.observer().counts().searches, 2);
}

#[test]
fn the_rights_of_a_pv_apply_to_the_user_that_the_client_sends() {
    let rights = |peer: &Peer| Rights { read: peer.user == "ann", write: false };
    let server = start([("x", SharedPv::builder(1.5).rights(rights).build())]);
    for (user, expected) in [("ann", Ok(1.5.into())), ("bob", Err("the client has no read access to the PV".into()))] {
        let mut client = Client::of(user, &server);
        let x = client.channel("x");

        assert_eq!(client.get_once(x, "value").map(|reading| reading.value), expected);
    }
}

#[test]
fn the_status_of_a_client_names_its_protocol_and_user() {
    let server = start(PvTable::from([("x", SharedPv::new(1.5))]));
    let mut client = Client::new(&server);
    let x = client.channel("x");
    client.monitor(x, "value");
    client.update();

    let clients = server.observer().clients();

    assert_eq!(clients.len(), 1);
    let status = &clients[0];
    assert_eq!((status.protocol, status.user.as_str(), status.host.as_str()), (Protocol::Pva, "ann", "desk"));
    assert_eq!((status.n_channels, status.n_subscriptions), (1, 1));
}
