//! Loads and their ledger as processes. The laboratory's workers are the calling program started again, so this test is
//! a separate program: started as `lab ...` it is the laboratory.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

type Test = (&'static str, fn());

const TESTS: [Test; 10] = [
    ("a_load_that_is_carried_leaves_nothing_unexplained", a_load_that_is_carried_leaves_nothing_unexplained),
    ("a_load_beyond_what_is_carried_is_merged_and_counted", a_load_beyond_what_is_carried_is_merged_and_counted),
    ("every_double_is_found_out", every_double_is_found_out),
    ("beside_a_stalled_client_the_others_get_everything", beside_a_stalled_client_the_others_get_everything),
    ("every_subscription_comes_back_with_its_server", every_subscription_comes_back_with_its_server),
    ("a_generator_that_falls_behind_says_so", a_generator_that_falls_behind_says_so),
    ("every_client_gets_every_update_of_our_ioc", every_client_gets_every_update_of_our_ioc),
    ("watchers_in_every_language_find_out_a_double", watchers_in_every_language_find_out_a_double),
    ("every_update_of_softioc_is_accounted_for", every_update_of_softioc_is_accounted_for),
    ("the_tally_in_python_tells_faults_apart", the_tally_in_python_tells_faults_apart),
];

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    if words.first().is_some_and(|word| word == "lab") {
        return fodo_lab::run(words.into_iter().skip(1));
    }
    if words.first().is_some_and(|word| word == "ioc") {
        return become_fodo(&words);
    }
    let pattern = words.iter().filter_map(|word| word.to_str()).find(|word| !word.starts_with('-')).unwrap_or("");
    for (name, test) in TESTS.iter().filter(|(name, _)| name.contains(pattern)) {
        let start = Instant::now();
        test();
        println!("test {name} ... ok ({:.1} s)", start.elapsed().as_secs_f64());
    }
    ExitCode::SUCCESS
}

/// The IOC is part of the program `fodo`; the laboratory takes this program for it.
fn fodo() -> PathBuf {
    let this = std::env::current_exe().expect("this program has a path");
    let profile = this.ancestors().nth(2).expect("it is two levels below the profile's directory");
    profile.join(format!("fodo{}", std::env::consts::EXE_SUFFIX))
}

#[cfg(unix)]
fn become_fodo(words: &[OsString]) -> ExitCode {
    use std::os::unix::process::CommandExt;
    eprintln!("{}", Command::new(fodo()).args(words).exec());
    ExitCode::FAILURE
}

#[cfg(not(unix))]
fn become_fodo(_words: &[OsString]) -> ExitCode {
    ExitCode::FAILURE
}

/// Whether the peers are installed. Without them the tests that need them are skipped, except in CI, where they fail.
fn has_peers() -> bool {
    let mut list = Command::new(std::env::current_exe().expect("this program has a path"));
    let output = list.args(["lab", "list"]).output().expect("this program starts");
    let is_tested = String::from_utf8_lossy(&output.stdout).contains("libca and softIoc of EPICS Base")
        || std::env::var_os("CI").is_some();
    if !is_tested {
        println!("not tested: the peers are missing; `cargo xtask test` installs them, FODO_PEERS selects others");
    }
    is_tested
}

/// Runs a load; returns its row, and whether the load reported success.
fn load(name: &str, words: &[&str]) -> (serde_json::Value, bool) {
    let path = std::env::temp_dir().join(format!("fodo-lab-load-{name}-{}.json", std::process::id()));
    let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
    command.args(["lab", "load", "fan-out", "--json"]).arg(&path).args(words);
    let output = command.output().expect("this program starts");
    let text = std::fs::read_to_string(&path).expect("the run has written its rows");
    std::fs::remove_file(&path).expect("the file is removed");
    let file: serde_json::Value = serde_json::from_str(&text).expect("the file is JSON");
    (file["rows"][0].clone(), output.status.success())
}

fn percentile(row: &serde_json::Value, per_cent: f64) -> f64 {
    let pairs = row["percentiles"].as_array().expect("a load has percentiles");
    let found = pairs.iter().find(|pair| pair[0].as_f64() == Some(per_cent));
    found.and_then(|pair| pair[1].as_f64()).expect("the percentile is present")
}

fn a_load_that_is_carried_leaves_nothing_unexplained() {
    let (row, is_right) = load("carried", &["--pvs", "20", "--subscriptions", "5", "--hz", "50", "--seconds", "1"]);

    assert!(is_right, "{row}");
    let ledger = &row["ledger"];
    assert_eq!(ledger["produced"], 20 * 5 * 50);
    assert!(row["warm_up"]["n_rounds"].as_u64() > Some(1), "{row}");
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

/// Runs a load and returns its output.
fn printed(words: &[&str]) -> String {
    let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
    let output = command.args(["lab", "load"]).args(words).output().expect("this program starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn beside_a_stalled_client_the_others_get_everything() {
    let words = ["stalled", "--pvs", "50", "--subscriptions", "5", "--hz", "100", "--seconds", "1"];

    let text = printed(&[&words[..], &["--json", "-"]].concat());

    let run: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let beside = run["rows"].as_array().expect("rows").iter().find(|row| row["variant"] == "beside a stalled client");
    assert_eq!(beside.expect("a row of it")["ledger"]["delivered"], 25_000, "{run}");
}

fn every_subscription_comes_back_with_its_server() {
    let table = printed(&["reconnect", "--pvs", "200", "--down-seconds", "0.1", "--repetitions", "1"]);

    assert!(table.lines().any(|line| line.trim_start().starts_with("200 ")), "{table}");
}

fn a_generator_that_falls_behind_says_so() {
    let words = ["--pvs", "20", "--subscriptions", "1", "--hz", "1000000", "--seconds", "0.02"];

    let (row, _) = load("impossible", &words);
    let text = printed(&[&["fan-out"], &words[..]].concat());

    assert!(row["ledger"]["late_max_ms"].as_f64() > Some(20.0), "{row}");
    assert!(text.contains("behind: it offered less"), "{text}");
}

/// Runs a load of `server` with five PVs and four subscriptions by `client` for two seconds, and checks the ledger.
fn check_account(server: &str, client: &str, producer: &str, hz: &str) {
    let words = ["--server", server, "--client", client, "--producer", producer, "--hz", hz];
    let size = ["--pvs", "5", "--subscriptions", "4", "--seconds", "2"];

    let (row, is_right) = load(&format!("{server}-{client}-{producer}"), &[&words[..], &size[..]].concat());

    let number = |name: &str| row["ledger"][name].as_i64().expect("a load has a ledger");
    let n_expected = 5 * 4 * 2 * hz.parse::<i64>().expect("a whole rate");
    assert!(number("produced") >= n_expected * 9 / 10, "{server}, {client}: {row}");
    assert_eq!(number("delivered"), number("produced"), "{server}, {client}: {row}");
    assert_eq!((number("unexplained"), number("unattributed")), (0, 0), "{server}, {client}: {row}");
    assert_eq!(number("out_of_order"), 0, "{server}, {client}: {row}");
    // psi-ca hands out a single object, so a subscription that is behind shows an update twice.
    assert!(is_right || (client == "psi-ca" && number("duplicates") > 0), "{server}, {client}: {row}");
    let buckets = row["histogram"].as_array().expect("a row keeps its histogram");
    let n_counted: i64 = buckets.iter().filter_map(|bucket| bucket[1].as_i64()).sum();
    assert_eq!(n_counted, number("delivered"), "{server}, {client}: {row}");
    assert!(buckets.len() <= 200 && percentile(&row, 50.0) < 5e8, "{server}, {client}: {row}");
}

fn every_client_gets_every_update_of_our_ioc() {
    if !fodo().is_file() && std::env::var_os("CI").is_none() {
        println!("not tested: {} is missing; build it with `cargo build`", fodo().display());
        return;
    }
    check_account("fodo", "fodo", "calc", "10");
    if has_peers() {
        // Small enough that they do not disturb each other.
        std::thread::scope(|scope| {
            for client in ["libca", "aioca", "pyepics", "caproto", "psi-ca"] {
                scope.spawn(move || check_account("fodo", client, "calc", "10"));
            }
        });
    }
}

fn watchers_in_every_language_find_out_a_double() {
    if !has_peers() {
        return;
    }
    let find_out = |client: &'static str, double: &str, fault: &str| {
        let size = ["--pvs", "10", "--subscriptions", "2", "--hz", "50", "--seconds", "2"];
        let who = ["--server", "soft-ioc", "--producer", "puts", "--client", client];
        let (row, is_right) = load(&format!("{client}-{double}"), &[&who, &size[..], &["--double", double]].concat());
        let why = row["why"].as_str().unwrap_or_default();
        assert!(!is_right && why.contains(fault), "{client}, {double}: {row}");
    };

    // C, Python, Java; the Python clients share their tally. psi-ca merges two updates that arrive at once.
    std::thread::scope(|scope| {
        for client in ["libca", "aioca", "psi-ca"] {
            scope.spawn(move || find_out(client, "lie", "values that their PV never had"));
        }
        for client in ["libca", "aioca"] {
            scope.spawn(move || find_out(client, "reorder", "out of order"));
        }
    });
}

fn every_update_of_softioc_is_accounted_for() {
    if !has_peers() {
        return;
    }
    std::thread::scope(|scope| {
        for client in ["fodo", "libca"] {
            scope.spawn(move || check_account("soft-ioc", client, "calc", "10"));
            scope.spawn(move || check_account("soft-ioc", client, "puts", "50"));
        }
    });
}

/// The tally of all clients in Python: the same sequences as in the tests of `tally.rs`.
fn the_tally_in_python_tells_faults_apart() {
    const SCRIPT: &str = "
import watch, time
def sums(numbers, encode=lambda n: n, decode=watch.plain):
    tally = watch.Tally(1, decode, {})
    for number in numbers:
        tally.add(float(encode(number)), time.time_ns() - 5_000_000)
    counted = (tally.received, tally.missing, tally.duplicates, tally.out_of_order, tally.wrong)
    return counted, min(tally.latencies) >= 5_000_000, sum(tally.latencies.values())
print(sums([7, 8, 9, 10]), sums([1, 2, 5, 6]), sums([1, 2, 2, 3]), sums([1, 3, 2, 4]), sums([1, 2, 0.5]))
print([watch.checked(1, value) for value in (31604864.0, 31604865.0)])
";
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("drivers/python");
    let mut python = Command::new(if cfg!(windows) { "python" } else { "python3" });
    python.args(["-B", "-c", SCRIPT]).env("PYTHONPATH", directory);
    let output = match python.output() {
        Err(_) if std::env::var_os("CI").is_none() => return println!("not tested: no Python in PATH"),
        output => output.expect("Python starts"),
    };

    let text = String::from_utf8_lossy(&output.stdout);

    let counted = "((3, 0, 0, 0, 0), True, 3) ((3, 2, 0, 0, 0), True, 3) ((3, 0, 1, 0, 0), True, 3) \
                   ((3, 1, 0, 1, 0), True, 3) ((2, 0, 0, 0, 1), True, 2)";
    assert_eq!(text.lines().next(), Some(counted), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(text.lines().nth(1), Some("[123456, None]"), "{text}");
}
