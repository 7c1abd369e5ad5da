//! `cargo xtask fuzz SECONDS`; the input is processed in `src/pva_server.rs`.
#![no_main]

#[path = "../src/pva_server.rs"]
mod pva_server;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| pva_server::feed(bytes));
