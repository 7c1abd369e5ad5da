//! Measures and compares runs of one client, and a run of a client slowed down. Workers are the calling program started
//! again, so this test is a separate program: started as `lab ...` it is the laboratory.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output, Stdio};

mod harness;

type Test = (&'static str, fn());

const TESTS: [Test; 1] = [(
    "a_run_does_not_differ_from_itself_and_a_client_slowed_down_is_found_out",
    a_run_does_not_differ_from_itself_and_a_client_slowed_down_is_found_out,
)];

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    if words.first().is_some_and(|word| word == "lab") {
        return fodo_lab::run(words.into_iter().skip(1));
    }
    let list = lab(&["list".into()]);
    let has_peers = String::from_utf8_lossy(&list.stdout).contains("libca and softIoc of EPICS Base");
    // Elsewhere softIoc may be missing; `cargo xtask test` installs it, FODO_PEERS selects another.
    harness::run(TESTS, has_peers || std::env::var_os("CI").is_some())
}

fn lab(words: &[OsString]) -> Output {
    let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
    command.arg("lab").args(words).stdin(Stdio::null()).output().expect("this program starts")
}

/// A run with gets only, by our client from softIoc.
fn run(directory: &Path, name: &str, slower_per_cent: u32) -> PathBuf {
    let path = directory.join(name);
    let slower = slower_per_cent.to_string();
    let words = "run quick --question Q17 --client fodo --server soft-ioc --repetitions 9 --slower-per-cent";
    let mut words: Vec<OsString> = words.split(' ').map(OsString::from).collect();
    words.extend([slower.into(), "--json".into(), path.clone().into(), "--report".into(), directory.into()]);
    let output = lab(&words);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = std::fs::read_to_string(&path).expect("the result");
    let result: serde_json::Value = serde_json::from_str(&text).expect("the result as JSON");
    for row in result["rows"].as_array().expect("rows").iter().filter(|row| row["verdict"] == "measured") {
        let n_rounds = row["warm_up"]["n_rounds"].as_u64();
        assert!(n_rounds > Some(0), "not warmed up: {} of {}", row["question"], row["client"]);
    }
    path
}

fn compare(before: &Path, after: &Path) -> (Option<i32>, serde_json::Value) {
    let output = lab(&["compare".into(), "--json".into(), before.into(), after.into()]);
    (output.status.code(), serde_json::from_slice(&output.stdout).expect("the comparison as JSON"))
}

fn a_run_does_not_differ_from_itself_and_a_client_slowed_down_is_found_out() {
    let directory = std::env::temp_dir().join(format!("fodo-lab-compare-{}", std::process::id()));
    std::fs::create_dir(&directory).expect("a directory of its own");

    let before = run(&directory, "before.json", 0);
    let same = compare(&before, &before);
    // The client needs several times as long, so that a busy machine does not hide it.
    let planted = compare(&before, &run(&directory, "slower.json", 400));
    std::fs::remove_dir_all(&directory).expect("the directory is removed");

    assert_eq!(same.0, Some(0), "{:#}", same.1);
    assert_eq!(planted.0, Some(1), "{:#}", planted.1);
    let ratio = planted.1["comparison"]["clients"][0]["ratio"].as_f64().expect("the ratio of the client");
    assert!(ratio > 1.5, "{ratio}");
}
