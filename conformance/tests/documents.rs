//! Checks that the reference pages contain the program's own help texts.
#![forbid(unsafe_code)]

use std::process::Command;
use std::time::Duration;

use fodo_conformance::place::{free_port, own_folder, program};
use fodo_conformance::process::{Process, printed_by, restrict_to_loopback};

/// Maximum time, on a busy host, for operations that normally take an instant.
const PATIENCE: Duration = Duration::from_secs(30);

/// Commands that print JSON or whose help is quoted in a page.
const VERBS: [&str; 11] = ["get", "put", "monitor", "info", "list", "call", "search", "top", "why", "config", "ioc"];

/// The blocks of a page marked `text`.
fn blocks(page: &str) -> Vec<String> {
    let path = own_folder().join("../docs/reference").join(page);
    let text = std::fs::read_to_string(path).expect("the page exists");
    let after_fences = text.split("```text\n").skip(1);
    after_fences.map(|rest| rest.split("```").next().unwrap_or_default().trim_end().to_string()).collect()
}

fn help_of(verb: &str) -> String {
    help_of_words(&[verb])
}

fn help_of_words(words: &[&str]) -> String {
    printed_by("fodo", Command::new(program()).args(words).arg("--help"), PATIENCE).expect("it prints its help")
}

#[test]
fn the_reference_pages_match_the_help_output() {
    let help: String = VERBS.into_iter().map(help_of).collect();

    for page in ["environment.md", "exit-codes.md", "json.md"] {
        let blocks = blocks(page);
        assert!(!blocks.is_empty(), "{page} has no block");
        for block in blocks {
            assert!(help.contains(&block), "{page} contains\n{block}\nbut --help prints\n{help}");
        }
    }
}

#[test]
fn the_json_page_lists_the_keys_of_every_subcommand() {
    let page = blocks("json.md");
    let mut n_verbs = 0;
    for verb in VERBS {
        let help = help_of(verb);
        let paragraphs = help.split("\n\n").filter(|paragraph| paragraph.contains("JSON keys"));
        for paragraph in paragraphs.map(str::trim_end) {
            assert!(page.iter().any(|block| block == paragraph), "json.md lacks, for fodo {verb}:\n{paragraph}");
            n_verbs += 1;
        }
    }
    assert!(n_verbs >= 11, "{n_verbs}");
}

#[test]
fn the_page_of_commands_for_clus_matches_their_help() {
    let page = blocks("clu-commands.md");
    let names = "discover alive exec get set call watch upload download reset serve keys interfaces";
    let helps: Vec<String> = names.split(' ').map(|name| help_of_words(&["clu", name])).collect();

    for block in &page {
        assert!(helps.iter().any(|help| help.contains(block)), "clu-commands.md contains\n{block}");
    }
    for help in &helps {
        let keys = help.split("\n\n").map(str::trim_end).find(|paragraph| paragraph.contains("JSON keys"));
        let keys = keys.expect("the help has the keys");
        assert!(page.iter().any(|block| block == keys), "clu-commands.md lacks\n{keys}");
    }
}

#[test]
fn the_shell_page_matches_the_shell_help_output() {
    let mut command = Command::new(program());
    restrict_to_loopback(&mut command, free_port());
    let mut shell = Process::start("fodo ioc", command.arg("ioc")).expect("the program can be started");
    shell.write_line("help").expect("it reads commands");
    shell.write_line("echo end of help").expect("it reads commands");

    let mut printed = Vec::new();
    while printed.last().is_none_or(|line| line != "end of help") {
        printed.push(shell.line(PATIENCE).expect("it answers"));
    }

    printed.pop();
    assert_eq!(blocks("shell.md").first(), Some(&printed.join("\n")));
}

#[test]
fn the_environment_page_lists_every_variable() {
    let help = help_of("config");
    let table = help.split("Variables, ").nth(1).unwrap_or_default();
    let variables: Vec<&str> = table.lines().filter(|line| line.starts_with("  EPICS_")).collect();

    let page = blocks("environment.md").join("\n");

    assert!(variables.len() >= 31, "{help}");
    for variable in variables {
        assert!(page.contains(variable), "environment.md lacks\n{variable}");
    }
}
