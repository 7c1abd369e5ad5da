//! The metrics page.
#![expect(clippy::unwrap_used, reason = "a test that stops has said enough")]

use std::collections::HashMap;
use std::error::Error as _;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fodo_ioc::{Ioc, IocError};
use fodo_net::{Context, Monitor, MonitorEvent, MonitorOptions, ServerConfig};

const PATIENCE: Duration = Duration::from_secs(10);

const RECORDS: &str = r#"
record(calc, "m:fast") { field(CALC, "VAL+1") field(SCAN, ".1 second") }
record(calc, "m:slow") { field(CALC, "VAL+1") field(INPA, "m:elsewhere") field(SCAN, "10 second") }
record(ao, "m:gap") {}
"#;

fn load() -> Ioc {
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!(
        "metrics-{}-{:?}.db",
        std::process::id(),
        std::thread::current().id()
    ));
    std::fs::write(&file, RECORDS).unwrap();
    Ioc::load(&[(file, String::new())]).unwrap()
}

fn page(address: SocketAddr) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// The numbers of a page, by name with labels.
fn numbers(page: &str) -> HashMap<String, f64> {
    let lines = page.lines().filter_map(|line| line.rsplit_once(' '));
    lines.filter_map(|(name, number)| Some((name.to_owned(), number.parse().ok()?))).collect()
}

fn next_update(monitor: &Monitor) {
    while !matches!(monitor.next_timeout(PATIENCE), Some(MonitorEvent::Update(_))) {}
}

#[test]
fn the_metrics_page_contains_every_counter_with_help_and_type() {
    let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
    let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let left_out = Arc::new(AtomicU64::new(3));
    let ioc = load().with_metrics(loopback, Some(left_out)).unwrap().serve(ServerConfig::isolated()).unwrap();
    let context = Context::new(ioc.client_config());
    let channels = ["m:gap", "m:fast"].map(|name| context.channel(name).unwrap());
    let monitors = channels.each_ref().map(|channel| channel.monitor(MonitorOptions::default()));
    monitors.iter().for_each(next_update);
    channels[0].put_timeout(1.0, PATIENCE).unwrap();
    next_update(&monitors[0]);

    let page = page(ioc.metrics_address().unwrap());

    assert!(page.contains("\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"), "{page}");
    for text in [
        "# HELP fodo_clients Connected Channel Access clients.\n# TYPE fodo_clients gauge\nfodo_clients 1\n",
        "# TYPE fodo_searches_total counter\n",
        "# TYPE fodo_scan_records gauge\nfodo_scan_records{scan=\"10 second\"} 1\n",
    ] {
        assert!(page.contains(text), "{text} is not in\n{page}");
    }
    let numbers = numbers(&page);
    let number = |name: &str| *numbers.get(name).unwrap_or(&f64::NAN);
    for (name, expected) in [
        ("fodo_channels", 2.0),
        ("fodo_subscriptions", 2.0),
        ("fodo_queued_bytes", 0.0),
        ("fodo_records", 3.0),
        ("fodo_refused_total", 0.0),
        ("fodo_flawed_total", 0.0),
        ("fodo_links{state=\"connected\"}", 0.0),
        ("fodo_links{state=\"failing\"}", 0.0),
        ("fodo_links{state=\"not_connected\"}", 1.0),
        ("fodo_put_log_left_out_total", 3.0),
        ("fodo_scan_records{scan=\".1 second\"}", 1.0),
        (concat!("fodo_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"}"), 1.0),
    ] {
        assert_eq!(number(name), expected, "{name}");
    }
    for name in ["fodo_updates_posted_total", "fodo_searches_total", "process_resident_memory_bytes", "process_threads"]
    {
        assert!(number(name) >= 1.0, "{name} is {}", number(name));
    }
    assert!(number("process_open_fds") < number("process_max_fds"));
    assert!(number("fodo_records_processed_total") >= number("fodo_scan_records_processed_total{scan=\".1 second\"}"));
    assert!((started - 1.0..started + 60.0).contains(&number("process_start_time_seconds")));
}

#[test]
fn put_log_metrics_and_the_metrics_address_exist_only_if_configured() {
    let metered = load()
        .with_metrics(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), None)
        .unwrap()
        .serve(ServerConfig::isolated())
        .unwrap();
    let bare = load().serve(ServerConfig::isolated()).unwrap();

    assert!(!page(metered.metrics_address().unwrap()).contains("put_log"));
    assert_eq!(bare.metrics_address(), None);
    assert_eq!((bare.n_records(), bare.address(), bare.clients().len()), (3, Ipv4Addr::LOCALHOST, 0));
    assert_ne!((bare.tcp_port(), bare.udp_port()), (0, 0));
}

#[test]
fn startup_errors_name_the_unavailable_resource() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();

    let metrics = load().with_metrics(address, None).err().unwrap();
    let missing = Ioc::load(&[(PathBuf::from("no.db"), String::new())]).err().unwrap();
    let gone = std::io::Error::from(std::io::ErrorKind::OutOfMemory);
    let receivers = IocError::RecCaster { port: 7, error: std::io::Error::from(std::io::ErrorKind::AddrInUse) };

    let cause = |error: &IocError| error.source().map(ToString::to_string);
    assert_eq!(metrics.to_string(), format!("metrics cannot be served on {address}"));
    assert!(cause(&metrics).is_some_and(|cause| !cause.is_empty()));
    assert!(missing.to_string().starts_with("no.db: cannot be read: ") && missing.source().is_none(), "{missing}");
    assert!(receivers.to_string().ends_with("UDP port 7"), "{receivers}");
    assert_eq!(cause(&receivers).as_deref(), Some("address in use"));
    assert_eq!(cause(&IocError::System(gone)).as_deref(), Some("out of memory"));
}
