//! The laboratory without the rest of `fodo`: sufficient for the floor and the peers.

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1).peekable();
    // The laboratory starts its workers as `fodo lab worker ...`.
    words.next_if(|word| word == "lab");
    fodo_lab::run(words)
}
