//! Code of the program that panics while a server calls it.

use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fodo_net::log::{Level, Log, LogLine};
use fodo_net::{
    ChannelState, Completion, Detail, Eca, ErrorKind, Kind, Meta, MonitorEvent, MonitorOptions, Peer, Posts,
    PutRefusal, Pv, PvFacts, PvTable, Reading, Refusal, Request, Rights, ServedPv, Server, SharedPv, Source, Value,
};

use crate::PATIENCE;
use crate::cell::{client, quiet};

/// More than a server has threads.
const N_CLIENTS: usize = 8;

/// How long a put waits that does not complete.
const SHORT: Duration = Duration::from_millis(200);

/// A PV or source that panics in one method.
struct Faulty {
    method: String,
    posts: Posts,
    held: Mutex<Vec<Completion>>,
}

impl Faulty {
    fn new(method: &str) -> Faulty {
        Faulty { method: method.to_owned(), posts: Posts::new(1), held: Mutex::default() }
    }

    fn reach(&self, method: &str) {
        if self.method == method {
            panic!("planned in {method}");
        }
    }
}

impl Pv for Faulty {
    fn facts(&self) -> PvFacts {
        self.reach("facts");
        PvFacts { kind: Kind::F64, count_max: 1, is_read_only: false }
    }

    fn rights(&self, _: &Peer) -> Rights {
        self.reach("rights");
        Rights { read: true, write: true }
    }

    fn read(&self) -> Reading {
        self.reach("read");
        Reading::bare(Value::from(1.5))
    }

    fn with_reading(&self, subscribe: &mut dyn FnMut(Reading)) {
        self.reach("with_reading");
        subscribe(Reading::bare(Value::from(1.5)));
    }

    fn put(&self, _: Value, _: &Peer, completion: Option<Completion>) -> Result<(), PutRefusal> {
        self.reach("put");
        self.held.lock().unwrap().extend(completion);
        Ok(())
    }

    fn posts(&self) -> &Posts {
        &self.posts
    }

    fn meta(&self) -> Arc<Meta> {
        self.reach("meta");
        Arc::default()
    }

    fn cancel_put(&self, _: u64) {
        self.reach("cancel_put");
    }

    fn listeners_changed(&self) {
        self.reach("listeners_changed");
    }
}

/// Serves "x", and PVs that panic in the method that is their name.
struct FaultySource(SharedPv);

impl Source for FaultySource {
    fn serves(&self, name: &str) -> bool {
        Faulty::new(name).reach("serves");
        true
    }

    fn open(&self, name: &str) -> Option<ServedPv> {
        Faulty::new(name).reach("open");
        match name {
            "x" => Some(self.0.clone().into()),
            name => Some(ServedPv::Flat(Arc::new(Faulty::new(name)))),
        }
    }
}

/// A server with a log of errors.
fn serve_logged(source: Arc<dyn Source>) -> (Server, Receiver<LogLine>) {
    let (sender, lines) = mpsc::channel();
    let log = Log::new(Level::Error, move |line| drop(sender.send(line.clone())));
    (Server::start_with_log(quiet(), source, log).unwrap(), lines)
}

/// Whether new clients are served, whichever thread they are assigned to.
fn serves_new_clients(server: &Server) -> bool {
    (0..N_CLIENTS).all(|_| client(server).channel("x").unwrap().get_timeout(PATIENCE).is_ok())
}

#[test]
fn a_panic_in_any_method_of_a_source_or_pv_is_logged_and_affects_no_other_client() {
    let methods = ["serves", "open", "facts", "rights", "read", "with_reading", "put", "meta", "listeners_changed"];
    let (server, lines) = serve_logged(Arc::new(FaultySource(SharedPv::new(1.5))));
    let other = client(&server);
    let monitor = other.channel("x").unwrap().monitor(MonitorOptions::default());
    while !matches!(monitor.next_timeout(PATIENCE).unwrap(), MonitorEvent::Update(_)) {}

    for method in methods {
        let context = client(&server);
        let channel = context.channel(method).unwrap();
        // What fails depends on the method; all requests are sent in each case.
        let _get = channel.start_get(Request { detail: Detail::Control, ..Request::default() });
        let _put = channel.start_put(2.5);
        let _monitor = channel.monitor(MonitorOptions::default());
        let planned = format!("planned in {method}");
        while !lines.recv_timeout(PATIENCE).expect(method).what.ends_with(&planned) {}
        context.close();
    }
    let context = client(&server);
    let _ = context.channel("cancel_put").unwrap().put_timeout(2.5, SHORT);
    context.close();

    assert!(serves_new_clients(&server));
    assert_eq!(monitor.counts().n_disconnected, 0);
}

#[test]
fn a_panic_in_on_put_fails_only_that_put() {
    let accept = |value: Value, _: &Peer| match value.to_f64() {
        Ok(13.0) => panic!("planned"),
        _ => Ok(value),
    };
    let pv = SharedPv::builder(1.5).on_put(accept).build();
    let (server, lines) = serve_logged(Arc::new(PvTable::from([("x", pv.clone())])));
    let context = client(&server);
    let x = context.channel("x").unwrap();
    let monitor = x.monitor(MonitorOptions::default());

    let error = x.put_timeout(13.0, PATIENCE).unwrap_err();
    let value = pv.value();
    x.put_timeout(14.0, PATIENCE).unwrap();

    let refusal = Refusal::Status { status: Eca::PUTFAIL, text: String::new() };
    let ErrorKind::Refused { refusal: received, .. } = error.kind() else { panic!("{error}") };
    assert_eq!((received, value, pv.value()), (&refusal, Value::from(1.5), Value::from(14.0)));
    assert_eq!((x.state(), monitor.counts().n_disconnected), (ChannelState::Active, 0));
    assert!(lines.recv_timeout(PATIENCE).unwrap().what.ends_with("panicked: planned"));
}

#[test]
fn a_refused_put_is_logged_with_its_reason() {
    let refuse = |_: Value, _: &Peer| Err(PutRefusal::Rejected("the interlock is open".into()));
    let (sender, lines) = mpsc::channel();
    let log = Log::new(Level::Info, move |line| drop(sender.send(line.to_string())));
    let source = Arc::new(PvTable::from([("x", SharedPv::builder(1.5).on_put(refuse).build())]));
    let server = Server::start_with_log(quiet(), source, log).unwrap();

    assert!(client(&server).channel("x").unwrap().put_timeout(2.5, PATIENCE).is_err());

    let logged = std::iter::from_fn(|| lines.recv_timeout(PATIENCE).ok()).find(|line| line.contains("put"));
    let reason = "info: a put failed: the value is rejected: the interlock is open (127.0.0.1:";
    assert!(logged.as_ref().is_some_and(|line| line.starts_with(reason)), "{logged:?}");
}

#[test]
fn a_server_whose_log_panics_serves_its_clients() {
    let log = Log::new(Level::Debug, |_| panic!("planned"));
    let table = Arc::new(PvTable::from([("x", SharedPv::new(1.5))]));
    let server = Server::start_with_log(quiet(), table, log).unwrap();

    assert!(serves_new_clients(&server));
}
