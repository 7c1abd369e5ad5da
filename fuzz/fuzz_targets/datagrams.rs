//! `cargo xtask fuzz SECONDS`; what is done with the bytes stands in `src/datagrams.rs`.
#![no_main]

#[path = "../src/datagrams.rs"]
mod datagrams;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| datagrams::feed(bytes));
