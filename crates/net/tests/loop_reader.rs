//! Event loops that read circuits themselves. Each loop here waits with poll(2), as any event loop could.
#![expect(clippy::unwrap_used, reason = "a panic reports a failed test")]

#[allow(dead_code, reason = "each test program uses a part of it")]
mod served;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Condvar, Mutex};
use std::task::{self, Poll, Wake, Waker};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use fodo_net::{
    Channel, Context, Error, ErrorKind, LoopReader, MonitorEvent, MonitorOptions, Operation, Output, Request, Value,
};
use rustix::event::{PollFd, PollFlags, poll};

use served::{cell, serve, slow_cell};

const PATIENCE: Duration = Duration::from_secs(20);

const SCHEMES: [&str; 2] = ["ca", "pva"];

/// Wakes a loop, and notes the thread that has ended the operation.
struct Ending {
    reader_waker: Waker,
    by: Mutex<Option<ThreadId>>,
    has_ended: Condvar,
}

impl Wake for Ending {
    fn wake(self: Arc<Self>) {
        *self.by.lock().unwrap() = Some(std::thread::current().id());
        self.has_ended.notify_all();
        self.reader_waker.wake_by_ref();
    }
}

impl Ending {
    fn new(reader: &LoopReader) -> Arc<Ending> {
        Arc::new(Ending { reader_waker: reader.waker(), by: Mutex::default(), has_ended: Condvar::new() })
    }

    /// Waits, without serving, until the operation has ended; returns the thread that has ended it.
    fn wait(&self) -> ThreadId {
        let by = self.by.lock().unwrap();
        let (by, _) = self.has_ended.wait_timeout_while(by, PATIENCE, |by| by.is_none()).unwrap();
        by.expect("the operation does not end")
    }
}

fn poll_once<T: Output>(
    operation: &mut Operation<T>,
    reader: &LoopReader,
    ending: &Arc<Ending>,
) -> Poll<Result<T, Error>> {
    operation.poll_in(reader, &mut task::Context::from_waker(&Waker::from(ending.clone())))
}

/// One turn of a loop: waits until the descriptor is readable, and serves.
fn turn(reader: &LoopReader, deadline: Instant) {
    let left = deadline.checked_duration_since(Instant::now()).expect("the loop waits too long");
    poll(&mut [PollFd::new(reader, PollFlags::IN)], Some(&left.try_into().unwrap())).unwrap();
    reader.serve(Some(Duration::ZERO));
}

/// Awaits an operation in a loop of this thread; also returns the thread that has ended it, unless it had ended before.
fn await_in<T: Output>(reader: &LoopReader, mut operation: Operation<T>) -> (Result<T, Error>, Option<ThreadId>) {
    let (ending, deadline) = (Ending::new(reader), Instant::now() + PATIENCE);
    loop {
        if let Poll::Ready(result) = poll_once(&mut operation, reader, &ending) {
            let by = *ending.by.lock().unwrap();
            return (result, by);
        }
        turn(reader, deadline);
    }
}

fn get(channel: &Channel) -> Operation<fodo_net::Reading> {
    channel.start_get(Request::default())
}

fn connected(context: &Context, scheme: &str, name: &str) -> Channel {
    let channel = context.channel(&format!("{scheme}://{name}")).unwrap();
    channel.connect().unwrap();
    channel
}

#[test]
fn operations_that_follow_one_another_are_ended_on_the_thread_of_the_loop() {
    for scheme in SCHEMES {
        let (_server, context) = serve([("x", cell(1.5))]);
        let x = connected(&context, scheme, "x");
        let reader = LoopReader::new().unwrap();
        let me = std::thread::current().id();

        // A busy machine may interrupt the loop for longer than a lease, so not every one is.
        let (start, mut n_here) = (Instant::now(), 0);
        while n_here < 100 {
            let (reading, by) = await_in(&reader, get(&x));
            assert_eq!(reading.unwrap().value, Value::from(1.5));
            n_here += usize::from(by == Some(me));
            assert!(start.elapsed() < PATIENCE, "{scheme}: {n_here}");
        }
        assert!(await_in(&reader, x.start_put(2.5)).0.is_ok());
        assert_eq!(await_in(&reader, get(&x)).0.unwrap().value, Value::from(2.5));
    }
}

#[test]
fn a_loop_that_serves_nothing_delays_neither_callers_nor_monitors() {
    for scheme in SCHEMES {
        let (_server, context) = serve([("x", cell(0.0))]);
        let x = connected(&context, scheme, "x");
        let monitor = x.monitor(MonitorOptions::default());
        let reader = LoopReader::new().unwrap();
        assert!(await_in(&reader, get(&x)).0.is_ok());
        let start = Instant::now();

        // Each round gives the loop the reading, which it does not do.
        for number in 1..=50 {
            let (mut awaited, ending) = (get(&x), Ending::new(&reader));
            let is_pending = poll_once(&mut awaited, &reader, &ending).is_pending();
            x.put_timeout(f64::from(number), PATIENCE).unwrap();
            let updated = std::iter::from_fn(|| monitor.next_timeout(PATIENCE)).find(
                |event| matches!(event, MonitorEvent::Update(reading) if reading.value == f64::from(number).into()),
            );
            assert!(updated.is_some(), "{scheme}: {number}");
            if is_pending {
                ending.wait();
                assert!(poll_once(&mut awaited, &reader, &ending).is_ready());
            }
        }
        assert!(start.elapsed() < PATIENCE, "{scheme}");
    }
}

#[test]
fn an_operation_of_a_loop_that_serves_nothing_is_ended_by_another_thread() {
    for scheme in SCHEMES {
        let (_server, context) = serve([("x", cell(0.0))]);
        let x = connected(&context, scheme, "x");
        let reader = LoopReader::new().unwrap();
        let _ = await_in(&reader, get(&x));

        for _ in 0..20 {
            let (mut awaited, ending) = (get(&x), Ending::new(&reader));
            if poll_once(&mut awaited, &reader, &ending).is_pending() {
                assert_ne!(ending.wait(), std::thread::current().id());
                assert!(poll_once(&mut awaited, &reader, &ending).is_ready());
            }
        }
    }
}

#[test]
fn a_loop_that_begins_operations_and_serves_nothing_keeps_the_reading_for_one_lease() {
    for scheme in SCHEMES {
        let (_server, context) = serve([("x", cell(0.0))]);
        let x = connected(&context, scheme, "x");
        let reader = LoopReader::new().unwrap();
        let _ = await_in(&reader, get(&x));
        let (mut first, ending) = (get(&x), Ending::new(&reader));
        let mut is_pending = poll_once(&mut first, &reader, &ending).is_pending();

        let (start, mut begun) = (Instant::now(), Vec::new());
        while is_pending && ending.by.lock().unwrap().is_none() {
            let mut next = get(&x);
            let _ = poll_once(&mut next, &reader, &Ending::new(&reader));
            begun.push(next);
            assert!(start.elapsed() < PATIENCE, "{scheme}: each operation extends the lease");
            is_pending = begun.len() < 1_000_000;
        }

        assert!(ending.by.lock().unwrap().is_some_and(|by| by != std::thread::current().id()) || !is_pending);
    }
}

#[test]
fn loops_blocking_calls_and_monitors_share_a_circuit() {
    const N: usize = 300;
    for scheme in SCHEMES {
        let (_server, context) = serve([("x", cell(0.0)), ("y", cell(0.0))]);
        let (x, y) = (connected(&context, scheme, "x"), connected(&context, scheme, "y"));
        let monitor = y.monitor(MonitorOptions::default());
        let (start, n_gets) = (Barrier::new(4), AtomicUsize::new(0));

        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let reader = LoopReader::new().unwrap();
                    start.wait();
                    for _ in 0..N {
                        await_in(&reader, get(&x)).0.unwrap();
                        n_gets.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            scope.spawn(|| {
                start.wait();
                for _ in 0..N {
                    x.get_timeout(PATIENCE).unwrap();
                    n_gets.fetch_add(1, Ordering::Relaxed);
                }
            });
            start.wait();
            for number in 1..=50 {
                y.put_timeout(f64::from(number), PATIENCE).unwrap();
            }
            let last = Value::from(50.0);
            let events = std::iter::from_fn(|| monitor.next_timeout(PATIENCE));
            let is_last =
                |event: &MonitorEvent| matches!(event, MonitorEvent::Update(reading) if reading.value == last);
            assert!(events.into_iter().any(|event| is_last(&event)), "{scheme}");
        });

        assert_eq!(n_gets.load(Ordering::Relaxed), 3 * N);
    }
}

#[test]
fn many_operations_of_several_circuits_end_in_one_loop() {
    let (_server, one) = serve([("x", cell(1.0))]);
    let (_other_server, other) = serve([("x", cell(2.0))]);
    let channels = [&one, &other].map(|context| SCHEMES.map(|scheme| connected(context, scheme, "x")));
    let channels = channels.as_flattened();
    let reader = LoopReader::new().unwrap();

    let mut operations: Vec<_> = channels.iter().cycle().take(1000).map(get).collect();
    let (ending, deadline) = (Ending::new(&reader), Instant::now() + PATIENCE);
    let mut n_ended = [0, 0];
    while !operations.is_empty() {
        operations.retain_mut(|operation| match poll_once(operation, &reader, &ending) {
            Poll::Ready(reading) => {
                n_ended[usize::from(reading.unwrap().value == 2.0.into())] += 1;
                false
            }
            Poll::Pending => true,
        });
        if !operations.is_empty() {
            turn(&reader, deadline);
        }
    }

    assert_eq!(n_ended, [500, 500]);
}

#[test]
fn values_larger_than_a_turn_are_written_and_read() {
    for scheme in SCHEMES {
        let (_server, context) = serve([("a", cell(vec![0.0; 10]))]);
        let a = connected(&context, scheme, "a");
        let reader = LoopReader::new().unwrap();
        let numbers: Vec<f64> = (0..2_000_000).map(f64::from).collect();

        await_in(&reader, a.start_put(numbers.clone())).0.unwrap();
        let (reading, _) = await_in(&reader, get(&a));

        assert!(reading.unwrap().value == Value::from(numbers), "{scheme}");
    }
}

#[test]
fn an_operation_may_outlast_the_lease_be_cancelled_or_lose_its_reader() {
    for scheme in SCHEMES {
        let (slow, puts) = slow_cell(0.0);
        let (_server, context) = serve([("slow", slow), ("x", cell(0.0))]);
        let (slow, x) = (connected(&context, scheme, "slow"), connected(&context, scheme, "x"));
        let reader = LoopReader::new().unwrap();
        let complete = || loop {
            if let Some(put) = puts.lock().unwrap().pop() {
                return put.complete();
            }
            std::thread::sleep(Duration::from_millis(1));
        };

        let finisher = std::thread::scope(|scope| {
            scope.spawn(|| {
                // More than a lease: gets of other threads.
                (0..200).for_each(|_| drop(x.get().unwrap()));
                complete();
            });
            await_in(&reader, slow.start_put(1.0)).0
        });
        assert_eq!(finisher, Ok(()), "{scheme}");

        let (mut given_up, ending) = (slow.start_put(2.0), Ending::new(&reader));
        let _ = poll_once(&mut given_up, &reader, &ending);
        drop(given_up);
        assert!(await_in(&reader, get(&x)).0.is_ok());
        complete();

        let (mut left, ending) = (get(&x), Ending::new(&reader));
        let is_pending = poll_once(&mut left, &reader, &ending).is_pending();
        drop(reader);
        if is_pending {
            ending.wait();
        }
        assert!(left.wait().is_ok());
    }
}

#[test]
fn the_end_of_the_context_or_of_the_server_ends_operations_in_a_loop() {
    for scheme in SCHEMES {
        let (slow, _puts) = slow_cell(0.0);
        let (server, context) = serve([("slow", slow)]);
        let other = Context::new(server.client_config());
        let reader = LoopReader::new().unwrap();
        let waiting = [&context, &other].map(|context| {
            let slow = connected(context, scheme, "slow");
            let (mut put, ending) = (slow.start_put(1.0), Ending::new(&reader));
            assert!(poll_once(&mut put, &reader, &ending).is_pending());
            (slow, put)
        });
        let [(_slow, closed), (_other_slow, cut_off)] = waiting;

        context.close();
        let (result, _) = await_in(&reader, closed);
        assert_eq!(result.unwrap_err().kind(), &ErrorKind::ContextClosed, "{scheme}");
        drop(server);
        let (result, _) = await_in(&reader, cut_off);
        assert!(matches!(result.unwrap_err().kind(), ErrorKind::Disconnected { .. }), "{scheme}");
        reader.serve(Some(Duration::ZERO));
    }
}

#[test]
fn an_operation_that_waits_for_its_connection_is_awaited_in_a_loop() {
    let reader = LoopReader::new().unwrap();
    let (server, _) = serve([("x", cell(1.5))]);
    for scheme in SCHEMES {
        let context = Context::new(server.client_config());
        let x = context.channel(&format!("{scheme}://x")).unwrap();

        assert_eq!(await_in(&reader, get(&x)).0.unwrap().value, Value::from(1.5));
        context.close();
    }
}

#[test]
fn a_descriptor_that_is_woken_is_readable_until_it_is_served() {
    let reader = LoopReader::new().unwrap();
    let is_readable = || poll(&mut [PollFd::new(&reader, PollFlags::IN)], Some(&Duration::ZERO.try_into().unwrap()));
    assert_eq!(is_readable(), Ok(0));

    reader.wake();
    reader.waker().wake();
    assert_eq!((is_readable(), is_readable()), (Ok(1), Ok(1)));
    reader.serve(Some(Duration::ZERO));
    assert_eq!(is_readable(), Ok(0));

    let has_woken = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            has_woken.store(true, Ordering::Release);
            reader.wake();
        });
        reader.serve(None);
    });
    assert!(has_woken.load(Ordering::Acquire));
}
