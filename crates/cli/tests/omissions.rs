//! Databases with errors: which parts a script serves, and which errors stop the start.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(dead_code, reason = "these tests need a part of what supports all")]

mod support;

use std::path::{Path, PathBuf};
use std::process::Output;

use support::{end_of, fodo, free_port, ioc, run, text};

const DATABASE: &str = "record(ao, \"$(P)right\") { field(PREC, 2) }\n\
                        record(ao, \"$(P)field\") { field(PREC, two) field(EGU, mm) }\n\
                        record(unheard, \"$(P)type\") { field(VELO, 1) }\n\
                        record(ao, \"$(P)device\") { field(DTYP, asynInt32) field(OUT, \"@asyn(PORT)\") }\n\
                        record(ai, \"$(P)address\") { field(SIOL, \"@\") }\n\
                        record(ao, \"$(P)behind\") {}\n";

const SCRIPT: &str = "dbLoadRecords(a.db, \"P=x:\")\ndbLoadRecords(gone.db)\ndbLoadRecords(syntax.db)\niocInit\n\
                      dbl\ndbgf x:field.EGU\ndbgf x:field.PREC\ndbgf x:device.SEVR\ndbgf x:device.AMSG\n\
                      dbgf s:ioc:LOAD_ERROR_CNT\nexit\n";

fn folder(name: &str, script: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("omissions-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("a.db"), DATABASE).unwrap();
    std::fs::write(
        folder.join("syntax.db"),
        "record(ai, y:before) {}\nrecrod(ai, y:here) {}\nrecord(ai, y:behind) {}\n",
    )
    .unwrap();
    std::fs::write(folder.join("st.cmd"), script).unwrap();
    folder
}

fn served(folder: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = end_of(ioc(folder, arguments).spawn().unwrap());
    (status.code(), text(&stdout), text(&stderr))
}

#[test]
fn a_script_serves_valid_records_and_reports_and_counts_dropped_items() {
    let folder = folder("script", SCRIPT);

    let (code, out, err) = served(&folder, &["st.cmd"]);

    assert_eq!(code, Some(0), "{err}");
    assert!(out.contains("\nx:right\nx:field\nx:device\nx:address\nx:behind\ny:before\n"), "{out}");
    assert!(out.contains("dbgf x:field.EGU\nDBF_STRING:         \"mm\"\n"), "{out}");
    assert!(out.contains("dbgf x:device.SEVR\nDBF_STRING:         \"INVALID\"\n"), "{out}");
    assert!(out.contains("\"no device support \\\"asynInt32\\\"\""), "{out}");
    let places: Vec<&str> =
        err.lines().filter(|line| line.contains(".db:")).filter_map(|line| line.split(": ").next()).collect();
    assert_eq!(places, ["a.db:2:39", "a.db:3:8", "a.db:4:40", "gone.db", "syntax.db:2:1", "a.db:5:41"], "{err}");
    assert!(err.contains("\n  loaded by st.cmd:1\n"), "{err}");
    assert!(err.contains("the rest of the file is not loaded"), "{err}");
    assert!(
        err.contains(
            "left out because of errors: 1 record, 3 fields, 2 other statements; run fodo check for details\n"
        ),
        "{err}"
    );
}

#[test]
fn a_database_error_stops_a_script_with_on_error_break_or_strict() {
    let folder = folder("break", &format!("on error break\n{SCRIPT}"));
    std::fs::write(folder.join("plain.cmd"), SCRIPT).unwrap();
    std::fs::write(folder.join("address.cmd"), "dbLoadRecords(address.db)\niocInit\nexit\n").unwrap();
    std::fs::write(folder.join("address.db"), "record(ai, a) { field(SIOL, \"@\") }\n").unwrap();

    let (broken, out, _) = served(&folder, &["st.cmd"]);
    let (strict, strict_out, _) = served(&folder, &["--strict", "plain.cmd"]);
    let (strict_address, _, _) = served(&folder, &["--strict", "address.cmd"]);
    let (address, _, err) = served(&folder, &["address.cmd"]);

    assert_eq!((broken, strict, strict_address, address), (Some(1), Some(1), Some(1), Some(0)));
    assert!(!out.contains("gone.db") && !strict_out.contains("gone.db"), "{out}{strict_out}");
    assert!(
        err.starts_with("address.db:1:29: SIOL of a cannot be \"@\": an address needs a device support\n"),
        "{err}"
    );
}

#[test]
fn a_faulty_command_line_database_stops_startup_unless_keep_going_is_set() {
    let folder = folder("line", "dbl\nexit\n");

    let (stopped, out, err) = served(&folder, &["-m", "P=x:", "-d", "a.db", "st.cmd"]);
    let (kept, kept_out, _) = served(&folder, &["--keep-going", "-m", "P=x:", "-d", "a.db", "st.cmd"]);

    assert_eq!((stopped, kept), (Some(1), Some(0)), "{err}");
    assert!(!out.contains("serving") && err.contains("fodo ioc: a.db:2:39: PREC cannot be \"two\""), "{out}{err}");
    assert!(kept_out.contains("\nx:right\nx:field\nx:device\nx:address\nx:behind\n"), "{kept_out}");
}

#[test]
fn consequential_errors_are_not_reported() {
    let folder = folder("follow", "");
    let database = "record(unheard, m) { field(VELO, 1) alias(n) }\nalias(m, o)\nrecord(\"*\", m) { field(DESC, x) }\n\
                    record(ao, a) { field(DTYP, asynInt32) field(OUT, \"@asyn(PORT)\") field(FLNK, \"m.PROC\") }\n";
    std::fs::write(folder.join("b.db"), database).unwrap();
    std::fs::write(folder.join("b.req"), "m.VELO\na.VAL\na.GONE\n").unwrap();

    let check = run(fodo(free_port()).current_dir(&folder).args(["check", "b.db", "b.req"]));
    let simulated = run(fodo(free_port()).current_dir(&folder).args(["check", "--simulate", "b.db", "b.req"]));

    let (check, simulated) = (text(&check.stdout), text(&simulated.stdout));
    let heads = |text: &str| text.lines().filter(|line| !line.starts_with(' ')).map(str::to_owned).collect::<Vec<_>>();
    assert!(check.starts_with("b.db:1:8: error: no record type \"unheard\""), "{check}");
    assert_eq!(heads(&check).len(), 4, "{check}");
    assert!(check.ends_with("2 errors, 1 warning\n") && check.contains("b.req:3:1: warning: "), "{check}");
    assert!(simulated.ends_with("0 errors, 1 warning, 2 notes\n"), "{simulated}");
}

#[test]
fn check_searches_included_files_along_the_environment_path() {
    let folder = folder("include", "");
    std::fs::create_dir_all(folder.join("lib")).unwrap();
    std::fs::write(folder.join("lib/part.db"), "record(ai, part) {}\n").unwrap();
    std::fs::write(folder.join("top.db"), "include \"part.db\"\n").unwrap();

    let mut command = fodo(free_port());
    let output = run(command.current_dir(&folder).env("EPICS_DB_INCLUDE_PATH", "none:lib").args(["check", "top.db"]));

    assert_eq!(text(&output.stdout), "0 errors, 0 warnings\n");
}

#[test]
fn check_recognises_a_script_by_its_name_or_first_line() {
    let folder = folder("names", "");
    for name in ["st.cmd.linux", "start", "run.sh"] {
        let script = "#!../../bin/linux-x86_64/plant\n\n## Register\nnoSuchCommand 1\n";
        std::fs::write(folder.join(name), script).unwrap();
    }
    std::fs::write(folder.join("boot"), "\n# A comment\n< envPaths\n").unwrap();
    std::fs::write(folder.join("records"), "# A comment\nrecord(ai, a) {}\n").unwrap();
    let checked = |name: &str| text(&run(fodo(free_port()).current_dir(&folder).args(["check", name])).stdout);

    for name in ["st.cmd.linux", "start", "run.sh"] {
        assert!(checked(name).contains(&format!("{name}:4:1: error: there is no command")), "{}", checked(name));
    }
    assert!(checked("boot").starts_with("boot:3:1: error: \"envPaths\" cannot be read"), "{}", checked("boot"));
    assert_eq!(checked("records"), "0 errors, 0 warnings\n");
}
