//! `cargo xtask fuzz SECONDS`; the input is processed in `src/autosave.rs`.
#![no_main]

#[path = "../src/autosave.rs"]
mod autosave;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| autosave::feed(bytes));
