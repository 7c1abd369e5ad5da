//! Objects that run on the thread of a reactor until their owner drops them: the metrics page, the RecSync client.

use std::io;
use std::sync::{Arc, Weak};

use fodo_data::Now;
use fodo_lock::{Mutex, Rank};
use fodo_net::reactor::{EventHandler, NextCall, Reactor, Registration};

/// An object that a reactor calls when one of its sockets or deadlines is due.
pub(crate) trait Service: Send + 'static {
    /// Registers the socket with which the service begins.
    fn watch(&self) -> io::Result<()>;

    /// Reads, writes and handles deadlines as far as possible without blocking.
    fn turn(&mut self, now: Now) -> NextCall;
}

/// A service that runs until this is dropped.
pub(crate) struct RunningService<S: Service>(Arc<ServiceHandler<S>>);

/// What the reactor calls. `None` after the service ended.
pub(crate) struct ServiceHandler<S>(Mutex<Option<S>>);

impl<S: Service> RunningService<S> {
    /// Starts a service on the thread of a reactor. `create` receives the registration that the service owns. Fails if
    /// the system refuses to watch its socket.
    pub(crate) fn start(reactor: &Reactor, rank: Rank, create: impl FnOnce(Registration) -> S) -> io::Result<Self> {
        let running = RunningService(Arc::new_cyclic(|handler: &Weak<ServiceHandler<S>>| {
            ServiceHandler(Mutex::ranked(rank, Some(create(reactor.add(handler.clone())))))
        }));
        if let Some(service) = &*running.0.0.lock() {
            service.watch()?;
        }
        Ok(running)
    }
}

impl<S: Service> Drop for RunningService<S> {
    fn drop(&mut self) {
        // Waits for a call in progress.
        self.0.0.lock().take();
    }
}

impl<S: Service> EventHandler for ServiceHandler<S> {
    fn on_event(self: Arc<Self>, now: Now) -> NextCall {
        self.0.lock().as_mut().map_or(NextCall::OnReady, |service| service.turn(now))
    }
}

impl<S: Service> std::fmt::Debug for RunningService<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunningService").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Counter(u32);

    impl Service for Counter {
        fn watch(&self) -> io::Result<()> {
            Ok(())
        }

        fn turn(&mut self, _now: Now) -> NextCall {
            self.0 += 1;
            NextCall::Soon
        }
    }

    #[test]
    fn a_dropped_service_is_not_called_again_even_by_a_reactor_that_still_holds_it() {
        let handler = Arc::new(ServiceHandler(Mutex::ranked(Rank::Leaf, Some(Counter(0)))));
        let running = RunningService(handler.clone());
        let call = || {
            handler.clone().on_event(Now { monotonic: std::time::Instant::now(), wall: fodo_data::TimeStamp::NEVER })
        };

        assert!(matches!(call(), NextCall::Soon));
        assert_eq!(handler.0.lock().as_ref().map(|counter| counter.0), Some(1));
        assert_eq!(format!("{running:?}"), "RunningService { .. }");
        drop(running);

        assert!(matches!(call(), NextCall::OnReady) && handler.0.lock().is_none());
    }
}
