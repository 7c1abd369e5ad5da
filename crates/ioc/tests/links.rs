//! Links between IOCs, over the network.
#![expect(clippy::unwrap_used, reason = "a test that stops has said enough")]

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use fodo_ioc::{Ioc, Policy, RunningIoc};
use fodo_net::log::{Level, Log, LogLine};
use fodo_net::{Channel, ClientConfig, Context, ServerConfig, Severity};

use fodo_testing::free_port;

const PATIENCE: Duration = Duration::from_secs(30);

/// A temporary file, removed when dropped.
struct File(PathBuf);

impl File {
    fn new(text: &str) -> File {
        static N_FILES: AtomicU32 = AtomicU32::new(0);
        let number = N_FILES.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("fodo-links-{}-{number}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        File(path)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        std::fs::remove_file(&self.0).unwrap();
    }
}

fn load(db: &str) -> Ioc {
    Ioc::load(&[(File::new(db).0.clone(), String::new())]).unwrap()
}

fn config(port: u16) -> ServerConfig {
    ServerConfig { port, ..ServerConfig::isolated() }
}

fn at(ports: &[u16]) -> ClientConfig {
    let places = ports.iter().map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, *port)));
    ClientConfig { search_period_max: Duration::from_millis(200), ..ClientConfig::with_addresses(places.collect()) }
}

/// An IOC on that port, whose links search for PVs on other ports.
fn serve(db: &str, own: u16, others: &[u16]) -> RunningIoc {
    load(db).with_links(at(others)).serve(config(own)).unwrap()
}

/// The same on a free port, with its log.
fn serve_logged(db: &str, others: &[u16]) -> (RunningIoc, Receiver<LogLine>) {
    let (sender, lines) = mpsc::channel();
    // It fails only when the test has ended.
    let log = Log::new(Level::Info, move |line| sender.send(line.clone()).unwrap_or_default());
    (load(db).with_links(at(others)).serve_with_log(config(0), log).unwrap(), lines)
}

/// Waits for a line of a log.
fn until_logged(lines: &Receiver<LogLine>, beginning: &str) -> LogLine {
    loop {
        let line = lines.recv_timeout(PATIENCE).expect(beginning);
        if line.what.starts_with(beginning) {
            return line;
        }
    }
}

fn channel(ioc: &RunningIoc, name: &str) -> Channel {
    let channel = Context::new(at(&[ioc.udp_port()])).channel(name).unwrap();
    channel.connect_timeout(PATIENCE).unwrap();
    channel
}

fn number(channel: &Channel) -> f64 {
    channel.get_timeout(PATIENCE).unwrap().value.first().unwrap().to_f64().unwrap()
}

/// Waits until a PV has the value.
fn until(channel: &Channel, expected: f64) {
    until_so(channel, &format!("{expected}"), || number(channel) == expected);
}

fn until_so(channel: &Channel, expected: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "{} never is {expected}", channel.name());
        // Leaves the processor to what it waits for.
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn until_severity(channel: &Channel, expected: Severity) {
    let severity = || channel.get_timeout(PATIENCE).unwrap().alarm.severity;
    until_so(channel, &format!("{expected:?}"), || severity() == expected);
}

#[test]
fn a_cp_link_to_another_ioc_recovers_after_its_restart() {
    let far_port = free_port();
    let far_db = r#"record(ao, "x") { field(VAL, "1") field(PINI, "YES") }"#;
    let far = serve(far_db, far_port, &[]);
    let near = serve(r#"record(ai, "copy") { field(INP, "x CP MS") }"#, 0, &[far_port]);
    let (x, copy) = (channel(&far, "x"), channel(&near, "copy"));

    until(&copy, 1.0);
    x.put_timeout(2.0, PATIENCE).unwrap();
    until(&copy, 2.0);
    until_severity(&copy, Severity::None);

    far.stop().unwrap();
    until_severity(&copy, Severity::Invalid);
    assert_eq!(number(&copy), 2.0);

    let far = serve(far_db, far_port, &[]);
    until(&copy, 1.0);
    until_severity(&copy, Severity::None);
    channel(&far, "x").put_timeout(3.0, PATIENCE).unwrap();
    until(&copy, 3.0);
}

#[test]
fn a_record_that_awaits_a_deferred_put_does_not_wait_for_another_put() {
    let ioc = serve(
        r#"record(ao, "x") {}
        record(ao, "deferred") { field(DTYP, "Async Soft Channel") field(OUT, {pva:{pv:"x", defer:true}}) }
        record(ao, "direct") { field(OUT, {pva:"x"}) }"#,
        0,
        &[],
    );
    let [x, deferred, direct] = ["x", "deferred", "direct"].map(|name| channel(&ioc, name));

    // Until the link is connected, its record has an alarm.
    until_so(&deferred, "written", || {
        deferred.put_timeout(2.0, PATIENCE).unwrap();
        deferred.get_timeout(PATIENCE).unwrap().alarm.severity == Severity::None
    });

    assert_eq!(number(&x), 0.0);
    direct.put_timeout(3.0, PATIENCE).unwrap();
    until(&x, 3.0);
}

#[test]
fn a_lost_link_is_logged_with_field_pv_and_server_and_again_when_it_works() {
    let far_port = free_port();
    let far_db = r#"record(ao, "x") { field(VAL, "1") field(PINI, "YES") }"#;
    let far = serve(far_db, far_port, &[]);
    let server = SocketAddr::from((Ipv4Addr::LOCALHOST, far.tcp_port()));
    let (near, lines) = serve_logged(r#"record(ai, "copy") { field(INP, "x CP") }"#, &[far_port]);
    until(&channel(&near, "copy"), 1.0);

    far.stop().unwrap();
    let lost = until_logged(&lines, r#"link copy.INP to "x": the connection was lost"#);
    let _far = serve(far_db, far_port, &[]);
    let works = until_logged(&lines, r#"link copy.INP to "x" works again"#);

    assert_eq!((lost.level, lost.peer), (Level::Warning, Some(server)));
    assert_eq!(works.level, Level::Info);
}

#[test]
fn a_link_whose_server_denies_access_is_logged() {
    let rules = File::new("ASG(DEFAULT) { RULE(1, READ) } ASG(CLOSED) { RULE(1, NONE) }");
    let policy = Policy { access_file: Some((rules.0.clone(), String::new())), ..Policy::default() };
    let far =
        load(r#"record(ao, "secret") { field(ASG, "CLOSED") } record(ao, "fixed") {}"#).with_policy(policy).unwrap();
    let far = far.serve(config(0)).unwrap();
    let near_db = r#"record(ai, "copy") { field(INP, "secret CP") } record(ao, "out") { field(OUT, "fixed") }"#;

    let (_near, lines) = serve_logged(near_db, &[far.udp_port()]);

    let mut expected = vec![
        r#"link copy.INP to "secret": the server refuses reading: this client has no read access"#,
        r#"link out.OUT to "fixed": the server refuses writing: this client has no write access"#,
    ];
    while !expected.is_empty() {
        let line = lines.recv_timeout(PATIENCE).expect("both links are logged");
        expected.retain(|what| *what != line.what);
    }
}

#[test]
fn a_name_that_two_servers_have_is_logged_by_the_ioc_that_links_to_it() {
    let [one, other] = [1.0, 2.0].map(|value| serve(&format!("record(ao, x) {{ field(VAL, {value}) }}"), 0, &[]));

    let (_near, lines) =
        serve_logged(r#"record(ai, "copy") { field(INP, "x CP") }"#, &[one.udp_port(), other.udp_port()]);

    assert_eq!(until_logged(&lines, r#"two servers have "x": "#).level, Level::Warning);
}

#[test]
fn a_link_adapts_to_a_pv_that_reconnects_with_another_type() {
    let far_port = free_port();
    let far = serve(r#"record(ao, "x") { field(VAL, "1.5") field(PINI, "YES") }"#, far_port, &[]);
    let near =
        serve(r#"record(longin, "n") { field(INP, "x CP") } record(ao, "out") { field(OUT, "x") }"#, 0, &[far_port]);
    let (n, out) = (channel(&near, "n"), channel(&near, "out"));
    until(&n, 1.0);

    far.stop().unwrap();
    let far = serve(r#"record(stringout, "x") { field(VAL, "42") field(PINI, "YES") }"#, far_port, &[]);
    until(&n, 42.0);
    until_so(&out, "written", || {
        out.put_timeout(17.0, PATIENCE).unwrap();
        out.get_timeout(PATIENCE).unwrap().alarm.severity == Severity::None
    });

    until(&n, 17.0);
    assert_eq!(channel(&far, "x").get_timeout(PATIENCE).unwrap().value, "17.000000".into());
}

#[test]
fn output_and_forward_links_process_records_of_another_ioc() {
    let far_port = free_port();
    let far = serve(
        r#"record(ao, "y") { field(FLNK, "n") }
           record(calc, "n") { field(CALC, "VAL+1") }
           record(calc, "m") { field(CALC, "VAL+1") }
           record(calcout, "slow") { field(CALC, "A") field(ODLY, "0.3") field(OUT, "done PP") }
           record(ao, "done") {}"#,
        far_port,
        &[],
    );
    let near = serve(
        r#"record(ao, "out") { field(OUT, "y PP") field(FLNK, "m.PROC") }
           record(ao, "waits") { field(DTYP, "Async Soft Channel") field(OUT, "slow.A CA") field(VAL, "0") }
           record(calcout, "seen") { field(INPA, "y") field(INPB, "slow") field(OUT, "y") field(OOPT, "When Zero") field(CALC, "1") }"#,
        0,
        &[far_port],
    );
    let joined = |name: &str, field: &str| until(&channel(&near, &format!("{name}.{field}")), 1.0);
    joined("seen", "INAV");
    joined("seen", "INBV");
    joined("seen", "OUTV");
    let (out, waits) = (channel(&near, "out"), channel(&near, "waits"));
    let ok = |channel: &Channel, value: f64| {
        // Its own link may connect slightly later than the links that report it.
        until_so(channel, "written", || {
            channel.put_timeout(value, PATIENCE).unwrap();
            channel.get_timeout(PATIENCE).unwrap().alarm.severity == Severity::None
        });
    };

    ok(&out, 5.0);
    until(&channel(&far, "y"), 5.0);
    until_so(&out, "forwarded", || number(&channel(&far, "n")) >= 1.0 && number(&channel(&far, "m")) >= 1.0);
    ok(&waits, 7.0);
    assert_eq!(number(&channel(&far, "done")), 7.0);
}

#[test]
fn a_put_through_a_link_outlasts_the_operation_timeout_of_the_client() {
    let far_port = free_port();
    let far = serve(
        r#"record(calcout, "slow") { field(CALC, "A") field(ODLY, "0.3") field(OUT, "done PP") } record(ao, "done") {}"#,
        far_port,
        &[],
    );
    let client = ClientConfig { operation_timeout: Duration::from_millis(1), ..at(&[far_port]) };
    let db = r#"record(ao, "waits") { field(DTYP, "Async Soft Channel") field(OUT, "slow.A CA") }"#;
    let near = load(db).with_links(client).serve(config(0)).unwrap();
    let waits = channel(&near, "waits");

    // Until the link is connected, its record is INVALID.
    until_so(&waits, "written", || {
        waits.put_timeout(7.0, PATIENCE).unwrap();
        waits.get_timeout(PATIENCE).unwrap().alarm.severity == Severity::None
    });

    assert_eq!(number(&channel(&far, "done")), 7.0, "the put ends after the delay of its target");
}

#[test]
fn two_iocs_with_circular_links_use_bounded_resources_and_serve_clients() {
    let (one_port, other_port) = (free_port(), free_port());
    let one = serve(
        r#"record(calc, "a") { field(CALC, "A+1") field(INPA, "b CP") } record(ao, "free") {}"#,
        one_port,
        &[other_port],
    );
    let other = serve(r#"record(calc, "b") { field(CALC, "A+1") field(INPA, "a CP") }"#, other_port, &[one_port]);
    let (a, b, free) = (channel(&one, "a"), channel(&other, "b"), channel(&one, "free"));

    until_so(&a, "far", || number(&a) > 500.0 && number(&b) > 500.0);
    free.put_timeout(3.0, PATIENCE).unwrap();

    assert_eq!(number(&free), 3.0);
    let start = Instant::now();
    one.stop().unwrap();
    other.stop().unwrap();
    assert!(start.elapsed() < PATIENCE, "it takes {:?} to stop", start.elapsed());
}

#[test]
fn ten_thousand_links_connect_and_receive_updates() {
    const N: usize = 10_000;
    let far_port = free_port();
    let (mut far_db, mut near_db) = (String::new(), String::new());
    for index in 0..N {
        writeln!(far_db, "record(ao, x{index}) {{ field(VAL, {index}) field(PINI, YES) }}").unwrap();
        writeln!(near_db, "record(ai, c{index}) {{ field(INP, \"x{index} CP\") field(FLNK, n) }}").unwrap();
    }
    writeln!(near_db, "record(calc, n) {{ field(CALC, \"VAL+1\") }}").unwrap();
    let far = serve(&far_db, far_port, &[]);
    let near = serve(&near_db, 0, &[far_port]);
    let n = channel(&near, "n");

    until_so(&n, "all", || number(&n) >= N as f64);
    for index in [0, N / 2, N - 1] {
        until(&channel(&near, &format!("c{index}")), index as f64);
    }
    channel(&far, "x77").put_timeout(-1.0, PATIENCE).unwrap();
    until(&channel(&near, "c77"), -1.0);
}

#[test]
fn an_access_rule_with_an_external_input_applies_only_while_it_is_connected() {
    let far_port = free_port();
    let far = serve(r#"record(ao, "key") { field(VAL, "0") }"#, far_port, &[]);
    let rules = File::new(r#"ASG(DEFAULT) { INPA("key") RULE(1, READ) RULE(1, WRITE) { CALC("A=1") } }"#);
    let policy = Policy { access_file: Some((rules.0.clone(), String::new())), ..Policy::default() };
    let ioc = load(r#"record(ao, "x") {}"#).with_policy(policy).unwrap().with_links(at(&[far_port]));
    let near = ioc.serve(config(0)).unwrap();
    let (key, x) = (channel(&far, "key"), channel(&near, "x"));
    let may_write = || x.facts().unwrap().may_write;
    assert!(!may_write());

    key.put_timeout(1.0, PATIENCE).unwrap();
    until_so(&x, "open", may_write);
    for _ in 0..20 {
        assert!(near.reload_access().unwrap().is_empty());
        x.put_timeout(1.0, PATIENCE).expect("reloaded rules know the current values of their inputs");
    }

    far.stop().unwrap();
    until_so(&x, "closed", || !may_write());
}

// Row 57 of docs/reference/faults.md.
#[test]
fn a_link_that_is_rewritten_on_every_update_does_not_disturb_other_links() {
    let far_port = free_port();
    let far = serve(r#"record(ao, "x") { field(VAL, "1") field(PINI, "YES") } record(ao, "y") {}"#, far_port, &[]);
    // The target of `a`'s CP link processes it, which writes that link, and the new link delivers a value.
    let near = serve(
        r#"record(calc, "a") { field(INPA, "x CP") field(CALC, "VAL+1") field(FLNK, "again") }
           record(stringout, "again") { field(VAL, "x CP") field(OUT, "a.INPA") }
           record(ai, "other") { field(INP, "y CP") }"#,
        0,
        &[far_port],
    );
    let (a, other) = (channel(&near, "a"), channel(&near, "other"));

    until_so(&a, "far", || number(&a) > 200.0);
    channel(&far, "y").put_timeout(4.0, PATIENCE).unwrap();

    until(&other, 4.0);
    let n_channels: usize = far.clients().iter().map(|client| client.n_channels).sum();
    assert!(n_channels < 50, "{n_channels} channels for two links");
}

// Row 58 of docs/reference/faults.md.
#[test]
fn an_ioc_with_active_and_connecting_links_stops_quickly() {
    let (far_port, nowhere) = (free_port(), free_port());
    let mut db = String::new();
    for index in 0..2_000 {
        let pv = if index % 2 == 0 { "x" } else { "never" };
        writeln!(db, "record(calc, r{index}) {{ field(CALC, \"VAL+1\") field(SCAN, \".1 second\")").unwrap();
        writeln!(db, "field(INPA, \"{pv} CP\") field(FLNK, \"{pv}.PROC\") }}").unwrap();
    }
    let _far = serve(r#"record(ao, "x") {}"#, far_port, &[]);
    let near = serve(&db, 0, &[far_port, nowhere]);
    let first = channel(&near, "r0");
    until_so(&first, "running", || number(&first) > 5.0);

    let start = Instant::now();
    near.stop().unwrap();

    assert!(start.elapsed() < PATIENCE, "it takes {:?} to stop", start.elapsed());
}
