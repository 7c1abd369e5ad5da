//! Structured PVs and procedures, and the channel of the server itself.

use std::sync::{Arc, mpsc};

use fodo_data::{NodeKind, UnionMember, UnionType, UnionValue};
use fodo_net::{
    Call, Kind, NodeValue, Peer, PutRefusal, PvTable, Quotas, Rights, ServedPv, Server, ServerConfig, SharedPv,
    SharedStructure, Source, Structure, StructureBuilder, StructureType, Text, Value,
};
use fodo_pva::client::{Event, Task};

use crate::peer::Client;
use crate::{start, start_with};

/// A table of two columns, with labels and a time stamp. The nodes: labels 1, value 2, x 3, y 4, timeStamp 5 to 8.
fn table() -> Structure {
    let mut build = StructureBuilder::new("epics:nt/NTTable:1.0");
    build.array("labels", Kind::Text);
    build.open("value", "").array("x", Kind::F64).array("y", Kind::F64).close();
    build.open("timeStamp", "time_t").scalar("secondsPastEpoch", Kind::I64);
    build.scalar("nanoseconds", Kind::I32).scalar("userTag", Kind::I32).close();
    let mut table = Structure::new(Arc::new(build.finish()));
    table.set("labels", ["x", "y"].map(Text::from).to_vec()).unwrap();
    table.set("value.x", vec![0.5]).unwrap();
    table
}

const X: usize = 3;
const Y: usize = 4;
const TIME: [usize; 2] = [6, 7];

/// Posts one column.
fn post(pv: &SharedStructure, column: &str, value: f64) {
    let mut change = pv.new_value();
    change.set(column, vec![value]).unwrap();
    pv.post(&change).unwrap();
}

fn serve(pv: &SharedStructure) -> Server {
    start([("t", pv.clone())])
}

/// The argument of a call, as most programs send it.
fn uri(path: &str, arguments: &[(&str, Value)]) -> Structure {
    let mut build = StructureBuilder::new("epics:nt/NTURI:1.0");
    build.scalar("scheme", Kind::Text).scalar("path", Kind::Text).open("query", "");
    for (name, value) in arguments {
        build.scalar(name, value.kind());
    }
    let mut argument = Structure::new(Arc::new(build.finish()));
    argument.set("path", path).unwrap();
    for (name, value) in arguments {
        argument.set(&format!("query.{name}"), value.clone()).unwrap();
    }
    argument
}

fn scalar(value: impl Into<Value>) -> Structure {
    let value = value.into();
    let mut build = StructureBuilder::new("epics:nt/NTScalar:1.0");
    let mut result = Structure::new(Arc::new(build.scalar("value", value.kind()).finish()));
    result.set("value", value).unwrap();
    result
}

#[test]
fn a_get_contains_what_the_client_selects() {
    let pv = SharedPv::structured(table());
    let server = serve(&pv);
    let mut client = Client::new(&server);
    let t = client.channel("t");

    let everything = client.open_structured(t, Task::Get, "");
    let whole = client.get_structure(everything).unwrap();
    let columns = client.open_structured(t, Task::Get, "value.x,labels");
    let part = client.get_structure(columns).unwrap();

    assert_eq!((whole.kind().id(), whole.get("value.x")), (&"epics:nt/NTTable:1.0".into(), Some(&vec![0.5].into())));
    assert_eq!(whole.get("labels"), pv.value().get("labels"));
    assert_eq!((part.get("value.x"), part.changed().iter().collect::<Vec<_>>()), (Some(&vec![0.5].into()), vec![1, X]));
}

#[test]
fn a_put_writes_only_its_nodes_and_sets_the_time_stamp() {
    let accept = |change: Structure, by: &Peer| match by.user.as_str() {
        "ann" => Ok(change),
        _ => Err(PutRefusal::Rejected("only for ann".into())),
    };
    let pv = SharedStructure::builder(table()).on_put(accept).build();
    let server = serve(&pv);
    let (mut ann, mut bob) = (Client::new(&server), Client::of("bob", &server));
    let (of_ann, of_bob) = (ann.channel("t"), bob.channel("t"));
    let mut change = pv.new_value();
    change.set("value.y", vec![1.0, 2.0]).unwrap();

    let put = bob.open_structured(of_bob, Task::Put, "");
    assert_eq!(bob.put(put, change.clone()), Err("the value is rejected: only for ann".into()));
    let put = ann.open_structured(of_ann, Task::Put, "");
    ann.put(put, change.clone()).unwrap();
    let put_get = ann.open_structured(of_ann, Task::PutGet, "");
    ann.put(put_get, change).unwrap();

    let value = pv.value();
    assert_eq!((value.get("value.x"), value.get("value.y")), (Some(&vec![0.5].into()), Some(&vec![1.0, 2.0].into())));
    assert!(value.get("timeStamp.secondsPastEpoch").unwrap().to_f64().unwrap() > 1.7e9);
}

#[test]
fn a_pv_that_accepts_no_puts_and_is_no_procedure_refuses_both() {
    let server = serve(&SharedPv::structured(table()));
    let mut client = Client::new(&server);
    let t = client.channel("t");
    let mut change = table();
    change.set("value.y", vec![1.0]).unwrap();

    let put = client.open_structured(t, Task::Put, "");
    assert_eq!(client.put(put, change), Err("the PV is read-only".into()));
    assert_eq!(client.call(t, scalar(1)), Err("the PV is not a procedure".into()));
    let process = client.open(t, Task::Process, "");
    assert_eq!(client.process(process), Err("the PV has no record that can be processed".into()));
}

#[test]
fn every_post_of_a_slow_series_arrives_with_its_marks() {
    let pv = SharedPv::structured(table());
    let server = serve(&pv);
    let mut client = Client::new(&server);
    let t = client.channel("t");
    client.monitor_structure(t, "");
    client.monitor_structure(t, "value.y");
    assert_eq!(client.structure_update().1, [0]);
    assert_eq!(client.structure_update().1, [Y]);

    for value in 1..20 {
        post(&pv, "value.y", f64::from(value));
        let (whole, changed, overrun) = client.structure_update();
        assert_eq!((whole.get("value.y"), overrun.len()), (Some(&vec![f64::from(value)].into()), 0));
        assert_eq!(changed, [Y, TIME[0], TIME[1]]);
        let (_, changed, _) = client.structure_update();
        assert_eq!(changed, [Y]);
    }
}

#[test]
fn a_reader_that_falls_behind_receives_the_union_of_the_changes_with_true_overrun_bits() {
    let pv = SharedPv::structured(table());
    let server = serve(&pv);
    let mut client = Client::new(&server);
    let t = client.channel("t");
    let monitor = client.monitor_structure(t, "record[pipeline=true,queueSize=2]field(value)");
    client.structure_update();
    post(&pv, "value.x", 1.0);
    assert_eq!(client.structure_update().1, [X]);

    // The ring keeps 4 posts: the first three are merged into the fourth.
    for (column, value) in [("x", 2.0), ("y", 3.0), ("x", 4.0), ("y", 5.0), ("x", 6.0), ("x", 7.0), ("y", 8.0)] {
        post(&pv, &format!("value.{column}"), value);
    }
    client.barrier(t);
    client.acknowledge(monitor, 100);

    let received: Vec<_> = (0..4).map(|_| client.structure_update()).collect();
    let marks: Vec<_> = received.iter().map(|(_, changed, overrun)| (changed.as_slice(), overrun.as_slice())).collect();
    let expected: [(&[usize], &[usize]); 4] = [(&[X, Y], &[X, Y]), (&[X], &[]), (&[X], &[]), (&[Y], &[])];
    assert_eq!(marks, expected);
    let values = |column: &str| -> Vec<Value> {
        received.iter().map(|(value, ..)| value.get(&format!("value.{column}")).unwrap().clone()).collect()
    };
    assert_eq!(values("x"), [4.0, 6.0, 7.0, 7.0].map(|x| vec![x].into()));
    assert_eq!(values("y"), [5.0, 5.0, 5.0, 8.0].map(|y| vec![y].into()));
    let counts = server.update_counts();
    assert_eq!((counts.sent, counts.merged), (5, 3));
}

#[test]
fn a_post_that_changes_nothing_that_the_subscriptions_select_is_not_counted_as_sent() {
    for n_subscriptions in [1, 2] {
        let pv = SharedPv::structured(table());
        let server = serve(&pv);
        let mut client = Client::new(&server);
        let t = client.channel("t");
        for _ in 0..n_subscriptions {
            client.monitor_structure(t, "value.x");
            client.structure_update();
        }

        post(&pv, "value.y", 1.0);
        client.barrier(t);
        post(&pv, "value.x", 2.0);
        for _ in 0..n_subscriptions {
            assert_eq!(client.structure_update().1, [X]);
        }

        assert_eq!(server.update_counts().sent, n_subscriptions);
    }
}

#[test]
fn a_longer_queue_keeps_more_posts_while_its_client_listens() {
    let pv = SharedPv::structured(table());
    let flat = SharedPv::new(0.0);
    let table = PvTable::new();
    table.insert("t", pv.clone());
    table.insert("x", flat.clone());
    let server = start(table);
    for name in ["t", "x"] {
        let mut client = Client::new(&server);
        let sid = client.channel(name);
        let before = server.update_counts();
        let monitor = client.monitor_structure(sid, "record[pipeline=true,queueSize=100]field(value)");
        client.structure_update();
        // The window of 100 is used up by the first 100 updates.
        for value in 1..=300 {
            post(&pv, "value.x", f64::from(value));
            flat.post(f64::from(value));
        }
        client.barrier(sid);
        client.acknowledge(monitor, 300);
        let mut n_received = 0;
        loop {
            let (value, ..) = client.structure_update();
            n_received += 1;
            let value = value.get("value.x").or_else(|| value.get("value")).unwrap();
            if value.first().unwrap().to_f64() == Ok(300.0) {
                break;
            }
        }
        let counts = server.update_counts();
        let n_merged = counts.merged - before.merged;
        assert!((100..=300).contains(&n_received), "{name}: {n_received} received");
        assert_eq!(n_received + n_merged, 300, "{name}");
    }
}

#[test]
fn a_host_without_memory_gets_the_usual_queue() {
    let pv = SharedPv::structured(table());
    let quotas = Quotas { host_bytes: 200_000, ..Quotas::default() };
    let config = ServerConfig { quotas, ..ServerConfig::isolated() };
    let server = start_with(config, Arc::new(PvTable::from([("t", pv.clone())])));
    let mut client = Client::new(&server);
    let t = client.channel("t");
    let monitor = client.monitor_structure(t, "record[pipeline=true,queueSize=1024]field(value)");
    client.structure_update();
    // Fills the window of 1024 updates; the rest waits in the ring.
    for value in 0..5000 {
        post(&pv, "value.x", f64::from(value));
    }
    client.barrier(t);
    client.acknowledge(monitor, 5000);
    let last: Value = vec![4999.0].into();
    while client.structure_update().0.get("value.x") != Some(&last) {}

    assert!(server.update_counts().merged > 0);
}

#[test]
fn unions_and_variants_reach_the_client() {
    let member = |name: &str, kind| UnionMember { name: name.into(), kind: Arc::new(StructureType::single(kind)) };
    let members = vec![member("number", NodeKind::Scalar(Kind::F64)), member("text", NodeKind::Scalar(Kind::Text))];
    let mut build = StructureBuilder::new("union_t");
    build.leaf("choice", NodeKind::Union(Arc::new(UnionType { id: "".into(), members }))).leaf("any", NodeKind::Any);
    let pv = SharedPv::structured(Structure::new(Arc::new(build.finish())));
    let server = serve(&pv);
    let mut client = Client::new(&server);
    let t = client.channel("t");
    client.monitor_structure(t, "");
    assert_eq!(client.structure_update().0.node(1), Some(&NodeValue::Union(None)));

    let text = NodeValue::Union(Some(Box::new(UnionValue { selector: 1, value: Structure::single("on".into()) })));
    let any = NodeValue::Any(Some(Box::new(scalar(7))));
    let mut change = pv.new_value();
    change.set_node(1, text.clone()).unwrap();
    change.set_node(2, any).unwrap();
    pv.post(&change).unwrap();

    let (value, changed, _) = client.structure_update();
    assert_eq!((value.node(1), changed), (Some(&text), vec![1, 2]));
    let Some(NodeValue::Any(Some(any))) = value.node(2) else { panic!("{value:?}") };
    assert_eq!(any.get("value"), Some(&7.into()));
}

#[test]
fn a_procedure_ends_at_once_or_later_and_only_for_clients_that_may_write() {
    let add = |argument: &Structure, _: &Peer| {
        let number = |name| argument.get(&format!("query.{name}")).and_then(|value| value.to_f64().ok());
        match (number("a"), number("b")) {
            (Some(a), Some(b)) => Ok(scalar(a + b)),
            _ => Err("a and b must be numbers".into()),
        }
    };
    let (sender, calls) = mpsc::channel::<Call>();
    let slow = SharedStructure::procedure_deferred(move |call| drop(sender.send(call)));
    let rights = |by: &Peer| Rights { read: true, write: by.user == "ann" };
    let private = SharedStructure::builder(table()).on_call(add).rights(rights).build();
    let panics = SharedStructure::procedure(|_, _| panic!("planned"));
    let pvs = PvTable::from([
        ("add", SharedStructure::procedure(add)),
        ("slow", slow),
        ("private", private),
        ("panics", panics),
    ]);
    let server = start(pvs);
    let mut client = Client::new(&server);
    let sids = ["add", "slow", "private", "panics"].map(|name| client.channel(name));
    let argument = || uri("add", &[("a", 1.5.into()), ("b", 2.into())]);

    assert_eq!(client.call(sids[0], argument()).unwrap().get("value"), Some(&3.5.into()));
    assert_eq!(client.call(sids[0], scalar(1)), Err("a and b must be numbers".into()));
    assert_eq!(client.call(sids[2], argument()).unwrap().get("value"), Some(&3.5.into()));
    assert_eq!(client.call(sids[3], argument()), Err("the server dropped the call without a result".into()));
    let mut bob = Client::of("bob", &server);
    let private = bob.channel("private");
    assert_eq!(bob.call(private, argument()), Err("the client has no write access to the PV".into()));

    let operation = client.open_structured(sids[1], Task::Rpc, "");
    client.machine().rpc(operation, argument()).unwrap();
    client.barrier(sids[1]);
    let call = calls.recv_timeout(crate::PATIENCE).unwrap();
    assert_eq!((call.get("a"), call.by.user.as_str()), (Some(&1.5.into()), "ann"));
    std::thread::spawn(move || call.complete(scalar("done")));
    let Event::Done { result, .. } = client.event() else { panic!("the call does not end") };
    assert!(format!("{result:?}").contains("done"));
}

#[test]
fn the_result_of_a_call_that_was_cancelled_is_not_sent() {
    let (sender, calls) = mpsc::channel::<Call>();
    let slow = SharedStructure::procedure_deferred(move |call| drop(sender.send(call)));
    let server = serve(&slow);
    let mut client = Client::new(&server);
    let t = client.channel("t");
    let operation = client.open_structured(t, Task::Rpc, "");
    client.machine().rpc(operation, scalar(1)).unwrap();
    client.barrier(t);
    let call = calls.recv_timeout(crate::PATIENCE).unwrap();

    client.machine().destroy(operation);
    client.barrier(t);
    call.complete(scalar("late"));
    let operation = client.open_structured(t, Task::Rpc, "");
    client.machine().rpc(operation, scalar(2)).unwrap();
    client.barrier(t);
    calls.recv_timeout(crate::PATIENCE).unwrap().refuse("the second");

    assert_eq!(client.done(), Err("the second".into()));
}

// Row 44 of docs/reference/faults.md.
#[test]
fn calls_beyond_the_limit_are_refused_and_those_in_progress_end() {
    const CALLS: usize = 4096;
    let (sender, calls) = mpsc::channel::<Call>();
    let slow = SharedStructure::procedure_deferred(move |call| drop(sender.send(call)));
    let server = serve(&slow);
    let mut client = Client::new(&server);
    let t = client.channel("t");
    for _ in 0..=CALLS {
        let operation = client.open_structured(t, Task::Rpc, "");
        client.machine().rpc(operation, scalar(1)).unwrap();
    }

    assert_eq!(client.done(), Err("too many calls of this client or its host are in progress".into()));

    let in_progress: Vec<Call> = (0..CALLS).map(|_| calls.recv_timeout(crate::PATIENCE).unwrap()).collect();
    in_progress.into_iter().for_each(|call| call.complete(scalar(2)));
    assert!((0..CALLS).all(|_| client.done().is_ok()));
    assert!(calls.try_recv().is_err());
}

#[test]
fn every_server_lists_its_pvs_by_a_call_of_its_own_channel() {
    let table = PvTable::from([("b", SharedPv::new(1.5))]);
    table.insert("a", SharedPv::structured(self::table()));
    let server = start(table);
    let mut client = Client::new(&server);
    let channel = client.channel("server");

    let names = client.call(channel, uri("server", &[("op", "channels".into())])).unwrap();
    let info = client.call(channel, uri("server", &[("op", "info".into())])).unwrap();

    assert_eq!(names.kind().id(), &"epics:nt/NTScalarArray:1.0".into());
    assert_eq!(names.get("value"), Some(&["a", "b"].map(Text::from).to_vec().into()));
    assert!(info.get("version").unwrap().first().unwrap().to_text(None).to_str().starts_with("fodo "));
    let get = client.open_structured(channel, Task::Get, "");
    assert_eq!(client.get_structure(get), Err("the client has no read access to the PV".into()));
    let monitor = client.monitor_structure(channel, "");
    assert!(matches!(client.event(), Event::Ended { ioid, .. } if ioid == monitor));
}

#[test]
fn a_structured_pv_does_not_exist_for_channel_access() {
    let pvs = PvTable::from([("t", SharedPv::structured(table()))]);
    assert!(pvs.serves("t") && !pvs.serves_flat("t"));
    assert!(pvs.open("t").and_then(ServedPv::flat).is_none());
    let server = start(pvs);
    let context = fodo_net::Context::new(server.client_config());

    let error = context.channel("ca://t").unwrap().get_timeout(std::time::Duration::from_millis(300)).unwrap_err();

    assert!(matches!(error.kind(), fodo_net::ErrorKind::NotFound { .. }), "{error}");
    assert_eq!(server.observer().counts().refused, 0);
}
