//! `cargo xtask fuzz SECONDS`; the input is processed in `src/datagrams.rs`.
#![no_main]

#[path = "../src/datagrams.rs"]
mod datagrams;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| datagrams::feed(bytes));
