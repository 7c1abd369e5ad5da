//! `cargo xtask fuzz SECONDS`; the input is processed in `src/ca.rs`.
#![no_main]

#[path = "../src/ca.rs"]
mod ca;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ca::feed(bytes));
