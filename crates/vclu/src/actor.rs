//! The thread of a CLU, and its queue of requests.

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc;
use std::task::{Wake, Waker};
use std::thread::{Builder, JoinHandle};
use std::time::{Instant, SystemTime};

use fodo_lock::{Condvar, Mutex, MutexGuard};

use crate::clock::ClockFn;
use crate::engine::LuaEngine;
use crate::engine::request::{StartError, VcluConfig, VcluRequest};
use crate::limit::QUEUE_REQUESTS_MAX;
use crate::log::{CluCounts, CluLog, CluLogReader, LogEntry, LogSeverity, NewLogEntries};
use crate::network::CluNetwork;

/// A CLU on a thread of its own. Requests of all threads wait in one queue and are handled in order; timers and events of
/// objects run between them. Dropping it stops the thread and saves what Storage objects keep.
///
/// ```
/// use std::sync::mpsc;
///
/// use fodo_vclu::{ReplyTo, VcluConfig, VcluRequest, VirtualClu};
///
/// let folder = std::env::temp_dir().join(format!("fodo-vclu-actor-{}", std::process::id()));
/// std::fs::create_dir_all(&folder)?;
/// let clu = VirtualClu::start(VcluConfig::new(&folder))?;
///
/// let (sender, receiver) = mpsc::channel();
/// let reply = ReplyTo::new(move |answer| drop(sender.send(answer)));
/// clu.submit(VcluRequest::Execute { script: "checkAlive()".into(), reply }).map_err(|_| "the queue is full")?;
/// // The folder has no MAIN.LUA.
/// assert_eq!(receiver.recv()?.map(|answer| answer.text).as_deref(), Some("emergency"));
/// # drop(clu);
/// # std::fs::remove_dir_all(folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct VirtualClu {
    shared: Arc<ActorState>,
    network: Arc<CluNetwork>,
    thread: Option<JoinHandle<()>>,
}

/// The request was not accepted, because too many wait or the CLU has stopped. It is dropped without a reply if its caller
/// drops it.
pub struct RequestRefused(pub VcluRequest);

/// The queue of a CLU's thread.
pub(crate) struct ActorState {
    queue: Mutex<CluQueue>,
    is_ready: Condvar,
    log: Arc<CluLog>,
}

#[derive(Default)]
struct CluQueue {
    requests: VecDeque<VcluRequest>,
    /// Whether an object has received something from another thread.
    is_woken: bool,
    is_stopped: bool,
    source: SourceState,
}

/// Where the requests of clients come from, besides the queue. The thread of the CLU waits for them itself, because another
/// thread would have to be woken for each request.
pub(crate) trait RequestSource: Send {
    /// Sends the replies of the requests so far, then waits for requests and adds them to `requests`.
    ///
    /// `until`: when it returns at the latest; a time in the past does not wait. `has_changed`: whether values may have changed
    /// since the last turn.
    fn turn(&mut self, until: Option<Instant>, has_changed: bool, requests: &mut VecDeque<VcluRequest>);
}

/// Ends the wait of a [`RequestSource`].
pub(crate) type SourceWaker = Arc<dyn Fn() + Send + Sync>;

/// The source of the thread.
#[derive(Default)]
enum SourceState {
    /// The thread has none, and waits for its queue.
    #[default]
    Absent,
    /// The thread has not taken it yet.
    Offered(Box<dyn RequestSource>, SourceWaker),
    /// The thread has it.
    Attached {
        waker: SourceWaker,
        /// Whether the waker must be called after a change of the queue.
        is_waiting: bool,
    },
    /// The thread has not dropped it yet.
    Revoked,
}

/// Wakes the thread of the CLU.
impl Wake for ActorState {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let mut queue = self.queue.lock();
        queue.is_woken = true;
        self.wake_thread(queue);
    }
}

impl VirtualClu {
    /// Starts the thread and runs MAIN.LUA up to its first `SYSTEM.Loop`. Fails if the operating system has no thread left,
    /// or as [`LuaEngine::start`].
    pub fn start(config: VcluConfig) -> io::Result<VirtualClu> {
        let shared = Arc::new(ActorState { queue: Mutex::default(), is_ready: Condvar::new(), log: Arc::default() });
        let (sender, started) = mpsc::sync_channel::<Result<Arc<CluNetwork>, StartError>>(1);
        let of_thread = Arc::clone(&shared);
        let thread = Builder::new().name("fodo-vclu".into()).spawn(move || {
            let clock = Arc::clone(&config.clock);
            let _stopped = StopGuard(&of_thread);
            let waker = Waker::from(Arc::clone(&of_thread));
            match LuaEngine::start_with_log(config, Arc::clone(&of_thread.log), waker) {
                Ok(mut engine) => {
                    // The receiver waits for it.
                    let _ = sender.send(Ok(Arc::clone(engine.network())));
                    run(&mut engine, &of_thread, &clock);
                }
                Err(error) => drop(sender.send(Err(error))),
            }
        })?;
        match started.recv() {
            Ok(Ok(network)) => Ok(VirtualClu { shared, network, thread: Some(thread) }),
            Ok(Err(error)) => Err(io::Error::other(error)),
            Err(_) => Err(io::Error::other("the thread of the CLU ended before it started")),
        }
    }

    /// Queues a request. Never waits: a full queue refuses it, and the refusal is counted.
    pub fn submit(&self, request: VcluRequest) -> Result<(), RequestRefused> {
        let mut queue = self.shared.queue.lock();
        if queue.is_stopped || queue.requests.len() == QUEUE_REQUESTS_MAX {
            drop(queue);
            crate::log::count(&self.shared.log.counters.requests_refused);
            return Err(RequestRefused(request));
        }
        queue.requests.push_back(request);
        self.shared.wake_thread(queue);
        Ok(())
    }

    /// Queues many requests, and wakes the CLU once. `requests` keeps those that were refused, in their order; they are
    /// counted.
    pub fn submit_all(&self, requests: &mut Vec<VcluRequest>) {
        self.shared.submit_all(requests);
    }

    /// The queue alone, which does not keep the CLU running.
    pub(crate) fn queue(&self) -> Arc<ActorState> {
        Arc::clone(&self.shared)
    }

    /// Lets the thread wait with `source`, whose wait `waker` ends. A second source is dropped.
    pub(crate) fn attach(&self, source: Box<dyn RequestSource>, waker: SourceWaker) {
        let mut queue = self.shared.queue.lock();
        if matches!(queue.source, SourceState::Absent) && !queue.is_stopped {
            queue.source = SourceState::Offered(source, waker);
            self.shared.wake_thread(queue);
        }
    }

    /// Waits until the thread has dropped its source, which it does after the call that it executes.
    pub(crate) fn detach(&self) {
        let mut queue = self.shared.queue.lock();
        match &queue.source {
            SourceState::Absent | SourceState::Revoked => {}
            SourceState::Offered(..) => {
                let offered = mem::take(&mut queue.source);
                drop(queue);
                return drop(offered);
            }
            SourceState::Attached { waker, .. } => {
                waker();
                queue.source = SourceState::Revoked;
            }
        }
        while matches!(queue.source, SourceState::Revoked) {
            self.shared.is_ready.wait(&mut queue);
        }
    }

    /// The address of the HTTP server; `None` before a script creates an HttpListener.
    pub fn http_address(&self) -> Option<SocketAddr> {
        self.network.http.address()
    }

    /// The newest entries of the log, the oldest first.
    pub fn log(&self) -> Vec<LogEntry> {
        self.shared.log.entries()
    }

    /// The entries of the log after the first `n_seen` since the start. Never waits.
    ///
    /// ```
    /// use fodo_vclu::{VcluConfig, VirtualClu};
    ///
    /// let folder = std::env::temp_dir().join(format!("fodo-vclu-log-{}", std::process::id()));
    /// std::fs::create_dir_all(&folder)?;
    /// let clu = VirtualClu::start(VcluConfig::new(&folder))?;
    ///
    /// let new = clu.log_after(0);
    /// // The folder has no MAIN.LUA.
    /// assert!(!new.entries.is_empty() && new.n_missed == 0);
    /// let later = clu.log_after(new.n_seen);
    /// # drop(clu);
    /// # std::fs::remove_dir_all(folder)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn log_after(&self, n_seen: u64) -> NewLogEntries {
        self.shared.log.entries_after(n_seen)
    }

    /// Reads the log from its first entry on. It does not keep the CLU running.
    pub fn log_reader(&self) -> CluLogReader {
        CluLogReader::new(Arc::clone(&self.shared.log))
    }

    /// Adds a warning to the log.
    pub(crate) fn warn(&self, text: String) {
        self.shared.log.write(SystemTime::now().into(), LogSeverity::Warning, text);
    }

    /// The counters since the start.
    pub fn counts(&self) -> CluCounts {
        self.shared.log.counters.snapshot()
    }
}

impl Drop for VirtualClu {
    fn drop(&mut self) {
        let mut queue = self.shared.queue.lock();
        queue.is_stopped = true;
        self.shared.wake_thread(queue);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been reported by the thread.
            let _ = thread.join();
        }
    }
}

impl ActorState {
    /// The same as [`VirtualClu::submit_all`].
    pub(crate) fn submit_all(&self, requests: &mut Vec<VcluRequest>) {
        let mut queue = self.queue.lock();
        let n_free = if queue.is_stopped { 0 } else { QUEUE_REQUESTS_MAX - queue.requests.len() };
        let n_accepted = n_free.min(requests.len());
        if n_accepted > 0 {
            queue.requests.extend(requests.drain(..n_accepted));
            self.wake_thread(queue);
        } else {
            drop(queue);
        }
        for _ in requests.iter() {
            crate::log::count(&self.log.counters.requests_refused);
        }
    }

    /// Wakes the thread after a change of the queue.
    fn wake_thread(&self, mut queue: MutexGuard<'_, CluQueue>) {
        let waker = match &mut queue.source {
            SourceState::Attached { waker, is_waiting } => mem::take(is_waiting).then(|| Arc::clone(waker)),
            _ => None,
        };
        drop(queue);
        match waker {
            Some(waker) => waker(),
            None => self.is_ready.notify_all(),
        }
    }
}

/// Marks the CLU as stopped when its thread ends, also by a panic, and ends the requests that still wait.
struct StopGuard<'a>(&'a ActorState);

impl Drop for StopGuard<'_> {
    fn drop(&mut self) {
        let mut queue = self.0.queue.lock();
        queue.is_stopped = true;
        let requests = mem::take(&mut queue.requests);
        let source = mem::take(&mut queue.source);
        drop(queue);
        self.0.is_ready.notify_all();
        drop(requests);
        drop(source);
    }
}

/// Handles requests and deadlines until the CLU is stopped. A deadline that passes is met before the next request, so that
/// many requests delay no timer; the requests that are left when the CLU is stopped end without a reply.
fn run(engine: &mut LuaEngine, shared: &ActorState, clock: &ClockFn) {
    let (mut requests, mut source) = (VecDeque::new(), None);
    while take_requests(shared, engine, clock, &mut source, &mut requests) {
        while let Some(request) = requests.pop_front() {
            if shared.queue.lock().is_stopped {
                return;
            }
            engine.handle(request);
            if engine.deadline().is_some_and(|deadline| deadline <= clock().monotonic) {
                engine.turn();
            }
        }
        engine.turn();
    }
}

/// Waits for requests, objects that were woken, or the deadline of the engine. Returns `false` if the CLU stops.
fn take_requests(
    shared: &ActorState,
    engine: &mut LuaEngine,
    clock: &ClockFn,
    source: &mut Option<Box<dyn RequestSource>>,
    requests: &mut VecDeque<VcluRequest>,
) -> bool {
    let deadline = engine.deadline();
    let mut queue = shared.queue.lock();
    loop {
        queue = exchange_source(shared, queue, source);
        if queue.is_stopped {
            return false;
        }
        let is_woken = mem::take(&mut queue.is_woken);
        if let Some(source) = source {
            let waits = queue.requests.is_empty() && !is_woken;
            let until = if waits { deadline } else { Some(clock().monotonic) };
            set_waiting(&mut queue, waits);
            // They are older than what the source has not received yet.
            requests.append(&mut queue.requests);
            drop(queue);
            source.turn(until, engine.take_changed(), requests);
            queue = shared.queue.lock();
            set_waiting(&mut queue, false);
            requests.append(&mut queue.requests);
            return true;
        }
        if is_woken || !queue.requests.is_empty() {
            mem::swap(&mut queue.requests, requests);
            return true;
        }
        let Some(deadline) = deadline else {
            shared.is_ready.wait(&mut queue);
            continue;
        };
        let left = deadline.saturating_duration_since(clock().monotonic);
        if left.is_zero() {
            return true;
        }
        // It may also return early: the loop checks both again.
        let _ = shared.is_ready.wait_for(&mut queue, left);
    }
}

/// Takes the source that is offered, or drops the one that is revoked.
fn exchange_source<'a>(
    shared: &'a ActorState,
    mut queue: MutexGuard<'a, CluQueue>,
    source: &mut Option<Box<dyn RequestSource>>,
) -> MutexGuard<'a, CluQueue> {
    match mem::take(&mut queue.source) {
        SourceState::Offered(offered, waker) => {
            queue.source = SourceState::Attached { waker, is_waiting: false };
            *source = Some(offered);
        }
        SourceState::Revoked => {
            drop(queue);
            *source = None;
            queue = shared.queue.lock();
            shared.is_ready.notify_all();
        }
        other => queue.source = other,
    }
    queue
}

fn set_waiting(queue: &mut CluQueue, waits: bool) {
    if let SourceState::Attached { is_waiting, .. } = &mut queue.source {
        *is_waiting = waits;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::engine::request::ReplyTo;

    #[test]
    fn requests_that_are_left_when_the_clu_stops_are_not_handled() {
        let clu = VirtualClu::start(VcluConfig::new("/nonexistent")).unwrap();
        let shared = Arc::clone(&clu.shared);
        let stop = ReplyTo::new(move |_| shared.queue.lock().is_stopped = true);
        let (sender, receiver) = mpsc::channel();
        let reply = ReplyTo::new(move |answer| drop(sender.send(answer)));

        // They are taken from the queue together.
        let mut requests = vec![
            VcluRequest::Execute { script: "1".into(), reply: stop },
            VcluRequest::Execute { script: "1".into(), reply },
        ];
        clu.submit_all(&mut requests);

        assert_eq!(receiver.recv_timeout(Duration::from_secs(20)).unwrap(), None);
    }
}
