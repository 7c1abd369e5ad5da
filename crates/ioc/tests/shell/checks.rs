//! A shell that checks a script, and what programs call on a shell besides its commands.

use std::collections::HashSet;
use std::io;
use std::sync::mpsc;

use fodo_db::{Loader, Macros};
use fodo_ioc::shell::{Flow, Purpose, Shell, check_request_file, is_command};

use crate::{PATIENCE, Terminal};

/// The findings of a check of `st.cmd` in the folder, one line each.
fn findings(terminal: &Terminal, script: &str, simulates: bool) -> Vec<String> {
    terminal.file("st.cmd", script);
    let nowhere = || Box::new(io::sink());
    let variables = std::iter::empty();
    let mut shell = Shell::new(Purpose::Check, &terminal.folder, variables, nowhere(), nowhere());
    if simulates {
        shell.simulate();
    }
    assert_eq!(shell.run_script("st.cmd"), Flow::Next);
    let findings = shell.into_findings();
    findings.iter().map(|finding| format!("{:?} {}", finding.weight, finding.error)).collect()
}

#[track_caller]
fn assert_found(found: &[String], expected: &[&str]) {
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.starts_with(expected), "{found} does not start with {expected}");
    }
}

#[test]
fn a_check_finds_errors_of_records_rules_and_autosave_sets_without_ioc_init() {
    let terminal = Terminal::new();
    terminal.file("a.db", "record(ai, a) { field(INP, \"b NPP\") info(autosaveFields, \"EGU\") }\n");
    terminal.file("a.substitutions", "file \"t.db\" { { N=1 } }\n");
    terminal.file("t.db", "record(ai, \"t$(N)\") { field(FLNK, \"@bad\") }\n");
    terminal.file("a.acf", "ASG(DEFAULT) { INPA(far) RULE(1, WRITE) { CALC(\"A=1\") } }\n");
    terminal.file("s.req", "a.EGU\nc\n");
    let script = "dbLoadRecords a.db\ndbLoadTemplate a.substitutions\nasSetFilename a.acf\n\
        makeAutosaveFileFromDbInfo made autosaveFields\ncreate_monitor_set s.req 5\nnonsense\n";

    let found = findings(&terminal, script, false);

    let with = |part: &str| found.iter().filter(|line| line.contains(part)).count();
    assert_eq!(with("nonsense"), 1, "{found:#?}");
    assert_eq!(with("the input \"far\" is not a record here"), 1, "{found:#?}");
    assert_eq!(with("there is no record \"c\""), 1, "{found:#?}");
    assert_eq!(with("t.db:1:"), 1, "{found:#?}");
    assert_eq!(with("a.db:1:"), 1, "{found:#?}");
    assert!(!terminal.folder.join("made.req").exists(), "a check writes no files");
}

#[test]
fn a_check_after_ioc_init_reports_nothing_twice() {
    let terminal = Terminal::new();
    terminal.file("a.db", "record(ai, a) { field(INP, \"b NPP\") }\n");

    let found = findings(&terminal, "dbLoadRecords a.db\niocInit\ndbgf a\ndbgf c\n", false);

    assert_found(&found, &["Warning a.db:1:", "Error st.cmd:4:6: there is no record \"c\""]);
}

#[test]
fn unknown_record_types_are_errors_unless_they_are_simulated() {
    let mut terminal = Terminal::new();
    terminal.file("a.db", "record(motor, m) {}\nrecord(ai, a) {}\n");
    let script = "dbLoadRecords a.db\niocInit\n";

    let found = findings(&terminal, script, false);
    assert!(found[0].starts_with("Error a.db:1:") && found[0].contains("motor"), "{found:?}");
    let found = findings(&terminal, script, true);
    assert!(found[0].starts_with("Note ") && found[0].contains("motor"), "{found:?}");

    terminal.shell.simulate();
    terminal.run("dbLoadRecords a.db");
    let printed = terminal.run("iocInit");
    assert!(printed.starts_with("serving 2 records\n! ") && printed.contains("motor"), "{printed}");
    assert!(terminal.run("dbhcr").contains("motor"));
}

#[test]
fn a_request_file_is_checked_with_and_without_a_database() {
    let terminal = Terminal::new();
    terminal.file("s.req", "$(P)a\n$(Q)b\n");
    let path = terminal.folder.join("s.req").display().to_string();
    let check = |path: &str| check_request_file(path, &Macros::parse("P=x:").unwrap(), None, &HashSet::new());

    let errors = check(&path);

    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!((errors[0].line, errors[0].message.contains("\"Q\"")) == (2, true), "{errors:?}");
    assert!(check("nofile.req")[0].message.starts_with("it cannot be read: "));
}

#[test]
fn a_request_file_may_name_any_field_of_a_simulated_record_but_only_known_fields_of_others() {
    let terminal = Terminal::new();
    terminal.file("s.req", "m.ANY\na.HIGH\na.ANY\ngone.VAL\nlost.VAL\n");
    let path = terminal.folder.join("s.req").display().to_string();
    let mut loader = Loader::default();
    loader.enable_simulation();
    loader.load("a.db", "", &mut |_| Ok(b"record(mythical, m) {}\nrecord(ai, a) {}\n".to_vec())).unwrap();
    let database = loader.finish().unwrap();

    let missing = HashSet::from(["gone".to_owned()]);
    let errors = check_request_file(&path, &Macros::default(), Some(&database), &missing);

    let shown: Vec<String> = errors.iter().map(|error| format!("{}: {}", error.line, error.message)).collect();
    assert_eq!(shown.len(), 2, "{shown:?}");
    assert!(shown[0].starts_with("3: ") && shown[0].contains("ANY"), "{shown:?}");
    assert!(shown[1].starts_with("5: ") && shown[1].contains("lost"), "{shown:?}");
}

#[test]
fn a_strict_shell_stops_at_the_first_error_and_rejects_invalid_links() {
    let mut terminal = Terminal::new();
    terminal.shell.be_strict();
    terminal.file("st.cmd", "nonsense\necho after\n");
    terminal.file("a.db", "record(ai, a) { field(FLNK, \"@bad\") }\n");

    assert_eq!(terminal.shell.run_script("st.cmd"), Flow::Broken);
    assert!(!terminal.out.take().contains("\nafter\n"));
    terminal.run("dbLoadRecords a.db");
    let printed = terminal.run("iocInit");

    assert!(printed.starts_with("! a.db:1:"), "{printed}");
    assert!(!terminal.shell.is_running());
}

#[test]
fn a_command_given_as_words_returns_its_errors() {
    let mut terminal = Terminal::new();
    terminal.file("a.db", "record(ai, a) {\n");

    assert_eq!(terminal.shell.attempt(&["epicsEnvSet", "A B", "c d"]), Ok(()));
    let [of_word, of_file] =
        [["dbLoadRecords", ""], ["dbLoadRecords", "a.db"]].map(|words| terminal.shell.attempt(&words).unwrap_err());

    assert_eq!(terminal.shell.variable("A B"), Some("c d"));
    assert!(of_word[0].message.starts_with("a database is missing"), "{of_word:?}");
    assert_eq!(of_file[0].file, "a.db");
    assert_eq!(terminal.run("echo"), "\n", "nothing else was printed");
}

#[test]
fn processing_the_exit_record_calls_exit_with_0_or_1() {
    let (sender, codes) = mpsc::channel();
    let mut terminal = Terminal::new();
    terminal.shell.serve_exit("x", move |code| sender.send(code).unwrap()).unwrap();
    assert!(terminal.shell.loader().is_some());
    terminal.run("iocInit");

    terminal.run("dbpf x:exit.PROC 1");
    assert_eq!(codes.recv_timeout(PATIENCE), Ok(0));
    terminal.run("dbpf x:exit.A 7");
    terminal.run("dbpf x:exit.PROC 1");
    assert_eq!(codes.recv_timeout(PATIENCE), Ok(1));

    let version = terminal.run("dbgf x:BaseVersion");
    assert!(version.starts_with("DBF_STRING:         \"Fodo "), "{version}");
    assert!(terminal.shell.serve_exit("y", |_| ()).is_ok(), "it has no effect after iocInit");
}

#[test]
fn the_completer_of_a_shell_completes_its_records_after_ioc_init() {
    let mut terminal = Terminal::new();
    let completer = terminal.shell.completer();
    terminal.file("a.db", "record(ai, \"x:one\") {}\n");
    terminal.run("dbLoadRecords a.db");
    assert_eq!(completer.complete("dbgf x", 6), (5, Vec::new()));

    terminal.run("iocInit");

    assert_eq!(completer.complete("dbgf x", 6), (5, vec!["x:one".to_owned()]));
}

#[test]
fn lines_of_scripts_are_recognised_by_their_command() {
    for line in
        ["dbl", "  iocInit()", "< st.cmd", "dbLoadRecords(\"a.db\")", "require asyn", "drvAsynIPPortConfigure(\"a\")"]
    {
        assert!(is_command(line), "{line}");
    }
    for line in ["record(ai, a) {}", "", "# comment", "file t.db {", "device1", "asyn", "Upper"] {
        assert!(!is_command(line), "{line}");
    }
    for line in
        ["callbackSetQueueSize(5)", "plant_registerRecordDeviceDriver pdbbase", "dbb a", "seq &prog", "xpsConfig 1"]
    {
        assert!(is_command(line), "{line}");
    }
}
