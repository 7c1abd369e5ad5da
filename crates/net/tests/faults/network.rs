//! Networks that are full or interrupted: two hosts on one machine, if the system permits tests to create them.

use std::ffi::OsStr;
use std::io::Read as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd as _;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fodo_net::{ClientConfig, Context, Monitor, MonitorEvent, MonitorOptions, Quotas, Reading, Server, ServerConfig};
use fodo_testing::eventually;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::PATIENCE;
use crate::cell::{Cell, Table, number, quiet};

/// The addresses of the servers' host and the clients' host. Source: RFC 5737, addresses for documentation.
const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const CLIENT: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);

/// A separate network namespace, which exists while a process in it runs; identified by the process id.
struct Host(u32);

impl Host {
    /// Creates a namespace; also returns its process, which ends when its input is closed.
    fn new() -> Result<(Host, Child), String> {
        let own = std::fs::read_link("/proc/self").map_err(|why| why.to_string())?;
        if own.to_str() != Some(&std::process::id().to_string()) {
            return Err("/proc is that of another namespace, so that no host is found in it".to_owned());
        }
        let mut command = Command::new("unshare");
        // It writes a line when it is ready.
        command.args(["--net", "sh", "-c", "echo; exec cat"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::null()).spawn().map_err(|why| why.to_string())?;
        let mut said = [0; 1];
        let is_there = child.stdout.as_mut().is_some_and(|out| out.read_exact(&mut said).is_ok());
        if is_there { Ok((Host(child.id()), child)) } else { Err("network namespaces are not permitted here".into()) }
    }

    fn name_space(&self) -> String {
        format!("/proc/{}/ns/net", self.0)
    }

    /// Runs code on this host: sockets opened and threads started meanwhile stay on it.
    fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let name_space = std::fs::File::open(self.name_space()).unwrap();
        std::thread::scope(|scope| {
            let there = scope.spawn(move || {
                move_into_link_name_space(name_space.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
                work()
            });
            there.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// A command that runs on this host.
    fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.name_space())).arg(program);
        command
    }

    fn does(&self, words: &str) -> Result<(), String> {
        let mut words = words.split(' ');
        let program = words.next().unwrap_or_default();
        let output = self.command(program).args(words).output().map_err(|why| why.to_string())?;
        if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
    }
}

/// Two hosts on one wire.
struct Wire {
    server: Host,
    client: Host,
}

/// The variable that passes the numbers of both hosts to the process on the clients' host.
const HOSTS: &str = "FODO_TEST_HOSTS";

/// Creates two hosts and runs this test again on the clients' host, where it does its work. All clients of a process
/// share a thread, so they cannot be on several hosts.
fn on_a_wire(test: &str, work: impl FnOnce(&Wire)) {
    if let Ok(numbers) = std::env::var(HOSTS) {
        let mut hosts = numbers.split(' ').map(|number| Host(number.parse().unwrap()));
        return work(&Wire { server: hosts.next().unwrap(), client: hosts.next().unwrap() });
    }
    let (wire, mut processes) = match made() {
        Ok(made) => made,
        // A system that does not permit this is not a failure of the test.
        Err(why) => return println!("not tested: {why}"),
    };
    let again = std::env::current_exe().unwrap();
    let mut command = wire.client.command(again);
    command.args(["--exact", &format!("network::{test}"), "--nocapture"]);
    let status = command.env(HOSTS, format!("{} {}", wire.server.0, wire.client.0)).status().unwrap();
    for process in &mut processes {
        // It has ended, or ends when its input is closed.
        let _ = process.kill();
        let _ = process.wait();
    }
    assert!(status.success(), "{status}");
}

fn made() -> Result<(Wire, [Child; 2]), String> {
    let ((server, at_server), (client, at_client)) = (Host::new()?, Host::new()?);
    server.does(&format!("ip link add wire netns {} type veth peer name wire netns {}", server.0, client.0))?;
    for (host, own) in [(&server, SERVER), (&client, CLIENT)] {
        host.does(&format!("ip address add {own}/30 dev wire"))?;
        host.does("ip link set lo up")?;
        host.does("ip link set wire up")?;
    }
    Ok((Wire { server, client }, [at_server, at_client]))
}

impl Wire {
    fn serve(&self, table: &Arc<Table>, quotas: Quotas) -> Server {
        let config = ServerConfig { interfaces: vec![SERVER], quotas, ..quiet() };
        self.server.run(|| Server::start(config, table.clone()).unwrap())
    }

    /// A monitor of a separate client.
    fn monitor(&self, server: &Server, pv: &str) -> Monitor {
        let at = SocketAddr::from((SERVER, server.udp_port()));
        let config = ClientConfig { echo_after: Duration::from_secs(1), ..ClientConfig::with_addresses(vec![at]) };
        let monitor = Context::new(config).channel(pv).unwrap().monitor(MonitorOptions::default());
        until(&monitor, |_| true);
        monitor
    }
}

/// Waits for an update.
fn until(monitor: &Monitor, is_expected: impl Fn(&Reading) -> bool) {
    loop {
        match monitor.next_timeout(PATIENCE) {
            Some(MonitorEvent::Update(reading)) if is_expected(&reading) => return,
            Some(_) => {}
            None => unreachable!("no update is received"),
        }
    }
}

/// The next event of a monitor that is not an update.
fn next_other_event(monitor: &Monitor) -> Option<MonitorEvent> {
    let start = Instant::now();
    while start.elapsed() < 2 * PATIENCE {
        match monitor.next_timeout(PATIENCE) {
            Some(MonitorEvent::Update(_)) | None => {}
            other => return other,
        }
    }
    None
}

// Row 27 of docs/reference/faults.md.
#[test]
fn a_broken_link_is_detected_on_both_sides_and_recovers() {
    on_a_wire("a_broken_link_is_detected_on_both_sides_and_recovers", cut);
}

fn cut(wire: &Wire) {
    let silence = Duration::from_secs(3);
    let table = Table::of([("idle", Cell::new(1.5)), ("busy", Cell::new(0.0))]);
    let server = wire.serve(&table, Quotas { silence, ..Quotas::default() });
    let monitors = ["idle", "busy"].map(|pv| wire.monitor(&server, pv));

    wire.client.does("ip link set wire down").unwrap();
    let start = Instant::now();
    eventually("both circuits are closed", || {
        table.0["busy"].set(start.elapsed().as_secs_f64());
        std::thread::sleep(Duration::from_millis(10));
        !table.0["idle"].has_listeners() && !table.0["busy"].has_listeners()
    });
    let took = start.elapsed();
    let events_of_cut = monitors.each_ref().map(next_other_event);
    wire.client.does("ip link set wire up").unwrap();
    eventually("both subscriptions exist", || table.0["idle"].has_listeners() && table.0["busy"].has_listeners());
    table.0["busy"].set(-1.0);

    assert!(took >= silence.mul_f64(0.8), "{took:?}: not before its time");
    assert_eq!(events_of_cut, [Some(MonitorEvent::Unresponsive), Some(MonitorEvent::Unresponsive)]);
    until(&monitors[1], |reading| number(reading) == -1.0);
}

/// Bytes that each of several monitors received in a second of a given load, and of what was on the way after its end if
/// the wire carries it.
fn loaded(table: &Table, monitors: &[Monitor], (per_second, is_carried): (u32, bool), last: &mut f64) -> Vec<usize> {
    const SECONDS: u32 = 3;
    let before: Vec<u64> = monitors.iter().map(|monitor| monitor.counts().received).collect();
    let start = Instant::now();
    for step in 0..SECONDS * per_second {
        *last += 1.0;
        table.0["image"].set(vec![*last; ELEMENTS]);
        // The load is a rate, so the wire gets the time that it needs.
        std::thread::sleep(
            (start + step * Duration::from_secs(1) / per_second).saturating_duration_since(Instant::now()),
        );
    }
    if is_carried {
        monitors.iter().for_each(|monitor| until(monitor, |reading| number(reading) == *last));
    }
    let received = monitors.iter().zip(before).map(|(monitor, before)| monitor.counts().received - before);
    received.map(|n| n as usize * ELEMENTS * 8 / SECONDS as usize).collect()
}

const ELEMENTS: usize = 5000;

// Row 50 of docs/reference/faults.md.
#[test]
fn a_saturated_link_is_shared_fairly_and_every_update_is_counted() {
    on_a_wire("a_saturated_link_is_shared_fairly_and_every_update_is_counted", fill);
}

fn fill(wire: &Wire) {
    const WIRE_BYTES: usize = 64_000_000 / 8;
    const N_CLIENTS: usize = 4;
    let limit = "tc qdisc add dev wire root tbf rate 64mbit burst 64kb latency 50ms";
    if let Err(why) = wire.server.does(limit) {
        return println!("not tested: {why}");
    }
    let table = Table::of([("image", Cell::new(vec![0.0; ELEMENTS]))]);
    let server = wire.serve(&table, Quotas::default());
    let monitors: Vec<Monitor> = (0..N_CLIENTS).map(|_| wire.monitor(&server, "image")).collect();
    let mut last = 0.0;

    let ladder: Vec<Vec<usize>> =
        [(25, true), (100, false), (400, false)].map(|load| loaded(&table, &monitors, load, &mut last)).into();
    let n_before: Vec<u64> = monitors.iter().map(|monitor| monitor.counts().received).collect();
    for monitor in &monitors {
        until(monitor, |reading| number(reading) == last);
    }
    let n_late: Vec<u64> =
        monitors.iter().zip(n_before).map(|(monitor, n_before)| monitor.counts().received - n_before).collect();

    println!("{ladder:?} bytes per second, then {n_late:?} updates to the newest");
    let [below, ..] = ladder.as_slice() else { unreachable!() };
    let offered = 25 * ELEMENTS * 8;
    assert!(below.iter().all(|&bytes| bytes > offered * 8 / 10), "{below:?} of {offered} each");
    for full in &ladder[1..] {
        let sum: usize = full.iter().sum();
        assert!(sum > WIRE_BYTES * 6 / 10, "{sum}: no collapse");
        assert!(full.iter().all(|&bytes| bytes > sum / N_CLIENTS / 3), "{full:?}: fair shares");
    }
    // As many as the buffers hold. Most posts would still have to be sent if later ones did not replace them.
    assert!(n_late.iter().all(|&n_late| n_late < last as u64 / 4), "{n_late:?} updates of {last} to the newest");
    let (counts, n_posted) = (server.update_counts(), last as u64);
    assert_eq!(counts.sent + counts.merged, n_posted * N_CLIENTS as u64);
    let received: u64 = monitors.iter().map(|monitor| monitor.counts().received).sum();
    assert_eq!(received, counts.sent + N_CLIENTS as u64);
}
