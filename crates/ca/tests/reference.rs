//! Compares the reference pages that are generated from tables in the code with these tables.
//! `FODO_WRITE_REFERENCE=1` regenerates the pages.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use fodo_ca::eca::Eca;
use fodo_ca::message::{Answer, MINOR_VERSION, Request, Row};

/// Compares `text` with the page `name`, or writes the page.
fn is_page(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference").join(name);
    if std::env::var_os("FODO_WRITE_REFERENCE").is_some() {
        std::fs::write(&path, text).expect("the page can be written");
    }
    let page = std::fs::read_to_string(&path).expect("the page exists");
    let differs = page.lines().zip(text.lines()).find(|(page, generated)| page != generated);
    assert!(page == text, "{name} differs from the code: {differs:?}; regenerate it with FODO_WRITE_REFERENCE=1");
}

fn table(rows: &[Row]) -> String {
    let mut text = String::from("| command | message | header words | purpose |\n|---|---|---|---|\n");
    for row in rows {
        let fields: Vec<String> = row.fields.iter().map(|(field, slot)| format!("`{slot}`: {field}")).collect();
        let purpose = row.purpose.concat().trim().replace('|', "\\|");
        let _ = writeln!(text, "| {} | `{}` | {} | {purpose} |", row.command, row.label, fields.join(", "));
    }
    text
}

#[test]
fn the_message_reference_page_matches_the_table_in_the_code() {
    let mut text = format!(
        "# Messages of Channel Access\n\nProtocol 4.{MINOR_VERSION}. Every message has a 16-byte big-endian header: `command`, `payload size`, \
         `data_type`\nand `count` with 16 bits each, then `p1` and `p2` with 32 bits each. From 0xffff bytes or elements on, \
         size is 0xffff and\ncount is 0, and both follow the header with 32 bits each. Payloads are padded to a multiple of \
         8 bytes. Header words\nthat are not listed are 0.\n\n\
         Generated from `crates/ca/src/message.rs`; a test compares this page with the code.\n"
    );
    let _ = write!(text, "\n## What clients send\n\n{}", table(Request::ROWS));
    let _ = write!(text, "\n## What servers send\n\n{}", table(Answer::ROWS));

    is_page("messages.md", &text);
}

#[test]
fn the_status_code_page_matches_the_table_in_the_code() {
    let mut text = String::from(
        "# Status codes of Channel Access\n\nThe codes with which a server reports the result of an operation, and the texts that EPICS tools print. The \
         number on the\nwire is eight times the message number plus the severity. Fodo passes on all codes, including unknown \
         numbers.\nA command that a server refuses with a status ends with [exit code](exit-codes.md) 5.\n\n\
         Generated from `crates/ca/src/eca.rs`; a test compares this page with the code.\n\n\
         | number | name | severity | text |\n|---|---|---|---|\n",
    );
    let severities = ["warning", "success", "error", "information", "severe", "", "fatal", ""];
    for (status, name, words) in Eca::ALL {
        let severity = severities.get((status.0 & 7) as usize).copied().unwrap_or_default();
        let _ = writeln!(text, "| {} | `{name}` | {severity} | {words} |", status.0);
    }

    is_page("status-codes.md", &text);
}

/// The tests of the workspace.
#[derive(Default)]
struct Tests {
    names: BTreeSet<String>,
    /// Those with a comment `// Row 7 of docs/reference/faults.md.`
    with_row: BTreeSet<String>,
}

impl Tests {
    /// Adds the tests in the sources in Rust, Python and Java below a folder.
    fn add_below(&mut self, folder: &Path) {
        for entry in std::fs::read_dir(folder).expect("the folder can be read").flatten() {
            let path = entry.path();
            if path.is_dir() {
                self.add_below(&path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                self.add(&std::fs::read_to_string(&path).expect("a source is text"));
            } else if path.extension().is_some_and(|extension| extension == "py") {
                self.add_python(&std::fs::read_to_string(&path).expect("a source is text"));
            } else if path.extension().is_some_and(|extension| extension == "java") {
                self.add_java(&std::fs::read_to_string(&path).expect("a source is text"));
            }
        }
    }

    fn add_python(&mut self, source: &str) {
        let definitions = source.lines().filter_map(|line| line.strip_prefix("def ")?.split_once('('));
        self.names.extend(definitions.map(|(name, _)| name.to_owned()).filter(|name| name.starts_with("test_")));
    }

    fn add_java(&mut self, source: &str) {
        // Each part after the first one begins behind `@Test` or `@ParameterizedTest`.
        for part in source.split("Test\n").skip(1) {
            // There may be other annotations in between.
            let head = part.lines().find_map(|line| line.trim().strip_prefix("void "));
            self.names.extend(head.and_then(|head| head.split_once('(')).map(|(name, _)| name.to_owned()));
        }
    }

    fn add(&mut self, source: &str) {
        let parts: Vec<&str> = source.split("#[test]\n").collect();
        for pair in parts.windows(2) {
            // There may be other attributes in between.
            let head = pair[1].lines().find_map(|line| line.trim().strip_prefix("fn "));
            let Some((name, _)) = head.and_then(|head| head.split_once('(')) else { continue };
            self.names.insert(name.to_owned());
            let before = pair[0].trim_end().lines().last().unwrap_or_default().trim();
            if before.starts_with("// Row") && before.ends_with("of docs/reference/faults.md.") {
                self.with_row.insert(name.to_owned());
            }
        }
    }
}

#[test]
fn the_fault_page_names_only_existing_tests() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::fs::read_to_string(root.join("docs/reference/faults.md")).expect("the page is there");
    let mut tests = Tests::default();
    tests.add_below(&root.join("crates"));
    tests.add_below(&root.join("conformance"));
    tests.add_below(&root.join("python/tests"));
    tests.add_below(&root.join("java/src/test"));

    let mut in_page = BTreeSet::new();
    for line in page.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| row")) {
        let [_, row, _, _, named, _, _] = line.split('|').collect::<Vec<_>>()[..] else {
            panic!("five columns: {line}")
        };
        let names: Vec<&str> = named.split('`').skip(1).step_by(2).collect();
        assert!(!names.is_empty() || named.trim() == "no test yet", "row {row} has neither a test nor \"no test yet\"");
        in_page.extend(names.into_iter().map(str::to_owned));
    }

    assert!(tests.with_row.len() > 100, "{} tests with a row", tests.with_row.len());
    assert_eq!(
        in_page.difference(&tests.names).collect::<Vec<_>>(),
        Vec::<&String>::new(),
        "in the page, but no tests"
    );
    assert_eq!(
        tests.with_row.difference(&in_page).collect::<Vec<_>>(),
        Vec::<&String>::new(),
        "tests that the page lacks"
    );
}
