//! Scripts, and what is possible before `iocInit` and after it.

use fodo_ioc::shell::Flow;
use fodo_testing::eventually;

use crate::Terminal;

#[test]
fn groups_of_a_file_are_removed_by_a_minus_before_its_name() {
    let mut terminal = Terminal::new();
    terminal.file("a.db", r#"record(ai, a) { info(Q:group, {"own":{"x":{+channel:"VAL"}}}) }"#);
    terminal.file("g.json", r#"{"$(P)g": {"x": {"+channel": "a.VAL"}}}"#);
    terminal.file("h.json", r#"{"h": {"x": {"+channel": "a.VAL"}}}"#);

    terminal.assert_goes(
        r#"
> dbLoadRecords a.db
> dbLoadGroup("h.json")
> dbLoadGroup("-*")
> dbLoadGroup("-*")
> dbLoadGroup("g.json", "P=one:")
> dbLoadGroup("g.json", "P=two:")
> dbLoadGroup("g.json", "P=two:")
> dbLoadGroup("-g.json", "P=one:")
> dbLoadGroup("-g.json")
! "g.json" is not loaded with the macros "": no group is removed
> iocInit
serving 1 records
> pvxgl
own
two:g
"#,
    );
    assert!(terminal.run("dbLoadGroup -g.json P=two:").contains("before iocInit"));
}

#[test]
fn commands_that_need_records_fail_before_ioc_init() {
    let mut terminal = Terminal::new();
    terminal.file("a.db", "record(ai, a) {}");
    let early = [
        "dbl",
        "dbgf a",
        "dbpf a 1",
        "dbpr a",
        "dbtr a",
        "dba a",
        "dbtgf a",
        "dbgrep *",
        "dbla",
        "dbli",
        "dbstat",
        "dbcar",
        "dbpvxr",
        "dblsr",
        "scanppl",
        "scanpel",
        "casr",
        "dbel",
        "dbhcr",
        "caPutLogShow",
        "caPutLogInit",
        "caPutLogReconf 1",
        "postEvent 1",
        "asprules",
        "aspmem",
        "iocPause",
    ];
    for command in early {
        assert_eq!(terminal.run(command), "! iocInit has not run yet; this command works only after it\n", "{command}");
    }
    terminal.assert_goes(
        r#"
> dbStateShow
> dbStateCreate red
> dbStateSet red
> dbStateShow
red is on
> asInit
! asInit has no effect before iocInit, which loads the access security file
> dbLoadRecords b.db
! b.db: cannot be read: No such file or directory (os error 2)
> dbLoadRecords a.db
> dbCreateAlias a b
> dbCreateAlias c d
! there is no record "c"
> dbCreateAlias a "b$"
! names must not contain quotes, backslashes or macros
> dbLoadDatabase any.dbd
! "any.dbd" cannot be read (No such file or directory (os error 2)); scan rates that it defines are missing
> afterIocRunning "echo and then"
> iocRun
serving 1 records
and then
! left out because of errors: 2 other statements; run fodo check for details
> dbStateShow
red is on
"#,
    );
}

#[test]
fn commands_for_after_ioc_init_run_in_their_order_until_one_exits() {
    let mut terminal = Terminal::new();
    terminal.file("a.db", "record(ai, a) {}");
    terminal.run("dbLoadRecords a.db");
    for command in ["echo first", "echo second", "exit 3", "echo never"] {
        terminal.run(&format!("afterIocRunning \"{command}\""));
    }

    let flow = terminal.shell.run_line("iocInit");

    assert_eq!(flow, Flow::Exit(3));
    assert_eq!(terminal.out.take(), "serving 1 records\nfirst\nsecond\n");
}

#[test]
fn commands_for_use_before_ioc_init_fail_after_it() {
    let mut terminal = Terminal::serving("record(ai, a) {}");
    terminal.assert_goes(
        r#"
> iocInit
! iocInit has already run
> dbLoadRecords a.db
! records can only be loaded before iocInit
> dbCreateAlias a b
! aliases can only be created before iocInit
> asSetFilename a.acf
! access security must be set before iocInit; asInit can only reload the same file
> asSetSubstitutions
! access security must be set before iocInit; asInit can only reload the same file
> asInit
! there is no access security file; set one with asSetFilename before iocInit
> addReccasterEnvVars A
! the data for RecCeivers must be set before iocInit
> addReccasterExcludePattern A
! the data for RecCeivers must be set before iocInit
> afterIocRunning "echo at once"
at once
> dbhcr
there are no drivers, and no record needs one
> dbla
"#,
    );
    assert!(terminal.shell.is_running() && terminal.shell.loader().is_none());
}

#[test]
fn debug_output_of_a_shell_contains_its_folder() {
    let terminal = Terminal::new();

    let shown = format!("{:?}", terminal.shell);

    assert!(shown.contains(&format!("{:?}", terminal.folder)), "{shown}");
}

#[test]
fn after_a_failed_ioc_init_no_records_exist() {
    let mut terminal = Terminal::new();
    terminal.file("a.db", "record(ai, a) {}");
    terminal.assert_goes(
        r#"
> dbLoadRecords a.db
> asSetFilename
! an access security file is missing; usage: asSetFilename("file")
> iocInit
! FOLDER/: cannot be read: it is a folder, not a regular file
> dbl
! iocInit has failed, so there are no records
> iocInit
! iocInit has already run
"#,
    );
    assert!(!terminal.shell.is_running());
}

#[test]
fn ioc_pause_stops_scans_until_ioc_run() {
    let record = "record(calc, n) { field(CALC, \"VAL+1\") field(SCAN, \".1 second\") }";
    let (mut paused, mut other) = (Terminal::serving(record), Terminal::serving(record));
    let n = |terminal: &mut Terminal| terminal.run("dbgf n");
    let until_scanned = |terminal: &mut Terminal| {
        let before = n(terminal);
        eventually("the record is scanned", || n(terminal) != before);
    };
    until_scanned(&mut paused);

    paused.run("iocPause");
    let held = n(&mut paused);
    (0..3).for_each(|_| until_scanned(&mut other));
    assert_eq!(n(&mut paused), held);

    paused.run("iocRun");
    until_scanned(&mut paused);
}

#[test]
fn script_macros_are_local_and_exit_ends_the_innermost_script() {
    let mut terminal = Terminal::new();
    terminal.file("inner.cmd", "echo inner $(A)\n#- not shown\nexit\necho never\n");
    terminal.file("self.cmd", "< self.cmd\n");
    terminal.file("empty.cmd", "\u{feff}echo mark\n");
    terminal.assert_goes(
        r#"
> epicsEnvSet A 1
> iocshLoad inner.cmd "A=2"
echo inner 2
inner 2
exit
> echo $(A)
1
> iocshLoad inner.cmd "B=2"
echo inner 1
inner 1
exit
> echo $(B)
! macro "B" is not defined; give it a value, B=..., or a default, $(B=...)
> < inner.cmd
echo inner 1
inner 1
exit
> iocshRun 'echo $(C)' "C=3"
3
> iocshCmd "echo once"
once
> iocshRun 'echo $(C)' "C"
! "C" is not a macro definition: expected NAME=value
> iocshLoad nofile
! "nofile" cannot be read: No such file or directory (os error 2)
> < empty.cmd
echo mark
mark
"#,
    );
    let endless = terminal.run("< self.cmd");
    assert!(endless.contains("! self.cmd:1:1: scripts are nested too deeply; the limit is 20\n"), "{endless}");
}

#[test]
fn on_error_controls_whether_a_script_continues() {
    let mut terminal = Terminal::new();
    let outcomes = ["continue", "break", "halt", "wait 0.001"].map(|reaction| {
        terminal.file("st.cmd", &format!("on error {reaction}\nnonsense\necho after\n"));
        let flow = terminal.shell.run_script("st.cmd");
        (flow, terminal.out.take().contains("\nafter\n"))
    });

    assert_eq!(outcomes, [(Flow::Next, true), (Flow::Broken, false), (Flow::Halted, false), (Flow::Next, true)]);
    assert_eq!(terminal.shell.run_script("nofile"), Flow::Broken);
    terminal.err.take();
    terminal.assert_goes(
        r#"
> on
! usage: on error continue|break|halt|wait SECONDS
> on error
! usage: on error continue|break|halt|wait SECONDS
> on error wait
! the number of seconds is missing
> on error wait x
! "x" is not a valid number of seconds
> on error stop
! usage: on error continue|break|halt|wait SECONDS
> on error break
"#,
    );
}

#[test]
fn exit_returns_its_code_and_a_halt_of_an_inner_script_halts_the_outer_one() {
    let mut terminal = Terminal::new();
    terminal.file("broken.cmd", "on error break\nnonsense\n");
    terminal.file("halted.cmd", "on error halt\nnonsense\n");
    let mut flow_of = |line: &str| terminal.shell.run_line(line);

    assert_eq!([flow_of("exit"), flow_of("exit 7"), flow_of("exit x")], [Flow::Exit(0), Flow::Exit(7), Flow::Next]);
    assert_eq!([flow_of("< broken.cmd"), flow_of("< halted.cmd")], [Flow::Next, Flow::Halted]);
    let errors = terminal.err.take();
    assert!(errors.contains("\"broken.cmd\" was stopped by an error\n"), "{errors}");
    assert!(
        errors.starts_with("\"x\" is not a valid exit code\nbroken.cmd:2:1: there is no command \"nonsense\""),
        "{errors}"
    );
}

#[test]
fn command_output_is_redirected_to_and_from_files() {
    let mut terminal = Terminal::new();
    terminal.assert_goes(
        r#"
> echo one > out.txt
> echo two >> out.txt
> errlog three 2> err.txt
> nonsense > other.txt
! there is no command "nonsense"; commands of modules and drivers are C code, which cannot be loaded
> echo four
four
> echo five > no/out.txt
! "no/out.txt" cannot be written: No such file or directory (os error 2)
> echo six > out2.txt 2> no/err.txt
! "no/err.txt" cannot be written: No such file or directory (os error 2)
> echo seven
seven
"#,
    );
    assert_eq!((terminal.held("out.txt"), terminal.held("err.txt")), ("one\ntwo\n".into(), "three\n".into()));
}

#[test]
fn databases_are_searched_in_the_directory_and_then_along_the_include_path() {
    let mut terminal = Terminal::new();
    for (folder, name, record) in
        [("one", "c.db", "first"), ("two", "b.db", "second"), ("two", "c.db", "never"), ("two", "d.db", "never")]
    {
        std::fs::create_dir_all(terminal.folder.join(folder)).unwrap();
        terminal.file(&format!("{folder}/{name}"), &format!("record(ai, {record}) {{}}"));
    }
    std::fs::create_dir(terminal.folder.join("one/d.db")).unwrap();
    terminal.assert_goes(
        r#"
> dbLoadRecords b.db
! b.db: cannot be read: No such file or directory (os error 2)
> epicsEnvSet EPICS_DB_INCLUDE_PATH one::two
> dbLoadRecords b.db
> dbLoadRecords c.db
> dbLoadRecords d.db
! d.db: cannot be read: it is a folder, not a regular file
"#,
    );
    assert_eq!(terminal.shell.variable("EPICS_DB_INCLUDE_PATH"), Some("one::two"));
    assert_eq!(terminal.shell.variable("NOTHING"), None);
    terminal.run("iocInit");
    terminal.assert_goes("> dbl\nsecond\nfirst\n");
}

#[test]
fn the_last_on_error_of_a_script_counts() {
    let mut terminal = Terminal::new();
    for (reactions, is_continued) in
        [(["break", "continue"], true), (["continue", "break"], false), (["halt", "wait 0.001"], true)]
    {
        let [first, last] = reactions;
        terminal.file("st.cmd", &format!("on error {first}\non error {last}\nnonsense\necho after\n"));

        terminal.shell.run_script("st.cmd");

        assert_eq!(terminal.out.take().contains("\nafter\n"), is_continued, "{reactions:?}");
    }
}

#[test]
fn data_for_recceivers_is_reported_if_nothing_is_sent_to_them() {
    for (line, is_reported) in
        [("addReccasterEnvVars A", true), ("addReccasterExcludePattern x:*", true), ("echo none", false)]
    {
        let mut terminal = Terminal::new();
        terminal.file("a.db", "record(ai, a) {}\n");
        terminal.run(line);
        terminal.run("dbLoadRecords a.db");

        let printed = terminal.run("iocInit");

        assert_eq!(
            printed.contains("nothing is sent to RecCeivers; start fodo ioc with --reccaster"),
            is_reported,
            "{line}"
        );
    }
}
