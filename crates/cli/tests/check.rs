//! `fodo check` reports every planted error at its position, and nothing else.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking, in its helpers as well")]
#![expect(dead_code, reason = "these tests need a part of what supports all")]

mod support;

use std::path::PathBuf;

use serde_json::Value as Json;
use support::{fodo, free_port, run, text};

/// A line of a file, the text at the position of the error (empty: no error), its level, and part of the message.
type Planted = (&'static str, &'static str, &'static str, &'static str);

const FINE: (&str, &str, &str) = ("", "", "");

const fn valid(line: &'static str) -> Planted {
    (line, FINE.0, FINE.1, FINE.2)
}

const DATABASE: &[Planted] = &[
    valid("# Every fault that people make in databases, one in each line."),
    valid("record(ai, \"$(P)good\") { field(DESC, \"is fine\") field(SCAN, \"1 second\") }"),
    valid("record(bo, \"$(P)passive\") { field(ZNAM, \"Off\") field(ONAM, \"On\") }"),
    ("record(aii, \"$(P)a1\") {}", "aii", "error", "no record type \"aii\"; did you mean \"ai\"?"),
    (
        "record(motor, \"$(P)a2\") {}",
        "motor",
        "error",
        "no record support for \"motor\", so the record does not process and is INVALID; with --simulate",
    ),
    (
        "record(ai, \"$(P)a3\") { field(VLA, 1) }",
        "VLA",
        "error",
        "no field \"VLA\" in record type ai; did you mean \"VAL\"?",
    ),
    ("record(ai, \"$(P)a4\") { field(SCAN, \"1 secnd\") }", "\"1 secnd", "error", "did you mean \"1 second\"?"),
    ("record(ai, \"$(P)a5\") { field(DTYP, \"Soft Chanel\") }", "\"Soft", "error", "did you mean \"Soft Channel\"?"),
    (
        "record(epid, \"$(P)e0\") {}",
        "epid",
        "error",
        "is INVALID; with --simulate such records are loaded and do nothing",
    ),
    (
        "record(ai, \"$(P)a0\") { field(DTYP, \"asynFloat64\") }",
        "\"asyn",
        "error",
        "\"General Time\"; with --simulate such records are loaded and do nothing",
    ),
    ("record(throttle, \"$(P)a0\") {}", "throttle", "error", "\"throttle\"; there are aSub, aai, aao, acalcout"),
    ("record(ai, \"$(P)a0\") { field(DESC, two words) }", "words", "error", "several words need double quotes"),
    ("record(ai, \"$(P)a0\") { field(DESC, 'two') }", "'two", "error", "a text with it needs double quotes"),
    ("record(ai, \"$(P)a6\") { field(EGU, \"$(UNITS)\") }", "$(UNITS)", "error", "macro \"UNITS\" is not defined"),
    ("record(ai, \"$(P)a7\") { field(DESC, \"never closed) }", "\"never", "error", "the closing '\"' is missing"),
    ("record(ai, \"$(P)a8\") { field(PREC, \"three\") }", "\"three", "error", "expected a whole number"),
    ("record(ai, \"$(P)a9\") { field(PREC, \"99999\") }", "\"99999", "error", "it must be between -32768 and 32767"),
    ("record(ai, \"$(P)b1\") { field(HIGH, \"1,5\") }", "\"1,5", "error", "did you mean \"1.5\"?"),
    ("record(ai, \"$(P)b2\") { field(EGU, \"much too long for units\") }", "\"much", "error", "EGU can hold 15 bytes"),
    (
        "record(ai, \"$(P)a name of more than sixty bytes, with blanks as well, is none\") {}",
        "\"$(P)a name",
        "error",
        "bytes long",
    ),
    ("record(ai, \"$(P)a b\") {}", "\"$(P)a b", "error", "it contains ' '"),
    ("record(ai, \"$(P)a.b\") {}", "\"$(P)a.b", "error", "it contains '.'"),
    ("record(ai, \"-b3\") {}", "\"-b3", "error", "it starts with '-'"),
    ("record(ao, \"$(P)good\") {}", "\"$(P)good", "error", "already exists with type ai"),
    ("record(calc, \"$(P)b4\") { field(CALC, \"A+*B\") }", "*B", "error", "this is not a value"),
    ("record(calc, \"$(P)b5\") { field(CALC, \"(A+B\") }", "\") }", "error", "')' is missing"),
    ("record(calc, \"$(P)b6\") { field(CALC, \"A?B\") }", "\") }", "error", "':' is missing"),
    ("record(ai \"$(P)b7\") {}", "\"$(P)b7", "error", "expected ','"),
    ("record(ai, \"$(P)b8\") { feild(VAL, 1) }", "feild", "error", "did you mean \"field\"?"),
    ("record(ai, \"$(P)b9\") { field(VAL 1) }", "1) }", "error", "expected ','"),
    ("recrod(ai, \"$(P)c1\") {}", "recrod", "error", "did you mean \"record\"?"),
    ("record(\"*\", \"$(P)goood\") { field(PREC, 1) }", "\"$(P)goood", "error", "to add to; did you mean \"x:good\"?"),
    ("record(\"#\", \"$(P)goood\")", "\"$(P)goood", "error", "to delete; did you mean \"x:good\"?"),
    ("record(ai, \"$(P)c2\") { alias(\"$(P)good\") }", "\"$(P)good", "error", "is already the name of a record"),
    (
        "record(ai, \"$(P)c4\") { info(archive, {period: [1, 2}) }",
        "{period",
        "error",
        "does not close this value; ']' is missing",
    ),
    ("record(ai, \"$(P)c5\") { field(VAL, 1) ? }", "?", "error", "unexpected character '?'"),
    ("record(ai, \"$(P)c6\") { field(NAME, \"other\") }", "\"other", "error", "cannot be set as a field"),
    ("record(ai, \"$(P)c7\") { field(DESC, \"${X\")", "${X", "error", "'}' is missing at the end of this macro"),
    valid("}"),
];

const DATABASE_2: &[Planted] = &[
    valid("record(ai, \"$(P)good\") { field(SCAN, \"1 second\") }"),
    valid("record(calc, \"$(P)passive\") { field(CALC, \"A\") field(INPA, \"$(P)good CP MS\") }"),
    ("include \"none.db\"", "\"none", "error", "\"none.db\" cannot be read"),
    ("include \"again.db\"", "\"again", "error", "include: again.db -> again.db"),
    (
        "alias(\"$(P)gone\", \"$(P)other\")",
        "\"$(P)gone",
        "error",
        "there is no record \"x:gone\"; did you mean \"x:good\"?",
    ),
    ("menu(menuScan) { choice(menuScan20, \"20 second\") }", "menuScan)", "error", "must begin with the choices"),
    ("device(ai, INST_IO, devX, \"Stream\")", "\"Stream", "error", "device support \"Stream\" is code"),
    ("breaktable(t) { 0 1 5 2 3 4 }", "3", "error", "must increase: 3 follows 5"),
    valid("record(ai, \"$(P)open\") { field(PREC, 1)"),
    ("record(ai, \"$(P)next\") {}", "record", "error", "the '}' of \"x:open\" is missing"),
    ("record(ai, \"$(P)last\") { field(DESC, \"$(NO)$(P)\")", "$(NO", "error", "$(NO=...); another line uses it too"),
    valid("field(EGU, \"$(NO)\")"),
];

/// Checks that need all records.
const MISFITS: &[Planted] = &[
    valid("record(ai, \"$(P)good\") {}"),
    (
        "record(ai, \"$(P)a1\") { field(INP, \"@asyn(PORT)\") }",
        "\"@asyn",
        "error",
        "requires a link or a constant, not an address",
    ),
    (
        "record(bi, \"$(P)a2\") { field(DTYP, \"Db State\") field(INP, \"@\") }",
        "\"@\"",
        "error",
        "Db State takes the name of a state",
    ),
];

const WARNINGS: &[Planted] = &[
    valid("record(ai, \"$(P)good\") { field(SCAN, \"1 second\") field(PREC, 2) }"),
    valid("record(ao, \"$(P)passive\") { field(DRVH, 5) info(autosaveFields, \"VAL DESC$  PREC\") }"),
    (
        "record(ao, \"$(P)a0\") { info(autosaveFields_pass0, \"VAL VLA\") }",
        "\"VAL",
        "warning",
        "no field \"VLA\" in record type ao to be saved; did you mean \"VAL\"?",
    ),
    (
        "record(ai, \"$(P)a1\") { field(INP, \"$(P)godo\") }",
        "\"$(P)godo",
        "warning",
        "which is not in these files; did you mean \"x:good\"?",
    ),
    (
        "record(ai, \"$(P)a2\") { field(INP, \"$(P)good.VALU\") }",
        "\"$(P)good",
        "warning",
        "has no field \"VALU\"; did you mean \"VAL\"?",
    ),
    (
        "record(ai, \"$(P)a3\") { field(INP, \"$(P)passive PP MX\") }",
        "\"$(P)passive",
        "warning",
        "\"MX\" is not a link modifier",
    ),
    (
        "record(ai, \"$(P)a4\") { field(INP, \"$(P)good PP\") }",
        "\"$(P)good",
        "warning",
        "PP processes only passive records",
    ),
    (
        "record(ai, \"$(P)a5\") { field(FLNK, \"$(P)good\") }",
        "\"$(P)good",
        "warning",
        "a forward link processes only passive records",
    ),
    (
        "record(ai, \"$(P)a5c\") { field(FLNK, \"$(P)passive CA\") }",
        "\"$(P)passive",
        "warning",
        "has no effect unless its target is PROC",
    ),
    (
        "record(ao, \"$(P)a6\") { field(OUT, \"$(P)passive CP\") }",
        "\"$(P)passive",
        "warning",
        "CP has no effect in OUT",
    ),
    ("record(ao, \"$(P)a7\") { field(OUT, \"$(P)passive.SEVR\") }", "\"$(P)passive", "warning", "SEVR is read-only"),
    (
        "record(ai, \"$(P)a8\") { field(INP, \"$(P)passive MS MSS\") }",
        "\"$(P)passive",
        "warning",
        "MS and MSS cannot be combined",
    ),
    ("record(ai, \"$(P)a9\") { field(SCAN, \"I/O Intr\") }", "\"I/O", "warning", "a soft record has no interrupts"),
    ("record(ai, \"$(P)b1\") { field(SCAN, \"Event\") }", "\"Event", "warning", "EVNT is empty"),
    ("record(ai, \"$(P)b2\") { field(HIGH, \"5\") }", "\"5", "warning", "HSV is NO_ALARM"),
    ("record(ao, \"$(P)b3\") { field(DRVL, 9) field(DRVH, 3) }", "3) }", "warning", "DRVL (9) is above DRVH (3)"),
    (
        "record(ai, \"$(P)b8\") { field(HIGH, 9) field(HSV, 1) field(HIHI, 3) field(HHSV, 2) }",
        "3) ",
        "warning",
        "HIGH (9) is above HIHI (3)",
    ),
    valid("record(ai, \"$(P)b9\") { field(HIHI, -3) field(HHSV, 2) }"),
    ("record(sub, \"$(P)c1\") { field(SNAM, \"mySub\") }", "\"mySub", "warning", "no routine \"mySub\" is registered"),
    ("record(ao, \"$(P)b4\") { field(OMSL, \"closed_loop\") }", "\"closed", "warning", "DOL is empty"),
    ("record(ai, \"$(P)b5\") { field(PREC, 1) field(PREC, 2) }", "PREC, 2", "warning", "set twice"),
    ("record(ai, \"$(P)good\") { field(EGU, mm) }", "\"$(P)good", "warning", "already exists"),
    ("record(ai, \"$(P)b7\") { field(FLNK, \"far:away\") }", "\"far:", "warning", "effect unless its target is PROC"),
    ("record(ai, \"$(P)b6\") { field(FLNK, \"$(P)b6\") }", "\"$(P)b6\") }", "warning", "is to its own record"),
];

const SUBSTITUTIONS: &[Planted] = &[
    valid("global { P=$(P) }"),
    valid("file motor.template { pattern { N, PREC } { 1, 2 } }"),
    ("file motor.template { pattern { N } { 2, 3 } }", "{ 2", "error", "its pattern has 1 names"),
    ("file motor.template { patern { N } }", "patern", "error", "did you mean \"pattern\"?"),
    ("file gone.template { { N=1 } }", "", "", ""),
    ("file motor.template {}", "motor", "warning", "\"motor.template\" has no row here"),
    ("fiel motor.template {}", "fiel", "error", "did you mean \"file\"?"),
    ("file \"motor.template { { N=1 } }", "\"motor", "error", "the closing '\"' is missing"),
    ("file $(WHERE)/x.template { { N=1 } }", "$(WHERE)", "error", "macro \"WHERE\" is not defined"),
    ("file motor.template { { N 1 } }", "1", "error", "expected '='"),
];

const SCRIPT: &[Planted] = &[
    valid("# A start-up script with every fault that people make."),
    valid("epicsEnvSet(\"R\", \"1\")"),
    ("dbLoadRecord(\"good.db\")", "dbLoadRecord", "error", "did you mean \"dbLoadRecords\"?"),
    ("dbLoadRecords(\"gone.db\")", "", "", ""),
    ("dbLoadRecords(\"$(TOP_OF_ALL)/a.db\")", "$(TOP", "error", "macro \"TOP_OF_ALL\" is not defined"),
    ("epicsEnvSet(\"A\", \"b", "\"b", "error", "the closing \" is missing"),
    ("cd(\"no/such/folder\")", "\"no/such", "error", "cannot change to the folder"),
    ("on eror break", "on", "error", "usage: on error"),
    ("epicsThreadSleep soon", "soon", "error", "is not a valid number of seconds"),
    ("var dbRecordsOnceOnlyy 1", "dbRecordsOnceOnlyy", "error", "did you mean \"dbRecordsOnceOnly\"?"),
    ("iocshLoad(\"gone.cmd\")", "iocshLoad", "error", "\"gone.cmd\" cannot be read"),
    ("echo words >", ">", "error", "a file name is missing"),
    valid("dbLoadRecords(\"good.db\", \"P=s:\")"),
    ("dbpf(\"s:good\", \"1\")", "dbpf", "error", "iocInit has not run yet"),
    ("set_requestfile_path(\"gone\")", "set_requestfile_path", "warning", "there is no folder"),
    valid("set_requestfile_path(\".\")"),
    ("save_restoreSet_NumSeqFiles(three)", "three", "error", "is not a number of files"),
    ("set_pass0_restoreFile", "set_pass0_restoreFile", "error", "a save file is missing; usage: set_pass0_restoreFile"),
    ("drvAsynIPPortConfigure(\"P1\", \"host:1\")", "drvAsynIPPortConfigure", "warning", "drivers are C code"),
    valid("iocInit"),
    ("dbpf(\"s:goood\", \"1\")", "\"s:goood", "error", "did you mean \"s:good\"?"),
    ("dbpf(\"s:good.HIGHT\", \"1\")", "\"s:good", "error", "did you mean \"HIGH\"?"),
    ("dbpf(\"s:good.SEVR\", \"1\")", "\"s:good", "error", "cannot be written"),
    ("dbpf(\"s:good.SCAN\", \"1 hour\")", "\"1 hour", "error", "is not a valid state; valid choices are \"Passive\", "),
    ("dbpf(\"s:good\")", "dbpf", "error", "a value is missing; usage: dbpf"),
    ("dbLoadRecords(\"good.db\", \"P=t:\")", "dbLoadRecords", "error", "records can only be loaded before iocInit"),
    valid("makeAutosaveFiles"),
    valid("create_monitor_set(\"info_settings.req\", 5)"),
    ("create_monitor_set(\"gone.req\", 5)", "\"gone.req", "error", "\"gone.req\" cannot be read"),
    ("create_monitor_set(\"good.req\", often)", "often", "error", "is not a valid number of seconds"),
    ("create_triggered_set(\"good.req\", \"s:goood\")", "\"s:goood", "error", "did you mean \"s:good\"?"),
    ("create_monitor_sett(\"good.req\", 5)", "create_monitor_sett", "error", "did you mean \"create_monitor_set\"?"),
    ("set_pass1_restoreFile(\"a.sav\")", "set_pass1_restoreFile", "error", "this command must precede it"),
    ("iocInit", "iocInit", "error", "iocInit has already run"),
];

fn lines(planted: &[Planted]) -> String {
    planted.iter().map(|(line, ..)| format!("{line}\n")).collect()
}

/// The findings of a file as (line, column, level, message).
fn found(name: &str, planted: &[Planted], others: &[(&str, &str)]) -> Vec<(u64, u64, String, String)> {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("check-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join(name), lines(planted)).unwrap();
    for (other, text) in others {
        std::fs::write(folder.join(other), text).unwrap();
    }

    let output = run(fodo(free_port()).current_dir(&folder).args(["check", "--json", "-m", "P=x:", name]));

    let printed = text(&output.stdout);
    assert!(output.stderr.is_empty(), "{}", text(&output.stderr));
    let findings: Vec<Json> = printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let has_errors = findings.iter().any(|finding| finding["level"] == "error");
    assert_eq!(output.status.code(), Some(i32::from(has_errors)), "{printed}");
    let of_this_file = findings.iter().filter(|finding| finding["file"] == name);
    of_this_file
        .map(|finding| {
            let word = |key: &str| finding[key].as_str().unwrap().to_owned();
            let number = |key: &str| finding[key].as_u64().unwrap_or(0);
            (number("line"), number("column"), word("level"), word("message"))
        })
        .collect()
}

/// Checks that every planted error is found at its position, and nothing else.
fn assert_found(name: &str, planted: &[Planted], others: &[(&str, &str)]) -> usize {
    let findings = found(name, planted, others);
    let mut n_planted = 0;
    for (index, (line, at, level, message)) in planted.iter().enumerate().filter(|(_, planted)| !planted.1.is_empty()) {
        n_planted += 1;
        let column = line.find(at).map(|byte| line[..byte].chars().count() as u64 + 1).unwrap();
        let is_expected = |finding: &&(u64, u64, String, String)| {
            (finding.0, finding.1) == (index as u64 + 1, column) && finding.2 == *level && finding.3.contains(message)
        };
        assert!(
            findings.iter().any(|finding| is_expected(&finding)),
            "{line}\nat column {column}: {message}\n{findings:#?}"
        );
    }
    let on_fine_lines: Vec<_> = findings.iter().filter(|(line, ..)| planted[*line as usize - 1].1.is_empty()).collect();
    assert!(on_fine_lines.is_empty(), "{on_fine_lines:#?}");
    n_planted
}

#[test]
fn check_finds_every_database_fault_at_its_position() {
    let n_planted = assert_found("plant.db", DATABASE, &[]) + assert_found("again.db", DATABASE_2, &[]);

    assert!(n_planted >= 35, "{n_planted}");
}

#[test]
fn check_finds_inputs_and_outputs_that_are_invalid_for_their_dtyp() {
    assert_eq!(assert_found("misfits.db", MISFITS, &[]), 2);
}

#[test]
fn check_warns_about_suspicious_but_loadable_items_at_their_position() {
    assert_eq!(assert_found("warned.db", WARNINGS, &[]), 21);
}

#[test]
fn check_finds_every_substitutions_fault_at_its_position() {
    let template = "record(ai, \"$(P)$(N)\") { field(PREC, \"$(PREC=1)\") }\n";

    assert_eq!(assert_found("plant.substitutions", SUBSTITUTIONS, &[("motor.template", template)]), 7);
}

#[test]
fn check_finds_every_script_fault_at_its_position() {
    let good = "record(ai, \"$(P)good\") {}\n";

    assert_eq!(assert_found("st.cmd", SCRIPT, &[("good.db", good)]), 26);
}

const ACCESS: &[Planted] = &[
    valid("UAG(operators) { alice, bob }"),
    ("HAG(console) { desk1 desk2 }", "desk2", "error", "expected ',' or '}'"),
    valid("ASG(DEFAULT) {"),
    ("  RULE(1, WRITE) { UAG(operator) }", "operator)", "error", "did you mean \"operators\"?"),
    ("  RULE(1, WRITE) { CALC(\"A=\") }", "\"A=", "error", "is not a valid expression"),
    ("  RULE(high, READ)", "high", "error", "expected a security level, 0 or 1"),
    valid("}"),
    ("ASG($(GROUPS)) { RULE(1, READ) }", "$(GROUPS", "error", "macro \"GROUPS\" is not defined"),
];

#[test]
fn check_finds_every_access_file_fault_at_its_position() {
    let without_macros = &ACCESS[..7];

    assert_eq!(assert_found("plant.acf", without_macros, &[]), 4);
    assert_eq!(assert_found("macros.acf", &[ACCESS[0], ACCESS[7]], &[]), 1);
}

const REQUEST: &[Planted] = &[
    valid("# What is to be saved, with every fault that people make."),
    valid("$(P)good.VAL"),
    valid("file motor.req P=$(P), N=1"),
    ("  $(P)goood.VAL", "$(P)", "warning", "there is no record \"x:goood\"; did you mean \"x:good\"?"),
    ("$(P)good.HIGHT", "$(P)", "warning", "did you mean \"HIGH\"?"),
    ("$(Q)good", "$(Q)", "warning", "macro \"Q\" is not defined"),
    ("$(P)good.HIGH $(P)good.LOW", "$(P)", "warning", "a line names one PV"),
    ("file gone.req", "file", "warning", "\"gone.req\" cannot be read"),
    ("file", "file", "warning", "file must be followed by the name"),
];

#[test]
fn check_finds_every_request_file_fault_at_its_position() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("check-request-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("plant.req"), lines(REQUEST)).unwrap();
    std::fs::write(folder.join("motor.req"), "$(P)m$(N).VAL\n").unwrap();
    std::fs::write(folder.join("good.db"), "record(ai, \"$(P)good\") {}\n").unwrap();

    let output = run(fodo(free_port()).current_dir(&folder).args(["check", "-m", "P=x:", "good.db", "plant.req"]));

    let output_text = text(&output.stdout);
    for (index, (line, at, level, message)) in REQUEST.iter().enumerate().filter(|(_, planted)| !planted.1.is_empty()) {
        let column = line.find(at).unwrap() + 1;
        let place = format!("plant.req:{}:{column}: {level}: ", index + 1);
        let found = output_text.lines().find(|line| line.starts_with(&place));
        assert!(found.is_some_and(|found| found.contains(message)), "{line}\n{message}\n{output_text}");
    }
    // The included file is valid, but the record in it does not exist.
    assert!(output_text.contains("motor.req:1:1: warning: there is no record \"x:m1\""), "{output_text}");
    assert!(output_text.contains("loaded by plant.req:3"), "{output_text}");
    assert!(output_text.ends_with("0 errors, 7 warnings\n"), "{output_text}");
}

#[test]
fn check_reports_an_invalid_template_once_with_the_file_that_loads_it() {
    let rows = &[valid("file bad.template { pattern {N} {1} {2} {3} }"), valid("file none.template { {N=1} }")];
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("check-template-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("a.substitutions"), lines(rows)).unwrap();
    std::fs::write(folder.join("bad.template"), "record(ai, \"$(N)\") { field(PREC, x) }\n").unwrap();

    let output = run(fodo(free_port()).current_dir(&folder).args(["check", "a.substitutions"]));

    assert_eq!(
        text(&output.stdout),
        "bad.template:1:34: error: PREC cannot be \"x\": expected a whole number\n  \
         record(ai, \"$(N)\") { field(PREC, x) }\n                                   ^\n  \
         loaded by a.substitutions:1:33\n\
         none.template: error: cannot be read: entity not found\n  loaded by a.substitutions:2:22\n\
         2 errors, 0 warnings\n"
            .replace("entity not found", "No such file or directory (os error 2)")
    );
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn a_check_finding_names_the_script_line_that_loads_the_file() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("check-wanted-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("a.db"), "record(ai, \"$(P)a\") { field(INP, \"$(P)gone\") }\n").unwrap();
    std::fs::write(folder.join("st.cmd"), "\niocshLoad(inner.cmd)\niocInit\n").unwrap();
    std::fs::write(folder.join("inner.cmd"), "dbLoadRecords(a.db, \"P=x:\")\n").unwrap();

    let output = run(fodo(free_port()).current_dir(&folder).args(["check", "--json", "st.cmd"]));

    let finding: Json = serde_json::from_str(&text(&output.stdout)).unwrap();
    assert_eq!((&finding["file"], &finding["level"]), (&"a.db".into(), &"warning".into()));
    assert_eq!(finding["wanted_by"], serde_json::json!(["inner.cmd:1", "st.cmd:2"]));
}

#[test]
fn check_reports_zero_errors_for_a_valid_file() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("check-right-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("right.db"), "record(ai, a) {}\n").unwrap();

    let output = run(fodo(free_port()).current_dir(&folder).args(["check", "right.db"]));

    assert_eq!((text(&output.stdout).as_str(), output.status.code()), ("0 errors, 0 warnings\n", Some(0)));
}

#[test]
fn check_reads_an_access_file_directly_and_from_a_script() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("check-access-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("plant.acf"), "ASG(DEFAULT) {\n RULE(1, $(R)) {\n").unwrap();
    std::fs::write(folder.join("fine.acf"), "ASG(DEFAULT) { INPA(\"nowhere\") RULE(1, READ) }\n").unwrap();
    std::fs::write(folder.join("wrong.cmd"), "asSetFilename(plant.acf)\nasSetSubstitutions(R=READ)\niocInit\n")
        .unwrap();
    std::fs::write(folder.join("fine.cmd"), "asSetFilename(fine.acf)\niocInit\n").unwrap();
    let check = |arguments: &[&str]| {
        let output = run(fodo(free_port()).current_dir(&folder).arg("check").args(arguments));
        (output.status.code(), text(&output.stdout))
    };

    let (by_itself, printed_by_itself) = check(&["-m", "R=READ", "plant.acf"]);
    let (in_script, printed_in_script) = check(&["wrong.cmd"]);
    let (valid, printed_valid) = check(&["fine.cmd"]);

    assert_eq!((by_itself, in_script, valid), (Some(1), Some(1), Some(0)));
    assert!(printed_by_itself.starts_with("plant.acf:2:17: error: "), "{printed_by_itself}");
    assert!(printed_in_script.contains("plant.acf:2:17: error: "), "{printed_in_script}");
    assert!(printed_in_script.contains("loaded by wrong.cmd:3"), "{printed_in_script}");
    assert!(
        printed_valid.starts_with("fine.cmd:2:1: warning: ") && printed_valid.contains("\"nowhere\""),
        "{printed_valid}"
    );
}
