//! `fodo ioc` with scripts, and commands from a pipe.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking, in its helpers as well")]
#![expect(dead_code, reason = "these tests need a part of what supports all")]

mod support;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Child, Stdio};

use support::{COMPLETE, Lines, end_of, fed, fodo, free_port, ioc, signal, text, wait};

const DATABASE: &str = "record(ao, \"$(P)set\") { field(PREC, 2) field(FLNK, \"$(P)twice\") alias(\"$(P)other\") }\n\
                        record(calc, \"$(P)twice\") { field(CALC, \"A*2\") field(INPA, \"$(P)set CP\") field(PREC, 2) }\n";

/// A temporary folder with a database and a script.
fn folder(name: &str, script: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("shell-{name}-{}", std::process::id()));
    std::fs::create_dir_all(folder.join("db")).unwrap();
    std::fs::write(folder.join("db/a.db"), DATABASE).unwrap();
    std::fs::write(folder.join("st.cmd"), script).unwrap();
    folder
}

/// The lines of the output that follow a line.
fn after<'a>(output: &'a str, line: &str) -> Vec<&'a str> {
    output.lines().skip_while(|other| *other != line).skip(1).collect()
}

#[test]
fn a_startup_script_is_echoed_and_loads_starts_and_writes() {
    let script = "# A comment\n#- and one that is not shown\nepicsEnvSet(\"P\", \"x:\")\nepicsEnvSet Q $(P)y:\n\
                  < more.cmd\ncd db\ndbLoadRecords(\"a.db\", \"P=$(Q)\")\niocInit()\ndbpf \"x:y:set\" 1.25\ndbgf(x:y:twice)\n\
                  dbl > names.txt\nexit 7\necho never\n";
    let folder = folder("whole", script);
    std::fs::write(folder.join("more.cmd"), "echo \"from ${P}more\"\nexit\necho never\n").unwrap();

    let output = end_of(ioc(&folder, &["st.cmd"]).spawn().unwrap());

    let out = text(&output.stdout);
    assert_eq!(output.status.code(), Some(7), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), COMPLETE);
    assert!(out.starts_with("# A comment\nepicsEnvSet(\"P\", \"x:\")\n"), "{out}");
    assert!(out.contains("\nfrom x:more\n") && !out.contains("never"), "{out}");
    assert!(out.contains("\nfodo ioc: serving 2 records on 127.0.0.1:"), "{out}");
    assert_eq!(after(&out, "dbgf(x:y:twice)")[0], "DBF_DOUBLE:         2.5");
    assert_eq!(std::fs::read_to_string(folder.join("db/names.txt")).unwrap(), "x:y:set\nx:y:other\nx:y:twice\n");
}

#[test]
fn a_script_knows_its_own_name() {
    let script = "dbLoadRecords(\"db/a.db\", \"P=x:\")\niocInit\necho this is $(IOCSH_STARTUP_SCRIPT)\nexit\n";
    let folder = folder("name", script);

    let output = end_of(ioc(&folder, &["./st.cmd"]).spawn().unwrap());

    assert!(text(&output.stdout).contains("\nthis is ./st.cmd\n"), "{}", text(&output.stdout));
}

#[test]
fn recceiver_settings_of_a_script_cause_a_warning_without_reccaster() {
    let script = "addReccasterEnvVars(\"A\", \"B\")\naddReccasterExcludePattern(\"*_\")\nvar(reccastMaxHoldoff, 5.0)\n\
                  dbLoadRecords(\"db/a.db\", \"P=x:\")\niocInit\naddReccasterEnvVars(\"C\")\nexit\n";
    let folder = folder("recsync", script);

    let output = end_of(ioc(&folder, &["st.cmd"]).spawn().unwrap());
    let with_reccaster = end_of(ioc(&folder, &["--reccaster=0", "st.cmd"]).spawn().unwrap());

    let late = "st.cmd:6:1: the data for RecCeivers must be set before iocInit";
    let not_sent = "st.cmd:5:1: nothing is sent to RecCeivers; start fodo ioc with --reccaster";
    assert!(text(&output.stderr).contains(not_sent) && text(&output.stderr).contains(late), "{}", text(&output.stderr));
    assert!(
        !text(&with_reccaster.stderr).contains(not_sent) && text(&with_reccaster.stderr).contains(late),
        "{}",
        text(&with_reccaster.stderr)
    );
    assert!(!text(&with_reccaster.stderr).contains("reccastMaxHoldoff"), "{}", text(&with_reccaster.stderr));
}

#[test]
fn an_ioc_does_not_start_if_metrics_cannot_be_served() {
    let folder = folder("metrics", "");
    let occupied = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = occupied.local_addr().unwrap().to_string();

    let output = end_of(ioc(&folder, &["--metrics", &address, "-m", "P=x:", "db/a.db"]).spawn().unwrap());

    let why = format!("fodo ioc: metrics cannot be served on {address}: ");
    assert!(text(&output.stderr).starts_with(&why), "{}", text(&output.stderr));
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(1), String::new()));
}

#[test]
fn commands_from_a_pipe_run_and_end_of_input_does_not_stop_the_ioc() {
    let folder = folder("pipe", "");
    let mut child = ioc(&folder, &["-m", "P=x:", "db/a.db"]).stdin(Stdio::piped()).spawn().unwrap();
    let lines = Lines::of(child.stdout.take().unwrap());
    assert!(lines.next().starts_with("fodo ioc: serving 2 records"));

    let mut input = child.stdin.take().unwrap();
    input.write_all(b"dbla\ndbstat\necho done\n").unwrap();
    let seen: Vec<String> = (0..5).map(|_| lines.next()).collect();
    drop(input);

    assert_eq!(seen, ["x:other -> x:set", "       1 ao", "       1 calc", "       2 records, 1 aliases", "done"]);
    assert_serves_until_a_signal(child);
}

/// Checks that it is running and that a signal stops it cleanly.
fn assert_serves_until_a_signal(mut child: Child) {
    assert!(child.try_wait().unwrap().is_none());
    signal(&child, "TERM");
    assert_eq!(wait(&mut child).code(), Some(0));
}

#[test]
fn a_script_error_is_reported_with_its_position_and_follows_on_error() {
    let script = "dbLoadRecord(\"db/a.db\")\non error break\ndbLoadRecords(\"db/a.db\")\necho never\n";
    let folder = folder("break", script);

    let output = end_of(ioc(&folder, &["st.cmd"]).spawn().unwrap());

    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(!text(&output.stdout).contains("never"));
    assert!(
        stderr.starts_with("st.cmd:1:1: there is no command \"dbLoadRecord\"; did you mean \"dbLoadRecords\"?\n"),
        "{stderr}"
    );
    assert!(stderr.contains("db/a.db:1:13: macro \"P\" is not defined"), "{stderr}");
    assert!(stderr.ends_with("loaded by st.cmd:3\n"), "{stderr}");
}

#[test]
fn a_halted_script_keeps_serving_and_reads_no_further_input() {
    let folder = folder("halt", "dbLoadRecords(db/a.db,\"P=x:\")\niocInit\non error halt\nnonsense\necho never\n");
    let mut child = ioc(&folder, &["st.cmd"]).spawn().unwrap();

    let err = Lines::of_stream(child.stderr.take().unwrap());
    let (complete, error) = (err.next(), err.next());

    assert_eq!(complete, COMPLETE.trim_end());
    assert!(error.starts_with("st.cmd:4:1: there is no command \"nonsense\""), "{error}");
    assert_serves_until_a_signal(child);
}

#[test]
fn end_of_input_before_ioc_init_is_a_failure() {
    let folder = folder("nothing", "epicsEnvSet A 1\n");

    let output = fed(&folder, &["st.cmd"], "echo $(A)\n");
    let without_files = fed(&folder, &[], "");

    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(1), "epicsEnvSet A 1\n1\n"));
    assert_eq!(text(&output.stderr), "fodo ioc: iocInit was never run, so nothing is served\n");
    assert!(text(&without_files.stderr).ends_with("; give a database or a script, see fodo ioc --help\n"));
}

#[test]
fn an_ioc_with_a_missing_access_file_serves_nothing() {
    let folder = folder("security", "asSetFilename(\"plant.acf\")\ndbLoadRecords(db/a.db,\"P=x:\")\niocInit\n");

    let output = fed(&folder, &["-S", "st.cmd"], "");

    assert_eq!(output.status.code(), Some(1));
    let stderr = text(&output.stderr);
    assert!(stderr.contains("plant.acf: cannot be read") && stderr.contains("nothing is served"), "{stderr}");
}

#[test]
fn a_script_sets_the_access_file_and_as_init_reloads_it() {
    let script =
        "asSetSubstitutions(\"RIGHT=READ\")\nasSetFilename(plant.acf)\ndbLoadRecords(db/a.db,\"P=x:\")\niocInit\n";
    let folder = folder("rights", script);
    std::fs::write(folder.join("plant.acf"), "ASG(DEFAULT) { RULE(1, $(RIGHT)) }\nFOO(bar)\n").unwrap();
    let mut child = ioc(&folder, &["st.cmd"]).stdin(Stdio::piped()).spawn().unwrap();
    let err = Lines::of_stream(child.stderr.take().unwrap());
    let lines = Lines::of(child.stdout.take().unwrap());
    let ready = std::iter::repeat_with(|| lines.next()).find(|line| line.starts_with("fodo ioc: serving")).unwrap();
    let port = support::search_port(&ready);
    let put = || support::run(fodo(port).args(["put", "x:set", "1"])).status.code();

    let before = put();
    std::fs::write(folder.join("plant.acf"), "ASG(DEFAULT) { RULE(1, WRITE) }").unwrap();
    child.stdin.as_mut().unwrap().write_all(b"asInit\nasSetFilename other.acf\necho done\n").unwrap();
    assert_eq!(lines.next(), "done");
    let after = put();

    assert_eq!((before, after), (Some(5), Some(0)));
    let warning = err.next();
    assert!(warning.contains("plant.acf:2:1: unknown item \"FOO\""), "{warning}");
    // The source line of the script precedes it.
    assert!(
        std::iter::repeat_with(|| err.next()).any(|line| line.contains("access security must be set before iocInit"))
    );
    assert_serves_until_a_signal(child);
}

#[test]
fn script_macros_apply_only_to_their_script() {
    let folder = folder(
        "scope",
        "iocshLoad(\"inner.cmd\", \"A=inner\")\necho $(A=outer)\niocshRun(\"echo $(A)\", \"A=run\")\nexit\n",
    );
    std::fs::write(folder.join("inner.cmd"), "echo $(A)\n").unwrap();

    let output = end_of(ioc(&folder, &["st.cmd"]).spawn().unwrap());

    let printed: Vec<String> = text(&output.stdout).lines().map(str::to_owned).collect();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(printed.contains(&"inner".to_owned()) && printed.contains(&"outer".to_owned()), "{printed:?}");
}

#[test]
fn databases_are_found_along_the_environment_path() {
    let script = "epicsEnvSet(\"EPICS_DB_INCLUDE_PATH\", \"none:db\")\ndbLoadRecords(\"a.db\", \"P=x:\")\n\
                  dbLoadTemplate(\"b.substitutions\", \"\", \"more\")\niocInit\ndbstat\nexit\n";
    let folder = folder("path", script);
    std::fs::create_dir_all(folder.join("more")).unwrap();
    std::fs::write(folder.join("more/b.substitutions"), "file a.db { { P=y: } }\n").unwrap();

    let output = end_of(ioc(&folder, &["st.cmd"]).spawn().unwrap());

    assert_eq!(text(&output.stderr), COMPLETE);
    assert_eq!(after(&text(&output.stdout), "dbstat")[2], "       4 records, 2 aliases");
}

#[test]
fn softioc_flags_are_accepted() {
    let folder = folder("flags", "");

    let output =
        fed(&folder, &["-D", "softIoc.dbd", "-s", "-v", "-m", "P=x:", "-d", "db/a.db"], "dbgrep *twice\nexit\n");

    let out = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(
        out.starts_with("dbLoadDatabase softIoc.dbd\ndbLoadRecords db/a.db P=x:\niocInit\nfodo ioc: serving"),
        "{out}"
    );
    assert!(out.ends_with("\nx:twice\n"), "{out}");
    let missing = "\"softIoc.dbd\" cannot be read (No such file or directory (os error 2)); scan rates ";
    assert_eq!(text(&output.stderr), format!("{missing}that it defines are missing\n{COMPLETE}"));
}

#[test]
fn site_scan_rates_are_read_from_a_dbd_file() {
    let script = "dbLoadDatabase(\"site.dbd\", \"dbd\")\ndbLoadRecords(\"db/slow.db\")\niocInit\n";
    let folder = folder("menus", script);
    std::fs::create_dir_all(folder.join("dbd")).unwrap();
    let rates = "menu(menuScan) {\n choice(menuScanPassive, \"Passive\") choice(menuScanEvent, \"Event\")\n\
                 choice(menuScanI_O_Intr, \"I/O Intr\") choice(menuScan1_minute, \"1 minute\")\n\
                 choice(menuScan6_second, \"6 second\")\n}\n";
    std::fs::write(folder.join("dbd/rates.dbd"), rates).unwrap();
    let site = "path \"dbd\"\ninclude \"rates.dbd\"\nrecordtype(robot) { field(VAL, DBF_DOUBLE) {} }\n\
                device(ai, INST_IO, devX, \"asynInt32\")\nregistrar(siteRegistrar)\n";
    std::fs::write(folder.join("dbd/site.dbd"), site).unwrap();
    let records = "record(ai, a) { field(SCAN, \"1 minute\") }\nrecord(ai, b) { field(SCAN, \"6 second\") }\n";
    std::fs::write(folder.join("db/slow.db"), records).unwrap();
    let commands = "dbpf a.SCAN \"6 second\"\ndbpf b.SCAN 3\nscanppl\nexit\n";

    let by_script = fed(&folder, &["st.cmd"], commands);
    let by_flag = fed(&folder, &["-x", "e:", "-D", "dbd/site.dbd", "-d", "db/slow.db"], commands);
    let checked =
        fodo(free_port()).current_dir(&folder).args(["check", "dbd/site.dbd", "db/slow.db"]).output().unwrap();
    let refused = fodo(free_port()).current_dir(&folder).args(["check", "db/slow.db"]).output().unwrap();

    for output in [by_script, by_flag] {
        let out = text(&output.stdout);
        let expected = "every 60 s: 1 records, 0 periods skipped\n  b\nevery 6 s: 1 records, 0 periods skipped\n  a\n";
        assert!(out.ends_with(expected), "{out}");
        assert!(out.contains("\"6 second\"") && out.contains("\"1 minute\""), "{out}");
        assert_eq!(text(&output.stderr), COMPLETE);
    }
    assert_eq!(text(&checked.stdout), "0 errors, 0 warnings\n");
    assert!(text(&refused.stdout).contains("(a site's menuScan must be loaded first)"), "{}", text(&refused.stdout));
}

#[test]
fn simulate_loads_unsupported_records_and_reports_their_number() {
    let folder = folder("simulate", "dbLoadRecords(\"db/plant.db\")\niocInit\ndbgf m\n");
    let plant = "record(motor, \"m\") { field(VAL, 2) }\nrecord(ai, \"t\") { field(DTYP, \"stream\") field(INP, \"@a.proto\") }\n";
    std::fs::write(folder.join("db/plant.db"), plant).unwrap();

    let refused = fed(&folder, &["st.cmd"], "exit\n");
    let simulated = fed(&folder, &["--simulate", "st.cmd"], "exit\n");
    let checked = fodo(free_port()).current_dir(&folder).args(["check", "--simulate", "st.cmd"]).output().unwrap();

    assert!(text(&refused.stderr).contains("no record support for \"motor\""));
    assert_eq!(
        text(&simulated.stderr),
        format!("1 ai inert: unknown DTYP \"stream\"\n1 motor inert: no record support for this type\n{COMPLETE}")
    );
    assert_eq!(after(&text(&simulated.stdout), "dbgf m")[0], "DBF_DOUBLE:         2");
    let notes = "note: 1 ai inert: unknown DTYP \"stream\"\nnote: 1 motor inert: no record support for this type\n";
    assert_eq!(text(&checked.stdout), format!("{notes}0 errors, 0 warnings, 2 notes\n"));
}

#[test]
fn dbcar_shows_external_links_with_their_server() {
    let folder = folder("outside", "");
    std::fs::write(folder.join("far.db"), "record(ao, \"far\") {}\n").unwrap();
    std::fs::write(folder.join("near.db"), "record(ai, \"near\") { field(INP, \"far\") }\n").unwrap();
    let mut far = ioc(&folder, &["far.db"]).spawn().unwrap();
    let ready = Lines::of(far.stdout.take().unwrap()).next();
    let address = ready.split([' ', ',']).find(|word| word.starts_with("127.0.0.1:")).unwrap().to_owned();
    let mut near = fodo(support::search_port(&ready));
    near.current_dir(&folder).args(["ioc", "--interface", "127.0.0.1", "--port", "0", "near.db"]);
    let mut child = near.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let lines = Lines::of(child.stdout.take().unwrap());
    lines.next();

    let mut report_links = || {
        child.stdin.as_mut().unwrap().write_all(b"dbcar \"\" 2\n").unwrap();
        let line = lines.next();
        assert!(lines.next().starts_with("1 links lead to other IOCs"));
        line
    };
    let line = std::iter::repeat_with(&mut report_links).find(|line| !line.contains("not connected")).unwrap();

    assert!(line.starts_with(&format!("near.INP \"far NPP NMS\": connected to {address}, lost 0 times")), "{line}");
    [child, far].into_iter().for_each(assert_serves_until_a_signal);
}

#[test]
fn what_a_record_prints_appears_before_the_output_of_the_command_that_processes_it() {
    let folder = folder("printed", "");
    let records = "record(stringout, \"x\") { field(DTYP, \"stdio\") field(OUT, \"@stdout\") }\n";
    std::fs::write(folder.join("print.db"), records).unwrap();

    let output = fed(&folder, &["print.db"], "dbpf x one\ndbpf x two\nexit\n");

    let out = text(&output.stdout);
    let lines: Vec<&str> = out.lines().skip(1).collect();
    assert_eq!(lines, ["one", "DBF_STRING:         \"one\"", "two", "DBF_STRING:         \"two\""]);
}

#[test]
fn a_paused_ioc_scans_no_records() {
    let script = "dbLoadRecords(\"n.db\")\niocInit\niocPause\ndbgf x:n\nepicsThreadSleep 0.5\ndbgf x:n\niocRun\n";
    let folder = folder("paused", script);
    std::fs::write(
        folder.join("n.db"),
        "record(calc, \"x:n\") { field(CALC, \"VAL+1\") field(SCAN, \".1 second\") }\n",
    )
    .unwrap();
    let mut child = ioc(&folder, &["st.cmd"]).stdin(Stdio::piped()).spawn().unwrap();
    let lines = Lines::of(child.stdout.take().unwrap());
    let value = || std::iter::repeat_with(|| lines.next()).find(|line| line.starts_with("DBF_DOUBLE")).unwrap();

    let (before, after) = (value(), value());
    let ask = || {
        child.stdin.as_mut().unwrap().write_all(b"dbgf x:n\n").unwrap();
        value()
    };
    let later = std::iter::repeat_with(ask).find(|value| *value != after);

    assert!(before == after && later.is_some(), "{before} {after} {later:?}");
    assert_serves_until_a_signal(child);
}

#[test]
fn record_lists_show_fields_and_reject_an_unknown_record_type() {
    let folder = folder("lists", "dbLoadRecords(\"db/a.db\", \"P=x:\")\niocInit\n");

    let output = fed(&folder, &["st.cmd"], "dbgrep *t* \"PREC SCAN\"\ndbl ai\ndbl calcc\ndbpr x:set nine\nexit\n");

    let out = text(&output.stdout);
    assert!(out.ends_with("\nx:set, \"2\", \"Passive\"\nx:twice, \"2\", \"Passive\"\n"), "{out}");
    assert_eq!(
        text(&output.stderr),
        format!(
            "{COMPLETE}there is no record type \"calcc\"; did you mean \"calc\"?\n\
             \"nine\" is not a level; use 0 (least) to 4 (most)\n"
        )
    );
}

#[test]
fn the_exit_record_ends_the_ioc_with_the_exit_code_of_its_input() {
    let folder = folder("exit-record", "");

    let well = fed(&folder, &["-x", "x"], "dbgf x:exit.SNAM\ndbpf x:exit.PROC 1\n");
    let version =
        fed(&folder, &["-x", "x"], "dbgf x:BaseVersion\ndbgf x:BaseVersion.SEVR\ndbgf x:BaseVersion.DISP\nexit\n");
    let badly = fed(&folder, &["-x", "x", "-m", "P=x:", "db/a.db"], "dbpf x:exit.A 1\n");
    let never = fed(&folder, &["-x", "a b"], "");

    assert_eq!(after(&text(&well.stdout), "DBF_STRING:         \"exit\"").len(), 1, "{}", text(&well.stdout));
    assert_eq!([&well, &badly, &never].map(|output| output.status.code()), [Some(0), Some(1), Some(1)]);
    let version = text(&version.stdout);
    let fodo = format!("DBF_STRING:         \"Fodo {}\"", env!("CARGO_PKG_VERSION"));
    assert!(version.contains(&fodo) && version.contains("\"NO_ALARM\""), "{version}");
    assert!(version.ends_with(" 1 = 0x1\n"), "{version}");
    assert!(text(&never.stderr).starts_with("fodo ioc: -x: \"a b:exit\" cannot be a name"), "{}", text(&never.stderr));
}

#[test]
fn getenv_records_read_variables_set_in_the_shell() {
    let folder = folder("getenv", "dbLoadRecords(\"db/env.db\")\nepicsEnvSet(\"FODO_HALL\", \"north\")\niocInit\n");
    let record =
        "record(stringin, \"hall\") { field(DTYP, \"getenv\") field(INP, \"@FODO_HALL\") field(PINI, \"YES\") }\n";
    std::fs::write(folder.join("db/env.db"), record).unwrap();

    let input = "dbgf hall\nepicsEnvSet FODO_HALL south\ndbpf hall.PROC 1\ndbgf hall\nepicsEnvUnset FODO_HALL\n\
                 dbpf hall.PROC 1\ndbgf hall.SEVR\nexit\n";
    let output = fed(&folder, &["st.cmd"], input);

    let out = text(&output.stdout);
    let texts: Vec<&str> = out.lines().filter_map(|line| line.strip_prefix("DBF_STRING:         ")).collect();
    assert_eq!(texts, ["\"north\"", "\"south\"", "\"INVALID\""]);
}

#[test]
fn report_commands_show_rules_states_lists_and_values() {
    let script = "dbLoadRecords(\"db/a.db\", \"P=x:\")\nasSetFilename(\"a.acf\")\ndbCreateAlias(\"x:set\", \"x:alias\")\n\
                  afterIocRunning \"dbgf x:alias\"\ndbStateCreate red\niocBuild\niocRun\n";
    let folder = folder("reports", script);
    let rules = "UAG(them) { b, a }\nASG(DEFAULT) { INPA(\"x:set\") RULE(1, READ) RULE(1, WRITE) { UAG(them) CALC(\"A=7\") } }\n";
    std::fs::write(folder.join("a.acf"), rules).unwrap();
    let shown = |line: &str| {
        let output = fed(&folder, &["st.cmd"], &format!("dbpf x:set 7\necho answer:\n{line}\nexit\n"));
        let out = text(&output.stdout);
        after(&out, "answer:").join("|")
    };

    assert_eq!(
        shown("asprules"),
        "ASG(DEFAULT) {|  INPA(\"x:set\") is 7|  RULE(1, READ)|  RULE(1, WRITE) { UAG(them) CALC is met }|}"
    );
    assert_eq!(shown("aspuag"), "UAG(them) { a, b }");
    assert_eq!(shown("aspmem"), "DEFAULT: 2 records|  x:set|  x:twice");
    assert_eq!(shown("dbStateSet red\ndbStateShow r*"), "red is on");
    assert_eq!(shown("dbStateShowAll 1"), "red is off");
    assert!(shown("coreRelease").starts_with("Fodo "));
    assert_eq!(shown("dbel"), "clients subscribe to 0 fields");
    assert_eq!(
        shown("dbpf x:set.SCAN Event\ndbpf x:set.EVNT go\nscanpel g*").split('|').skip(2).collect::<Vec<_>>(),
        ["Event go: 1 records", "  x:set"]
    );
    assert!(shown("dbtgf x:alias").starts_with("DBF_STRING:   \"7.00\"|DBF_CHAR:     7|"));
    assert!(shown("dba x:set").contains("|Type:          DBF_DOUBLE|Elements:      1|Writable:      yes|"));
    assert_eq!(shown("dbhcr"), "there are no drivers, and no record needs one");
    let whole = text(&fed(&folder, &["st.cmd"], "exit\n").stdout);
    assert!(whole.ends_with("DBF_DOUBLE:         0\n"), "{whole}");
}
