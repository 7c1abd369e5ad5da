//! `fodo ioc` preserves values however it ends.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking, in its helpers as well")]
#![expect(dead_code, reason = "these tests need a part of what supports all")]

mod support;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use fodo_ioc::autosave::format::{self, Content};
use fodo_testing::eventually;
use support::{COMPLETE, Lines, PATIENCE, fed, ioc, signal, text, wait};

const DATABASE: &str = "record(ao, \"x:set\") { field(PINI, YES) field(FLNK, \"x:twice\") info(autosaveFields, \"VAL DESC\") }\n\
                        record(calc, \"x:twice\") { field(CALC, \"A*2\") field(INPA, \"x:set\") }\n\
                        record(waveform, \"x:wave\") { field(FTVL, DOUBLE) field(NELM, 5000) \
                        info(autosaveFields_pass0, VAL) }\n\
                        record(bo, \"x:save\") {}\n";

/// The start of a script that restores and saves `s.req` in its folder.
const SCRIPT: &str = "dbLoadRecords a.db\nset_pass0_restoreFile s.sav\nset_pass1_restoreFile s.sav\niocInit\n";

fn folder(name: &str, script: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("autosave-{name}-{}", std::process::id()));
    // A killed run may have left the folder.
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("a.db"), DATABASE).unwrap();
    std::fs::write(folder.join("s.req"), "$(P=x:)set.VAL\n$(P=x:)set.DESC\nx:wave\n").unwrap();
    std::fs::write(folder.join("st.cmd"), script).unwrap();
    folder
}

/// An IOC that reads commands, killed when dropped.
struct Ioc {
    child: Child,
    input: ChildStdin,
    out: Lines,
    err: Lines,
}

impl Ioc {
    fn start(folder: &Path, arguments: &[&str]) -> Ioc {
        Ioc::of(ioc(folder, arguments))
    }

    fn of(mut command: Command) -> Ioc {
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        let (out, err) = (Lines::of(child.stdout.take().unwrap()), Lines::of_stream(child.stderr.take().unwrap()));
        let ioc = Ioc { input: child.stdin.take().unwrap(), child, out, err };
        ioc.line_of("fodo ioc: serving");
        ioc
    }

    fn enter(&mut self, commands: &str) {
        writeln!(self.input, "{commands}").unwrap();
    }

    /// The next line of the output with this beginning.
    fn line_of(&self, beginning: &str) -> String {
        std::iter::from_fn(|| Some(self.out.next())).find(|line| line.starts_with(beginning)).unwrap()
    }

    /// The value that `dbgf` shows.
    fn value(&mut self, name: &str) -> String {
        self.enter(&format!("echo asked\ndbgf {name}"));
        self.line_of("asked");
        self.line_of("DBF_").split_once(':').unwrap().1.trim().to_owned()
    }

    /// Kills it, so that it cannot do anything more.
    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Stops it cleanly.
    fn stop(mut self) {
        signal(&self.child, "TERM");
        assert_eq!(wait(&mut self.child).code(), Some(0));
    }
}

impl Drop for Ioc {
    fn drop(&mut self) {
        // It may already have ended, as most tests intend.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The value of a PV in a save file; `None` without a complete file.
fn saved(path: &Path, pv: &str) -> Option<String> {
    let saved = format::read(&std::fs::read(path).ok()?, None).ok()?;
    saved.values.iter().find(|value| value.pv == pv).map(|value| match &value.value {
        Content::Scalar(text) => text.to_string(),
        Content::Array(texts) => texts.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "),
    })
}

// Row 64 of docs/reference/faults.md.
#[test]
fn saved_values_are_restored_after_a_kill_before_records_initialise() {
    let folder = folder("killed", &format!("{SCRIPT}create_monitor_set(s.req, 1, \"P=x:\")\n"));
    let file = folder.join("s.sav");
    let mut first = Ioc::start(&folder, &["st.cmd"]);
    first.enter("dbpf x:set 4.25\ndbpf x:set.DESC \"as chosen\"\ndbpf x:wave \"[1,2.5]\"");
    eventually("it is saved", || saved(&file, "x:wave") == Some("1 2.5".to_owned()));
    first.kill();

    let mut second = Ioc::start(&folder, &["st.cmd"]);

    assert_eq!(second.value("x:set"), "4.25");
    assert_eq!(second.value("x:twice"), "8.5");
    assert_eq!(second.value("x:set.DESC"), "\"as chosen\"");
    assert_eq!(second.value("x:wave"), "[1, 2.5]");
}

#[test]
fn without_a_script_info_items_select_saved_fields_and_shutdown_saves_them() {
    let folder = folder("simple", "");
    let arguments = ["--autosave", "kept/here", "a.db"];
    let mut first = Ioc::start(&folder, &arguments);
    first.enter("dbpf x:set 7\ndbpf x:wave \"[3]\"");
    first.line_of("DBF_DOUBLE[1]");
    first.stop();

    let mut second = Ioc::start(&folder, &arguments);

    assert_eq!((second.value("x:twice"), second.value("x:wave")), ("14".to_owned(), "[3]".to_owned()));
    let here = folder.join("kept/here");
    assert_eq!(saved(&here.join("info_settings.sav"), "x:set.VAL"), Some("7".to_owned()));
    assert_eq!(saved(&here.join("info_positions.sav"), "x:wave.VAL"), Some("3".to_owned()));
}

// Row 64 of docs/reference/faults.md.
#[test]
fn a_truncated_save_file_is_reported_and_the_backup_is_restored_if_valid() {
    let folder = folder("cut", SCRIPT);
    let (file, before) = (folder.join("s.sav"), folder.join("s.savB"));
    std::fs::write(&file, "# autosave R5.11\tx\nx:set 2\n").unwrap();
    std::fs::write(&before, "# save/restore V4.9\tx\nx:set 1\n<END>\n").unwrap();

    let with_one = fed(&folder, &["st.cmd"], "dbgf x:set\nexit\n");
    std::fs::write(&before, "").unwrap();
    let with_none = fed(&folder, &["st.cmd"], "dbgf x:set\nexit\n");

    let stderr = text(&with_one.stderr);
    assert!(text(&with_one.stdout).contains("DBF_DOUBLE:         1\n"), "{stderr}");
    assert!(stderr.contains("s.sav is not used: it does not end with <END>"), "{stderr}");
    assert!(stderr.contains("s.savB is restored instead\n"), "{stderr}");
    let stderr = text(&with_none.stderr);
    assert!(text(&with_none.stdout).contains("DBF_DOUBLE:         0\n"), "{stderr}");
    assert!(stderr.contains("s.savB is not used: it is empty"), "{stderr}");
    assert!(stderr.contains("s.sav: the IOC starts without its values"), "{stderr}");
    assert_eq!(with_none.status.code(), Some(0));
}

// Row 64 of docs/reference/faults.md.
#[test]
fn a_failed_save_keeps_the_last_file_is_reported_once_and_retried() {
    let script = format!("save_restoreSet_RetrySeconds 1\n{SCRIPT}create_monitor_set(s.req, 1)\n");
    let folder = folder("full", &script);
    let file = folder.join("s.sav");
    let fodo = ioc(&folder, &["st.cmd"]);
    // Files longer than two blocks cannot be written, as on a full disk.
    let mut limited = Command::new("sh");
    limited.args(["-c", "trap '' XFSZ; ulimit -f 2; exec \"$0\" \"$@\""]).arg(fodo.get_program()).args(fodo.get_args());
    limited.current_dir(&folder).envs(fodo.get_envs().filter_map(|(name, value)| Some((name, value?))));
    limited.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut ioc = Ioc::of(limited);
    ioc.enter("dbpf x:set 1");
    eventually("it is saved", || saved(&file, "x:set.VAL") == Some("1".to_owned()));

    let long = vec!["123456789"; 500].join(",");
    ioc.enter(&format!("dbpf x:set 2\ndbpf x:wave \"[{long}]\""));
    let line = std::iter::from_fn(|| Some(ioc.err.next())).find(|line| line.contains(" error: autosave: ")).unwrap();
    assert!(line.contains("s.sav; the previous file is kept"), "{line}");
    assert!(line.contains("File too large"), "{line}");
    // Record processing is not blocked.
    assert_eq!(ioc.value("x:twice"), "4");
    let kept = saved(&file, "x:wave");
    assert_eq!((kept.as_deref(), folder.join("s.sav.tmp").exists()), (Some(""), false));

    // Another attempt fails as well, and is not reported. It creates and removes its file.
    let changed = || std::fs::metadata(&folder).unwrap().modified().unwrap();
    let before = changed();
    eventually("it tries again", || changed() > before && !folder.join("s.sav.tmp").exists());
    ioc.enter("dbpf x:wave \"[1]\"");
    let line = ioc.err.next();
    let (_, n_failed) = line.split_once("s.sav is saved again; failed attempts: ").unwrap();
    assert!(n_failed.parse::<u32>().unwrap() >= 2, "{line}");
    assert_eq!(saved(&file, "x:wave"), Some("1".to_owned()));
}

// Row 64 of docs/reference/faults.md.
#[test]
fn killing_an_ioc_during_a_save_never_leaves_a_corrupt_or_stale_file() {
    const ROUNDS: usize = 15;
    let folder = folder("loop", &format!("{SCRIPT}create_manual_set s.req\n"));
    let mut number = 0;
    for round in 0..ROUNDS {
        let mut ioc = Ioc::start(&folder, &["st.cmd"]);
        ioc.enter(&format!("dbpf x:wave \"[{}]\"", vec!["1"; 2000].join(",")));
        let commands: String = (number + 1..number + 30)
            .map(|number| format!("dbpf x:set {number}\nmanual_save s.req\necho saved {number}\n"))
            .collect();
        ioc.enter(&commands);
        // Further puts are waiting in the pipe, so the process ends during one of them.
        for _ in 0..=round % 4 {
            number = ioc.line_of("saved ").split_once(' ').unwrap().1.parse().unwrap();
        }
        ioc.kill();

        let mut next = Ioc::start(&folder, &["st.cmd"]);
        let restored: usize = next.value("x:set").parse().unwrap();
        assert!(restored >= number, "{restored} of {number}");
        number = restored;
        // A temporary file may remain, but never an incomplete save file.
        for name in ["s.sav", "s.savB"] {
            let path = folder.join(name);
            assert!(!path.exists() || saved(&path, "x:wave").is_some(), "{name}");
        }
    }
}

#[test]
fn existing_autosave_files_are_restored_with_their_macros() {
    let folder = folder("plant", "");
    std::fs::create_dir_all(folder.join("req/below")).unwrap();
    std::fs::create_dir_all(folder.join("sav")).unwrap();
    std::fs::write(folder.join("req/auto.req"), "# ours\nfile inner.req P=$(P), N=set\n$(P)gone.VAL\n").unwrap();
    std::fs::write(folder.join("req/below/inner.req"), "$(P)$(N).VAL\n$(P)$(N).EGU\n").unwrap();
    let plant = "# autosave R5.3\tAutomatically generated - DO NOT MODIFY - 191010-162704\n\
                 ! 1 channel(s) not connected - or not all gets were successful\n\
                 x:set.VAL 3.5\nx:set.SCAN 9\n#x:lost.VAL Search Issued\n\
                 x:wave.VAL @array@ { \"1\" \"2\" }\n$(P)set.EGU mm\n<END>\n";
    std::fs::write(folder.join("sav/auto.sav"), plant).unwrap();
    let script = "set_requestfile_path(\"req\", \"\")\nset_requestfile_path(req, /below)\n\
                  save_restoreSet_Debug(0)\nsave_restoreSet_IncompleteSetsOk(1)\nsave_restoreSet_DatedBackupFiles(0)\n\
                  save_restoreSet_NumSeqFiles(2)\nsave_restoreSet_SeqPeriodInSeconds(60)\n\
                  set_pass0_restoreFile(\"auto.sav\", \"P=x:\")\nset_pass1_restoreFile(\"auto.sav\", \"P=x:\")\n\
                  set_savefile_path(\".\", \"sav\")\n\
                  dbLoadRecords a.db\niocInit\ncreate_triggered_set(\"auto.req\", \"x:save\", \"P=x:\")\n";
    std::fs::write(folder.join("st.cmd"), script).unwrap();

    let mut ioc = Ioc::start(&folder, &["st.cmd"]);
    assert_eq!((ioc.value("x:set"), ioc.value("x:twice")), ("3.5".to_owned(), "7".to_owned()));
    assert_eq!((ioc.value("x:set.SCAN"), ioc.value("x:wave")), ("\".1 second\"".to_owned(), "[1, 2]".to_owned()));
    assert_eq!(ioc.value("x:set.EGU"), "\"mm\"");
    assert_eq!(ioc.err.next(), COMPLETE.trim_end());
    let line = ioc.err.next();
    assert!(line.starts_with("auto.req:3:1: there is no record \"x:gone\""), "{line}");

    ioc.enter("dbpf x:set 4\ndbpf x:save 1");
    let file = folder.join("sav/auto.sav");
    eventually("it is saved", || saved(&file, "x:set.VAL") == Some("4".to_owned()));
    let written = std::fs::read_to_string(&file).unwrap();
    let mut lines = written.lines();
    assert!(lines.next().unwrap().starts_with("# autosave R5.11 (fodo ioc "), "{written}");
    assert!(lines.eq([
        "! 1 channel(s) not connected - or not all gets were successful",
        "x:set.VAL 4",
        "x:set.EGU mm",
        "#x:gone.VAL Search Issued",
        "<END>"
    ]));
    eventually("a copy is kept in turn", || saved(&folder.join("sav/auto.sav0"), "x:set.VAL") == Some("4".to_owned()));
    assert_eq!(saved(&folder.join("sav/auto.savB"), "x:set.VAL"), Some("3.5".to_owned()));
    assert_eq!(std::fs::read_to_string(folder.join("sav/auto.sav.bu")).unwrap(), plant);
}

#[test]
fn save_sets_are_saved_shown_removed_and_restored_by_command() {
    let folder = folder("hand", &format!("{SCRIPT}create_manual_set s.req\n"));
    std::fs::create_dir_all(folder.join("other")).unwrap();
    std::fs::copy(folder.join("s.req"), folder.join("other/s.req")).unwrap();
    let commands = "create_manual_set other/s.req\ndbpf x:set 5\nmanual_save s.req\nsave_restoreShow 1\ndbpf x:set 6\nfdbrestore s.sav\ndbgf x:twice\n\
                    manual_save t.req\nset_savefile_name s.req other.sav\nmanual_save s.req\nremove_data_set s.req\n\
                    manual_save s.req\nmakeAutosaveFiles\nexit\n";

    let output = fed(&folder, &["st.cmd"], commands);

    let (out, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(out.contains("s.req: 3 PVs, 0 missing, by manual_save, to ") && out.contains(": saved\n"), "{out}");
    assert!(out.contains("\n  x:set.DESC\n"), "{out}");
    // fdbrestore processes the records.
    assert_eq!(out.lines().last(), Some("DBF_DOUBLE:         10"), "{out}");
    assert!(stderr.contains("s.sav does not exist yet"), "{stderr}");
    assert!(stderr.contains("s.sav is already the file of the set \"s.req\"\n"), "{stderr}");
    assert!(stderr.contains("there is no autosave set \"t.req\"; did you mean \"s.req\"?\n"), "{stderr}");
    assert!(stderr.ends_with("there is no autosave set \"s.req\"\n"), "{stderr}");
    assert_eq!(saved(&folder.join("other.sav"), "x:set.VAL"), Some("5".to_owned()));
    let saved = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    assert_eq!(saved("info_settings.req"), "x:set.VAL\nx:set.DESC\n");
    assert_eq!(saved("info_positions.req"), "x:wave.VAL\n");
}

/// The records of save_restoreStatus.db used by a test.
fn status_records() -> String {
    let state = |name: &str| {
        format!(
            "record(mbbo, \"s:SR_{name}\") {{ field(ZRST, \"No Status\") field(ONST, \"Failure\") field(TWST, \"Warning\") \
             field(THST, \"Seq Fail\") field(FRST, \"Ok\") }}\n"
        )
    };
    let states: String = ["status", "rebootStatus", "0_Status", "1_Status"].map(state).concat();
    let words =
        ["statusStr", "rebootStatusStr", "rebootTime", "recentlyStr", "0_Name", "0_StatusStr", "0_Time", "1_Name"];
    let words: String =
        words.map(|name| format!("record(stringout, \"s:SR_{name}\") {{ field(VAL, \"unset\") }}\n")).concat();
    format!(
        "{states}{words}record(bo, \"s:SR_heartbeat\") {{ field(ZNAM, \"tick\") field(ONAM, \"tock\") }}\nrecord(longout, \"s:SR_0_State\") {{}}\n"
    )
}

#[test]
fn the_records_of_the_status_prefix_show_how_saving_goes() {
    let script = format!(
        "save_restoreSet_status_prefix(\"s:\")\nsave_restoreSet_RetrySeconds 1\ndbLoadRecords status.db\n{SCRIPT}\
         create_monitor_set(s.req, 1, \"P=x:\")\n"
    );
    let folder = folder("status", &script);
    std::fs::write(folder.join("status.db"), status_records()).unwrap();
    let mut ioc = Ioc::start(&folder, &["st.cmd"]);
    let becomes = |ioc: &mut Ioc, name: &str, expected: &str| {
        let start = Instant::now();
        while ioc.value(&format!("s:SR_{name}")) != format!("\"{expected}\"") {
            assert!(start.elapsed() < PATIENCE, "{name} never becomes {expected}");
            std::thread::sleep(Duration::from_millis(50));
        }
    };

    becomes(&mut ioc, "0_Status", "Ok");
    becomes(&mut ioc, "status", "Ok");
    becomes(&mut ioc, "statusStr", "Ok");
    becomes(&mut ioc, "recentlyStr", "Wrote 's.sav'");
    becomes(&mut ioc, "0_Name", "s");
    becomes(&mut ioc, "1_Name", "Not In Use");
    becomes(&mut ioc, "1_Status", "No Status");
    // There was no file to restore.
    becomes(&mut ioc, "rebootStatus", "Failure");
    becomes(&mut ioc, "rebootStatusStr", "the file does not exist yet");
    let (saved_at, started_at) = (ioc.value("s:SR_0_Time"), ioc.value("s:SR_rebootTime"));
    assert!(saved_at.len() == "\"Sun Nov 22 11:30:03\"".len() && started_at.len() == saved_at.len(), "{saved_at}");
    let beat = ioc.value("s:SR_heartbeat");
    let start = Instant::now();
    while ioc.value("s:SR_heartbeat") == beat {
        assert!(start.elapsed() < PATIENCE, "the heartbeat does not change");
        std::thread::sleep(Duration::from_millis(50));
    }

    std::fs::create_dir(folder.join("s.sav.tmp")).unwrap();
    ioc.enter("dbpf x:set 9");
    becomes(&mut ioc, "status", "Failure");
    becomes(&mut ioc, "0_StatusStr", "Can't write .sav file");
    becomes(&mut ioc, "recentlyStr", "Can't write 's.sav'");
    std::fs::remove_dir(folder.join("s.sav.tmp")).unwrap();
    becomes(&mut ioc, "status", "Ok");
    ioc.enter("save_restoreSet_UseStatusPVs 0\ndbpf s:SR_status 2\nepicsThreadSleep 2");
    assert_eq!(ioc.value("s:SR_status"), "\"Warning\"");
}

#[test]
fn a_status_prefix_without_status_records_is_reported() {
    let folder = folder("no-status", &format!("save_restoreSet_status_prefix(\"s:\")\n{SCRIPT}"));

    let output = fed(&folder, &["st.cmd"], "exit\n");

    let stderr = text(&output.stderr);
    assert!(stderr.contains("there is no record s:SR_status; load save_restoreStatus.db of autosave"), "{stderr}");
}
