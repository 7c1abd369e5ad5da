//! Puts, and requests that flat PVs refuse.

use std::sync::{Arc, Mutex};

use fodo_net::{DeferredPut, Meta, PutRefusal, Rights, Scalar, SharedPv, Value};
use fodo_pva::client::{Event, Received, Task};

use crate::peer::{Client, reading};
use crate::start;

fn cell(value: impl Into<Value>) -> SharedPv {
    SharedPv::builder(value).on_put(|value, _| Ok(value)).build()
}

/// A PV whose puts end when the test completes them.
fn slow_cell() -> (SharedPv, Arc<Mutex<Vec<DeferredPut>>>) {
    let puts: Arc<Mutex<Vec<DeferredPut>>> = Arc::default();
    let waiting = puts.clone();
    (SharedPv::builder(0.0).on_put_deferred(move |put| waiting.lock().unwrap().push(put)).build(), puts)
}

#[test]
fn a_put_sets_the_value_of_every_kind() {
    for (initial, value) in [
        (Value::from(1.5), Value::from(2.5)),
        (1.into(), 7.into()),
        ("".into(), "a text".into()),
        (vec![0.0; 3].into(), vec![1.5, 2.5].into()),
        (Value::Scalar(Scalar::Enum(0)), Value::Scalar(Scalar::Enum(1))),
    ] {
        let pv = cell(initial);
        let server = start([("x", pv.clone())]);
        let mut client = Client::new(&server);
        let x = client.channel("x");
        let put = client.open(x, Task::Put, "value");

        assert_eq!(client.put(put, value.clone()), Ok(Received::None));

        assert_eq!(pv.value(), value);
        // A put also reads what it would write.
        assert_eq!(client.get(put).unwrap().value, value);
    }
}

#[test]
fn a_put_names_a_state_by_its_text() {
    let meta = Meta { labels: vec!["Closed".into(), "Open".into()], ..Meta::default() };
    let valve = SharedPv::builder(Value::Scalar(Scalar::Enum(0))).meta(meta).on_put(|value, _| Ok(value)).build();
    let server = start([("valve", valve.clone())]);
    let mut client = Client::new(&server);
    let sid = client.channel("valve");

    client.put_once(sid, "", Value::from("Open")).unwrap();

    assert_eq!(valve.value(), Value::Scalar(Scalar::Enum(1)));
}

#[test]
fn a_put_is_answered_when_the_pv_has_accepted_it_and_a_blocking_put_when_it_has_ended() {
    let (pv, waiting) = slow_cell();
    let server = start([("motor", pv)]);
    let mut client = Client::new(&server);
    let motor = client.channel("motor");

    client.put_once(motor, "", Value::from(1.5)).unwrap();
    assert_eq!(waiting.lock().unwrap().len(), 1);

    let blocking = client.open(motor, Task::Put, "record[block=true]");
    client.start_put(blocking, Value::from(2.5));
    client.barrier(motor);
    let second = waiting.lock().unwrap().pop().unwrap();
    assert_eq!(second.value, 2.5.into());
    second.complete();
    assert!(matches!(client.event(), Event::Done { result: Ok(Received::None), .. }));
}

#[test]
fn a_put_get_returns_the_value_after_the_put() {
    let server = start([("x", cell(1.5))]);
    let mut client = Client::new(&server);
    let x = client.channel("x");
    let put_get = client.open(x, Task::PutGet, "");

    assert_eq!(reading(client.put(put_get, Value::from(2.5)).unwrap()).value, 2.5.into());
}

#[test]
fn a_refused_put_says_why() {
    let refused = |_: Value, _: &fodo_net::Peer| Err(PutRefusal::Rejected("the shutter is open".into()));
    let server = start([
        ("interlocked", SharedPv::builder(1.5).on_put(refused).build()),
        ("fixed", SharedPv::new(1.5)),
        ("foreign", SharedPv::builder(1.5).rights(|_| Rights { read: true, write: false }).build()),
        ("array", cell(vec![0.0; 2])),
        ("faulty", SharedPv::builder(1.5).on_put(|_, _| panic!("planned in put")).build()),
    ]);
    let mut client = Client::new(&server);
    let one = || Value::from(1.0);
    for (name, request, value, expected) in [
        ("interlocked", "", one(), "the value is rejected: the shutter is open"),
        ("interlocked", "record[block=true]", one(), "the value is rejected: the shutter is open"),
        ("fixed", "", one(), "the PV is read-only"),
        ("foreign", "", one(), "the client has no write access to the PV"),
        ("array", "", vec![1.0; 3].into(), "the value is rejected: 3 elements, but the PV has at most 2"),
        ("faulty", "", one(), "the server failed to put the value"),
        ("array", "record[process=true]", one(), "the PV has no record that can be processed"),
    ] {
        let sid = client.channel(name);

        assert_eq!(client.put_once(sid, request, value), Err(expected.into()), "{name} {request}");
    }
}

#[test]
fn a_put_without_write_access_is_refused_before_its_value_arrives() {
    let foreign = SharedPv::builder(vec![0.0; 10]).count_max(100_000).rights(|_| Rights { read: true, write: false });
    let server = start([("x", foreign.build())]);
    let mut client = Client::new(&server);
    let x = client.channel("x");
    let put = client.open(x, Task::Put, "");

    client.machine().put(put, Value::from(vec![1.0; 100_000])).unwrap();
    let mut message = Vec::new();
    while let ready @ [_, ..] = client.machine().ready() {
        let n_bytes = ready.len();
        message.extend_from_slice(ready);
        client.machine().sent(n_bytes);
    }
    client.send_raw(&message[..100]);

    let refused = client.done().unwrap_err();
    assert!(refused.contains("the client has no write access to the PV"), "{refused}");
}

#[test]
fn a_put_that_its_client_ends_is_dropped_by_the_server() {
    let (pv, waiting) = slow_cell();
    let server = start([("motor", pv)]);
    let mut client = Client::new(&server);
    let motor = client.channel("motor");
    let put = client.open(motor, Task::Put, "record[block=true]");
    client.start_put(put, Value::from(1.5));

    client.machine().destroy(put);
    client.barrier(motor);
    waiting.lock().unwrap().pop().unwrap().complete();

    // Its reply is not sent; the circuit goes on.
    assert_eq!(client.get_once(motor, "value").unwrap().value, 0.0.into());
}

#[test]
fn a_flat_pv_is_neither_processed_nor_called() {
    let server = start([("x", cell(1.5))]);
    let mut client = Client::new(&server);
    let x = client.channel("x");
    let process = client.open(x, Task::Process, "");

    assert_eq!(client.process(process), Err("the PV has no record that can be processed".into()));
}
