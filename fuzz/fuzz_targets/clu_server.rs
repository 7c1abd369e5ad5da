//! `cargo xtask fuzz SECONDS`; the input is processed in `src/clu_server.rs`.
#![no_main]

#[path = "../src/clu_server.rs"]
mod clu_server;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| clu_server::feed(bytes));
