//! Limits the size of functions of Rust, and of files of Rust and Python. Exceptions are on a list; they may shrink but never
//! grow.

use std::collections::BTreeMap;

use super::Offence;
use super::repository::Repository;
use super::source;

/// The list of exceptions ("giants"): `lines path` for a file, `lines path function` for a function.
pub const GIANTS_PATH: &str = "xtask/tidy-giants.txt";

const FUNCTION_LINES_MAX: usize = 70;
const FILE_LINES_MAX: usize = 600;

const HEADING: &str = "\
# Files over 600 lines (without their tests) and functions over 70, each with its length.
# They may shrink, never grow; `cargo xtask tidy tighten` lowers the numbers.
";

/// The path of a file, or the path and name of a function.
type ItemName = String;

/// A measured item: its length, and the line where it starts (0 for a file).
struct Measured {
    n_lines: usize,
    line: usize,
    path: String,
}

/// Checks every source against the limits and the list.
pub fn check(repository: &Repository) -> Vec<Offence> {
    let listed = listed(repository.text(GIANTS_PATH).unwrap_or_default());
    let measured = giants(repository);

    let mut offences = Vec::new();
    for (name, giant) in &measured {
        let found = giant.n_lines;
        match listed.get(name) {
            None => {
                let what = format!("{name} is too long ({found} lines); split it");
                offences.push(Offence::new(&giant.path, giant.line, what));
            }
            Some(limit) if found > *limit => {
                let what = format!("{name} has grown from {limit} to {found} lines; listed items may never grow");
                offences.push(Offence::new(&giant.path, giant.line, what));
            }
            Some(limit) if found < *limit => {
                let what = format!("{name} has shrunk from {limit} to {found} lines; run `cargo xtask tidy tighten`");
                offences.push(Offence::new(GIANTS_PATH, 0, what));
            }
            Some(_) => {}
        }
    }
    for name in listed.keys().filter(|name| !measured.contains_key(*name)) {
        offences.push(Offence::new(GIANTS_PATH, 0, format!("{name} is short enough; run `cargo xtask tidy tighten`")));
    }
    offences
}

/// The list with every number lowered to the current length.
pub fn tightened(repository: &Repository) -> String {
    let measured = giants(repository);
    let mut text = HEADING.to_string();
    for (name, limit) in listed(repository.text(GIANTS_PATH).unwrap_or_default()) {
        if let Some(giant) = measured.get(&name) {
            text.push_str(&format!("{} {name}\n", giant.n_lines.min(limit)));
        }
    }
    text
}

fn giants(repository: &Repository) -> BTreeMap<ItemName, Measured> {
    let mut found = BTreeMap::new();
    let without_tests = repository.rust_files().map(|file| {
        let n_lines = file.text.lines().count() - source::n_test_lines(&file.text).unwrap_or(0);
        (&file.path, n_lines)
    });
    let whole = repository.python_files().map(|file| (&file.path, file.text.lines().count()));
    for (path, n_lines) in without_tests.chain(whole).filter(|(_, n_lines)| *n_lines > FILE_LINES_MAX) {
        found.insert(path.clone(), Measured { n_lines, line: 0, path: path.clone() });
    }
    for file in repository.rust_files() {
        for function in source::functions(&file.text).unwrap_or_default() {
            if function.n_lines > FUNCTION_LINES_MAX && !function.is_table {
                let name = format!("{} {}", file.path, function.name);
                let (n_lines, line) = (function.n_lines, function.line);
                found.insert(name, Measured { n_lines, line, path: file.path.clone() });
            }
        }
    }
    found
}

fn listed(list: &str) -> BTreeMap<ItemName, usize> {
    let lines = list.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split_once(' ')).filter_map(|(n, name)| Some((name.into(), n.parse().ok()?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function_of(n_lines: usize) -> String {
        format!("fn long() {{\n{}}}\n", "    step();\n".repeat(n_lines - 2))
    }

    fn offences_in(source: &str, list: &str) -> Vec<String> {
        let repository = Repository::of(&[("crates/ca/src/a.rs", source), (GIANTS_PATH, list)]);
        check(&repository).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_function_longer_than_seventy_lines_is_rejected() {
        assert_eq!(offences_in(&function_of(70), ""), [""; 0]);
        assert_eq!(offences_in(&function_of(71), "").len(), 1);
    }

    #[test]
    fn a_file_longer_than_six_hundred_lines_without_tests_is_rejected() {
        let short = "const A: u8 = 1;\n".repeat(600);
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "const A: u8 = 1;\n".repeat(50));

        assert_eq!(offences_in(&format!("{short}{tests}"), ""), [""; 0]);
        assert_eq!(offences_in(&format!("{short}const B: u8 = 1;\n"), "").len(), 1);
    }

    #[test]
    fn a_python_file_longer_than_six_hundred_lines_is_rejected() {
        let offences = |n: usize| {
            let text = "step()\n".repeat(n);
            let repository = Repository::of(&[("python/fodo/a.py", text.as_str()), (GIANTS_PATH, "")]);
            check(&repository).iter().map(ToString::to_string).collect::<Vec<_>>()
        };

        assert_eq!(offences(600), [""; 0]);
        assert_eq!(offences(601), ["python/fodo/a.py: python/fodo/a.py is too long (601 lines); split it"]);
    }

    #[test]
    fn a_listed_oversized_item_must_have_exactly_its_listed_size() {
        assert_eq!(offences_in(&function_of(80), "80 crates/ca/src/a.rs long\n"), [""; 0]);
        assert!(offences_in(&function_of(81), "80 crates/ca/src/a.rs long\n")[0].contains("never grow"));
        assert!(offences_in(&function_of(79), "80 crates/ca/src/a.rs long\n")[0].contains("tighten"));
        assert!(offences_in(&function_of(70), "80 crates/ca/src/a.rs long\n")[0].contains("short enough"));
    }

    #[test]
    fn tightening_never_raises_or_adds_a_size_limit() {
        let repository = |n: usize, list: &str| {
            Repository::of(&[("crates/ca/src/a.rs", function_of(n).as_str()), (GIANTS_PATH, list)])
        };

        let listed = "80 crates/ca/src/a.rs long\n";
        assert_eq!(tightened(&repository(79, listed)), format!("{HEADING}79 crates/ca/src/a.rs long\n"));
        assert_eq!(tightened(&repository(81, listed)), format!("{HEADING}{listed}"));
        assert_eq!(tightened(&repository(60, listed)), HEADING);
        assert_eq!(tightened(&repository(90, "")), HEADING);
    }
}
