//! What a CLU reports besides its replies: a bounded log, and counters.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fodo_data::TimeStamp;
use fodo_lock::Mutex;

use crate::limit::{LOG_ENTRIES_MAX, LOG_TEXT_MAX};

/// How serious an entry of the log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogSeverity {
    /// Written by a script with `logDebug`.
    Debug,
    /// Written by a script, or a change of the CLU's state.
    Info,
    /// A call that was refused; the CLU continues.
    Warning,
    /// A script that failed.
    Error,
}

/// One entry of the log.
#[derive(Clone, Debug, PartialEq)]
pub struct LogEntry {
    /// When it was written.
    pub time: TimeStamp,
    /// How serious it is.
    pub level: LogSeverity,
    /// What happened, in one or a few lines.
    pub text: String,
}

/// The entries of the log after those that a caller has seen. See the example of
/// [`VirtualClu::log_after`](crate::VirtualClu::log_after).
#[derive(Clone, Debug, PartialEq)]
pub struct NewLogEntries {
    /// The entries, the oldest first.
    pub entries: Vec<LogEntry>,
    /// How many entries before them the caller has not seen, because they were dropped.
    pub n_missed: u64,
    /// How many entries the CLU has written since its start, for the next call.
    pub n_seen: u64,
}

/// The newest entries; older ones are dropped and counted.
#[derive(Debug, Default)]
pub(crate) struct CluLog {
    entries: Mutex<VecDeque<LogEntry>>,
    pub counters: CluCounters,
}

impl CluLog {
    pub fn write(&self, time: TimeStamp, level: LogSeverity, text: impl Into<String>) {
        let mut text: String = text.into();
        if text.len() > LOG_TEXT_MAX {
            let end = (0..=LOG_TEXT_MAX).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
            text.truncate(end);
            // Otherwise the entry keeps the memory of the whole text.
            text.shrink_to_fit();
        }
        let mut entries = self.entries.lock();
        if entries.len() == LOG_ENTRIES_MAX {
            entries.pop_front();
            count(&self.counters.log_entries_dropped);
        }
        entries.push_back(LogEntry { time, level, text });
    }

    pub fn entries(&self) -> Vec<LogEntry> {
        self.entries.lock().iter().cloned().collect()
    }

    pub fn entries_after(&self, n_seen: u64) -> NewLogEntries {
        let entries = self.entries.lock();
        let n_dropped = self.counters.log_entries_dropped.load(Ordering::Relaxed);
        let n_known = n_seen.saturating_sub(n_dropped) as usize;
        NewLogEntries {
            entries: entries.iter().skip(n_known).cloned().collect(),
            n_missed: n_dropped.saturating_sub(n_seen),
            n_seen: n_dropped + entries.len() as u64,
        }
    }
}

/// Reads the log of a CLU that another part of the program owns, also after the CLU has stopped. See
/// [`VirtualClu::log_reader`](crate::VirtualClu::log_reader).
#[derive(Debug)]
pub struct CluLogReader {
    log: Arc<CluLog>,
    n_seen: u64,
}

impl CluLogReader {
    pub(crate) fn new(log: Arc<CluLog>) -> CluLogReader {
        CluLogReader { log, n_seen: 0 }
    }

    /// The entries since the last call. Never waits.
    pub fn new_entries(&mut self) -> NewLogEntries {
        let new = self.log.entries_after(self.n_seen);
        self.n_seen = new.n_seen;
        new
    }
}

/// Adds one to a counter.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// The counters while they count; [`CluCounts`] is a snapshot.
#[derive(Debug, Default)]
pub(crate) struct CluCounters {
    pub requests: AtomicU64,
    pub requests_refused: AtomicU64,
    pub scripts_failed: AtomicU64,
    pub budgets_exceeded: AtomicU64,
    pub memory_errors: AtomicU64,
    pub events: AtomicU64,
    pub events_dropped: AtomicU64,
    pub ticks_skipped: AtomicU64,
    pub calls_refused: AtomicU64,
    pub storage_writes: AtomicU64,
    pub storage_errors: AtomicU64,
    pub chunks_compiled: AtomicU64,
    pub pv_updates: AtomicU64,
    pub pv_updates_merged: AtomicU64,
    pub pv_errors: AtomicU64,
    pub remote_calls: AtomicU64,
    pub remote_calls_failed: AtomicU64,
    pub mqtt_connections: AtomicU64,
    pub mqtt_published: AtomicU64,
    pub mqtt_repeated: AtomicU64,
    pub mqtt_refused: AtomicU64,
    pub mqtt_given_up: AtomicU64,
    pub mqtt_received: AtomicU64,
    pub mqtt_unmatched: AtomicU64,
    pub mqtt_dropped: AtomicU64,
    pub http_requests: AtomicU64,
    pub http_refused: AtomicU64,
    pub http_late: AtomicU64,
    pub http_broken: AtomicU64,
    pub http_sent: AtomicU64,
    pub http_failed: AtomicU64,
    pub log_entries_dropped: AtomicU64,
}

/// Counters of a CLU since its start; a reset keeps them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CluCounts {
    /// Requests that the CLU has handled.
    pub requests: u64,
    /// Requests that were refused because the queue was full.
    pub requests_refused: u64,
    /// Scripts of requests, events and MAIN.LUA that ended with an error; includes the next two.
    pub scripts_failed: u64,
    /// Scripts that exceeded their instructions or their time.
    pub budgets_exceeded: u64,
    /// Scripts that exceeded the memory.
    pub memory_errors: u64,
    /// Events of objects that have a handler.
    pub events: u64,
    /// Events that were dropped because too many waited.
    pub events_dropped: u64,
    /// Ticks of interval timers that were skipped because the CLU was busy for longer than their period.
    pub ticks_skipped: u64,
    /// Calls of objects that were refused: unknown feature or method, value out of range, object not available.
    pub calls_refused: u64,
    /// Files of Storage objects that were written.
    pub storage_writes: u64,
    /// Files of Storage objects that could not be read or written.
    pub storage_errors: u64,
    /// Scripts that were compiled; the others were found compiled.
    pub chunks_compiled: u64,
    /// Updates of PVs that Pv objects have taken.
    pub pv_updates: u64,
    /// Updates of PVs that later ones replaced, because the CLU did not take them in time.
    pub pv_updates_merged: u64,
    /// Gets, puts and monitors of Pv objects that failed.
    pub pv_errors: u64,
    /// Scripts that RemoteCLU objects have sent to other CLUs.
    pub remote_calls: u64,
    /// Those of them without a valid reply.
    pub remote_calls_failed: u64,
    /// Connections to the MQTT broker; the first one included.
    pub mqtt_connections: u64,
    /// Messages that the MQTT broker has acknowledged: publications, states and entities.
    pub mqtt_published: u64,
    /// Publications that are sent again, because the connection ended before the broker acknowledged them.
    pub mqtt_repeated: u64,
    /// Publications that were refused because too many waited, and subscriptions that the broker refused.
    pub mqtt_refused: u64,
    /// Publications and retained values that were given up, because the broker ended each connection that sent them.
    pub mqtt_given_up: u64,
    /// Received MQTT messages that have a subscriber.
    pub mqtt_received: u64,
    /// Received MQTT messages without a subscriber: it was removed meanwhile.
    pub mqtt_unmatched: u64,
    /// Received MQTT messages that were dropped because they were too long, or their subscriber was removed first.
    pub mqtt_dropped: u64,
    /// Requests to the HTTP server.
    pub http_requests: u64,
    /// Requests to the HTTP server that were refused: no listener, too many connections, too long, or too many waited.
    pub http_refused: u64,
    /// Requests to the HTTP server that had no response in time (status 504).
    pub http_late: u64,
    /// Connections to the HTTP server that ended before the response, by the client or by a limit.
    pub http_broken: u64,
    /// Requests that HttpRequest objects have started.
    pub http_sent: u64,
    /// Requests of HttpRequest objects that failed.
    pub http_failed: u64,
    /// Entries that were dropped from the log because newer ones needed their place.
    pub log_entries_dropped: u64,
}

impl CluCounters {
    pub fn snapshot(&self) -> CluCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        CluCounts {
            requests: read(&self.requests),
            requests_refused: read(&self.requests_refused),
            scripts_failed: read(&self.scripts_failed),
            budgets_exceeded: read(&self.budgets_exceeded),
            memory_errors: read(&self.memory_errors),
            events: read(&self.events),
            events_dropped: read(&self.events_dropped),
            ticks_skipped: read(&self.ticks_skipped),
            calls_refused: read(&self.calls_refused),
            storage_writes: read(&self.storage_writes),
            storage_errors: read(&self.storage_errors),
            chunks_compiled: read(&self.chunks_compiled),
            pv_updates: read(&self.pv_updates),
            pv_updates_merged: read(&self.pv_updates_merged),
            pv_errors: read(&self.pv_errors),
            remote_calls: read(&self.remote_calls),
            remote_calls_failed: read(&self.remote_calls_failed),
            mqtt_connections: read(&self.mqtt_connections),
            mqtt_published: read(&self.mqtt_published),
            mqtt_repeated: read(&self.mqtt_repeated),
            mqtt_refused: read(&self.mqtt_refused),
            mqtt_given_up: read(&self.mqtt_given_up),
            mqtt_received: read(&self.mqtt_received),
            mqtt_unmatched: read(&self.mqtt_unmatched),
            mqtt_dropped: read(&self.mqtt_dropped),
            http_requests: read(&self.http_requests),
            http_refused: read(&self.http_refused),
            http_late: read(&self.http_late),
            http_broken: read(&self.http_broken),
            http_sent: read(&self.http_sent),
            http_failed: read(&self.http_failed),
            log_entries_dropped: read(&self.log_entries_dropped),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_keeps_the_newest_entries_and_counts_the_dropped_ones() {
        let log = CluLog::default();

        for index in 0..LOG_ENTRIES_MAX + 3 {
            log.write(TimeStamp::NEVER, LogSeverity::Info, format!("entry {index}"));
        }

        assert_eq!(log.entries().len(), LOG_ENTRIES_MAX);
        assert_eq!(log.entries()[0].text, "entry 3");
        assert_eq!(log.counters.snapshot().log_entries_dropped, 3);
    }

    #[test]
    fn entries_are_returned_once_and_dropped_ones_are_counted_as_missed() {
        let log = CluLog::default();
        let write = |text: &str| log.write(TimeStamp::NEVER, LogSeverity::Info, text);
        let texts = |new: &NewLogEntries| new.entries.iter().map(|entry| entry.text.clone()).collect::<Vec<_>>();
        write("first");
        write("second");

        let first = log.entries_after(0);
        assert_eq!((texts(&first), first.n_missed), (vec!["first".to_owned(), "second".to_owned()], 0));
        assert_eq!(texts(&log.entries_after(first.n_seen)), Vec::<String>::new());

        for index in 0..LOG_ENTRIES_MAX + 3 {
            write(&format!("entry {index}"));
        }
        let second = log.entries_after(first.n_seen);
        assert_eq!((second.entries.len(), second.n_missed), (LOG_ENTRIES_MAX, 3));
        assert_eq!(second.n_seen, LOG_ENTRIES_MAX as u64 + 5);
    }

    #[test]
    fn a_long_entry_is_cut_between_characters() {
        let log = CluLog::default();

        log.write(TimeStamp::NEVER, LogSeverity::Info, "ż".repeat(LOG_TEXT_MAX));

        assert_eq!(log.entries()[0].text, "ż".repeat(LOG_TEXT_MAX / 2));
        assert!(log.entries.lock()[0].text.capacity() <= LOG_TEXT_MAX);
    }
}
