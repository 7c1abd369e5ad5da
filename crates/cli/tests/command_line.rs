//! The program without any server: help, errors, exit codes.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking, in its helpers as well")]

#[expect(dead_code, reason = "the other tests use the rest")]
mod support;

use std::process::{Output, Stdio};

use support::{fodo, free_port, golden, run, text};

#[test]
fn help_is_printed_to_stdout_and_an_invalid_command_line_exits_with_code_2() {
    let help = run(fodo(9).args(["get", "--help"]));
    let wrong = run(fodo(9).args(["get", "--nonsense"]));
    let nothing = run(fodo(9).arg("get"));

    assert_eq!(help.status.code(), Some(0));
    assert!(text(&help.stdout).contains("Exit codes:"));
    assert_eq!((wrong.status.code(), nothing.status.code()), (Some(2), Some(2)));
    assert!(text(&wrong.stderr).contains("--nonsense"));
}

#[cfg(target_os = "linux")]
#[test]
fn output_that_cannot_be_written_is_reported_and_exits_with_code_1() {
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let mut child = fodo(9).arg("config").stdout(full).stderr(Stdio::piped()).spawn().unwrap();
    let errors = support::Lines::of_stream(child.stderr.take().unwrap());

    assert_eq!(support::wait(&mut child).code(), Some(1));
    assert_eq!(errors.next(), "fodo: No space left on device (os error 28)");
}

#[test]
fn completion_scripts_for_every_shell_contain_the_verbs() {
    for shell in ["bash", "zsh", "fish"] {
        let script = run(fodo(9).args(["completion", shell]));

        assert_eq!(script.status.code(), Some(0));
        assert!(text(&script.stdout).contains("monitor"), "{shell}");
    }
}

#[test]
fn every_verb_exits_with_code_3_for_an_unknown_name() {
    let port = free_port();
    let verbs: [&[&str]; 4] =
        [&["get", "no:such"], &["put", "no:such", "1"], &["info", "no:such"], &["monitor", "--for", "0.3", "no:such"]];
    for verb in verbs {
        let output = run(fodo(port).args(verb).args(["--timeout", "0.1"]));

        assert_eq!(output.status.code(), Some(3), "{verb:?}: {}", text(&output.stderr));
        let expected =
            "\"no:such\": no server claimed the name within 0.1 s; check that its server is running and that";
        assert!(text(&output.stderr).contains(expected), "{verb:?}: {}", text(&output.stderr));
    }
}

#[test]
fn json_output_reports_an_unknown_name_on_stdout() {
    let output = run(fodo(free_port()).args(["get", "--json", "-w", "0.1", "no:such"]));

    let object: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&object["pv"], &object["error"]["code"]), (&"no:such".into(), &3.into()));
}

#[test]
fn an_invalid_environment_variable_is_named_and_exits_with_code_1() {
    let output = run(fodo(9).env("EPICS_CA_CONN_TMO", "soon").args(["get", "x:y"]));

    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("EPICS_CA_CONN_TMO"), "{}", text(&output.stderr));
}

#[test]
fn config_shows_effective_values_and_their_origin() {
    let mut command = fodo(9);
    command.env("EPICS_CA_SERVER_PORT", "6064").env("EPICS_CA_CONN_TIMEOUT", "5").args(["config", "--json"]);

    let output = run(&mut command);

    let lines: Vec<serde_json::Value> =
        text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let variable = |name: &str| lines.iter().find(|line| line["variable"] == name).unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(variable("EPICS_CA_ADDR_LIST")["value"], "127.0.0.1:9");
    assert_eq!(variable("EPICS_CAS_SERVER_PORT")["value"], "6064");
    assert_eq!(variable("EPICS_CAS_SERVER_PORT")["from"], "EPICS_CA_SERVER_PORT");
    assert_eq!(variable("EPICS_CA_MCAST_TTL")["origin"], "default");
    assert_eq!(variable("EPICS_CA_CONN_TIMEOUT")["origin"], "unknown");
}

#[test]
fn config_reports_an_invalid_value_and_exits_with_code_1() {
    let output = run(fodo(9).env("EPICS_CA_CONN_TMO", "soon").arg("config"));

    let out = text(&output.stdout);
    let line = out.lines().find(|line| line.starts_with("EPICS_CA_CONN_TMO")).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(line.contains("\"soon\"") && line.contains("expected a number of seconds above 0"), "{line}");
}

#[test]
fn search_reports_an_unanswered_name_and_exits_with_code_3() {
    let output = run(fodo(free_port()).args(["search", "no:such"]));

    assert_eq!(output.status.code(), Some(3));
    assert_eq!(text(&output.stdout), "no:such  NO SERVER\n");
}

#[test]
fn search_watch_reports_periodically_until_its_time_has_passed() {
    let watch = |(duration, period): (&str, &str), json: &[&str]| {
        let words = ["search", "--watch", "--for", duration, "--every", period];
        run(fodo(free_port()).args(words).args(json))
    };
    let reports_of = |output: &Output| text(&output.stdout).lines().map(str::to_owned).collect::<Vec<_>>();

    let (mut output, json) = (watch(("1.2", "0.3"), &[]), watch(("1.2", "0.3"), &["--json"]));
    if reports_of(&output).len() < 2 {
        // A busy machine may skip all but the last.
        output = watch(("16", "4"), &[]);
    }

    let reports = reports_of(&output);
    assert_eq!((output.status.code(), json.status.code()), (Some(0), Some(0)), "{}", text(&output.stderr));
    assert!((2..=5).contains(&reports.len()), "{reports:?}");
    let seconds: Vec<u32> = reports
        .iter()
        .map(|report| {
            let (seconds, rest) = report.split_once(" s: ").unwrap();
            assert!(rest.starts_with("0 searches for 0 names by 0 clients"), "{reports:?}");
            seconds.parse().unwrap()
        })
        .collect();
    assert!(seconds.is_sorted() && seconds.last() > Some(&0), "{reports:?}");
    assert!(text(&output.stderr).starts_with("fodo search: listening on "), "{}", text(&output.stderr));
    assert_eq!(text(&json.stdout), "");
}

#[test]
fn camonitor_reports_absent_pvs_once_after_its_timeout() {
    let mut child =
        fodo(free_port()).args(["camonitor", "-w", "0.1", "no:such"]).stdout(Stdio::piped()).spawn().unwrap();
    let lines = support::Lines::of(child.stdout.take().unwrap());

    let line = lines.next();

    child.kill().unwrap();
    support::wait(&mut child);
    assert_eq!(line.trim_end(), format!("{:<30} *** Not connected (PV not found)", "no:such"));
}

#[test]
fn a_symlink_named_caget_runs_caget() {
    let link = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("fodo-test-{}", std::process::id()))
        .join("caget");
    std::fs::create_dir_all(link.parent().unwrap()).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_fodo"), &link).unwrap();

    let output = run(std::process::Command::new(&link).arg("-q"));

    std::fs::remove_dir_all(link.parent().unwrap()).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stderr), "Unrecognized option: '-q'. ('caget -h' for help.)\n");
}

#[test]
fn an_unloadable_database_exits_with_code_1_and_a_reason() {
    let missing = run(fodo(9).args(["ioc", "--interface", "127.0.0.1", "--port", "0", "no-such.db"]));

    assert_eq!(missing.status.code(), Some(1));
    assert!(text(&missing.stderr).starts_with("fodo ioc: "), "{}", text(&missing.stderr));
    assert!(text(&missing.stderr).contains("no-such.db"), "{}", text(&missing.stderr));
    assert!(golden("golden.db").exists());
}
