//! Tests the program as users and scripts run it.
#![forbid(unsafe_code)]

use std::process::Command;
use std::time::Duration;

use fodo_conformance::place::{free_port, prefix, program};
use fodo_conformance::process::{Process, printed_alone, printed_by, restrict_to_loopback};
use fodo_conformance::server::{ServerProgram, TestServer};
use rustix::process::Signal;

const WAIT_UNTIL_SERVING: &str = "\
serving() { until grep -q '^fodo ioc: serving' \"$1\"; do sleep 0.02; done; }
place=$(mktemp -d); trap 'rm -r \"$place\"' EXIT; cd \"$place\"
for name in one two; do echo \"record(ao, \\\"$name\\\") { field(VAL, \\\"1\\\") field(PINI, \\\"YES\\\") }\" > $name.db; done";

#[test]
fn a_client_finds_a_server_without_any_configuration() {
    let Some(printed) = printed_alone(&format!(
        "{WAIT_UNTIL_SERVING}
        fodo ioc one.db > log & serving log
        fodo put one 2.5 > /dev/null
        fodo get one"
    ))
    .unwrap() else {
        return;
    };

    assert!(printed.contains("one") && printed.contains("2.5"), "{printed}");
}

#[test]
fn two_iocs_on_one_host_are_both_found() {
    let Some(printed) = printed_alone(&format!(
        "{WAIT_UNTIL_SERVING}
        fodo ioc one.db > log1 & serving log1
        fodo ioc two.db > log2 & serving log2
        fodo put one 11 > /dev/null
        fodo put two 22 > /dev/null
        fodo get one two"
    ))
    .unwrap() else {
        return;
    };

    assert!(printed.contains("11") && printed.contains("22"), "{printed}");
}

#[test]
fn an_ioc_exits_with_status_0_on_int_and_term() {
    for signal in [Signal::INT, Signal::TERM] {
        let server = TestServer::start(ServerProgram::Fodo).unwrap();
        let status = server.stop(signal).unwrap();
        assert_eq!(status.code(), Some(0), "{signal:?}");
    }
}

#[test]
fn get_put_and_monitor_work_on_softioc() {
    let server = TestServer::start(ServerProgram::SoftIoc).unwrap();
    let run = |arguments: &[&str]| {
        let mut command = Command::new(program());
        command.args(arguments);
        restrict_to_loopback(&mut command, server.port);
        printed_by("fodo", &mut command, Duration::from_secs(15)).unwrap()
    };

    run(&["put", &server.pv("ao"), "2.25"]);
    let printed = run(&["get", "--json", &server.pv("ao"), &server.pv("mbbo")]);
    let lines: Vec<serde_json::Value> = printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0]["value"], 2.25);
    assert_eq!(lines[1]["value"], "one");
    assert_eq!(lines[1]["index"], 1);

    let mut monitor = Command::new(program());
    monitor.args(["monitor", "--json", &server.pv("count00")]);
    restrict_to_loopback(&mut monitor, server.port);
    let mut monitor = Process::start("fodo monitor", &mut monitor).unwrap();
    let mut values = Vec::new();
    while values.len() < 5 {
        let line: serde_json::Value = serde_json::from_str(&monitor.line(Duration::from_secs(15)).unwrap()).unwrap();
        values.extend(line["value"].as_f64());
    }
    assert!(values.windows(2).all(|pair| pair[0] + 1.0 == pair[1]), "{values:?}");
}

#[test]
fn getting_an_absent_name_exits_with_its_own_code() {
    let mut command = Command::new(program());
    command.args(["get", "-w", "0.3", &format!("{}nothing", prefix())]);
    restrict_to_loopback(&mut command, free_port());

    let failure = printed_by("fodo", &mut command, Duration::from_secs(10)).unwrap_err();
    assert!(failure.contains("exit status: 3"), "{failure}");
}
