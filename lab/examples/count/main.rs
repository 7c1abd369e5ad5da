//! One hot path, so many rounds of it and nothing else: what `cargo xtask count` runs under callgrind.
//!
//! Without arguments it prints the names of the paths; with a name and a number of rounds it prints how many
//! operations these were. What a round needs beforehand is the same for any number of rounds, so that the difference
//! of two runs is the path alone. The other end of a socket is a process of its own, which is not counted.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a count that cannot be taken has said enough when it stops")]

mod client;
mod machines;
mod peer;
mod server;

/// How many PVs, each a channel of one circuit; the operations of a round, one for each.
const N_PVS: u32 = 1000;

/// Walks a path so many rounds.
type Path = fn(u32);

/// Every path by its name.
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
