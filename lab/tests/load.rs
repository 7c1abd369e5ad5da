//! Loads and their ledger as processes. The laboratory's workers are the calling program started again, so this test is
//! a separate program: started as `lab ...` it is the laboratory.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, ExitCode};

mod harness;
mod ioc;

type Test = (&'static str, fn());

const TESTS: [Test; 21] = [
    ("a_load_that_is_carried_leaves_nothing_unexplained", a_load_that_is_carried_leaves_nothing_unexplained),
    ("a_load_beyond_what_is_carried_is_merged_and_counted", a_load_beyond_what_is_carried_is_merged_and_counted),
    ("every_double_is_found_out", every_double_is_found_out),
    ("beside_a_stalled_client_the_others_get_everything", beside_a_stalled_client_the_others_get_everything),
    ("every_subscription_comes_back_with_its_server", every_subscription_comes_back_with_its_server),
    ("a_generator_that_falls_behind_says_so", a_generator_that_falls_behind_says_so),
    ("every_client_gets_every_update_of_our_ioc", every_client_gets_every_update_of_our_ioc),
    ("watchers_in_every_language_find_out_a_double", watchers_in_every_language_find_out_a_double),
    ("every_update_of_softioc_is_accounted_for", every_update_of_softioc_is_accounted_for),
    ("over_pvaccess_every_update_is_accounted_for", over_pvaccess_every_update_is_accounted_for),
    ("over_pvaccess_every_double_is_found_out", over_pvaccess_every_double_is_found_out),
    (
        "a_stream_is_received_whole_and_compared_with_a_raw_stream",
        a_stream_is_received_whole_and_compared_with_a_raw_stream,
    ),
    ("a_double_of_a_stream_is_found_out", a_double_of_a_stream_is_found_out),
    ("the_tally_in_python_tells_faults_apart", the_tally_in_python_tells_faults_apart),
    ("stored_values_are_counted_as_those_counted_at_once", stored_values_are_counted_as_those_counted_at_once),
    ("a_monitor_group_gets_every_update_and_its_doubles_are_found_out", a_monitor_group_and_its_doubles),
    ("between_two_hosts_every_update_is_accounted_for", between_two_hosts_every_update_is_accounted_for),
    ("the_memory_of_idle_channels_in_java_is_that_outside_the_heap", idle_channels_in_java),
    ("counters_set_by_python_are_accounted_for", counters_set_by_python_are_accounted_for),
    ("study_002_has_a_row_for_each_pair_in_its_layout", study_002_has_a_row_for_each_pair_in_its_layout),
    ("study_003_counts_every_update_and_checks_every_value", study_003_counts_every_update_and_checks_every_value),
];

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    if words.first().is_some_and(|word| word == "lab") {
        return fodo_lab::run(words.into_iter().skip(1));
    }
    if words.first().is_some_and(|word| word == "ioc") {
        return ioc::become_fodo(&words);
    }
    harness::run(TESTS, true)
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

/// Runs a fan-out; returns its row, and whether the load reported success.
fn load(name: &str, words: &[&str]) -> (serde_json::Value, bool) {
    let (rows, is_right) = rows(name, &[&["fan-out"], words].concat());
    (rows[0].clone(), is_right)
}

/// Runs a load; returns its rows, and whether the load reported success.
fn rows(name: &str, words: &[&str]) -> (serde_json::Value, bool) {
    let path = std::env::temp_dir().join(format!("fodo-lab-load-{name}-{}.json", std::process::id()));
    let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
    command.args(["lab", "load"]).args(words).arg("--json").arg(&path);
    let output = command.output().expect("this program starts");
    let text = std::fs::read_to_string(&path).expect("the run has written its rows");
    std::fs::remove_file(&path).expect("the file is removed");
    let file: serde_json::Value = serde_json::from_str(&text).expect("the file is JSON");
    (file["rows"].clone(), output.status.success())
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
    assert!(row["ledger"]["merged_server"].as_u64() > Some(0), "{row}");
    assert_eq!(row["ledger"]["unexplained"], 0);
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
    assert!(buckets.len() <= 200 && percentile(&row, 50.0) < 3e10, "{server}, {client}: {row}");
}

/// The client repics, where there is a wheel of it: not for Linux on ARM.
const REPICS: Option<&str> =
    if cfg!(all(target_os = "linux", target_arch = "aarch64")) { None } else { Some("repics") };

/// Whether the laboratory finds Fodo's jar; tests of Fodo in Java are left out without it.
fn has_jar() -> bool {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../java/target");
    let names = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let is_built = names
        .map(|name| name.to_string_lossy().into_owned())
        .any(|name| name.starts_with("fodo-") && name.ends_with(".jar") && name.matches('-').count() == 1);
    let has_jar = is_built || std::env::var_os("FODO_JAVA").is_some();
    if !has_jar {
        println!("Fodo in Java is not tested: `cargo xtask java package` builds its jar");
    }
    has_jar
}

fn every_client_gets_every_update_of_our_ioc() {
    if !ioc::has_fodo() {
        return;
    }
    check_account("fodo", "fodo", "calc", "10");
    if has_peers() {
        // Small enough that they do not disturb each other.
        std::thread::scope(|scope| {
            for client in ["libca", "aioca", "pyepics", "caproto", "psi-ca"].into_iter().chain(REPICS) {
                scope.spawn(move || check_account("fodo", client, "calc", "10"));
            }
        });
    }
    if has_jar() {
        std::thread::scope(|scope| {
            for client in ["fodo-java", "fodo-java-executor", "fodo-java-rows"] {
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
        // Four puts are wrong, each at another time and long before the next one of its PV: softIoc and repics merge updates
        // while the machine is busy.
        let size = ["--pvs", "150", "--subscriptions", "1", "--hz", "10", "--seconds", "3"];
        let who = ["--server", "soft-ioc", "--producer", "puts", "--client", client];
        let (row, is_right) = load(&format!("{client}-{double}"), &[&who, &size[..], &["--double", double]].concat());
        let why = row["why"].as_str().unwrap_or_default();
        assert!(!is_right && why.contains(fault), "{client}, {double}: \"{why}\" in {row}");
    };

    // C, Python, Java; the Python clients share their tally. psi-ca merges two updates that arrive at once.
    std::thread::scope(|scope| {
        for client in ["libca", "aioca", "psi-ca"].into_iter().chain(REPICS) {
            scope.spawn(move || find_out(client, "lie", "values that their PV never had"));
        }
        for client in ["libca", "aioca"].into_iter().chain(REPICS) {
            scope.spawn(move || find_out(client, "reorder", "out of order"));
        }
    });
    if has_jar() {
        // Afterwards: psi-ca fails in another way if the machine is too busy for it.
        std::thread::scope(|scope| {
            for client in ["fodo-java", "fodo-java-rows"] {
                scope.spawn(move || find_out(client, "lie", "values that their PV never had"));
                scope.spawn(move || find_out(client, "reorder", "out of order"));
            }
        });
    }
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

fn over_pvaccess_every_update_is_accounted_for() {
    let size = ["--protocol", "pva", "--pvs", "5", "--subscriptions", "4", "--hz", "10", "--seconds", "2"];
    let check = move |client: &'static str, server: &'static str| {
        let who = ["--client", client, "--server", server];
        let (row, is_right) = load(&format!("pva-{client}-{server}"), &[&who[..], &size[..]].concat());
        assert!(is_right, "{client}, {server}: {row}");
        assert_eq!(row["protocol"], "pva");
        assert_eq!(row["ledger"]["delivered"], row["ledger"]["produced"], "{client}, {server}: {row}");
        assert_eq!(row["ledger"]["unexplained"], 0, "{client}, {server}: {row}");
    };

    check("fodo", "fodo");
    if has_peers() {
        std::thread::scope(|scope| {
            for (client, server) in [
                ("pvxs", "fodo"),
                ("spvirit", "fodo"),
                ("spvirit", "qsrv2"),
                ("p4p", "fodo"),
                ("core-pva", "fodo"),
                ("fodo", "qsrv2"),
                ("fodo", "qsrv1"),
                ("p4p", "qsrv2"),
                ("core-pva", "qsrv2"),
            ] {
                scope.spawn(move || check(client, server));
            }
            REPICS.map(|client| scope.spawn(move || check(client, "fodo")));
            REPICS.map(|client| scope.spawn(move || check(client, "qsrv2")));
        });
    }
}

fn over_pvaccess_every_double_is_found_out() {
    let words = ["--protocol", "pva", "--pvs", "10", "--subscriptions", "5", "--hz", "100", "--seconds", "1"];

    for (double, fault) in [("drop", "unexplained"), ("reorder", "out of order"), ("lie", "values")] {
        let (row, is_right) = load(&format!("pva-{double}"), &[&words[..], &["--double", double]].concat());
        let why = row["why"].as_str().unwrap_or_default();
        assert!(!is_right && why.contains(fault), "{double}: {row}");
    }
    if has_peers() {
        let who = ["--client", "pvxs", "--server", "qsrv2", "--producer", "puts", "--double", "lie"];
        let (row, is_right) = load("pva-pvxs-lie", &[&words[..], &who[..]].concat());
        let why = row["why"].as_str().unwrap_or_default();
        assert!(!is_right && why.contains("values that their PV never had"), "{row}");
    }
}

const STREAM: [&str; 5] = ["stream", "--elements", "20000", "--seconds", "0.5"];

fn idle_channels_in_java() {
    if !has_jar() {
        return;
    }
    let size = ["--channels", "5000", "--pvs", "100", "--client", "fodo-java"];

    let (rows, is_right) = rows("idle-java", &[&["idle"], &size[..]].concat());

    assert!(is_right, "{rows}");
    for variant in ["channel, client, outside the heap", "subscription, client, outside the heap"] {
        let row = rows.as_array().expect("rows").iter().find(|row| row["variant"] == variant);
        assert!(row.and_then(|row| row["median"].as_f64()).is_some_and(|n| (1.0..20_000.0).contains(&n)), "{rows}");
    }
}

fn a_stream_is_received_whole_and_compared_with_a_raw_stream() {
    let check = |client: &'static str, protocol: &str| {
        let who = ["--client", client, "--protocol", protocol];
        let (rows, is_right) = rows(&format!("stream-{client}-{protocol}"), &[&STREAM, &who[..]].concat());
        assert!(is_right, "{client}: {rows}");
        let [received, raw, share] = &rows.as_array().expect("rows")[..] else { panic!("{client}: {rows}") };
        let sample = |row: &serde_json::Value| row["samples"][0].as_f64().expect("one repetition");
        assert_eq!([&received["unit"], &raw["unit"], &share["unit"]], ["MB/s", "MB/s", "x"]);
        assert_eq!(received["floor"].as_f64(), Some(sample(raw)));
        assert!((sample(share) - sample(received) / sample(raw)).abs() < 1e-9, "{client}: {rows}");
        let number = |name: &str| received["ledger"][name].as_i64().expect("a ledger");
        let n_delivered = number("produced") - number("merged_server") - number("merged_client");
        assert!(n_delivered > 1 && number("delivered") == n_delivered, "{client}: {rows}");
        assert_eq!((number("unexplained"), number("unattributed")), (0, 0), "{client}: {rows}");
        let sent = received["resources"][0]["bytes_sent"].as_i64();
        assert!(sent.is_none_or(|bytes| bytes > number("delivered") * 160_000), "{client}: {rows}");
    };

    check("fodo", "ca");
    check("fodo", "pva");
    if has_peers() {
        ["pvxs", "spvirit", "p4p", "core-pva"].into_iter().chain(REPICS).for_each(|client| check(client, "pva"));
    }
}

fn a_double_of_a_stream_is_found_out() {
    for (double, fault) in [("drop", "unexplained"), ("lie", "values that their PV never had")] {
        let small = ["stream", "--elements", "100", "--seconds", "1", "--protocol", "pva", "--double", double];
        let (rows, is_right) = rows(&format!("stream-{double}"), &small);
        let why = rows[0]["why"].as_str().unwrap_or_default();
        assert!(!is_right && why.contains(fault), "{double}: {rows}");
    }
}

/// Runs a script in Python that can import the watchers; `None`, with a message, if there is no Python.
fn python_output(script: &str) -> Option<String> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("drivers/python");
    let mut python = Command::new(if cfg!(windows) { "python" } else { "python3" });
    python.args(["-B", "-c", script]).env("PYTHONPATH", directory);
    match python.output() {
        Err(_) if std::env::var_os("CI").is_none() => {
            println!("not tested: no Python in PATH");
            None
        }
        output => {
            let output = output.expect("Python starts");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            Some(String::from_utf8_lossy(&output.stdout).into_owned())
        }
    }
}

fn stored_values_are_counted_as_those_counted_at_once() {
    const SCRIPT: &str = "
import watch
def both(*rounds):
    at_once, stored = watch.Tally(1, watch.plain, {}), watch.Record(True)
    for numbers in rounds:
        at_once.restart()
        stored.restart()
        for number in numbers:
            at_once(float(number), 0)
            stored.append(float(number))
        stored.count()
    names = ('received', 'missing', 'duplicates', 'out_of_order', 'wrong')
    counted = [[getattr(tally, name) for name in names] for tally in (at_once, stored)]
    assert counted[0] == counted[1], (rounds, counted)
    return counted[1]
print(both([7, 8, 9, 10]), both([1, 2, 5, 6]), both([1, 2, 2, 3]), both([1, 3, 2, 4]), both([1, 2, 0.5]))
print(both([0, 1, 2], [3, 5]), both([0], []), both([]))
";
    let Some(text) = python_output(SCRIPT) else { return };

    let expected = "[3, 0, 0, 0, 0] [3, 2, 0, 0, 0] [3, 0, 1, 0, 0] [3, 1, 0, 1, 0] [2, 0, 0, 0, 1]";
    assert_eq!(text.lines().collect::<Vec<_>>(), [expected, "[2, 1, 0, 0, 0] [0, 0, 0, 0, 0] [0, 0, 0, 0, 0]"]);
}

fn a_monitor_group_and_its_doubles() {
    let size = ["--client", "fodo-group", "--pvs", "10", "--subscriptions", "5", "--hz", "100", "--seconds", "1"];
    for protocol in ["ca", "pva"] {
        let (row, is_right) = load(&format!("group-{protocol}"), &[&size[..], &["--protocol", protocol]].concat());
        assert!(is_right, "{row}");
        let ledger = &row["ledger"];
        assert_eq!((&ledger["delivered"], &ledger["unexplained"]), (&5000.into(), &0.into()), "{row}");
    }
    for (double, fault) in [("drop", "unexplained"), ("reorder", "out of order"), ("duplicate", "duplicates")] {
        let (row, is_right) = load(&format!("group-{double}"), &[&size[..], &["--double", double]].concat());
        let why = row["why"].as_str().unwrap_or_default();
        assert!(!is_right && why.contains(fault), "{double}: {row}");
    }
}

fn between_two_hosts_every_update_is_accounted_for() {
    let words = ["--two-hosts", "--pvs", "10", "--subscriptions", "5", "--hz", "20", "--seconds", "1"];

    let (row, is_right) = load("two-hosts", &words);

    let why = row["why"].as_str().unwrap_or_default();
    if why.contains("not permitted") {
        return println!("not tested: {why}");
    }
    assert!(is_right, "{row}");
    assert_eq!((row["series"].as_str(), &row["ledger"]["delivered"]), (Some("two hosts"), &1000.into()), "{row}");
    let server = row["resources"].as_array().expect("both ends").iter().find(|end| end["role"] == "server");
    // Each update is at least its header and value.
    assert!(server.expect("the server")["bytes_sent"].as_u64() > Some(1000 * 24), "{row}");
}

fn counters_set_by_python_are_accounted_for() {
    if !has_peers() {
        return;
    }
    let size = ["--pvs", "5", "--subscriptions", "4", "--hz", "10", "--seconds", "2"];
    let check = move |client: &'static str, server: &'static str, protocol: &'static str| {
        let who = ["--client", client, "--server", server, "--protocol", protocol];
        let (row, is_right) = load(&format!("{server}-{client}-{protocol}"), &[&who[..], &size[..]].concat());
        assert!(is_right, "{client}, {server}: {row}");
        let ledger = &row["ledger"];
        assert_eq!(
            (&ledger["produced"], &ledger["delivered"]),
            (&400.into(), &400.into()),
            "{client}, {server}: {row}"
        );
    };

    std::thread::scope(|scope| {
        for (client, server, protocol) in [
            ("fodo", "softioc", "ca"),
            ("aioca", "softioc", "ca"),
            ("fodo-group", "softioc", "pva"),
            ("p4p", "p4p", "pva"),
        ] {
            scope.spawn(move || check(client, server, protocol));
        }
    });
}

fn study_002_has_a_row_for_each_pair_in_its_layout() {
    if !ioc::has_fodo() {
        return;
    }
    let directory = std::env::temp_dir().join(format!("fodo-lab-diamond-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory");
    let json = directory.join("run.json");
    let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
    command.args(["lab", "run", "diamond", "--short", "--client", "fodo-group", "--server", "fodo"]);
    command.args(["--seconds", "1", "--question", "D4", "--question", "D5", "--report"]).arg(&directory);
    let output = command.arg("--json").arg(&json).output().expect("this program starts");

    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{printed}{}", String::from_utf8_lossy(&output.stderr));
    assert!(printed.contains("Performance (Python IOC inbuilt Calc records / p4p)"), "{printed}");
    let text = std::fs::read_to_string(&json).expect("the run has written its rows");
    let file: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let rows = file["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 2, "{rows:?}");
    for row in rows {
        let ledger = &row["ledger"];
        assert_eq!(ledger["delivered"], ledger["produced"], "{row}");
        assert!(row["study"]["server"]["sent_kb_s"].as_f64() > Some(1.0), "{row}");
        assert!(row["study"]["client"]["rss_bytes"].as_u64() > Some(1 << 20), "{row}");
    }
    let markdown = std::fs::read_to_string(directory.join("diamond.md")).expect("the report");
    let lines: Vec<&str> = markdown.lines().filter(|line| line.starts_with("| study 002 | ")).collect();
    assert!(
        lines.len() == 2 && lines[0].contains(" 1000 | 10 | 10 | 420 | 11 | 1000 | 1 | 70 | 10 | 420 |"),
        "{markdown}"
    );
    std::fs::remove_dir_all(&directory).expect("the directory is removed");
}

/// Runs the suite of study 003 with arrays of at most a hundred doubles; returns its rows and its report.
fn nsls2(name: &str, words: &[&str]) -> (Vec<serde_json::Value>, String) {
    let directory = std::env::temp_dir().join(format!("fodo-lab-nsls2-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory");
    let json = directory.join("run.json");
    let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
    command.args(["lab", "run", "nsls2", "--seconds", "0.02", "--elements-max", "100"]).args(words);
    let output =
        command.arg("--report").arg(&directory).arg("--json").arg(&json).output().expect("this program starts");

    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{printed}{}", String::from_utf8_lossy(&output.stderr));
    assert!(printed.contains("study 003"), "{printed}");
    let text = std::fs::read_to_string(&json).expect("the run has written its rows");
    let file: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let markdown = std::fs::read_to_string(directory.join("nsls2.md")).expect("the report");
    let page = std::fs::read_to_string(directory.join("nsls2.html")).expect("the page");
    assert!(page.contains("<svg") && page.contains("Processing get performance"), "{page}");
    std::fs::remove_dir_all(&directory).expect("the directory is removed");
    (file["rows"].as_array().expect("rows").clone(), markdown)
}

fn study_003_counts_every_update_and_checks_every_value() {
    if !ioc::has_fodo() {
        return;
    }
    let (rows, markdown) = nsls2("fodo", &["--client", "fodo", "--server", "fodo"]);

    for row in rows.iter().filter(|row| !row["series"].as_str().is_some_and(|series| series.contains("two hosts"))) {
        // Where two hosts are not permitted, their rows say so.
        assert_eq!(row["verdict"], "measured", "{row}");
    }
    let events = || rows.iter().filter(|row| row["question"] == "N3" && row["verdict"] == "measured");
    for row in events() {
        let ledger = &row["ledger"];
        assert!(ledger["delivered"] == ledger["produced"] && ledger["unexplained"] == 0, "{row}");
        assert!(ledger["produced"].as_u64() >= row["n_operations"].as_u64(), "{row}");
    }
    // Both protocols, four points, and the delays over pvAccess.
    assert!(events().count() >= 4 * (2 + 3), "{rows:?}");
    let has_floor = |row: &&serde_json::Value| row["client"] == "fodo" && row["floor"].as_f64() > Some(0.0);
    assert!(rows.iter().filter(|row| row["question"] != "N3").any(|row| has_floor(&row)));
    assert!(markdown.contains("| 1\u{202f}000 | 94,104 | 93,012 | 88,218 | 96,686 |"), "{markdown}");
    assert!(markdown.contains("8,028,389 (the wire carries 3\u{202f}260\u{202f}000)"), "{markdown}");
    if has_peers() {
        every_peer_processes_each_record_once(&["--question", "N2", "--question", "N1"]);
    }
}

/// Compared with softIoc and pvxs's IOC: a value that is not the next one fails its row.
fn every_peer_processes_each_record_once(questions: &[&str]) {
    let ends =
        ["--client", "fodo", "--client", "libca", "--client", "pvxs", "--server", "soft-ioc", "--server", "qsrv2"];

    let (rows, _) = nsls2("peers", &[&ends, questions].concat());

    for row in rows.iter().filter(|row| row["series"] == "two cores" || row["series"] == "one core") {
        assert!(row["verdict"] == "measured" || row["verdict"] == "not_run", "{row}");
    }
    let n_measured = rows.iter().filter(|row| row["verdict"] == "measured").count();
    assert!(n_measured >= 4 * 6, "{n_measured} of {}", rows.len());
}

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
    let Some(text) = python_output(SCRIPT) else { return };

    let counted = "((3, 0, 0, 0, 0), True, 3) ((3, 2, 0, 0, 0), True, 3) ((3, 0, 1, 0, 0), True, 3) \
                   ((3, 1, 0, 1, 0), True, 3) ((2, 0, 0, 0, 1), True, 2)";
    assert_eq!(text.lines().next(), Some(counted));
    assert_eq!(text.lines().nth(1), Some("[123456, None]"), "{text}");
}
