//! `fodo ioc` with files that it cannot read or write: it never blocks, its memory stays bounded, and losses are
//! reported.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking, in its helpers as well")]
#![expect(dead_code, reason = "these tests need a part of what supports all")]

mod support;

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use fodo_net::{ClientConfig, Context, MonitorEvent, MonitorOptions};
use support::{COMPLETE, Lines, PATIENCE, fed, fodo, free_port, ioc, run, search_port, signal, text, wait};

const DATABASE: &str = "record(ao, \"x:set\") { info(autosaveFields, \"VAL\") }\n";

/// A temporary folder with `a.db` and the given files.
fn folder(name: &str, files: &[(&str, &str)]) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("files-{name}-{}", std::process::id()));
    // A killed run may have left the folder.
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    for (file, text) in [("a.db", DATABASE)].iter().chain(files) {
        std::fs::write(folder.join(file), text).unwrap();
    }
    folder
}

fn make_pipe(path: PathBuf) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// Waits until it serves; returns the UDP port for searches.
fn serving(child: &mut Child) -> u16 {
    let lines = Lines::of(child.stdout.take().unwrap());
    search_port(&std::iter::from_fn(|| Some(lines.next())).find(|line| line.starts_with("fodo ioc: serving")).unwrap())
}

/// Ends it with one signal; returns the exit code and stderr.
fn stopped(mut child: Child) -> (Option<i32>, String) {
    signal(&child, "TERM");
    let mut stderr = String::new();
    std::io::Read::read_to_string(child.stderr.as_mut().unwrap(), &mut stderr).unwrap();
    (wait(&mut child).code(), stderr)
}

#[test]
fn a_pipe_as_access_file_blocks_neither_reload_nor_shutdown() {
    let folder = folder("reload", &[("a.acf", "ASG(DEFAULT) { RULE(1, WRITE) }\n")]);
    let mut child = ioc(&folder, &["-a", "a.acf", "a.db"]).spawn().unwrap();
    serving(&mut child);
    std::fs::remove_file(folder.join("a.acf")).unwrap();
    make_pipe(folder.join("a.acf"));
    let err = Lines::of_stream(child.stderr.take().unwrap());

    signal(&child, "HUP");
    let line = std::iter::from_fn(|| Some(err.next())).find(|line| line.contains("a.acf")).unwrap();
    signal(&child, "TERM");

    assert!(line.contains("it is a pipe, not a regular file"), "{line}");
    assert_eq!(wait(&mut child).code(), Some(0));
}

#[test]
fn a_put_log_to_a_pipe_without_a_reader_is_rejected_without_blocking() {
    let folder = folder("put-log-pipe", &[]);
    make_pipe(folder.join("puts"));

    let output = run(&mut ioc(&folder, &["--put-log", "puts", "a.db"]));

    assert_eq!(output.status.code(), Some(1));
    let stderr = text(&output.stderr);
    assert_eq!(stderr, "fodo ioc: the put log cannot be written: no program reads from this pipe\n");
}

#[test]
fn a_put_log_on_a_full_disk_is_reported_once_and_fails_the_exit_code() {
    let folder = folder("put-log-full", &[]);
    let mut child = ioc(&folder, &["--put-log", "/dev/full", "a.db"]).spawn().unwrap();
    let port = serving(&mut child);
    for value in ["1", "2", "3"] {
        assert!(run(fodo(port).args(["put", "x:set", value])).status.success());
    }

    let (code, stderr) = stopped(child);

    assert_eq!(code, Some(1), "{stderr}");
    assert_eq!(stderr.matches("put log /dev/full cannot be written").count(), 1, "{stderr}");
    assert!(stderr.ends_with("fodo ioc: puts missing in the put log: 3\n"), "{stderr}");
}

#[test]
fn a_failed_autosave_at_exit_makes_the_exit_code_a_failure() {
    let folder = folder("unsaved", &[]);
    let mut child = ioc(&folder, &["--autosave", "kept", "a.db"]).spawn().unwrap();
    serving(&mut child);
    std::fs::remove_dir_all(folder.join("kept")).unwrap();

    let (code, stderr) = stopped(child);

    assert_eq!(code, Some(1), "{stderr}");
    assert!(stderr.contains("info_settings.sav; the previous file is kept"), "{stderr}");
    assert!(stderr.ends_with("fodo ioc: autosave sets that could not be saved at the end: 1\n"), "{stderr}");
}

#[test]
fn a_nonzero_exit_code_is_kept_if_the_final_autosave_fails() {
    let folder = folder("unsaved-exit", &[]);

    let kept = fed(&folder, &["--autosave", "kept", "a.db"], "system(\"rm -r kept\")\nexit 7\n");
    let zero = fed(&folder, &["--autosave", "kept", "a.db"], "system(\"rm -r kept\")\nexit 0\n");

    assert_eq!((kept.status.code(), zero.status.code()), (Some(7), Some(1)));
}

#[test]
fn endless_or_blocking_files_are_rejected_in_every_argument() {
    let script = "dbLoadRecords(\"endless.db\")\ndbLoadTemplate(\"endless.subs\")\niocshLoad(\"/dev/zero\")\n< /dev/zero\n\
                  dbLoadRecords(\"a.db\")\nset_pass0_restoreFile(\"/dev/zero\")\nset_pass0_restoreFile(\"pipe\")\n\
                  create_manual_set(\"endless.req\")\niocInit\ndbl > pipe\n";
    let folder = folder(
        "endless",
        &[
            ("endless.db", "include \"/dev/zero\"\n"),
            ("endless.subs", "file \"/dev/zero\" { { P=x } }\n"),
            ("endless.req", "file \"/dev/zero\"\n"),
            ("st.cmd", script),
        ],
    );
    make_pipe(folder.join("pipe"));
    let files = ["endless.db", "endless.subs", "endless.req", "/dev/zero", "pipe"];

    let ran = fed(&folder, &["st.cmd"], "exit\n");
    let with_access = run(&mut ioc(&folder, &["-a", "/dev/zero", "a.db"]));
    let checked = files.map(|file| run(fodo(free_port()).current_dir(&folder).args(["check", "--strict", file])));
    let expanded = run(fodo(free_port()).current_dir(&folder).args(["expand", "/dev/zero"]));

    let stderr = text(&ran.stderr);
    assert_eq!(stderr.matches("it is a device, not a regular file").count(), 6, "{stderr}");
    assert_eq!(stderr.matches("it is a pipe, not a regular file").count(), 2, "{stderr}");
    for output in checked.iter().chain([&with_access, &expanded]) {
        let printed = text(&output.stdout) + &text(&output.stderr);
        assert!(output.status.code() == Some(1) && printed.contains("not a regular file"), "{printed}");
    }
}

#[test]
fn system_forwards_program_output_while_it_runs() {
    let folder = folder("system", &[]);
    let mut child = ioc(&folder, &[]).stdin(Stdio::piped()).spawn().unwrap();
    let (out, err) = (Lines::of(child.stdout.take().unwrap()), Lines::of_stream(child.stderr.take().unwrap()));
    let mut input = child.stdin.take().unwrap();

    let program = "echo first; echo second >&2; while [ ! -e go ]; do sleep 0.02; done; echo last";
    writeln!(input, "system(\"{program}\")").unwrap();
    assert_eq!((out.next().as_str(), err.next().as_str()), ("first", "second"));
    std::fs::write(folder.join("go"), "").unwrap();
    assert_eq!(out.next(), "last");

    writeln!(input, "exit").unwrap();
    assert_eq!(wait(&mut child).code(), Some(0));
}

#[test]
fn control_characters_in_shell_input_are_escaped_in_output() {
    const CLEAR: &str = "\u{1b}[2J";
    let script = format!("# {CLEAR}\nno{CLEAR}such(\"x\")\ndbLoadRecords(\"{CLEAR}.db\")\n");
    let database = format!("record(ai, \"x\") {{ field(D{CLEAR}, \"1\") }}\n");
    let folder = folder("control", &[("st.cmd", &script), ("control.db", &database)]);

    let ran = fed(&folder, &["st.cmd"], &format!("no{CLEAR}such\nexit {CLEAR}\nexit\n"));
    let checked = run(fodo(free_port()).current_dir(&folder).args(["check", "control.db", "st.cmd"]));
    let loaded = run(&mut ioc(&folder, &["control.db"]));
    let expanded = run(fodo(free_port()).current_dir(&folder).args(["expand", CLEAR]));

    for output in [ran, checked, loaded, expanded] {
        let printed = text(&output.stdout) + &text(&output.stderr);
        assert!(!printed.contains('\u{1b}') && printed.contains("\\u{1b}[2J"), "{printed:?}");
    }
}

#[test]
fn an_overlong_input_line_is_not_read_further() {
    let folder = folder("line", &[]);

    let output = fed(&folder, &[], &"x".repeat(70_000));

    assert_eq!(output.status.code(), Some(1));
    let stderr = text(&output.stderr);
    assert!(
        stderr.starts_with("fodo ioc: a line of the input has more than 65536 bytes; the rest is not read\n"),
        "{stderr}"
    );
}

#[test]
fn the_startup_message_is_the_same_as_in_softioc_and_absent_with_quiet() {
    let folder = folder("complete", &[]);

    let loud = fed(&folder, &["a.db"], "exit\n");
    let quiet = fed(&folder, &["-q", "a.db"], "exit\n");

    assert_eq!(text(&loud.stderr), COMPLETE);
    assert_eq!((text(&quiet.stdout), text(&quiet.stderr)), (String::new(), String::new()));
}

// Row 82 of docs/reference/faults.md.
#[test]
fn records_are_processed_and_the_ioc_stops_while_its_output_is_not_read() {
    let line = "field(DTYP, \"stdio\") field(OUT, \"@stdout\") field(VAL, \"a line that helps to fill a pipe\")";
    let mut records = "record(calc, \"n\") { field(CALC, \"VAL+1\") field(SCAN, \".1 second\") }\n".to_owned();
    for number in 0..2000 {
        records += &format!("record(stringout, \"p{number}\") {{ {line} field(SCAN, \".1 second\") }}\n");
    }
    let folder = folder("unread", &[("print.db", &records)]);
    let mut child = ioc(&folder, &["print.db"]).spawn().unwrap();
    // Later lines are not read, but the pipe stays open.
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let ready = lines.find(|line| line.starts_with("fodo ioc: serving")).unwrap();

    let context = Context::new(ClientConfig::with_addresses(vec![([127, 0, 0, 1], search_port(&ready)).into()]));
    let monitor = context.channel("n").unwrap().monitor(MonitorOptions::default());
    let events = std::iter::from_fn(|| monitor.next_timeout(PATIENCE));
    let n_updates = events.filter(|event| matches!(event, MonitorEvent::Update(_))).take(20).count();
    let (code, _) = stopped(child);

    assert_eq!((n_updates, code), (20, Some(0)));
}

#[test]
fn get_put_and_monitor_know_the_states_whose_labels_channel_access_does_not_transmit() {
    let rates: String = (4..=21).map(|seconds| format!("choice(menuScan{seconds}, \"{seconds} second\")\n")).collect();
    let fixed = "choice(p, \"Passive\") choice(e, \"Event\") choice(i, \"I/O Intr\")";
    let folder = folder("rates", &[("site.dbd", &format!("menu(menuScan) {{ {fixed} {rates} }}\n"))]);
    let mut child = ioc(&folder, &["-D", "site.dbd", "-d", "a.db"]).spawn().unwrap();
    let port = serving(&mut child);
    let tool = |arguments: &[&str]| {
        let output = run(fodo(port).args(arguments));
        (output.status.code(), text(&output.stdout) + &text(&output.stderr))
    };

    let (code, put) = tool(&["put", "x:set.SCAN", "21 second"]);
    let (_, got) = tool(&["get", "x:set.SCAN"]);
    let (_, number) = tool(&["get", "--numeric", "x:set.SCAN"]);
    let (_, monitored) = tool(&["monitor", "--events", "1", "x:set.SCAN"]);
    let (_, monitored_number) = tool(&["monitor", "--numeric", "--events", "1", "x:set.SCAN"]);
    let (refused, _) = tool(&["put", "x:set.SCAN", "22 second"]);
    stopped(child);

    assert_eq!(code, Some(0), "{put}");
    assert!(put.contains("Passive") && put.contains("21 second"), "{put}");
    assert!(got.contains("21 second") && number.contains("20") && !number.contains("21 second"), "{got}{number}");
    assert!(monitored.contains("21 second") && !monitored_number.contains("second"), "{monitored}{monitored_number}");
    assert_ne!(refused, Some(0));
}
