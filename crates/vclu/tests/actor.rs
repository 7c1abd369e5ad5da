//! The thread of a CLU: its queue is bounded, and each request ends exactly once.

#[expect(dead_code, reason = "each test program uses a part")]
mod support;

use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use fodo_data::Now;
use fodo_vclu::limit::QUEUE_REQUESTS_MAX;
use fodo_vclu::{ReplyTo, ScriptAnswer, VcluConfig, VcluRequest, VirtualClu};

use support::{MAIN, TestFolder, om};

const LIMIT: Duration = Duration::from_secs(20);

fn start() -> (TestFolder, VirtualClu) {
    start_with(|_| {})
}

fn start_with(configure: impl FnOnce(&mut VcluConfig)) -> (TestFolder, VirtualClu) {
    let folder = TestFolder::new();
    folder.write("MAIN.LUA", MAIN);
    folder.write("OM.LUA", &om("T = OBJECT:new(6, \"T\") T:add_event(0, note(\"timer\"))"));
    folder.write("USER.LUA", "");
    let mut config = VcluConfig::new(folder.scripts());
    configure(&mut config);
    let clu = VirtualClu::start(config).unwrap();
    (folder, clu)
}

fn execute(script: &str) -> (VcluRequest, Receiver<Option<ScriptAnswer>>) {
    let (sender, receiver) = mpsc::channel();
    let reply = ReplyTo::new(move |answer| drop(sender.send(answer)));
    (VcluRequest::Execute { script: script.into(), reply }, receiver)
}

fn eval(clu: &VirtualClu, script: &str) -> String {
    let (request, receiver) = execute(script);
    assert!(clu.submit(request).is_ok());
    receiver.recv_timeout(LIMIT).unwrap().unwrap().text
}

/// Occupies the thread of a CLU until the sender is dropped.
fn occupy(clu: &VirtualClu) -> mpsc::Sender<()> {
    let (release, wait) = mpsc::channel::<()>();
    let (entered, is_entered) = mpsc::channel();
    let reply = ReplyTo::new(move |_| {
        entered.send(()).unwrap();
        let _ = wait.recv();
    });
    assert!(clu.submit(VcluRequest::Execute { script: "1".into(), reply }).is_ok());
    is_entered.recv_timeout(LIMIT).unwrap();
    release
}

#[test]
fn requests_of_many_threads_are_all_answered() {
    let (_folder, clu) = start();
    let clu = Arc::new(clu);

    let threads: Vec<_> = (0..8)
        .map(|number| {
            let clu = Arc::clone(&clu);
            thread::spawn(move || {
                for index in 0..200 {
                    assert_eq!(eval(&clu, &format!("{number} * 1000 + {index}")), (number * 1000 + index).to_string());
                }
            })
        })
        .collect();

    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(clu.counts().requests, 1600);
    assert_eq!(clu.counts().requests_refused, 0);
}

#[test]
fn a_full_queue_refuses_at_once_and_counts_and_the_others_are_handled_in_order() {
    let (_folder, clu) = start();
    eval(&clu, "(function() n = 0 function next() n = n + 1 return n end end)()");
    let release = occupy(&clu);

    let mut requests = Vec::new();
    let mut receivers = Vec::new();
    for _ in 0..QUEUE_REQUESTS_MAX + 5 {
        let (request, receiver) = execute("next()");
        requests.push(request);
        receivers.push(receiver);
    }
    clu.submit_all(&mut requests);
    assert_eq!(requests.len(), 5);
    let (request, refused) = execute("next()");
    assert!(clu.submit(request).is_err());
    assert_eq!(clu.counts().requests_refused, 6);
    drop(requests);
    drop(release);

    for (index, receiver) in receivers.iter().take(QUEUE_REQUESTS_MAX).enumerate() {
        assert_eq!(receiver.recv_timeout(LIMIT).unwrap().unwrap().text, (index + 1).to_string());
    }
    for receiver in receivers.iter().skip(QUEUE_REQUESTS_MAX).chain([&refused]) {
        assert_eq!(receiver.recv_timeout(LIMIT).unwrap(), None);
    }
}

#[test]
fn requests_that_wait_when_the_clu_stops_end_without_an_answer() {
    let (_folder, clu) = start();
    let (waiting, waiting_receiver) = execute("SYSTEM.Wait(0, 1e9)");
    assert!(clu.submit(waiting).is_ok());
    let release = occupy(&clu);
    let (queued, queued_receiver) = execute("1");
    assert!(clu.submit(queued).is_ok());

    let stopping = thread::spawn(move || drop(clu));
    drop(release);
    stopping.join().unwrap();

    assert_eq!(waiting_receiver.recv_timeout(LIMIT).unwrap(), None);
    // It was handled or not, depending on which thread was first; it ended in either case.
    assert!(queued_receiver.recv_timeout(LIMIT).is_ok());
}

#[test]
fn timers_run_without_requests() {
    let (_folder, clu) = start();
    let (request, receiver) =
        execute("(function() T:execute(0) while fired == \"\" do SYSTEM.Wait(0, 5) end return fired end)()");
    eval(&clu, "T:set(0, 20)");

    assert!(clu.submit(request).is_ok());

    assert_eq!(receiver.recv_timeout(LIMIT).unwrap().unwrap().text, "timer ");
}

#[test]
fn a_timer_runs_between_requests_that_wait_together() {
    let now = Arc::new(Mutex::new(Now::for_test()));
    let read = Arc::clone(&now);
    let (_folder, clu) = start_with(|config| config.clock = Arc::new(move || *read.lock().unwrap()));
    eval(&clu, "T:set(0, 20)");
    let (starts, _started) = execute("T:execute(0)");
    let advance = ReplyTo::new(move |_| {
        let mut now = now.lock().unwrap();
        *now = *now + Duration::from_secs(1);
    });
    let (reads, receiver) = execute("fired");

    // They are taken from the queue together, and the time of the timer ends while the second is handled.
    let mut requests = vec![starts, VcluRequest::Execute { script: "1".into(), reply: advance }, reads];
    clu.submit_all(&mut requests);

    assert_eq!(receiver.recv_timeout(LIMIT).unwrap().unwrap().text, "timer ");
}

#[test]
fn an_endless_loop_delays_others_only_for_its_budget() {
    let (_folder, clu) = start();
    let (request, receiver) = execute("(function() while true do end end)()");
    assert!(clu.submit(request).is_ok());

    assert_eq!(eval(&clu, "checkAlive()"), "0d0a1b2c");

    assert_eq!(receiver.recv_timeout(LIMIT).unwrap().unwrap().text, "nil");
    assert_eq!(clu.counts().budgets_exceeded, 1);
}

#[test]
fn a_script_that_spends_its_time_inside_library_functions_ends_too() {
    let (_folder, clu) = start();

    for function in ["string.rep(\"x\", 1e6)", "collectgarbage()"] {
        assert_eq!(eval(&clu, &format!("(function() while true do local x = {function} end end)()")), "nil");
    }

    assert_eq!(clu.counts().budgets_exceeded, 2, "{:?}", clu.log());
}
