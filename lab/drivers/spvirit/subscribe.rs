//! Subscriptions. spvirit opens a connection for each.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use spvirit_client::{MonitorHandle, MonitorOptions, MonitorUpdate, PvaClient};
use tokio::sync::Notify;
use tokio::time::Instant;

/// The socket on which QSRV2 listens keeps four connections that it has not yet accepted; further ones are repeated by the
/// system after a second.
const CONNECTIONS_AT_ONCE: usize = 4;

/// How many subscriptions have received an update.
#[derive(Default)]
struct Begun {
    n: AtomicUsize,
    changed: Notify,
}

impl Begun {
    fn n(&self) -> usize {
        self.n.load(Ordering::Acquire)
    }

    async fn wait_for(&self, n: usize, deadline: Instant) -> bool {
        while self.n() < n {
            if tokio::time::timeout_at(deadline, self.changed.notified()).await.is_err() {
                return false;
            }
        }
        true
    }
}

/// Subscribes to each name and waits for the first update of each. `update` receives all updates, with the index of the
/// name. Fails with the number of subscriptions that have received an update before the deadline.
pub async fn subscribe(
    client: &PvaClient,
    names: &[String],
    (fields, options): (&[&str], MonitorOptions),
    deadline: Instant,
    update: impl Fn(usize, &MonitorUpdate) + Clone + Send + 'static,
) -> Result<Vec<MonitorHandle>, usize> {
    let begun = Arc::new(Begun::default());
    let mut handles = Vec::with_capacity(names.len());
    for (index, name) in names.iter().enumerate() {
        if !begun.wait_for((index + 1).saturating_sub(CONNECTIONS_AT_ONCE), deadline).await {
            return Err(begun.n());
        }
        let (update, begun, mut is_first) = (update.clone(), begun.clone(), true);
        let receive = move |received: MonitorUpdate| {
            update(index, &received);
            if std::mem::take(&mut is_first) {
                begun.n.fetch_add(1, Ordering::Release);
                begun.changed.notify_one();
            }
            ControlFlow::Continue(())
        };
        handles.push(client.pvmonitor_spawn_owned(name, fields, options, receive));
    }
    match begun.wait_for(names.len(), deadline).await {
        true => Ok(handles),
        false => Err(begun.n()),
    }
}
