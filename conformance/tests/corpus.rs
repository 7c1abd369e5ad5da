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
fn every_autosave_corpus_file_round_trips() {
    replay("autosave", autosave::feed);
}

#[test]
fn every_ca_corpus_input_is_processed_without_a_panic() {
    replay("ca", ca::feed);
}

#[test]
fn every_codec_corpus_input_round_trips() {
    replay("codec", codec::feed);
}

#[test]
fn every_datagram_corpus_input_is_processed_without_a_panic() {
    replay("datagrams", datagrams::feed);
}

#[test]
fn every_operations_corpus_input_completes() {
    replay("operations", operations::feed);
}

#[test]
fn every_database_corpus_input_loads_or_reports_an_error() {
    replay("database", database::feed);
}

#[test]
fn every_substitutions_corpus_input_loads_or_reports_an_error() {
    replay("substitutions", substitutions::feed);
}

#[test]
fn every_access_security_corpus_input_loads_or_reports_an_error() {
    replay("security", security::feed);
}

#[test]
fn every_link_corpus_input_works_or_is_rejected() {
    replay("links", links::feed);
}

#[test]
fn every_calc_corpus_expression_runs_or_is_rejected() {
    replay("calc", calc::feed);
}

#[test]
fn every_recsync_corpus_input_is_processed_without_a_panic() {
    replay("recsync", recsync::feed);
}

#[test]
fn every_fuzz_target_has_a_corpus_test() {
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
