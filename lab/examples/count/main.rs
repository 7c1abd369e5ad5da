//! Executes a number of rounds of one hot path and nothing else; `cargo xtask count` runs it under callgrind.
//!
//! Without arguments it prints the names of the paths; with a name and a number of rounds it prints the number of
//! operations. The setup is the same for any number of rounds, so that the difference between two runs is the path
//! alone. The other end of a socket is a separate process, which is not counted.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a panic is a sufficient failure message for a count")]

mod client;
mod machines;
mod peer;
mod server;

use fodo_net::Protocol;

/// Number of PVs, each a channel of one circuit; a round has one operation for each.
const N_PVS: u32 = 1000;

/// Executes a path for a number of rounds.
type Path = fn(u32);

/// All paths by name.
const PATHS: [(&str, Path); 17] = [
    ("encode-request", machines::encode_request),
    ("decode-request", machines::decode_request),
    ("encode-answer", machines::encode_answer),
    ("decode-answer", machines::decode_answer),
    ("encode-update", machines::encode_update),
    ("decode-update", machines::decode_update),
    ("post", machines::post),
    ("drain", machines::drain),
    ("serve-read", |n| server::serve_reads(Protocol::Ca, n)),
    ("serve-update", |n| server::serve_updates(Protocol::Ca, n)),
    ("get", client::get),
    ("get-many", |n| client::get_many(Protocol::Ca, n)),
    ("dispatch-update", |n| client::dispatch_updates(Protocol::Ca, n)),
    ("dispatch-row", |n| client::dispatch_rows(Protocol::Ca, n)),
    ("pva-serve-read", |n| server::serve_reads(Protocol::Pva, n)),
    ("pva-serve-update", |n| server::serve_updates(Protocol::Pva, n)),
    ("pva-get-many", |n| client::get_many(Protocol::Pva, n)),
];

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        [] => PATHS.iter().for_each(|(name, _)| println!("{name}")),
        ["peer", what @ ..] => peer::run(what),
        [name, n_rounds] => {
            let (_, path) = PATHS.iter().find(|(known, _)| known == name).unwrap();
            let n_rounds: u32 = n_rounds.parse().unwrap();
            path(n_rounds);
            println!("{}", u64::from(n_rounds) * u64::from(N_PVS));
        }
        _ => panic!("count [PATH N_ROUNDS]"),
    }
}
