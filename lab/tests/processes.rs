//! The laboratory as processes. Its workers are the calling program started again, so this test is a separate program:
//! started as `lab ...` it is the laboratory, otherwise it runs the tests below.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

mod harness;

type Test = (&'static str, fn());

const TESTS: [Test; 6] = [
    ("a_driver_speaks_the_protocol_line_by_line", a_driver_speaks_the_protocol_line_by_line),
    ("a_program_that_is_launched_ends_with_who_launched_it", a_program_that_is_launched_ends_with_who_launched_it),
    ("a_server_that_cannot_start_fails_its_rows_and_the_run", a_server_that_cannot_start_fails_its_rows_and_the_run),
    ("a_run_that_is_killed_goes_on_where_it_was", a_run_that_is_killed_goes_on_where_it_was),
    ("caprotos_server_is_measured", caprotos_server_is_measured),
    (
        "libca_and_softioc_are_measured_and_every_value_is_right",
        libca_and_softioc_are_measured_and_every_value_is_right,
    ),
];

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    if words.first().is_some_and(|word| word == "lab") {
        return fodo_lab::run(words.into_iter().skip(1));
    }
    if words.first().is_some_and(|word| word == "ioc") {
        return ExitCode::FAILURE;
    }
    harness::run(TESTS, true)
}

/// This program as the laboratory; it ends when dropped.
struct Lab(Child);

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn lab(words: &[&str]) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
    command.arg("lab").args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    command
}

fn start(words: &[&str]) -> (Lab, ChildStdin, impl Iterator<Item = String> + use<>) {
    let mut child = lab(words).spawn().expect("this program starts");
    let stdin = child.stdin.take().expect("standard input is piped");
    let lines = BufReader::new(child.stdout.take().expect("standard output is piped")).lines().map_while(Result::ok);
    (Lab(child), stdin, lines)
}

fn a_driver_speaks_the_protocol_line_by_line() {
    let (_server, _open, mut output) = start(&["worker", "serve-raw", "127.0.0.1"]);
    let port = output.next().and_then(|line| line.rsplit(' ').next().map(str::to_owned)).expect("the server's port");
    let (_driver, mut requests, mut answers) = start(&["worker", "drive-raw", &format!("127.0.0.1:{port}")]);
    let hello = answers.next();
    let mut exchange = |text: &str| -> Value {
        writeln!(requests, "{text}").expect("the driver accepts requests");
        serde_json::from_str(&answers.next().expect("an answer")).expect("an answer is JSON")
    };

    let hello = hello.expect("the driver sends a greeting");
    let opened = exchange(r#"{"open":{"pv":"any","n_channels":3}}"#);
    let scalars = exchange(r#"{"get_scalars":{"n":10}}"#);
    let moved = exchange(r#"{"move_array":{"n_elements":5000,"salt":7,"n_gets":2}}"#);
    let nonsense = exchange("nonsense");

    assert!(hello.contains("\"client\":\"raw socket\""), "{hello}");
    assert_eq!(opened["opened"]["n_channels"], json!(3));
    assert_eq!(scalars["scalars"]["latencies_ns"].as_array().map(Vec::len), Some(10));
    assert_eq!(moved["array"]["n_elements"], json!(5000));
    assert_eq!(nonsense["failed"]["protocol"]["line"], json!("nonsense"));
}

/// Only Linux supports this.
fn a_program_that_is_launched_ends_with_who_launched_it() {
    if !cfg!(target_os = "linux") {
        return;
    }
    let parent = std::process::id().to_string();

    // For the kernel, the parent is the thread that started the process, which ends once the process runs.
    let starter = std::thread::spawn(move || {
        let words = ["worker", "launch", "--parent", &parent, "--", "sh", "-c", "echo up; sleep 3600"];
        let (launched, _stdin, mut output) = start(&words);
        assert_eq!(output.next().as_deref(), Some("up"));
        launched
    });
    let mut launched = starter.join().expect("it starts");

    let deadline = Instant::now() + Duration::from_secs(10);
    while launched.0.try_wait().expect("the child can be polled").is_none() {
        assert!(Instant::now() < deadline, "the process outlived the thread that started it");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// As a server (`ioc`), this program ends at once.
fn a_server_that_cannot_start_fails_its_rows_and_the_run() {
    let words = "run quick --repetitions 5 --client fodo --server fodo --question Q16 --question Q17 --json -";

    let output = lab(&words.split(' ').collect::<Vec<_>>()).output().expect("this program starts");

    let run: Value = serde_json::from_slice(&output.stdout).expect("the run as JSON");
    let rows = run["rows"].as_array().expect("rows");
    assert_eq!(output.status.code(), Some(1));
    for row in rows.iter().filter(|row| row["series"] != "two hosts") {
        let expected = if row["server"] == "raw" { "measured" } else { "failed" };
        assert_eq!(row["verdict"], expected, "{row}");
        assert_eq!(row["median"].is_null(), expected == "failed", "{row}");
    }
}

fn has_peers() -> bool {
    let list = lab(&["list"]).output().expect("this program starts");
    let has_peers = String::from_utf8_lossy(&list.stdout).contains("libca and softIoc of EPICS Base");
    if !has_peers {
        println!("  not tested: the peers are missing; `fodo lab run quick` installs them, FODO_PEERS selects others");
    }
    has_peers
}

fn a_run_that_is_killed_goes_on_where_it_was() {
    if !has_peers() {
        return;
    }
    let directory = std::env::temp_dir().join(format!("fodo-lab-killed-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory");
    let (json, journal) = (directory.join("run.json"), directory.join("run.json.journal"));
    let words = format!(
        "run quick --repetitions 5 --client libca --server soft-ioc --question Q4 --question Q17 --report {} --json {}",
        directory.display(),
        json.display()
    );
    let words: Vec<&str> = words.split(' ').collect();
    // Each completed task is a line with its key.
    let tasks = || -> Vec<Value> {
        let text = std::fs::read_to_string(&journal).unwrap_or_default();
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.filter(|line| line["task"].is_object()).collect()
    };

    let mut killed = Lab(lab(&words).spawn().expect("this program starts"));
    let deadline = Instant::now() + Duration::from_secs(60);
    while tasks().iter().filter(|line| line["task"]["key"].as_str().is_some_and(|key| key.contains("libca"))).count()
        < 3
    {
        assert!(Instant::now() < deadline, "no task is completed");
        assert!(killed.0.try_wait().expect("the child can be polled").is_none(), "the run ended too early");
        std::thread::sleep(Duration::from_millis(10));
    }
    killed.0.kill().expect("the run can be killed");
    killed.0.wait().expect("the run has ended");
    let before = tasks();
    let resumed = lab(&[words, vec!["--resume"]].concat()).output().expect("this program starts");

    assert!(resumed.status.success(), "{}", String::from_utf8_lossy(&resumed.stderr));
    let run: Value = serde_json::from_slice(&std::fs::read(&json).expect("the result is written")).expect("JSON");
    let samples: Vec<f64> =
        run["rows"].as_array().expect("rows").iter().flat_map(|row| floats(&row["samples"])).collect();
    for line in before.iter().filter(|line| line["task"]["outcome"]["measured"].is_object()) {
        let ns = line["task"]["outcome"]["measured"]["ns"].as_f64().expect("a time");
        assert!(samples.contains(&ns), "{ns} was measured again: {line}");
    }
    for row in run["rows"].as_array().expect("rows").iter().filter(|row| row["verdict"] == "measured") {
        assert!(floats(&row["samples"]).len() == 5 || row["why"].is_string(), "{row}");
    }
    assert!(!journal.exists());
    std::fs::remove_dir_all(directory).expect("the directory is removed");
}

fn caprotos_server_is_measured() {
    if !has_peers() {
        return;
    }
    let words = "run quick --client fodo --server caproto --question Q16 --question Q17 \
                 --require-peers --json -";

    let output = lab(&words.split_whitespace().collect::<Vec<_>>()).output().expect("this program starts");

    let run: Value = serde_json::from_slice(&output.stdout).expect("the run as JSON");
    assert!(output.status.success(), "{run}");
    let of_caproto: Vec<&Value> =
        run["rows"].as_array().expect("rows").iter().filter(|row| row["server"] == "caproto").collect();
    assert!(["Q16", "Q17"].iter().all(|question| of_caproto.iter().any(|row| row["question"] == *question)));
    for row in of_caproto {
        assert_eq!(row["verdict"], "measured", "{row}");
    }
}

fn floats(values: &Value) -> Vec<f64> {
    values.as_array().into_iter().flatten().filter_map(Value::as_f64).collect()
}

fn libca_and_softioc_are_measured_and_every_value_is_right() {
    if !has_peers() {
        return;
    }
    let words = "run quick --repetitions 5 --elements-max 10000 --client libca --server soft-ioc --require-peers \
                 --question Q4 --question Q16 --question Q17 --question Q19 --question Q20 --question Q21 --json -";

    let output = lab(&words.split_whitespace().collect::<Vec<_>>()).output().expect("this program starts");

    let run: Value = serde_json::from_slice(&output.stdout).expect("the run as JSON");
    assert!(output.status.success(), "{run}");
    let of_libca = run["rows"]
        .as_array()
        .expect("rows")
        .iter()
        .filter(|row| row["client"] == "libca")
        // Two hosts may not be permitted on this machine.
        .filter(|row| row["series"] != "two hosts");
    for row in of_libca.clone() {
        assert_eq!(row["verdict"], "measured", "{row}");
        // A repetition that exceeded its time limit on a busy machine is reported.
        assert!(row["samples"].as_array().map(Vec::len) == Some(5) || row["why"].is_string(), "{row}");
    }
    assert!(of_libca.count() > 0);
    let libca = run["peers"].as_array().expect("peers").iter().find(|peer| peer["name"] == "libca");
    assert!(libca.is_some_and(|libca| libca["version"].as_str().is_some_and(|text| text.contains("protocol 4."))));
}
