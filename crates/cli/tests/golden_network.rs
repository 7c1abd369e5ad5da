//! The captured text of the field's own tools against what this program prints of the same database,
//! served by `fodo ioc`: client, circuit, server and records in one comparison.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking, in its helpers as well")]

#[path = "support/captured.rs"]
mod captured;
#[expect(dead_code, reason = "the other tests use the rest")]
mod support;

use support::{Ioc, golden, text};

/// Dates as the captured files have them.
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
        let (taken, kept_as) = if is_date { (26, "YYYY-MM-DD hh:mm:ss.uuuuuu") } else { (1, &rest[..1]) };
        kept.push_str(kept_as);
        rest = &rest[taken..];
    }
    kept
}

/// The commands of one captured file that print something else here, with the difference.
fn differences(file: &str) -> Vec<String> {
    let ioc = Ioc::serving(&golden("golden.db"));
    let mut differences = Vec::new();
    let captured = std::fs::read_to_string(golden(file)).unwrap();
    for case in captured::commands(&captured) {
        if case.command.ends_with(" -V") {
            continue;
        }
        let words = case.words();
        let output = ioc.fodo(&words.iter().map(String::as_str).collect::<Vec<_>>());
        let out = without_dates(&text(&output.stdout)).replace(&format!("127.0.0.1:{}", ioc.tcp_port()), "HOST:PORT");
        let end = output.status.code().map_or_else(String::new, |code| code.to_string());
        let got = (out, text(&output.stderr), end);
        let expected = (case.out.clone(), case.err_without_report(), case.end.clone());
        if got != expected {
            differences.push(format!("$ {}\n  expected {expected:?}\n  got      {got:?}", case.command));
        }
    }
    differences
}

#[test]
fn caget_of_our_ioc_prints_what_caget_of_softioc_prints() {
    let differences = differences("caget.txt");

    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn caput_to_our_ioc_prints_what_caput_to_softioc_prints() {
    let differences = differences("caput.txt");

    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn cainfo_of_our_ioc_prints_what_cainfo_of_softioc_prints() {
    let differences = differences("cainfo.txt");

    assert!(differences.is_empty(), "{}", differences.join("\n"));
}
