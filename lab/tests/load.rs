//! Loads and their ledger as processes. The laboratory's workers are the calling program started
//! again, so this test is a program of its own: started as `lab ...` it is the laboratory.

use std::ffi::OsString;
use std::process::{Command, ExitCode};
use std::time::Instant;

type Test = (&'static str, fn());

const TESTS: [Test; 5] = [
    ("a_load_that_is_carried_leaves_nothing_unexplained", a_load_that_is_carried_leaves_nothing_unexplained),
    ("a_load_beyond_what_is_carried_is_merged_and_counted", a_load_beyond_what_is_carried_is_merged_and_counted),
    ("every_double_is_found_out", every_double_is_found_out),
    ("beside_a_stalled_client_the_others_get_everything", beside_a_stalled_client_the_others_get_everything),
    ("every_subscription_comes_back_with_its_server", every_subscription_comes_back_with_its_server),
];

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    if words.first().is_some_and(|word| word == "lab") {
        return fodo_lab::run(words.into_iter().skip(1));
    }
    let wanted = words.iter().filter_map(|word| word.to_str()).find(|word| !word.starts_with('-')).unwrap_or("");
    for (name, test) in TESTS.iter().filter(|(name, _)| name.contains(wanted)) {
        let start = Instant::now();
        test();
        println!("test {name} ... ok ({:.1} s)", start.elapsed().as_secs_f64());
    }
    ExitCode::SUCCESS
}

/// Runs a load; gives its row and whether it called itself right.
fn load(name: &str, words: &[&str]) -> (serde_json::Value, bool) {
    let path = std::env::temp_dir().join(format!("fodo-lab-load-{name}-{}.json", std::process::id()));
    let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
    command.args(["lab", "load", "fan-out", "--json"]).arg(&path).args(words);
    let output = command.output().expect("this program starts");
    let text = std::fs::read_to_string(&path).expect("the run has written its rows");
    std::fs::remove_file(&path).expect("it was just read");
    let file: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
    (file["rows"][0].clone(), output.status.success())
}

fn percentile(row: &serde_json::Value, per_cent: f64) -> f64 {
    let pairs = row["percentiles"].as_array().expect("a load has percentiles");
    let found = pairs.iter().find(|pair| pair[0].as_f64() == Some(per_cent));
    found.and_then(|pair| pair[1].as_f64()).expect("of that share too")
}

fn a_load_that_is_carried_leaves_nothing_unexplained() {
    let (row, is_right) = load("carried", &["--pvs", "20", "--subscriptions", "5", "--hz", "50", "--seconds", "1"]);

    assert!(is_right, "{row}");
    let ledger = &row["ledger"];
    assert_eq!(ledger["produced"], 20 * 5 * 50);
    assert_eq!(ledger["unexplained"], 0);
}

fn a_load_beyond_what_is_carried_is_merged_and_counted() {
    let words = ["--pvs", "50", "--subscriptions", "100", "--hz", "5000", "--seconds", "0.5"];

    let (row, is_right) = load("beyond", &words);

    assert!(is_right, "{row}");
    let ledger = &row["ledger"];
    assert!(ledger["merged_server"].as_u64() > Some(0), "{row}");
    assert_eq!(ledger["unexplained"], 0);
}

fn every_double_is_found_out() {
    let words = |double| ["--pvs", "10", "--subscriptions", "5", "--hz", "100", "--seconds", "1", "--double", double];

    for (double, fault) in
        [("drop", "unexplained"), ("reorder", "out of order"), ("duplicate", "duplicates"), ("lie", "values")]
    {
        let (row, is_right) = load(double, &words(double));
        let why = row["why"].as_str().unwrap_or_default();
        assert!(!is_right && row["verdict"] == "failed", "{double}: {row}");
        assert!(why.contains(fault), "{double}: {why}");
    }
    let (row, _) = load("delay", &words("delay"));
    assert!(percentile(&row, 0.0) >= 5e6, "{row}");
}

/// Runs a load for what it prints.
fn printed(words: &[&str]) -> String {
    let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
    let output = command.args(["lab", "load"]).args(words).output().expect("this program starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn beside_a_stalled_client_the_others_get_everything() {
    let words = ["stalled", "--pvs", "50", "--subscriptions", "5", "--hz", "100", "--seconds", "1"];

    assert!(printed(&words).contains("25000 of 25000 delivered"));
}

fn every_subscription_comes_back_with_its_server() {
    let table = printed(&["reconnect", "--pvs", "200", "--down-seconds", "0.1", "--repetitions", "1"]);

    assert!(table.lines().any(|line| line.trim_start().starts_with("200 ")), "{table}");
}
