//! What an IOC has counted, as Prometheus reads it.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use fodo_net::process::ProcessFacts;
use fodo_net::{ClientStatus, Observer, host_of_most_unused};

use crate::turn::Crank;

/// What the page says its text is: the exposition format of Prometheus.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// How many puts are missing in a put log so far; its writer counts.
pub type LeftOut = Arc<AtomicU64>;

/// Whatever the page looks at.
#[derive(Debug)]
pub struct Metrics {
    pub crank: Arc<Crank>,
    pub observer: Observer,
    pub n_records: usize,
    pub n_omitted: usize,
    pub started: SystemTime,
    /// None without a put log.
    pub left_out: Option<LeftOut>,
}

/// How a number goes on: a counter only grows, until the IOC starts again.
#[derive(Clone, Copy)]
enum Sort {
    Counter,
    Gauge,
}

/// The page as it grows.
struct Page(String);

impl Page {
    /// One number with its name and what it is.
    fn number(&mut self, name: &str, sort: Sort, help: &str, number: f64) {
        self.family(name, sort, help, &[("", number)]);
    }

    /// Where the system does not tell a number, there is none.
    fn number_if_known(&mut self, name: &str, help: &str, number: Option<u64>) {
        if let Some(number) = number {
            self.number(name, Sort::Gauge, help, number as f64);
        }
    }

    /// Numbers of one name, each with its labels as they are written in braces.
    fn family(&mut self, name: &str, sort: Sort, help: &str, numbers: &[(&str, f64)]) {
        let sort = match sort {
            Sort::Counter => "counter",
            Sort::Gauge => "gauge",
        };
        // Nothing fails that writes to a string.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {sort}");
        for (labels, number) in numbers {
            let _ = writeln!(self.0, "{name}{labels} {number}");
        }
    }
}

impl Metrics {
    /// The whole page as it is now. Waits for the server's threads, at most half a second each, and for no client.
    pub fn text(&self) -> String {
        let mut page = Page(String::new());
        let build = concat!("{version=\"", env!("CARGO_PKG_VERSION"), "\"}");
        page.family("fodo_build_info", Sort::Gauge, "The version that runs; always 1.", &[(build, 1.0)]);
        self.server(&mut page);
        self.database(&mut page);
        self.process(&mut page);
        page.0
    }

    fn server(&self, page: &mut Page) {
        let clients = self.observer.clients();
        let sum = |of: fn(&ClientStatus) -> usize| clients.iter().map(of).sum::<usize>() as f64;
        let queued_bytes = sum(|client| client.queued_bytes);
        page.number("fodo_clients", Sort::Gauge, "Channel Access clients that are connected.", clients.len() as f64);
        let n_unused = clients.iter().filter(|client| client.n_channels == 0).count() as f64;
        page.number("fodo_clients_without_channel", Sort::Gauge, "Clients that have no channel.", n_unused);
        let (host, n_of_host) =
            host_of_most_unused(&clients).map_or((String::new(), 0), |(host, n_of_host)| (host.to_string(), n_of_host));
        let help = "The most clients of one host that have no channel.";
        let label = format!("{{host=\"{host}\"}}");
        page.family("fodo_clients_without_channel_of_host", Sort::Gauge, help, &[(&label, n_of_host as f64)]);
        page.number("fodo_channels", Sort::Gauge, "Channels of these clients.", sum(|client| client.n_channels));
        let n_subscriptions = sum(|client| client.n_subscriptions);
        page.number("fodo_subscriptions", Sort::Gauge, "Running monitors of these clients.", n_subscriptions);
        page.number("fodo_queued_bytes", Sort::Gauge, "Bytes that clients have not taken yet.", queued_bytes);

        let counts = self.observer.counts();
        let counters = [
            ("fodo_updates_posted_total", "Updates posted, once for each subscription.", counts.posted),
            ("fodo_updates_sent_total", "Updates handed to the circuits of clients.", counts.updates.sent),
            (
                "fodo_updates_merged_total",
                "Updates that later ones replaced before they were sent.",
                counts.updates.merged,
            ),
            ("fodo_updates_dropped_total", "Updates that waited for a subscription when it ended.", counts.dropped),
            ("fodo_searches_total", "Names that were asked for.", counts.searches),
            ("fodo_refused_total", "What went beyond the bounds of a client or its host.", counts.refused),
            ("fodo_flawed_total", "Datagrams that are cut, misaligned, or ask for what is no name.", counts.flawed),
            ("fodo_evicted_total", "Clients that were closed because they had no channel.", counts.evicted),
        ];
        for (name, help, count) in counters {
            page.number(name, Sort::Counter, help, count as f64);
        }
    }

    fn database(&self, page: &mut Page) {
        let database = self.crank.database();
        page.number("fodo_records", Sort::Gauge, "Records that are served.", self.n_records as f64);
        let help = "Errors in databases: records, fields and other statements that were left out.";
        page.number("fodo_load_errors", Sort::Gauge, help, self.n_omitted as f64);
        let n_processed = database.n_processed() as f64;
        page.number("fodo_records_processed_total", Sort::Counter, "How often a record was processed.", n_processed);

        let scans = database.scan_counts();
        let labels: Vec<String> = scans.iter().map(|scan| format!("{{scan=\"{}\"}}", scan.choice)).collect();
        let by_scan = |of: fn(&fodo_db::ScanCounts) -> u64| -> Vec<(&str, f64)> {
            labels.iter().zip(&scans).map(|(label, scan)| (label.as_str(), of(scan) as f64)).collect()
        };
        let records = by_scan(|scan| scan.n_records as u64);
        page.family("fodo_scan_records", Sort::Gauge, "Records by the period of their SCAN.", &records);
        let help = "How often a record of a period was due and processed.";
        page.family("fodo_scan_records_processed_total", Sort::Counter, help, &by_scan(|scan| scan.scanned));
        let help = "Periods that were skipped because the scans came late.";
        page.family("fodo_scan_periods_skipped_total", Sort::Counter, help, &by_scan(|scan| scan.skipped));

        if let Some(left_out) = &self.left_out {
            let help = "Puts that are missing in the put log.";
            page.number("fodo_put_log_left_out_total", Sort::Counter, help, left_out.load(Ordering::Relaxed) as f64);
        }
    }

    /// Under the names that Prometheus' own libraries give them, which dashboards know.
    fn process(&self, page: &mut Page) {
        let process = ProcessFacts::now();
        let cpu_s = process.cpu_used.as_secs_f64();
        page.number("process_cpu_seconds_total", Sort::Counter, "Time of a processor that was used.", cpu_s);
        page.number_if_known("process_resident_memory_bytes", "Memory in use.", process.resident_bytes);
        page.number_if_known("process_threads", "Threads of the system.", process.n_threads);
        page.number_if_known("process_open_fds", "Open file descriptors.", process.n_descriptors);
        page.number_if_known("process_max_fds", "File descriptors there may be.", process.n_descriptors_max);
        let started_s = self.started.duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
        page.number("process_start_time_seconds", Sort::Gauge, "When the IOC began to serve, since 1970.", started_s);
    }
}
