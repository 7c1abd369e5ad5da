//! The tasks of one CLU: puts, calls and reads that wait for its replies, on one thread.

use std::collections::HashMap;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use fodo_lock::{Condvar, Mutex};

use crate::limit::TASKS_MAX;

type PvTask = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Tasks that wait to be polled. Its owner stops it before it is dropped.
#[derive(Default)]
pub(super) struct TaskQueue {
    state: Mutex<TaskState>,
    is_ready: Condvar,
}

#[derive(Default)]
struct TaskState {
    new: Vec<PvTask>,
    woken: Vec<u64>,
    /// Tasks that have not ended.
    n_tasks: usize,
    is_stopped: bool,
}

/// Wakes one task. It does not keep the queue, and with it the CLU, alive.
struct TaskWaker {
    queue: Weak<TaskQueue>,
    number: u64,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        if let Some(queue) = self.queue.upgrade() {
            queue.state.lock().woken.push(self.number);
            queue.is_ready.notify_one();
        }
    }
}

impl TaskQueue {
    /// Adds a task. Returns `false` and drops it if there are too many or the queue is stopped.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> bool {
        let task: PvTask = Box::pin(task);
        let mut state = self.state.lock();
        if state.is_stopped || state.n_tasks == TASKS_MAX {
            drop(state);
            return false;
        }
        state.n_tasks += 1;
        state.new.push(task);
        drop(state);
        self.is_ready.notify_one();
        true
    }

    /// Ends [`TaskQueue::run`]. Tasks that have not ended are dropped.
    pub fn stop(&self) {
        let mut state = self.state.lock();
        state.is_stopped = true;
        let tasks = mem::take(&mut state.new);
        drop(state);
        drop(tasks);
        self.is_ready.notify_one();
    }

    /// Polls the tasks until the queue is stopped, and calls `tick` at once and then in each period.
    pub fn run(self: &Arc<Self>, period: Duration, mut tick: impl FnMut()) {
        let mut tasks: HashMap<u64, (PvTask, Waker)> = HashMap::new();
        let mut n_created = 0;
        let mut tick_at = Instant::now();
        let (mut new, mut woken) = (Vec::new(), Vec::new());
        while self.take(tick_at, &mut new, &mut woken) {
            for task in new.drain(..) {
                n_created += 1;
                let waker = Waker::from(Arc::new(TaskWaker { queue: Arc::downgrade(self), number: n_created }));
                tasks.insert(n_created, (task, waker));
                woken.push(n_created);
            }
            for number in woken.drain(..) {
                let Some((task, waker)) = tasks.get_mut(&number) else { continue };
                if task.as_mut().poll(&mut Context::from_waker(waker)) == Poll::Ready(()) {
                    tasks.remove(&number);
                    self.state.lock().n_tasks -= 1;
                }
            }
            let now = Instant::now();
            if now >= tick_at {
                tick_at = now + period;
                tick();
            }
        }
    }

    /// Waits for tasks or the time. Returns `false` if the queue is stopped.
    fn take(&self, until: Instant, new: &mut Vec<PvTask>, woken: &mut Vec<u64>) -> bool {
        let mut state = self.state.lock();
        loop {
            if state.is_stopped {
                return false;
            }
            let left = until.saturating_duration_since(Instant::now());
            if !state.new.is_empty() || !state.woken.is_empty() || left.is_zero() {
                mem::swap(&mut state.new, new);
                mem::swap(&mut state.woken, woken);
                return true;
            }
            // It may also return early: the loop checks everything again.
            let _ = self.is_ready.wait_for(&mut state, left);
        }
    }
}

/// A value that another thread provides once; `None` if it never will.
pub(super) struct OneReply<T>(Arc<Mutex<ReplyState<T>>>);

enum ReplyState<T> {
    /// Waits for the value; wakes this task.
    Waiting(Option<Waker>),
    Replied(Option<T>),
}

impl<T: Send + 'static> OneReply<T> {
    /// A future, and the function that provides its value.
    pub fn new() -> (OneReply<T>, impl FnOnce(Option<T>) + Send + 'static) {
        let state = Arc::new(Mutex::new(ReplyState::Waiting(None)));
        let of_reply = state.clone();
        let reply = move |value| {
            let before = mem::replace(&mut *of_reply.lock(), ReplyState::Replied(value));
            if let ReplyState::Waiting(Some(waker)) = before {
                waker.wake();
            }
        };
        (OneReply(state), reply)
    }
}

impl<T> Future for OneReply<T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        match &mut *self.0.lock() {
            ReplyState::Waiting(waker) => {
                *waker = Some(context.waker().clone());
                Poll::Pending
            }
            ReplyState::Replied(value) => Poll::Ready(value.take()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn a_task_continues_when_its_reply_arrives() {
        let queue = Arc::new(TaskQueue::default());
        let (sender, receiver) = mpsc::channel();
        let (first, reply_first) = OneReply::new();
        let (second, reply_second) = OneReply::<u32>::new();
        let done = sender.clone();
        assert!(queue.spawn(async move { done.send(first.await).unwrap() }));
        assert!(queue.spawn(async move { sender.send(second.await).unwrap() }));
        let of_thread = queue.clone();
        let thread = std::thread::spawn(move || of_thread.run(LONG, || ()));

        reply_second(None);
        assert_eq!(receiver.recv_timeout(LONG), Ok(None));
        reply_first(Some(7));
        assert_eq!(receiver.recv_timeout(LONG), Ok(Some(7)));

        queue.stop();
        thread.join().unwrap();
        assert!(!queue.spawn(async {}));
    }

    #[test]
    fn tasks_beyond_the_limit_are_refused() {
        let queue = TaskQueue::default();

        let n_accepted = (0..TASKS_MAX + 3).filter(|_| queue.spawn(async {})).count();

        assert_eq!(n_accepted, TASKS_MAX);
        queue.stop();
    }
}
