//! A request in progress.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::thread::Thread;
use std::time::Instant;

use fodo_clu::client::{RequestId, RequestOutcome};

use super::CluConnection;

/// A request in progress. Block on it with [`CluOperation::wait`] or, for a limited time, with
/// [`CluOperation::wait_until`], or await it: it needs no async runtime. It always ends,
/// at the latest after its timeout.
///
/// When it is dropped, the request is cancelled: a reply is ignored. If it was sent, the CLU carries it out nevertheless.
///
/// ```
/// # let (clu, key) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/demo/clu.rs"));
/// use fodo_net::clu::{CluConnection, CluConnectionConfig, CluRequest, RequestOutcome};
///
/// let connection = CluConnection::open(CluConnectionConfig::new(clu, key))?;
/// let operation = connection.start(CluRequest::Execute("1+1"))?;
/// assert!(matches!(operation.wait(), RequestOutcome::Answered(_)));
///
/// # pollster::block_on(async {
/// // In an async function.
/// let outcome = connection.start(CluRequest::Execute("1+1"))?.await;
/// assert!(matches!(outcome, RequestOutcome::Answered(_)));
/// # Ok::<(), fodo_net::clu::SubmitError>(())
/// # }).unwrap();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "the request of an operation that is dropped is cancelled"]
pub struct CluOperation {
    connection: CluConnection,
    request: RequestId,
    /// Its outcome was taken.
    is_over: bool,
}

impl CluOperation {
    pub(super) fn new(connection: CluConnection, request: RequestId) -> CluOperation {
        CluOperation { connection, request, is_over: false }
    }

    /// Blocks until the request ends. Meanwhile this thread reads the socket of the connection, unless another one does. See
    /// the example of [`CluOperation`].
    pub fn wait(mut self) -> RequestOutcome {
        let outcome = self.connection.core().wait(self.request);
        self.is_over = true;
        outcome
    }

    /// Blocks until the request ends, or until `until`; returns whether it has ended. Afterwards [`CluOperation::wait`]
    /// returns its outcome at once. Like it, this reads the socket, at least what has already been received.
    ///
    /// A thread that must do something else in time needs no second thread that reads for it.
    ///
    /// ```
    /// # let (clu, key) = include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/demo/clu.rs"));
    /// use std::time::{Duration, Instant};
    ///
    /// use fodo_net::clu::{CluConnection, CluConnectionConfig, CluRequest};
    ///
    /// let connection = CluConnection::open(CluConnectionConfig::new(clu, key))?;
    /// let operation = connection.start(CluRequest::Execute("1+1"))?;
    /// while !operation.wait_until(Instant::now() + Duration::from_millis(10)) {
    ///     println!("something else, every 10 ms");
    /// }
    /// println!("{:?}", operation.wait());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn wait_until(&self, until: Instant) -> bool {
        self.connection.core().wait_until(self.request, until)
    }
}

impl Future for CluOperation {
    type Output = RequestOutcome;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<RequestOutcome> {
        match self.connection.core().poll(self.request, context.waker()) {
            Some(outcome) => {
                self.is_over = true;
                Poll::Ready(outcome)
            }
            None => Poll::Pending,
        }
    }
}

impl Drop for CluOperation {
    fn drop(&mut self) {
        if !self.is_over {
            self.connection.core().cancel(self.request);
        }
    }
}

impl fmt::Debug for CluOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CluOperation").field("request", &self.request).finish_non_exhaustive()
    }
}

/// What the end of a request wakes.
pub(super) enum OperationWaiter {
    /// A thread that is parked or about to park.
    Thread(Thread),
    /// A future.
    Future(Waker),
}

impl OperationWaiter {
    pub(super) fn wake(self) {
        match self {
            OperationWaiter::Thread(thread) => thread.unpark(),
            // An executor may panic; the thread that reads must continue. The panic hook has reported it.
            OperationWaiter::Future(waker) => {
                let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| waker.wake()));
            }
        }
    }
}
