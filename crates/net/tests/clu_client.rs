//! The client of a CLU, with a real socket and a CLU on loopback.

mod clu_server;

use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use clu_server::{SERIAL, TestClu, project_key};
use fodo_net::clu::{
    Answer, Availability, CipherKey, CluConnection, CluConnectionConfig, CluItem, CluMonitor, CluOperation, CluRequest,
    CluUpdate, ReportMode, RequestOutcome, Scalar, Serial, SubmitError,
};

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(30);

fn text(text: &str) -> RequestOutcome {
    RequestOutcome::Answered(Answer::Text(text.into()))
}

/// A request whose reply is `text`, and that reply.
fn value_of(number: usize) -> (String, RequestOutcome) {
    (format!("value({number})"), text(&number.to_string()))
}

fn item(name: &str) -> CluItem {
    CluItem::variable(name).unwrap()
}

/// Waits until a condition is true.
fn await_that(what: &str, is_true: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_true() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn next<T>(of: &Receiver<T>) -> T {
    of.recv_timeout(PATIENCE).expect("it is reported in time")
}

#[test]
fn each_outcome_of_a_request_is_distinguished() {
    let clu = TestClu::start();
    let connection = clu.connect();

    assert_eq!(connection.request(CluRequest::Execute("value(5)")), Ok(text("5")));
    assert_eq!(connection.request(CluRequest::CheckAlive), Ok(text(&SERIAL.to_string())));
    assert_eq!(connection.request(CluRequest::Execute("nothing()")), Ok(RequestOutcome::Nil));
    assert_eq!(connection.request(CluRequest::Execute("refuse()")), Ok(RequestOutcome::Refused));
    assert_eq!(connection.request(CluRequest::StartTftp), Ok(RequestOutcome::Answered(Answer::Accepted)));
    let timed_out = connection.start_timeout(CluRequest::Execute("hold()"), Duration::from_millis(50)).unwrap();
    assert_eq!(timed_out.wait(), RequestOutcome::TimedOut { was_sent: true });
    let mut wrong = clu.config();
    wrong.serial = Some(Serial(7));
    let of_another_clu = CluConnection::open(wrong).unwrap().request(CluRequest::CheckAlive);
    assert_eq!(of_another_clu, Ok(RequestOutcome::Wrong(SERIAL.to_string().as_str().into())));

    let counts = connection.counts();
    assert!(counts.is_balanced(), "{counts:?}");
    assert_eq!((counts.submitted, counts.answered, counts.nil, counts.refused), (6, 3, 1, 1));
    assert_eq!((counts.timed_out, counts.wrong, counts.pending), (1, 0, 0));
}

#[test]
fn several_values_are_fetched_at_once_and_a_list_of_another_length_is_wrong() {
    let clu = TestClu::start();
    let connection = clu.connect();
    clu.set_value("b", "true");

    let outcome = connection.request(CluRequest::Fetch(&[item("a"), item("b")]));
    let values = vec![Some(Scalar::F64(0.0)), Some(Scalar::Bool(true))];
    assert_eq!(outcome, Ok(RequestOutcome::Answered(Answer::Values(values))));

    clu.set_value("b", "1,2");
    let outcome = connection.request(CluRequest::Fetch(&[item("a"), item("b")]));
    assert_eq!(outcome, Ok(RequestOutcome::Wrong("values:{0,1,2}".into())));
}

#[test]
fn a_late_reply_is_counted_and_does_not_end_another_request() {
    let clu = TestClu::start();
    let connection = clu.connect();
    let held = connection.start_timeout(CluRequest::Execute("hold()"), Duration::from_millis(50)).unwrap();
    assert_eq!(held.wait(), RequestOutcome::TimedOut { was_sent: true });

    clu.release();
    assert_eq!(connection.request(CluRequest::Execute("value(1)")), Ok(text("1")));
    await_that("the late reply is read", || connection.counts().late == 1);

    assert!(connection.counts().is_balanced());
}

#[test]
fn a_reply_from_another_port_is_accepted_and_from_another_address_is_not() {
    let clu = TestClu::start();
    let connection = clu.connect();

    assert_eq!(connection.request(CluRequest::Execute("elsewhere(5)")), Ok(text("5")));
    if cfg!(target_os = "linux") {
        let foreign = connection.start_timeout(CluRequest::Execute("foreign(5)"), Duration::from_millis(200)).unwrap();
        assert_eq!(foreign.wait(), RequestOutcome::TimedOut { was_sent: true });
        assert_eq!(connection.counts().foreign, 1);
    }
}

#[test]
fn another_key_is_a_timeout() {
    let clu = TestClu::start();
    let config = CluConnectionConfig { key: CipherKey::new([9; 16], [2; 16]), ..clu.config() };
    let connection = CluConnection::open(config).unwrap();

    let operation = connection.start_timeout(CluRequest::Execute("value(1)"), Duration::from_millis(100)).unwrap();

    assert_eq!(operation.wait(), RequestOutcome::TimedOut { was_sent: true });
    await_that("the CLU has dropped it", || clu.world().counts.received > 0);
    assert!(clu.world().scripts.is_empty());
}

#[test]
fn sixty_four_threads_have_a_connection_each() {
    let clu = TestClu::start();
    std::thread::scope(|scope| {
        for first in 0..64 {
            let connection = clu.connect();
            scope.spawn(move || {
                for number in first * 1000..first * 1000 + 50 {
                    let (script, reply) = value_of(number);
                    assert_eq!(connection.request(CluRequest::Execute(&script)), Ok(reply));
                }
                let counts = connection.counts();
                assert_eq!((counts.submitted, counts.answered), (50, 50));
                assert!(counts.is_balanced());
            });
        }
    });
}

#[test]
fn one_thread_has_64_requests_in_flight() {
    let clu = TestClu::start();
    let connection = CluConnection::open(CluConnectionConfig { in_flight_max: 64, ..clu.config() }).unwrap();
    let start = |number| {
        let (script, reply) = value_of(number);
        (connection.start(CluRequest::Execute(&script)).unwrap(), reply)
    };
    let mut in_flight: std::collections::VecDeque<(CluOperation, RequestOutcome)> = (0..64).map(start).collect();

    for number in 64..2000 {
        let (operation, reply) = in_flight.pop_front().unwrap();
        assert_eq!(operation.wait(), reply);
        in_flight.push_back(start(number));
    }
    // In any order.
    for (operation, reply) in in_flight.into_iter().rev() {
        assert_eq!(operation.wait(), reply);
    }

    let counts = connection.counts();
    assert_eq!((counts.submitted, counts.answered, counts.pending), (2000, 2000, 0));
    assert!(counts.is_balanced());
}

#[test]
fn many_threads_wait_on_one_connection() {
    let clu = TestClu::start();
    let connection = clu.connect();
    std::thread::scope(|scope| {
        for first in 0..16 {
            let connection = connection.clone();
            scope.spawn(move || {
                for number in first * 1000..first * 1000 + 100 {
                    let (script, reply) = value_of(number);
                    let operation = connection.start(CluRequest::Execute(&script)).unwrap();
                    let outcome = match number % 3 {
                        0 => pollster::block_on(operation),
                        1 => operation.wait(),
                        _ => {
                            // The next caller must not depend on one that waits no longer.
                            while !operation.wait_until(Instant::now() + Duration::from_micros(200)) {}
                            operation.wait()
                        }
                    };
                    assert_eq!(outcome, reply);
                }
            });
        }
    });

    let counts = connection.counts();
    assert_eq!((counts.submitted, counts.answered, counts.pending), (1600, 1600, 0));
    assert!(counts.is_balanced());
}

#[test]
fn requests_are_futures() {
    let clu = TestClu::start();
    let connection = clu.connect();

    let outcomes = pollster::block_on(futures_util::future::join_all((0..200).map(|number| {
        let (script, _) = value_of(number);
        connection.start(CluRequest::Execute(&script)).unwrap()
    })));
    let lost = connection.start_timeout(CluRequest::Execute("hold()"), Duration::from_millis(50)).unwrap();

    let expected: Vec<_> = (0..200).map(|number| value_of(number).1).collect();
    assert_eq!(outcomes, expected);
    assert_eq!(pollster::block_on(lost), RequestOutcome::TimedOut { was_sent: true });
}

#[test]
fn a_future_ends_although_a_blocking_call_reads() {
    let clu = TestClu::start();
    let connection = clu.connect();
    std::thread::scope(|scope| {
        let held = connection.start(CluRequest::Execute("hold()")).unwrap();
        let blocked = scope.spawn(|| held.wait());
        for number in 0..100 {
            let (script, reply) = value_of(number);
            let operation = connection.start(CluRequest::Execute(&script)).unwrap();
            assert_eq!(pollster::block_on(operation), reply);
        }
        clu.release();
        assert_eq!(blocked.join().unwrap(), text("released"));
    });
}

/// A task of an executor that owns what it awaits.
struct OwningTask(Mutex<Option<CluOperation>>, mpsc::Sender<()>);

impl std::task::Wake for OwningTask {
    fn wake(self: Arc<Self>) {
        self.1.send(()).unwrap();
    }
}

#[test]
fn the_last_owner_of_an_operation_may_be_its_waker() {
    let clu = TestClu::start();
    let connection = clu.connect();
    let (sender, woken) = mpsc::channel();
    let mut operation = connection.start(CluRequest::Execute("hold()")).unwrap();
    let task = Arc::new(OwningTask(Mutex::new(None), sender));
    let waker = std::task::Waker::from(task.clone());
    let mut context = std::task::Context::from_waker(&waker);
    assert!(std::future::Future::poll(std::pin::Pin::new(&mut operation), &mut context).is_pending());
    *task.0.lock().unwrap() = Some(operation);
    drop((task, waker));

    clu.release();

    next(&woken);
    assert_eq!(connection.request(CluRequest::Execute("value(1)")), Ok(text("1")));
    await_that("the operation is gone", || connection.counts().pending == 0);
}

#[test]
fn a_limited_wait_reads_the_replies_of_others_and_leaves_the_request_in_progress() {
    let clu = TestClu::start();
    let connection = CluConnection::open(CluConnectionConfig { timeout: PATIENCE, ..clu.config() }).unwrap();
    let held = connection.start(CluRequest::Execute("hold()")).unwrap();
    let (script, reply) = value_of(7);
    let other = connection.start(CluRequest::Execute(&script)).unwrap();

    let until = Instant::now() + Duration::from_millis(20);
    assert!(!held.wait_until(until));
    assert!(Instant::now() >= until);
    let past = Instant::now();
    await_that("what has been received is read, also without time", || other.wait_until(past));
    assert_eq!(other.wait(), reply);
    assert_eq!(connection.counts().pending, 1);

    clu.release();
    assert!(held.wait_until(Instant::now() + PATIENCE));
    assert!(held.wait_until(past), "it has ended");
    assert_eq!(held.wait(), text("released"));
}

#[test]
fn a_limited_wait_ends_when_another_caller_reads_and_when_the_connection_closes() {
    let clu = TestClu::start();
    let connection = CluConnection::open(CluConnectionConfig { timeout: PATIENCE, ..clu.config() }).unwrap();
    std::thread::scope(|scope| {
        let held = connection.start(CluRequest::Execute("hold()")).unwrap();
        let reader = scope.spawn(|| connection.request(CluRequest::Execute("hold()")));
        await_that("both have started", || connection.counts().pending == 2);
        assert!(!held.wait_until(Instant::now() + Duration::from_millis(20)));

        let limited = scope.spawn(move || (held.wait_until(Instant::now() + PATIENCE), held.wait()));
        connection.close();

        assert_eq!(limited.join().unwrap(), (true, RequestOutcome::Cancelled));
        assert_eq!(reader.join().unwrap(), Ok(RequestOutcome::Cancelled));
    });
}

#[test]
fn an_operation_that_is_dropped_is_cancelled() {
    let clu = TestClu::start();
    let connection = clu.connect();

    drop(connection.start(CluRequest::Execute("hold()")).unwrap());
    let mut polled = connection.start(CluRequest::Execute("hold()")).unwrap();
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(std::future::Future::poll(std::pin::Pin::new(&mut polled), &mut context).is_pending());
    drop(polled);

    let counts = connection.counts();
    assert_eq!((counts.submitted, counts.cancelled, counts.pending), (2, 2, 0));
    assert_eq!(connection.request(CluRequest::Execute("value(1)")), Ok(text("1")));
    clu.release();
    await_that("both late replies are read", || connection.counts().late == 2);
    assert!(connection.counts().is_balanced());
}

#[test]
fn closing_ends_all_that_wait_and_refuses_more() {
    let clu = TestClu::start();
    let connection = CluConnection::open(CluConnectionConfig { timeout: PATIENCE, ..clu.config() }).unwrap();
    std::thread::scope(|scope| {
        let waiting: Vec<_> =
            (0..4).map(|_| scope.spawn(|| connection.request(CluRequest::Execute("hold()")))).collect();
        let future = scope.spawn(|| pollster::block_on(connection.start(CluRequest::Execute("hold()")).unwrap()));
        await_that("all have started", || connection.counts().pending == 5);

        connection.close();

        assert!(waiting.into_iter().all(|waiting| waiting.join().unwrap() == Ok(RequestOutcome::Cancelled)));
        assert_eq!(future.join().unwrap(), RequestOutcome::Cancelled);
    });
    assert_eq!(connection.request(CluRequest::CheckAlive), Err(SubmitError::Closed));
    assert!(matches!(connection.subscribe(vec![item("a")], |_| {}), Err(SubmitError::Closed)));
    connection.close();
    assert!(connection.counts().is_balanced());
}

/// The values of the next update with a new value of the first item.
fn next_values(updates: &Receiver<CluUpdate>) -> Vec<Option<Scalar>> {
    match next(updates) {
        CluUpdate::Values { first: 0, values } => values,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_subscription_reports_the_first_values_and_changes_until_it_is_dropped() {
    for report in [ReportMode::Address, ReportMode::Source] {
        let clu = TestClu::start();
        clu.set_value("a", "1.5");
        let connection = CluConnection::open(CluConnectionConfig { report, ..clu.config() }).unwrap();
        let (sender, updates) = mpsc::channel();

        let monitor =
            connection.subscribe(vec![item("a"), item("b")], move |update| drop(sender.send(update))).unwrap();

        assert_eq!(next_values(&updates), [Some(Scalar::F64(1.5)), Some(Scalar::F64(0.0))]);
        clu.set_value("a", "\"on\"");
        let changed = [Some(Scalar::Text("on".into())), Some(Scalar::F64(0.0))];
        while next_values(&updates) != changed {}
        assert_eq!(clu.world().n_subscriptions, 1);
        drop(monitor);
        await_that("the CLU has ended it", || clu.world().n_subscriptions == 0);
        assert!(updates.iter().count() < 3, "the listener was dropped");
        assert!(connection.counts().is_balanced());
    }
}

#[test]
fn dropping_the_last_handle_ends_subscriptions_in_the_clu() {
    let clu = TestClu::start();
    let connection = clu.connect();
    let (sender, updates) = mpsc::channel();
    let monitor = connection.subscribe(vec![item("a")], move |update| drop(sender.send(update))).unwrap();
    next(&updates);

    drop(connection);
    clu.set_value("a", "7");
    while next_values(&updates) != [Some(Scalar::F64(7.0))] {}
    drop(monitor);

    await_that("the CLU has ended it", || clu.world().n_subscriptions == 0);
}

#[test]
fn a_listener_may_use_its_connection_and_a_panic_ends_only_one_call() {
    let clu = TestClu::start();
    let connection = clu.connect();
    let (sender, outcomes) = mpsc::channel();
    let (of_listener, mut n_calls) = (connection.clone(), 0);
    let monitor = connection.subscribe(vec![item("a")], move |_| {
        n_calls += 1;
        assert!(n_calls != 1, "this panic is part of the test");
        drop(sender.send(of_listener.request(CluRequest::Execute("value(3)"))));
    });

    await_that("the first call", || connection.delivery_counts().delivered == 1);
    clu.set_value("a", "1");
    assert_eq!(next(&outcomes), Ok(text("3")));

    drop(monitor);
    connection.close();
}

#[test]
fn a_listener_may_end_its_subscription_and_so_close_the_connection() {
    let clu = TestClu::start();
    let connection = clu.connect();
    let (monitor_sender, monitors) = mpsc::channel::<CluMonitor>();
    let (sender, updates) = mpsc::channel();
    let monitor = connection.subscribe(vec![item("a")], move |update| {
        drop(monitors.recv());
        drop(sender.send(update));
    });
    drop(connection);

    monitor_sender.send(monitor.unwrap()).unwrap();

    assert_eq!(next_values(&updates), [Some(Scalar::F64(0.0))]);
    assert!(updates.recv().is_err(), "the listener was dropped");
    await_that("the CLU has ended it", || clu.world().n_subscriptions == 0);
}

#[test]
fn a_slow_listener_receives_the_newest_values() {
    let clu = TestClu::start();
    let connection = clu.connect();
    let (sender, updates) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let monitor = connection.subscribe(vec![item("a")], move |update| {
        // Ends when the other end is dropped.
        let _ = released.recv();
        drop(sender.send(update));
    });
    await_that("the listener is called", || connection.delivery_counts().delivered == 1);

    for number in 1..4 {
        clu.set_value("a", &number.to_string());
        await_that("a report arrives", || connection.counts().reports >= number);
    }
    drop(release);

    while next_values(&updates) != [Some(Scalar::F64(3.0))] {}
    drop(monitor);
}

#[test]
fn a_clu_that_stops_is_reported_and_its_subscriptions_continue_after_it_starts_again() {
    let clu = TestClu::start();
    let config = CluConnectionConfig { serial: Some(SERIAL), checks_availability: true, ..clu.config() };
    let connection = CluConnection::open(config).unwrap();
    let (changes_sender, changes) = mpsc::channel();
    let (sender, updates) = mpsc::channel();
    connection.on_availability(move |availability| changes_sender.send(availability).unwrap_or_default());
    let monitor = connection.subscribe(vec![item("a")], move |update| drop(sender.send(update))).unwrap();
    assert_eq!(next_values(&updates), [Some(Scalar::F64(0.0))]);
    assert_eq!(connection.availability(), Availability::Available);
    assert!(connection.round_trip().is_some());

    clu.change(|world| world.is_silent = true);
    while next(&changes) != Availability::Unavailable {}
    clu.restart();
    clu.set_value("a", "2");
    clu.change(|world| world.is_silent = false);

    assert_eq!(next(&changes), Availability::Available);
    while next_values(&updates) != [Some(Scalar::F64(2.0))] {}
    drop(monitor);
    assert!(connection.counts().is_balanced());
}

#[test]
fn a_new_key_is_used_after_the_confirmation() {
    let clu = TestClu::start();
    let connection = clu.connect();
    let key = CipherKey::new([3; 16], [4; 16]);

    let outcome = connection.request(CluRequest::SetKey(&key));

    assert_eq!(outcome, Ok(RequestOutcome::Answered(Answer::Accepted)));
    assert_eq!(connection.request(CluRequest::Execute("value(1)")), Ok(text("1")));
    let with_old_key = clu.connect().start_timeout(CluRequest::CheckAlive, Duration::from_millis(50)).unwrap().wait();
    assert_eq!(with_old_key, RequestOutcome::TimedOut { was_sent: true });
    assert_ne!(key, project_key());
}

#[test]
fn an_address_of_ipv6_is_refused() {
    let error =
        CluConnection::open(CluConnectionConfig::new("[::1]:1234".parse().unwrap(), project_key())).unwrap_err();

    assert_eq!(error.to_string(), "a CLU has an address of IPv4, not [::1]:1234");
}

#[test]
fn debug_forms_contain_no_key() {
    let clu = TestClu::start();
    let config = CluConnectionConfig { key: CipherKey::new(*b"secret-secret-01", [2; 16]), ..clu.config() };
    let connection = CluConnection::open(config).unwrap();
    let operation = connection.start(CluRequest::CheckAlive).unwrap();

    let shown = format!("{connection:?} {operation:?} {:?}", connection.subscribe(vec![item("a")], |_| {}));

    assert!(!shown.contains("secret") && !shown.contains("115, 101") && shown.contains("CluConnection"), "{shown}");
}
