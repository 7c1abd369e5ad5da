//! Study 004 as processes. The laboratory's workers and its CLU are the calling program started again, so this test is a
//! separate program: started as `lab ...` it is the laboratory, as `clu serve ...` the server of that command, otherwise it
//! runs the tests below.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};

use fodo_clu::command::Serial;
use fodo_clu::keys::KeyFile;
use fodo_clu::server::CluServerConfig;
use fodo_vclu::{VcluConfig, VcluServer, VcluServerConfig};
use serde_json::{Value, json};

mod harness;

type Test = (&'static str, fn());

const TESTS: [Test; 4] = [
    ("every_question_of_study_004_has_rows_whose_sums_hold", every_question_of_study_004_has_rows_whose_sums_hold),
    ("each_lost_datagram_is_a_timeout_in_the_account", each_lost_datagram_is_a_timeout_in_the_account),
    ("a_clu_without_the_key_fails_its_rows_and_the_run", a_clu_without_the_key_fails_its_rows_and_the_run),
    ("arguments_of_other_suites_are_rejected", arguments_of_other_suites_are_rejected),
];

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let starts_with = |expected: &[&str]| words.iter().zip(expected).all(|(word, expected)| word == expected);
    if words.len() > 1 && starts_with(&["lab"]) {
        return fodo_lab::run(words.into_iter().skip(1));
    }
    if words.len() > 2 && starts_with(&["clu", "serve"]) {
        return serve(&words[2..]);
    }
    harness::run(TESTS, true)
}

/// The server of `fodo clu serve`, a command of another crate.
fn serve(words: &[OsString]) -> ExitCode {
    let [address, at, port, any, keys_option, keys, folder] = words else { panic!("{words:?}") };
    assert_eq!([address, at, port, any, keys_option], ["--address", "127.0.0.1", "--port", "0", "--keys"]);
    let keys = KeyFile::parse(&std::fs::read_to_string(keys).expect("the keys are readable")).expect("valid keys");
    if std::env::var_os("LAB_TEST_NO_CLU").is_some() {
        return ExitCode::FAILURE;
    }
    let server = CluServerConfig::new(Serial(1), Ipv4Addr::LOCALHOST, keys.project);
    let mut config = VcluServerConfig::new(VcluConfig::new(PathBuf::from(folder)), server);
    config.listen = (Ipv4Addr::LOCALHOST, 0).into();
    let server = VcluServer::start(config).expect("the CLU starts");
    println!("fodo clu serve: CLU 00000001 on {}, 17 objects, key in keys.json", server.address());
    loop {
        std::thread::park();
    }
}

fn this() -> PathBuf {
    std::env::current_exe().expect("this program has a path")
}

/// Runs the suite; returns its rows, the tables in Markdown and whether the run succeeded.
fn run(name: &str, words: &[&str], variables: &[(&str, &str)]) -> (Vec<Value>, String, bool) {
    let folder = std::env::temp_dir().join(format!("fodo-lab-clu-test-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a temporary folder");
    let json = folder.join("run.json");
    let mut command = Command::new(this());
    command.args(["lab", "run", "clu", "--short", "--json"]).arg(&json).arg("--report").arg(&folder).args(words);
    let output = command.envs(variables.iter().copied()).output().expect("this program starts");
    let text = std::fs::read_to_string(&json).unwrap_or_else(|why| panic!("{why}: {output:?}"));
    let markdown = std::fs::read_to_string(folder.join("clu.md")).expect("the report");
    let page = std::fs::read_to_string(folder.join("clu.html")).expect("the page");
    std::fs::remove_dir_all(&folder).expect("the folder is removed");
    let result: Value = serde_json::from_str(&text).expect("the result is JSON");
    assert_eq!((&result["schema"], &result["suite"]), (&json!("fodo-lab/4"), &json!("clu")));
    assert!(page.contains("Study 004"));
    (result["rows"].as_array().expect("rows").clone(), markdown, output.status.success())
}

fn every_question_of_study_004_has_rows_whose_sums_hold() {
    let (rows, markdown, is_right) = run("all", &["--seconds", "1.2"], &[]);

    let texts: Vec<String> = rows
        .iter()
        .map(|row| format!("{} {} {} {}", row["question"], row["client"], row["server"], row["point"]))
        .collect();
    let expected = [
        r#""C1" "raw" "raw" 64"#,
        r#""C1" "aes" "aes" 64"#,
        r#""C1" "fodo" "fodo" 64"#,
        r#""C2" "raw" "raw" 64"#,
        r#""C2" "aes" "aes" 64"#,
        r#""C2" "fodo" "fodo" 64"#,
        r#""C3" "raw" "raw" 1"#,
        r#""C3" "aes" "aes" 1"#,
        r#""C3" "fodo" "fodo" 1"#,
        r#""C4" "generator" "raw" 64"#,
        r#""C4" "generator" "aes" 64"#,
        r#""C4" "generator" "fodo" 64"#,
        r#""C5" "fodo" "fodo" 10"#,
        r#""C5" "fodo" "fodo" 50"#,
        r#""C5" "fodo" "fodo" 80"#,
        r#""C5" "fodo" "fodo" 120"#,
        r#""C6" "fodo" "fodo" 1000"#,
    ];
    assert_eq!(texts, expected);
    for row in &rows {
        assert_eq!((&row["verdict"], &row["clu"]["unexplained"]), (&json!("measured"), &json!(0)), "{row}");
        let (account, ledger) = (&row["clu"]["account"], &row["ledger"]);
        if row["question"] == "C6" {
            assert!(ledger["delivered"] == ledger["produced"] && ledger["produced"].as_u64() > Some(0), "{row}");
            continue;
        }
        let count = |name: &str| account[name].as_u64().expect("a count");
        assert_eq!(count("sent"), count("answered") + count("timed_out"), "{row}");
        assert_eq!((count("wrong"), count("refused")), (0, 0), "{row}");
        assert!(count("answered") > 0 && row["clu"]["cpu_us"]["server"].as_f64() > Some(0.0), "{row}");
        let n_samples = row["samples"].as_array().map(Vec::len);
        assert_eq!(n_samples, Some(if row["question"] == "C5" { 1 } else { 3 }), "{row}");
    }
    assert!(markdown.contains("| requests, repetition 1 | 86693 | 280565 |"), "{markdown}");
    assert!(markdown.contains("| median | 100594.5 | 292545.5 |"), "{markdown}");
    assert!(markdown.contains("| messages per second | 1676 | 4875 |"), "{markdown}");
    assert!(is_right);
}

fn a_clu_without_the_key_fails_its_rows_and_the_run() {
    let (rows, markdown, is_right) =
        run("none", &["--seconds", "0.6", "--question", "C3"], &[("LAB_TEST_NO_CLU", "1")]);

    let verdicts: Vec<&str> = rows.iter().filter_map(|row| row["verdict"].as_str()).collect();
    assert_eq!(verdicts, ["measured", "measured", "failed"]);
    assert!(markdown.contains("fodo \u{2192} fodo: "), "{markdown}");
    assert!(!is_right);
}

fn arguments_of_other_suites_are_rejected() {
    for words in [
        &["run", "clu", "--client", "fodo"][..],
        &["run", "clu", "--question", "N1"],
        &["run", "quick", "--opengr8ton", "."],
    ] {
        let output = Command::new(this()).arg("lab").args(words).output().expect("this program starts");

        assert_eq!(output.status.code(), Some(2), "{words:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("the suite clu"), "{output:?}");
    }
}

/// A worker of the laboratory; it ends when dropped.
struct WorkerProcess(Child);

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn worker(words: &[&str]) -> (WorkerProcess, ChildStdin, impl Iterator<Item = String> + use<>) {
    let mut command = Command::new(this());
    command.args(["lab", "worker"]).args(words).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("this program starts");
    let stdin = child.stdin.take().expect("standard input is piped");
    let lines = BufReader::new(child.stdout.take().expect("standard output is piped")).lines().map_while(Result::ok);
    (WorkerProcess(child), stdin, lines)
}

fn each_lost_datagram_is_a_timeout_in_the_account() {
    let (_echo, _open, mut lines) = worker(&["serve-clu-echo", "--encrypts", "--lose-every", "10"]);
    let port = lines.next().and_then(|line| line.rsplit(' ').next().map(str::to_owned)).expect("the port of the echo");
    let server = format!("127.0.0.1:{port}");
    let words = ["drive-clu", "--server", &server, "--client", "aes", "--reply", "same", "--timeout-ms", "50"];
    let (_driver, mut requests, mut replies) = worker(&words);
    let ready = replies.next();

    let request = json!({"closed": {"n_threads": 4, "n_in_flight": 2, "warm_up_ms": 0, "duration_ms": 500}});
    writeln!(requests, "{request}").expect("the worker accepts requests");
    let reply: Value = serde_json::from_str(&replies.next().expect("a reply")).expect("a reply is JSON");

    assert_eq!(ready.as_deref(), Some("clu client ready"));
    let account = &reply["requests"]["account"];
    let count = |name: &str| account[name].as_u64().expect("a count");
    assert!(count("timed_out") > 0 && count("timed_out") >= count("sent") / 10, "{reply}");
    assert_eq!(count("sent"), count("answered") + count("timed_out"), "{reply}");
    let latencies = reply["requests"]["latencies"].as_array().expect("latencies");
    assert_eq!(latencies.iter().filter_map(|pair| pair[1].as_u64()).sum::<u64>(), count("answered"));
}
