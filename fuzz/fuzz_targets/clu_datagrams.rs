//! `cargo xtask fuzz SECONDS`; the input is processed in `src/clu_datagrams.rs`.
#![no_main]

#[path = "../src/clu_datagrams.rs"]
mod clu_datagrams;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| clu_datagrams::feed(bytes));
