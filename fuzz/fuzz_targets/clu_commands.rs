//! `cargo xtask fuzz SECONDS`; the input is processed in `src/clu_commands.rs`.
#![no_main]

#[path = "../src/clu_commands.rs"]
mod clu_commands;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| clu_commands::feed(bytes));
