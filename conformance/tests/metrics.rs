//! Checks that Prometheus' own parser, with Python's own HTTP client, reads the metrics of an IOC.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a panic is a sufficient failure message in a test")]

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use fodo_conformance::place::{self, free_port, program, python, script};
use fodo_conformance::process::{Process, printed_by, restrict_to_loopback};
use fodo_net::{ClientConfig, Context, MonitorOptions, Value};
use serde_json::Value as Json;

const PATIENCE: Duration = Duration::from_secs(20);

/// An IOC with three records, the URL of its metrics, a client, and the prefix of the names.
fn ioc() -> (Process, String, Context, String) {
    let (port, prefix) = (free_port(), place::prefix());
    let database = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("metrics-{port}.db"));
    let records = format!(
        "record(ao, \"{prefix}gap\") {{ field(FLNK, \"{prefix}twice\") }}\nrecord(calc, \"{prefix}twice\") {{}}\n\
         record(calc, \"{prefix}count\") {{ field(SCAN, \".1 second\") field(CALC, \"VAL+1\") }}\n"
    );
    std::fs::write(&database, records).unwrap();
    let mut command = Command::new(program());
    command.args(["ioc", "--interface", "127.0.0.1", "--port", &port.to_string(), "--metrics", "0"]);
    command.arg("--put-log").arg(database.with_extension("json")).arg("-d").arg(&database);
    restrict_to_loopback(&mut command, port);
    let mut process = Process::start("fodo ioc", &mut command).unwrap();
    let ready = process.wait_for_line_starting("fodo ioc: serving", PATIENCE).unwrap();
    let (_, url) = ready.split_once("metrics on ").unwrap();
    let context = Context::new(ClientConfig::with_addresses(vec![SocketAddr::from((Ipv4Addr::LOCALHOST, port))]));
    (process, url.to_owned(), context, prefix)
}

/// The page as Prometheus parses it.
fn read(url: &str) -> Json {
    let text =
        printed_by("Prometheus' parser", Command::new(python()).arg(script("metrics_client.py")).arg(url), PATIENCE);
    serde_json::from_str(&text.unwrap()).unwrap()
}

/// The value of a family, or of one of its labels.
fn number(page: &Json, family: &str, label: Option<&str>) -> Option<f64> {
    let samples = page["families"][family]["samples"].as_array()?;
    let matches = |sample: &&Json| label.is_none_or(|label| sample[1]["scan"] == label);
    samples.iter().find(matches)?[2].as_f64()
}

#[test]
fn every_metric_has_a_type_and_a_help_text() {
    let (_process, url, _context, _) = ioc();

    let page = read(&url);

    assert_eq!(page["content_type"], "text/plain; version=0.0.4; charset=utf-8");
    let families = page["families"].as_object().unwrap();
    for (name, family) in families {
        assert!(!family["help"].as_str().unwrap().is_empty(), "{name} has no help text");
        assert!(name.starts_with("fodo_") || name.starts_with("process_"), "{name}");
        let is_counter = family["type"] == "counter";
        assert!(is_counter || family["type"] == "gauge", "{name} is {}", family["type"]);
        let samples = family["samples"].as_array().unwrap();
        assert!(!samples.is_empty(), "{name} has no sample");
        let ends_so = |sample: &Json| sample[0].as_str().unwrap().ends_with("_total");
        assert!(samples.iter().all(|sample| ends_so(sample) == is_counter), "{name}");
    }
    for family in
        ["process_cpu_seconds", "process_resident_memory_bytes", "process_open_fds", "process_start_time_seconds"]
    {
        assert!(number(&page, family, None).is_some_and(|number| number > 0.0), "{family}: {page}");
    }
    assert_eq!(number(&page, "fodo_records", None), Some(3.0));
    assert_eq!(page["families"]["fodo_build_info"]["samples"][0][1]["version"], env!("CARGO_PKG_VERSION"));
}

#[test]
fn the_metrics_reference_page_lists_exactly_the_exported_metrics() {
    let (_process, url, _context, _) = ioc();
    let reference = std::fs::read_to_string(place::own_folder().join("../docs/reference/metrics.md")).unwrap();

    let page = read(&url);

    let families = page["families"].as_object().unwrap();
    for (name, family) in families {
        let end = if family["type"] == "counter" { "_total" } else { "" };
        let beginning = format!("| `{name}{end}` | {} |", family["type"].as_str().unwrap());
        assert!(reference.contains(&beginning), "the page does not contain {beginning}");
    }
    let rows = reference.lines().filter(|line| line.starts_with("| `")).count();
    assert_eq!(rows, families.len());
}

#[test]
fn client_and_record_activity_is_counted_in_the_metrics() {
    let (_process, url, context, prefix) = ioc();
    let before = read(&url);

    let gap = context.channel(&format!("{prefix}gap")).unwrap();
    gap.put_timeout(Value::from(2.0), PATIENCE).unwrap();
    let count = context.channel(&format!("{prefix}count")).unwrap();
    let updates = count.monitor(MonitorOptions::default());
    (0..3).for_each(|_| drop(updates.next_timeout(PATIENCE).unwrap()));
    let has_all = |page: &Json| {
        let more = |family: &str, label: Option<&str>| {
            number(page, family, label).unwrap() - number(&before, family, label).unwrap()
        };
        number(page, "fodo_clients", None) == Some(1.0)
            && number(page, "fodo_channels", None) == Some(2.0)
            && number(page, "fodo_subscriptions", None) == Some(1.0)
            && more("fodo_searches", None) >= 2.0
            && more("fodo_updates_sent", None) >= 3.0
            && more("fodo_scan_records_processed", Some(".1 second")) >= 2.0
            // Two scanned records, and the two records of the put.
            && more("fodo_records_processed", None) >= 4.0
    };
    let start = Instant::now();
    let mut page = read(&url);
    while !has_all(&page) && start.elapsed() < PATIENCE {
        page = read(&url);
    }

    assert!(has_all(&page), "{page}");
    assert_eq!(number(&page, "fodo_scan_records", Some(".1 second")), Some(1.0));
    assert_eq!(number(&page, "fodo_scan_periods_skipped", Some("10 second")), Some(0.0));
}
