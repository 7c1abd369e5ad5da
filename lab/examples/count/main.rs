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

/// Number of PVs, each a channel of one circuit; a round has one operation for each.
const N_PVS: u32 = 1000;

/// Executes a path for a number of rounds.
type Path = fn(u32);

/// All paths by name.
const PATHS: [(&str, Path); 13] = [
    ("encode-request", machines::encode_request),
    ("decode-request", machines::decode_request),
    ("encode-answer", machines::encode_answer),
    ("decode-answer", machines::decode_answer),
    ("encode-update", machines::encode_update),
    ("decode-update", machines::decode_update),
    ("post", machines::post),
    ("drain", machines::drain),
    ("serve-read", server::serve_reads),
    ("serve-update", server::serve_updates),
    ("get", client::get),
    ("get-many", client::get_many),
    ("dispatch-update", client::dispatch_updates),
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
