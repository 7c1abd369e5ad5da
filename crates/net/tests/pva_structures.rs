//! The client's requests for structures with pvAccess, against a server of this crate.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fodo_net::{
    Channel, Completion, Context, Error, ErrorKind, Kind, Meta, Monitor, MonitorEvent, MonitorOptions, NodeValue, Peer,
    Protocol, PutRefusal, PvRequest, PvTable, PvaServerConfig, Refusal, ServedPv, Server, ServerConfig, SharedPv,
    Structure, StructureBuilder, StructurePosts, StructureType, StructuredPv, Value, many,
};

use fodo_testing::{eventually, free_port};

const PATIENCE: Duration = Duration::from_secs(10);

fn serve(pvs: impl Into<PvTable>) -> (Server, Context) {
    let server = Server::start(ServerConfig::isolated(), Arc::new(pvs.into())).unwrap();
    let context = Context::new(server.client_config());
    (server, context)
}

fn cell(value: impl Into<Value>) -> SharedPv {
    let meta = Meta { units: "mm".into(), ..Meta::default() };
    SharedPv::builder(value).meta(meta).on_put(|value, _| Ok(value)).build()
}

fn channel(context: &Context, name: &str) -> Channel {
    context.channel(&format!("pva://{name}")).unwrap()
}

fn request(text: &str) -> PvRequest {
    PvRequest::parse(text).unwrap()
}

/// The names of the changed nodes.
fn changed(structure: &Structure) -> Vec<String> {
    structure.changed().iter().map(|bit| structure.kind().path(bit)).collect()
}

/// The next update; other events are skipped.
fn next_structure(monitor: &Monitor<Structure>) -> Structure {
    loop {
        match monitor.next_timeout(PATIENCE) {
            Some(MonitorEvent::Update(structure)) => return structure,
            Some(_) => {}
            None => panic!("no update"),
        }
    }
}

fn is_misuse(error: &Error, text: &str) -> bool {
    matches!(error.kind(), ErrorKind::Misuse { .. }) && error.to_string().contains(text)
}

#[test]
fn a_structure_contains_what_the_request_selects() {
    let (_server, context) = serve([("x", cell(1.5))]);
    let x = channel(&context, "x");

    let all = x.get_structure(&PvRequest::default()).unwrap();
    let two = x.get_structure(&request("field(value,display.units)")).unwrap();
    let async_two = pollster::block_on(x.start_get_structure(request("field(value,display.units)"))).unwrap();

    assert_eq!((all.get("value"), all.get("display.units")), (Some(&1.5.into()), Some(&"mm".into())));
    assert_eq!(all.kind(), &x.describe().unwrap());
    assert_eq!(two.get("display.units"), Some(&"mm".into()));
    assert_eq!((changed(&two), &two), (vec!["value".to_owned(), "display.units".to_owned()], &async_two));
    let error = x.get_structure(&request("field(nothing)")).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Refused { .. }), "{error}");
}

#[test]
fn structures_of_many_channels_are_read_in_their_order_and_each_fails_alone() {
    let cells = (0..600).map(|n| (format!("x{n}"), cell(f64::from(n))));
    let (_server, context) = serve(cells.collect::<PvTable>());
    let mut channels: Vec<Channel> = (0..600).map(|n| channel(&context, &format!("x{n}"))).collect();
    let of = |results: Vec<Result<Structure, Error>>| -> Vec<Value> {
        results.into_iter().map(|structure| structure.unwrap().get("value").unwrap().clone()).collect()
    };
    let expected: Vec<Value> = (0..600).map(|n| f64::from(n).into()).collect();
    let value = request("field(value)");

    // Before the channels are connected, when they open the get, and when it is open.
    assert_eq!(of(many::start_get_structure(channels.clone(), value.clone()).wait()), expected);
    for requested in ["field(value)", "field(value,alarm)", "field(value)"] {
        let structures = many::get_structure(&channels, &request(requested));
        assert!(structures.iter().flatten().all(|structure| !changed(structure).contains(&"display.units".to_owned())));
        assert_eq!(of(structures), expected, "{requested}");
    }
    let mut polled = many::start_get_structure(channels.clone(), value.clone());
    pollster::block_on(std::future::poll_fn(|cx| polled.poll_end(cx)));
    assert_eq!(of(polled.finish(Duration::ZERO)), expected);
    assert!(many::get_structure(&[], &value).is_empty());

    // The first one twice, one that does not exist, and one with Channel Access.
    channels.truncate(1);
    let others = [channels[0].clone(), channel(&context, "absent"), context.channel("ca://x7").unwrap()];
    channels.extend(others);
    let after = Duration::from_millis(300);
    let [first, again, absent, ca] = &many::get_structure_timeout(&channels, &value, after)[..] else { panic!() };
    assert_eq!((first, first.is_ok()), (again, true));
    assert_eq!(absent.as_ref().unwrap_err().kind(), &ErrorKind::NotFound { protocol: Protocol::Pva, after });
    assert!(is_misuse(ca.as_ref().unwrap_err(), "pva://"), "{ca:?}");
}

#[test]
fn many_structures_that_the_server_refuses_or_cuts_off_are_errors() {
    let (server, context) = serve([("x", cell(1.5)), ("y", cell(2.5))]);
    let channels = ["x", "y"].map(|name| channel(&context, name));
    let refused = many::get_structure(&channels, &request("field(nothing)"));
    assert!(refused.iter().all(|result| matches!(result.as_ref().unwrap_err().kind(), ErrorKind::Refused { .. })));
    assert!(many::get_structure(&channels, &request("field(value)")).iter().all(Result::is_ok));

    drop(server);
    let after = Duration::from_millis(100);
    let lost = many::get_structure_timeout(&channels, &request("field(value)"), after);

    assert!(lost.iter().all(Result::is_err), "{lost:?}");
}

#[test]
fn a_type_is_described_as_a_whole_or_by_field() {
    let (_server, context) = serve([("x", cell(vec![1.5, 2.5]))]);
    let x = channel(&context, "x");

    assert_eq!(x.describe().unwrap().id(), &"epics:nt/NTScalarArray:1.0".into());
    assert_eq!(x.start_describe("alarm.status").wait().unwrap().to_string(), "I32");
    let error = x.start_describe("alarm.nothing").wait().unwrap_err();
    assert!(is_misuse(&error, "\"alarm.nothing\""), "{error}");
}

#[test]
fn the_fields_of_a_put_are_written_after_conversion() {
    let pv = cell(1.5);
    let (_server, context) = serve([("x", pv.clone())]);
    let x = channel(&context, "x");
    let value = |value: Value| vec![("value".to_owned(), NodeValue::Value(value))];

    x.put_structure(&PvRequest::default(), value("2.5".into())).unwrap();
    assert_eq!(pv.reading().value, 2.5.into());
    let puts = [3.0, 4.0].map(|number| x.start_put_structure(request("record[block=true]"), value(number.into())));
    puts.into_iter().for_each(|put| put.wait().unwrap());
    assert_eq!(pv.reading().value, 4.0.into());

    let error = x.put_structure(&PvRequest::default(), value("much".into())).unwrap_err();
    assert!(is_misuse(&error, "much"), "{error}");
    let fields = vec![("values".to_owned(), NodeValue::Value(1.into()))];
    let error = x.put_structure(&PvRequest::default(), fields).unwrap_err();
    assert!(is_misuse(&error, "\"values\""), "{error}");
    assert_eq!(pv.reading().value, 4.0.into());
}

#[test]
fn an_update_contains_the_whole_value_and_marks_what_has_changed() {
    let pv = cell(1.5);
    let (_server, context) = serve([("x", pv.clone())]);
    let x = channel(&context, "x");
    let monitor = x.monitor_structure(request("field(value,display.units)"), MonitorOptions::default());

    let first = next_structure(&monitor);
    pv.post(2.5);
    let second = next_structure(&monitor);

    assert_eq!((first.get("value"), first.get("display.units")), (Some(&1.5.into()), Some(&"mm".into())));
    assert_eq!((second.get("value"), second.get("display.units")), (Some(&2.5.into()), Some(&"mm".into())));
    assert_eq!(changed(&second), ["value"]);
    assert_eq!((monitor.counts().received, monitor.counts().delivered), (2, 2));
}

#[test]
fn a_monitor_of_structures_with_flow_control_receives_every_update() {
    let pv = cell(0.0);
    let (_server, context) = serve([("x", pv.clone())]);
    let options = MonitorOptions { window: Some(4), ..MonitorOptions::default() };
    let monitor = channel(&context, "x").monitor_structure(request("field(value)"), options);
    assert_eq!(next_structure(&monitor).get("value"), Some(&0.0.into()));

    for number in 1..100 {
        pv.post(f64::from(number));
        assert_eq!(next_structure(&monitor).get("value"), Some(&f64::from(number).into()));
    }
}

#[test]
fn a_monitor_of_structures_continues_after_a_restart_of_its_server() {
    let pv = cell(1.5);
    let pva = PvaServerConfig { port: free_port(), search_port: free_port(), ..PvaServerConfig::isolated() };
    let config = ServerConfig { pva: Some(pva), ..ServerConfig::isolated() };
    let start = || Server::start(config.clone(), Arc::new(PvTable::from([("x", pv.clone())]))).unwrap();
    let server = start();
    let context = Context::new(server.client_config());
    let monitor = channel(&context, "x").monitor_structure(PvRequest::default(), MonitorOptions::default());
    next_structure(&monitor);

    drop(server);
    while monitor.next_timeout(PATIENCE) != Some(MonitorEvent::Disconnected) {}
    pv.post(2.5);
    let _server = start();

    assert!(matches!(monitor.next_timeout(PATIENCE), Some(MonitorEvent::Connected(_))));
    let first = next_structure(&monitor);
    assert_eq!((first.get("value"), first.get("display.units")), (Some(&2.5.into()), Some(&"mm".into())));
    assert_eq!(monitor.counts().n_disconnected, 1);
    context.close();
    assert_eq!(monitor.iter().last(), Some(MonitorEvent::Closed));
}

#[test]
fn a_put_in_progress_ends_with_its_circuit() {
    let (sender, puts) = std::sync::mpsc::channel();
    let pv = SharedPv::builder(0.0).on_put_deferred(move |put| drop(sender.send(put))).build();
    let (server, context) = serve([("x", pv)]);
    let x = channel(&context, "x");

    let put =
        x.start_put_structure(request("record[block=true]"), vec![("value".to_owned(), NodeValue::Value(1.0.into()))]);
    let _in_progress = puts.recv_timeout(PATIENCE).unwrap();
    drop(server);

    let error = put.wait_timeout(PATIENCE).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Disconnected { .. }), "{error}");
}

#[test]
fn a_call_of_a_pv_without_procedures_is_refused() {
    let (_server, context) = serve([("x", cell(1.5))]);
    let x = channel(&context, "x");

    let error = x.call(Structure::single(1.into())).unwrap_err();

    assert!(matches!(error.kind(), ErrorKind::Refused { refusal: Refusal::Reported { .. }, .. }), "{error}");
    assert_eq!(x.get().unwrap().value, 1.5.into(), "the channel is still usable");
}

#[test]
fn with_channel_access_requests_for_structures_fail_at_once_and_name_the_way_out() {
    let (_server, context) = serve([("x", cell(1.5))]);
    let absent = context.channel("ca://absent").unwrap();
    let request = PvRequest::default();

    for error in [
        absent.describe().unwrap_err(),
        absent.get_structure(&request).unwrap_err(),
        absent.put_structure(&request, Vec::new()).unwrap_err(),
        absent.call(Structure::single(1.into())).unwrap_err(),
        absent.process().unwrap_err(),
    ] {
        assert!(is_misuse(&error, "pva://") && error.pv() == "absent", "{error}");
    }
    let x = context.channel("ca://x").unwrap();
    let monitor = x.monitor_structure(request, MonitorOptions::default());
    assert_eq!(monitor.next_timeout(PATIENCE), Some(MonitorEvent::Refused(Refusal::RequiresPva)));
    assert!(matches!(monitor.next_timeout(PATIENCE), Some(MonitorEvent::Connected(_))));
    context.close();
    assert_eq!(monitor.iter().collect::<Vec<_>>(), [MonitorEvent::Closed]);
}

#[test]
fn requests_for_structures_end_with_the_context() {
    let (_server, context) = serve([("x", cell(1.5))]);
    let (x, absent) = (channel(&context, "x"), channel(&context, "absent"));
    x.connect().unwrap();
    let waiting = absent.start_get_structure(PvRequest::default());

    context.close();

    assert_eq!(waiting.wait().unwrap_err().kind(), &ErrorKind::ContextClosed);
    assert_eq!(x.get_structure(&PvRequest::default()).unwrap_err().kind(), &ErrorKind::ContextClosed);
}

/// A PV that keeps its puts, and counts the calls of its methods.
struct Watched {
    value: Arc<Structure>,
    posts: StructurePosts,
    n_listening: AtomicUsize,
    puts: Mutex<Vec<Completion>>,
    cancelled: Mutex<Vec<u64>>,
    is_read_only: bool,
}

impl Watched {
    fn new(is_read_only: bool) -> Arc<Watched> {
        let mut build = StructureBuilder::new("");
        let mut value = Structure::new(Arc::new(build.scalar("a", Kind::I32).finish()));
        value.mark(0);
        let (value, posts) = (Arc::new(value), StructurePosts::new(2));
        let (puts, cancelled) = (Mutex::default(), Mutex::default());
        Arc::new(Watched { value, posts, n_listening: AtomicUsize::new(0), puts, cancelled, is_read_only })
    }
}

impl StructuredPv for Watched {
    fn kind(&self) -> Arc<StructureType> {
        self.value.kind().clone()
    }

    fn read(&self) -> Arc<Structure> {
        self.value.clone()
    }

    fn with_value(&self, subscribe: &mut dyn FnMut(Arc<Structure>)) {
        subscribe(self.read());
    }

    fn posts(&self) -> &StructurePosts {
        &self.posts
    }

    fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    fn put(&self, _: Structure, _: &Peer, completion: Option<Completion>) -> Result<(), PutRefusal> {
        self.puts.lock().unwrap().extend(completion);
        Ok(())
    }

    fn cancel_put(&self, put: u64) {
        self.cancelled.lock().unwrap().push(put);
    }

    fn listeners_changed(&self) {
        self.n_listening.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_structured_pv_of_its_own_kind_learns_of_its_listeners_and_of_cancelled_puts() {
    let (pv, read_only) = (Watched::new(false), Watched::new(true));
    let served = |pv: &Arc<Watched>| ServedPv::from(pv.clone() as Arc<dyn StructuredPv>);
    let (server, context) = serve([("x", served(&pv)), ("ro", served(&read_only))]);
    let x = channel(&context, "x");
    let one = || vec![("a".to_owned(), NodeValue::Value(1.into()))];

    let monitor = x.monitor_structure(PvRequest::default(), MonitorOptions::default());
    assert_eq!(next_structure(&monitor).get("a"), Some(&0.into()));
    eventually("the PV has a listener", || pv.n_listening.load(Ordering::Relaxed) == 1 && pv.posts.has_listeners());
    pv.posts.post(pv.value.clone(), [1].into_iter().collect());
    next_structure(&monitor);
    let put = x.start_put_structure(PvRequest::default(), one());
    eventually("the put arrives", || !pv.puts.lock().unwrap().is_empty());
    let number = pv.puts.lock().unwrap()[0].number();
    let error = channel(&context, "ro").put_structure(&PvRequest::default(), one()).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Refused { .. }), "{error}");
    assert!(read_only.puts.lock().unwrap().is_empty());

    context.close();
    assert!(put.wait().is_err());
    eventually("the put is cancelled", || *pv.cancelled.lock().unwrap() == [number]);
    eventually("the PV has no listener", || pv.n_listening.load(Ordering::Relaxed) == 2 && !pv.posts.has_listeners());
    drop(server);
}

#[test]
fn what_is_served_is_either_flat_or_structured() {
    let flat = ServedPv::from(SharedPv::new(1.5));
    let structured = ServedPv::from(Watched::new(true) as Arc<dyn StructuredPv>);

    assert_eq!((format!("{flat:?}"), format!("{structured:?}")), ("Flat".to_owned(), "Structured".to_owned()));
    assert!(flat.clone().structured().is_none() && flat.flat().is_some());
    assert!(structured.clone().flat().is_none() && structured.structured().is_some());
}
