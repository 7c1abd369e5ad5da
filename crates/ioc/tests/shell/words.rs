//! The environment, variables, help and commands that do not exist.

use crate::Terminal;

#[test]
fn the_environment_is_set_shown_and_used() {
    Terminal::new().assert_goes(
        r#"
> epicsEnvSet A 1
> epicsEnvSet AB "2 3"
> epicsEnvShow A
A=1
> epicsEnvShow AB*
AB=2 3
> epicsEnvShow B
! B is not an environment variable
> epicsEnvShow B*
> echo $(A) ${AB} $(C=none)
1 2 3 none
> epicsEnvUnset A
> epicsEnvShow A
! A is not an environment variable
> echo $(A)
! macro "A" is not defined; give it a value, A=..., or a default, $(A=...)
> putenv C=4=5
> epicsEnvShow C
C=4=5
> putenv =2
! "=2" must be NAME=value
> putenv D
! "D" must be NAME=value
> epicsEnvSet
! the name of a variable is missing; usage: epicsEnvSet("NAME", "value")
> epicsEnvSet EPICS_CA_ADDR_LIST here
> epicsEnvSet EPICS_CA_REPEATER_PORT 7
> epicsParamShow
EPICS_CA_ADDR_LIST=here
EPICS_CA_AUTO_ADDR_LIST=NO
EPICS_CA_REPEATER_PORT=7
> epicsPrtEnvParams
EPICS_CA_ADDR_LIST=here
EPICS_CA_AUTO_ADDR_LIST=NO
EPICS_CA_REPEATER_PORT=7
"#,
    );
}

#[test]
fn variables_of_epics_base_are_set_for_scripts() {
    let mut terminal = Terminal::new();
    terminal.assert_goes(
        r#"
> echo $(PWD) ${EPICS_VERSION_MAJOR}.$(EPICS_VERSION_MIDDLE) [$(EPICS_VERSION_SITE)]
FOLDER 7.0 []
> cd /
> echo $(PWD)
/
> echo $(RSRV_SERVER_PORT)
! macro "RSRV_SERVER_PORT" is not defined; give it a value, RSRV_SERVER_PORT=..., or a default, $(RSRV_SERVER_PORT=...)
> iocInit
serving 0 records
"#,
    );
    let place = terminal.shell.place();
    let ports = place.lock().as_ref().map(|running| (running.tcp_port(), running.pva_tcp_port().unwrap())).unwrap();
    assert_eq!(
        terminal.run("echo ${RSRV_SERVER_PORT} ${PVAS_SERVER_PORT} ${ARCH}"),
        format!("{} {} {}-{}\n", ports.0, ports.1, std::env::consts::OS, std::env::consts::ARCH)
    );
}

#[test]
fn records_read_the_environment_variables_of_the_shell() {
    let mut terminal = Terminal::new();
    terminal.file("a.db", "record(stringin, a) { field(DTYP, \"getenv\") field(INP, \"@ROOM\") }");
    terminal.assert_goes(
        r#"
> dbLoadRecords a.db
> epicsEnvSet ROOM 7
> iocInit
serving 1 records
> dbpf a.PROC 1
DBF_UCHAR:          1 = 0x1
> dbgf a
DBF_STRING:         "7"
> putenv ROOM=8
> dbpf a.PROC 1
DBF_UCHAR:          1 = 0x1
> dbgf a
DBF_STRING:         "8"
> epicsEnvUnset ROOM
> dbpf a.PROC 1
DBF_UCHAR:          1 = 0x1
> dbgf a
DBF_STRING:         ""
"#,
    );
}

#[test]
fn variables_are_stored_and_ineffective_ones_are_reported() {
    Terminal::new().assert_goes(
        r#"
> var dbRecordsOnceOnly
dbRecordsOnceOnly = 0
> var dbRecordsOnceOnly 1
> var dbRecordsOnceOnly
dbRecordsOnceOnly = 1
> var dbRecordOnceOnly
! there is no variable "dbRecordOnceOnly"; did you mean "dbRecordsOnceOnly"?
> var asCheckClientIP 1
> var reccastTimeout 5.00
> var reccastTimeout
reccastTimeout = 5
> var exprDebug 5.0
! the variable exprDebug is stored but has no effect
> var exprDebug 5.5
! "5.5" is not an integer
> var exprDebug x
! "x" is not an integer
> var
CASDEBUG = 0
asCheckClientIP = 1
callbackParallelThreadsDefault = 2
dbAccessDebugPUTF = 0
dbBptNotMonotonic = 0
dbConvertStrict = 0
dbJLinkDebug = 0
dbQuietMacroWarnings = 0
dbRecordsAbcSorted = 0
dbRecordsOnceOnly = 1
dbTemplateMaxVars = 100
dbThreadRealtimeLock = 1
exprDebug = 5
logClientDebug = 0
reccastMaxHoldoff = 10
reccastTimeout = 5
softTemplate = 0
"#,
    );
}

#[test]
fn db_records_once_only_rejects_duplicate_records() {
    let mut terminal = Terminal::new();
    terminal.file("a.db", "record(ai, a) {}");

    assert_eq!(terminal.run("dbLoadRecords a.db") + &terminal.run("dbLoadRecords a.db"), "");
    terminal.run("var dbRecordsOnceOnly 1");
    assert!(terminal.run("dbLoadRecords a.db").contains("a.db:1:12: "));
}

#[test]
fn echo_pwd_and_date_show_their_output() {
    let mut terminal = Terminal::new();
    std::fs::create_dir(terminal.folder.join("below")).unwrap();
    terminal.file("plain", "");
    terminal.assert_goes(
        r#"
> echo a  b "c  d" 'e\tf'
a b c  d e	f
> errlog a "b  c"
! a b  c
> date
the date as %Y/%m/%d %H:%M:%S.%6f
> date %Y
the date as %Y
> pwd
FOLDER
> cd below
> pwd
FOLDER/below
> cd nowhere
! cannot change to the folder "nowhere": No such file or directory (os error 2)
> cd ../plain
! "../plain" is not a folder
> pwd
FOLDER/below
> cd
! a folder is missing; usage: cd folder
> epicsThreadSleep x
! "x" is not a valid number of seconds
> epicsThreadSleep 0
> "unclosed
! the closing " is missing
> # a comment, with $(NOTHING) in it
"#,
    );
    assert_eq!(terminal.run("coreRelease"), format!("Fodo {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn help_lists_every_command_and_suggests_one_for_a_typo() {
    let mut terminal = Terminal::new();
    terminal.assert_goes(
        r#"
> help dbgf
dbgf record.field
  Show a value
> help d*gf
dbgf record.field
  Show a value
dbtgf record.field
  Show a value converted to every type
> help require
require
  Reported once and ignored: modules of C code cannot be loaded; only built-in features are available
> help errlogInit
errlogInit
  Accepted without effect: what it sets up is built in or not needed
> help dbfg
! there is no command "dbfg"; did you mean "dbgf"?
> help x_registerRecordDeviceDriver
x_registerRecordDeviceDriver
  Accepted without effect: what it sets up is built in or not needed
"#,
    );
    let all = terminal.run("help");
    for line in ["  dbgf  ", "Accepted without effect:\n", "  errlogInit\n", "Reported once and ignored"] {
        assert!(all.contains(line), "{line} is not in\n{all}");
    }
}

#[test]
fn unsupported_commands_explain_why() {
    Terminal::new().assert_goes(
        r#"
> errlogInit 5000
> x_registerRecordDeviceDriver pdbbase
> dbgff
! there is no command "dbgff"; did you mean "dbgf"?
> nonsense
! there is no command "nonsense"; commands of modules and drivers are C code, which cannot be loaded
> require a
! require: modules of C code cannot be loaded; only built-in features are available
> require b
! require: modules of C code cannot be loaded; only built-in features are available
> ld a
! ld: libraries of C code cannot be loaded; only built-in features are available
> seq a
! seq: programs of the state notation language are C code, which cannot be loaded
> startPVAServer
! startPVAServer: PV Access is not served yet; clients use Channel Access
> dbb x
! dbb: there are no breakpoints; use dbtr to process a record and show it
> dbDumpRecord
! dbDumpRecord: it shows internals of EPICS Base that do not exist here
> taskwdShow
! taskwdShow: it shows internals of EPICS Base that do not exist here
> drvAsynIPPortConfigure L0
! drvAsynIPPortConfigure: drivers are C code, which cannot be loaded; their devices are not served
> XpsCreateController
! XpsCreateController: drivers are C code, which cannot be loaded; their devices are not served
> autosaveBuild
! autosaveBuild: request files are not built from database names; use info items and makeAutosaveFiles
> save_restoreSet_FilePermissions
! save_restoreSet_FilePermissions: the umask sets the permissions of save files, and dated copies are made only at the start
"#,
    );
}
