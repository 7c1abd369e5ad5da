//! Autosave commands.

use fodo_ioc::autosave::format::{self, Content};
use fodo_testing::eventually;

use crate::Terminal;

const DATABASE: &str = r#"
record(ao, "x:a") { field(VAL, 1.5) info(autosaveFields, "VAL DESC") info(autosaveFields_pass0, "VAL NOPE") }
record(waveform, "x:w") { field(FTVL, DOUBLE) field(NELM, 5) }
record(bo, "x:go") {}
record(mbbo, "x:m") { field(ZRST, "off") field(ONST, "on") }
"#;

/// A terminal in a folder with the database and request files.
fn terminal() -> Terminal {
    let terminal = Terminal::new();
    terminal.file("a.db", DATABASE);
    terminal.file("s.req", "$(P=x:)a.VAL\nx:w\nx:m\n");
    terminal.file("bad.req", "x:a\nx:b\nx:a.NOPE\n");
    terminal
}

fn running() -> Terminal {
    let mut terminal = terminal();
    terminal.run("dbLoadRecords a.db");
    terminal.run("iocInit");
    terminal
}

/// The contents of a save file as `pv=value`; empty while it is incomplete.
fn saved(terminal: &Terminal, name: &str) -> Vec<String> {
    let Ok(bytes) = std::fs::read(terminal.folder.join(name)) else { return Vec::new() };
    let Ok(saved) = format::read(&bytes, None) else { return Vec::new() };
    let text = |content: &Content| match content {
        Content::Scalar(text) => text.to_string(),
        Content::Array(texts) => format!("{:?}", texts.iter().map(ToString::to_string).collect::<Vec<_>>()),
    };
    saved.values.iter().map(|value| format!("{}={}", value.pv, text(&value.value))).collect()
}

#[test]
fn a_manual_set_is_saved_and_restored_on_command() {
    let mut terminal = running();
    terminal.assert_goes(
        r#"
> create_manual_set s.req
> save_restoreShow
s.req: 3 PVs, 0 missing, by manual_save, to FOLDER/s.sav: not saved yet
> manual_save s.req
> save_restoreShow 0
s.req: 3 PVs, 0 missing, by manual_save, to FOLDER/s.sav: saved
> save_restoreShow 1
s.req: 3 PVs, 0 missing, by manual_save, to FOLDER/s.sav: saved
  x:a.VAL
  x:w
  x:m
"#,
    );
    assert_eq!(saved(&terminal, "s.sav"), ["x:a.VAL=1.5", "x:w=[]", "x:m=0"]);

    terminal.run("dbpf x:a 7");
    terminal.run("dbpf x:w \"[1,2]\"");
    terminal.run("dbpf x:m on");
    terminal.assert_goes("> manual_save s.req\n");
    assert_eq!(saved(&terminal, "s.sav"), ["x:a.VAL=7", "x:w=[\"1\", \"2\"]", "x:m=1"]);
    assert_eq!(saved(&terminal, "s.savB"), ["x:a.VAL=1.5", "x:w=[]", "x:m=0"]);

    terminal.assert_goes(
        r#"
> fdbrestore s.savB
> dbgf x:a
DBF_DOUBLE:         1.5
> dbgf x:w
DBF_DOUBLE[0]:      (empty)
> dbgf x:m
DBF_STRING:         "off"
> fdbrestore s.sav
> dbgf x:a
DBF_DOUBLE:         7
> dbgf x:w
DBF_DOUBLE[2]:      [1, 2]
> dbgf x:m
DBF_STRING:         "on"
> fdbrestore nofile
! FOLDER/nofile does not exist yet: nothing is restored from it
"#,
    );
}

#[test]
fn save_sets_are_named_moved_and_removed_by_request_file() {
    let mut terminal = running();
    terminal.run("create_manual_set s.req");
    terminal.assert_goes(
        r#"
> manual_save t.req
! there is no autosave set "t.req"; did you mean "s.req"?
> set_savefile_name t.req other.sav
! there is no autosave set "t.req"; did you mean "s.req"?
> set_savefile_name s.req other.sav
> manual_save s.req
> save_restoreShow
s.req: 3 PVs, 0 missing, by manual_save, to FOLDER/other.sav: saved
> create_triggered_set trig.req x:nope
! there is no record "x:nope"
> create_triggered_set s.req x:go
> save_restoreShow
s.req: 3 PVs, 0 missing, when triggered, to FOLDER/s.sav: not saved yet
> reload_periodic_set s.req 0.1
> save_restoreShow
s.req: 3 PVs, 0 missing, every 1s, to FOLDER/s.sav: not saved yet
> reload_monitor_set s.req 1e12
> save_restoreShow
s.req: 3 PVs, 0 missing, after changes, every 31622400s, to FOLDER/s.sav: not saved yet
> remove_data_set t.req
! there is no autosave set "t.req"; did you mean "s.req"?
> remove_data_set s.req
> save_restoreShow
> create_monitor_set s.req
! the number of seconds is missing; usage: create_monitor_set("file.req", seconds, "P=x:")
> create_monitor_set
> create_triggered_set "" x:go
> create_manual_set ""
> save_restoreShow
> create_manual_set nofile.req
! "nofile.req" cannot be read: No such file or directory (os error 2)
"#,
    );
    assert_eq!(saved(&terminal, "other.sav").len(), 3);
    assert!(!terminal.folder.join("s.sav").exists());
}

#[test]
fn an_incomplete_save_set_is_saved_unless_incomplete_sets_are_forbidden() {
    let mut terminal = running();
    let warnings = terminal.run("create_manual_set bad.req");
    assert!(warnings.starts_with("! bad.req:2:1: there is no record \"x:b\"; did you mean \"x:a\"?\n"), "{warnings}");
    let of_field = "! bad.req:3:1: record \"x:a\" has no field \"NOPE\"; did you mean \"NAME\"?\n";
    assert!(warnings.contains(of_field), "{warnings}");
    terminal.assert_goes(
        r#"
> manual_save bad.req
> save_restoreShow 1
bad.req: 1 PVs, 2 missing, by manual_save, to FOLDER/bad.sav: saved
  x:a
  x:b (missing)
  x:a.NOPE (missing)
> save_restoreSet_IncompleteSetsOk 0
> manual_save bad.req
! autosave: cannot save FOLDER/bad.sav; the previous file is kept: 2 of its PVs do not exist, and save_restoreSet_IncompleteSetsOk(0) requires all
> save_restoreShow
bad.req: 1 PVs, 2 missing, by manual_save, to FOLDER/bad.sav: NOT SAVED: 2 of its PVs do not exist, and save_restoreSet_IncompleteSetsOk(0) requires all
> fdbrestore bad.sav
! FOLDER/bad.sav is not restored: 2 PVs had no value when it was saved, and IncompleteSetsOk(0) requires all
> save_restoreSet_IncompleteSetsOk 1
> fdbrestore bad.sav
> manual_save bad.req
> save_restoreShow
bad.req: 1 PVs, 2 missing, by manual_save, to FOLDER/bad.sav: saved
"#,
    );
}

#[test]
fn a_save_set_is_saved_after_changes_on_trigger_and_at_exit() {
    let mut terminal = running();
    terminal.file("t.req", "x:m\n");
    terminal.run("create_triggered_set t.req x:go");
    terminal.run("create_monitor_set s.req 3600");
    terminal.run("dbpf x:m on");
    assert!(!terminal.folder.join("t.sav").exists());

    terminal.run("dbpf x:go 1");
    eventually("it is saved", || saved(&terminal, "t.sav") == ["x:m=1"]);

    assert!(!terminal.folder.join("s.sav").exists());
    let running = terminal.shell.place().lock().take().unwrap();
    assert_eq!(running.stop(), Ok(()));
    assert_eq!(saved(&terminal, "s.sav"), ["x:a.VAL=1.5", "x:w=[]", "x:m=1"]);
}

#[test]
fn sequence_files_are_rotated_once_per_period() {
    let mut terminal = running();
    for line in ["save_restoreSet_NumSeqFiles 2", "save_restoreSet_SeqPeriodInSeconds 1000", "create_manual_set s.req"]
    {
        assert_eq!(terminal.run(line), "");
    }
    let first = |name: &str, terminal: &Terminal| saved(terminal, name).first().cloned();

    terminal.run("manual_save s.req");
    terminal.run("dbpf x:a 2");
    terminal.run("manual_save s.req");

    assert_eq!(first("s.sav", &terminal).unwrap(), "x:a.VAL=2");
    assert_eq!(first("s.sav0", &terminal).unwrap(), "x:a.VAL=1.5");
    assert_eq!(first("s.sav1", &terminal), None);
}

#[test]
fn invalid_autosave_settings_are_reported() {
    terminal().assert_goes(
        r#"
> save_restoreSet_NumSeqFiles 10
> save_restoreSet_NumSeqFiles 11
! at most 10 sequence files are possible
> save_restoreSet_NumSeqFiles x
! "x" is not a number of files
> save_restoreSet_RetrySeconds x
! "x" is not a valid number of seconds
> save_restoreSet_SeqPeriodInSeconds
! the number of seconds is missing; usage: save_restoreSet_SeqPeriodInSeconds seconds
> save_restoreSet_DatedBackupFiles x
! "x" is not 0 or 1
> save_restoreSet_IncompleteSetsOk
! 0 or 1 is missing; usage: save_restoreSet_IncompleteSetsOk 0|1
> save_restoreSet_status_prefix
! the prefix of the status records is missing; usage: save_restoreSet_status_prefix("x:")
> save_restoreSet_UseStatusPVs x
! "x" is not 0 or 1
> set_requestfile_path
! a folder is missing; usage: set_requestfile_path("folder", "folder")
> set_requestfile_path "" nowhere
! there is no folder "FOLDER/nowhere"
> set_savefile_path nowhere
! there is no folder "FOLDER/nowhere/": nothing can be saved until it exists
> create_periodic_set s.req 5 P
! "P" is not a macro definition: expected NAME=value
> create_manual_set s.req "P=x:,SAVEPATHPV=x:p"
! SAVENAMEPV and SAVEPATHPV are ignored: PVs cannot set the name of a save file
> set_pass0_restoreFile a.sav P
! "P" is not a macro definition: expected NAME=value
> manual_save s.req
! iocInit has not run yet
> save_restoreShow
! iocInit has not run yet
> fdbrestore s.sav
! iocInit has not run yet; use set_pass0_restoreFile to restore a file
"#,
    );
}

#[test]
fn save_files_are_restored_before_and_after_initialisation_and_copied() {
    let mut terminal = terminal();
    std::fs::create_dir_all(terminal.folder.join("requests/below")).unwrap();
    std::fs::create_dir(terminal.folder.join("saved")).unwrap();
    terminal.file("requests/below/r.req", "x:a.DESC\n");
    terminal.file("saved/early.sav", "# autosave R5.11\n$(P)a 4\nx:a.DESC as chosen\nx:gone 1\n<END>\n");
    terminal.file("saved/late.sav", "# autosave R5.11\nx:w @array@ { \"1\" \"2\" }\nx:m 1\nx:m.NOPE 2\n<END>\n");
    terminal.file("saved/cut.sav", "# autosave R5.11\nx:m 0\n");
    terminal.assert_goes(
        r#"
> dbLoadRecords a.db
> set_savefile_path "" saved
> set_requestfile_path requests /below
> set_pass1_restoreFile late.sav
> set_pass0_restoreFile early.sav "P=x:"
> set_pass1_restoreFile cut.sav
> set_pass1_restoreFile none.sav
> create_manual_set r.req
> dbrestoreShow
late.sav after initialisation: not restored yet
early.sav before initialisation: not restored yet
cut.sav after initialisation: not restored yet
none.sav after initialisation: not restored yet
"#,
    );

    let warnings = terminal.run("iocInit");

    for part in [
        "early.sav:4: \"x:gone\" is not restored: there is no record \"x:gone\"",
        "late.sav:4: \"x:m.NOPE\" is not restored: record \"x:m\" has no field \"NOPE\"",
        "cut.sav is not used: it does not end with <END>",
        "none.sav does not exist yet: nothing is restored from it",
    ] {
        assert_eq!(warnings.matches(part).count(), 1, "{part} is not once in\n{warnings}");
    }
    terminal.assert_goes(
        r#"
> dbrestoreShow
FOLDER/saved/early.sav before initialisation: 3 values of FOLDER/saved/early.sav
FOLDER/saved/late.sav after initialisation: 3 values of FOLDER/saved/late.sav
FOLDER/saved/cut.sav after initialisation: no good file
FOLDER/saved/none.sav after initialisation: the file does not exist yet
> dbl "" "VAL DESC"
x:a, "4", "as chosen"
x:w, "[1, 2]", ""
x:go, "", ""
x:m, "on", ""
> set_pass1_restoreFile a.sav
! iocInit restores files, so this command must precede it; use fdbrestore afterwards
> manual_save r.req
"#,
    );
    assert_eq!(saved(&terminal, "saved/r.sav"), ["x:a.DESC=as chosen"]);
    assert_eq!(terminal.held("saved/late.sav.bu"), terminal.held("saved/late.sav"));
    assert!(!terminal.folder.join("saved/cut.sav.bu").exists());
}

#[test]
fn request_files_are_generated_from_info_items() {
    let mut terminal = running();
    terminal.assert_goes(
        r#"
> makeAutosaveFileFromDbInfo infos autosaveFields
> makeAutosaveFileFromDbInfo early.req autosaveFields_pass0
! info(autosaveFields_pass0) of x:a names "NOPE", which is not a field of it; did you mean "NAME"?
> makeAutosaveFileFromDbInfo infos
! the name of an info item is missing; usage: makeAutosaveFileFromDbInfo("file.req", "info")
> makeAutosaveFiles
! info(autosaveFields_pass0) of x:a names "NOPE", which is not a field of it; did you mean "NAME"?
> makeAutosaveFileFromDbInfo no/infos autosaveFields
! "no/infos.req" cannot be written: No such file or directory (os error 2)
"#,
    );
    assert_eq!(terminal.held("infos.req"), "x:a.VAL\nx:a.DESC\n");
    assert_eq!(terminal.held("early.req"), "x:a.VAL\n");
    assert_eq!(terminal.held("info_settings.req"), terminal.held("infos.req"));
    assert_eq!(terminal.held("info_positions.req"), terminal.held("early.req"));
}

#[test]
fn fields_named_by_info_items_are_saved_without_commands() {
    let mut first = terminal();
    first.run("dbLoadRecords a.db");
    first.shell.keep_values_in(std::path::Path::new("kept"));
    let remarks = first.run("iocInit");
    assert!(remarks.contains("info(autosaveFields_pass0) of x:a names \"NOPE\""), "{remarks}");
    assert!(!remarks.contains("saves nothing"), "{remarks}");
    first.run("dbpf x:a 9");
    first.run("dbpf x:a.DESC nine");
    let running = first.shell.place().lock().take().unwrap();
    running.stop().unwrap();
    assert_eq!(saved(&first, "kept/info_settings.sav"), ["x:a.VAL=9", "x:a.DESC=nine"]);
    assert_eq!(saved(&first, "kept/info_positions.sav"), ["x:a.VAL=9"]);

    let mut second = terminal();
    second.run("dbLoadRecords a.db");
    second.shell.keep_values_in(&first.folder.join("kept"));
    second.run("iocInit");

    second.assert_goes("> dbl ao \"VAL DESC\"\nx:a, \"9\", \"nine\"\n");
}

#[test]
fn the_records_of_the_status_prefix_show_how_saving_goes() {
    let mut terminal = terminal();
    let names = ["status", "heartbeat", "rebootStatus", "0_Status", "1_Status"];
    let texts = [
        "statusStr",
        "recentlyStr",
        "rebootStatusStr",
        "rebootTime",
        "0_Name",
        "0_StatusStr",
        "0_Time",
        "1_Name",
        "1_Time",
    ];
    let numbers = names.map(|name| format!("record(longin, \"x:SR_{name}\") {{}}\n")).concat();
    let texts = texts.map(|name| format!("record(stringin, \"x:SR_{name}\") {{}}\n")).concat();
    terminal.file("status.db", &(numbers + &texts));
    for line in ["dbLoadRecords a.db", "dbLoadRecords status.db", "save_restoreSet_status_prefix x:", "iocInit"] {
        terminal.run(line);
    }
    terminal.run("create_manual_set s.req");
    terminal.run("create_manual_set bad.req");
    terminal.run("manual_save s.req");
    terminal.run("manual_save bad.req");
    let shown = |terminal: &mut Terminal, name: &str| {
        terminal.run(&format!("dbgf x:SR_{name}")).split_once(':').unwrap().1.trim().to_owned()
    };

    eventually("it is shown", || shown(&mut terminal, "1_Status") == "2 = 0x2");

    for (name, expected) in [
        ("status", "2 = 0x2"),
        ("statusStr", "\"2 values not saved\""),
        ("0_Name", "\"s\""),
        ("0_Status", "4 = 0x4"),
        ("0_StatusStr", "\"Ok\""),
        ("1_Name", "\"bad\""),
        ("recentlyStr", "\"Wrote 'bad.sav'\""),
        ("rebootStatus", "4 = 0x4"),
        ("rebootStatusStr", "\"Ok\""),
    ] {
        assert_eq!(shown(&mut terminal, name), expected, "{name}");
    }
    assert!(shown(&mut terminal, "rebootTime").len() > 10 && shown(&mut terminal, "1_Time").contains(':'));
    assert!(["0 = 0x0", "1 = 0x1"].contains(&shown(&mut terminal, "heartbeat").as_str()));
}

#[test]
fn an_array_in_a_save_file_sets_a_scalar_field_to_its_first_element() {
    let mut terminal = running();
    terminal.file("a.sav", "x:a @array@ { \"4\" \"5\" }\nx:a.DESC @array@ { }\n<END>\n");

    assert_eq!(terminal.run("fdbrestore a.sav"), "");

    terminal.assert_goes("> dbl ao \"VAL DESC\"\nx:a, \"4\", \"\"\n");
}

#[test]
fn a_folder_for_values_is_reported_as_useless_if_no_record_has_an_info_item() {
    let mut terminal = Terminal::new();
    terminal.file("b.db", "record(ao, \"x:b\") {}\n");
    terminal.run("dbLoadRecords b.db");
    terminal.shell.keep_values_in(std::path::Path::new("kept"));

    let remarks = terminal.run("iocInit");

    assert!(remarks.contains("so autosave saves nothing"), "{remarks}");
}

#[test]
fn the_status_records_show_a_restore_that_failed() {
    let mut terminal = terminal();
    let records = "record(longin, \"x:SR_rebootStatus\") {}\nrecord(stringin, \"x:SR_rebootStatusStr\") {}\n";
    terminal.file("status.db", records);
    terminal.file("cut.sav", "# autosave R5.11\nx:m 0\n");
    for line in [
        "dbLoadRecords a.db",
        "dbLoadRecords status.db",
        "save_restoreSet_status_prefix x:",
        "set_pass1_restoreFile cut.sav",
        "iocInit",
    ] {
        terminal.run(line);
    }

    // The text is written after the number.
    eventually("it is shown", || terminal.run("dbgf x:SR_rebootStatusStr").ends_with("\"no good file\"\n"));

    assert!(terminal.run("dbgf x:SR_rebootStatus").ends_with("1 = 0x1\n"));
}

#[test]
fn a_set_that_cannot_be_saved_at_the_end_is_reported() {
    let mut terminal = running();
    terminal.run("set_savefile_path nowhere");
    terminal.run("create_monitor_set s.req 3600");

    let running = terminal.shell.place().lock().take().unwrap();
    let unsaved = running.stop().unwrap_err();

    assert_eq!(unsaved.to_string(), "autosave sets that could not be saved at the end: 1");
}
