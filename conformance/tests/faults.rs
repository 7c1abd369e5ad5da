//! Runs `fodo ioc` and `fodo monitor` as processes short of resources, stopped, or flooded. The rows are those of
//! `docs/reference/faults.md`.
#![forbid(unsafe_code)]

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

use fodo_conformance::place::{database, free_port, prefix, program};
use fodo_conformance::process::{Process, printed_by, restrict_to_loopback};
use fodo_conformance::server::{ServerProgram, TestServer};
use fodo_net::{Channel, ClientConfig, Context, MonitorEvent, MonitorOptions, Value};
use fodo_testing::eventually;
use rustix::process::Signal;

/// Maximum time of any step.
const PATIENCE: Duration = Duration::from_secs(20);

/// Maximum time to load a million records on a busy machine.
const MILLION_PATIENCE: Duration = Duration::from_secs(60);

/// The command of an IOC with a limit of open files.
fn ioc_with(n_descriptors: u32, port: u16) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n \"$1\"; shift; exec \"$@\"", "sh"]).arg(n_descriptors.to_string());
    command.arg(program()).args(["ioc", "-m", "P=f:", "-d"]).arg(database("records.db"));
    command.args(["--interface", "127.0.0.1", "--port", &port.to_string()]);
    restrict_to_loopback(&mut command, port);
    command
}

/// A running IOC, and its address.
fn ioc(n_descriptors: u32) -> (Process, SocketAddr) {
    let port = free_port();
    let mut process = Process::start("fodo ioc", &mut ioc_with(n_descriptors, port)).unwrap();
    process.wait_for_line_starting("fodo ioc: serving", PATIENCE).unwrap();
    (process, SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
}

fn channel(server: SocketAddr, pv: &str) -> Channel {
    let config = ClientConfig { echo_after: Duration::from_millis(300), ..ClientConfig::with_addresses(vec![server]) };
    Context::new(config).channel(pv).unwrap()
}

fn n_open_files(process: &Process) -> usize {
    std::fs::read_dir(process.proc_folder().unwrap().join("fd")).unwrap().count()
}

/// CPU time so far, in hundredths of a second.
fn n_ticks(process: &Process) -> u64 {
    let stat = std::fs::read_to_string(process.proc_folder().unwrap().join("stat")).unwrap();
    let behind_name = stat.rsplit(") ").next().unwrap();
    behind_name.split(' ').skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap()).sum()
}

/// Resident memory in KiB.
fn n_resident_kib(process: &Process) -> usize {
    let status = std::fs::read_to_string(process.proc_folder().unwrap().join("status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

// Row 25 of docs/reference/faults.md.
#[test]
fn clients_beyond_the_descriptor_limit_are_closed_and_the_others_are_served() {
    let (ioc, server) = ioc(64);
    let ao = channel(server, "f:ao");
    ao.connect_timeout(PATIENCE).unwrap();
    let n_before = n_open_files(&ioc);

    let connections: Vec<TcpStream> = (0..200).map(|_| TcpStream::connect(server).unwrap()).collect();
    eventually("clients have half of the descriptors", || n_open_files(&ioc) >= n_before + 16);
    assert!(n_open_files(&ioc) <= 60, "the remaining descriptors are reserved");
    (0..20).for_each(|_| assert_eq!(ao.get_timeout(PATIENCE).unwrap().value, Value::from(-1.25)));
    let ticks_before = n_ticks(&ioc);
    // Measures CPU time while no client sends requests.
    std::thread::sleep(Duration::from_secs(1));
    let n_busy = n_ticks(&ioc) - ticks_before;
    drop(connections);

    assert!(n_busy < 20, "{n_busy} % of a CPU for clients that cannot be accepted");
    assert_eq!(
        channel(server, "f:ai").get_timeout(PATIENCE).unwrap().value,
        Value::from(2.5),
        "a new client is served"
    );
    eventually("all descriptors are closed", || n_open_files(&ioc) <= n_before + 1);
}

// Row 25 of docs/reference/faults.md.
#[test]
fn short_connections_leave_no_open_descriptor() {
    let (ioc, server) = ioc(1024);
    let ao = channel(server, "f:ao");
    ao.connect_timeout(PATIENCE).unwrap();
    let n_before = n_open_files(&ioc);

    for _ in 0..3000 {
        drop(TcpStream::connect(server).unwrap());
    }

    assert_eq!(ao.get_timeout(PATIENCE).unwrap().value, Value::from(-1.25));
    eventually("all descriptors are closed", || n_open_files(&ioc) == n_before);
}

// Row 75 of docs/reference/faults.md.
#[test]
fn an_ioc_with_too_few_descriptors_reports_an_error_and_exits() {
    for n_descriptors in [4, 6, 8] {
        let failure = printed_by("fodo ioc", &mut ioc_with(n_descriptors, free_port()), PATIENCE).unwrap_err();

        assert!(failure.contains("exit status: 1") && failure.contains("open files"), "{n_descriptors}: {failure}");
        assert!(!failure.contains("panicked"), "{n_descriptors}: {failure}");
    }
}

/// The command of an IOC with a limit of bash, whose `-u` counts threads.
fn ioc_limited(limit: &str, port: u16) -> Command {
    let mut command = Command::new("bash");
    command.args(["-c", "ulimit $1 $2; shift 2; exec \"$@\"", "bash"]).args(limit.split(' '));
    command.arg(program()).args(["ioc", "-m", "P=f:", "-d"]).arg(database("records.db"));
    command.args(["--interface", "127.0.0.1", "--port", &port.to_string()]);
    restrict_to_loopback(&mut command, port);
    command
}

// Row 75 of docs/reference/faults.md.
#[test]
fn an_ioc_with_too_few_threads_reports_an_error_and_exits() {
    // The number of threads of root is not limited.
    let unprivileged = ["--reuid=65534", "--regid=65534", "--clear-groups"];
    if !Command::new("setpriv").args(unprivileged).arg("true").status().is_ok_and(|status| status.success()) {
        return println!("not tested: switching to another user is not permitted");
    }
    for n_threads in [1, 2] {
        let limited = ioc_limited(&format!("-u {n_threads}"), free_port());
        let mut command = Command::new("setpriv");
        command.args(unprivileged).arg(limited.get_program()).args(limited.get_args());
        command.envs(limited.get_envs().filter_map(|(name, value)| Some((name, value?))));

        let failure = printed_by("fodo ioc", &mut command, PATIENCE).unwrap_err();

        assert!(failure.contains("exit status: 1") && failure.contains("temporarily unavailable"), "{failure}");
        assert!(!failure.contains("panicked"), "{failure}");
    }
}

// Row 75 of docs/reference/faults.md.
#[test]
fn an_ioc_with_little_memory_serves_or_reports_an_error_and_exits() {
    let mut n_ended = 0;
    // With less, the system cannot load the program, which has 22 MB.
    for kib in (22_000..44_000).step_by(2000) {
        let mut command = ioc_limited(&format!("-v {kib}"), free_port());
        let mut process = Process::start("fodo ioc", &mut command).unwrap();
        if let Err(failure) = process.wait_for_line_starting("fodo ioc: serving", PATIENCE) {
            let message = ["memory allocation", "temporarily unavailable", "Cannot allocate", "error while loading"];
            assert!(message.iter().any(|message| failure.contains(message)), "{kib} KiB: {failure}");
            assert!(!failure.contains("panicked"), "{kib} KiB: {failure}");
            n_ended += 1;
        }
    }
    assert!(n_ended > 0, "some limits are too low");
}

// Row 76 of docs/reference/faults.md.
#[test]
fn a_suspended_server_is_reported_unresponsive_and_used_again_after_it_resumes() {
    let (ioc, server) = ioc(1024);
    let ao = channel(server, "f:ao");
    let monitor = ao.monitor(MonitorOptions::default());
    while !matches!(monitor.next_timeout(PATIENCE), Some(MonitorEvent::Update(_))) {}

    ioc.signal(Signal::STOP).unwrap();
    let after_stop = monitor.next_timeout(PATIENCE);
    ioc.signal(Signal::CONT).unwrap();
    let after_resume = monitor.next_timeout(PATIENCE);

    assert_eq!((after_stop, after_resume), (Some(MonitorEvent::Unresponsive), Some(MonitorEvent::Responsive)));
    ao.put_timeout(3.5, PATIENCE).unwrap();
    assert!(
        matches!(monitor.next_timeout(PATIENCE), Some(MonitorEvent::Update(reading)) if reading.value == Value::from(3.5))
    );
}

// Row 76 of docs/reference/faults.md.
#[test]
fn a_suspended_monitor_receives_the_newest_value_after_it_resumes() {
    let (_ioc, server) = ioc(1024);
    let longout = channel(server, "f:longout");
    let mut monitor = Command::new(program());
    monitor.args(["monitor", "f:longout"]);
    restrict_to_loopback(&mut monitor, server.port());
    let mut monitor = Process::start("fodo monitor", &mut monitor).unwrap();
    monitor.wait_for_line_starting("f:longout", PATIENCE).unwrap();

    monitor.signal(Signal::STOP).unwrap();
    (0..2000).for_each(|value| longout.put_timeout(value, PATIENCE).unwrap());
    monitor.signal(Signal::CONT).unwrap();
    while !monitor.wait_for_line_starting("f:longout", PATIENCE).unwrap().ends_with(" 1999") {}
    longout.put_timeout(4711, PATIENCE).unwrap();

    assert!(monitor.wait_for_line_starting("f:longout", PATIENCE).unwrap().ends_with(" 4711"));
}

// Row 19 of docs/reference/faults.md.
#[test]
fn non_reading_fodo_clients_cause_no_memory_growth_in_softioc() {
    let server = TestServer::start(ServerProgram::SoftIoc).unwrap();
    let longout = channel(server.address(), &server.pv("longout"));
    // The first client reads but does not take its updates; the second does not even read.
    let unread = longout.monitor(MonitorOptions::default());
    let mut stopped = Command::new(program());
    stopped.arg("monitor").args(vec![server.pv("longout"); 50]);
    restrict_to_loopback(&mut stopped, server.port);
    let mut stopped = Process::start("fodo monitor", &mut stopped).unwrap();
    stopped.wait_for_line_starting(&server.pv("longout"), PATIENCE).unwrap();
    stopped.signal(Signal::STOP).unwrap();
    let write = |values: std::ops::Range<i32>| values.for_each(|value| longout.put_timeout(value, PATIENCE).unwrap());

    // Until the sockets of the second client are full: they hold some megabytes; this is twenty times as much.
    write(0..10_000);
    let before = server.resident_bytes().unwrap();
    write(10_000..30_000);
    let grown = server.resident_bytes().unwrap().saturating_sub(before);

    assert!(grown < 512 * 1024, "{grown} bytes for 50 times 20 000 updates that were not read");
    assert!(unread.counts().merged > 0, "updates are merged in the client, not in the server: {:?}", unread.counts());
    stopped.signal(Signal::CONT).unwrap();
    while !stopped.wait_for_line_starting(&server.pv("longout"), PATIENCE).unwrap().ends_with(" 29999") {}
}

// Row 62 of docs/reference/faults.md.
#[test]
fn an_ioc_serves_a_million_records() {
    const RECORDS: usize = 1_000_000;
    let file = std::env::temp_dir().join(format!("{}million.db", prefix().replace(':', "-")));
    let mut text = String::new();
    for number in 0..RECORDS {
        let next = (number + 1) % RECORDS;
        // Writing to a String never fails.
        let _ = writeln!(
            text,
            "record(calc, m{number}) {{ field(CALC, \"A+1\") field(INPA, m{next}) field(FLNK, m{next}) }}"
        );
    }
    std::fs::write(&file, text).unwrap();
    let port = free_port();
    let mut command = Command::new(program());
    command.args(["ioc", "--interface", "127.0.0.1", "--port", &port.to_string(), "-d"]).arg(&file);
    restrict_to_loopback(&mut command, port);

    let mut process = Process::start("fodo ioc", &mut command).unwrap();
    process.wait_for_line_starting("fodo ioc: serving", MILLION_PATIENCE).unwrap();
    std::fs::remove_file(&file).unwrap();

    let last = channel(SocketAddr::from((Ipv4Addr::LOCALHOST, port)), &format!("m{}.INPA", RECORDS - 1));
    assert_eq!(last.get_timeout(PATIENCE).unwrap().value, Value::from("m0 NPP NMS"));
    let n_bytes = n_resident_kib(&process) * 1024 / RECORDS;
    println!("{n_bytes} bytes per record");
    assert!(n_bytes < 4096, "{n_bytes} bytes per record");
}
