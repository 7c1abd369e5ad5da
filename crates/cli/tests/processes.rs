//! `fodo ioc` and the client commands as real processes on loopback.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking, in its helpers as well")]

#[expect(dead_code, reason = "the other tests use the rest")]
mod support;

use std::io::Read as _;
use std::process::{Output, Stdio};
use std::sync::Arc;
use std::time::Instant;

use fodo_net::{PvTable, Server, ServerConfig, SharedPv};

use support::{COMPLETE, Ioc, Lines, PATIENCE, end_of, fodo, run, signal, text, wait, with_patience};

fn ioc() -> Ioc {
    Ioc::golden()
}

fn json_lines(output: &Output) -> Vec<serde_json::Value> {
    let lines = output.stdout.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| serde_json::from_slice(line).unwrap()).collect()
}

#[test]
fn the_ready_line_contains_the_record_count_and_address() {
    let ioc = ioc();

    assert!(ioc.ready.starts_with("fodo ioc: serving 33 records on 127.0.0.1:"), "{}", ioc.ready);
    assert!(ioc.ready.contains(" (CA"), "{}", ioc.ready);
    assert_ne!((ioc.tcp_port(), ioc.port), (0, 0));
}

#[test]
fn an_ioc_with_closed_stdin_exits_cleanly_on_sigterm_and_sigint() {
    for name in ["TERM", "INT"] {
        let mut ioc = ioc();

        signal(&ioc.child, name);

        assert_eq!(wait(&mut ioc.child).code(), Some(0), "{name}");
    }
}

#[test]
fn get_prints_many_pvs_in_argument_order() {
    let output = ioc().fodo(&["get", "--json", "g:ao", "g:bo", "g:string", "g:wf:double"]);

    let lines = json_lines(&output);
    let seen: Vec<_> = lines.iter().map(|line| (line["pv"].as_str().unwrap(), line["value"].to_string())).collect();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(
        seen,
        [
            ("g:ao", "1.5".to_owned()),
            ("g:bo", "\"Switched on\"".to_owned()),
            ("g:string", "\"two words\"".to_owned()),
            ("g:wf:double", "[1.0,2.5,-30000000000.0]".to_owned()),
        ]
    );
    assert_eq!((&lines[0]["units"], &lines[0]["count"]), (&"mm".into(), &1.into()));
    assert!(lines[0]["time"].as_str().unwrap().ends_with('Z'));
}

#[test]
fn get_prints_text_and_continues_after_a_missing_pv() {
    let ioc = ioc();
    let output = with_patience(
        |timeout| ioc.fodo(&["get", "-w", timeout, "g:ao", "g:gone", "g:major"]),
        |output| text(&output.stdout).contains("g:ao ") && text(&output.stdout).contains("g:major "),
    );

    let out = text(&output.stdout);
    assert_eq!(output.status.code(), Some(3));
    assert!(out.starts_with("g:ao     1.500 mm  2"), "{out}");
    assert!(out.contains("\ng:major  99        2"), "{out}");
    assert!(out.ends_with("MAJOR HIHI\n"), "{out}");
    assert!(text(&output.stderr).contains("\"g:gone\""));
}

#[test]
fn put_waits_for_completion_and_shows_old_and_new_value() {
    let ioc = ioc();

    let output = ioc.fodo(&["put", "--json", "g:target", "3.25"]);
    let quiet = ioc.fodo(&["put", "--quiet", "g:bo:target", "Switched on"]);
    let read = ioc.fodo(&["get", "--json", "g:target", "g:bo:target"]);

    let written = &json_lines(&output)[0];
    assert_eq!((&written["old"]["value"], &written["new"]["value"]), (&2.0.into(), &3.25.into()));
    assert_eq!((quiet.status.code(), quiet.stdout.len()), (Some(0), 0));
    let values: Vec<_> = json_lines(&read).iter().map(|line| line["value"].clone()).collect();
    assert_eq!(values, [serde_json::Value::from(3.25), "Switched on".into()]);
}

#[test]
fn put_distinguishes_an_invalid_value_from_a_refusal() {
    let ioc = ioc();

    let bad = ioc.fodo(&["put", "g:target", "words"]);
    let state = ioc.fodo(&["put", "g:bo:target", "Ajar"]);
    let refused = ioc.fodo(&["put", "g:ao.NAME", "other"]);

    assert_eq!(bad.status.code(), Some(6), "{}", text(&bad.stderr));
    assert_eq!(state.status.code(), Some(6), "{}", text(&state.stderr));
    assert!(text(&state.stderr).contains("the states are \"Off\", \"Switched on\""));
    assert_eq!(refused.status.code(), Some(5), "{}", text(&refused.stderr));
}

#[test]
fn info_shows_the_server_of_a_pv() {
    let ioc = ioc();

    let output = ioc.fodo(&["info", "--json", "g:wf:double", "g:bo"]);

    let lines = json_lines(&output);
    assert_eq!((&lines[0]["kind"], &lines[0]["count_max"]), (&"double".into(), &5.into()));
    assert_eq!((&lines[0]["record_type"], &lines[0]["write"]), (&"waveform".into(), &true.into()));
    assert_eq!((&lines[1]["kind"], &lines[1]["record_type"]), (&"enum".into(), &"bo".into()));
}

#[test]
fn monitor_prints_updates_and_ends_after_the_event_count_with_statistics() {
    let ioc = ioc();
    let mut command = fodo(ioc.port);
    command.args(["monitor", "--json", "--events", "3", "--stats", "g:target"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let lines = Lines::of(child.stdout.take().unwrap());
    let next_value = || loop {
        let line: serde_json::Value = serde_json::from_str(&lines.next()).unwrap();
        if line["event"] == "update" {
            return line["value"].as_f64().unwrap();
        }
    };

    let mut seen = vec![next_value()];
    for value in ["4", "5"] {
        assert_eq!(ioc.fodo(&["put", "-q", "g:target", value]).status.code(), Some(0));
        seen.push(next_value());
    }

    assert_eq!(seen, [2.0, 4.0, 5.0]);
    assert_eq!(wait(&mut child).code(), Some(0));
    let stats: serde_json::Value = serde_json::from_str(&lines.next()).unwrap();
    assert_eq!((&stats["event"], &stats["received"], &stats["merged"]), (&"stats".into(), &3.into(), &0.into()));
    assert_eq!((&stats["delivered"], &stats["n_disconnected"]), (&3.into(), &0.into()));
}

#[test]
fn monitor_exits_cleanly_on_sigint_and_after_its_duration() {
    let ioc = ioc();
    let mut child =
        fodo(ioc.port).args(["monitor", "g:ao"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let lines = Lines::of(child.stdout.take().unwrap());

    assert!(lines.next().contains("1.500 mm"));
    signal(&child, "INT");
    assert_eq!(wait(&mut child).code(), Some(0));

    let timed = with_patience(
        |duration| run(fodo(ioc.port).args(["monitor", "--for", duration, "g:ao"])),
        |output| text(&output.stdout).contains("1.500 mm"),
    );
    assert_eq!(timed.status.code(), Some(0));
    assert!(text(&timed.stdout).contains("1.500 mm"));
}

#[test]
fn a_second_signal_ends_a_program_that_cannot_stop_with_the_exit_code_of_that_signal() {
    let [sigint, sigterm] = [2, 15];
    let table = PvTable::from([("large", SharedPv::new(vec![0.5; 200_000]))]);
    let server = Server::start(ServerConfig::isolated(), Arc::new(table)).unwrap();
    let mut child = fodo(server.udp_port()).args(["monitor", "large"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut out = child.stdout.take().unwrap();
    // The pipe is smaller than the array, so the program is blocked in the middle of its output.
    assert!(out.read_exact(&mut [0; 1]).is_ok());

    signal(&child, "INT");
    signal(&child, "TERM");

    // If both wait to be delivered, the system decides which one is the second.
    let code = wait(&mut child).code();
    assert!([sigint, sigterm].map(|signal| Some(128 + signal)).contains(&code), "{code:?}");
}

#[test]
fn monitor_exits_cleanly_when_its_output_pipe_closes() {
    let ioc = ioc();
    let mut child = fodo(ioc.port)
        .args(["monitor", "--for", "20", "g:target"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    {
        let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
        std::io::BufRead::read_line(&mut out, &mut String::new()).unwrap();
    }

    assert_eq!(ioc.fodo(&["put", "-q", "g:target", "9"]).status.code(), Some(0));

    assert_eq!(wait(&mut child).code(), Some(0));
}

#[test]
fn a_database_uses_the_macros_given_before_it() {
    let directory =
        std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fodo-macros-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let file = directory.join("one.db");
    std::fs::write(&file, "record(ao, \"$(P)value\") { field(PINI, \"YES\") field(VAL, \"$(V=7)\") }\n").unwrap();

    let ioc =
        Ioc::with(|command| command.args(["-m", "P=a:,V=1", "-d"]).arg(&file).args(["-m", "P=b:", "-d"]).arg(&file));
    let output = ioc.fodo(&["get", "--json", "a:value", "b:value"]);

    std::fs::remove_dir_all(&directory).unwrap();
    let values: Vec<_> = json_lines(&output).iter().map(|line| line["value"].as_f64().unwrap()).collect();
    assert_eq!(values, [1.0, 7.0]);
}

#[test]
fn camonitor_prints_the_first_value_and_runs_until_a_signal() {
    let ioc = ioc();
    let mut child = fodo(ioc.port)
        .args(["camonitor", "-tn", "g:ao"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = Lines::of(child.stdout.take().unwrap());

    assert_eq!(lines.next(), format!("{:30}  1.5  ", "g:ao"));
    assert_eq!(child.try_wait().unwrap(), None);
    child.kill().unwrap();
    wait(&mut child);
}

#[test]
fn the_repeater_reports_its_port_rejects_a_second_one_and_exits_cleanly() {
    let start = |port: &str| {
        let mut command = fodo(9);
        command.args(["repeater", "--port", port]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let mut repeater = start("0");
    let ready = Lines::of(repeater.stdout.take().unwrap()).next();
    let (_, port) = ready.split_once("fodo repeater: on UDP ").unwrap();

    let second = end_of(start(port));
    signal(&repeater, "TERM");

    assert_eq!(second.status.code(), Some(1));
    assert!(text(&second.stderr).contains("already has a repeater"), "{}", text(&second.stderr));
    assert_eq!(wait(&mut repeater).code(), Some(0));
}

#[test]
fn every_tool_reports_duplicate_servers_of_a_name() {
    let (first, second) = (ioc(), ioc());
    let both = format!("127.0.0.1:{} 127.0.0.1:{}", first.port, second.port);
    let assert_reported = |words: &[&str], expected: &str| {
        let mut child = fodo(9).args(words).env("EPICS_CA_ADDR_LIST", &both).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stderr.take().unwrap()));
        assert!(lines.any(|line| line.unwrap().contains(expected)), "{words:?}");
        child.kill().unwrap();
        wait(&mut child);
    };

    assert_reported(&["monitor", "--for", "20", "g:ao"], "two servers have \"g:ao\"");
    assert_reported(&["camonitor", "g:ao"], "Identical process variable names on multiple servers");
}

#[test]
fn two_concurrent_get_processes_both_complete() {
    let ioc = ioc();
    let start = |pv: &str| {
        fodo(ioc.port).args(["get", "--json", pv]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };

    let (first, second) = (start("g:ao"), start("g:long"));

    assert_eq!(json_lines(&end_of(first))[0]["value"], 1.5);
    assert_eq!(json_lines(&end_of(second))[0]["value"], -42);
}

#[test]
fn why_distinguishes_a_missing_field_a_missing_record_and_a_served_one() {
    let ioc = ioc();
    let why = |pv: &str, verdict: &str| {
        let output = with_patience(
            |timeout| ioc.fodo(&["why", "-w", timeout, "--json", pv]),
            |output| text(&output.stdout).contains(verdict),
        );
        (output.status.code(), json_lines(&output).remove(0))
    };

    let served = why("g:ao", "nothing is wrong");
    let missing_field = why("g:ao.NOPE", "the record exists, but the field does not");
    let missing = why("g:nope", "");

    assert_eq!((served.0, &served.1["verdict"]), (Some(0), &"nothing is wrong".into()));
    assert_eq!(served.1["claims"][0]["server"], format!("127.0.0.1:{}", ioc.tcp_port()));
    assert_eq!(
        (missing_field.0, &missing_field.1["verdict"]),
        (Some(3), &"the record exists, but the field does not".into())
    );
    assert_eq!(missing.0, Some(3));
    assert_eq!(missing.1["claims"], serde_json::json!([]));
}

#[test]
fn top_shows_the_clients_of_an_ioc_with_status_pvs() {
    let database = support::golden("golden.db");
    let ioc = Ioc::with(|command| command.args(["--status-prefix", "t:ioc", "-d"]).arg(&database));
    let mut monitor = fodo(ioc.port).args(["monitor", "--json", "g:ao"]).stdout(Stdio::piped()).spawn().unwrap();
    let updates = Lines::of(monitor.stdout.take().unwrap());
    updates.next();
    // The status is refreshed every second. A thread of the server that is busy is left out of it.
    let start = Instant::now();
    let status = loop {
        let output = ioc.fodo(&["top", "--once", "-w", "20", "--json", "t:ioc"]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let status = json_lines(&output).remove(0);
        let clients = status["list"].as_array().unwrap();
        let is_listed = clients.iter().any(|client| client["subscriptions"] == 1);
        if is_listed && status["clients"].as_f64() == Some(clients.len() as f64) {
            break status;
        }
        assert!(start.elapsed() < PATIENCE, "{status}");
    };

    monitor.kill().unwrap();
    wait(&mut monitor);
    assert!(status["clients"].as_f64() >= Some(1.0), "{status}");
}

#[test]
fn an_ioc_reports_invalid_channel_access_messages_on_stderr() {
    let database = support::golden("golden.db");
    let arguments = ["--log-level", "info", "--log-format", "json", "-d"];
    let mut ioc = Ioc::with(|command| command.args(arguments).arg(&database).stderr(Stdio::piped()));
    let lines = Lines::of_stream(ioc.child.stderr.take().unwrap());

    let mut junk = std::net::TcpStream::connect(("127.0.0.1", ioc.tcp_port())).unwrap();
    std::io::Write::write_all(&mut junk, &[0xff; 64]).unwrap();

    let objects: Vec<serde_json::Value> = (0..3).map(|_| serde_json::from_str(&lines.next()).unwrap()).collect();
    assert_eq!(objects[0]["what"], COMPLETE.trim_end());
    assert_eq!((&objects[1]["level"], &objects[1]["what"]), (&"info".into(), &"a client has connected".into()));
    assert_eq!(objects[2]["level"], "warning", "{}", objects[2]);
    assert_eq!(objects[2]["peer"], junk.local_addr().unwrap().to_string());
}
