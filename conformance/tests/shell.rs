//! The shell of `fodo ioc` answers as that of softIoc.
#![forbid(unsafe_code)]

use std::process::{Command, Stdio};
use std::time::Duration;

use fodo_conformance::place::{free_port, own_folder, program, python, script};
use fodo_conformance::process::{confine, printed_by};

const PATIENCE: Duration = Duration::from_secs(30);

/// What a program answers to the commands of `db/shell/st.cmd`: kinds with values, names of records, and what is said
/// to be an answer. The lines of the script, greetings and complaints begin in other ways.
fn answers(name: &str, command: &mut Command) -> Vec<String> {
    confine(command, free_port());
    command.current_dir(own_folder().join("db").join("shell"));
    let printed = printed_by(name, command, PATIENCE).expect("the shell runs");

    let lines = printed.lines().map(|line| without_colours(line).trim_end().to_string());
    lines.filter(|line| ["DBF_", "x:", "answer:"].iter().any(|start| line.starts_with(start))).collect()
}

/// The line without the sequences that colour it at a terminal.
fn without_colours(line: &str) -> String {
    let mut parts = line.split('\u{1b}');
    let mut out = parts.next().unwrap_or_default().to_string();
    for part in parts {
        out += part.split_once('m').map_or(part, |(_, rest)| rest);
    }
    out
}

#[test]
fn a_script_gets_the_same_answers_from_both_shells() {
    let theirs = answers("softIoc", Command::new(python()).arg(script("softioc_shell.py")).arg("st.cmd"));
    let ours = answers("fodo ioc", Command::new(program()).args(["ioc", "st.cmd", "ends.cmd"]));

    assert!(ours.len() > 15, "{ours:#?}");
    assert_eq!(ours, theirs);
}

#[test]
fn exit_ends_a_script_of_softioc_and_the_whole_of_ours_as_the_page_on_differences_says() {
    let leaves = std::env::temp_dir().join(format!("fodo-exit-{}.cmd", std::process::id()));
    std::fs::write(&leaves, "echo \"answer: before\"\nexit 3\necho \"answer: behind\"\n").expect("it can be written");
    let ended = |command: &mut Command| {
        confine(command, free_port());
        let output = command.stdin(Stdio::null()).output().expect("the shell runs");
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let answers = printed.lines().filter(|line| line.starts_with("answer:")).count();
        (answers, output.status.code())
    };

    // What calls the shell of softIoc here goes on behind it, and ends well.
    let theirs = ended(Command::new(python()).arg(script("softioc_shell.py")).arg(&leaves));
    let ours = ended(Command::new(program()).arg("ioc").arg(&leaves));

    std::fs::remove_file(&leaves).expect("it is ours");
    assert_eq!((theirs, ours), ((1, Some(0)), (1, Some(3))));
}
