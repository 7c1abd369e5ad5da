//! The reference pages say what the program says of itself.
#![forbid(unsafe_code)]

use std::process::Command;
use std::time::Duration;

use fodo_conformance::place::{own_folder, program};
use fodo_conformance::process::printed_by;

/// The block in a page's one fence marked `text`.
fn block(page: &str) -> String {
    let path = own_folder().join("../docs/reference").join(page);
    let text = std::fs::read_to_string(path).expect("the page is there");
    let (_, rest) = text.split_once("```text\n").expect("the page has a block");
    rest.split_once("```").expect("the block ends").0.trim_end().to_string()
}

#[test]
fn the_reference_pages_hold_what_help_prints() {
    let help = printed_by("fodo", Command::new(program()).args(["get", "--help"]), Duration::from_secs(5)).unwrap();

    for page in ["environment.md", "exit-codes.md", "json.md"] {
        let block = block(page);
        assert!(help.contains(&block), "{page} holds\n{block}\nbut fodo get --help prints\n{help}");
    }
}
