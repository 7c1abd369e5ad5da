//! Tests that the shells of `fodo ioc` and softIoc give the same answers.
#![forbid(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Stdio};
use std::time::Duration;

use fodo_conformance::place::{free_port, own_folder, program, python, script};
use fodo_conformance::process::{printed_by, restrict_to_loopback};

const PATIENCE: Duration = Duration::from_secs(30);

/// The answers of a program to the commands of `db/shell/st.cmd`: kinds with values, names of records, and lines marked
/// as answers. Echoed commands, greetings and error messages start differently.
fn answers(name: &str, command: &mut Command) -> Vec<String> {
    restrict_to_loopback(command, free_port());
    command.current_dir(own_folder().join("db").join("shell"));
    let printed = printed_by(name, command, PATIENCE).expect("the shell runs");

    let lines = printed.lines().map(|line| without_colours(line).trim_end().to_string());
    lines.filter(|line| ["DBF_", "x:", "answer:"].iter().any(|start| line.starts_with(start))).collect()
}

/// The line without terminal colour sequences.
fn without_colours(line: &str) -> String {
    let mut parts = line.split('\u{1b}');
    let mut out = parts.next().unwrap_or_default().to_string();
    for part in parts {
        out += part.split_once('m').map_or(part, |(_, rest)| rest);
    }
    out
}

#[test]
fn a_script_prints_the_same_output_in_fodo_and_softioc() {
    let theirs = answers("softIoc", Command::new(python()).arg(script("softioc_shell.py")).arg("st.cmd"));
    let ours = answers("fodo ioc", Command::new(program()).args(["ioc", "st.cmd", "ends.cmd"]));

    assert!(ours.len() > 15, "{ours:#?}");
    assert_eq!(ours, theirs);
}

#[test]
fn exit_in_a_script_ends_the_fodo_ioc_but_only_the_script_in_softioc() {
    let leaves = std::env::temp_dir().join(format!("fodo-exit-{}.cmd", std::process::id()));
    std::fs::write(&leaves, "echo \"answer: before\"\nexit 3\necho \"answer: behind\"\n")
        .expect("the script is written");
    let ended = |command: &mut Command| {
        restrict_to_loopback(command, free_port());
        let output = command.stdin(Stdio::null()).output().expect("the shell runs");
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let answers = printed.lines().filter(|line| line.starts_with("answer:")).count();
        (answers, output.status.code())
    };

    // softIoc's script ends the shell call only; the caller continues and exits normally.
    let theirs = ended(Command::new(python()).arg(script("softioc_shell.py")).arg(&leaves));
    let ours = ended(Command::new(program()).arg("ioc").arg(&leaves));

    std::fs::remove_file(&leaves).expect("the script is removed");
    assert_eq!((theirs, ours), ((1, Some(0)), (1, Some(3))));
}

/// The field names that `dbpr` shows for each record at each level, after lines `answer: TYPE LEVEL`; the names start
/// in every twentieth column.
fn shown_at_levels(name: &str, command: &mut Command) -> BTreeMap<String, BTreeSet<String>> {
    restrict_to_loopback(command, free_port());
    let printed = printed_by(name, command, PATIENCE).expect("the shell runs");

    let mut shown: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut at = String::new();
    for line in printed.lines().map(without_colours) {
        if let Some(place) = line.strip_prefix("answer: ") {
            at = place.to_owned();
            continue;
        }
        let characters: Vec<char> = line.chars().collect();
        for cell in characters.chunks(20) {
            let name =
                cell.iter().position(|character| *character == ':').map(|end| cell[..end].iter().collect::<String>());
            let is_name = |name: &&str| name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit());
            if let Some(name) = name.as_deref().map(str::trim_end).filter(is_name) {
                shown.entry(at.clone()).or_default().insert(name.to_owned());
            }
        }
    }
    shown
}

#[test]
fn dbpr_shows_the_same_fields_per_level_as_softioc() {
    let beyond_base = ["acalcout", "busy", "scalcout", "sseq", "swait", "transform"];
    let types: Vec<&str> = fodo_db::record_types().filter(|name| !beyond_base.contains(name)).collect();
    let folder = std::env::temp_dir().join(format!("fodo-levels-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("the folder is created");
    let records: String = types.iter().map(|name| format!("record({name}, \"x:{name}\") {{}}\n")).collect();
    std::fs::write(folder.join("a.db"), records).expect("the database is written");
    let shows = types.iter().flat_map(|name| (0..4).map(move |level| (name, level)));
    let shows = shows.map(|(name, level)| format!("echo \"answer: {name} {level}\"\ndbpr x:{name} {level}\n"));
    let st_cmd = format!("dbLoadRecords(\"a.db\")\niocInit\n{}exit\n", shows.collect::<String>());
    std::fs::write(folder.join("st.cmd"), st_cmd).expect("the script is written");

    let mut softioc = Command::new(python());
    softioc.arg(script("softioc_shell.py")).arg("st.cmd").current_dir(&folder);
    let mut theirs = shown_at_levels("softIoc", &mut softioc);
    let ours = shown_at_levels("fodo ioc", Command::new(program()).args(["ioc", "st.cmd"]).current_dir(&folder));

    std::fs::remove_dir_all(&folder).expect("the folder is removed");
    // `fodo ioc` has no breakpoints and no addresses of routines.
    theirs.values_mut().for_each(|names| {
        assert!(names.remove("BKPT") || !names.contains("SCAN"));
        names.retain(|name| !["SADR", "CADR"].contains(&name.as_str()));
    });
    for place in types.iter().flat_map(|name| (0..4).map(move |level| format!("{name} {level}"))) {
        let names = ours.get(&place).expect("fields are shown");
        assert_eq!(Some(names), theirs.get(&place), "{place}");
    }
}
