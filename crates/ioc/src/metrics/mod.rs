//! The metrics of an IOC in the text format of Prometheus.

mod page;

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use fodo_net::{ClientStatus, Observer, host_with_most_unused_clients};

pub use self::page::{Page, PageConfig};
use crate::driver::DatabaseDriver;
use crate::process::ProcessFacts;

/// The content type of the Prometheus exposition format.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The number of puts missing from a put log so far; its writer increments it.
pub type CountMissingPuts = Arc<AtomicU64>;

/// The sources of the metrics.
#[derive(Debug)]
pub struct Metrics {
    pub driver: Arc<DatabaseDriver>,
    pub observer: Observer,
    pub n_records: usize,
    pub n_omitted: usize,
    pub started: SystemTime,
    /// `None` without a put log.
    pub left_out: Option<CountMissingPuts>,
}

/// The type of a metric; a counter only increases until the IOC restarts.
#[derive(Clone, Copy)]
enum MetricType {
    Counter,
    Gauge,
}

/// The page under construction.
struct MetricsText(String);

impl MetricsText {
    /// Adds one metric.
    fn number(&mut self, name: &str, sort: MetricType, help: &str, number: f64) {
        self.family(name, sort, help, &[("", number)]);
    }

    /// Adds one metric, unless the system does not report it.
    fn number_if_known(&mut self, name: &str, help: &str, number: Option<u64>) {
        if let Some(number) = number {
            self.number(name, MetricType::Gauge, help, number as f64);
        }
    }

    /// Adds the numbers of one metric, each with its labels in braces.
    fn family(&mut self, name: &str, sort: MetricType, help: &str, numbers: &[(&str, f64)]) {
        let sort = match sort {
            MetricType::Counter => "counter",
            MetricType::Gauge => "gauge",
        };
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {sort}");
        for (labels, number) in numbers {
            let _ = writeln!(self.0, "{name}{labels} {number}");
        }
    }
}

impl Metrics {
    /// The whole page. Waits at most half a second for each server thread, and never for a client.
    pub fn text(&self) -> String {
        let mut page = MetricsText(String::new());
        let build = concat!("{version=\"", env!("CARGO_PKG_VERSION"), "\"}");
        page.family("fodo_build_info", MetricType::Gauge, "The version of this IOC; always 1.", &[(build, 1.0)]);
        self.server(&mut page);
        self.database(&mut page);
        self.process(&mut page);
        page.0
    }

    fn server(&self, page: &mut MetricsText) {
        let clients = self.observer.clients();
        let sum = |of: fn(&ClientStatus) -> usize| clients.iter().map(of).sum::<usize>() as f64;
        let queued_bytes = sum(|client| client.queued_bytes);
        page.number("fodo_clients", MetricType::Gauge, "Connected Channel Access clients.", clients.len() as f64);
        let n_unused = clients.iter().filter(|client| client.n_channels == 0).count() as f64;
        page.number("fodo_clients_without_channel", MetricType::Gauge, "Clients without a channel.", n_unused);
        let (host, n_of_host) = host_with_most_unused_clients(&clients)
            .map_or((String::new(), 0), |(host, n_of_host)| (host.to_string(), n_of_host));
        let help = "The largest number of clients without a channel from one host.";
        let label = format!("{{host=\"{host}\"}}");
        page.family("fodo_clients_without_channel_of_host", MetricType::Gauge, help, &[(&label, n_of_host as f64)]);
        page.number("fodo_channels", MetricType::Gauge, "Channels of all clients.", sum(|client| client.n_channels));
        let n_subscriptions = sum(|client| client.n_subscriptions);
        page.number("fodo_subscriptions", MetricType::Gauge, "Subscriptions of all clients.", n_subscriptions);
        page.number("fodo_queued_bytes", MetricType::Gauge, "Bytes queued for clients.", queued_bytes);

        let counts = self.observer.counts();
        let counters = [
            ("fodo_updates_posted_total", "Updates posted, counted once for each subscription.", counts.posted),
            ("fodo_updates_sent_total", "Updates encoded for clients.", counts.updates.sent),
            (
                "fodo_updates_merged_total",
                "Updates replaced by later ones before they were sent.",
                counts.updates.merged,
            ),
            ("fodo_updates_dropped_total", "Updates still queued when their subscription ended.", counts.dropped),
            ("fodo_searches_total", "Names searched for.", counts.searches),
            ("fodo_refused_total", "Requests refused because a client or its host exceeded a limit.", counts.refused),
            ("fodo_flawed_total", "Truncated or misaligned datagrams, and searches for invalid names.", counts.flawed),
            ("fodo_evicted_total", "Clients disconnected because they had no channel.", counts.evicted),
        ];
        for (name, help, count) in counters {
            page.number(name, MetricType::Counter, help, count as f64);
        }
    }

    fn database(&self, page: &mut MetricsText) {
        let database = self.driver.database();
        page.number("fodo_records", MetricType::Gauge, "Records served.", self.n_records as f64);
        let help = "Records, fields and other statements left out because of errors in databases.";
        page.number("fodo_load_errors", MetricType::Gauge, help, self.n_omitted as f64);
        let n_processed = database.n_processed() as f64;
        page.number(
            "fodo_records_processed_total",
            MetricType::Counter,
            "How often a record was processed.",
            n_processed,
        );

        let links = self.driver.link_requests().states().counts();
        let help = "Links to other IOCs, with the inputs of access rules, by state.";
        let by_state = [
            ("{state=\"connected\"}", links.connected as f64),
            ("{state=\"failing\"}", links.failing as f64),
            ("{state=\"not_connected\"}", links.not_connected as f64),
        ];
        page.family("fodo_links", MetricType::Gauge, help, &by_state);

        let scans = database.scan_counts();
        let labels: Vec<String> = scans.iter().map(|scan| format!("{{scan=\"{}\"}}", scan.choice)).collect();
        let by_scan = |of: fn(&fodo_db::ScanCounts) -> u64| -> Vec<(&str, f64)> {
            labels.iter().zip(&scans).map(|(label, scan)| (label.as_str(), of(scan) as f64)).collect()
        };
        let records = by_scan(|scan| scan.n_records as u64);
        page.family("fodo_scan_records", MetricType::Gauge, "Records by scan period.", &records);
        let help = "Number of times a record of this scan period was processed.";
        page.family("fodo_scan_records_processed_total", MetricType::Counter, help, &by_scan(|scan| scan.scanned));
        let help = "Scan periods skipped because scanning was late.";
        page.family("fodo_scan_periods_skipped_total", MetricType::Counter, help, &by_scan(|scan| scan.skipped));

        if let Some(left_out) = &self.left_out {
            let help = "Puts missing from the put log.";
            page.number(
                "fodo_put_log_left_out_total",
                MetricType::Counter,
                help,
                left_out.load(Ordering::Relaxed) as f64,
            );
        }
    }

    /// Process metrics with the names used by the Prometheus client libraries, which dashboards know.
    fn process(&self, page: &mut MetricsText) {
        let process = ProcessFacts::now();
        let cpu_s = process.cpu_used.as_secs_f64();
        page.number("process_cpu_seconds_total", MetricType::Counter, "CPU time used.", cpu_s);
        page.number_if_known("process_resident_memory_bytes", "Resident memory.", process.resident_bytes);
        page.number_if_known("process_threads", "Threads of the process.", process.n_threads);
        page.number_if_known("process_open_fds", "Open file descriptors.", process.n_descriptors);
        page.number_if_known("process_max_fds", "Maximum number of open file descriptors.", process.n_descriptors_max);
        let started_s = self.started.duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
        page.number(
            "process_start_time_seconds",
            MetricType::Gauge,
            "Start of the IOC, in seconds since 1970.",
            started_s,
        );
    }
}
