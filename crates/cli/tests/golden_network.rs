//! Compares captured output of the EPICS tools with the output of this program for the same database, served by
//! `fodo ioc`: client, circuit, server and records in one comparison.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking, in its helpers as well")]

#[path = "support/captured.rs"]
mod captured;
#[expect(dead_code, reason = "the other tests use the rest")]
mod support;

use support::{Ioc, fodo, golden, run, text};

/// Replaces dates as in the captured files.
fn without_dates(line: &str) -> String {
    let mut kept = String::new();
    let mut rest = line;
    while !rest.is_empty() {
        let is_date = rest.len() >= 26
            && rest.is_char_boundary(26)
            && rest[..26].bytes().zip("dddd-dd-dd dd:dd:dd.dddddd".bytes()).all(|(byte, form)| match form {
                b'd' => byte.is_ascii_digit(),
                other => byte == other,
            });
        let (n_bytes, replacement) = if is_date { (26, "YYYY-MM-DD hh:mm:ss.uuuuuu") } else { (1, &rest[..1]) };
        kept.push_str(replacement);
        rest = &rest[n_bytes..];
    }
    kept
}

/// The commands whose output differs, with reasons, from a file. Exactly these must differ, so that a fix must remove
/// its lines.
fn known(tool: &str) -> Vec<String> {
    let text = std::fs::read_to_string(golden("known_differences.txt")).unwrap();
    let of_tool = text.lines().filter_map(|line| line.strip_prefix("$ ")).filter(|line| line.starts_with(tool));
    of_tool.map(str::to_owned).collect()
}

/// Compares every captured command of a tool.
fn compare(tool: &str) {
    let ioc = Ioc::golden();
    let mut differing = Vec::new();
    let mut details = String::new();
    let captured = std::fs::read_to_string(golden(&format!("{tool}.txt"))).unwrap();
    for case in captured::commands(&captured) {
        let words = case.words();
        if case.command.ends_with(" -V") {
            continue;
        }
        // What is there connects late on a busy machine; only the timeout in a message is that of the captured command.
        let mut output = run(fodo(ioc.port).env("EPICS_CLI_TIMEOUT", "30").args(&words));
        output.stderr = text(&output.stderr).replace("ignored, using '30.0'", "ignored, using '1.0'").into_bytes();
        let out = without_dates(&text(&output.stdout)).replace(&format!("127.0.0.1:{}", ioc.tcp_port()), "HOST:PORT");
        let end = output.status.code().map_or_else(String::new, |code| code.to_string());
        let found = (out, text(&output.stderr), end);
        let expected = (case.out.clone(), case.err_without_report(), case.end.clone());
        if found != expected {
            details.push_str(&format!("$ {}\n  expected {expected:?}\n  got      {found:?}\n", case.command));
            differing.push(case.command);
        }
    }
    assert_eq!(differing, known(tool), "{details}");
}

#[test]
fn caget_output_is_the_same_for_fodo_and_softioc() {
    compare("caget");
}

#[test]
fn caput_output_is_the_same_for_fodo_and_softioc() {
    compare("caput");
}

#[test]
fn cainfo_output_is_the_same_for_fodo_and_softioc() {
    compare("cainfo");
}
