//! Commands of common EPICS modules in `fodo ioc`.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking, in its helpers as well")]
#![expect(dead_code, reason = "these tests need a part of what supports all")]

mod support;

use std::path::PathBuf;
use std::process::{Child, Stdio};

use support::{COMPLETE, Lines, fed, fodo, free_port, ioc, run, search_port, signal, text, wait};

const DATABASE: &str = "record(ao, \"x:set\") {}\nrecord(calc, \"x:count\") { field(CALC, \"VAL+1\") field(SCAN, \"Event\") field(EVNT, \"go\") }\n";

fn folder(name: &str, script: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("commands-{name}-{}", std::process::id()));
    // A killed run may have left the folder.
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("a.db"), DATABASE).unwrap();
    std::fs::write(folder.join("st.cmd"), script).unwrap();
    folder
}

#[test]
fn deferred_commands_run_in_order_after_ioc_init_under_either_name() {
    let script =
        "dbLoadRecords(\"a.db\")\ndoAfterIocInit(\"dbpf('x:set', '1')\")\nafterIocRunning \"dbpf x:set 2\"\niocInit\n";
    let folder = folder("later", script);

    let output = fed(&folder, &["st.cmd"], "doAfterIocInit(\"dbpf x:set 3\")\nexit\n");

    let out = text(&output.stdout);
    let values: Vec<&str> = out.lines().filter_map(|line| line.strip_prefix("DBF_DOUBLE:         ")).collect();
    assert_eq!((values, text(&output.stderr).as_str()), (vec!["1", "2", "3"], COMPLETE));
}

#[test]
fn iocsh_and_putenv_run_a_script_and_set_variables() {
    let folder =
        folder("iocsh", "putenv(\"HALL=north=1\")\niocsh(\"more.cmd\", \"N=7\")\nputenv \"=x\"\necho out$(N=)\n");
    std::fs::write(folder.join("more.cmd"), "echo in $(HALL) $(N)\n").unwrap();

    let output = fed(&folder, &["st.cmd"], "exit\n");

    let out = text(&output.stdout);
    assert!(out.contains("\nin north=1 7\n") && out.ends_with("\nout\n"), "{out}");
    assert!(text(&output.stderr).starts_with("st.cmd:3:8: \"=x\" must be NAME=value\n"), "{}", text(&output.stderr));
}

#[test]
fn unsupported_modules_and_libraries_are_reported_once_and_are_not_errors() {
    let script = "on error break\nrequire asyn,4.42\nrequire stream\nld < libx.munch\nld(\"libx.so\")\nld(\"liby.so\")\n\
                  startPVAServer\nstartPVAServer\ndbLoadRecords(\"a.db\")\niocInit\n";
    let folder = folder("once", script);
    std::fs::write(folder.join("libx.munch"), "").unwrap();

    let output = fed(&folder, &["st.cmd"], "exit\n");
    let checked = run(fodo(free_port()).current_dir(&folder).args(["check", "st.cmd"]));

    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0));
    for name in ["require: modules", "ld: libraries", "startPVAServer: PV Access"] {
        assert_eq!(stderr.matches(name).count(), 1, "{stderr}");
    }
    assert!(stderr.ends_with(COMPLETE), "{stderr}");
    assert!(text(&checked.stdout).ends_with("\n0 errors, 3 warnings\n"), "{}", text(&checked.stdout));
}

#[test]
fn unsupported_driver_commands_are_reported_once_and_are_not_errors() {
    let script = "on error break\ndrvAsynIPPortConfigure(\"P\", \"h:1\")\nNDStdArraysConfigure(\"A\")\nvxi11Configure \"L0\"\n\
                  GalilCreateController(\"G\")\nXPSConfig(1)\ndbLoadRecords(\"a.db\")\niocInit\n";
    let folder = folder("drivers", script);

    let output = fed(&folder, &["st.cmd"], "exit\n");

    let reported = "st.cmd:2:1: drvAsynIPPortConfigure: drivers are C code";
    let stderr = text(&output.stderr);
    assert!(stderr.starts_with(reported) && stderr.matches("drivers are C code").count() == 1, "{stderr}");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn system_does_not_wait_for_background_processes() {
    let folder = folder("background", "");

    let output = fed(&folder, &[], "system(\"sleep 1000 & echo $!\")\necho after\nexit\n");

    let out = text(&output.stdout);
    let (process, rest) = out.split_once('\n').unwrap();
    let ended = std::process::Command::new("kill").arg(process).status().unwrap();
    assert!(rest == "after\n" && ended.success(), "{out}");
}

#[test]
fn post_event_posts_an_event_by_name() {
    let folder = folder("event", "postEvent go\ndbLoadRecords(\"a.db\")\niocInit\n");

    let output = fed(&folder, &["st.cmd"], "postEvent(\"go\")\ndbgf x:count\npostEvent go\ndbgf x:count\nexit\n");

    let out = text(&output.stdout);
    let counts: Vec<&str> = out.lines().filter_map(|line| line.strip_prefix("DBF_DOUBLE:         ")).collect();
    assert_eq!(counts, ["1", "2"]);
    assert!(text(&output.stderr).starts_with("st.cmd:1:1: iocInit has not run yet"), "{}", text(&output.stderr));
}

/// The UDP port for searches, after the IOC has started.
fn serving(child: &mut Child) -> (u16, Lines) {
    let lines = Lines::of(child.stdout.take().unwrap());
    let ready = std::iter::from_fn(|| Some(lines.next())).find(|line| line.starts_with("fodo ioc: serving")).unwrap();
    (search_port(&ready), lines)
}

#[test]
fn caputloginit_selects_the_puts_that_are_logged() {
    let folder = folder("puts", "dbLoadRecords(\"a.db\")\niocInit\ncaPutLogInit(\"logger:7004\", 0)\ncaPutLogShow\n");
    let mut child = ioc(&folder, &["--put-log", "puts.json", "st.cmd"]).stdin(Stdio::piped()).spawn().unwrap();
    let (port, lines) = serving(&mut child);
    let mut input = child.stdin.take().unwrap();
    let mut command = |line: &str| {
        std::io::Write::write_all(&mut input, format!("{line}\necho done\n").as_bytes()).unwrap();
        let shown: Vec<String> = std::iter::from_fn(|| Some(lines.next())).take_while(|line| line != "done").collect();
        shown.last().cloned().unwrap_or_default()
    };
    let put = |value: &str| assert!(run(fodo(port).args(["put", "x:set", value])).status.success());

    assert_eq!(command("caPutLogShow"), "puts that change a value are logged");
    ["1", "1", "2"].iter().for_each(|value| put(value));
    assert_eq!(command("caPutLogReconf 2\ncaPutLogShow"), "all puts are logged");
    put("2");
    assert_eq!(command("caPutJsonLogReconf -1\ncaPutJsonLogShow"), "puts are not logged");
    put("3");
    assert_eq!(command("caPutLogReconf 7\ncaPutLogShow"), "puts are not logged");
    signal(&child, "TERM");
    assert_eq!(wait(&mut child).code(), Some(0));

    let log = std::fs::read_to_string(folder.join("puts.json")).unwrap();
    let changes: Vec<String> = log
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .map(|line| format!("{}-{}", line["old"], line["new"]))
        .collect();
    assert_eq!(changes, ["0.0-1.0", "1.0-2.0", "2.0-2.0"]);
}

#[test]
fn caputloginit_reports_once_that_no_log_server_receives_puts() {
    let script = "caPutLogInit(\"early\")\ndbLoadRecords(\"a.db\")\niocInit\ncaPutLogInit(\"logger:7004\")\ncaPutLogInit(\"logger:7004\", 1)\n";
    let folder = folder("no-log", script);

    let without = fed(&folder, &["st.cmd"], "caPutLogShow\nexit\n");
    let with = fed(&folder, &["--put-log", "puts.json", "st.cmd"], "exit\n");

    let reason = "puts are not logged, and not sent to \"logger:7004\": fodo ioc --put-log FILE logs them to a file";
    let stderr = text(&without.stderr);
    assert!(stderr.starts_with("st.cmd:1:1: iocInit has not run yet"), "{stderr}");
    assert_eq!(stderr.matches(reason).count(), 1, "{stderr}");
    assert!(text(&without.stdout).ends_with("puts are not logged: fodo ioc was started without --put-log\n"));
    let stderr = text(&with.stderr);
    assert_eq!(
        stderr.matches("puts are logged to the file of --put-log, and not sent to \"logger:7004\"").count(),
        1,
        "{stderr}"
    );
}

#[test]
fn help_lists_every_supported_or_ignored_command() {
    let folder = folder("help", "");

    let output = fed(&folder, &[], "help\nhelp require\nhelp scanOnceSetQueueSize\nexit\n");

    let out = text(&output.stdout);
    for name in ["doAfterIocInit", "caPutLogInit", "callbackSetQueueSize", "require, ld, seq, startPVAServer"] {
        assert!(out.contains(&format!("\n  {name}")), "{out}");
    }
    assert!(out.contains("\nrequire\n  Reported once and ignored: modules of C code"), "{out}");
    assert!(
        out.ends_with("\nscanOnceSetQueueSize\n  Accepted without effect: what it sets up is built in or not needed\n"),
        "{out}"
    );
}

#[test]
fn the_command_reference_is_the_same_as_help() {
    let folder = folder("reference", "");
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/shell.md")).unwrap();

    let shown = text(&fed(&folder, &[], "help\nexit\n").stdout);

    assert!(page.contains(&format!("```text\n{shown}```\n")), "{shown}");
}
