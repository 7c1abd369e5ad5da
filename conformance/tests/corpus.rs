//! Replays every input that fuzzing has kept; requires no nightly toolchain.
#![forbid(unsafe_code)]

#[path = "../../fuzz/src/autosave.rs"]
mod autosave;
#[path = "../../fuzz/src/ca.rs"]
mod ca;
#[path = "../../fuzz/src/calc.rs"]
mod calc;
#[path = "../../fuzz/src/codec.rs"]
mod codec;
#[path = "../../fuzz/src/database.rs"]
mod database;
#[path = "../../fuzz/src/datagrams.rs"]
mod datagrams;
#[path = "../../fuzz/src/files.rs"]
mod files;
#[path = "../../fuzz/src/ioc.rs"]
mod ioc;
#[path = "../../fuzz/src/links.rs"]
mod links;
#[path = "../../fuzz/src/operations.rs"]
mod operations;
#[path = "../../fuzz/src/recsync.rs"]
mod recsync;
#[path = "../../fuzz/src/security.rs"]
mod security;
#[path = "../../fuzz/src/substitutions.rs"]
mod substitutions;

/// Feeds every input in a target's folder.
fn replay(target: &str, feed: fn(&[u8])) {
    let folder = format!("{}/../fuzz/corpus/{target}", env!("CARGO_MANIFEST_DIR"));
    let mut n_inputs = 0;

    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        println!("{}", path.display());
        feed(&std::fs::read(path).unwrap());
        n_inputs += 1;
    }

    assert!(n_inputs > 0);
}

#[test]
fn every_kept_file_of_autosave_is_read_and_comes_back_as_it_was() {
    replay("autosave", autosave::feed);
}

#[test]
fn every_kept_input_of_circuits_and_searches_is_taken_without_a_panic() {
    replay("ca", ca::feed);
}

#[test]
fn every_kept_input_of_the_codecs_comes_back_as_it_was() {
    replay("codec", codec::feed);
}

#[test]
fn every_kept_row_of_datagrams_is_heard_without_a_panic() {
    replay("datagrams", datagrams::feed);
}

#[test]
fn every_kept_sequence_of_operations_comes_to_its_end() {
    replay("operations", operations::feed);
}

#[test]
fn every_kept_database_loads_and_runs_or_says_why_not() {
    replay("database", database::feed);
}

#[test]
fn every_kept_substitutions_file_loads_and_runs_or_says_why_not() {
    replay("substitutions", substitutions::feed);
}

#[test]
fn every_kept_access_file_answers_or_says_why_not() {
    replay("security", security::feed);
}

#[test]
fn every_kept_link_and_filter_works_or_is_refused() {
    replay("links", links::feed);
}

#[test]
fn every_kept_expression_runs_or_is_refused() {
    replay("calc", calc::feed);
}

#[test]
fn every_kept_conversation_with_a_recceiver_is_taken_without_a_panic() {
    replay("recsync", recsync::feed);
}

#[test]
fn every_target_has_its_test_here() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/fuzz_targets");
    let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();

    let tested = [
        "autosave.rs",
        "ca.rs",
        "calc.rs",
        "codec.rs",
        "database.rs",
        "datagrams.rs",
        "links.rs",
        "operations.rs",
        "recsync.rs",
        "security.rs",
        "substitutions.rs",
    ];
    assert_eq!(names, tested);
}
