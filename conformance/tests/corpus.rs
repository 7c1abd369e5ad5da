//! Replays every input that fuzzing has kept; requires no nightly toolchain.
#![forbid(unsafe_code)]

#[path = "../../fuzz/src/autosave.rs"]
mod autosave;
#[path = "../../fuzz/src/ca.rs"]
mod ca;
#[path = "../../fuzz/src/calc.rs"]
mod calc;
#[path = "../../fuzz/src/clu_commands.rs"]
mod clu_commands;
#[path = "../../fuzz/src/clu_datagrams.rs"]
mod clu_datagrams;
#[path = "../../fuzz/src/clu_projects.rs"]
mod clu_projects;
#[path = "../../fuzz/src/clu_server.rs"]
mod clu_server;
#[path = "../../fuzz/src/clu_tftp.rs"]
mod clu_tftp;
#[path = "../../fuzz/src/codec.rs"]
mod codec;
#[path = "../../fuzz/src/database.rs"]
mod database;
#[path = "../../fuzz/src/datagrams.rs"]
mod datagrams;
#[path = "../../fuzz/src/files.rs"]
mod files;
#[path = "../../fuzz/src/groups.rs"]
mod groups;
#[path = "../../fuzz/src/ioc.rs"]
mod ioc;
#[path = "../../fuzz/src/keychains.rs"]
mod keychains;
#[path = "../../fuzz/src/links.rs"]
mod links;
#[path = "../../fuzz/src/operations.rs"]
mod operations;
#[path = "../../fuzz/src/pva_client.rs"]
mod pva_client;
#[path = "../../fuzz/src/pva_datagrams.rs"]
mod pva_datagrams;
#[path = "../../fuzz/src/pva_messages.rs"]
mod pva_messages;
#[path = "../../fuzz/src/pva_request.rs"]
mod pva_request;
#[path = "../../fuzz/src/pva_server.rs"]
mod pva_server;
#[path = "../../fuzz/src/pva_types.rs"]
mod pva_types;
#[path = "../../fuzz/src/pva_values.rs"]
mod pva_values;
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
fn every_keychain_corpus_input_is_a_keychain_or_is_rejected() {
    replay("keychains", keychains::feed);
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
fn every_clu_command_corpus_input_round_trips_or_is_rejected() {
    replay("clu_commands", clu_commands::feed);
}

#[test]
fn every_clu_datagram_corpus_input_ends_each_request_at_most_once() {
    replay("clu_datagrams", clu_datagrams::feed);
}

#[test]
fn every_clu_project_corpus_input_is_read_or_is_rejected() {
    replay("clu_projects", clu_projects::feed);
}

#[test]
fn every_groups_corpus_input_is_resolved_or_reports_errors_with_places() {
    replay("groups", groups::feed);
}

#[test]
fn every_recsync_corpus_input_is_processed_without_a_panic() {
    replay("recsync", recsync::feed);
}

#[test]
fn every_pvaccess_client_corpus_input_ends_each_request_at_most_once() {
    replay("pva_client", pva_client::feed);
}

#[test]
fn every_pvaccess_server_corpus_input_gets_replies_for_its_channels_only() {
    replay("pva_server", pva_server::feed);
}

#[test]
fn every_pvaccess_datagram_corpus_input_is_processed_without_amplification() {
    replay("pva_datagrams", pva_datagrams::feed);
}

#[test]
fn every_pvaccess_message_corpus_input_is_processed_without_a_panic() {
    replay("pva_messages", pva_messages::feed);
}

#[test]
fn every_pvrequest_corpus_input_round_trips_or_is_rejected() {
    replay("pva_request", pva_request::feed);
}

#[test]
fn every_pvaccess_type_corpus_input_round_trips_or_is_rejected() {
    replay("pva_types", pva_types::feed);
}

#[test]
fn every_pvaccess_value_corpus_input_round_trips_or_is_rejected() {
    replay("pva_values", pva_values::feed);
}

#[test]
fn every_clu_server_corpus_input_accounts_for_each_datagram() {
    replay("clu_server", clu_server::feed);
}

#[test]
fn every_clu_tftp_corpus_input_ends_all_transfers() {
    replay("clu_tftp", clu_tftp::feed);
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
        "clu_commands.rs",
        "clu_datagrams.rs",
        "clu_projects.rs",
        "clu_server.rs",
        "clu_tftp.rs",
        "codec.rs",
        "database.rs",
        "datagrams.rs",
        "groups.rs",
        "keychains.rs",
        "links.rs",
        "operations.rs",
        "pva_client.rs",
        "pva_datagrams.rs",
        "pva_messages.rs",
        "pva_request.rs",
        "pva_server.rs",
        "pva_types.rs",
        "pva_values.rs",
        "recsync.rs",
        "security.rs",
        "substitutions.rs",
    ];
    assert_eq!(names, tested);
}
