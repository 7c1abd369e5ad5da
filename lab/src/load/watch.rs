//! The watching end of a load, for clients that run in a process of this program.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fodo_net::{Array, Channel, Context, Monitor, MonitorEvent, MonitorOptions, Value};

use super::book::{SubscriptionLog, UpdateLog};
use super::tally::value_of_ends;
use super::usage::Usage;
use super::worker::{LoadReply, LoadRequest, converse, name_of};

/// A client that can subscribe.
pub trait UpdateWatcher {
    /// Subscribes to a PV once for each of `pages`, and writes every update to its page. Updates may arrive later, on
    /// any thread.
    fn subscribe(&mut self, name: &str, pages: Vec<Arc<SubscriptionLog>>) -> Result<(), String>;

    /// Sends what `subscribe` has queued, if a client queues requests.
    fn flush(&mut self) -> Result<(), String> {
        Ok(())
    }

    /// Connects `n_channels` channels without subscriptions, to `n_pvs` PVs in turn; returns the current number of
    /// channels.
    fn connect(&mut self, _n_channels: u32, _n_pvs: u32) -> Result<u64, String> {
        Err("this client does not support channels without subscriptions".into())
    }

    /// Updates received from circuits, and updates replaced before delivery, since the start; `None` for a client that
    /// does not report them.
    fn counts(&self) -> Option<(u64, u64)> {
        None
    }
}

/// Maximum time for all first updates.
const FIRST_UPDATES_MAX: Duration = Duration::from_secs(30);

/// Subscribes and counts until the end of its input.
pub fn watch(client: impl UpdateWatcher, book: UpdateLog) -> std::io::Result<()> {
    let mut watcher = Watcher { client, book, n_received_before: 0, n_merged_before: 0 };
    converse(|request| {
        let reply = match request {
            LoadRequest::Watch { n_pvs, n_subscriptions } => watcher.watch(n_pvs, n_subscriptions),
            LoadRequest::Restart {} => Ok(watcher.restart()),
            LoadRequest::Count {} => Ok(watcher.tallied()),
            LoadRequest::AwaitFresh { patience_ms } => watcher.await_fresh(Duration::from_millis(patience_ms)),
            LoadRequest::Connect { n_channels, n_pvs } => {
                let connected = watcher.client.connect(n_channels, n_pvs);
                connected.map(|n_channels| LoadReply::Connected { n_channels, usage: Usage::of_this_process() })
            }
            other @ (LoadRequest::Produce { .. } | LoadRequest::Stream { .. }) => {
                Err(format!("a client does not support {other:?}"))
            }
        };
        reply.unwrap_or_else(|why| LoadReply::Failed { why })
    })
}

struct Watcher<C> {
    // Dropped before the pages that it writes to.
    client: C,
    book: UpdateLog,
    n_received_before: u64,
    n_merged_before: u64,
}

impl<C: UpdateWatcher> Watcher<C> {
    fn watch(&mut self, n_pvs: u32, n_subscriptions: u32) -> Result<LoadReply, String> {
        for pv in 0..n_pvs {
            let pages = (0..n_subscriptions).map(|_| self.book.page(pv)).collect();
            self.client.subscribe(&name_of(pv), pages)?;
        }
        self.client.flush()?;
        let deadline = Instant::now() + FIRST_UPDATES_MAX;
        loop {
            let (n_subscriptions, n_begun) = self.book.n_begun();
            if n_begun >= n_subscriptions {
                return Ok(LoadReply::Watching { n_subscriptions });
            }
            if Instant::now() > deadline {
                return Err(format!("only {n_begun} of {n_subscriptions} first updates were received"));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn restart(&mut self) -> LoadReply {
        self.book.restart();
        (self.n_received_before, self.n_merged_before) = self.client.counts().unwrap_or_default();
        LoadReply::Restarted {}
    }

    fn await_fresh(&self, patience: Duration) -> Result<LoadReply, String> {
        let deadline = Instant::now() + patience;
        loop {
            let (n_subscriptions, _) = self.book.n_begun();
            let fresh = self.book.fresh();
            if fresh.is_complete() {
                return Ok(LoadReply::Fresh { first_unix_ns: fresh.first_unix_ns, all_unix_ns: fresh.last_unix_ns });
            }
            if Instant::now() > deadline {
                return Err(format!("only {} of {n_subscriptions} subscriptions recovered", fresh.n_fresh));
            }
            drop(fresh);
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn tallied(&self) -> LoadReply {
        let sums = self.book.sums();
        let (received, merged) = match self.client.counts() {
            Some((received, merged)) => (received - self.n_received_before, merged - self.n_merged_before),
            None => (sums.received, 0),
        };
        LoadReply::Tallied { sums, merged, received, latencies: self.book.latencies(), usage: Usage::of_this_process() }
    }
}

/// Our client, configured by the environment.
pub struct FodoWatcher {
    context: Context,
    monitors: Vec<Monitor>,
    channels: Vec<Channel>,
}

impl FodoWatcher {
    /// A client without subscriptions.
    pub fn new() -> std::io::Result<FodoWatcher> {
        let context = Context::from_env().map_err(std::io::Error::other)?;
        Ok(FodoWatcher { context, monitors: Vec::new(), channels: Vec::new() })
    }
}

/// The value that encodes a number; NaN for a value that no server of a load has.
fn encoded(value: &Value) -> f64 {
    match value {
        Value::Array(Array::F64(elements)) => value_of_ends(elements),
        _ => value.first().and_then(|value| value.to_f64().ok()).unwrap_or(f64::NAN),
    }
}

impl UpdateWatcher for FodoWatcher {
    fn subscribe(&mut self, name: &str, pages: Vec<Arc<SubscriptionLog>>) -> Result<(), String> {
        let channel = self.context.channel(name).map_err(|error| error.to_string())?;
        for page in pages {
            let monitor = channel.monitor_with(MonitorOptions::default(), move |event| {
                let MonitorEvent::Update(reading) = event else { return };
                page.update(encoded(&reading.value), reading.time);
            });
            self.monitors.push(monitor.map_err(|error| error.to_string())?);
        }
        Ok(())
    }

    fn connect(&mut self, n_channels: u32, n_pvs: u32) -> Result<u64, String> {
        for index in 0..n_channels {
            let name = name_of(index % n_pvs.max(1));
            self.channels.push(self.context.channel(&name).map_err(|error| error.to_string())?);
        }
        for channel in &self.channels {
            channel.connect_timeout(FIRST_UPDATES_MAX).map_err(|error| error.to_string())?;
        }
        Ok(self.channels.len() as u64)
    }

    fn counts(&self) -> Option<(u64, u64)> {
        let counts = self.monitors.iter().map(Monitor::counts);
        Some(counts.fold((0, 0), |(received, merged), one| (received + one.received, merged + one.merged)))
    }
}
